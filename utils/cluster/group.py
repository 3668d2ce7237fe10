"""The tasks of one attempt of a job, as running processes."""

import os
import pickle
import shutil
import signal
import socket
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .protocol import TaskOrder
from .streams import LineSplitter
from .warm import Starter

if TYPE_CHECKING:
    from .job import Job


@dataclass
class Task:
    """One task: a process with its own TF_CONFIG. `state` is one of
    starting, running, paused, frozen (for too long), done, failed, killed."""

    order: TaskOrder
    job: str
    index: int
    state: str = "starting"
    process: int | None = None
    status: int | None = None
    attempt: int = 1
    lines: list[str] = field(default_factory=list)
    result: tuple[Any, ...] | None = None
    ended_at: float | None = None
    channel: socket.socket | None = None

    @property
    def name(self) -> str:
        return f"{self.job} {self.index}"


class Group:
    """The tasks of one attempt of a job, as running processes with a temporary folder."""

    def __init__(self, tasks: list[Task], function: bytes, starter: Starter, job: "Job") -> None:
        self.tasks, self._starter, self._job = tasks, starter, job
        self._folder = tempfile.mkdtemp(prefix="job-", dir=starter.folder)
        for task in tasks:
            task.order.environment["TMPDIR"] = self._folder
        self._function = tempfile.TemporaryFile()
        self._function.write(function)
        self._function.flush()

    def start_all(self, attempt: int) -> None:
        """Start every task; end those that have started if one cannot be."""
        try:
            for task in self.tasks:
                task.attempt = attempt
                self.start(task)
        except BaseException:
            self.end()
            raise

    def start(self, task: Task) -> None:
        """Start the process of `task` and read from it."""
        ours, theirs = socket.socketpair()
        output, output_end = os.pipe()
        events, events_end = os.pipe()
        task.channel, task.state, task.status, task.result = ours, "starting", None, None
        lines = LineSplitter(lambda line: self._job.take_line(task, line))
        reports = LineSplitter(lambda line: self._job.take_event(task, line))
        body = bytearray()
        streams = self._job.streams
        streams.add(output, lines.feed, lines.finish)
        streams.add(events, reports.feed, reports.finish)
        streams.add(os.dup(ours.fileno()), lambda piece: self._take_result(task, body, piece), int)
        ends = (output_end, events_end, theirs.fileno(), self._function.fileno())
        try:
            task.process = self._starter.start(
                task.order, ends, lambda status: self._job.take_end(task, status)
            )
        finally:
            theirs.close()
            os.close(output_end)
            os.close(events_end)
        if task.state == "starting":
            task.state = "running"

    def _take_result(self, task: Task, body: bytearray, piece: bytes) -> None:
        body += piece
        if len(body) >= 8 and len(body) == 8 + int.from_bytes(body[:8], "big"):
            try:
                message = pickle.loads(bytes(body[8:]))
            except Exception as error:
                message = ("error", f"its result cannot be read here ({error})", "")
            self._job.take_result(task, message)

    def send_signal(self, task: Task, number: int) -> None:
        if task.process is not None and task.status is None:
            self._starter.send_signal(task.process, number)

    def release(self) -> None:
        """Let tasks that have handed in their result go."""
        for task in self.tasks:
            if task.channel is not None:
                try:
                    task.channel.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                task.channel.close()
                task.channel = None

    def end(self, seconds: float = 5.0) -> None:
        """Release every task, then kill what is still there, and wait until all have ended."""
        self.release()
        deadline = time.monotonic() + 0.5
        while self._running() and time.monotonic() < deadline:
            if any(t.order.role == "serve" or t.result is None for t in self._running()):
                break
            time.sleep(0.01)
        for task in self._running():
            self.send_signal(task, signal.SIGKILL)
        deadline = time.monotonic() + seconds
        while self._running() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._function.close()
        shutil.rmtree(self._folder, ignore_errors=True)  # a killed task leaves files in it

    def _running(self) -> list[Task]:
        return [task for task in self.tasks if task.process is not None and task.status is None]
