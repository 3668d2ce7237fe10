"""What the cockpit shows of a job: one lane for each task, as plain data."""

import math
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distlab.figures.canvas import say_number
from distlab.figures.lanes import LaneRecord, Mark
from utils.cluster.failures import is_stopped
from utils.cluster.traffic import TrafficMeter
from utils.measure import format_bytes

if TYPE_CHECKING:
    from utils.cluster.group import Task
    from utils.cluster.job import Job
    from utils.events import Event

LAST_LINES, LINE_CHARACTERS = 4, 160
TRAFFIC_SECONDS = 1.0
# action -> (kind of mark, words)
ACTIONS = {
    "SIGKILL": ("end", "killed by you"),
    "restart": ("end", "restarted by you"),
    "pause": ("pause", "paused by you"),
    "resume": ("back", "resumed by you"),
}
SYMBOLS = {
    "starting": "○", "running": "▶", "waiting": "◌", "serving": "▶", "paused": "❚❚",
    "frozen": "❚❚", "done": "✔", "failed": "✖", "killed": "✖", "stopped": "■",
}  # fmt: skip


@dataclass
class Curve:
    """What one task has reported: a point for each step event, and the last other fields."""

    times: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # nan where there is none
    attempts: list[int] = field(default_factory=list)
    images_per_second: float | None = None
    sent_bytes: int | None = None

    def add(self, event: "Event") -> None:
        if event.get("step") is None:
            return
        loss = event.get("loss")
        self.times.append(event["time"])
        self.steps.append(int(event["step"]))
        self.losses.append(math.nan if loss is None else float(loss))
        self.attempts.append(event["attempt"])
        self.images_per_second = event.get("images_per_second", self.images_per_second)
        self.sent_bytes = event.get("sent_bytes", self.sent_bytes)

    def step_at(self, moment: float) -> int | None:
        """Return the last step before `moment`, None where there was none."""
        place = bisect_right(self.times, moment)
        return self.steps[place - 1] if place else None


class LaneBook:
    """Follows a job: `read` takes in what is new and returns the lanes as they are now."""

    def __init__(self, job: "Job") -> None:
        self._job, self._meter = job, TrafficMeter()
        self._curves: dict[str, Curve] = {}
        self._restarts: list[Event] = []
        self._lines: dict[str, list[str]] = {}
        self._place, self._line, self._begun = 0, 0, time.time()
        self._traffic: dict[int, tuple[int, int]] = {}
        self._traffic_at = 0.0

    def read(self) -> list[LaneRecord]:
        """Return the lanes, in the order of the tasks."""
        for event in self._job.history(self._place):
            self._place += 1
            self._begun = min(self._begun, event["time"])
            if event["event"] == "restart":
                self._restarts.append(event)
            else:
                self._curves.setdefault(event["task"], Curve()).add(event)
        for name, line in self._job.output(self._line):
            self._line += 1
            self._lines[name] = [*self._lines.get(name, [])[1 - LAST_LINES :], line]
        tasks = list(self._job.tasks)
        error = self._job.error
        stopped = self._job.finished and error is not None and error.cause == "was stopped"
        states = name_states(tasks, self._job.finished, stopped)
        self._measure(tasks)
        return [self._make_lane(task, states[task.name]) for task in tasks]

    def _measure(self, tasks: "list[Task]") -> None:
        if time.monotonic() - self._traffic_at >= TRAFFIC_SECONDS and not self._job.finished:
            self._traffic = self._meter.read(t.process for t in tasks if t.process is not None)
            self._traffic_at = time.monotonic()

    def _make_lane(self, task: "Task", state: tuple[str, str]) -> LaneRecord:
        curve = self._curves.get(task.name, Curve())
        if state[0] == "running" and curve.attempts and curve.attempts[-1] < task.attempt:
            state = ("starting", "again")
        return LaneRecord(
            name=task.name,
            state=state[0],
            state_words=" ".join(state).strip(),
            symbol=SYMBOLS[state[0]],
            facts=_list_facts(curve),
            sent=self._say_bytes(task, curve),
            times=[t - self._begun for t in curve.times],
            losses=list(curve.losses),
            attempts=list(curve.attempts),
            marks=self._list_marks(task.name, curve),
            lines=[line[:LINE_CHARACTERS] for line in self._lines.get(task.name, [])],
        )

    def _say_bytes(self, task: "Task", curve: Curve) -> str:
        """Say the bytes that the task reports, else those that the kernel has counted."""
        if curve.sent_bytes is not None:
            return f"{format_bytes(curve.sent_bytes)} out (its own count)"
        if task.process not in self._traffic:
            return ""
        sent, received = self._traffic[task.process]
        return f"TCP: {format_bytes(sent)} out, {format_bytes(received)} in"

    def _list_marks(self, name: str, curve: Curve) -> list[Mark]:
        marks = []
        acted = self._job.actions()
        for action in acted:
            if action["task"] == name:
                kind, words = ACTIONS.get(action["event"], ("end", f"sent {action['event']}"))
                marks.append(self._mark(kind, words, action["time"], curve))
        for event in self._restarts:
            begun_by = next((a for a in acted if _ends(a, event)), None)
            moment = (begun_by or event)["time"]
            if event["task"] != name:
                marks.append(self._mark("end", f"{event['task']} gone", moment, curve))
            elif begun_by is None:
                marks.append(self._mark("end", event["cause"], moment, curve))
            if event["attempt"] in curve.attempts:
                place = curve.attempts.index(event["attempt"])
                words = f"back at step {curve.steps[place]}"
                marks.append(Mark("back", words, curve.times[place] - self._begun))
        return sorted(marks, key=lambda mark: mark.time)

    def _mark(self, kind: str, words: str, moment: float, curve: Curve) -> Mark:
        step = curve.step_at(moment)
        at = "" if step is None else f" at step {step}"
        return Mark(kind, words + at, max(0.0, moment - self._begun))


def _ends(action: "Event", restart: "Event") -> bool:
    """Is this what a reader did to the task because of which the group started again?"""
    same = action["task"] == restart["task"] and action["attempt"] == restart["attempt"] - 1
    return same and action["event"] not in ("pause", "resume")


def name_states(
    tasks: "list[Task]", finished: bool, stopped: bool = False
) -> dict[str, tuple[str, str]]:
    """Return task name -> (state, more words), for people.

    In a synchronous group, the others wait for one that is frozen or dead. `stopped`:
    the whole job was, so its tasks were.
    """
    if stopped:
        ended = ("done", "failed")
        return {t.name: (t.state if t.state in ended else "stopped", "") for t in tasks}
    states = {task.name: _name_state(task, finished) for task in tasks}
    halted = [
        name for name, (state, _) in states.items() if state in ("paused", "frozen", "killed")
    ]
    synchronous = all(task.order.role == "call" for task in tasks)
    if halted and synchronous:
        waits = {n: ("waiting", f"for {halted[0]}") for n, s in states.items() if s[0] == "running"}
        states.update(waits)
    return states


def _name_state(task: "Task", finished: bool) -> tuple[str, str]:
    if task.state == "running" and task.status is None and is_stopped(task.process):
        return "frozen", ""
    if task.order.role == "serve":
        gone = finished and task.state in ("running", "killed")
        return (
            ("stopped", "") if gone else ("serving" if task.state == "running" else task.state, "")
        )
    if finished and task.state == "running":
        return "stopped", ""
    return task.state, ""


def _list_facts(curve: Curve) -> str:
    if not curve.steps:
        return ""
    facts = [f"step {curve.steps[-1]:,}"]
    if math.isfinite(curve.losses[-1]):
        facts.append(f"loss {curve.losses[-1]:.4g}")
    if curve.images_per_second:
        facts.append(f"{say_number(round(curve.images_per_second))}\u00a0images/s")
    return " · ".join(facts)
