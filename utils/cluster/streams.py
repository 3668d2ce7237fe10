"""Reading what tasks write: one thread for all pipes of a job."""

import os
import selectors
import socket
import threading
from collections.abc import Callable


class Streams:
    """Reads what tasks write, in one thread, and hands whole pieces on."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._awake, self._wake = socket.socketpair()
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._open = True
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def add(self, descriptor: int, take: Callable[[bytes], None], end: Callable[[], None]) -> None:
        """Call `take` with what arrives at `descriptor`, and `end` once it is closed."""
        os.set_blocking(descriptor, False)
        self._selector.register(descriptor, selectors.EVENT_READ, (take, end))
        self._wake.send(b"+")

    def _read(self) -> None:
        while self._open:
            for key, _ in self._selector.select(timeout=1):
                if key.data is None:
                    self._awake.recv(1024)
                    continue
                take, end = key.data
                try:
                    piece = os.read(key.fd, 65536)
                except BlockingIOError:
                    continue
                except OSError:
                    piece = b""
                if piece:
                    take(piece)
                else:
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
                    end()

    def close(self) -> None:
        self._open = False
        self._wake.send(b"-")
        self._thread.join(5)
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                os.close(key.fd)
        self._selector.close()
        self._awake.close()
        self._wake.close()


class LineSplitter:
    """Collects bytes and calls `take` with each whole line, without its end."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take, self._rest = take, b""

    def feed(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._take(line.decode(errors="replace").rstrip("\r"))

    def finish(self) -> None:
        if self._rest:
            self._take(self._rest.decode(errors="replace"))
            self._rest = b""
