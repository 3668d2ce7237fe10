"""Why a job is not done in time: frozen, never started, or waiting for another task."""

import time
from collections.abc import Sequence

import psutil

from ..tf_config import parse_tf_config, split_address
from .failures import ClusterError, is_stopped
from .group import Task


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
    """Return the error of a job that is not done after `seconds`: the task at fault, and why.

    A frozen task comes first, then one that has not opened its port while another
    has, as TensorFlow's peers then wait for it in silence; else the first that is
    not done.
    """
    over = f"after {seconds:.0f} s"
    waiting = [task for task in tasks if task.state not in ("done", "failed")]
    for task in waiting:
        if task.status is None and is_stopped(task.process):
            cause = f"is frozen (SIGSTOP), and was not done {over}"
            cure = f"job.resume({task.job!r}, {task.index}) lets it go on"
            return ClusterError(task.name, cause, cure, _last_lines(task))
    absent, present = _split_by_port(waiting)
    if absent and present:
        return _explain_absent(absent[0], present, over)
    task = next((t for t in waiting if t.calls), tasks[0])
    said = f"; its last line: {task.lines[-1][:120]}" if task.lines else ""
    return ClusterError(
        task.name, f"was not done {over}{said}",
        "give it more time, or look at its lines with job.logs", _last_lines(task),
    )  # fmt: skip


def _explain_absent(task: Task, present: Sequence[Task], over: str) -> ClusterError:
    names = ", ".join(other.name for other in present)
    cause = f"was not done {over}: it has not opened its port, {_address_of(task)}, "
    cause += f"and {names} {'wait' if len(present) > 1 else 'waits'} for it"
    cure = "make the strategy first in every task; job.logs shows what this one does instead"
    return ClusterError(task.name, cause, cure, _last_lines(task))


def _split_by_port(tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """Return the tasks that do not listen at their own address, and those that do."""
    listens = {task.name: _listens(task) for task in tasks}
    absent = [task for task in tasks if listens[task.name] is False]
    return absent, [task for task in tasks if listens[task.name]]


def _listens(task: Task) -> bool | None:
    """Return whether the task listens at its address; None where that cannot be seen from here."""
    port = int(split_address(_address_of(task))[1])
    if task.process is None:
        return None
    try:
        connections = psutil.Process(task.process).net_connections("tcp")
    except (psutil.Error, OSError):
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)


def _address_of(task: Task) -> str:
    return parse_tf_config(task.order.environment["TF_CONFIG"]).address


def _last_lines(task: Task) -> str:
    return "\n".join(task.lines[-20:])
