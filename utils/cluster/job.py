"""A job on a cluster: start, watch, disturb, wait."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from utils.cluster.failures import ClusterError, explain_failure, is_stopped
from utils.cluster.group import Group, Task
from utils.cluster.streams import Streams
from utils.cluster.warm import Starter
from utils.errors import CourseError
from utils.events import Event

GRACE_SECONDS = 1.0  # for the peers of a failed task to say what they saw
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
        self._output: list[tuple[str, str]] = []
        self._finished = self._stopping = False
        self._frozen: dict[str, float] = {}  # task name -> frozen since
        self._port_retries = 3
        self._group = self._start_group()
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

    def kill(self, job: str, index: int = 0, number: int = signal.SIGKILL) -> None:
        """Send SIGKILL, or signal `number`, to a task and whatever it started."""
        self._group.send_signal(self._find(job, index), number)

    def pause(self, job: str, index: int = 0) -> None:
        """Freeze a task (SIGSTOP)."""
        task = self._find(job, index)
        self._group.send_signal(task, signal.SIGSTOP)
        task.state = "paused" if task.status is None else task.state

    def resume(self, job: str, index: int = 0) -> None:
        """Let a frozen task go on (SIGCONT)."""
        task = self._find(job, index)
        self._group.send_signal(task, signal.SIGCONT)
        task.state = "running" if task.state == "paused" else task.state

    def restart(self, job: str, index: int = 0) -> None:
        """Start a server of a parameter-server cluster again, at the same address.

        Raises ClusterError for a task of a synchronous group, which restarts only whole.
        """
        task = self._find(job, index)
        if task.order.role != "serve":
            raise ClusterError(
                task.name, "a task of a synchronous group cannot come back alone",
                "start the job with restarts=1, which restarts the whole group",
            )  # fmt: skip
        self._group.send_signal(task, signal.SIGKILL)
        with self._changed:
            self._changed.wait_for(lambda: task.status is not None, timeout=5)
        self._group.start(task)

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
            error = self._describe_delay(timeout or 0)
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
            event = {**json.loads(line), "task": task.name, "attempt": self.attempt}
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
        for task in group.tasks:
            group.start(task)
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
        now = time.monotonic()
        for task in self._group.tasks:
            frozen = task.status is None and is_stopped(task.process)
            since = self._frozen.setdefault(task.name, now) if frozen else None
            if not frozen:
                self._frozen.pop(task.name, None)
            elif now - since > self.stall_seconds:
                task.lines.append(f"frozen (SIGSTOP) for {self.stall_seconds:.0f} s")
                return True
        return False

    def _try_again(self) -> bool:
        """After a failure: gather what the others say, end the group, start it again if allowed."""
        time.sleep(GRACE_SECONDS)
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
            self._frozen.clear()
            self._group = self._start_group()
            self._changed.notify_all()
        return True

    def _all_lines(self) -> list[str]:
        return [line for task in self._group.tasks for line in task.lines]

    def _describe_delay(self, seconds: float) -> ClusterError:
        waiting = [task for task in self.tasks if task.state not in ("done", "failed")]
        frozen = [task for task in waiting if task.status is None and is_stopped(task.process)]
        if frozen:
            return ClusterError(
                frozen[0].name, f"is frozen (SIGSTOP), and {seconds:.0f} s are over",
                f"job.resume({frozen[0].job!r}, {frozen[0].index}) lets it go on",
            )  # fmt: skip
        task = next((t for t in waiting if t.order.role == "call"), self.tasks[0])
        said = f"; its last line: {task.lines[-1][:120]}" if task.lines else ""
        return ClusterError(
            task.name, f"was not done after {seconds:.0f} s{said}",
            "give it more time, or look at its lines with job.logs",
            "\n".join(task.lines[-20:]),
        )  # fmt: skip

    def _find(self, job: str, index: int) -> Task:
        for task in self.tasks:
            if (task.job, task.index) == (job, index):
                return task
        names = ", ".join(task.name for task in self.tasks)
        raise CourseError(f"no task {job} {index} in this cluster: choose from {names}")
