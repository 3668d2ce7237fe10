"""SIGINT and SIGTERM while a run goes on: remembered, passed on, and meant at the second time."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from .task_process import RunningTask

END_SECONDS = 10.0  # for a task that was killed


class Signals:
    """While the block runs: remembers SIGINT or SIGTERM instead of ending this process."""

    def __init__(self) -> None:
        self.number, self._on_second = 0, lambda: None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self.receive)
        return self

    @property
    def name(self) -> str:
        """The name of the signal that has come, such as "SIGINT"; "" for none."""
        return signal.Signals(self.number).name if self.number else ""

    def receive(self, number: int, frame: object = None) -> None:
        """Take a signal; a thread that has somebody's order to stop may call it, too."""
        if self.number:
            self._on_second()
        self.number = self.number or number

    @contextlib.contextmanager
    def insist(self, on_second: Callable[[], None]) -> Iterator[None]:
        """While the block runs, another signal calls `on_second`."""
        self._on_second = on_second
        try:
            yield
        finally:
            self._on_second = lambda: None

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def kill_all(tasks: Iterable[RunningTask]) -> None:
    """Kill every task that lives, without waiting."""
    for task in tasks:
        task.send(signal.SIGKILL)


def end_all(tasks: Iterable[RunningTask], grace_seconds: float, number: int) -> None:
    """Ask every task to end with signal `number`; kill those that are left after the grace."""
    left = list(tasks)
    for task in left if grace_seconds else ():
        task.send(number)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and any(task.lives for task in left):
        time.sleep(0.02)
    kill_all(left)
    for task in left:
        task.join(END_SECONDS)
