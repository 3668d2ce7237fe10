"""`run_program`: any program as the tasks of a cluster, supervised, with logs and a report.

A `ProgramRun` is the same on every launcher: this machine's (`ProgramLauncher`), an engine's
(`engine_launcher`), or the one for several machines (`rendezvous`).
"""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..cluster.failures import ClusterError
from ..cluster.group import Task
from ..cluster.launcher import Launcher, TaskListener, TaskOrder
from ..cluster.local_launcher import ColdLauncher
from ..cluster.local_tasks import LocalTasks
from ..cluster.signals import Signals
from ..cluster.supervisor import Supervisor
from ..environment import count_cores
from ..errors import InputError, advise
from ..files import make_folder
from ..gpus import check_gpus_are_free, gpu_variables
from ..tf_config import TaskConfig, deal_addresses
from .run_record import Print, RunRecord, Say
from .settings import (
    CODE_VARIABLE,
    IDLE_STATUS,
    RunReport,
    RunSettings,
    TaskReport,
    check_command,
    make_logs_folder,
)

MAX_TRACEBACK = 20_000  # letters, the last ones
LOCAL_RANK_VARIABLE = "DISTLAB_LOCAL_RANK"  # among the tasks of a machine
THREAD_VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")


def show_line(task: str, line: str) -> None:
    print(f"[{task}] {line}", flush=True)


def say_word(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run_program(
    command: Sequence[str], settings: RunSettings, show: Print = show_line, say: Say = say_word
) -> RunReport:
    """Run `command` once for each task of a cluster on this machine, and report how it ended.

    Each task finds its TF_CONFIG in its environment, with ports that were free a moment
    ago (where one was lost, all start again). `show(task, line)` gets what they write, from
    a thread; `say(text)` what the launcher has to say. SIGINT and SIGTERM go to
    every task, which then has `grace_seconds`; SIGHUP and SIGQUIT become SIGTERM. A second
    signal ends them at once. Call it in
    the main thread, or signals aren't passed on. Raises InputError for settings that
    can't be, RunError if a task can't be started. No process is left when it returns.
    """
    refuse_range(settings)
    with contextlib.closing(ProgramLauncher(settings)) as launcher:
        return ProgramRun(command, settings, launcher, show, say).run()


def refuse_range(settings: RunSettings) -> None:
    """Raise InputError for settings that let the number of workers change."""
    if settings.min_workers not in (None, settings.workers):
        raise InputError(
            f"workers must be one number without a rendezvous, got {settings.workers_text}. "
            f"Try {settings.workers}, or add --rendezvous HOST:PORT."
        )


class ProgramLauncher(ColdLauncher):
    """Starts programs here. This machine's GPUs are divided among the workers of a start."""

    def __init__(self, settings: RunSettings) -> None:
        super().__init__()
        self._settings, self._is_first, self.ports = settings, True, settings.ports
        self.variables: dict[str, str] = {}  # for programs that don't have them already

    def make_environment(self) -> dict[str, str]:
        """The code of a rendezvous isn't passed on."""
        kept = {**self.variables, **super().make_environment()}
        kept.pop(CODE_VARIABLE, None)
        return kept

    def start(
        self, orders: Sequence[TaskOrder], function: bytes, listener: TaskListener
    ) -> LocalTasks:
        """Start one task for each order; raises InputError where there are too few GPUs.

        It also does at the first start, if another user has filled one.
        """
        workers = [order.name for order in orders if order.name.startswith("worker")]
        parts = dict(zip(workers, self._settings.divide_gpus(len(workers) or 1)))
        has_gpus, threads = any(parts.values()), share_cores(len(orders))
        if self._is_first and has_gpus:
            check_gpus_are_free([gpu for part in parts.values() for gpu in part], "--gpus none")
        self._is_first = False
        given = []
        for rank, order in enumerate(orders):
            gpus = gpu_variables(parts.get(order.name, [])) if has_gpus else {}
            own = {LOCAL_RANK_VARIABLE: str(rank), **threads}
            given.append(replace(order, environment={**own, **order.environment, **gpus}))
        return super().start(given, function, listener)


def share_cores(tasks: int) -> dict[str, str]:
    """Return the variables that give each of some tasks its share of this machine's cores.

    Those that the user has set stay. The threads between operations are left alone: workers wait
    for each other in them, and with one they would wait forever.
    """
    share = str(max(1, count_cores() // tasks)) if tasks > 1 else ""
    return {name: share for name in THREAD_VARIABLES if share and name not in os.environ}


class ProgramRun:
    """One run of a program: the supervisor that keeps it going, and what became of it."""

    def __init__(
        self,
        command: Sequence[str],
        settings: RunSettings,
        launcher: Launcher,
        show: Print,
        say: Say,
    ) -> None:
        self.command, self.settings, self.launcher = check_command(command), settings, launcher
        self.workers, self.signals = settings.workers, Signals()
        if settings.checkpoint_dir is not None:
            make_folder("checkpoint-dir", Path(settings.checkpoint_dir))
        self.logs = make_logs_folder(settings.logs, settings.run_id)
        self.record = RunRecord(self.logs, show, say)
        about = {"id": settings.run_id, "program": " ".join(self.command)}
        self.record.note("run", **about, workers=self.workers, host=socket.gethostname())
        self.supervisor = Supervisor(
            self._make_tasks,
            launcher,
            self.record,
            restarts=settings.max_restarts,
            grace_seconds=settings.grace_seconds,
            idle_seconds=settings.idle_timeout_seconds,
            stopped_by=lambda: self.signals.wish,
        )
        self._begun = time.monotonic()

    def run(self) -> RunReport:
        """Run it to its end. Raises RunError if a task can't be started."""
        with self.signals, contextlib.closing(self.record):
            self.supervisor.run()
            report = self._report()
            if error := self.supervisor.error:
                task = error.task if isinstance(error, ClusterError) else None
                self.record.note("cause", task=task, cause=report.cause or str(error))
            report = replace(report, goodput=self.record.measure_goodput())
            told = {"status": report.status, "restarts": report.restarts}
            told |= {"seconds": round(report.seconds, 3), "goodput": report.goodput}
            self.record.note("finish", **told)
        return report

    def _make_tasks(self, supervisor: Supervisor) -> list[Task]:
        ps, chief = self.settings.ps, int(bool(self.settings.ps))
        wanted = chief + self.settings.workers + ps
        found = self.launcher.find_addresses(wanted, supervisor.stopped_by)
        self.workers = len(found) - chief - ps
        cluster = deal_addresses(found, chief, self.workers)
        configs = [TaskConfig(cluster, job, index) for job, index in cluster.tasks]
        return [self._make_task(config, supervisor.restarts) for config in configs]

    def _make_task(self, config: TaskConfig, restart: int) -> Task:
        order = self.settings.make_order(config, self.command, restart)
        awaited = config.job == "chief" or not self.settings.ps
        own = self.settings.max_restarts if self.settings.independent else None
        # a coordinator does without a worker meanwhile
        alone = config.job == "worker" and (not awaited or own is not None)
        task = Task(order, config.job, config.index, awaited, alone, own)
        task.log = self._open_log(task, self.supervisor.attempt + 1)
        return task

    def _open_log(self, task: Task, attempt: int) -> str:
        """Return where the task's log will be; it is written if it is here."""
        return str(self.record.open_log(task.name, attempt))

    def _report(self) -> RunReport:
        group, error, seconds = self.supervisor.group, self.supervisor.error, self._seconds
        tasks = [
            TaskReport(task.name, task.host, to_shell_status(task.status), task.log)
            for task in (group.tasks if group else ())
        ]
        failed = len(group.failed) if group and self.settings.independent else None
        report = RunReport(self.workers, self.supervisor.restarts, seconds, tasks, failed=failed)
        report = replace(report, logs=str(self.logs))
        if self.signals.number:
            return replace(report, status=128 + self.signals.number)
        if not isinstance(error, ClusterError):
            return report
        cause = advise(f"{error.task} {error.cause}", error.cure)
        first, told = group.first_failed, error.details[-MAX_TRACEBACK:]
        status = IDLE_STATUS if first.idle_seconds else to_shell_status(first.status)
        return replace(report, status=status, cause=cause, traceback=told)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._begun


def to_shell_status(status: int | None) -> int | None:
    """Return a status as a shell has it: 128 + the signal's number where one ended the process."""
    return 128 - status if status is not None and status < 0 else status
