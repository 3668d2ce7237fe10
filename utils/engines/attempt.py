"""All tasks of one start: begun together, watched, and ended together."""

import queue
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..cluster.streams import Streams
from ..errors import RunError
from .signals import end_all
from .task_process import Print, RunningTask, StartTask, TaskPlan, TaskProcess

FAILURE_GRACE_SECONDS = 1.0  # for the others' own last words, once a task has failed
WAITING_SECONDS = 10.0  # between two words on who has not opened its port yet


class Attempt:
    """Tasks that live and die together.

    `wait` returns when all have succeeded, one has failed for good, or `stop_signal()` is
    not 0. `end` must be called after it. A worker of a parameter-server cluster may die:
    `replacements` says how often one is started again alone.
    """

    def __init__(
        self, plans: Sequence[TaskPlan], show: Print, say: Callable[[str], None],
        replacements: int = 0, start_task: StartTask = TaskProcess,
    ) -> None:  # fmt: skip
        self._show, self._say, self.replaced, self._replacements = show, say, 0, replacements
        self._streams, self._ended = Streams(), queue.Queue[RunningTask]()
        self._start_task = start_task
        self.tasks: dict[str, RunningTask] = {}
        self.first_failed: RunningTask | None = None
        self._coordinated = bool(plans[0].config.cluster.ps)
        self._open_ports: set[str] = set()
        self._next_word = time.monotonic() + WAITING_SECONDS
        try:
            for plan in plans:
                self._start(plan)
        except BaseException:
            self.end(0.0)
            raise

    def _start(self, plan: TaskPlan) -> None:
        try:
            task = self._start_task(plan, self._streams, self._show, self._ended.put)
        except OSError as error:
            why = explain_start(plan.command[0], error)
            raise RunError(f"{plan.name} was not started: {plan.command[0]}: {why}") from None
        self.tasks[plan.name] = task

    def wait(self, stop_signal: Callable[[], int]) -> bool:
        """Return whether all tasks that were to end by themselves have succeeded."""
        while not stop_signal():
            try:
                task = self._ended.get(timeout=0.1)
            except queue.Empty:
                self._name_the_missing()
                continue
            if task.status and not self._replace(task):
                self._find_first_failed(task)
                return False
            if self._is_done():
                return True
        return False

    def _is_done(self) -> bool:
        """Whether the coordinator has succeeded, or every task where there is none."""
        waited = [t for t in self.tasks.values() if not self._coordinated or _coordinates(t)]
        return all(task.status == 0 for task in waited)

    def _replace(self, task: RunningTask) -> bool:
        """Start a dead worker of a parameter-server cluster again, where that is allowed."""
        spare = self.replaced < self._replacements
        if not (self._coordinated and task.plan.config.job == "worker" and spare):
            return False
        self.replaced += 1
        self._say(f"{task.plan.name} {task.describe_end()}; it starts again, the others go on")
        self._start(task.plan)
        return True

    def _find_first_failed(self, task: RunningTask) -> None:
        """Note who failed first: what is told first need not have happened first."""
        time.sleep(0.05)
        failed = [task]
        while not self._ended.empty():
            failed.append(self._ended.get())
        self.first_failed = min((t for t in failed if t.status), key=lambda t: t.ended_at)

    def _name_the_missing(self) -> None:
        """Say every few seconds which tasks listen not yet, while others wait for them."""
        if time.monotonic() < self._next_word or len(self._open_ports) == len(self.tasks):
            return
        self._next_word = time.monotonic() + WAITING_SECONDS
        self._open_ports |= {name for name, task in self.tasks.items() if task.listens}
        waiting = [name for name in sorted(self._open_ports) if self.tasks[name].status is None]
        missing = [task for name, task in self.tasks.items() if name not in self._open_ports]
        late = [task.plan.name for task in missing if task.status is None]
        ended = [task.plan.name for task in missing if task.status is not None]
        words = [f"{', '.join(late)}, with no open port yet"] * bool(late)
        words += [f"{', '.join(ended)}, which ended without opening a port"] * bool(ended)
        if waiting and words:
            self._say(f"{', '.join(waiting)}: waiting for {'; '.join(words)}")

    def end(self, grace_seconds: float, number: int = signal.SIGTERM) -> None:
        """Ask every task to end with signal `number`; kill those that are left after the grace.

        A server that is ended because its coordinator has succeeded has succeeded too.
        """
        ended_well = self._coordinated and self._is_done()
        left = [task for task in self.tasks.values() if task.status is None]
        end_all(left, grace_seconds, number)
        self._streams.close()
        for task in left if ended_well else ():
            task.status = 0


def _coordinates(task: RunningTask) -> bool:
    return task.plan.config.job == "chief"


def explain_start(program: str, error: OSError) -> str:
    """Return why a program could not be started: what the system says misleads about two kinds."""
    path = Path(program)
    if path.is_dir():
        return "a folder; name a program that is in it"
    try:
        with path.open("rb") as file:
            first = file.readline(200)
    except OSError:
        first = b""
    if first.startswith(b"#!") and first.endswith(b"\r\n"):
        return (
            "its lines end as on Windows (CRLF), and no system finds the program that such a first "
            "line names; convert it with dos2unix, or save it with LF"
        )
    return f"{error.strerror or error}; name a program that can be run here"
