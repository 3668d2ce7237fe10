"""SIGINT and SIGTERM while a run goes on: remembered, passed on, and meant at the second time."""

import signal
import threading


class Signals:
    """While the block runs: remembers SIGINT or SIGTERM instead of ending this process.

    `number` is the first that has come, 0 for none. `wish` is what to do to the tasks now:
    SIGKILL once there was a second.
    """

    def __init__(self) -> None:
        self.number = self.wish = 0
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
        """Take a signal; a thread with an order to stop may call it, too."""
        self.wish = signal.SIGKILL if self.number else number
        self.number = self.number or number

    @property
    def hurries(self) -> bool:
        """Whether nobody wants to wait for the tasks any more."""
        return self.wish == signal.SIGKILL

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
