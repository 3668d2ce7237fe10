"""Goodput: the share of a run's wall time spent on steps that count in the end.

`TaskStory` turns what one task reports (`utils.events`) into spans of time, `StepGroup` finds
when a group's all-reduce could run, and `measure_goodput` adds up a run.

A worker's step is three moments: "batch" (its batch has arrived), "ready" (its own gradients
are there) and "step" (the update is made). It computes from the first to the second, waits
until the last worker of its group is ready, and then the all-reduce runs. From "step" to the
next "batch" it waits too, for its input or in a distributed iterator for the other workers.
A task that doesn't report "batch" computes from the step before on. A task that reports steps
only can't be seen to wait.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import InputError
from .events import Event

MAX_KEPT = 10_000  # steps of a task
GONE = ("SIGKILL", "restart")  # actions that end a task


@dataclass(frozen=True)
class TaskSpan:
    """A task's activity from `start` to `end`, in seconds.

    `kind` is compute, wait, send (the all-reduce), start, paused or down.
    """

    start: float
    end: float
    kind: str


@dataclass(frozen=True)
class StepTimes:
    """One step of a task: `began`, `ready` (None if it isn't reported) and `ended`."""

    attempt: int
    number: int
    began: float
    ready: float | None
    ended: float


@dataclass
class TaskStory:
    """One task's activity so far; times are in seconds since the epoch.

    `phase` is what it has done since `since`: start, compute, wait, save, or idle: not known.
    """

    steps: deque[StepTimes] = field(default_factory=lambda: deque(maxlen=MAX_KEPT))
    closed: list[TaskSpan] = field(default_factory=list)  # all but steps
    phase: str = "start"
    since: float | None = None
    computed_from: float | None = None  # in phase wait for an all-reduce: when it began to compute
    paused_at: float | None = None
    dead_at: float | None = None
    tells_batches: bool = False

    def take(self, event: Event) -> None:
        """Add an event about this task, later than all earlier events."""
        kind, time = event["event"], event["time"]
        if kind == "ready":
            self._begin("wait", time, self.since if self.phase == "compute" else time)
        elif kind == "batch":
            self.tells_batches = True
            self._begin("compute", time)
        elif kind == "restore" and not self.tells_batches:
            self._begin("compute", time)
        elif kind == "stalled" and self.phase == "compute":
            self._begin("wait", max(time, self.since), self.since)
        elif kind == "seated":
            self._begin("start", time)
        elif kind in ("unseated", "end"):
            self._begin("idle", time)
        elif kind in ("saving", "checkpoint") and self._is_between_steps():
            self._begin_to_save(kind == "saving", time)
        elif kind == "step" and event.get("step") is not None:
            self._take_step(event)

    def _take_step(self, event: Event) -> None:
        time, ready = event["time"], None
        if "began" in event:
            began = event["began"]
        elif self.computed_from is not None:
            began, ready = self.computed_from, self.since
        else:
            began = self.since if self.phase == "compute" else time
        if self.dead_at is not None and began > self.dead_at:
            self.closed.append(TaskSpan(self.dead_at, began, "down"))
            self.dead_at = None
        number = int(event["step"])
        self.steps.append(StepTimes(event.get("attempt", 1), number, began, ready, time))
        self.computed_from = None
        if self.phase == "start":
            self._begin("idle", began)
        self.phase, self.since = "wait" if self.tells_batches else "compute", time
        if "began" in event:
            self.phase = "idle"

    def _is_between_steps(self) -> bool:
        return self.phase in ("save", "compute", "wait") and self.computed_from is None

    def _begin_to_save(self, saves: bool, time: float) -> None:
        """It saves from now on, or has saved since its last step; neither computes nor waits."""
        self.phase = "save" if saves else "wait" if self.tells_batches else "compute"
        self.since = time

    def _begin(self, phase: str, time: float, computed_from: float | None = None) -> None:
        """Now in `phase`; a start or a wait for a batch ends, and is kept."""
        waits = self.phase == "wait" and self.computed_from is None
        if (self.phase == "start" or waits) and self.since is not None:
            self.closed.append(TaskSpan(self.since, time, self.phase))
        self.phase, self.since, self.computed_from = phase, time, computed_from

    def restart(self, time: float) -> None:
        """Its group restarts: end its current activity, and begin "start"."""
        self.closed += self.find_open(time)
        self.phase, self.since = "start", time
        self.computed_from = self.paused_at = self.dead_at = None

    def act(self, action: str, time: float) -> None:
        """Add an action on this task from outside (`job.actions()`)."""
        if action == "pause":
            self.paused_at = time
        elif action == "resume" and self.paused_at is not None:
            self.closed.append(TaskSpan(self.paused_at, time, "paused"))
            self.paused_at = None
        elif action in GONE and self.dead_at is None:
            self.dead_at = time

    def find_open(self, now: float) -> list[TaskSpan]:
        """Return what it has been doing since its last event, up to `now`."""
        if self.since is None:
            return []
        end = now if self.dead_at is None else self.dead_at
        spans = [] if self.phase in ("idle", "save") else [TaskSpan(self.since, end, self.phase)]
        if self.computed_from is not None:
            spans.insert(0, TaskSpan(self.computed_from, self.since, "compute"))
        if self.paused_at is not None:
            spans.append(TaskSpan(self.paused_at, end, "paused"))
        if self.dead_at is not None:
            spans.append(TaskSpan(self.dead_at, now, "down"))
        return spans

    def list_steps(self, since: float) -> list[StepTimes]:
        """Return the steps that ended at `since` or later."""
        newest = []
        for step in reversed(self.steps):
            if step.ended < since:
                break
            newest.append(step)
        return newest[::-1]


class StepGroup:
    """Finds when a group's all-reduce can run: after the last task is ready, and after pauses."""

    def __init__(self, stories: Iterable[TaskStory], since: float) -> None:
        self._last_ready: dict[tuple[int, int], float] = {}
        self._pauses: list[TaskSpan] = []
        for story in stories:
            self._pauses += [s for s in story.closed if s.kind == "paused" and s.end >= since]
            for step in story.list_steps(since):
                if step.ready is not None:
                    key = (step.attempt, step.number)
                    self._last_ready[key] = max(self._last_ready.get(key, 0.0), step.ready)

    def split(self, step: StepTimes) -> tuple[float, float, float]:
        """Return the seconds that a task's step computed, waited and sent."""
        if step.ready is None:
            return step.ended - step.began, 0.0, 0.0
        last = max(self._last_ready.get((step.attempt, step.number), 0.0), step.ready)
        ends = [pause.end for pause in self._pauses if step.ready < pause.end <= step.ended]
        # another task's "ready" may be told here a moment after this one's step
        arrived = min(max([last, *ends]), step.ended)
        return step.ready - step.began, arrived - step.ready, step.ended - arrived


@dataclass(frozen=True)
class Goodput:
    """Shares of a run's wall time, which add up to 1: the mean over the tasks that train.

    `useful` is the goodput: computing and all-reduces of steps that count in the end. `waiting`
    is for other workers, for the input, and while paused; `restarting` from a failure until a
    task trains again; `repeated` went into steps that a restart threw away; `rest` is the first
    start, saving, and what isn't known. `steps_repeated` is how many steps were thrown away.
    """

    seconds: float
    useful: float
    waiting: float
    restarting: float
    repeated: float
    rest: float
    steps_repeated: int

    def __str__(self) -> str:
        shares = ("useful", "waiting", "restarting", "repeated", "rest")
        told = ", ".join(f"{name} {100 * getattr(self, name):.0f}%" for name in shares)
        return f"{told}; {self.steps_repeated} steps trained twice"


def measure_goodput(
    events: Iterable[Event],
    actions: Iterable[Event] = (),
    begun: float | None = None,
    ended: float | None = None,
) -> Goodput:
    """Return where the wall time of a run went, from the events of its tasks.

    `events` are `job.events()`, or those that `read_events` yields from a file: "restore", "batch",
    "ready", "step", "saving" and "checkpoint" of each `task`, and "restart" of the group.
    `actions` are `job.actions()`: pauses and kills from outside. `begun` and `ended` are in
    seconds since the epoch [the first and the last event's time]. A step is thrown away if a
    later attempt begins before it; events without `attempt` begin another one at "restart", or
    at a "restore" after steps. Raises InputError if there is no event.

        print(measure_goodput(job.events(), job.actions()))
    """
    told = list(_number_attempts(sorted(events, key=lambda event: event["time"])))
    if not told:
        raise InputError("events must hold at least one event, got none. Report steps in the run.")
    begun = told[0]["time"] if begun is None else begun
    stories: dict[str, TaskStory] = {}
    restored: dict[int, int] = {}
    news = [*told, *({**action, "action": True} for action in actions)]
    for event in sorted(news, key=lambda event: event["time"]):
        name = str(event.get("of", event.get("task", "")))
        story = stories.setdefault(name, TaskStory(since=begun))
        if "action" in event:
            story.act(event["event"], event["time"])
        elif event["event"] == "restart":
            for each in stories.values():
                each.restart(event["time"])
        else:
            note_restored(event, restored)
            story.take(event)
    return add_up(stories.values(), restored, begun, told[-1]["time"] if ended is None else ended)


def _number_attempts(events: Iterable[Event]) -> Iterator[Event]:
    """Yield events, all with their `attempt`; with a "restart" before a run that was resumed."""
    attempt, last_step = 1, None
    for event in events:
        if event["event"] == "restore" and "attempt" not in event and last_step is not None:
            attempt += 1
            yield {"event": "restart", "time": last_step, "attempt": attempt}
        attempt = event.get("attempt", attempt + (event["event"] == "restart"))
        if event["event"] in ("restart", "step"):
            last_step = event["time"] if event["event"] == "step" else None
        yield {**event, "attempt": attempt}


def note_restored(event: Event, restored: dict[int, int]) -> bool:
    """Note the step that an attempt began after in `restored`; return whether it is new."""
    attempt, step = event.get("attempt", 1), event.get("step")
    known = attempt == 1 or attempt in restored or step is None
    if known or event["event"] not in ("restore", "step"):
        return False
    restored[attempt] = int(step) - (event["event"] == "step")
    return True


def is_lost(step: StepTimes, restored: Mapping[int, int]) -> bool:
    """Return whether a later attempt began before `step`, and so trained it again."""
    return any(a > step.attempt and step.number > first for a, first in restored.items())


def add_up(
    stories: Iterable[TaskStory], restored: Mapping[int, int], begun: float, ended: float
) -> Goodput:
    """Return where the time from `begun` to `ended` went, the mean of the stories with steps."""
    training = [story for story in stories if story.steps]
    group, total = StepGroup(training, begun), max(ended - begun, 1e-9)
    seconds, lost = Counter[str](), set[tuple[int, int]]()
    for story in training:
        seconds.update(_add_up_task(story, group, restored, begun, ended))
        lost |= {(s.attempt, s.number) for s in story.steps if is_lost(s, restored)}
    mean: dict[str, Any] = {
        kind: seconds[kind] / (total * len(training)) if training else 0.0
        for kind in ("useful", "waiting", "restarting", "repeated")
    }
    return Goodput(total, **mean, rest=1 - sum(mean.values()), steps_repeated=len(lost))


def _add_up_task(
    story: TaskStory, group: StepGroup, restored: Mapping[int, int], begun: float, ended: float
) -> Counter[str]:
    """Return the seconds of each kind that one task spent; what isn't in it is the rest."""
    seconds, still = Counter[str](), story.find_open(ended)
    spans = [*story.closed, *still]
    paused = [span for span in spans if span.kind == "paused"]
    for step in story.steps:
        computed, waited, sent = group.split(step)
        parts = ((step.began, step.began + computed), (step.ended - sent, step.ended))
        stood = sum(_overlap(pause, *part) for pause in paused for part in parts)
        if is_lost(step, restored):
            seconds["repeated"] += computed + waited + sent
        else:
            seconds["useful"] += computed + sent - stood
            seconds["waiting"] += waited + stood
    for span in spans:
        length = span.end - span.start
        if span.kind == "down" or (span.kind == "start" and span.start > begun):
            seconds["restarting"] += length
        elif span.kind == "wait":
            seconds["waiting"] += length
        elif span.kind == "compute":  # a step that goes on, or that a kill or restart cut short
            stood = sum(_overlap(pause, span.start, span.end) for pause in paused)
            seconds["waiting"] += stood
            goes_on = span in still and story.dead_at is None
            seconds["useful" if goes_on else "repeated"] += length - stood
    return seconds


def _overlap(span: TaskSpan, start: float, end: float) -> float:
    return max(0.0, min(span.end, end) - max(span.start, start))
