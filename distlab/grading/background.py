"""One thread that works through a queue, so that what is slow there doesn't stop a loop here.

The reader's process reads hostile files ahead, and the judges' process judges what was seen, while
other submissions run.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

Asked = TypeVar("Asked")
Done = TypeVar("Done")
_STOP: Any = object()


class BackgroundQueue(Generic[Asked, Done]):
    """Calls `work` on all that is `put` in; `take` yields the results, in that order.

    Its descriptor can be read from when there is something to take. A context manager.
    """

    def __init__(self, work: Callable[[Asked], Done]) -> None:
        self._work, self.waiting = work, 0
        self._todo: SimpleQueue[Asked] = SimpleQueue()
        self._done: SimpleQueue[tuple[Done | None, BaseException | None]] = SimpleQueue()
        self._awake, self._wake = socket.socketpair()
        self._awake.setblocking(False)
        threading.Thread(target=self._run, name="background", daemon=True).start()

    def fileno(self) -> int:
        return self._awake.fileno()

    def put(self, asked: Asked) -> None:
        """Have `asked` worked on."""
        self.waiting += 1
        self._todo.put(asked)

    def take(self, all_of_them: bool = False) -> Iterator[Done]:
        """Yield the results so far, or all if asked to wait; raise what `work` has raised."""
        with contextlib.suppress(BlockingIOError):
            self._awake.recv(4096)
        while self.waiting and (all_of_them or not self._done.empty()):
            done, error = self._done.get()
            if error is not None:
                raise error
            self.waiting -= 1
            yield done  # type: ignore[misc]

    def _run(self) -> None:
        with self._wake:
            while (asked := self._todo.get()) is not _STOP:
                try:
                    self._done.put((self._work(asked), None))
                except BaseException as error:  # raised again in `take`
                    self._done.put((None, error))
                try:
                    self._wake.send(b".", socket.MSG_DONTWAIT)
                except BlockingIOError:  # only `take` reads the descriptor
                    pass
                except OSError:  # its reader has gone
                    return

    def __enter__(self) -> "BackgroundQueue[Asked, Done]":
        return self

    def __exit__(self, *error: object) -> None:
        self._awake.close()
        self._todo.put(_STOP)
