"""Launcher: what starts the tasks of a job, wherever they run.

A supervisor gives a launcher plain data: an order for each task, and one pickled function for
those that call one. The launcher gives back what the tasks say: lines, events, one result each,
an end. Restarts, failures, grace and causes are the supervisor's. `local_launcher` starts
processes on this machine. Others ask Ray, Spark, Slurm or several machines. To write one:

1. `find_addresses` comes first: "host:port" for each task, at which TensorFlow's servers
   can listen and reach each other. TF_CONFIG is made of them, and a port may be lost
   until the task binds it (all then start again, with other addresses).
2. `start` gets all orders of one attempt at once, as a barrier stage or `srun` wants them.
   Wherever a task then runs, it puts the order's `environment` into `os.environ`, sends on
   what it writes to stdout and stderr as lines and what it reports (`utils.events.report`,
   which writes to the descriptor that EVENTS_VARIABLE names) as events, and calls
   `task.perform(order, function)`. That returns the exit status and the result, pickled;
   the task then stays until `release` or `end`, as one that leaves early fails its peers.
   A program (role "program") is simpler: it has its command and its environment, its lines
   are sent on, and it has an end and no result.
3. The listener hears of each task, from any thread, in this order: its lines and
   events as they come; the result, once, after everything written before it; the
   end, once, after everything else. A task that dies has an end and no result.
4. Nothing may be left when `LaunchedTasks.end` or `close` returns, nor when the process
   that holds the launcher is killed.

Launchers need no descriptors, process numbers or signals: `act` takes words, and must support only
"kill". Every launcher passes tests/library/test_launchers.py.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from ..errors import RunError
from ..events import Event
from .grace import Notice

Stop = Callable[[], int]  # the number of the signal that asks to stop, 0 for none
RESTART_VARIABLE = "DISTLAB_RESTART"  # how often a task has started again
KILL_SECONDS = 60.0  # a killed task needs a processor to end


def await_end(task: str, ended: threading.Event, seconds: float) -> None:
    """Return once a task that is to start again has ended; RunError if it doesn't."""
    if not ended.wait(seconds):
        raise RunError(f"{task} can't restart: it hasn't ended after {seconds:g} s.")


class Stopped(Exception):
    """Raised when a launcher must stop while it waits for places."""


@dataclass(frozen=True)
class TaskOrder:
    """One task to start: its name, its work, and its environment, TF_CONFIG included.

    `role` "call" calls the function, "serve" waits as a server of a parameter-server
    cluster, and "program" runs `command`. `replicas` is the number of logical devices that
    the CPU of a caller is split into. `address` is the task's own one of TF_CONFIG. `tf_config`
    is what a rendezvous sends to another machine, also if the task itself doesn't get it.
    """

    name: str
    role: str
    replicas: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    address: str = ""
    command: Sequence[str] = ()
    tf_config: str = ""

    def again(self) -> "TaskOrder":
        """Return the order that starts the same task once more."""
        if RESTART_VARIABLE not in self.environment:
            return self
        restart = str(int(self.environment[RESTART_VARIABLE]) + 1)
        return replace(self, environment={**self.environment, RESTART_VARIABLE: restart})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class TaskListener(Protocol):
    """Receives what tasks report; `task` is the name of an order. Called from any thread."""

    def take_line(self, task: str, line: str) -> None:
        """A line that the task wrote to stdout or stderr, without its end."""

    def take_event(self, task: str, event: Event) -> None:
        """An event that it reported."""

    def take_result(self, task: str, body: bytes) -> None:
        """The result, as `task.perform` pickled it."""

    def take_end(self, task: str, status: int, why: str = "") -> None:
        """It has ended: its exit status, or minus the number of the signal that ended it.

        `why` says what the status doesn't: the machine is lost, and how.
        """


class LaunchedTasks(Protocol):
    """The tasks of one `Launcher.start`."""

    def act(self, task: str, action: str) -> None:
        """Do to a task what the launcher's `actions` name; nothing if it has ended.

        "kill" ends it at once with whatever it started, "terminate" and "interrupt" ask it
        to end, "pause" freezes it and "resume" continues it.
        """

    def ask_to_end(self, tasks: Sequence[str], notice: Notice) -> None:
        """Ask programs to end, wherever they run, and kill each when its time is over.

        Returns at once. A task that has ended is left alone.
        """

    def start_again(self, task: str) -> None:
        """Start a task again at its address, once it has ended; RunError where that can't be."""

    def find_process(self, task: str) -> int | None:
        """Return a task's process number where it runs on this machine, else None.

        With it, its port and its traffic can be looked at; nothing depends on it.
        """

    def find_host(self, task: str) -> str:
        """Return the name of the machine that a task runs on."""

    def listens(self, task: str) -> bool:
        """Return whether a task, or what it has started, listens at the address of its order."""

    def find_idle_seconds(self, task: str) -> float:
        """Return for how long a task has written nothing and used next to no processor time."""

    def release(self) -> None:
        """Let the tasks that have given their result leave."""

    def end(self) -> None:
        """Release all, give them a moment, kill who is left, and wait until all have ended."""


class Launcher(Protocol):
    """Starts tasks. `description` says how, in words; `actions` is what can be done to a task.

    `close` ends everything, and may be called twice.
    """

    description: str
    actions: frozenset[str]

    @property
    def alive(self) -> bool:
        """True while it can start tasks."""

    def find_addresses(self, count: int, stop: Stop = lambda: 0) -> list[str]:
        """Return "host:port" for `count` tasks, free at this moment: orders come in this order.

        A launcher that may start fewer workers returns fewer. Raises Stopped if `stop()`
        isn't 0 while it waits.
        """

    def start(
        self, orders: Sequence[TaskOrder], function: bytes, listener: TaskListener
    ) -> LaunchedTasks:
        """Start one task for each order.

        Raises RunError, naming the task, if one can't be started; none is left then.
        """

    def close(self) -> None: ...
