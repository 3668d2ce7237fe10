"""What tasks of another machine wrote, on its way to the host: in order, and never too much."""

import json
import threading
from collections.abc import Iterable

MAX_BYTES, MAX_LINE = 2**18, 4000  # of what waits to be sent as JSON, and letters of one line


def count_bytes(line: str) -> int:
    """Return how long a line is in a frame, where one letter may take six bytes or twelve."""
    return len(json.dumps(line)) + 40


def cut_tail(lines: Iterable[str]) -> list[str]:
    """Return the last lines, as many as fit into one frame."""
    kept, room = [], MAX_BYTES
    for line in reversed([line[:MAX_LINE] for line in lines]):
        room -= count_bytes(line)
        if room < 0:
            break
        kept.append(line)
    return kept[::-1]


class LineBuffer:
    """Lines that wait to be sent; what does not fit is left out, and said."""

    def __init__(self, host: str) -> None:
        self._host, self._lines, self._bytes = host, list[list[str]](), 0
        self._left_out: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, task: str, line: str) -> None:
        with self._lock:
            line = line[:MAX_LINE]
            count = count_bytes(line)
            if self._bytes + count > MAX_BYTES:
                self._left_out[task] = self._left_out.get(task, 0) + 1
                return
            self._bytes += count
            self._lines.append([task, line])

    def take(self) -> list[list[str]]:
        """Return [task, line] of all that waits."""
        with self._lock:
            lines, self._lines, self._bytes = self._lines, [], 0
            for task, count in self._left_out.items():
                lines.append(
                    [task, f"… {count} lines left out here; its log on {self._host} has them"]
                )
            self._left_out = {}
            return lines
