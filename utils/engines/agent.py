"""What an engine starts once for each task: it calls its launcher, and does what that orders.

It starts the task as a child of its own, sends on what that says, and ends it when the launcher
asks, hangs up or dies. With status 1 it asks its engine to start it again; 0 and 75 mean
that nobody is waiting for it any more.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from ..cluster.launcher import TaskOrder
from ..cluster.local_launcher import NUMBERS, ColdLauncher
from ..cluster.streams import Streams
from ..errors import InputError, RunError
from ..events import Event
from ..processes.connection import Connection, PeerGone, reach
from ..processes.keeper import Keeper
from ..processes.registry import MARK_VARIABLE, end_cluster, make_mark, remove_folder
from ..tf_config import join_address, parse_tf_config, pick_free_ports
from .handshake import ChannelLost, introduce, take_call
from .task_process import TaskPlan, TaskProcess

RANK_VARIABLES = ("DISTLAB_RANK", "SLURM_PROCID")
PIPE_VARIABLE = "DISTLAB_AGENT_PIPE"  # set: its standard input ends when its starter dies
STATUS_LOST = 75
CONNECT_SECONDS = 60.0
END_SECONDS = 10.0


class Teller:
    """Tells the launcher of the task, from any thread; it is the task's listener, too."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def tell(self, said: str, body: bytes = b"", **fields: Any) -> None:
        with self._lock, contextlib.suppress(RunError):  # gone: `serve` notices
            self._connection.send({"said": said, **fields}, body)

    def take_line(self, task: str, line: str) -> None:
        self.tell("line", line.encode(errors="replace"))  # as the body, which may be long

    def take_event(self, task: str, event: Event) -> None:
        self.tell("event", json.dumps(event).encode())

    def take_result(self, task: str, body: bytes) -> None:
        self.tell("result", body)

    def take_end(self, task: str, status: int) -> None:
        self.tell("end", status=status)


class FunctionWork:
    """A task that calls a function, or serves, as `utils.cluster` has it."""

    def __init__(self, order: TaskOrder, function: bytes, teller: Teller) -> None:
        self._name, self._launcher = order.name, ColdLauncher()
        try:
            self._tasks = self._launcher.start([order], function, teller)
        except BaseException:
            self._launcher.close()
            raise

    def act(self, action: str) -> None:
        self._tasks.act(self._name, action)

    def release(self) -> None:
        self._tasks.release()

    def close(self) -> None:
        self._launcher.close()


class ProgramWork:
    """A task that runs a program with its TF_CONFIG."""

    def __init__(self, order: TaskOrder, command: list[str], teller: Teller) -> None:
        self._mark, self._streams = make_mark(), Streams()
        self._keeper = _start_keeper(self._mark.identity)
        marked = {MARK_VARIABLE: self._mark.value, "PYTHONUNBUFFERED": "1"}
        environment = {**os.environ, **order.environment, **marked}
        config = parse_tf_config(order.environment["TF_CONFIG"])
        plan = TaskPlan(config, command, environment, Path(os.devnull))
        self._task: TaskProcess | None = None
        try:
            self._task = TaskProcess(
                plan, self._streams, teller.take_line,
                lambda task: teller.take_end(order.name, task.status),
            )  # fmt: skip
        except OSError as error:
            self.close()
            words = f"{command[0]}: {error.strerror or error} on {socket.gethostname()}"
            raise InputError(f"{words}; name a program that is there on every machine") from None

    def act(self, action: str) -> None:
        self._task.send(NUMBERS.get(action) or signal.Signals[action])

    def release(self) -> None:
        """Nothing waits for it: a program leaves by itself."""

    def close(self) -> None:
        if self._task is not None:
            self._task.send(signal.SIGKILL)
            self._task.join(END_SECONDS)
        self._streams.close()
        end_cluster(self._mark.identity)
        remove_folder(self._mark.folder)
        self._keeper.close()


def _start_keeper(identity: str) -> Keeper:
    """Start a keeper that is deaf from its first moment: Slurm asks all of a step to end."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        return Keeper(identity)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Agent:
    """One agent, for one task after the other, until its launcher has enough of it."""

    def __init__(self, connection: Connection, host: str) -> None:
        self._connection, self._host = connection, host
        self._teller, self._work = Teller(connection), None

    def serve(self) -> int:
        """Do what is ordered; return the exit status."""
        try:
            while True:
                message = self._connection.receive(float("inf"))
                what = message.content["do"]
                if what == "leave":
                    return int(message.content["status"])
                self._follow(what, message.content, message.body)
        except PeerGone:
            return STATUS_LOST
        finally:
            self._close_work()

    def _follow(self, what: str, content: dict[str, Any], body: bytearray) -> None:
        if what == "address":
            port = pick_free_ports(1, self._host)[0]
            self._teller.tell("address", address=join_address(self._host, port))
        elif what == "start":
            self._start(content, bytes(body))
        elif self._work is not None and what == "act":
            self._work.act(content["action"])
        elif self._work is not None and what == "release":
            self._work.release()
        elif what == "end":
            self._close_work()

    def _start(self, content: dict[str, Any], body: bytes) -> None:
        self._close_work()
        order, command = TaskOrder(**content["order"]), content.get("command")
        try:
            _enter(content["folder"])
            if command:
                self._work = ProgramWork(order, command, self._teller)
            else:
                self._work = FunctionWork(order, body, self._teller)
        except Exception as error:
            self._teller.take_line(order.name, f"{order.name} was not started: {error}")
            self._teller.take_end(order.name, 127)

    def _close_work(self) -> None:
        if self._work is not None:
            work, self._work = self._work, None
            work.close()


def _enter(folder: str) -> None:
    if not os.path.isdir(folder):
        raise InputError(
            f"{folder} is not there on {socket.gethostname()}; have the program in "
            "the same folder on every machine, as on a shared disk"
        )
    os.chdir(folder)


def _end_with_starter() -> None:
    """End this process at once when whoever started it has died, and so closed the pipe."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGKILL)  # its tasks see that, and end too


def main() -> None:
    call = take_call()
    # this process carries its cluster's mark, its keeper must not: that ends the tasks if the
    # cluster is ended from outside
    os.environ.pop(MARK_VARIABLE, None)
    if os.environ.pop(PIPE_VARIABLE, ""):
        threading.Thread(target=_end_with_starter, daemon=True).start()
    rank = next(int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ)
    try:
        end = reach(call.address, "the launcher", CONNECT_SECONDS)
        introduce(end, lambda salt: bytes.fromhex(call.key))
        connection, host = Connection(end, "the launcher"), end.getsockname()[0]
        connection.send({"rank": rank, "host": socket.gethostname()})
    except RunError as error:
        who = "the launcher " if isinstance(error, ChannelLost) else ""
        print(f"agent {rank}: {who}{error}", file=sys.stderr)
        sys.exit(STATUS_LOST)
    sys.exit(Agent(connection, host).serve())
