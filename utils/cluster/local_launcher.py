"""Tasks as processes of this machine: forked from a warm process, or fresh where fork is not safe.

The warm process (`processes.fork_server`) has imported TensorFlow and has one thread, so a
task starts in milliseconds: Linux only. Elsewhere every task imports for itself.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..errors import RunError
from ..processes.connection import Connection, Message, PeerGone
from ..processes.fork_server import ForkServer
from ..processes.module_command import make_module_command
from ..processes.preload import TRAINING_MODULES
from ..processes.registry import MARK_VARIABLE, end_cluster, make_mark, remove_folder
from ..tf_config import pick_free_ports
from .launcher import Launcher, TaskListener, TaskOrder
from .streams import MAX_LINE_BYTES, LineReader, Streams
from .task import TaskEnds

START_SECONDS, FORK_SECONDS = 120.0, 30.0
LEAVE_SECONDS, END_SECONDS = 0.5, 5.0
NUMBERS = {
    "kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT,
    "pause": getattr(signal, "SIGSTOP", 0), "resume": getattr(signal, "SIGCONT", 0),
}  # fmt: skip
OnEnd = Callable[[int], None]


def can_fork() -> bool:
    """Return whether tasks can be forked from a warm process here: Linux only."""
    return sys.platform == "linux"


def make_launcher(preload: Sequence[str] = TRAINING_MODULES) -> Launcher:
    """Return a launcher for this machine: warm where forking is safe, else cold.

    `preload` names the modules that a warm process imports beside TensorFlow; one that
    begins with a dot is of this library.
    """
    return WarmLauncher(preload) if can_fork() else ColdLauncher()


class Process(NamedTuple):
    """A started process: its number, and how to signal its group."""

    number: int
    send_signal: Callable[[int], None]


class LocalLauncher:
    """What both have in common: a folder for temporary files, pipes, and who reads them.

    The folder goes when the launcher is closed, or when the process that made it ends, in
    whatever way. Subclasses start processes.
    """

    description = ""
    actions = frozenset(NUMBERS) | {number.name for number in signal.Signals}

    def __init__(self) -> None:
        self.mark, self.streams = make_mark(), Streams()
        self._started: list[LocalTasks] = []

    @property
    def folder(self) -> str:
        return self.mark.folder

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, with the mark and the folder of the cluster."""
        return {**os.environ, MARK_VARIABLE: self.mark.value, "TMPDIR": self.folder}

    def find_addresses(self, count: int) -> list[str]:
        return [f"127.0.0.1:{port}" for port in pick_free_ports(count)]

    def start(
        self, orders: Sequence[TaskOrder], function: bytes, listener: TaskListener
    ) -> "LocalTasks":
        self._started = [tasks for tasks in self._started if tasks.left]
        tasks = LocalTasks(self, orders, function, listener)
        self._started.append(tasks)
        return tasks

    def start_process(self, order: TaskOrder, ends: TaskEnds, on_end: OnEnd) -> Process:
        """Start a process for one task; `on_end(status)` is called once when it has ended."""
        raise NotImplementedError

    def close(self) -> None:
        for tasks in self._started:
            tasks.end()
        self.streams.close()
        remove_folder(self.folder)


class WarmLauncher(LocalLauncher):
    """Forks tasks from a process that has imported TensorFlow; ready when it is made."""

    description = "forked from a warm process"

    def __init__(
        self, preload: Sequence[str] = TRAINING_MODULES, start_seconds: float = START_SECONDS
    ) -> None:
        super().__init__()
        self._lock, self._forks = threading.Lock(), dict[int, _Fork]()
        command = make_module_command(f"{__package__}.task_server", ",".join(preload))
        self.server = ForkServer(
            "the warm process", command, env={**self.environment, "OPENBLAS_NUM_THREADS": "1"}
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        try:
            self.server.wait_until_ready(start_seconds)
            self._listener.start()
        except BaseException:  # an interrupt, for one
            self.close()
            raise

    @property
    def alive(self) -> bool:
        return self.server.alive

    def start_process(self, order: TaskOrder, ends: TaskEnds, on_end: OnEnd) -> Process:
        fork = _Fork(on_end)
        try:
            with self._lock:
                number = self.server.fork(order.to_dict(), descriptors=ends)
                self._forks[number] = fork
        except PeerGone:
            raise self._explain(order, "has ended") from None
        answered = False
        try:
            answered = fork.told.wait(FORK_SECONDS)
        finally:
            if not answered:  # too late, or interrupted: it is killed, and nobody knows of it
                fork.on_end = lambda status: None
                self._send_signal(number, signal.SIGKILL)
        if not answered:
            raise self._explain(order, "does not answer")
        if fork.process is None:
            raise self._explain(order, "has ended")
        return Process(fork.process, lambda what: self._send_signal(number, what))

    def _explain(self, order: TaskOrder, what: str) -> RunError:
        words = f"{order.name} was not started: the warm process {what}"
        return RunError(f"{words}; make a new LocalCluster")

    def _send_signal(self, number: int, what: int) -> None:
        with contextlib.suppress(PeerGone):  # and its tasks with it
            self.server.signal(number, what)

    def _listen(self) -> None:
        with contextlib.suppress(PeerGone):
            while True:
                told = self.server.receive()
                with self._lock:
                    fork = self._forks.setdefault(told["id"], _Fork(lambda status: None))
                fork.process = told.get("process", fork.process)
                fork.told.set()
                if told["told"] == "ended":
                    del self._forks[told["id"]]
                    fork.on_end(told["status"])
        with self._lock:  # the warm process has gone, and its tasks with it
            forks, self._forks = list(self._forks.values()), {}
        for fork in forks:
            fork.told.set()
            fork.on_end(-signal.SIGKILL)

    def close(self) -> None:
        """End the warm process and every task of it; safe to call twice."""
        self.server.close()  # and every task with it
        if self._listener.is_alive():
            self._listener.join(5)
        if self.server.process.returncode:  # it could not clear up behind itself
            end_cluster(self.mark.identity)
        super().close()


@dataclass
class _Fork:
    """A fork that was asked for; `process` is None where it never came."""

    on_end: OnEnd
    told: threading.Event = field(default_factory=threading.Event)
    process: int | None = None


class ColdLauncher(LocalLauncher):
    """Starts every task as a fresh Python: slower, and safe everywhere."""

    description = "started from scratch, each importing TensorFlow"

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[threading.Thread] = []

    @property
    def alive(self) -> bool:
        return os.path.isdir(self.folder)

    def start_process(self, order: TaskOrder, ends: TaskEnds, on_end: OnEnd) -> Process:
        descriptors = ",".join(map(str, ends))
        order_text = json.dumps(order.to_dict())
        process = subprocess.Popen(
            make_module_command(f"{__package__}.cold_task", descriptors, order_text),
            pass_fds=ends, env=self.environment, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

        def wait() -> None:
            status = process.wait()
            _kill_group(process.pid)
            on_end(status)

        self._waiting.append(threading.Thread(target=wait, daemon=True))
        self._waiting[-1].start()
        return Process(process.pid, lambda what: _signal(process, what))

    def close(self) -> None:
        super().close()
        for waiting in self._waiting:
            waiting.join(5)


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)


def _kill_group(process: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


class _Result:
    """The end at which a task's result arrives, as a source for `Streams`."""

    def __init__(self, end: socket.socket, name: str, take: Callable[[bytes], None]) -> None:
        self._connection, self._take = Connection(end, name), take
        self.arrived = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> bool | None:
        return self._connection.read(self._take_message)

    def _take_message(self, message: Message) -> None:
        self.arrived = True
        self._take(bytes(message.body))

    def close(self) -> None:
        """Hang up, upon which the task leaves."""
        self._connection.close()


class _Running:
    """One task while it runs: its process, its pipes, and who is told what comes through them.

    Everything is told in the streams' thread, so in order.
    """

    def __init__(self, name: str, launcher: LocalLauncher, listener: TaskListener) -> None:
        self.name, self._streams, self._listener = name, launcher.streams, listener
        self.process: Process | None = None
        self.ended = threading.Event()
        ours, self._theirs = socket.socketpair()
        (output, output_end), (events, events_end) = os.pipe(), os.pipe()
        self._ends = [output_end, events_end]
        self._written = (
            LineReader(output, lambda line: listener.take_line(name, line), MAX_LINE_BYTES),
            LineReader(events, self._take_event),
        )
        self.result = _Result(ours, name, self._take_result)

    def start(self, launcher: LocalLauncher, order: TaskOrder, function: int) -> None:
        """Start the process; where that fails, the pipes end and are closed."""
        for source in (*self._written, self.result):
            self._streams.add(source)
        try:
            ends = TaskEnds(*self._ends, self._theirs.fileno(), function)
            self.process = launcher.start_process(order, ends, self._take_end)
        finally:
            self._theirs.close()
            for end in self._ends:
                os.close(end)

    def _take_event(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:  # cut off by a kill, or written by somebody else
            return self._listener.take_line(self.name, line)
        self._listener.take_event(self.name, event)

    def _take_result(self, body: bytes) -> None:
        for source in self._written:
            self._streams.drain(source)
        self._listener.take_result(self.name, body)

    def _take_end(self, status: int) -> None:
        self._streams.call(lambda: self._finish(status))

    def _finish(self, status: int) -> None:
        for source in (*self._written, self.result):
            self._streams.drain(source)
            self._streams.remove(source)
        self._listener.take_end(self.name, status)
        self.ended.set()

    def release(self) -> None:
        self._streams.call(lambda: self._streams.remove(self.result))


class LocalTasks:
    """The tasks of one start, as processes with a folder of their own for temporary files."""

    def __init__(
        self, launcher: LocalLauncher, orders: Sequence[TaskOrder], function: bytes,
        listener: TaskListener,
    ) -> None:  # fmt: skip
        self._launcher, self._listener = launcher, listener
        self._folder = tempfile.mkdtemp(prefix="job-", dir=launcher.folder)
        self._orders = {order.name: order for order in orders}
        self._running: dict[str, _Running] = {}
        self._function = tempfile.TemporaryFile()
        self._function.write(function)
        self._function.flush()
        try:
            for order in orders:
                self._start(order)
        except BaseException:
            self.end()
            raise

    def _start(self, order: TaskOrder) -> None:
        here = {**order.environment, "TMPDIR": self._folder}
        running = _Running(order.name, self._launcher, self._listener)
        running.start(self._launcher, replace(order, environment=here), self._function.fileno())
        self._running[order.name] = running

    def start_again(self, task: str) -> None:
        if not self._running[task].ended.wait(END_SECONDS):
            raise RunError(f"{task} has not ended: it cannot start again")
        self._start(self._orders[task])

    def act(self, task: str, action: str) -> None:
        running = self._running[task]
        if not running.ended.is_set():
            number = NUMBERS.get(action) or signal.Signals[action]
            running.process.send_signal(number)

    def find_process(self, task: str) -> int | None:
        return self._running[task].process.number

    def release(self) -> None:
        for running in self._running.values():
            running.release()

    def end(self) -> None:
        self.release()
        deadline = time.monotonic() + LEAVE_SECONDS
        while self._are_leaving() and time.monotonic() < deadline:
            time.sleep(0.01)
        for task in self.left:
            self.act(task, "kill")
        deadline = time.monotonic() + END_SECONDS
        for running in self._running.values():
            running.ended.wait(max(0.0, deadline - time.monotonic()))
        self._function.close()
        shutil.rmtree(self._folder, ignore_errors=True)  # a killed task leaves files in it

    @property
    def left(self) -> list[str]:
        """The tasks that have not ended."""
        return [task for task, running in self._running.items() if not running.ended.is_set()]

    def _are_leaving(self) -> bool:
        return bool(left := self.left) and all(self._running[t].result.arrived for t in left)
