"""`run_program`: the tasks of a cluster on this machine, started again while that is allowed."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from ..cluster.registry import MARK_VARIABLE, end_cluster, make_mark, remove_folder
from ..tf_config import (
    ClusterSpec,
    Diagnosis,
    build_cluster,
    build_tf_config,
    diagnose_cluster,
    parse_tf_config,
    pick_free_ports,
)
from .accelerators import VISIBLE, divide_gpus, list_gpus
from .attempt import FAILURE_GRACE_SECONDS, Attempt, describe_end
from .keeper import Keeper
from .settings import (
    CHECKPOINT_VARIABLE,
    RESTART_VARIABLE,
    RunReport,
    RunSettings,
    TaskReport,
    check_command,
    make_logs_folder,
)
from .task_process import Print, TaskPlan

LOST_PORTS = 3  # starts that are not counted, where another program took a port meanwhile
TRACEBACK = "Traceback (most recent call last)"


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
    return _Run(check_command(command), settings, show, say).run()


class _Run:
    """One run: the attempts it takes, and what became of them."""

    def __init__(
        self, command: list[str], settings: RunSettings, show: Print, say: Callable[[str], None]
    ) -> None:
        self.command, self.settings, self._show, self._say = command, settings, show, say
        self.gpus = divide_gpus(list_gpus() if settings.gpus == "auto" else [], settings.workers)
        now = time.strftime("%Y%m%d-%H%M%S")
        self.logs = make_logs_folder(settings.logs, f"{now}-{os.getpid()}")
        self.restarts = self._lost_ports = 0
        self._begun = time.monotonic()

    def run(self) -> RunReport:
        self._mark = make_mark()
        keeper = Keeper(self._mark.identity)
        try:
            with _Signals() as signals:
                while (report := self._try_once(signals)) is None:
                    pass
                return report
        finally:
            end_cluster(self._mark.identity)  # what tasks started and took out of their groups
            remove_folder(self._mark.folder)
            keeper.close()

    def _try_once(self, signals: "_Signals") -> RunReport | None:
        """Start all tasks once; return the report, None where they are to start again."""
        left = self.settings.restarts - self.restarts
        attempt = Attempt(self._plan_tasks(), self._show, self._say, left)
        succeeded = False
        try:
            succeeded = attempt.wait(lambda: signals.number)
        finally:
            self._end(attempt, succeeded, signals)
        self.restarts += attempt.replaced
        if succeeded or signals.number:
            return self._report(attempt, status=128 + signals.number if signals.number else 0)
        return self._handle_failure(attempt)

    def _end(self, attempt: Attempt, succeeded: bool, signals: "_Signals") -> None:
        if signals.number:
            name = signal.Signals(signals.number).name
            grace = self.settings.grace_seconds
            self._say(f"{name}: passed on to every task, which has {grace:g} s to end")
            with signals.insist_by_killing(attempt):
                attempt.end(grace, signals.number)
        else:
            attempt.end(0.2 if succeeded else FAILURE_GRACE_SECONDS)

    def _handle_failure(self, attempt: Attempt) -> RunReport | None:
        failed = attempt.first_failed
        found = self._diagnose(attempt)
        if found is not None and found.name == "taken-port" and self._lost_ports < LOST_PORTS:
            self._lost_ports += 1
            self._say("a port was taken by another program meanwhile: all start again")
            return None
        if self.restarts < self.settings.restarts:
            self.restarts += 1
            count = f"restart {self.restarts} of {self.settings.restarts}"
            self._say(f"{failed.plan.name} {describe_end(failed)}; all tasks start again, {count}")
            return None
        return self._report(attempt, failed.shell_status, self._describe_cause(attempt, found))

    def _plan_tasks(self) -> list[TaskPlan]:
        workers, ps = self.settings.workers, self.settings.ps
        ports = pick_free_ports(workers + ps + bool(ps))
        cluster = build_cluster(workers, ps, chief=bool(ps), ports=ports)
        return [self._plan_task(cluster, job, index) for job, index in cluster.tasks]

    def _plan_task(self, cluster: ClusterSpec, job: str, index: int) -> TaskPlan:
        config = parse_tf_config(build_tf_config(cluster, job, index))
        environment = {
            **os.environ, "TF_CONFIG": config.to_json(), MARK_VARIABLE: self._mark.value,
            RESTART_VARIABLE: str(self.restarts), "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        if self.settings.checkpoint_dir is not None:
            folder = os.path.abspath(self.settings.checkpoint_dir)
            environment[CHECKPOINT_VARIABLE] = folder
        if any(self.gpus) or self.settings.gpus == "none":
            environment[VISIBLE] = ",".join(self.gpus[index]) if job == "worker" else ""
        return TaskPlan(config, self.command, environment, self.logs / f"{job}-{index}.log")

    def _diagnose(self, attempt: Attempt) -> Diagnosis | None:
        """Return what is known of the failure: from the first failed task, else from all logs."""
        failed = attempt.first_failed
        tasks = [failed, *(t for t in attempt.tasks.values() if t is not failed)]
        logs = {task.plan.name: "\n".join(task.tail) for task in tasks}
        return diagnose_cluster(logs)

    def _describe_cause(self, attempt: Attempt, found: Diagnosis | None) -> str:
        failed = attempt.first_failed
        words = f"{failed.plan.name} on {socket.gethostname()} {describe_end(failed)}"
        error = find_traceback(failed.tail).rpartition("\n")[2].strip()
        words += f": {error}" if error else ""
        if found is not None:
            return f"{words}; {found.cause}; {found.cure}"
        if failed.status == -signal.SIGKILL:
            return f"{words}; if nobody killed it, memory may have run out"
        return words if error else f"{words}; see {failed.plan.log}"

    def _report(self, attempt: Attempt, status: int, cause: str | None = None) -> RunReport:
        host = socket.gethostname()
        tasks = [
            TaskReport(task.plan.name, host, task.shell_status, str(task.plan.log))
            for task in attempt.tasks.values()
        ]
        failed = attempt.first_failed
        return RunReport(
            self.settings.workers, self.restarts, time.monotonic() - self._begun, tasks, cause,
            status, find_traceback(failed.tail) if cause and failed else "",
        )  # fmt: skip


def find_traceback(lines: Sequence[str]) -> str:
    """Return the last traceback that Python printed, from its first line to its error's."""
    lines = list(lines)
    begins = [i for i, line in enumerate(lines) if TRACEBACK in line]
    if not begins:
        return ""
    end = begins[-1] + 1
    while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
        end += 1
    return "\n".join(lines[begins[-1] : end + 1]).rstrip()


class _Signals:
    """While the block runs: remembers SIGINT or SIGTERM instead of ending this process."""

    def __init__(self) -> None:
        self.number, self._on_second = 0, lambda: None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "_Signals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._receive)
        return self

    def _receive(self, number: int, frame: object) -> None:
        if self.number:
            self._on_second()
        self.number = self.number or number

    @contextlib.contextmanager
    def insist_by_killing(self, attempt: Attempt) -> Iterator[None]:
        """While the block runs, another signal kills every task."""

        def kill() -> None:
            for task in attempt.tasks.values():
                task.send(signal.SIGKILL)

        self._on_second = kill
        try:
            yield
        finally:
            self._on_second = lambda: None

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
