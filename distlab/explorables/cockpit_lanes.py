"""The cockpit's view of a job: one lane for each task, as plain data."""

import math
import time
from collections.abc import Sequence

from distlab.explorables.cockpit_book import JobBook, Watchable, WatchedTask
from distlab.explorables.cockpit_story import list_flags, list_lost, list_spans
from distlab.figures.lanes import Flag, LaneRecord, StageRecord
from utils.cluster.traffic import TrafficMeter
from utils.goodput import StepGroup, TaskSpan
from utils.measure import format_bytes

TRAFFIC_SECONDS = 1.0
SYMBOLS = {
    "starting": "○",
    "running": "▶",
    "waiting": "◌",
    "serving": "▶",
    "paused": "❚❚",
    "frozen": "❚❚",
    "done": "✔",
    "failed": "✖",
    "killed": "✖",
    "stopped": "■",
}


class Bytes:
    """The kernel's counts on the tasks' TCP connections, read once a second at most."""

    def __init__(self) -> None:
        self._meter, self._at = TrafficMeter(), 0.0
        self._counts: dict[int, tuple[int, int]] = {}

    def measure(self, tasks: Sequence[WatchedTask]) -> None:
        if time.monotonic() - self._at >= TRAFFIC_SECONDS:
            self._counts = self._meter.read(t.process for t in tasks if t.process is not None)
            self._at = time.monotonic()

    def say(self, task: WatchedTask, own_count: float | None) -> str:
        """Say the bytes that the task reports, else those that the kernel has counted."""
        if own_count is not None:
            return f"{format_bytes(own_count)} out (its own count)"
        if task.process not in self._counts:
            return ""
        sent, received = self._counts[task.process]
        return f"TCP: {format_bytes(sent)} out, {format_bytes(received)} in"


def make_stage(
    job: Watchable, book: JobBook, traffic: Bytes, seconds: float = math.inf
) -> StageRecord:
    """Return each task's state now, and what happened in the last `seconds`."""
    tasks, now, finished = list(job.tasks), book.now, job.finished
    if not finished:
        traffic.measure(tasks)
    since = max(book.begun, now - seconds)
    stopped = finished and job.error is not None and job.error.cause == "was stopped"
    states = name_states(tasks, finished, stopped)
    group = StepGroup([lane.story for lane in book.lanes.values()], since)
    lanes = []
    for task in tasks:
        spans = list_spans(book.lanes[task.name].story, group, since, now)
        sent = traffic.say(task, book.lanes[task.name].last.get("sent_bytes"))
        lanes.append(_make_lane(task, book, states[task.name], spans, sent))
    losses = [row for row in book.losses if row[0] >= since - book.begun]
    return StageRecord(lanes, losses, now - book.begun)


def _make_lane(
    task: WatchedTask, book: JobBook, state: tuple[str, str], spans: list[TaskSpan], sent: str
) -> LaneRecord:
    lane, begun = book.lanes[task.name], book.begun
    if state[0] == "running" and lane.last.get("attempt", task.attempt) < task.attempt:
        state = ("killed" if task.name == book.victim else "waiting", "· starting again")
    works = state[0] == "serving" and "step" in lane.last
    words = "working" if works else " ".join(state).strip()
    lost = list_lost(lane.story, book.restored)
    flags = list_flags(lane.saved, book.restored, book.starts)
    return LaneRecord(
        name=task.name,
        state=state[0],
        state_words=words,
        symbol=SYMBOLS[state[0]],
        facts=lane.facts,
        sent=sent,
        spans=[TaskSpan(s.start - begun, s.end - begun, s.kind) for s in spans],
        lost=[(start - begun, end - begun) for start, end in lost],
        flags=[Flag(flag.time - begun, flag.step, flag.used) for flag in flags],
        marks=lane.marks,
    )


def name_states(
    tasks: Sequence[WatchedTask], finished: bool, stopped: bool = False
) -> dict[str, tuple[str, str]]:
    """Return task name -> (state, more words), for people.

    In a synchronous group, the others wait for a frozen or dead one. `stopped`:
    the whole job was, so its tasks were.
    """
    if stopped:
        ended = ("done", "failed")
        return {t.name: (t.state if t.state in ended else "stopped", "") for t in tasks}
    states = {task.name: _name_state(task, finished) for task in tasks}
    missing = ("paused", "frozen", "killed")
    halted = [name for name, (state, _) in states.items() if state in missing]
    if halted and all(task.calls for task in tasks):
        for name, (state, _) in states.items():
            if state == "running":
                states[name] = ("waiting", f"for {halted[0]}")
            elif state == "failed" and not finished:  # TensorFlow has told it of the death
                states[name] = ("waiting", "· its all-reduce failed")
    return states


def _name_state(task: WatchedTask, finished: bool) -> tuple[str, str]:
    if not task.calls:
        gone = finished and task.state in ("running", "killed")
        serving = "serving" if task.state == "running" else task.state
        return ("stopped" if gone else serving), ""
    if finished and task.state == "running":
        return "stopped", ""
    return task.state, ""
