"""Lines of another machine's tasks on their way to the host: in order, and never too many."""

import json
import threading
from collections import deque

MAX_BYTES, MAX_LINE = 2**18, 4000  # of what waits to be sent as JSON, and letters of one line


def count_bytes(line: str) -> int:
    """Return how long a line is in a frame, where one letter may take six bytes or twelve."""
    return len(json.dumps(line)) + 40


class LineBuffer:
    """Lines of one task that wait to be sent.

    If they come too fast, the oldest are left out, with a note: the last lines always arrive.
    """

    def __init__(self, host: str) -> None:
        self._host, self._bytes, self._left_out = host, 0, 0
        self._lines, self._lock = deque[str](), threading.Lock()

    def add(self, line: str) -> None:
        line = line[:MAX_LINE]
        with self._lock:
            self._lines.append(line)
            self._bytes += count_bytes(line)
            while self._bytes > MAX_BYTES:
                self._bytes -= count_bytes(self._lines.popleft())
                self._left_out += 1

    def take(self) -> list[str]:
        """Return all that waits."""
        with self._lock:
            lines, count = list(self._lines), self._left_out
            self._lines.clear()
            self._bytes = self._left_out = 0
        said = f"… {count} lines left out here; its log on {self._host} has them"
        return [said] * bool(count) + lines
