"""The tasks of one attempt: each one's role, state and output."""

import pickle
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..checks import list_few
from ..errors import InputError
from ..events import Event
from .grace import Notice
from .launcher import LaunchedTasks, Launcher, TaskOrder
from .record import JobRecord

WORDS = {"SIGKILL": "kill", "SIGTERM": "terminate", "SIGINT": "interrupt"}
TAIL_LINES, MAX_TAIL_LINE = 2000, 4000
LOOK_SECONDS = 0.05


def name_action(number: int) -> str:
    """Return the action of `LaunchedTasks.act` that sends signal `number`."""
    name = signal.Signals(number).name
    return WORDS.get(name, name)


def describe_status(status: int | None) -> str:
    """Return how a process ended, in words, by its status: minus the number of a signal."""
    if status is None:
        return "has not ended"
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"


@dataclass
class Task:
    """One task of a cluster with its own TF_CONFIG. `state` is one of
    starting, running, paused, frozen (for too long), done, failed, killed.

    The attempt has succeeded once all tasks that are `awaited` are done. One that starts again
    `alone` does so after a failure, and the others continue. An independent task has its own
    `restarts_left`, and the others continue even when none is left. `lines` are its last
    ones, long ones cut: make a list of them, as more may come at any moment. `log` is where all of
    them are kept, if they are kept.
    """

    order: TaskOrder
    job: str
    index: int
    awaited: bool = True
    alone: bool = False
    restarts_left: int | None = None  # None where all tasks share them
    log: str = ""
    state: str = "starting"
    process: int | None = None  # None where it runs on another machine
    status: int | None = None
    why: str = ""  # of its end, where the status doesn't say it
    attempt: int = 1
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    result: tuple[Any, ...] | None = None
    ended_at: float | None = None
    heard_at: float = 0.0  # when it wrote its last line
    idle_seconds: float = 0.0  # for which it had done nothing when it was ended for that
    launched: LaunchedTasks | None = field(default=None, repr=False)
    loads: Callable[[bytes], Any] = field(default=pickle.loads, repr=False)  # of its result

    @property
    def name(self) -> str:
        return f"{self.job} {self.index}"

    @property
    def calls(self) -> bool:
        """True if it calls the job's function. The others serve."""
        return self.order.role == "call"

    @property
    def is_program(self) -> bool:
        return self.order.role == "program"

    @property
    def is_independent(self) -> bool:
        return self.restarts_left is not None

    @property
    def is_over(self) -> bool:
        """True once it has given its result or ended."""
        return self.result is not None or self.status is not None

    @property
    def host(self) -> str:
        return self.launched.find_host(self.name) if self.launched else ""

    @property
    def listens(self) -> bool:
        return self.launched is not None and self.launched.listens(self.name)

    def describe_end(self) -> str:
        """Return how it ended, in words."""
        if self.why:
            return f"is lost with its machine, which {self.why}"
        if self.idle_seconds:
            return f"did nothing for {self.idle_seconds:.0f} s"
        return describe_status(self.status)


class TaskGroup:
    """The tasks of one attempt: keeps their states by what a launcher tells of them.

    It is the launcher's listener, and adds what readers may see to `record`, whose lock guards
    the tasks, too. `first_failed` is the task that failed first, None if none has.
    """

    def __init__(self, tasks: Sequence[Task], attempt: int, record: JobRecord) -> None:
        self.tasks, self._record = list(tasks), record
        self._named = {task.name: task for task in self.tasks}
        self._launcher: Launcher | None = None
        self._launched: LaunchedTasks | None = None
        self.first_failed: Task | None = None
        for task in self.tasks:
            task.attempt = attempt

    def start(self, launcher: Launcher, function: bytes) -> None:
        """Start every task; none is left if one can't be started."""
        orders = [task.order for task in self.tasks]
        self._launcher, self._launched = launcher, launcher.start(orders, function, self)
        for task in self.tasks:
            self._note_start(task)

    def start_again(self, task: Task) -> None:
        """Start one task again, once it has ended."""
        with self._record.changed:
            self._record.changed.wait_for(lambda: task.status is not None, timeout=60)
            task.state, task.status, task.result, task.ended_at = "starting", None, None, None
            task.idle_seconds = 0.0
        self._launched.start_again(task.name)
        self._note_start(task)

    def _note_start(self, task: Task) -> None:
        with self._record.changed:
            task.heard_at = time.monotonic()
            task.launched, task.process = self._launched, self._launched.find_process(task.name)
            if task.state == "starting":
                task.state = "running"
        self._record.note_task("start", task.name, task.host, task.attempt)

    def act(self, task: Task, action: str, name: str | None) -> None:
        """Do to a task what `LaunchedTasks.act` names, and note it in the record under `name`.

        Raises InputError for what the launcher can't do.
        """
        if action not in self._launcher.actions:
            how = self._launcher.description
            can = list_few(self._launcher.actions) or "nothing"
            raise InputError(f"Tasks {how} don't support {action!r}, only {can}.")
        if name is not None:
            self._record.add_action(name, task.name, task.attempt)
        self._launched.act(task.name, action)

    def let_end(
        self,
        seconds: float,
        number: int = 0,
        hurries: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wait until all that count are over, at most `seconds`, or until `hurries()`.

        Programs are asked to end first, with signal `number`; if none of a machine's does
        anything more, they are killed sooner.
        """
        asked = [task.name for task in self.tasks if task.is_program and task.status is None]
        if number and seconds and asked:
            self._launched.ask_to_end(asked, Notice(name_action(number), float(seconds)))
        deadline = time.monotonic() + seconds
        with self._record.changed:
            while not all(task.is_over for task in self.vital) and not hurries():
                if time.monotonic() > deadline:
                    return
                self._record.changed.wait(LOOK_SECONDS)

    def end(self) -> None:
        """End all tasks, and wait until they have ended."""
        if self._launched is not None:
            self._launched.end()

    def find(self, name: str) -> Task:
        """Return the task called `name`, like "worker 1"."""
        return self._named[name]

    @property
    def vital(self) -> list[Task]:
        """The tasks that fail the attempt when they fail: a server's death is survived."""
        return [task for task in self.tasks if task.calls or task.is_program]

    @property
    def failed(self) -> list[Task]:
        return [task for task in self.vital if task.state in ("failed", "killed")]

    @property
    def has_failed(self) -> bool:
        """True if a task failed that others need, or one failed and all have ended."""
        failed = self.failed
        if all(task.is_independent for task in failed):
            return bool(failed) and all(task.status is not None for task in self.tasks)
        return True

    @property
    def done(self) -> bool:
        """True once every awaited task has succeeded."""
        return all(task.state == "done" for task in self.tasks if task.awaited)

    # ---- what the launcher tells

    def take_line(self, task: str, line: str) -> None:
        self._named[task].lines.append(line[:MAX_TAIL_LINE])
        self._named[task].heard_at = time.monotonic()
        self._record.add_line(task, line)

    def take_event(self, task: str, event: Event) -> None:
        self._record.add_event({**event, "task": task, "attempt": self._named[task].attempt})

    def take_result(self, task: str, body: bytes) -> None:
        try:
            result = self._named[task].loads(body)
        except Exception as error:
            words = f"its result can't be unpickled here ({error}). Return plain data or arrays"
            result = ("error", words, "")
        with self._record.changed:
            named = self._named[task]
            named.result, named.ended_at = result, time.monotonic()
            named.state = "done" if result[0] == "result" else "failed"
            self._record.changed.notify_all()

    def take_end(self, task: str, status: int, why: str = "") -> None:
        with self._record.changed:
            named = self._named[task]
            named.status, named.why = status, why
            named.ended_at = named.ended_at or time.monotonic()
            if named.is_program and status == 0:
                named.state = "done"
            elif named.result is None:
                named.state = "killed" if status < 0 else "failed"
            self._record.note_task("end", task, named.host, named.attempt, status=status)
            self._record.changed.notify_all()
