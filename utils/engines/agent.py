"""The agent, started by an engine once per task: it calls its launcher and follows its orders.

It starts the task as its own child, forwards its output, and ends it when the launcher
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
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cluster.grace import Notice
from ..cluster.launcher import LaunchedTasks, TaskOrder
from ..cluster.local_launcher import ColdLauncher
from ..cluster.streams import ErrorLine
from ..environment import list_cores
from ..errors import InputError, RunError
from ..events import Event
from ..processes.connection import Connection, PeerGone, reach
from ..processes.handshake import ChannelLost, introduce, make_connection
from ..processes.registry import MARK_VARIABLE
from ..tf_config import join_address, pick_free_ports
from .driver import take_call
from .programs import LOCAL_RANK_VARIABLE, share_cores
from .settings import CHECKPOINT_VARIABLE, RUN_VARIABLE, name_mark

RANK_VARIABLES = ("DISTLAB_RANK", "SLURM_PROCID")
PIPE_VARIABLE = "DISTLAB_AGENT_PIPE"  # set: its standard input ends when its starter dies
STATUS_LOST, NOT_STARTED = 75, 127
CONNECT_SECONDS = 60.0


class Teller:
    """Tells the launcher of the task, from any thread; it is the task's listener, too."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def tell(self, said: str, body: bytes = b"", **fields: Any) -> None:
        with self._lock, contextlib.suppress(RunError):  # gone: `serve` notices
            self._connection.send({"said": said, **fields}, body)

    def take_line(self, task: str, line: str) -> None:
        said = "error" if isinstance(line, ErrorLine) else "line"
        self.tell(said, line.encode(errors="replace"))  # as the body, which may be long

    def take_event(self, task: str, event: Event) -> None:
        self.tell("event", json.dumps(event).encode())

    def take_result(self, task: str, body: bytes) -> None:
        self.tell("result", body)

    def take_end(self, task: str, status: int, why: str = "") -> None:
        self.tell("end", status=status)


class Agent:
    """One agent, for one task after the other, until its launcher has enough of it.

    Each task has a launcher of this machine, so that nothing of it is left for the next.
    """

    def __init__(self, connection: Connection, host: str, rank: int) -> None:
        self._connection, self._host, self._rank = connection, host, rank
        self._teller, self._work = Teller(connection), contextlib.ExitStack()
        self._task = ""
        self._tasks: LaunchedTasks | None = None

    def serve(self) -> int:
        """Do what is ordered; return the exit status."""
        try:
            with self._work:
                while True:
                    message = self._connection.receive(float("inf"))
                    what = message.content["do"]
                    if what == "leave":
                        return int(message.content["status"])
                    self._follow(what, message.content, message.body)
        except PeerGone:
            return STATUS_LOST

    def _follow(self, what: str, content: dict[str, Any], body: bytearray) -> None:
        if what == "address":
            self._tell_address(content["ports"])
        elif what == "start":
            order = add_place(TaskOrder(**content["order"]), *content["own"])
            self._start(order, content["folder"], bytes(body))
        elif self._tasks is not None and what == "act":
            self._tasks.act(self._task, content["action"])
        elif self._tasks is not None and what == "ask":
            self._tasks.ask_to_end([self._task], Notice(**content["notice"]))
        elif self._tasks is not None and what == "idle":
            self._teller.tell("idle", seconds=self._tasks.find_idle_seconds(self._task))
        elif self._tasks is not None and what == "release":
            self._tasks.release()
        elif what == "end":
            self._close_work()

    def _tell_address(self, ports: list[int] | None) -> None:
        """Of `ports`, each agent tries others first, as several may be on one machine."""
        among = list(range(ports[0], ports[1] + 1)) if ports else None
        if among:
            first = self._rank % len(among)
            among = among[first:] + among[:first]
        port = pick_free_ports(1, self._host, among)[0]
        self._teller.tell("address", address=join_address(self._host, port))

    def _start(self, order: TaskOrder, folder: str, body: bytes) -> None:
        self._close_work()
        try:
            _enter(folder)
            launcher = self._work.enter_context(contextlib.closing(ColdLauncher()))
            if own := describe_own_folder(order):
                self._teller.take_line(order.name, own)
            self._task, self._tasks = order.name, launcher.start([order], body, self._teller)
        except Exception as error:
            self._close_work()
            words = str(error).removeprefix(f"{order.name} was not started: ")
            words = f"{order.name} was not started on {socket.gethostname()}: {words}"
            self._teller.take_line(order.name, words)
            self._teller.take_end(order.name, NOT_STARTED)

    def _close_work(self) -> None:
        self._tasks = None
        self._work.close()


def add_place(order: TaskOrder, rank: int, sharing: int) -> TaskOrder:
    """Return a program's order with its number on this machine, and its share of the cores."""
    if order.role != "program":
        return order
    own = {LOCAL_RANK_VARIABLE: str(rank), **share_cores(sharing)}
    return replace(order, environment={**own, **order.environment})


def _enter(folder: str) -> None:
    if not os.path.isdir(folder):
        raise InputError(
            f"{socket.gethostname()} has no folder {folder}. Put the program in the same folder "
            "on every machine, on a shared disk for example."
        )
    os.chdir(folder)


def describe_own_folder(order: TaskOrder) -> str:
    """Return a warning if the checkpoint folder here isn't the launcher's, else ""."""
    folder = order.environment.get(CHECKPOINT_VARIABLE)
    if folder is None or Path(folder, name_mark(order.environment[RUN_VARIABLE])).exists():
        return ""
    return (
        f"WARNING: the checkpoint folder {folder} on {socket.gethostname()} isn't the one where "
        "this run was started, and nothing is copied there. Name a folder on a shared disk."
    )


def _end_with_starter() -> None:
    """End this process at once when its parent has died, and so closed the pipe."""
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
        connection = make_connection(end, "the launcher")
        introduce(connection, lambda salt: bytes.fromhex(call.key))
        about = {"rank": rank, "host": socket.gethostname(), "cores": list_cores()}
        connection.send(about)
    except RunError as error:
        who = "the launcher " if isinstance(error, ChannelLost) else ""
        print(f"agent {rank}: {who}{error}", file=sys.stderr)
        sys.exit(STATUS_LOST)
    sys.exit(Agent(connection, connection.own_address, rank).serve())
