"""A launcher that has its tasks started by Ray, Spark or Slurm.

The engine starts an agent for each task and, when one dies, starts it again in its own way: Ray
the actor, Spark the whole stage, Slurm the whole job. Ranks, ports, TF_CONFIG, lines, results
and ends are the same with each, as with tasks of this machine.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..checks import check_number
from ..cluster.grace import Notice
from ..cluster.launcher import KILL_SECONDS, Stop, Stopped, TaskListener, TaskOrder, await_end
from ..cluster.local_tasks import ACTIONS
from ..errors import InputError, RunError
from ..processes.connection import answers
from .catalog import Engine, check_gpus, find_engine, find_own_host
from .driver import Driver
from .hub import AgentLine, Hub
from .options import read_options
from .programs import Print, ProgramRun, Say, refuse_range, say_word, show_line
from .settings import RunReport, RunSettings, name_mark

START_SECONDS = 600.0  # a queue may be long; a line says so every few seconds
ADDRESS_SECONDS, LEAVE_SECONDS, END_SECONDS = 30.0, 0.5, 15.0
PROBE_SECONDS = 0.3


def run_on_engine(
    command: Sequence[str],
    settings: RunSettings,
    engine: str,
    address: str | None = None,
    show: Print = show_line,
    say: Say = say_word,
    options: str = "",
    start_seconds: float = START_SECONDS,
) -> RunReport:
    """Run `command` as `run_program` does, its tasks started by `engine` (see `make_launcher`).

    The engine's processes get TF_CONFIG and the settings' variables in addition to their own
    environment, and this folder, which must be there on every machine. After a failure the engine
    starts them again, up to `settings.max_restarts` times. `options` are further words for
    the engine (`options.EXAMPLES`). Raises RunError if it hasn't started all tasks after
    `start_seconds`.
    """
    refuse_range(settings)
    gpus = settings.gpus if isinstance(settings.gpus, int) else 0
    if gpus and settings.ps:
        raise InputError(
            f"gpus must be left out for a run with parameter servers on an engine, got {gpus}: "
            "the engine would give GPUs to the servers, too."
        )
    wanted = {"gpus": gpus, "apart": settings.independent, "options": options}
    with contextlib.closing(
        make_launcher(engine, address, say, start_seconds, **wanted)
    ) as launcher:
        launcher.ports = settings.port_range
        run = ProgramRun(command, settings, launcher, show, say)
        with marking(settings):
            return run.run()


@contextlib.contextmanager
def marking(settings: RunSettings) -> Iterator[None]:
    """Keep a file in the checkpoint folder that tells agents that it's this one."""
    if settings.checkpoint_dir is None:
        yield
        return
    mark = Path(settings.checkpoint_dir, name_mark(settings.run_id))
    mark.touch()
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def make_launcher(
    engine: str,
    address: str | None = None,
    say: Callable[[str], None] | None = None,
    start_seconds: float = START_SECONDS,
    gpus: int = 0,
    apart: bool = False,
    options: str = "",
) -> "EngineLauncher":
    """Return a launcher that has `engine` ("ray", "spark" or "slurm") start its tasks.

    It joins the cluster at `address` (Ray's host:port, Spark's master, Slurm's partition). Without
    one it starts a cluster of two nodes on this machine, and takes it down when it is closed or
    this process ends, in whatever way. `gpus` is the number that the engine should give each task.
    With `apart`, the engine restarts a lost agent without the others. `options` are further words
    for it. Raises InputError, in one line, if something is missing here.
    """
    check_gpus(engine, address, gpus)
    check_number("join-timeout", start_seconds, above=0)
    found = find_engine(engine, address)
    words = read_options(engine, options, address is None) if options else []
    asked = {"gpus": gpus, "apart": apart, "options": words}
    return EngineLauncher(found, address, say or say_word, start_seconds, asked)


class EngineLauncher:
    """See `make_launcher`. The engine is first called when addresses are needed."""

    actions = ACTIONS

    def __init__(
        self,
        engine: Engine,
        address: str | None,
        say: Callable[[str], None],
        start_seconds: float,
        asked: Mapping[str, Any],
    ) -> None:
        """`asked` is what `Wanted` has besides."""
        self.engine, self.address, self._say = engine, address, say
        self.description = f"started by {self.engine.title}"
        self._start_seconds, self._asked = start_seconds, asked
        self.ports: tuple[int, int] | None = None  # of tasks, both ends included
        self.hub = Hub(find_own_host(self.engine, address))
        self._driver: Driver | None = None
        self.lines: list[AgentLine] = []  # of the tasks whose addresses were found last
        self._closed = False
        if not self.hub.call.address.startswith(("127.", "[::1]")):
            say(
                "While the run lasts, TensorFlow's own ports are open to everyone in the network, "
                "without a password. Use a network that you trust."
            )

    @property
    def alive(self) -> bool:
        return not self._closed and (self._driver is None or self._driver.alive)

    def find_addresses(self, count: int, stop: Stop = lambda: 0) -> list[str]:
        """Return "host:port" of `count` tasks; waits until the engine has started them all."""
        while True:
            self.lines = self.gather(count, stop)
            found = [line.find_address(ADDRESS_SECONDS, self.ports) for line in self.lines]
            if all(found):
                return found
            self.hub.dismiss()  # one died a moment ago, or doesn't answer

    def gather(self, count: int, stop: Stop = lambda: 0) -> list[AgentLine]:
        """Return the agents of `count` tasks, in the order of their ranks."""
        if self._closed:
            raise RunError(f"The launcher of tasks {self.description} is closed. Make a new one.")
        if self._driver is not None and self._driver.count < count:
            self._driver.close()
            self._driver = None
        if self._driver is None:
            wanted = self.engine.module, count, self.address, self.hub.call
            self._driver = Driver(*wanted, **self._asked)
        return self.hub.gather(count, self._start_seconds, self._say, lambda: self._check(stop))

    def _check(self, stop: Stop) -> None:
        """Raise what ends the waiting for agents."""
        if stop():
            raise Stopped
        try:
            self._driver.check()
        except RunError as error:
            raise RunError(f"Engine {self.engine.name}: {error}") from None

    def start(
        self, orders: Sequence[TaskOrder], function: bytes, listener: TaskListener
    ) -> "EngineTasks":
        if len(self.lines) != len(orders):
            self.lines = self.gather(len(orders))
        return EngineTasks(self, self.lines, orders, function, listener)

    def close(self) -> None:
        """End every task, and the cluster if it was started here; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self.hub.close()
        if self._driver is not None:
            self._driver.close()


class EngineTasks:
    """The tasks of one start. Once one has failed, `end` has the engine start its agents anew."""

    def __init__(
        self,
        launcher: EngineLauncher,
        lines: list[AgentLine],
        orders: Sequence[TaskOrder],
        function: bytes,
        listener: TaskListener,
    ) -> None:
        self._launcher, self._function, self._listener = launcher, function, listener
        self._orders = {order.name: order for order in orders}
        self._lines = dict(zip(self._orders, lines))
        self._ended = False
        for name in self._orders:
            self._start(name)

    def _start(self, name: str) -> None:
        line = self._lines[name]
        here = [other for other in self._lines.values() if other.host == line.host]
        own = here.index(line), sum(other.cores == line.cores for other in here)
        line.start(self._orders[name], os.getcwd(), self._listener, self._function, own)

    def start_again(self, task: str) -> None:
        line = self._lines[task]
        await_end(task, line.ended, KILL_SECONDS)
        if line.gone:
            self._lines[task] = self._launcher.gather(line.rank + 1)[line.rank]
        self._orders[task] = self._orders[task].again()
        self._start(task)

    def act(self, task: str, action: str) -> None:
        if not self._lines[task].ended.is_set():
            self._lines[task].send("act", action=action)

    def ask_to_end(self, tasks: Sequence[str], notice: Notice) -> None:
        for task in tasks:
            if not self._lines[task].ended.is_set():
                self._lines[task].send("ask", notice=asdict(notice))

    def find_process(self, task: str) -> int | None:
        return None

    def find_host(self, task: str) -> str:
        return self._lines[task].host

    def listens(self, task: str) -> bool:
        return answers(self._orders[task].address, PROBE_SECONDS)

    def find_idle_seconds(self, task: str) -> float:
        self._lines[task].send("idle")  # its answer counts the next time
        return self._lines[task].idle_seconds

    def release(self) -> None:
        for name in self._orders:
            self._lines[name].send("release")

    def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        failed = any(line.status for line in self._lines.values())
        self.release()
        self._wait(LEAVE_SECONDS, while_=lambda: all(self._lines[n].arrived for n in self.left))
        for name in self.left:
            self._lines[name].send("end")
        self._wait(END_SECONDS)
        silent = [self._lines[name] for name in self.left]
        if failed or silent:
            self._launcher.hub.dismiss()
        for name in list(self.left):
            self._lines[name].ended.wait(5)

    def _wait(self, seconds: float, while_: Callable[[], bool] = lambda: True) -> None:
        deadline = time.monotonic() + seconds
        while self.left and while_() and time.monotonic() < deadline:
            time.sleep(0.01)

    @property
    def left(self) -> list[str]:
        """The tasks that haven't ended."""
        return [name for name, line in self._lines.items() if not line.ended.is_set()]
