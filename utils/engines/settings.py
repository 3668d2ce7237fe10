"""The settings and the report of a run: plain, frozen data."""

import itertools
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..checks import check_count, check_number, show
from ..cluster.launcher import RESTART_VARIABLE, TaskOrder
from ..environment import memory_variables
from ..errors import InputError
from ..files import make_folder
from ..gpus import VISIBLE, divide_gpus, list_gpus
from ..tf_config import TaskConfig

MAX_TASKS, MAX_PORT = 256, 65535
MAX_RESTARTS = 1000
MAX_GPUS = 64  # of one worker
GRACE_SECONDS, MIN_IDLE_SECONDS, IDLE_STATUS = 30.0, 5.0, 124  # the status is timeout(1)'s
CHECKPOINT_VARIABLE = "DISTLAB_CHECKPOINT_DIR"
INDEX_VARIABLE, COUNT_VARIABLE = "DISTLAB_TASK_INDEX", "DISTLAB_TASK_COUNT"
GRACE_VARIABLE = "DISTLAB_GRACE_SECONDS"
RUN_VARIABLE = "DISTLAB_RUN_ID"
CODE_VARIABLE = "DISTLAB_CODE"
HANDOUT_VARIABLE = "DISTLAB_HANDOUT"
RUNS = itertools.count(1)


def name_mark(run_id: str) -> str:
    """Return the name of a file that a run keeps in its checkpoint folder, to know it again."""
    return f".distlab-{run_id}"


def make_run_id() -> str:
    """Return a name for a run that no other run of this machine has."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{next(RUNS)}"


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run: `workers` tasks, or a parameter-server cluster if `ps` isn't 0.

    With `min_workers`, a rendezvous continues with fewer, down to that many.
    With `ps` the program runs on a coordinator (task "chief 0") as well. `max_restarts` is how
    often all tasks start again after one has failed. `checkpoint_dir` is made before the program
    starts, and passed on to it in the variable DISTLAB_CHECKPOINT_DIR. TensorFlow listens
    at ports of `port_range`, both ends included, None for any. `logs` is a folder for what
    `run_record` keeps, runs/`run_id` without it. Tasks find `run_id` in DISTLAB_RUN_ID. `gpus` is
    "auto" (this machine's are divided among its workers), "none", or a number for
    each worker, which an engine is asked for.
    Once no program has done anything for `idle_timeout_seconds` (no line, no file, next to no
    processor time), the tasks count as failed. `grace_seconds` is the longest that a task may take
    to end after a signal, or after another task has failed. The program finds it in
    DISTLAB_GRACE_SECONDS. `handout` is text that every task finds in the variable
    DISTLAB_HANDOUT. `variables` are added to every task's environment.

    `independent` tasks form no cluster: each gets its index and their number in the variables
    DISTLAB_TASK_INDEX and DISTLAB_TASK_COUNT, and TF_CONFIG only if `tf_config` asks for it. A
    task that fails starts again alone, each of them up to `max_restarts` times.
    Raises InputError for numbers that can't be.
    """

    workers: int = 2
    min_workers: int | None = None
    ps: int = 0
    max_restarts: int = 0
    checkpoint_dir: str | None = None
    port_range: tuple[int, int] | None = None
    logs: str | None = None
    gpus: str | int = "auto"
    grace_seconds: float = GRACE_SECONDS
    idle_timeout_seconds: float | None = None
    handout: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    independent: bool = False
    tf_config: bool = False
    run_id: str = field(default_factory=make_run_id)

    def __post_init__(self) -> None:
        check_count("workers", self.workers, 1, MAX_TASKS)
        if self.min_workers is not None:
            check_count("min-workers", self.min_workers, 1, self.workers)
        check_count("ps", self.ps, 0, MAX_TASKS)
        check_count("max-restarts", self.max_restarts, 0, MAX_RESTARTS)
        check_number("grace-period", self.grace_seconds, least=0.0)
        if self.idle_timeout_seconds is not None:
            check_number("idle-timeout", self.idle_timeout_seconds, least=MIN_IDLE_SECONDS)
        if isinstance(self.gpus, int):
            check_count("gpus", self.gpus, 1, MAX_GPUS)
        elif self.gpus not in ("auto", "none"):
            raise InputError(
                f"gpus must be auto, none or a number for each worker, got {show(self.gpus)}."
            )
        self._check_independent()
        if self.port_range is not None:
            first = check_count("port-range", self.port_range[0], 1, MAX_PORT)
            check_count("port-range", self.port_range[1], first, MAX_PORT)

    def _check_independent(self) -> None:
        if self.tf_config and not self.independent:
            raise InputError(
                "tf-config is for independent tasks only. Leave it out: tasks of a cluster "
                "always get TF_CONFIG."
            )
        if self.independent and self.ps:
            raise InputError(f"ps must be 0 for independent tasks, got {self.ps}. Leave --ps out.")
        if self.independent and self.min_workers not in (None, self.workers):
            raise InputError(
                f"workers must be one number for independent tasks, got {self.workers_text}. "
                f"Try --workers {self.workers}."
            )

    @property
    def ports(self) -> range | None:
        """The ports that tasks may have, None for any."""
        return (
            None if self.port_range is None else range(self.port_range[0], self.port_range[1] + 1)
        )

    @property
    def workers_text(self) -> str:
        """The number of workers as a command line has it: "4", or "2:4"."""
        elastic = self.min_workers not in (None, self.workers)
        return f"{self.min_workers}:{self.workers}" if elastic else str(self.workers)

    def make_order(self, config: TaskConfig, command: Sequence[str], restart: int) -> TaskOrder:
        """Return the order for one task of the program: the same wherever it runs."""
        environment = {
            **memory_variables(),
            RESTART_VARIABLE: str(restart),
            RUN_VARIABLE: self.run_id,
            GRACE_VARIABLE: f"{self.grace_seconds:g}",
            **self.variables,
        }
        if self.independent:
            environment[INDEX_VARIABLE] = str(config.index)
            environment[COUNT_VARIABLE] = str(len(config.cluster.tasks))
        if self.tf_config or not self.independent:
            environment |= config.to_variables()
        if self.checkpoint_dir is not None:
            environment[CHECKPOINT_VARIABLE] = os.path.abspath(self.checkpoint_dir)
        if self.handout is not None:
            environment[HANDOUT_VARIABLE] = self.handout
        if self.gpus == "none":
            environment[VISIBLE] = ""
        name = f"{config.job} {config.index}"
        words = config.address, tuple(command), config.to_json()
        return TaskOrder(name, "program", 1, environment, *words)

    def divide_gpus(self, workers: int) -> list[list[str]]:
        """Return the GPUs of each of this machine's workers; none each to leave them be."""
        each = self.gpus if isinstance(self.gpus, int) else None
        return divide_gpus([] if self.gpus == "none" else list_gpus(), workers, each)


@dataclass(frozen=True)
class TaskReport:
    """The end of a task of the last attempt: `status` as a shell has it, 128 + a signal's number.

    A server has 0 if it was ended because its coordinator had succeeded.
    """

    task: str
    host: str
    status: int
    log: str


@dataclass(frozen=True)
class RunReport:
    """The result of a run. `status` is the exit status of the task that failed first, else 0.

    `cause` names that task, its error and what to do, None if none failed; `traceback`
    is what Python printed there, "" if nothing. `seconds` is wall time, starts included.
    `failed` counts independent tasks that failed for good; it's None for a cluster. `logs` is
    this machine's folder of the run (see `run_record`), `goodput` the share of the time that went
    into steps that count in the end, None unless the host's tasks report their steps.
    """

    workers: int
    restarts: int
    seconds: float
    tasks: list[TaskReport] = field(default_factory=list)
    cause: str | None = None
    status: int = 0
    traceback: str = ""
    failed: int | None = None
    logs: str = ""
    goodput: float | None = None

    def to_json(self) -> str:
        """Return one JSON object: workers, restarts, seconds, tasks, cause, and failed if known."""
        names = ("workers", "restarts", "seconds", "tasks", "cause")
        names += ("failed",) * (self.failed is not None)
        fields = {name: value for name, value in asdict(self).items() if name in names}
        return json.dumps({**fields, "seconds": round(self.seconds, 3)}, indent=2)


def make_logs_folder(folder: str | None, name: str) -> Path:
    """Return `folder`, or runs/`name` where none is given; made if it isn't there.

    Raises InputError if it can't be written.
    """
    path = Path(folder) if folder else Path("runs", name)
    make_folder("logs", path)
    return path


def check_command(command: Sequence[str]) -> list[str]:
    """Return the command as a list; raise InputError for an empty one."""
    if not command:
        raise InputError("Nothing to run. Name a program, such as train.py.")
    return [str(word) for word in command]
