"""Find what tasks wait for: frozen or idle tasks, and tasks that never open their port."""

import time
from collections.abc import Callable, Mapping, Sequence

import psutil

from .failures import ClusterError, last_lines
from .group import Task

IDLE_WORD_SECONDS, IDLE_LOOK_SECONDS = 30.0, 1.0
QUIET_SECONDS = 5.0  # without a line, from which on it is looked what a task does
WORD_SECONDS = 10.0  # between two words on who hasn't opened its port yet
LAST_LINES = 20


def is_stopped(process: int | None) -> bool:
    """Return whether the operating system has frozen the process (SIGSTOP)."""
    try:
        return process is not None and psutil.Process(process).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


class FreezeWatch:
    """Remembers since when tasks have been frozen (SIGSTOP)."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def find(self, tasks: Sequence[Task], seconds: float) -> Task | None:
        """Look at `tasks`; return one that has been frozen for more than `seconds`, or None."""
        now = time.monotonic()
        for task in tasks:
            if task.status is not None or not is_stopped(task.process):
                self._since.pop(task.name, None)
            elif now - self._since.setdefault(task.name, now) > seconds:
                return task
        return None


def explain_delay(tasks: Sequence[Task], seconds: float) -> ClusterError:
    """Return the error of a job that isn't done after `seconds`: the task at fault, and why.

    A frozen task comes first, then one that hasn't opened its port while another
    has, as TensorFlow's peers then wait for it in silence; else the first that is
    not done.
    """
    over = f"after {seconds:.0f} s"
    waiting = [task for task in tasks if task.state not in ("done", "failed")]
    for task in waiting:
        if task.status is None and is_stopped(task.process):
            cause = f"is frozen (SIGSTOP), and was not done {over}"
            cure = f"call job.resume({task.job!r}, {task.index}) to let it continue"
            return ClusterError(task.name, cause, cure, last_lines(task, LAST_LINES))
    absent, present = _split_by_port(waiting)
    if absent and present:
        return _explain_absent(absent[0], present, over)
    task = next((t for t in waiting if t.calls), tasks[0])
    said = f"; its last line: {task.lines[-1][:120]}" if task.lines else ""
    return ClusterError(
        task.name,
        f"was not done {over}{said}",
        "give it more time, or read its output with job.logs",
        last_lines(task, LAST_LINES),
    )


def _explain_absent(task: Task, present: Sequence[Task], over: str) -> ClusterError:
    names = ", ".join(other.name for other in present)
    cause = f"was not done {over}: it hasn't opened its port, {task.order.address}, "
    cause += f"and {names} {'wait' if len(present) > 1 else 'waits'} for it"
    cure = "make the strategy first in every task. job.logs shows what this one does instead"
    return ClusterError(task.name, cause, cure, last_lines(task, LAST_LINES))


def _split_by_port(tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """Return the tasks that don't listen at their own address, and those that do."""
    here = [task for task in tasks if task.process is not None]  # elsewhere, it can't be seen
    listens = {task.name: task.listens for task in here}
    return ([t for t in here if not listens[t.name]], [t for t in here if listens[t.name]])


class IdleTasks:
    """Finds idle programs: no line, no file, next to no processor time.

    Those that stay while others have ended are named once. With `timeout_seconds`, all that run
    count as stuck once none has done anything for so long, of independent ones each alone.
    """

    def __init__(self, say: Callable[[str], None], timeout_seconds: float | None) -> None:
        self._say, self._timeout = say, timeout_seconds
        self._next_look, self._has_said = 0.0, False

    def find(self, tasks: Sequence[Task]) -> list[Task]:
        """Look whether it is time; return the tasks that are stuck, with their idle seconds."""
        now = time.monotonic()
        if now < self._next_look or not all(task.is_program for task in tasks):
            return []
        self._next_look = now + IDLE_LOOK_SECONDS
        running = [task for task in tasks if task.status is None]
        idle = {task.name: measure_idle(task, now) for task in running}
        if not any(task.is_independent for task in tasks):
            idle = dict.fromkeys(idle, min(idle.values(), default=0.0))
            self._say_once(tasks, idle)
        stuck = [task for task in running if idle[task.name] > (self._timeout or float("inf"))]
        for task in stuck:
            task.idle_seconds = idle[task.name]
        return stuck

    def _say_once(self, tasks: Sequence[Task], idle: Mapping[str, float]) -> None:
        ended = ", ".join(task.name for task in tasks if task.name not in idle)
        seconds = min(idle.values(), default=0.0)
        if ended and seconds > IDLE_WORD_SECONDS and not (self._has_said or self._timeout):
            self._has_said = True
            words = f"{', '.join(idle)} wrote nothing and used next to no processor time for"
            words += f" {seconds:.0f} s, and {ended} ended"
            self._say(f"{words}. To end such a run automatically, add --idle-timeout SECONDS.")


def measure_idle(task: Task, now: float) -> float:
    """Return for how long a task has done nothing, a line included."""
    silent = now - task.heard_at
    if silent < QUIET_SECONDS or task.launched is None:
        return 0.0
    return min(silent, task.launched.find_idle_seconds(task.name))


class PortWatch:
    """Says every few seconds which programs don't listen yet, while others wait for them."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._open = say, set[str]()
        self._next_word = time.monotonic() + WORD_SECONDS

    def look(self, tasks: Sequence[Task]) -> None:
        """Check whether a message is due, and return it."""
        programs = [task for task in tasks if task.is_program]
        if time.monotonic() < self._next_word or len(self._open) == len(programs):
            return
        self._next_word = time.monotonic() + WORD_SECONDS
        self._open |= {t.name for t in programs if t.name not in self._open and t.listens}
        waiting = sorted(t.name for t in programs if t.name in self._open and t.status is None)
        missing = [task for task in programs if task.name not in self._open]
        late = [task.name for task in missing if task.status is None]
        ended = [task.name for task in missing if task.status is not None]
        words = [f"{', '.join(late)}, with no open port yet"] * bool(late)
        words += [f"{', '.join(ended)}, which ended without opening a port"] * bool(ended)
        if waiting and words:
            self._say(f"{', '.join(waiting)}: waiting for {'; '.join(words)}")
