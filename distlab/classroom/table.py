"""Everybody's lane at a terminal: a row for each laptop, drawn again in place."""

import statistics
import sys
import threading
import time
import unicodedata
from collections.abc import Sequence
from itertools import islice
from typing import TextIO

from distlab.classroom.roll import Roll
from distlab.explorables.cockpit_book import JobBook, LaneBook
from distlab.explorables.cockpit_lanes import SYMBOLS, name_states

UPDATE_SECONDS, QUIET_SECONDS = 0.5, 20.0  # at a terminal; in a log, where nothing has changed
MAX_STEPS = 20
IN_LOBBY, STOPPED = "◌ is here", "■ stopped"
WORDS = {
    "waiting": "waits for the next start",
    "stopped": "has left",
    "killed": "is lost",
    "frozen": "silent",
    "starting": "starting",
    "running": "training",
}
HEAD = ("name", "state", "step", "computes", "waits", "waits for")
NOTHING = "–"


class Table:
    """Shows a roll until `close`: at a terminal in place, elsewhere where a state changes."""

    def __init__(self, roll: Roll, stream: TextIO = sys.stderr) -> None:
        self._roll, self._stream, self._book = roll, stream, JobBook(roll)
        self._drawn, self._said, self._said_at = 0, "", 0.0
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        """Print a line above the table."""
        with self._lock:
            self._wipe()
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Draw it a last time."""
        self._over.set()
        self._thread.join(5)
        self._draw()

    def _follow(self) -> None:
        while not self._over.wait(UPDATE_SECONDS):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            self._book.read()
            rows = list_rows(self._roll, self._book)
            if not rows:
                return
            lines = [*format_rows([HEAD, *rows]), describe_class(self._roll, self._book)]
            if self._stream.isatty():
                self._wipe()
                self._drawn = len(lines)
            elif not self._has_news(rows):
                return
            print("\n".join(lines), file=self._stream, flush=True)

    def _has_news(self, rows: Sequence[Sequence[str]]) -> bool:
        said = str([row[:2] for row in rows])
        if said == self._said and time.monotonic() - self._said_at < QUIET_SECONDS:
            return False
        self._said, self._said_at = said, time.monotonic()
        return True

    def _wipe(self) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0


def list_rows(roll: Roll, book: JobBook) -> list[tuple[str, ...]]:
    """Return a row of HEAD's columns for each laptop."""
    tasks = roll.tasks
    stopped = roll.finished and roll.error is not None and roll.error.cause == "was stopped"
    states = name_states(tasks, roll.finished, stopped)
    lanes = {task.name: book.lanes[task.name] for task in tasks if task.name in book.lanes}
    lost = {task.name for task in tasks if task.is_lost}
    here = [t.name for t in tasks if t.state in ("running", "frozen") and t.name in lanes]
    computing = {name: time_computing(lanes[name]) for name in here}
    rows = []
    for name, lane in lanes.items():
        words = describe_state(roll, *states[name], name in lost)
        step = str(int(lane.last["step"])) if "step" in lane.last else NOTHING
        times = [format_ms(time_computing(lane)), format_ms(time_waiting(lane))]
        rows.append((name, words, step, *times, find_awaited(name, lanes, computing)))
    return rows


def describe_state(roll: Roll, state: str, more: str, is_lost: bool) -> str:
    """Return a laptop's state in words; `more` as `name_states` has it."""
    if not roll.has_begun:
        return IN_LOBBY
    if is_lost and not roll.finished:
        return f"{SYMBOLS['killed']} {WORDS['killed']}"
    if roll.finished and state == "stopped":
        return STOPPED
    return f"{SYMBOLS[state]} {f'waits {more}' if more else WORDS.get(state, state)}"


def time_computing(lane: LaneBook) -> float | None:
    """Return the median seconds that the last steps computed; None if there are none."""
    times = [s.ready - s.began for s in islice(reversed(lane.story.steps), MAX_STEPS) if s.ready]
    return statistics.median(times) if times else None


def time_waiting(lane: LaneBook) -> float | None:
    """Return the median seconds from the own gradients to the update, the all-reduce included."""
    times = [s.ended - s.ready for s in islice(reversed(lane.story.steps), MAX_STEPS) if s.ready]
    return statistics.median(times) if times else None


def find_awaited(name: str, lanes: dict[str, LaneBook], computing: dict[str, float | None]) -> str:
    """Return for whom a laptop waits: those who compute still, else who usually is the slowest."""
    if name not in computing:
        return NOTHING
    if lanes[name].story.phase == "wait":
        late = [n for n in computing if n != name and lanes[n].story.phase != "wait"]
        if late and time.time() - lanes[name].story.since > 1.0:
            return ", ".join(late)
    known = {n: seconds for n, seconds in computing.items() if seconds is not None}
    slowest = max(known, key=known.get, default=name)
    return slowest if known.get(slowest, 0.0) > 1.5 * known.get(name, float("inf")) else NOTHING


def format_ms(seconds: float | None) -> str:
    return NOTHING if seconds is None else f"{1000 * max(seconds, 0.0):.0f} ms"


def describe_class(roll: Roll, book: JobBook) -> str:
    """Return one line on all of them."""
    if not roll.has_begun:
        return "ended before all were here" if roll.finished else "waiting for more"
    loss = f", loss {book.losses[-1][1]:.4f}" if book.losses else ""
    return f"start {roll.attempt}, step {book.last_step}{loss}"


def format_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with columns that stand below each other, in any script."""
    widths = [max(measure(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(pad(cell, width) for cell, width in zip(row, widths)).rstrip() for row in rows
    ]


def pad(text: str, width: int) -> str:
    return text + " " * (width - measure(text))


def measure(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(bool(unicodedata.combining(sign)) for sign in text)
