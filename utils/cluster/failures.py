"""From what the tasks of a failed job left behind to one error: which task, why, and the cure."""

import signal

import psutil

from ..errors import InputError
from .group import Task

# what a task says when another one has gone: never the first cause
COLLATERAL = (
    "Collective ops is aborted by",
    "UnavailableError",
    "Socket closed",
    "Connection reset by peer",
    "failed to connect to all addresses",
)


class ClusterError(InputError):
    """A job that did not end well; names the task, the cause and the cure.

    `task` is like "worker 1", `cause` and `cure` one line each, `details` that
    task's traceback or last lines.
    """

    def __init__(self, task: str, cause: str, cure: str, details: str = "") -> None:
        self.task, self.cause, self.cure, self.details = task, cause, cure, details
        super().__init__(f"{task}: {cause}; {cure}" if cure else f"{task}: {cause}")


def is_stopped(process: int | None) -> bool:
    """Return whether the operating system has frozen the process (SIGSTOP)."""
    try:
        return process is not None and psutil.Process(process).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def has_left(task: Task) -> bool:
    """Return whether the task left by `sys.exit`, as TerminationConfig's tasks do after saving."""
    result = task.result
    return result is not None and result[0] == "error" and result[1].startswith("SystemExit")


def explain_failure(tasks: list[Task]) -> ClusterError:
    """Return the error of the task that failed first for a reason of its own.

    A task that was killed comes before one with an error, and an error that only
    says that a peer has gone comes last.
    """
    bad = ("frozen", "failed", "killed")
    failed = [task for task in tasks if task.state in bad] or list(tasks)
    task = min(failed, key=lambda t: (_rank(t), t.ended_at or float("inf")))
    from ..tf_config import diagnose

    if task.result is None:
        return _explain_death(task)
    _, summary, details = task.result
    if has_left(task):
        cause = f"left by sys.exit ({summary.removeprefix('SystemExit').strip(': ') or 0})"
        cure = "start the job with restarts=1 to go on from its checkpoint"
        return ClusterError(task.name, cause, cure, details)
    found = diagnose(details + "\n" + "\n".join(task.lines[-200:]))
    if found is None:
        return ClusterError(task.name, summary, "its traceback is in error.details", details)
    return ClusterError(task.name, f"{summary} ({found.cause})", found.cure, details)


def _rank(task: Task) -> int:
    if not task.calls and task.state == "killed" and task.job == "worker":
        return 3  # a parameter-server cluster goes on without a worker
    if task.result is None:
        return 0
    return 2 if any(words in task.result[2] for words in COLLATERAL) else 1


def _explain_death(task: Task) -> ClusterError:
    details = "\n".join(task.lines[-30:])
    if task.state == "frozen":
        cure = "start the job with restarts=1 to go on from its checkpoint"
        return ClusterError(task.name, "was frozen (SIGSTOP) for too long", cure, details)
    if task.status is None:
        return ClusterError(task.name, "did not answer any more", "start the job again", details)
    if task.status < 0:
        name = signal.Signals(-task.status).name
        cause = f"was ended by {name}"
        cure = "start the job with restarts=1 to go on from its checkpoint"
        if name == "SIGKILL":
            cure += "; if nobody killed it, memory may have run out"
        return ClusterError(task.name, cause, cure, details)
    cause = f"ended by itself with status {task.status} before it had a result"
    return ClusterError(task.name, cause, "look at its last lines: error.details", details)
