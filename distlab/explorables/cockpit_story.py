"""A job on the axis of time: from what its tasks report to spans, flags and lost stretches.

A worker's step is two moments: "ready" (its own gradient is there) and "step" (the update is
made). It computes up to the first, from the step before, or from "batch" where it reports that.
Between both it waits until the last worker of the group is ready, and then the all-reduce runs.
Where a task reports steps only, all of it counts as computing.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distlab.figures.lanes import Flag, LaneSpan

if TYPE_CHECKING:
    from utils.events import Event

MAX_KEPT, MAX_DRAWN = 4000, 400  # steps of a task


@dataclass(frozen=True)
class LaneStep:
    """One step of a task: `began`, `ready` (None where it is not reported) and `ended`."""

    attempt: int
    number: int
    began: float
    ready: float | None
    ended: float


@dataclass
class LaneStory:
    """What one task has done so far; times are in seconds since the epoch.

    `phase` is what it does since `since`: start, compute, wait, or idle, which is not known.
    """

    steps: deque[LaneStep] = field(default_factory=lambda: deque(maxlen=MAX_KEPT))
    closed: list[LaneSpan] = field(default_factory=list)  # all but steps
    flags: list[tuple[float, int]] = field(default_factory=list)
    phase: str = "start"
    since: float | None = None
    computed_from: float | None = None  # in phase wait: when it began to compute
    paused_at: float | None = None
    dead_at: float | None = None

    def take(self, event: "Event") -> None:
        """Take in an event about this task."""
        kind, time = event["event"], event["time"]
        if kind == "ready":
            self.computed_from = self.since if self.phase == "compute" else time
            self._begin("wait", time)
        elif kind in ("restore", "batch"):
            self._begin("compute", time)
        elif kind == "stalled" and self.phase == "compute":
            self.computed_from = self.since
            self._begin("wait", max(time, self.since))
        elif kind in ("seated", "unseated"):
            self._begin("start" if kind == "seated" else "idle", time)
        elif kind == "step" and event.get("step") is not None:
            self._take_step(event)
        elif kind == "checkpoint" and event.get("step") is not None:
            self.flags.append((time, int(event["step"])))

    def _take_step(self, event: "Event") -> None:
        time, ready = event["time"], None
        if "began" in event:
            began = event["began"]
        elif self.phase == "wait":
            began, ready = self.computed_from, self.since
        else:
            began = self.since if self.phase == "compute" else time
        if self.dead_at is not None and began > self.dead_at:
            self.closed.append(LaneSpan(self.dead_at, began, "down"))
            self.dead_at = None
        self.steps.append(LaneStep(event["attempt"], int(event["step"]), began, ready, time))
        self._begin("idle" if "began" in event else "compute", time, began)

    def _begin(self, phase: str, time: float, started: float | None = None) -> None:
        """Now in `phase`; what it took to start ended at `started`, or now."""
        if self.phase == "start" and self.since is not None:
            self.closed.append(LaneSpan(self.since, time if started is None else started, "start"))
        self.phase, self.since = phase, time

    def restart(self, time: float) -> None:
        """Its group starts again: what it was doing ends, and it starts."""
        self.closed += self.find_open(time)
        self.phase, self.since = "start", time
        self.paused_at = self.dead_at = None

    def pause(self, time: float) -> None:
        self.paused_at = time

    def resume(self, time: float) -> None:
        if self.paused_at is not None:
            self.closed.append(LaneSpan(self.paused_at, time, "paused"))
        self.paused_at = None

    def find_open(self, now: float) -> list[LaneSpan]:
        """Return what it has been doing since its last event, up to `now`."""
        if self.since is None:
            return []
        end = now if self.dead_at is None else self.dead_at
        spans = [] if self.phase == "idle" else [LaneSpan(self.since, end, self.phase)]
        if self.phase == "wait":
            spans.insert(0, LaneSpan(self.computed_from, self.since, "compute"))
        if self.paused_at is not None:
            spans.append(LaneSpan(self.paused_at, end, "paused"))
        if self.dead_at is not None:
            spans.append(LaneSpan(self.dead_at, now, "down"))
        return spans


class LaneGroup:
    """What decides when a group's all-reduce can run: the last task that is ready, and pauses."""

    def __init__(self, stories: Iterable[LaneStory], since: float) -> None:
        self._last_ready: dict[tuple[int, int], float] = {}
        self._pauses: list[LaneSpan] = []
        for story in stories:
            self._pauses += [s for s in story.closed if s.kind == "paused" and s.end >= since]
            for step in _newest(story.steps, since):
                if step.ready is not None:
                    key = (step.attempt, step.number)
                    self._last_ready[key] = max(self._last_ready.get(key, 0.0), step.ready)

    def find_arrival(self, step: LaneStep) -> float:
        """Return when the last task had arrived at the all-reduce of a task's `step`."""
        last = max(self._last_ready.get((step.attempt, step.number), 0.0), step.ready)
        ends = [pause.end for pause in self._pauses if step.ready < pause.end <= step.ended]
        # another task's "ready" may be told here a moment after this one's step
        return min(max([last, *ends]), step.ended)


def _newest(steps: deque[LaneStep], since: float) -> Iterable[LaneStep]:
    for step in reversed(steps):
        if step.ended < since:
            return
        yield step


def list_spans(story: LaneStory, group: LaneGroup, since: float, now: float) -> list[LaneSpan]:
    """Return what the task did from `since` to `now`.

    More than MAX_DRAWN steps are drawn in bundles, each with the sums of its steps.
    """
    spans = [span for span in story.closed if span.end >= since]
    parts = [_part(step, group) for step in _newest(story.steps, since)][::-1]
    size = -(-len(parts) // MAX_DRAWN) or 1
    for first in range(0, len(parts), size):
        bundle = parts[first : first + size]
        begin = bundle[0][0]
        for place, kind in enumerate(("compute", "wait", "send"), start=1):
            end = begin + sum(part[place] for part in bundle)
            spans.append(LaneSpan(begin, end, kind))
            begin = end
    return [span for span in spans + story.find_open(now) if span.end > span.start]


def _part(step: LaneStep, group: LaneGroup) -> tuple[float, float, float, float]:
    """Return when a step began, and for how long it computed, waited and sent."""
    if step.ready is None:
        return step.began, step.ended - step.began, 0.0, 0.0
    arrived = group.find_arrival(step)
    return step.began, step.ready - step.began, arrived - step.ready, step.ended - arrived


def list_lost(story: LaneStory, restored: dict[int, int]) -> list[tuple[float, float]]:
    """Return (start, end) of what was trained and then lost: `restored` is attempt -> its step."""
    stretches = []
    for attempt, step in restored.items():
        steps = [s for s in story.steps if s.attempt == attempt - 1 and s.number > step]
        if steps:
            stretches.append((steps[0].began, steps[-1].ended))
    return stretches


def list_flags(story: LaneStory, restored: dict[int, int], starts: dict[int, float]) -> list[Flag]:
    """Return the task's checkpoints; the one that each restart began at is used."""
    used = set()
    for attempt, step in restored.items():
        saved = [t for t, s in story.flags if s == step and t < starts.get(attempt, 0.0)]
        used |= {max(saved)} if saved else set()
    return [Flag(time, step, time in used) for time, step in story.flags]
