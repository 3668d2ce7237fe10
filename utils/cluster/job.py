"""A job on a cluster: start, watch, disturb, wait."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import InputError
from ..events import Event, make_event
from .failures import ClusterError, explain_failure, has_left
from .group import Group, Task
from .streams import Streams
from .waiting import FreezeWatch, explain_delay
from .warm import Starter

GRACE_SECONDS = 1.0  # for the peers of a failed task to say what they saw
LEAVE_SECONDS = 20.0  # for the peers of a task that left by sys.exit to save and leave too
PORT_LOST = "Could not start gRPC server"


class Job:
    """A function that runs on a cluster. Made by `LocalCluster.start`; `wait` gives the results."""

    def __init__(
        self,
        make_tasks: Callable[[], list[Task]],
        function: bytes,
        starter: Starter,
        restarts: int = 0,
        stall_seconds: float = 10.0,
    ) -> None:
        self._make_tasks, self._function, self._starter = make_tasks, function, starter
        self.restarts_left, self.stall_seconds = restarts, stall_seconds
        self.attempt, self.error = 0, None
        self.streams = Streams()
        self._changed = threading.Condition(threading.RLock())
        self._events: list[Event] = []
        self._actions: list[Event] = []
        self._output: list[tuple[str, str]] = []
        self._finished = self._stopping = False
        self._freezes = FreezeWatch()
        self._port_retries = 3
        try:
            self._group = self._start_group()
        except BaseException:
            self.streams.close()
            raise
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._supervisor.start()

    # ---- what a reader of the job asks

    @property
    def tasks(self) -> list[Task]:
        """The tasks of the running attempt."""
        return self._group.tasks

    def events(self) -> Iterator[Event]:
        """Yield every event from the start on, as they arrive, until the job has ended.

        Each has `task` (like "worker 0") and `attempt` beside its own fields.
        """
        place = 0
        while True:
            with self._changed:
                while place == len(self._events) and not self._finished:
                    self._changed.wait()
                fresh = self._events[place:]
                done = self._finished
            yield from fresh
            place += len(fresh)
            if done and place == len(self._events):
                return

    def logs(self, job: str, index: int = 0) -> list[str]:
        """Return what one task has written so far, a string a line."""
        name = self._find(job, index).name
        with self._changed:
            return [line for task, line in self._output if task == name]

    def output(self, start: int = 0) -> list[tuple[str, str]]:
        """Return (task, line) of all tasks in the order of arrival, from the `start`-th on."""
        with self._changed:
            return self._output[start:]

    def history(self, start: int = 0) -> list[Event]:
        """Return the events so far, from the `start`-th on, without waiting."""
        with self._changed:
            return self._events[start:]

    def actions(self) -> list[Event]:
        """Return what was done to tasks by kill, pause, resume and restart, in order.

        Each is an event named after the signal or the action, with `task` and `attempt`.
        """
        with self._changed:
            return list(self._actions)

    def kill(self, job: str, index: int = 0, number: int = signal.SIGKILL) -> None:
        """Send SIGKILL, or signal `number`, to a task and whatever it started."""
        self._act(signal.Signals(number).name, self._find(job, index), number)

    def pause(self, job: str, index: int = 0) -> None:
        """Freeze a task (SIGSTOP)."""
        task = self._find(job, index)
        self._act("pause", task, signal.SIGSTOP)
        task.state = "paused" if task.status is None else task.state

    def resume(self, job: str, index: int = 0) -> None:
        """Let a frozen task go on (SIGCONT)."""
        task = self._find(job, index)
        self._act("resume", task, signal.SIGCONT)
        task.state = "running" if task.state == "paused" else task.state

    def restart(self, job: str, index: int = 0) -> None:
        """Start a server of a parameter-server cluster again, at the same address.

        A task of a synchronous group comes back only with its whole group: it is
        killed, and the group starts again. Raises ClusterError where the job has no
        restart left for that.
        """
        task = self._find(job, index)
        if task.order.role != "serve" and self.restarts_left:
            return self._act("restart", task, signal.SIGKILL)
        if task.order.role != "serve":
            raise ClusterError(
                task.name, "a task of a synchronous group cannot come back alone",
                "start the job with restarts=1, which restarts the whole group",
            )  # fmt: skip
        self._act("restart", task, signal.SIGKILL)
        with self._changed:
            self._changed.wait_for(lambda: task.status is not None, timeout=5)
        self._group.start(task)

    def _act(self, action: str, task: Task, number: int) -> None:
        """Note what is done to a task, and do it."""
        with self._changed:
            self._actions.append(make_event(action, task=task.name, attempt=task.attempt))
        self._group.send_signal(task, number)

    @property
    def finished(self) -> bool:
        """Whether the job has ended, well or not."""
        return self._finished

    def wait(self, timeout: float | None = None, echo: bool = False) -> Any:
        """Return the results in rank order, or the coordinator's result.

        With `echo`, lines of the tasks are printed as they come. Raises
        ClusterError when a task failed for good, or when the job is not done after
        `timeout` seconds; the job is stopped then.
        """
        if not self._wait_until_finished(timeout, echo):
            error = explain_delay(self.tasks, timeout or 0)
            self.stop()
            raise error
        self._supervisor.join(10)
        if self.error is not None:
            raise self.error
        results = [task.result[1] for task in self.tasks if task.order.role == "call"]
        return results[0] if len(results) < len(self.tasks) else results

    def _wait_until_finished(self, timeout: float | None, echo: bool) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        printed = 0
        while True:
            with self._changed:
                if not self._finished and (not echo or printed == len(self._output)):
                    self._changed.wait(timeout=0.2)
                fresh, finished = self._output[printed:], self._finished
            for task, line in fresh if echo else []:
                print(f"[{task}] {line}", flush=True)
            printed += len(fresh)
            if finished:
                return True
            if deadline is not None and time.monotonic() > deadline:
                return False

    def stop(self) -> None:
        """End every task now; safe to call twice."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._supervisor.join(15)

    # ---- what tasks tell (called from the reading threads)

    def take_line(self, task: Task, line: str) -> None:
        with self._changed:
            task.lines.append(line)
            self._output.append((task.name, line))
            self._changed.notify_all()

    def take_event(self, task: Task, line: str) -> None:
        with self._changed:
            event = {**json.loads(line), "task": task.name, "attempt": task.attempt}
            self._events.append(event)
            self._changed.notify_all()

    def take_result(self, task: Task, message: tuple[Any, ...]) -> None:
        with self._changed:
            task.result, task.ended_at = message, time.monotonic()
            task.state = "done" if message[0] == "result" else "failed"
            self._changed.notify_all()

    def take_end(self, task: Task, status: int) -> None:
        with self._changed:
            task.status = status
            task.ended_at = task.ended_at or time.monotonic()
            if task.result is None:
                task.state = "killed" if status < 0 else "failed"
            self._changed.notify_all()

    # ---- supervision

    def _start_group(self) -> Group:
        self.attempt += 1
        group = Group(self._make_tasks(), self._function, self._starter, self)
        group.start_all(self.attempt)
        return group

    def _supervise(self) -> None:
        try:
            self._watch()
        except Exception as error:  # a fault of ours must end the job, not hang its reader
            self.error = ClusterError("job", f"its supervisor failed ({error!r})", "report this")
        self._group.end()
        self.streams.close()
        with self._changed:
            if self._stopping and self.error is None and not self._is_done():
                self.error = ClusterError("job", "was stopped", "")
            self._finished = True
            self._changed.notify_all()

    def _watch(self) -> None:
        """Return when the job is done, was stopped, or has failed for good."""
        while True:
            with self._changed:
                if not self._is_decided():
                    self._changed.wait(timeout=0.5)
                stopping, failed, done = self._stopping, self._find_failed(), self._is_done()
            if stopping or (done and not failed):
                return
            if (failed or self._has_stalled()) and not self._try_again():
                return

    def _is_decided(self) -> bool:
        return bool(self._stopping or self._find_failed() or self._is_done())

    def _is_done(self) -> bool:
        callers = [task for task in self._group.tasks if task.order.role == "call"]
        return all(task.result is not None and task.result[0] == "result" for task in callers)

    def _find_failed(self) -> list[Task]:
        return [
            task for task in self._group.tasks
            if task.order.role == "call" and task.state in ("failed", "killed")
        ]  # fmt: skip

    def _has_stalled(self) -> bool:
        """Return whether a task has been frozen for too long, in a job that may restart."""
        if not self.restarts_left:
            return False
        task = self._freezes.find(self._group.tasks, self.stall_seconds)
        if task is not None:
            task.state = "frozen"
            task.lines.append(f"frozen (SIGSTOP) for {self.stall_seconds:.1f} s")
        return task is not None

    def _try_again(self) -> bool:
        """After a failure: gather what the others say, end the group, start it again if allowed."""
        self._wait_for_peers()
        error = explain_failure(self._group.tasks)
        lost_port = any(PORT_LOST in text for text in (error.details, *self._all_lines()))
        self._group.end()
        if lost_port and self._port_retries:
            self._port_retries -= 1
        elif self.restarts_left:
            self.restarts_left -= 1
        else:
            self.error = error
            return False
        with self._changed:
            self._events.append(
                {"event": "restart", "time": time.time(), "task": error.task,
                 "cause": error.cause, "attempt": self.attempt + 1}
            )  # fmt: skip
            self._output.append((error.task, f"--- {error.cause}: the group starts again ---"))
            self._freezes = FreezeWatch()
            self._group = self._start_group()
            self._changed.notify_all()
        return True

    def _wait_for_peers(self) -> None:
        """Give the peers of a failed task time to say what they saw, or to leave as it did."""
        callers = [task for task in self._group.tasks if task.order.role == "call"]

        def all_have_ended() -> bool:
            return self._stopping or all(t.result or t.status is not None for t in callers)

        with self._changed:
            left = self.restarts_left and any(has_left(task) for task in callers)
            self._changed.wait_for(all_have_ended, LEAVE_SECONDS if left else GRACE_SECONDS)
        time.sleep(0.05)  # their last lines may still be on the way

    def _all_lines(self) -> list[str]:
        return [line for task in self._group.tasks for line in task.lines]

    def _find(self, job: str, index: int) -> Task:
        for task in self.tasks:
            if (task.job, task.index) == (job, index):
                return task
        names = ", ".join(task.name for task in self.tasks)
        raise InputError(f"no task {job} {index} in this cluster: choose from {names}")
