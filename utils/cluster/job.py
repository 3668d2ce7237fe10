"""A job on a cluster: start, watch, disturb, wait."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..checks import list_few
from ..errors import InputError
from ..events import Event
from .failures import ClusterError
from .group import Task, name_action
from .interrupts import stopping_at_interrupt
from .launcher import Launcher
from .record import JobRecord
from .slowing import Slowing
from .supervisor import Supervisor
from .waiting import explain_delay

STOP_SECONDS = 90.0  # longer than a launcher waits for killed tasks


class Job:
    """A function that runs on a cluster. Made by `LocalCluster.start`; `wait` gives the results."""

    def __init__(
        self,
        make_tasks: Callable[[Supervisor], Sequence[Task]],
        function: bytes,
        launcher: Launcher,
        restarts: int = 0,
        stall_seconds: float = 10.0,
    ) -> None:
        self._record, self._stop_signal = JobRecord(), 0
        self._supervisor = Supervisor(
            make_tasks,
            launcher,
            self._record,
            function,
            restarts,
            stall_seconds,
            stopped_by=lambda: self._stop_signal,
        )
        self._slowing = Slowing(self._record, self._supervisor)
        self._supervisor.start()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def _supervise(self) -> None:
        supervisor = self._supervisor
        try:
            supervisor.run()
        except Exception as error:  # our own fault must end the job, not hang its reader
            words = f"its supervisor failed with {error!r}"
            supervisor.error = ClusterError("job", words, "this is a bug: please report it")
        if self._stop_signal and supervisor.error is None and not supervisor.group.done:
            supervisor.error = ClusterError("job", "was stopped", "")
        self._record.finish()

    # ---- what it is like now

    @property
    def tasks(self) -> list[Task]:
        """The tasks of the running attempt."""
        return self._supervisor.group.tasks

    @property
    def attempt(self) -> int:
        """The number of starts of the group."""
        return self._supervisor.attempt

    @property
    def restarts_left(self) -> int:
        """The number of restarts that are left."""
        return self._supervisor.restarts_left

    @property
    def error(self) -> ClusterError | None:
        """Why the job has failed for good, or was stopped; None otherwise."""
        return self._supervisor.error

    @property
    def finished(self) -> bool:
        """True once the job has ended, well or not."""
        return self._record.finished

    @property
    def is_stopping(self) -> bool:
        """True once `stop` was called: its tasks are being killed, or have been."""
        return bool(self._stop_signal)

    # ---- what has happened

    def events(self) -> Iterator[Event]:
        """Yield every event from the start on, as they arrive, until the job has ended.

        Each has `task` (like "worker 0") and `attempt` as well as its own fields. An interrupt
        stops the job.
        """
        with stopping_at_interrupt(self):
            yield from self._record.follow_events()

    def history(self, start: int = 0) -> list[Event]:
        """Return the events so far, from the `start`-th on, without waiting."""
        return self._record.get_events(start)

    def output(self, start: int = 0) -> list[tuple[str, str]]:
        """Return (task, line) of all tasks in the order of arrival, from the `start`-th on."""
        return self._record.get_output(start)

    def logs(self, job: str, index: int = 0) -> list[str]:
        """Return what one task has written so far, a string a line."""
        name = self._find(job, index).name
        return [line for task, line in self.output() if task == name]

    def actions(self) -> list[Event]:
        """Return what was done to tasks by kill, pause, resume and restart, in order.

        Each is an event named after the signal or the action, with `task` and `attempt`.
        """
        return self._record.get_actions()

    # ---- what can be done to it

    def kill(self, job: str, index: int = 0, number: int = signal.SIGKILL) -> None:
        """Send SIGKILL, or signal `number`, to a task and whatever it started."""
        name = signal.Signals(number).name
        self._supervisor.group.act(self._find(job, index), name_action(number), name)

    def pause(self, job: str, index: int = 0) -> None:
        """Freeze a task (SIGSTOP)."""
        task = self._find(job, index)
        self._supervisor.group.act(task, "pause", "pause")
        task.state = "paused" if task.status is None else task.state

    def resume(self, job: str, index: int = 0) -> None:
        """Resume a frozen task (SIGCONT)."""
        task = self._find(job, index)
        self._supervisor.group.act(task, "resume", "resume")
        task.state = "running" if task.state == "paused" else task.state

    def slow(self, job: str, index: int, seconds: float) -> None:
        """Freeze a task for `seconds` after each step that it reports; 0 lets it run freely.

        It stays slow when its group starts again. Raises InputError for seconds outside
        0 to 1 and for a launcher that can't pause.
        """
        self._slowing.set(self._find(job, index).name, seconds)

    def restart(self, job: str, index: int = 0) -> None:
        """Start a server of a parameter-server cluster again, at the same address.

        A task of a synchronous group comes back only with its whole group: it is
        killed, and the group starts again. Raises ClusterError where the job has no
        restart left for that, or has ended.
        """
        task = self._find(job, index)
        if self.finished:
            raise ClusterError(task.name, "its job has ended", "start the job again")
        if task.calls and not self._supervisor.restarts_left:
            raise ClusterError(
                task.name,
                "a task of a synchronous group can't restart alone",
                "start the job with restarts=1, and the whole group restarts",
            )
        self._supervisor.group.act(task, "kill", "restart")
        if not task.calls:
            self._supervisor.group.start_again(task)

    def _find(self, job: str, index: int) -> Task:
        for task in self.tasks:
            if (task.job, task.index) == (job, index):
                return task
        names = list_few(task.name for task in self.tasks)
        raise InputError(f"The task must be one of {names}, got {job} {index}.")

    # ---- its end

    def wait(self, timeout: float | None = None, echo: bool = False) -> Any:
        """Return the results in rank order, or the coordinator's result.

        With `echo`, lines of the tasks are printed as they come. Raises
        ClusterError when a task failed for good, or when the job isn't done after
        `timeout` seconds; the job is stopped then, and when the wait is interrupted.
        """
        with stopping_at_interrupt(self):
            finished = self._record.wait_until_finished(timeout, echo)
        if not finished:
            error = explain_delay(self.tasks, timeout or 0)
            self.stop()
            raise error
        self._thread.join(10)
        if self.error is not None:
            raise self.error
        results = [task.result[1] for task in self.tasks if task.calls]
        return results[0] if len(results) < len(self.tasks) else results

    def stop(self) -> None:
        """End every task now; safe to call twice."""
        with self._record.changed:
            self._stop_signal = signal.SIGKILL
            self._record.changed.notify_all()
        self._thread.join(STOP_SECONDS)
