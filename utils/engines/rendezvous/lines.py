"""What tasks of another machine wrote, on its way to the host: in order, and never too much."""

import threading

MAX_BYTES, MAX_LINE = 2**18, 4000  # of what waits to be sent, and of one line


class LineBuffer:
    """Lines that wait to be sent; what does not fit is left out, and said."""

    def __init__(self, host: str) -> None:
        self._host, self._lines, self._bytes = host, list[list[str]](), 0
        self._left_out: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, task: str, line: str) -> None:
        with self._lock:
            line = line[:MAX_LINE]
            if self._bytes + len(line) > MAX_BYTES:
                self._left_out[task] = self._left_out.get(task, 0) + 1
                return
            self._bytes += len(line) + 1
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
