"""`run_on_engine`: a program's tasks, each started by an agent that an engine keeps there."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..cluster.launcher import TaskOrder
from ..cluster.streams import Streams
from ..environment import memory_variables
from ..errors import InputError
from ..gpus import VISIBLE
from ..processes.connection import answers
from ..tf_config import TaskConfig, deal_addresses
from .attempt import Attempt
from .engine_launcher import EngineLauncher, make_launcher
from .hub import AgentLine
from .local import Interrupted, Run
from .settings import (
    CHECKPOINT_VARIABLE,
    RESTART_VARIABLE,
    RunReport,
    RunSettings,
    check_command,
)
from .signals import Signals
from .task_output import TaskOutput
from .task_process import Print, RunningTask, TaskPlan

PROBE_SECONDS = 0.3


def run_on_engine(
    command: Sequence[str],
    settings: RunSettings,
    engine: str,
    address: str | None = None,
    show: Print = lambda task, line: print(f"[{task}] {line}", flush=True),
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> RunReport:
    """Run `command` as `run_program` does, its tasks started by `engine` (see `make_launcher`).

    The engine's processes get what is named in the settings and TF_CONFIG beside their own
    environment, and this folder, which must be there on every machine. After a failure the
    engine starts them again, as often as `settings.max_restarts` allows.
    """
    if settings.workers_text != str(settings.workers):
        raise InputError(f"workers {settings.workers_text}: fewer and more need a rendezvous")
    gpus = settings.gpus if isinstance(settings.gpus, int) else 0
    if gpus and settings.ps:
        raise InputError(f"gpus {gpus}: an engine gives them to servers, too; leave --gpus out")
    with contextlib.closing(make_launcher(engine, address, say, gpus=gpus)) as launcher:
        return EngineRun(check_command(command), settings, launcher, show, say).run()


class EngineRun(Run):
    """A run whose tasks an engine starts."""

    def __init__(
        self, command: list[str], settings: RunSettings, launcher: EngineLauncher, show: Print,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(command, settings, show, say)
        self._launcher, self._lines = launcher, dict[str, AgentLine]()

    def _plan_tasks(self, signals: Signals) -> list[TaskPlan]:
        """Wait for the engine to have all tasks there; a signal ends the waiting."""

        def check() -> None:
            if signals.number:
                raise Interrupted

        ps, chief = self.settings.ps, int(bool(self.settings.ps))
        found = self._launcher.find_addresses(chief + self.workers + ps, check)
        self._lines = dict(zip(found, self._launcher.lines))
        cluster = deal_addresses(found, chief, self.workers)
        return [self._plan_task(cluster, job, index) for job, index in cluster.tasks]

    def _make_environment(self, config: TaskConfig) -> dict[str, str]:
        """Return what a task gets beside what its engine gives it, GPUs for one."""
        environment = {
            **memory_variables(), "TF_CONFIG": config.to_json(),
            RESTART_VARIABLE: str(self.restarts), **self.settings.variables,
        }  # fmt: skip
        if self.settings.checkpoint_dir is not None:
            environment[CHECKPOINT_VARIABLE] = os.path.abspath(self.settings.checkpoint_dir)
        if self.settings.gpus == "none":
            environment[VISIBLE] = ""
        return environment

    def _start_task(
        self, plan: TaskPlan, streams: Streams, show: Print, on_end: Callable[[RunningTask], None]
    ) -> RunningTask:
        line = self._lines[plan.config.address]
        if line.gone:  # a worker of a parameter-server cluster that is started again alone
            line = self._launcher.gather(line.rank + 1)[line.rank]
            self._lines[plan.config.address] = line
        return EngineTask(plan, line, show, on_end)

    def _end(self, attempt: Attempt, succeeded: bool, signals: Signals) -> None:
        super()._end(attempt, succeeded, signals)
        if not succeeded:
            self._launcher.hub.dismiss(list(self._lines.values()))


class EngineTask(RunningTask):
    """A program that runs where an agent is, told of by the hub's thread."""

    def __init__(
        self, plan: TaskPlan, line: AgentLine, show: Print, on_end: Callable[[RunningTask], None]
    ) -> None:
        self.plan, self.status, self.ended_at = plan, None, 0.0
        self._on_end, self._line = on_end, line
        self._ended = threading.Event()
        self._output = TaskOutput(plan.name, plan.log, show)
        self.tail = self._output.tail
        order = TaskOrder(plan.name, "call", 1, dict(plan.environment))
        line.start(order, os.getcwd(), self, command=list(plan.command))

    def take_line(self, line: str) -> None:
        self._output.take(line)

    def take_event(self, event: dict[str, Any]) -> None:
        """A program has nobody to report events to."""

    def take_result(self, body: bytes) -> None:
        """A program has none."""

    def take_end(self, status: int) -> None:
        self.status, self.ended_at = status, time.monotonic()
        self._output.close()
        self._on_end(self)
        self._ended.set()

    @property
    def host(self) -> str:
        return self._line.host

    @property
    def listens(self) -> bool:
        return answers(self.plan.config.address, PROBE_SECONDS)

    def send(self, number: int) -> None:
        if self.lives:
            self._line.send("act", action=signal.Signals(number).name)

    def join(self, seconds: float) -> None:
        self._ended.wait(seconds)
