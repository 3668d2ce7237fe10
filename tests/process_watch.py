"""Watching processes from a test: wait for something, who is left of a group, what is open."""

import contextlib
import os
import subprocess
import threading
import time

import psutil


def wait_for(look, seconds: float = 180.0):
    """Return what `look` finds as soon as it does; the limit is for a machine with much to do."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain")


@contextlib.contextmanager
def ending(process):
    """Whatever happens in the block, `process` (a Popen) is killed and collected after it."""
    with process:  # closes its pipes, and waits
        try:
            yield process
        finally:
            process.kill()


_started: list[subprocess.Popen] = []


def start_process(words: list[str], **settings) -> subprocess.Popen:
    """Start a process that ends with the test, whatever becomes of that."""
    _started.append(subprocess.Popen(words, **settings))
    return _started[-1]


def end_started() -> None:
    """End what the test has started: `conftest` does."""
    with contextlib.ExitStack() as stack:
        while _started:
            stack.enter_context(ending(_started.pop()))


def lives(process: int) -> bool:
    """Return whether a process runs: one that has ended and waits to be collected doesn't."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def group_members(group: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter():
        try:
            same = os.getpgid(process.pid) == group
            if same and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
        except (ProcessLookupError, psutil.Error):
            pass
    return members


class Held:
    """What this process holds open now, to find later what came and stayed.

    Threads and descriptors that were there before may go, so that what an earlier
    test left to end doesn't count.
    """

    def __init__(self) -> None:
        self.threads = set(threading.enumerate())
        self.descriptors = len(os.listdir("/proc/self/fd"))

    def list_new_threads(self) -> list[threading.Thread]:
        """Return the threads that Python started since (TensorFlow's own aren't)."""
        new = set(threading.enumerate()) - self.threads
        return [thread for thread in new if not isinstance(thread, threading._DummyThread)]

    def assert_nothing_stays(self, seconds: float = 90.0) -> None:
        end = time.monotonic() + seconds
        while self._holds_more() and time.monotonic() < end:
            time.sleep(0.01)
        assert not self.list_new_threads(), "threads stay"
        assert len(os.listdir("/proc/self/fd")) <= self.descriptors, "descriptors stay"

    def _holds_more(self) -> bool:
        return bool(self.list_new_threads()) or len(os.listdir("/proc/self/fd")) > self.descriptors
