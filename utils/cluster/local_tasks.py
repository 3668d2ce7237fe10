"""The tasks of this machine: their launcher, and their pipes, their ends, their listener."""

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import psutil

from ..processes.connection import Connection, WireMessage
from ..processes.registry import MARK_VARIABLE, ClusterMark
from ..tf_config import pick_free_ports
from .grace import GraceWatch, Notice
from .launcher import KILL_SECONDS, Stop, TaskListener, TaskOrder, await_end
from .streams import MAX_LINE_BYTES, ErrorLine, LineReader, Streams
from .task import TaskEnds
from .work import IdleWatch

LEAVE_SECONDS = 0.5
NUMBERS = {
    "kill": signal.SIGKILL,
    "terminate": signal.SIGTERM,
    "interrupt": signal.SIGINT,
    "pause": getattr(signal, "SIGSTOP", 0),
    "resume": getattr(signal, "SIGCONT", 0),
}
ACTIONS = frozenset(NUMBERS) | {number.name for number in signal.Signals}
OnEnd = Callable[[int], None]


def find_number(action: str) -> int:
    """Return the number of the signal that an action of `LaunchedTasks.act` sends."""
    return NUMBERS.get(action) or signal.Signals[action]


class Process(NamedTuple):
    """A started process: its number, and how to signal its group."""

    number: int
    send_signal: Callable[[int], None]


class LocalLauncher:
    """The base of both launchers: a folder for temporary files, pipes, and their readers.

    The folder goes when the launcher is closed, or when the process that made it ends, in
    whatever way. Subclasses start processes.
    """

    description = ""
    actions = ACTIONS
    ports: Sequence[int] | None = None  # those that tasks may have

    def __init__(self, mark: ClusterMark) -> None:
        self.mark, self.streams = mark, Streams()
        self._started: list[LocalTasks] = []

    @property
    def folder(self) -> str:
        return self.mark.folder

    @property
    def environment(self) -> dict[str, str]:
        """The environment of functions: this process's own, the cluster's mark, its folder.

        Without the log level that JAX sets when Keras imports it: a task sets its own, if none is
        there, and JAX's shows that CUDA is missing.
        """
        own = dict(os.environ)
        if "jax" in sys.modules and own.get("TF_CPP_MIN_LOG_LEVEL") == "1":
            del own["TF_CPP_MIN_LOG_LEVEL"]
        return {**own, MARK_VARIABLE: self.mark.value, "TMPDIR": self.folder}

    def find_addresses(self, count: int, stop: Stop = lambda: 0) -> list[str]:
        return [f"127.0.0.1:{port}" for port in pick_free_ports(count, among=self.ports)]

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


class _Result:
    """The end at which a task's result arrives, as a source for `Streams`."""

    def __init__(self, end: socket.socket, name: str, take: Callable[[bytes], None]) -> None:
        self._connection, self._take = Connection(end, name), take
        self.arrived = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> bool | None:
        return self._connection.read(self._take_message)

    def _take_message(self, message: WireMessage) -> None:
        self.arrived = True
        self._take(bytes(message.body))

    def close(self) -> None:
        """Hang up, upon which the task leaves."""
        self._connection.close()


class _Running:
    """One task while it runs: its process, its pipes, and the listener for what comes through them.

    The listener is called in the streams' thread, so in order.
    """

    def __init__(self, order: TaskOrder, launcher: LocalLauncher, listener: TaskListener) -> None:
        self.order, self._launcher, self._listener = order, launcher, listener
        self._streams, name = launcher.streams, order.name
        self.process: Process | None = None
        self.ended = threading.Event()
        ours, self._theirs = socket.socketpair()
        (output, output_end), (errors, errors_end) = os.pipe(), os.pipe()
        events, events_end = os.pipe()
        self._ends = [output_end, errors_end, events_end]
        self._written = (
            LineReader(output, lambda line: listener.take_line(name, line), MAX_LINE_BYTES),
            LineReader(errors, self._take_error, MAX_LINE_BYTES),
            LineReader(events, self._take_event),
        )
        self.result = _Result(ours, name, self._take_result)

    def start(self, order: TaskOrder, function: int) -> None:
        """Start the process; where that fails, the pipes end and are closed."""
        for source in (*self._written, self.result):
            self._streams.add(source)
        try:
            ends = TaskEnds(*self._ends, self._theirs.fileno(), function)
            self.process = self._launcher.start_process(order, ends, self._take_end)
        finally:
            self._theirs.close()
            for end in self._ends:
                os.close(end)

    def _take_error(self, line: str) -> None:
        self._listener.take_line(self.order.name, ErrorLine(line))

    def _take_event(self, line: str) -> None:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):  # cut off by a kill, or written by other code
            event = None
        if not isinstance(event, dict):
            return self._listener.take_line(self.order.name, line)
        self._listener.take_event(self.order.name, event)

    def _take_result(self, body: bytes) -> None:
        for source in self._written:
            self._streams.drain(source)
        self._listener.take_result(self.order.name, body)

    def _take_end(self, status: int) -> None:
        self._streams.call(lambda: self._finish(status))

    def _finish(self, status: int) -> None:
        for source in (*self._written, self.result):
            self._streams.drain(source)
            self._streams.remove(source)
        self._listener.take_end(self.order.name, status)
        self.ended.set()

    def signal(self, number: int) -> None:
        """Send a signal to the process and its group; nothing if it has ended."""
        if not self.ended.is_set():
            self.process.send_signal(number)

    def release(self) -> None:
        self._streams.call(lambda: self._streams.remove(self.result))


class LocalTasks:
    """The tasks of one start, as processes. Functions have a folder for temporary files."""

    def __init__(
        self,
        launcher: LocalLauncher,
        orders: Sequence[TaskOrder],
        function: bytes,
        listener: TaskListener,
    ) -> None:
        self._launcher, self._listener = launcher, listener
        self._folder = tempfile.mkdtemp(prefix="job-", dir=launcher.folder)
        self._orders = {order.name: order for order in orders}
        self._running: dict[str, _Running] = {}
        self._idle = IdleWatch()
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
        running = _Running(order, self._launcher, self._listener)
        if order.role != "program":
            order = replace(order, environment={**order.environment, "TMPDIR": self._folder})
        running.start(order, self._function.fileno())
        self._running[order.name] = running

    def start_again(self, task: str) -> None:
        await_end(task, self._running[task].ended, KILL_SECONDS)
        self._orders[task] = self._orders[task].again()
        self._start(self._orders[task])

    def act(self, task: str, action: str) -> None:
        self._running[task].signal(find_number(action))

    def ask_to_end(self, tasks: Sequence[str], notice: Notice) -> None:
        number = find_number(notice.action)
        asked = {self._running[t].process.number: self._running[t] for t in tasks if t in self.left}
        watch = GraceWatch(notice, number, {process: task.ended for process, task in asked.items()})
        for task in asked.values():
            task.signal(number)
        kills = [lambda process: asked[process].signal(signal.SIGKILL)]
        threading.Thread(target=watch.run, args=kills, daemon=True).start()

    def find_process(self, task: str) -> int | None:
        return self._running[task].process.number

    def find_host(self, task: str) -> str:
        return socket.gethostname()

    def listens(self, task: str) -> bool:
        port = int(self._orders[task].address.rpartition(":")[2] or 0)
        return listens_at(port, self._running[task].process.number)

    def find_idle_seconds(self, task: str) -> float:
        processes = [self._running[name].process.number for name in self.left]
        found = self._idle.find_idle_seconds(processes)
        return found.get(self._running[task].process.number, 0.0)

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
        deadline = time.monotonic() + KILL_SECONDS
        for running in self._running.values():
            running.ended.wait(max(0.0, deadline - time.monotonic()))
        self._function.close()
        shutil.rmtree(self._folder, ignore_errors=True)  # a killed task leaves files in it

    @property
    def left(self) -> list[str]:
        """The tasks that haven't ended."""
        return [task for task, running in self._running.items() if not running.ended.is_set()]

    def _are_leaving(self) -> bool:
        return bool(left := self.left) and all(self._running[t].result.arrived for t in left)


def listens_at(port: int, process: int) -> bool:
    """Return whether a process of this machine, or one of its children, listens at `port`."""
    found = []
    with contextlib.suppress(psutil.Error, OSError):
        first = psutil.Process(process)
        for one in (first, *first.children(recursive=True)):
            with contextlib.suppress(psutil.Error, OSError):  # a child may end meanwhile
                found += one.net_connections("tcp")
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in found)
