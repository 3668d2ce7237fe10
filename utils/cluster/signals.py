"""Signals that end a run: remembered, passed on, and meant at the second time.

Beside Ctrl-C (SIGINT) and SIGTERM these are SIGHUP, which a closed terminal or a lost SSH
session sends, and SIGQUIT (Ctrl-\\). Tasks get SIGTERM for both, as programs handle that.
"""

import signal
import threading

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def choose_signal(number: int) -> int:
    """Return the signal that tasks get when `number` has come here."""
    return signal.SIGTERM if number in (signal.SIGHUP, signal.SIGQUIT) else number


class Signals:
    """While the block runs: remembers a signal of ENDS instead of ending this process.

    `number` is the first that has come, 0 for none. `wish` is what to do to the tasks now:
    SIGKILL once there was a second. A second SIGHUP means nothing, as shells repeat it. If
    SIGHUP is ignored already, as under nohup, it stays ignored.
    """

    def __init__(self) -> None:
        self.number = self.wish = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in ENDS:
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self.receive)
        return self

    @property
    def name(self) -> str:
        """The name of the signal that has come, such as "SIGINT"; "" for none."""
        return signal.Signals(self.number).name if self.number else ""

    def receive(self, number: int, frame: object = None) -> None:
        """Take a signal; a thread with an order to stop may call it, too."""
        if not self.number:
            self.number = self.wish = number
        elif number != signal.SIGHUP:
            self.wish = signal.SIGKILL

    @property
    def hurries(self) -> bool:
        """True if the user wants the tasks ended without waiting."""
        return self.wish == signal.SIGKILL

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
