"""Keep tasks running: watch them, and restart all of them if that is allowed.

One for functions and programs, on every launcher: `Job` has it in a thread, and a run of a
program (`engines.programs`) in the main one.
"""

import signal
import time
from collections.abc import Callable, Sequence

from ..errors import RunError
from .failures import ACCIDENT_RETRIES, explain_failure, has_left, has_lost_peer, is_spared
from .group import Task, TaskGroup
from .launcher import Launcher, Stop, Stopped
from .record import JobRecord
from .signals import choose_signal
from .waiting import FreezeWatch, IdleTasks, PortWatch

PEER_SECONDS = 1.0  # for the peers of a failed task to say what they saw
LOST_SECONDS = 5.0  # for the end of a function that the others have lost to be heard of
LEAVE_SECONDS = 20.0  # for the peers of a task that left by sys.exit to save and leave too
SERVERS_SECONDS = 0.2  # for the servers of a coordinator that has succeeded
SETTLE_SECONDS = 0.05  # the first report need not be of the first event
LOOK_SECONDS = 0.2
NOT_STARTED = 127


class Supervisor:
    """Runs attempts, one group after the other, until one succeeds or none may start again.

    `make_tasks(self)` returns the tasks of the next attempt. `restarts` counts what was paid
    for so far, by starting all again or one worker that its coordinator can do without;
    accidents are free. Independent tasks each have their own, and the run lasts until the last of
    them has ended. A frozen task counts as failed after `stall_seconds`, None for never.
    Programs that do nothing for `idle_seconds` count as failed, too. Once `stopped_by()` is a
    signal's number, the tasks are asked to end with it and have `grace_seconds`; with SIGKILL they
    have none. Programs have as long when a peer has failed.
    """

    def __init__(
        self,
        make_tasks: Callable[["Supervisor"], Sequence[Task]],
        launcher: Launcher,
        record: JobRecord,
        function: bytes = b"",
        restarts: int = 0,
        stall_seconds: float | None = None,
        grace_seconds: float = 0.0,
        idle_seconds: float | None = None,
        stopped_by: Stop = lambda: 0,
    ) -> None:
        self._make_tasks, self._function, self._launcher = make_tasks, function, launcher
        self._record, self._changed = record, record.changed
        self._stall_seconds, self._grace_seconds = stall_seconds, grace_seconds
        self._idle_seconds = idle_seconds
        self.stopped_by, self.restarts, self.restarts_left = stopped_by, 0, restarts
        self.attempt, self._accidents_left = 0, ACCIDENT_RETRIES
        self.group: TaskGroup | None = None
        self.error: Exception | None = None
        self.slow_seconds: dict[str, float] = {}
        self.plan_restart: Callable[[], str] = lambda: ""  # why all start again now, though all run

    def start(self) -> None:
        """Start the tasks of the next attempt.

        Raises RunError if one can't be started, Stopped if the run was stopped meanwhile.
        """
        self._freezes, self._ports = FreezeWatch(), PortWatch(self._record.say)
        self._idle = IdleTasks(self._record.say, self._idle_seconds)
        group = TaskGroup(self._make_tasks(self), self.attempt + 1, self._record)
        group.start(self._launcher, self._function)
        with self._changed:
            self.group, self.attempt = group, self.attempt + 1
            self._changed.notify_all()

    def run(self) -> None:
        """Continue until the tasks have succeeded, were stopped, or have failed for good.

        None is left then. `error` says why they have failed, `group` is the last attempt.
        """
        try:
            if self.group is None:
                self.start()
            while self._watch():
                self.start()
        except Stopped:
            pass
        finally:
            if self.group is not None:
                self.group.end()

    def is_slow(self, task: str) -> bool:
        return self.slow_seconds.get(task, 0) > 0

    def _hurries(self) -> bool:
        return self.stopped_by() == signal.SIGKILL

    def _watch(self) -> bool:
        """Watch the group; return whether to restart all tasks."""
        group = self.group
        while True:
            with self._changed:
                news = group.has_failed or self._find_replaceable() or group.done
                if not (self.stopped_by() or news):
                    self._changed.wait(LOOK_SECONDS)
            if self.stopped_by():
                self._stop()
            elif (task := self._find_replaceable()) is not None:
                self._replace(task)
                continue
            elif group.has_failed or self._has_stalled() or self._is_stuck():
                return self._try_again()
            elif group.done:
                self._end_servers()
            elif why := self.plan_restart():
                return self._restart_as_planned(why)
            else:
                self._ports.look([task for task in group.tasks if not task.is_independent])
                continue
            return False

    def _restart_as_planned(self, why: str) -> bool:
        """End all with their grace; return whether to restart them, which counts as no restart."""
        self._record.say(f"{why}: all tasks start again, as planned")
        self.group.let_end(self._grace_seconds, signal.SIGTERM, self._hurries)
        self.group.end()
        self.restarts += not self.stopped_by()
        return not self.stopped_by()

    def _stop(self) -> None:
        number = self.stopped_by()
        if number != signal.SIGKILL:
            words = f"passed on to every task, which has {self._grace_seconds:g} s to end"
            self._record.say(f"{signal.Signals(number).name}: {words}")
            self.group.let_end(self._grace_seconds, choose_signal(number), self._hurries)

    def _end_servers(self) -> None:
        """End the tasks that wait for a coordinator that has succeeded; that isn't a failure."""
        left = [task for task in self.group.tasks if task.is_program and task.status is None]
        self.group.let_end(SERVERS_SECONDS if left else 0.0, signal.SIGTERM, self._hurries)
        self.group.end()
        for task in left:
            task.status = 0

    def _find_replaceable(self) -> Task | None:
        """Return a failed task that starts again alone; None if all have to, or it may not."""
        failed = self.group.failed
        able = [task for task in failed if self._can_be_replaced(task)]
        enough = len(able) == len(failed) or all(task.is_independent for task in failed)
        return able[0] if able and enough else None

    def _can_be_replaced(self, task: Task) -> bool:
        if task.is_independent:
            return task.restarts_left > 0 and not task.why  # its machine may be lost
        return task.alone and self.restarts_left > 0

    def _replace(self, task: Task) -> None:
        if task.is_independent:
            self.restarts, task.restarts_left = self.restarts + 1, task.restarts_left - 1
        else:
            self._count_restart()
        self._record.say(f"{task.name} {task.describe_end()}; it starts again, the others continue")
        try:
            self.group.start_again(task)
        except RunError as error:
            if not task.is_independent:
                raise
            self.group.take_line(task.name, str(error))
            self.group.take_end(task.name, NOT_STARTED)

    def _count_restart(self) -> None:
        self.restarts, self.restarts_left = self.restarts + 1, self.restarts_left - 1

    def _has_stalled(self) -> bool:
        """Return whether a task has been frozen for too long, and all may start again."""
        if not self.restarts_left or self._stall_seconds is None:
            return False
        tasks = [t for t in self.group.tasks if t.state == "paused" or not self.is_slow(t.name)]
        task = self._freezes.find(tasks, self._stall_seconds)
        if task is not None:
            task.state = "frozen"
            task.lines.append(f"frozen (SIGSTOP) for {self._stall_seconds:.1f} s")
        return task is not None

    def _is_stuck(self) -> bool:
        """Return whether all fail because none does anything. End independent ones that don't."""
        for task in (stuck := self._idle.find(self.group.tasks)):
            if task.is_independent:
                task.launched.act(task.name, "kill")
        if stuck and not stuck[0].is_independent:
            self.group.first_failed = stuck[0]
            names = ", ".join(task.name for task in stuck)
            self._record.say(f"{names} did nothing for {self._idle_seconds:g} s (--idle-timeout)")
            return True
        return False

    def _try_again(self) -> bool:
        """After a failure: gather what the others say, end them; return whether all start again."""
        group = self.group
        if group.failed:
            time.sleep(SETTLE_SECONDS)
            failed = group.failed
            if not failed[0].is_independent:  # those have no peers to lose
                self._await_cause(group)
                causes = [task for task in group.failed if not has_lost_peer(task)]
                failed = causes or group.failed
            group.first_failed = min(failed, key=lambda task: task.ended_at)
            if group.first_failed.is_independent:
                self.error, _ = explain_failure([group.first_failed], group.first_failed)
                return False
        self._let_peers_end(group)
        error, is_accident = explain_failure(group.tasks, group.first_failed)
        group.end()
        is_free = is_accident and self._accidents_left > 0
        if not (is_free or self.restarts_left):
            self.error = error
            return False
        if self.stopped_by():
            return False
        if is_free:
            self._accidents_left -= 1
            words = "an accident, such as a port that another program took; all tasks start again"
        else:
            self._count_restart()
            words = f"restart {self.restarts} of {self.restarts + self.restarts_left}"
            words = f"{error.task} {_end_of(group)}; all tasks start again, {words}"
        self._record.say(words)
        self._record.note_restart(error.task, error.cause, self.attempt + 1)
        return True

    def _let_peers_end(self, group: TaskGroup) -> None:
        """Give the peers of a failed task their time: programs the whole grace, if they use it."""
        seconds = self._grace_seconds
        if not any(task.is_program for task in group.tasks):
            leaving = self.restarts_left and any(map(has_left, group.vital))
            seconds = LEAVE_SECONDS if leaving else PEER_SECONDS
        group.let_end(seconds, signal.SIGTERM, self._hurries)

    def _await_cause(self, group: TaskGroup) -> None:
        """Wait for the end of a task that the others have lost: it may be heard of last."""
        programs = group.tasks[0].is_program
        deadline = time.monotonic() + (PEER_SECONDS if programs else LOST_SECONDS)
        while time.monotonic() < deadline and not self.stopped_by():
            ended = [t for t in group.tasks if t.state in ("failed", "killed") and not is_spared(t)]
            if not all(map(has_lost_peer, ended)) or all(task.is_over for task in group.tasks):
                return
            time.sleep(SETTLE_SECONDS)


def _end_of(group: TaskGroup) -> str:
    return group.first_failed.describe_end() if group.first_failed else "was frozen for too long"
