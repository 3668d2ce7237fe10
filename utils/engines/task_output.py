"""What one task writes: whole in its log, its last lines at hand, each shown as it comes."""

import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

from ..errors import first_line

TAIL_LINES, MAX_TAIL_LINE = 2000, 4000
Print = Callable[[str, str], None]  # task, line


class TaskOutput:
    """Takes a task's lines, in one thread. A disk or a terminal that takes no more ends nothing.

    `tail` are the last lines, long ones cut. A log that cannot be written is said once.
    """

    def __init__(self, task: str, log: Path, show: Print) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._task, self._show, self._log, self._is_whole = task, show, None, True
        try:
            self._log = log.open("ab", buffering=0)
        except OSError as error:
            self._say_broken(error)

    def take(self, line: str) -> None:
        self.tail.append(line[:MAX_TAIL_LINE])
        if self._log is not None:
            try:
                self._log.write((line + "\n").encode(errors="replace"))
            except OSError as error:
                self._say_broken(error)
        self._tell(line)

    def _say_broken(self, error: OSError) -> None:
        if self._is_whole:
            self._is_whole = False
            self._tell(f"(its log is not whole: {error.strerror or first_line(error)})")

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # who was shown it has gone
            self._show(self._task, line)

    def close(self) -> None:
        if self._log is not None:
            with contextlib.suppress(OSError):
                self._log.close()
