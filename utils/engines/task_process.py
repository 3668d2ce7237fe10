"""One task of a run: a process group of its own, its lines in a log, its end told once."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..cluster.failures import describe_status, listens_at
from ..cluster.streams import MAX_LINE_BYTES, LineReader, Streams
from ..processes.lifetime import signal_group
from ..tf_config import TaskConfig
from .task_output import Print as Print
from .task_output import TaskOutput


@dataclass(frozen=True)
class TaskPlan:
    """What one task runs: the command, its place in the cluster, and its environment."""

    config: TaskConfig
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path

    @property
    def name(self) -> str:
        return f"{self.config.job} {self.config.index}"


class RunningTask:
    """A started task, wherever it runs.

    `status` is None while it runs, then 0 to 255, or minus the number of the signal that
    ended it; `ended_at` is that moment (`time.monotonic`), `tail` what it wrote last.
    `listens`: whether it, or what it started, listens at its port.
    """

    plan: TaskPlan
    status: int | None
    ended_at: float
    tail: "deque[str]"
    host: str
    listens: bool

    @property
    def lives(self) -> bool:
        return self.status is None

    @property
    def shell_status(self) -> int | None:
        """The status as a shell has it: 128 + the signal's number where one ended it."""
        return to_shell_status(self.status)

    def describe_end(self) -> str:
        """Return how it ended, in words."""
        return describe_status(self.status)

    def send(self, number: int) -> None:
        """Signal its whole group, unless it has ended."""
        raise NotImplementedError

    def join(self, seconds: float) -> None:
        """Wait until it has ended."""
        raise NotImplementedError


StartTask = Callable[[TaskPlan, Streams, Print, Callable[[RunningTask], None]], RunningTask]


class TaskProcess(RunningTask):
    """One of this machine. `on_end(self)` is called once, from another thread, at its end."""

    def __init__(
        self, plan: TaskPlan, streams: Streams, show: Print, on_end: Callable[["TaskProcess"], None]
    ) -> None:
        self.plan, self.status, self.ended_at = plan, None, 0.0
        self._on_end, self._streams = on_end, streams
        self._output = TaskOutput(plan.name, plan.log, show)
        self.tail = self._output.tail
        self._reader, self.process = self._start()
        streams.add(self._reader)
        self._waiting = threading.Thread(target=self._wait, daemon=True)
        self._waiting.start()

    def _start(self) -> tuple[LineReader, "subprocess.Popen[bytes]"]:
        ours, theirs = os.pipe()
        try:
            process = subprocess.Popen(
                self.plan.command, env=dict(self.plan.environment), stdin=subprocess.DEVNULL,
                stdout=theirs, stderr=theirs, start_new_session=True,
            )  # fmt: skip
        except BaseException:
            os.close(ours)
            self._output.close()
            raise
        finally:
            os.close(theirs)
        return LineReader(ours, self._output.take, MAX_LINE_BYTES), process

    def _wait(self) -> None:
        status = self.process.wait()
        self.ended_at = time.monotonic()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # what it started and left
        self._streams.call(lambda: self._finish(status))

    def _finish(self, status: int) -> None:
        """In the reading thread: after all that it wrote."""
        self._streams.drain(self._reader)
        self._streams.remove(self._reader)
        self._output.close()
        self.status = status
        self._on_end(self)

    @property
    def host(self) -> str:
        return socket.gethostname()

    @property
    def lives(self) -> bool:
        """Whether its process is there, whatever has been read of it."""
        return self.process.poll() is None

    @property
    def listens(self) -> bool:
        port = int(self.plan.config.address.rpartition(":")[2])
        return listens_at(port, self.process.pid, with_children=True)

    def send(self, number: int) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(PermissionError):
                signal_group(self.process.pid, number)

    def join(self, seconds: float) -> None:
        self._waiting.join(seconds)


def to_shell_status(status: int | None) -> int | None:
    """Return a status as a shell has it: 128 + the signal's number where one ended the process."""
    return 128 - status if status is not None and status < 0 else status
