"""The tasks of one attempt of a job: what each is, does and has said."""

import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError
from ..events import Event
from .launcher import LaunchedTasks, Launcher, TaskOrder
from .record import JobRecord


@dataclass
class Task:
    """One task of a cluster with its own TF_CONFIG. `state` is one of
    starting, running, paused, frozen (for too long), done, failed, killed."""

    order: TaskOrder
    job: str
    index: int
    state: str = "starting"
    process: int | None = None  # None where it runs on another machine
    status: int | None = None
    attempt: int = 1
    lines: list[str] = field(default_factory=list)
    result: tuple[Any, ...] | None = None
    ended_at: float | None = None

    @property
    def name(self) -> str:
        return f"{self.job} {self.index}"

    @property
    def calls(self) -> bool:
        """Whether it calls the job's function; otherwise it serves those that do."""
        return self.order.role == "call"


class Group:
    """The tasks of one attempt: keeps their states by what a launcher tells of them.

    It is the launcher's listener, and adds what readers of the job may see to `record`,
    whose lock guards the tasks, too.
    """

    def __init__(self, tasks: Sequence[Task], attempt: int, record: JobRecord) -> None:
        self.tasks, self._record = list(tasks), record
        self._named = {task.name: task for task in self.tasks}
        self._launcher: Launcher | None = None
        self._launched: LaunchedTasks | None = None
        for task in self.tasks:
            task.attempt = attempt

    def start(self, launcher: Launcher, function: bytes) -> None:
        """Start every task; none is left if one cannot be started."""
        orders = [task.order for task in self.tasks]
        self._launcher, self._launched = launcher, launcher.start(orders, function, self)
        for task in self.tasks:
            self._note_start(task)

    def start_again(self, task: Task) -> None:
        """Start one task again, once it has ended."""
        with self._record.changed:
            self._record.changed.wait_for(lambda: task.status is not None, timeout=5)
            task.state, task.status, task.result = "starting", None, None
        self._launched.start_again(task.name)
        self._note_start(task)

    def _note_start(self, task: Task) -> None:
        with self._record.changed:
            task.process = self._launched.find_process(task.name)
            if task.state == "starting":
                task.state = "running"

    def act(self, task: Task, action: str, name: str | None) -> None:
        """Do to a task what `LaunchedTasks.act` names, and note it in the record under `name`.

        Raises InputError for what the launcher cannot do.
        """
        if action not in self._launcher.actions:
            how = self._launcher.description
            raise InputError(f"{action}: nothing that can be done to tasks that are {how}")
        if name is not None:
            self._record.add_action(name, task.name, task.attempt)
        self._launched.act(task.name, action)

    def end(self) -> None:
        """End all tasks, and wait until they have ended."""
        if self._launched is not None:
            self._launched.end()

    def find(self, name: str) -> Task:
        """Return the task called `name`, like "worker 1"."""
        return self._named[name]

    @property
    def callers(self) -> list[Task]:
        return [task for task in self.tasks if task.calls]

    @property
    def failed(self) -> list[Task]:
        return [task for task in self.callers if task.state in ("failed", "killed")]

    @property
    def done(self) -> bool:
        """Whether every task that calls the function has returned from it."""
        return all(task.result is not None and task.result[0] == "result" for task in self.callers)

    # ---- what the launcher tells

    def take_line(self, task: str, line: str) -> None:
        with self._record.changed:
            self._named[task].lines.append(line)
            self._record.add_line(task, line)

    def take_event(self, task: str, event: Event) -> None:
        self._record.add_event({**event, "task": task, "attempt": self._named[task].attempt})

    def take_result(self, task: str, body: bytes) -> None:
        try:
            result = pickle.loads(body)
        except Exception as error:
            result = ("error", f"its result cannot be read here ({error})", "")
        with self._record.changed:
            named = self._named[task]
            named.result, named.ended_at = result, time.monotonic()
            named.state = "done" if result[0] == "result" else "failed"
            self._record.changed.notify_all()

    def take_end(self, task: str, status: int) -> None:
        with self._record.changed:
            named = self._named[task]
            named.status, named.ended_at = status, named.ended_at or time.monotonic()
            if named.result is None:
                named.state = "killed" if status < 0 else "failed"
            self._record.changed.notify_all()
