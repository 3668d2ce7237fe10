"""The history of a job, collected as it comes: steps, losses, lines, and actions."""

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from distlab.figures.canvas import say_number
from distlab.figures.lanes import Mark
from utils.environment import LOG_LINE
from utils.goodput import Goodput, TaskStory, add_up, note_restored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from utils.events import Event

LAST_LINES, LOG_LINES, LINE_CHARACTERS = 4, 40, 160
# action -> (kind of mark, words)
ACTIONS = {
    "SIGKILL": ("end", "killed by you"),
    "restart": ("end", "restarted by you"),
    "pause": ("pause", "paused by you"),
    "resume": ("back", "resumed by you"),
}


class WatchedTask(Protocol):
    """One lane: a task of a job, or a laptop of a class.

    `state` is a key of `cockpit_lanes.SYMBOLS`; `process` is None if it isn't on this machine.
    """

    name: str
    state: str
    attempt: int
    process: int | None

    @property
    def calls(self) -> bool:
        """True if it trains. The others serve."""


class Watchable(Protocol):
    """Anything to watch: a job of `utils.cluster`, or the roll of a class.

    `error` has a `cause`, "was stopped" for one. Numbers from `start` on count from the
    beginning.
    """

    @property
    def tasks(self) -> "Sequence[WatchedTask]": ...

    @property
    def attempt(self) -> int: ...

    @property
    def finished(self) -> bool: ...

    @property
    def is_stopping(self) -> bool: ...

    @property
    def error(self) -> Any: ...

    def history(self, start: int = 0) -> "list[Event]": ...

    def output(self, start: int = 0) -> list[tuple[str, str]]: ...

    def actions(self) -> "list[Event]": ...


@dataclass
class LaneBook:
    """The record of one task: its story, its last step, its lines and its log."""

    story: TaskStory = field(default_factory=TaskStory)
    last: "Event" = field(default_factory=dict)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    marks: list[Mark] = field(default_factory=list)
    saved: list[tuple[float, int]] = field(default_factory=list)  # checkpoints: time, step
    log_lines: int = 0

    def take_line(self, line: str) -> None:
        if LOG_LINE.match(line):
            self.log_lines += 1
            self.log.append(line[:LINE_CHARACTERS])
        else:
            self.lines.append(line[:LINE_CHARACTERS])

    @property
    def facts(self) -> str:
        """The last step in words."""
        if "step" not in self.last:
            return ""
        facts, loss = [f"step {int(self.last['step']):,}"], self.last.get("loss")
        if loss is not None and math.isfinite(loss):
            facts.append(f"loss {loss:.4g}")
        if self.last.get("images_per_second"):
            facts.append(f"{say_number(round(self.last['images_per_second']))}\u00a0images/s")
        return " · ".join(facts)


class JobBook:
    """Follows a job; `read` collects the news.

    `begun` is when it began, in seconds since the epoch. `losses` are (seconds from there,
    loss, attempt). `restored` is attempt -> the step after which it began, `starts` attempt ->
    when its group was started again, `victim` the task that caused it. `news` says the last
    thing that happened to the group.
    """

    def __init__(self, job: Watchable) -> None:
        self._job, self.lanes = job, dict[str, LaneBook]()
        self.news = self.victim = ""
        self.losses: list[tuple[float, float, int]] = []
        self._reporter: str | None = None  # whose losses these are: all workers report the same
        self.restored: dict[int, int] = {}
        self.starts: dict[int, float] = {}
        self.begun = min([time.time(), *(event["time"] for event in job.history()[:1])])
        self._ended: float | None = None
        self._events = self._actions = self._lines = 0

    @property
    def now(self) -> float:
        return self._ended or time.time()

    @property
    def is_synchronous(self) -> bool:
        return all(task.calls for task in self._job.tasks)

    @property
    def last_step(self) -> int:
        """The highest step that any task has reported in its last attempt."""
        return max((int(lane.last.get("step", 0)) for lane in self.lanes.values()), default=0)

    def score(self) -> Goodput:
        """Return where the time since the job began has gone."""
        stories = [lane.story for lane in self.lanes.values()]
        return add_up(stories, self.restored, self.begun, self.now)

    def read(self) -> None:
        """Collect the news."""
        self._take_news()
        if not self._job.finished:
            self._note_deaths()
        elif self._ended is None:
            self._ended = time.time()

    def _open_lane(self, task: WatchedTask) -> None:
        if task.name not in self.lanes:
            trains = self.is_synchronous or task.name.startswith("worker")
            starts = trains and task.state != "waiting"  # a waiting task has no place yet
            story = TaskStory(phase="start" if starts else "idle", since=self.begun)
            self.lanes[task.name] = LaneBook(story)

    def _take_news(self) -> None:
        """Take in the new events, actions and lines, the first two in the order of time."""
        events = self._job.history(self._events)
        actions = self._job.actions()[self._actions :]
        lines = self._job.output(self._lines)
        self._events += len(events)
        self._actions += len(actions)
        self._lines += len(lines)
        for task in self._job.tasks:  # after that, so that each task in the news has a lane
            self._open_lane(task)
        news = [(event["time"], self._take_event, event) for event in events]
        news += [(action["time"], self._take_action, action) for action in actions]
        for _, take, what in sorted(news, key=lambda each: each[0]):
            take(what)
        for name, line in lines:
            self.lanes[name].take_line(line)

    # ---- what tasks report

    def _take_event(self, event: "Event") -> None:
        if event["event"] == "restart":
            return self._take_restart(event)
        lane = self.lanes[event.get("of", event["task"])]
        if note_restored(event, self.restored):
            self._tell_restored(event["attempt"])
        if event["event"] == "step" and event.get("step") is not None:
            self._take_step(lane, event)
        if event["event"] == "checkpoint" and event.get("step") is not None:
            lane.saved.append((event["time"], int(event["step"])))
        lane.story.take(event)

    def _take_step(self, lane: LaneBook, event: "Event") -> None:
        attempt, step, loss = event["attempt"], int(event["step"]), event.get("loss")
        if lane.last.get("attempt", attempt) < attempt:
            lane.marks.append(self._mark("back", f"back at step {step}", event["time"]))
        lane.last = {**lane.last, **event}
        if loss is not None:
            self._reporter = self._reporter or event["task"]
        if loss is not None and self._reporter == event["task"]:
            self.losses.append((event["time"] - self.begun, float(loss), attempt))

    def _tell_restored(self, attempt: int) -> None:
        step, last = self.restored[attempt], self.last_step
        where = f"from the checkpoint of step {step}" if step else "at the very beginning"
        again = {0: "no step is lost", 1: f"step {last} is trained a second time"}.get(
            max(0, last - step), f"steps {step + 1} to {last} are trained a second time"
        )
        self.news = f"The whole group resumed {where}: {again}."

    def _take_restart(self, event: "Event") -> None:
        self.starts[event["attempt"]], self.victim = event["time"], event["task"]
        lane = self.lanes[event["task"]]
        if lane.story.dead_at is None:
            lane.marks.append(self._mark("end", event["cause"], event["time"]))
        for each in self.lanes.values():
            each.story.restart(event["time"])
        self.news = f"{event['task']}: {event['cause']}. The whole group starts again."

    # ---- what is done to them

    def _take_action(self, action: "Event") -> None:
        name, what, moment = action["task"], action["event"], action["time"]
        lane = self.lanes[name]
        kind, words = ACTIONS.get(what, ("end", f"sent {what}"))
        step = lane.last.get("step")
        if what == "restart" and lane.story.dead_at is not None:
            kind, step = "back", None  # it was killed before: its last step isn't where it begins
        at = "" if step is None else f" at step {int(step)}"
        lane.marks.append(self._mark(kind, words + at, moment))
        lane.story.act(what, moment)
        self.news = self._tell(name, words + at)

    def _tell(self, name: str, words: str) -> str:
        """Say what was done to a task, and what that means for the others."""
        said = f"{name} was {words.replace(' by you', '')}."
        if words.startswith("resumed"):
            return said
        if self.is_synchronous:
            return f"{said} The others stop at the next all-reduce: it needs every worker."
        if words.startswith("restarted"):
            return f"{said} It connects again; that takes some seconds."
        return f"{said} Nobody waits for it: the others continue." if "worker" in name else said

    def _note_deaths(self) -> None:
        """Note tasks killed from outside."""
        killed = [task for task in self._job.tasks if task.state == "killed"]
        if self._job.is_stopping:  # asked afterwards: the stop may have killed them meanwhile
            return
        for task in killed:
            story, over = self.lanes[task.name].story, task.attempt + 1 in self.starts
            if story.dead_at is None and task.ended_at and not over:
                story.dead_at = time.time() - (time.monotonic() - task.ended_at)
                mark = self._mark("end", "killed", story.dead_at)
                self.lanes[task.name].marks.append(mark)
                self.news = self._tell(task.name, "killed")

    def _mark(self, kind: str, words: str, moment: float) -> Mark:
        return Mark(kind, words, max(0.0, moment - self.begun))
