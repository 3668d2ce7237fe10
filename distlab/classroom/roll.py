"""Everybody's lane: what the students' laptops tell, as something to watch.

The cockpit and the table watch a `Roll` as they watch a job (`cockpit_book.Watchable`). Its
events come as lines from laptops whose clocks differ: each is put on the teacher's clock by the
quickest line of that laptop so far. Laptops' lines aren't trusted.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Protocol

from distlab.classroom.events import read_event
from utils.cluster.group import TaskGroup
from utils.cluster.streams import clean_line
from utils.engines.rendezvous.host import Presence
from utils.engines.rendezvous.settings import HEARTBEAT_SECONDS
from utils.events import Event

MAX_KEPT, MAX_LINE = 50_000, 300  # events and lines of all; letters of a line
SILENT_SECONDS = 3.0


class Hosted(Protocol):
    """The part of `HostedRun` that a roll uses."""

    group: TaskGroup | None
    starts: int

    def look(self) -> list[Presence]: ...


@dataclass
class Pupil:
    """One laptop, as a lane: `name` is the student's."""

    calls: ClassVar[bool] = True  # all train, and none on this machine where it could be asked
    process: ClassVar[None] = None
    name: str
    state: str = "waiting"
    attempt: int = 1
    ended_at: float | None = None
    is_lost: bool = False
    clock: float = float("inf")  # what to add to its own times, at most
    last_time: float = 0.0

    def place(self, told: float, now: float) -> float:
        """Return the moment of its time `told` on our clock, never before the last one."""
        self.clock = min(self.clock, now - told)
        self.last_time = max(self.last_time, told + self.clock)
        return self.last_time


class Kept:
    """The last MAX_KEPT rows of all that came, by their number; `filler` is for earlier ones."""

    def __init__(self, filler: Any) -> None:
        self._rows, self._dropped, self._filler = deque[Any](), 0, filler

    def add(self, row: Any) -> None:
        self._rows.append(row)
        if len(self._rows) > MAX_KEPT:
            self._rows.popleft()
            self._dropped += 1

    def list_from(self, start: int) -> list[Any]:
        """Return what came from number `start` on."""
        lost = [self._filler] * max(0, self._dropped - start)
        return lost + list(islice(self._rows, max(0, start - self._dropped), None))


@dataclass(frozen=True)
class Ending:
    """The end of a class that didn't end well; `cause` "was stopped" is the teacher's."""

    cause: str

    def __str__(self) -> str:
        return self.cause


class Roll:
    """The laptops of a class. `take_line(task, line)` gets what their tasks write."""

    def __init__(self, name: str, clock: Callable[[], float] = time.time) -> None:
        self._own_name, self._clock, self._run = name, clock, None
        self._lock = threading.RLock()
        self._pupils: dict[str, Pupil] = {}
        self._seats: dict[str, str] = {}  # task -> name, of the running start
        self._group: TaskGroup | None = None
        nothing = {"event": "nothing", "time": 0.0, "task": name, "attempt": 1}
        self._events, self._lines = Kept(nothing), Kept((name, ""))
        self.weights: dict[str, tuple[int, str]] = {}  # name -> last step, checksum
        self.finished, self.is_stopping, self.error = False, False, None
        self.attempt, self._unseated = 1, False

    def follow(self, run: Hosted) -> None:
        self._run = run

    def finish(self, error: Ending | None) -> None:
        self._refresh()
        with self._lock:
            self.finished, self.error = True, error
            for pupil in self._pupils.values():
                if pupil.state in ("starting", "waiting", "running", "frozen"):
                    pupil.state = "stopped"

    # ---- messages

    def take_line(self, task: str, line: str) -> None:
        """Take a line of a task: an event, or words."""
        self._refresh()
        event, now = read_event(line), self._clock()
        with self._lock:
            pupil = self._pupils.get(self._seats.get(task, ""))
            if pupil is None:
                return
            if event is None:
                return self._lines.add((pupil.name, clean_line(line)[:MAX_LINE]))
            moment = pupil.place(event["time"], now)
            kept = {"task": pupil.name, "attempt": self.attempt, "time": moment}
            self._events.add(event | kept)
            if event["event"] == "weights":
                self.weights[pupil.name] = event["step"], event["checksum"]
            pupil.state = "running" if pupil.state == "starting" else pupil.state

    def _refresh(self) -> None:
        """Look who is there; note a new start."""
        if self._run is None or self.finished:
            return
        with self._lock:
            if self._run.group is not self._group:
                self._begin(self._run.group)
            present = self._run.look()
            if self._group is None:
                present = [Presence(self._own_name, ""), *present]
            for here in present:
                self._meet(here)
            names = {here.name for here in present}
            for pupil in self._pupils.values():
                if pupil.name not in names:
                    pupil.state = "stopped"  # has left, or is lost
            if self.has_begun and self._unseated:
                self._note_unseated()

    def _begin(self, group: TaskGroup) -> None:
        before, self._group = self._group, group
        if before is not None and before.first_failed is not None:
            failed = before.first_failed
            self.attempt = self._run.starts
            who = self._seats.get(failed.name, self._own_name)
            cause = clean_line(failed.describe_end())
            self._note("restart", who, cause=cause)
        self.attempt, self._seats = self._run.starts, {}
        self._unseated = before is not None

    def _note_unseated(self) -> None:
        """After a new start, mark the laptops without a place in it as idle."""
        self._unseated = False
        for name in self._pupils.keys() - self._seats.values():
            self._note("unseated", name)

    def _note(self, kind: str, name: str, **fields: Any) -> None:
        """Note an event that no laptop has told of."""
        self._events.add(
            {"event": kind, "time": self._clock(), "task": name, "attempt": self.attempt, **fields}
        )

    def _meet(self, here: Presence) -> None:
        pupil = self._pupils.setdefault(here.name, Pupil(here.name))
        if here.task is None:
            pupil.state, pupil.is_lost = "waiting", False
            return
        if here.task not in self._seats:
            self._seats[here.task] = here.name
            pupil.attempt, pupil.ended_at, pupil.state = self.attempt, None, "starting"
            pupil.is_lost = False
            self._note("seated", here.name)
        if here.status is None and pupil.state in ("stopped", "waiting"):
            pupil.state = "running"
        if here.status is None and here.silent_seconds > SILENT_SECONDS:
            if pupil.state != "frozen":
                self._note_silence(here)
            pupil.state = "frozen"
        elif here.status is None and pupil.state == "frozen":
            pupil.state = "running"
        elif here.status is not None and pupil.ended_at is None:
            pupil.ended_at, pupil.state = time.monotonic(), self._name_end(here)
            pupil.is_lost = pupil.state == "killed"
            if pupil.state == "starting":
                self._note("unseated", here.name)

    def _note_silence(self, here: Presence) -> None:
        """Nobody knows what a silent laptop does; all others wait for it."""
        since = self._clock() - here.silent_seconds
        for name in self._seats.values():
            self._note("unseated" if name == here.name else "stalled", name, time=since)

    def _name_end(self, here: Presence) -> str:
        """Return how a task has ended; the others of a failed start wait for the next."""
        if here.status == 0:
            return "done"
        failed = self._group.first_failed
        is_first = failed is not None and failed.name == here.task
        return "killed" if here.lost or is_first else "starting"

    def describe_weights(self) -> list[str]:
        """Return a line on the weights that came out on all laptops."""
        with self._lock:
            sums = {checksum for _, checksum in self.weights.values()}
            last = max((step for step, _ in self.weights.values()), default=0)
            number = len(self.weights)
        if len(sums) == 1:
            return [
                f"after step {last} the weights are {min(sums)[:12]}, the same on {number} "
                f"laptop{'s' * (number != 1)}"
            ]
        return [f"the weights differ: {sorted(sums)}"] if sums else []

    def describe(self) -> str:
        """Return one line on what a teacher can't see in one lane; "" where nothing is to say."""
        names = {
            state: [p.name for p in self.tasks if p.state == state]
            for state in ("frozen", "killed", "waiting")
        }
        if not self.has_begun or self.finished:
            return ""
        if silent := names["frozen"]:
            return (
                f"Nothing has been heard from {' and '.join(silent)}. All others wait: the "
                "all-reduce needs everyone. "
                f"After {HEARTBEAT_SECONDS:.0f} s a laptop counts as lost."
            )
        if lost := names["killed"]:
            return f"{' and '.join(lost)} is lost. Everyone starts again from the last checkpoint."
        if waiting := names["waiting"]:
            return (
                f"{' and '.join(waiting)} can take part from the next start on: a group cannot "
                "grow while it runs."
            )
        return ""

    # ---- what can be watched

    @property
    def tasks(self) -> list[Pupil]:
        self._refresh()
        with self._lock:
            return list(self._pupils.values())

    @property
    def has_begun(self) -> bool:
        """True once tasks have been started."""
        return self._group is not None

    def history(self, start: int = 0) -> list[Event]:
        with self._lock:
            return self._events.list_from(start)

    def output(self, start: int = 0) -> list[tuple[str, str]]:
        with self._lock:
            return self._lines.list_from(start)

    def actions(self) -> list[Event]:
        return []
