"""What the stages of a pipeline hand one another: tensors under a name, waited for with a limit."""

import threading
import time
from collections.abc import Hashable
from typing import Any

from ..errors import InputError


class Mailbox:
    """Holds tensors until the stage that needs them takes them; safe between threads.

    A message may be given a delay, in which it is on its way and cannot be taken.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._arrived: dict[Hashable, tuple[float, Any]] = {}  # key -> (when it is there, tensor)
        self._error: BaseException | None = None

    def put(self, key: Hashable, tensor: Any, delay_seconds: float = 0.0) -> None:
        """Lay a tensor down under `key`; it can be taken `delay_seconds` from now."""
        with self._changed:
            self._arrived[key] = (time.monotonic() + delay_seconds, tensor)
            self._changed.notify_all()

    def take(self, key: Hashable, who: str, limit_seconds: float) -> Any:
        """Wait for the tensor under `key` and return it.

        Raises InputError, which names `who` waits, when the time is over or
        another stage has failed.
        """
        end = time.monotonic() + limit_seconds
        with self._changed:
            while not (key in self._arrived and self._arrived[key][0] <= time.monotonic()):
                if self._error is not None:
                    raise InputError(f"{who} gave up: another stage failed ({self._error})")
                if time.monotonic() > end:
                    raise InputError(f"{who} has waited {limit_seconds:.0f} s for {key}: give up")
                due = self._arrived[key][0] if key in self._arrived else end
                self._changed.wait(max(min(due, end) - time.monotonic(), 0.0) + 1e-4)
            return self._arrived.pop(key)[1]

    def fail(self, error: BaseException) -> None:
        """Wake everyone who waits: `error` has ended a stage."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()
