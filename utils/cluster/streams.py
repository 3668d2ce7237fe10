"""Reading what tasks write: one thread for all pipes of a launcher."""

import contextlib
import os
import re
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

PIECE_BYTES = 65536  # what a pipe holds
DRAIN_PIECES = 4
PROGRESS_SECONDS = 1.0
MAX_LINE_BYTES = 2**20  # of what a program prints
TERMINAL_COMMAND = re.compile(r"\x1b(\][^\x07\x1b]*(\x07|\x1b\\)?|\[[0-?]*[ -/]*[@-~])")


class ErrorLine(str):
    """A line that a program wrote to stderr."""


def clean_line(line: str) -> str:
    """Return a line from another machine without what a terminal obeys."""
    plain = TERMINAL_COMMAND.sub("", line)
    return "".join(sign if sign.isprintable() else " " for sign in plain)


class Source(Protocol):
    """Something that can be read from; `read` takes what is there now."""

    def fileno(self) -> int: ...

    def read(self) -> bool | None:
        """Take one piece; return whether there may be more now, None at the end."""

    def close(self) -> None: ...


class Streams:
    """Reads from sources in one thread, each as something arrives. `read` is called there."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._awake, self._wake = socket.socketpair()
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._calls: deque[Callable[[], None] | None] = deque()
        self._keys: dict[Source, selectors.SelectorKey] = {}
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def add(self, source: Source) -> None:
        """Read from `source` from now on, until its end."""
        self.call(lambda: self._register(source))

    def call(self, function: Callable[[], None] | None) -> None:
        """Call `function` in the reading thread, after earlier requests."""
        self._calls.append(function)
        with contextlib.suppress(OSError):  # closed
            self._wake.send(b"+")

    def drain(self, source: Source) -> None:
        """In the reading thread: read everything that arrived before this call."""
        for _ in range(DRAIN_PIECES):
            if source not in self._keys or not self._take(source):
                return

    def remove(self, source: Source) -> None:
        """In the reading thread: read no more from `source`, and close it."""
        if source in self._keys:
            self._selector.unregister(self._keys.pop(source).fd)
            source.close()

    def close(self) -> None:
        """Finish all requests, then stop reading; safe to call twice."""
        if self._thread.is_alive():
            self.call(None)
            self._thread.join(60)
            for source in list(self._keys):
                self.remove(source)
            self._selector.close()
            self._awake.close()
            self._wake.close()

    def _register(self, source: Source) -> None:
        self._keys[source] = self._selector.register(source, selectors.EVENT_READ, source)

    def _work(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._awake.recv(1024)
                elif key.data in self._keys:  # nobody has drained it to its end meanwhile
                    self._take(key.data)
            while self._calls:
                function = self._calls.popleft()
                if function is None:
                    return
                function()

    def _take(self, source: Source) -> bool:
        more = source.read()
        if more is None:
            self.remove(source)
        return bool(more)


class LineReader:
    """A pipe's reading end: calls `take` with each whole line, without its end.

    A line longer than `max_bytes` comes in pieces. One that writes over itself (\\r), as progress
    bars do, is handed on as it stands, once a second.
    """

    def __init__(
        self, descriptor: int, take: Callable[[str], None], max_bytes: float = float("inf")
    ) -> None:
        self._descriptor, self._take, self._rest = descriptor, take, b""
        self._max_bytes, self._next_progress = max_bytes, 0.0
        os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bool | None:
        try:
            piece = os.read(self._descriptor, PIECE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return None
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._take(line.decode(errors="replace").rstrip("\r"))
        if b"\r" in self._rest[1:-1] and time.monotonic() > self._next_progress:
            self._next_progress = time.monotonic() + PROGRESS_SECONDS
            shown, _, self._rest = self._rest.rpartition(b"\r")
            self._take(shown.rpartition(b"\r")[2].decode(errors="replace"))
        if len(self._rest) > self._max_bytes:
            rest, self._rest = self._rest, b""
            self._take(rest.decode(errors="replace"))
        return True if piece else None

    def close(self) -> None:
        """Hand on a last line that has no end, and close the pipe."""
        if self._rest:
            self._take(self._rest.decode(errors="replace"))
        os.close(self._descriptor)
