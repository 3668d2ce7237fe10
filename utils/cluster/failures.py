"""Turn the logs of a failed job into one error: which task failed, why, and how to fix it.

`waiting` explains tasks that aren't done in time.
"""

import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import InputError, advise, shorten
from ..tf_config import Diagnosis, diagnose, diagnose_cluster, is_collateral, read_error
from .group import Task, describe_status

# what a task says when another one has gone: never the first cause
COLLATERAL = (
    "Collective ops is aborted by",
    "UnavailableError",
    "Socket closed",
    "Connection reset by peer",
    "failed to connect to all addresses",
)


# failures that are nobody's fault and go away: a port that another program took meanwhile, and,
# about once in a hundred jobs with parameter servers, a request between tasks that arrives garbled
ACCIDENTS, ACCIDENT_RETRIES = ("Could not start gRPC server", "Unable to parse request"), 3
OUT_OF_MEMORY = ". If nobody killed it, memory may have run out"
RESTART = "start the job with restarts=1 to resume from its checkpoint"
MAX_LAST_LINE = 200  # letters


class ClusterError(InputError):
    """Raised for a failed job; names the task, the cause and how to fix it.

    `task` is like "worker 1", `cause` and `cure` are one line each, and `details` is that task's
    traceback or last lines.

        try:
            cluster.run(function)
        except ClusterError as error:
            print(error.task, error.cause, error.details)
    """

    def __init__(self, task: str, cause: str, cure: str, details: str = "") -> None:
        self.task, self.cause, self.cure, self.details = task, cause, cure, details
        super().__init__(advise(f"{task}: {cause}", cure))


def has_left(task: Task) -> bool:
    """Return whether the task left by `sys.exit`, as TerminationConfig's tasks do after saving."""
    result = task.result
    return result is not None and result[0] == "error" and result[1].startswith("SystemExit")


def has_lost_peer(task: Task) -> bool:
    """Return whether all that a task says is that another one has gone."""
    if task.status == -signal.SIGKILL:
        return False  # whatever it had said before
    if task.result is not None:
        return any(words in task.result[2] for words in COLLATERAL)
    own = diagnose("\n".join(list(task.lines))) if task.is_program else None
    return own is not None and is_collateral(own)


def is_spared(task: Task) -> bool:
    """Return whether the task is a killed worker that a parameter-server cluster does without."""
    return not (task.calls or task.is_program) and (task.state, task.job) == ("killed", "worker")


def explain_failure(tasks: Sequence[Task], first: Task | None = None) -> tuple[ClusterError, bool]:
    """Return the error of a failed attempt, and whether it was an accident.

    `first` is the task that failed first. Of tasks that call a function, which say more, the
    error is the first one with its own reason.
    """
    chief = next((task.status for task in tasks if task.job == "chief"), None)
    if first is None or not first.is_program:
        error = _explain_functions(tasks)
        said = (error.details, *(line for task in tasks for line in list(task.lines)))
        return error, is_accident(said, chief)
    ordered = [first, *(task for task in tasks if task is not first)]
    logs = {task.name: "\n".join(task.lines) for task in ordered}
    found = diagnose_cluster(logs)
    taken = found is not None and found.name == "taken-port"
    accident = taken or is_accident((line for task in tasks for line in list(task.lines)), chief)
    return _explain_program(*_find_culprit(first, tasks, found)), accident


def _find_culprit(
    first: Task, tasks: Sequence[Task], found: Diagnosis | None
) -> tuple[Task, Diagnosis | None]:
    """Return the task that caused the failure, and what is known about it.

    That is the task that failed first, unless it only says that it has lost another one. `found`
    is the first cause in all logs.
    """
    own = diagnose("\n".join(first.lines))
    own = None if own is not None and own.name == "server" else own  # it no longer waits
    if own is not None and not is_collateral(own):
        return first, own
    if own is None and read_error(first.lines):
        return first, None
    if own is None or found is None or is_collateral(found):
        return first, found if found is not None and (own or found.is_known) else None
    culprit = next((task for task in tasks if task.name == found.task), first)
    return culprit, found if found.is_known else None


def _explain_program(task: Task, found: Diagnosis | None) -> ClusterError:
    """Return why a program failed: its error, what is known of such an error, or its last line."""
    told = read_error(task.lines)
    traceback, error = (told.traceback, str(told)) if told else ("", "")
    cause = f"on {task.host} {task.describe_end()}" + f": {error}" * bool(error)
    if found is not None:
        return ClusterError(task.name, f"{cause}; {found.cause}", found.cure, traceback)
    if task.status == -signal.SIGKILL and not task.idle_seconds:
        return ClusterError(task.name, cause + OUT_OF_MEMORY, "", traceback)
    if error:
        return ClusterError(task.name, cause, "", traceback)
    last = next((line.strip() for line in reversed(list(task.lines)) if line.strip()), "")
    cause += f"; its last line: {shorten(last, MAX_LAST_LINE)}" * bool(last)
    return ClusterError(task.name, cause, f"see its logs in {Path(task.log).parent}", traceback)


def _explain_functions(tasks: Sequence[Task]) -> ClusterError:
    """Return the error of the first task that failed for its own reason.

    A killed task comes before one with an error, and an error that only
    says that a peer has gone comes last.
    """
    bad = ("frozen", "failed", "killed")
    failed = [task for task in tasks if task.state in bad] or list(tasks)
    task = min(failed, key=lambda t: (_rank(t), t.ended_at or float("inf")))
    if task.result is None:
        return _explain_death(task)
    _, summary, details = task.result
    if has_left(task):
        cause = f"left by sys.exit ({summary.removeprefix('SystemExit').strip(': ') or 0})"
        return ClusterError(task.name, cause, RESTART, details)
    found = diagnose(details + "\n" + last_lines(task, 200))
    if found is None:
        return ClusterError(task.name, summary, "its traceback is in error.details", details)
    return ClusterError(task.name, f"{summary} ({found.cause})", found.cure, details)


def _rank(task: Task) -> int:
    if is_spared(task):
        return 3
    if task.result is None:
        return 0
    return 2 if has_lost_peer(task) else 1


def _explain_death(task: Task) -> ClusterError:
    details = last_lines(task, 30)
    if task.state == "frozen":
        return ClusterError(task.name, "was frozen (SIGSTOP) for too long", RESTART, details)
    if task.status is None:
        return ClusterError(task.name, "stopped answering", "start the job again", details)
    if task.status < 0:
        cure = RESTART + OUT_OF_MEMORY * (task.status == -signal.SIGKILL)
        return ClusterError(task.name, describe_status(task.status), cure, details)
    cause = f"exited with status {task.status} before it returned a result"
    return ClusterError(task.name, cause, "its last lines are in error.details", details)


def last_lines(task: Task, count: int) -> str:
    """Return the last lines of a task as one text."""
    return "\n".join(list(task.lines)[-count:])


def is_accident(said: Iterable[str], coordinator_status: int | None = None) -> bool:
    """Return whether a failure is nobody's fault and goes away, judging by the tasks' output.

    Also where TensorFlow crashed in the coordinator, as a garbled request makes it.
    """
    if coordinator_status == -signal.SIGSEGV:
        return True
    return any(words in text for words in ACCIDENTS for text in said)
