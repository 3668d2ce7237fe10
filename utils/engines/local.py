"""`run_program`: the tasks of a cluster on this machine, started again while that is allowed."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence

from ..cluster.failures import ACCIDENT_RETRIES, OUT_OF_MEMORY, is_accident
from ..cluster.streams import Streams
from ..errors import InputError, shorten
from ..processes.keeper import keep_marked
from ..tf_config import (
    ClusterSpec,
    Diagnosis,
    TaskConfig,
    build_cluster,
    build_tf_config,
    diagnose_cluster,
    parse_tf_config,
    pick_free_ports,
)
from .attempt import FAILURE_GRACE_SECONDS, Attempt
from .settings import RunReport, RunSettings, TaskReport, check_command, make_logs_folder
from .signals import Signals, kill_all
from .task_process import Print, RunningTask, TaskPlan, TaskProcess

TRACEBACK = "Traceback (most recent call last)"
SYNTAX = re.compile(r'  File ".*", line \d+')  # how Python begins where a file has a mistake
MAX_LAST_LINE = 200  # letters
MAX_TRACEBACK = 20_000  # letters, the last ones


def run_program(
    command: Sequence[str],
    settings: RunSettings,
    show: Print = lambda task, line: print(f"[{task}] {line}", flush=True),
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> RunReport:
    """Run `command` once for each task of a cluster on this machine, and report how it ended.

    Each task finds its TF_CONFIG in its environment, with ports that were free a moment
    ago (where one was lost, all start again). `show(task, line)` gets what they write, from
    a thread; `say(text)` what the launcher has to say. SIGINT and SIGTERM go to
    every task, which then has `grace_seconds`; a second one ends them at once. Call it in
    the main thread, or signals are not passed on. Raises InputError for settings that
    cannot be, RunError if a task cannot be started. No process is left when it returns.
    """
    if settings.workers_text != str(settings.workers):
        raise InputError(f"workers {settings.workers_text}: fewer and more need a rendezvous")
    return Run(check_command(command), settings, show, say).run()


class Interrupted(Exception):
    """A signal has come while tasks were being prepared."""


class Run:
    """One run: the attempts it takes, and what became of them. All tasks are on this machine."""

    def __init__(
        self, command: list[str], settings: RunSettings, show: Print, say: Callable[[str], None]
    ) -> None:
        self.command, self.settings, self._show, self._say = command, settings, show, say
        self.workers, self._gpus = settings.workers, list[list[str] | None]()
        now = time.strftime("%Y%m%d-%H%M%S")
        self.logs = make_logs_folder(settings.logs, f"{now}-{os.getpid()}")
        self.restarts, self._accidents = 0, 0
        self.signals = Signals()
        self.attempt: Attempt | None = None
        self.starts = 0
        self._begun = time.monotonic()

    def run(self) -> RunReport:
        with keep_marked() as self._mark, self.signals as signals:
            while (report := self._try_once(signals)) is None:
                pass
            return report

    def _try_once(self, signals: Signals) -> RunReport | None:
        """Start all tasks once; return the report, None where they are to start again."""
        try:
            plans = self._plan_tasks(signals)
        except Interrupted:
            return self._report(None, 128 + signals.number)
        left = self.settings.max_restarts - self.restarts
        attempt = Attempt(plans, self._show, self._say, left, self._start_task)
        self.starts, self.attempt, succeeded = self.starts + 1, attempt, False
        try:
            succeeded = attempt.wait(lambda: signals.number)
        finally:
            self._end(attempt, succeeded, signals)
        self.restarts += attempt.replaced
        if succeeded or signals.number:
            return self._report(attempt, status=128 + signals.number if signals.number else 0)
        return self._handle_failure(attempt)

    def _end(self, attempt: Attempt, succeeded: bool, signals: Signals) -> None:
        if signals.number:
            name = signal.Signals(signals.number).name
            grace = self.settings.grace_seconds
            self._say(f"{name}: passed on to every task, which has {grace:g} s to end")
            with signals.insist(lambda: kill_all(attempt.tasks.values())):
                attempt.end(grace, signals.number)
        else:
            attempt.end(0.2 if succeeded else FAILURE_GRACE_SECONDS)

    def _handle_failure(self, attempt: Attempt) -> RunReport | None:
        failed = attempt.first_failed
        found = self._diagnose(attempt)
        if self._is_accident(attempt, found) and self._accidents < ACCIDENT_RETRIES:
            self._accidents += 1
            self._say("an accident that is nobody's fault, such as a lost port: all start again")
            return None
        if self.restarts < self.settings.max_restarts:
            self.restarts += 1
            count = f"restart {self.restarts} of {self.settings.max_restarts}"
            self._say(f"{failed.plan.name} {failed.describe_end()}; all tasks start again, {count}")
            return None
        return self._report(attempt, failed.shell_status, self._describe_cause(attempt, found))

    def _is_accident(self, attempt: Attempt, found: Diagnosis | None) -> bool:
        if found is not None and found.name == "taken-port":
            return True
        tasks = attempt.tasks.values()
        chief = attempt.tasks.get("chief 0")
        return is_accident((line for task in tasks for line in task.tail), chief and chief.status)

    def _plan_tasks(self, signals: Signals) -> list[TaskPlan]:
        """Return the plan of every task of the next attempt; raises Interrupted."""
        ps = self.settings.ps
        self._gpus = self.settings.divide_gpus(self.workers)
        ports = pick_free_ports(self.workers + ps + bool(ps))
        cluster = build_cluster(self.workers, ps, chief=bool(ps), ports=ports)
        return [self._plan_task(cluster, job, index) for job, index in cluster.tasks]

    def _plan_task(self, cluster: ClusterSpec, job: str, index: int) -> TaskPlan:
        config = parse_tf_config(build_tf_config(cluster, job, index))
        log = self.logs / f"{job}-{index}.log"
        return TaskPlan(config, self.command, self._make_environment(config), log)

    def _make_environment(self, config: TaskConfig) -> dict[str, str]:
        gpus = self._gpus[config.index] if config.job == "worker" else self._gpus[0] and []
        return self.settings.make_environment(config, self._mark.value, self.restarts, gpus)

    def _start_task(
        self, plan: TaskPlan, streams: Streams, show: Print, on_end: Callable[[RunningTask], None]
    ) -> RunningTask:
        return TaskProcess(plan, streams, show, on_end)

    def _diagnose(self, attempt: Attempt) -> Diagnosis | None:
        """Return what is known of the failure: from the first failed task, else from all logs."""
        failed = attempt.first_failed
        tasks = [failed, *(t for t in attempt.tasks.values() if t is not failed)]
        logs = {task.plan.name: "\n".join(task.tail) for task in tasks}
        return diagnose_cluster(logs)

    def _describe_cause(self, attempt: Attempt, found: Diagnosis | None) -> str:
        failed = attempt.first_failed
        words = f"{failed.plan.name} on {failed.host} {failed.describe_end()}"
        error = find_traceback(failed.tail).rpartition("\n")[2].strip()
        words += f": {error}" if error else ""
        if found is not None:
            return f"{words}; {found.cause}; {found.cure}"
        if failed.status == -signal.SIGKILL:
            return words + OUT_OF_MEMORY
        last = next((line.strip() for line in reversed(failed.tail) if line.strip()), "")
        said = f"; it printed last: {shorten(last, MAX_LAST_LINE)}" * bool(last)
        return words if error else f"{words}{said}; see {failed.plan.log}"

    def _report(self, attempt: Attempt | None, status: int, cause: str | None = None) -> RunReport:
        tasks = [
            TaskReport(task.plan.name, task.host, task.shell_status, str(task.plan.log))
            for task in (attempt.tasks.values() if attempt else ())
        ]
        failed = attempt.first_failed if attempt else None
        return RunReport(
            self.workers, self.restarts, time.monotonic() - self._begun, tasks, cause,
            status, find_traceback(failed.tail)[-MAX_TRACEBACK:] if cause and failed else "",
        )  # fmt: skip


def find_traceback(lines: Sequence[str]) -> str:
    """Return the last traceback that Python printed, from its first line to its error's.

    Of a file that is no Python, it prints that error with the place alone.
    """
    lines = list(lines)
    begins = [i for i, line in enumerate(lines) if TRACEBACK in line]
    begins = begins or [i for i, line in enumerate(lines) if SYNTAX.fullmatch(line)]
    if not begins:
        return ""
    end = begins[-1] + 1
    while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
        end += 1
    return "\n".join(lines[begins[-1] : end + 1]).rstrip()
