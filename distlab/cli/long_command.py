"""Long commands: progress on standard error, and a clean end on SIGTERM."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS_BETWEEN = 20.0  # between lines, without a terminal: in a log, a job, a pipe


class Progress:
    """Shows `done` of `total`. `quiet` (with `--json`) prints no lines; a terminal has its bar.

    progress = Progress("distlab train", 400, "step")
    progress.show(120, "epoch 2, loss 0.3124")
    """

    def __init__(
        self,
        command: str,
        total: int,
        unit: str,
        first: int = 0,
        quiet: bool = False,
        seconds: float = SECONDS_BETWEEN,
    ) -> None:
        self.done, self.total = first, total
        self._command, self._unit, self._quiet, self._seconds = command, unit, quiet, seconds
        self._said = time.monotonic()
        self._bar: Any = None

    def show(self, done: int, note: str = "") -> None:
        """Say that `done` of `total` are done; `note` is what else there is to say."""
        before, self.done = self.done, done
        if sys.stderr.isatty():
            self._bar = self._bar or _make_bar(self._command, self.total, self._unit, before)
            news = bool(note) and note != self._bar.postfix  # to be seen, however soon after
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(done - before)
            if news:
                self._bar.refresh()
        elif not self._quiet and time.monotonic() - self._said >= self._seconds:
            self._said = time.monotonic()
            more = f", {note}" if note else ""
            line = f"{self._command}: {done:,} of {self.total:,} {self._unit}s{more}"
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _make_bar(command: str, total: int, unit: str, first: int) -> Any:
    from tqdm import tqdm

    return tqdm(
        total=total,
        initial=first,
        unit=unit,
        desc=command,
        file=sys.stderr,
        dynamic_ncols=True,
        leave=False,
    )


@contextmanager
def say_waiting(text: str, quiet: bool = False, seconds: float = SECONDS_BETWEEN) -> Iterator[None]:
    """Print `text` with the seconds that have passed, every so often, while the block runs."""
    begun, over = time.monotonic(), threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            print(f"{text}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)

    thread = threading.Thread(target=repeat, daemon=True)
    if not quiet:
        thread.start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def signals_ask_to_stop() -> Iterator[tuple[threading.Event, list[int]]]:
    """Yield an event that SIGINT and SIGTERM set, and their numbers; a second one interrupts."""
    stop, received = threading.Event(), []

    def ask(number: int, frame: object) -> None:
        received.append(number)
        stop.set()
        if len(received) > 1:  # asked twice: at once
            raise KeyboardInterrupt

    before = {n: signal.signal(n, ask) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop, received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does: by KeyboardInterrupt, so that it clears up."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
