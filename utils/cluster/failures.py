"""From what the tasks of a job left behind to one error: which task, why, and the cure.

For a job that failed, and for one that is not done in time: frozen, never started, or
waiting for another task.
"""

import signal
import time
from collections.abc import Iterable, Sequence

import psutil

from ..errors import InputError
from ..tf_config import parse_tf_config, split_address
from .group import Task

# what a task says when another one has gone: never the first cause
COLLATERAL = (
    "Collective ops is aborted by",
    "UnavailableError",
    "Socket closed",
    "Connection reset by peer",
    "failed to connect to all addresses",
)


# what is nobody's fault and goes away: a port that another program took meanwhile, and, about
# once in a hundred jobs with parameter servers, a request between tasks that arrives garbled
ACCIDENTS, ACCIDENT_RETRIES = ("Could not start gRPC server", "Unable to parse request"), 3
OUT_OF_MEMORY = "; if nobody killed it, memory may have run out"


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
        cure = "start the job with restarts=1 to go on from its checkpoint"
        cure += OUT_OF_MEMORY if task.status == -signal.SIGKILL else ""
        return ClusterError(task.name, describe_status(task.status), cure, details)
    cause = f"ended by itself with status {task.status} before it had a result"
    return ClusterError(task.name, cause, "look at its last lines: error.details", details)


def describe_status(status: int | None) -> str:
    """Return how a process ended, in words, by its status: minus the number of a signal."""
    if status is None:
        return "has not ended"
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def is_accident(said: Iterable[str], coordinator_status: int | None = None) -> bool:
    """Return whether a failure is nobody's fault and goes away, by what tasks said.

    Also where TensorFlow crashed in the coordinator, as a garbled request makes it.
    """
    if coordinator_status == -signal.SIGSEGV:
        return True
    return any(words in text for words in ACCIDENTS for text in said)


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
    return listens_at(port, task.process)


def listens_at(port: int, process: int, with_children: bool = False) -> bool:
    """Return whether a process of this machine, or one of its children, listens at `port`."""
    try:
        first = psutil.Process(process)
        family = [first, *(first.children(recursive=True) if with_children else ())]
        found = [each for one in family for each in one.net_connections("tcp")]
    except (psutil.Error, OSError):
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in found)


def _address_of(task: Task) -> str:
    return parse_tf_config(task.order.environment["TF_CONFIG"]).address


def _last_lines(task: Task) -> str:
    return "\n".join(task.lines[-20:])
