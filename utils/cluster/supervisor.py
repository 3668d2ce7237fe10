"""What keeps a job going: watches its tasks, and starts the group again where that is allowed."""

import threading
import time
from collections.abc import Callable, Sequence

from .failures import (
    ACCIDENT_RETRIES,
    ClusterError,
    FreezeWatch,
    explain_failure,
    has_left,
    is_accident,
)
from .group import Group, Task
from .launcher import Launcher
from .record import JobRecord

GRACE_SECONDS = 1.0  # for the peers of a failed task to say what they saw
LEAVE_SECONDS = 20.0  # for the peers of a task that left by sys.exit to save and leave too


class Supervisor:
    """Runs a job's attempts, one group after the other, in a thread of its own.

    `group` is the running attempt's, `attempt` its number, `error` why the job has
    failed for good, `slow_seconds` how long tasks are frozen on purpose after each step. The
    first group is started by the constructor.
    """

    def __init__(
        self, make_tasks: Callable[[], Sequence[Task]], function: bytes, launcher: Launcher,
        restarts: int, stall_seconds: float, record: JobRecord,
    ) -> None:  # fmt: skip
        self._make_tasks, self._function, self._launcher = make_tasks, function, launcher
        self.restarts_left, self._stall_seconds = restarts, stall_seconds
        self._record, self._changed = record, record.changed
        self.attempt, self.error = 1, None
        self.slow_seconds: dict[str, float] = {}
        self._accidents_left, self._stopping = ACCIDENT_RETRIES, False
        self.group = self._start_group(1)
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End every task now; safe to call twice."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self.join(15)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def is_slow(self, task: str) -> bool:
        return self.slow_seconds.get(task, 0) > 0

    def _start_group(self, attempt: int) -> Group:
        self._freezes = FreezeWatch()
        group = Group(self._make_tasks(), attempt, self._record)
        group.start(self._launcher, self._function)
        return group

    def _supervise(self) -> None:
        try:
            self._watch()
        except Exception as error:  # a fault of ours must end the job, not hang its reader
            self.error = ClusterError("job", f"its supervisor failed ({error!r})", "report this")
        self.group.end()
        if self._stopping and self.error is None and not self.group.done:
            self.error = ClusterError("job", "was stopped", "")
        self._record.finish()

    def _watch(self) -> None:
        """Return when the job is done, was stopped, or has failed for good."""
        while True:
            with self._changed:
                if not (self._stopping or self.group.failed or self.group.done):
                    self._changed.wait(timeout=0.5)
                stopping, failed, done = self._stopping, self.group.failed, self.group.done
            if stopping or (done and not failed):
                return
            if (failed or self._has_stalled()) and not self._try_again():
                return

    def _has_stalled(self) -> bool:
        """Return whether a task has been frozen for too long, in a job that may restart."""
        if not self.restarts_left:
            return False
        tasks = [t for t in self.group.tasks if t.state == "paused" or not self.is_slow(t.name)]
        task = self._freezes.find(tasks, self._stall_seconds)
        if task is not None:
            task.state = "frozen"
            task.lines.append(f"frozen (SIGSTOP) for {self._stall_seconds:.1f} s")
        return task is not None

    def _try_again(self) -> bool:
        """After a failure: gather what the others say, end the group, start it again if allowed."""
        self._wait_for_peers()
        error = explain_failure(self.group.tasks)
        said = (error.details, *(line for task in self.group.tasks for line in task.lines))
        chief = next((task.status for task in self.group.tasks if task.job == "chief"), None)
        accident = is_accident(said, chief)
        self.group.end()
        if self._accidents_left and accident:
            self._accidents_left -= 1
        elif self.restarts_left:
            self.restarts_left -= 1
        else:
            self.error = error
            return False
        self._note_restart(error)
        group = self._start_group(self.attempt + 1)
        with self._changed:
            self.group, self.attempt = group, self.attempt + 1
            self._changed.notify_all()
        return True

    def _note_restart(self, error: ClusterError) -> None:
        told = {"event": "restart", "time": time.time(), "task": error.task}
        self._record.add_event({**told, "cause": error.cause, "attempt": self.attempt + 1})
        self._record.add_line(error.task, f"--- {error.cause}: the group starts again ---")

    def _wait_for_peers(self) -> None:
        """Give the peers of a failed task time to say what they saw, or to leave as it did."""
        callers = self.group.callers

        def all_have_ended() -> bool:
            return self._stopping or all(t.result or t.status is not None for t in callers)

        with self._changed:
            left = self.restarts_left and any(has_left(task) for task in callers)
            self._changed.wait_for(all_have_ended, LEAVE_SECONDS if left else GRACE_SECONDS)
