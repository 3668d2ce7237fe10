"""Reads what was handed in while others run: one thread that asks the reader's process.

A file that keeps the reader for as long as it may must not stop the executor's clock, nor
leave the pipes of other submissions full.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from distlab.grading.reader_process import ReaderProcess, Refused

Read = dict[str, Any] | Refused  # what the reader has told of a file


class ReadingQueue:
    """Paths go in with `put`; `take` yields what was told of each, in that order.

    Its descriptor can be read from when there is something to take. A context manager.
    """

    def __init__(self, reader: ReaderProcess) -> None:
        self._reader, self.waiting = reader, 0
        self._todo: SimpleQueue[Path] = SimpleQueue()
        self._done: SimpleQueue[Read | BaseException] = SimpleQueue()
        self._awake, self._wake = socket.socketpair()
        threading.Thread(target=self._work, name="read", daemon=True).start()

    def fileno(self) -> int:
        return self._awake.fileno()

    def put(self, path: Path) -> None:
        """Have the notebook at `path` read."""
        self.waiting += 1
        self._todo.put(path)

    def take(self) -> Iterator[Read]:
        """Yield what has been read since the last call; raise what the reader has raised."""
        self._awake.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self._awake.recv(4096)
        while not self._done.empty():
            told = self._done.get()
            if isinstance(told, BaseException) and not isinstance(told, Refused):
                raise told
            self.waiting -= 1
            yield told

    def _work(self) -> None:
        with self._wake:
            while True:
                path = self._todo.get()
                try:
                    told: Read | BaseException = self._reader.ask(do="align", path=str(path))
                except BaseException as error:  # raised again in `take`, but for Refused
                    told = error
                self._done.put(told)
                try:
                    self._wake.send(b".")
                except OSError:  # nobody waits any more
                    return

    def __enter__(self) -> "ReadingQueue":
        return self

    def __exit__(self, *error: object) -> None:
        self._awake.close()
