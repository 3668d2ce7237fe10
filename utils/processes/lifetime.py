"""Ending with the process that started this one, and ending a whole group of processes."""

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36  # prctl(2)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask Linux to send this process a signal when the thread that started it ends."""
    _ask_linux(PR_SET_PDEATHSIG, number)


def name_process(name: str) -> None:
    """Let `ps` and `top` show this process under `name` (15 letters)."""
    _ask_linux(PR_SET_NAME, name.encode()[:15])


def adopt_orphans() -> None:
    """Ask Linux to make this process the parent of what its children leave behind."""
    _ask_linux(PR_SET_CHILD_SUBREAPER, 1)


def _ask_linux(option: int, value: int | bytes) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def signal_group(process: int, number: int) -> None:
    """Signal the process group that `process` leads, or will in a moment; one that is gone too."""
    try:
        os.killpg(process, number)
    except ProcessLookupError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)  # forked a moment ago, not yet its own group


@contextlib.contextmanager
def ending_with_parent(end: socket.socket, clear_up: Callable[[], None]) -> Iterator[None]:
    """While the block runs, clear up and end this process as soon as the parent hangs up.

    For work that takes long before anything reads from `end`, the socket to the parent. The
    thread that watches it has gone when the block is left: forking wants one thread.
    """
    stop, stopped = socket.socketpair()

    def watch() -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(end, selectors.EVENT_READ)
            selector.register(stopped, selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select()}
        if stopped not in ready and not end.recv(1, socket.MSG_PEEK):
            clear_up()
            os._exit(1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        stop.close()
        watcher.join()
        stopped.close()


def count_threads(seconds: float = 1.0) -> int:
    """Return how many threads this process has, once those that are ending have ended (Linux)."""
    deadline = time.monotonic() + seconds
    while (threads := len(os.listdir("/proc/self/task"))) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    return threads
