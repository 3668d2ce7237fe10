"""Training on a cluster of processes that starts here, on this machine or on an engine's."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import events
from ..checks import check_count
from ..errors import InputError, RunError
from ..events import Event, Listener
from ..strategies import CLUSTER, STRATEGIES, find_strategy
from .config import TrainConfig
from .report import TrainingStopped, TrainReport

if TYPE_CHECKING:
    from ..cluster.job import Job
    from ..cluster.launcher import Launcher

MAX_TASKS = 32


def count_tasks(config: TrainConfig, workers: int | None, ps: int | None) -> tuple[int, int]:
    """Return how many workers and parameter servers to start; (0, 0) for none.

    None are started for a strategy of one machine, and where TF_CONFIG makes this
    process a task of a cluster that stands. Raises InputError for numbers that don't fit.
    """
    if config.strategy not in CLUSTER:
        for name, value in (("workers", workers), ("ps", ps)):
            if value is not None:
                able = [n for n in CLUSTER if name == "workers" or STRATEGIES[n].is_coordinated]
                raise InputError(
                    f"Strategy {config.strategy!r} trains in one process, got "
                    f"{name}={value}. Use {' or '.join(able)}."
                )
        return 0, 0
    if os.environ.get("TF_CONFIG"):
        if (workers, ps) != (None, None):
            raise InputError(
                "TF_CONFIG is set and gives the numbers of workers and servers. Leave "
                "workers and ps out, or unset TF_CONFIG to start a cluster on this machine."
            )
        return 0, 0
    uses_servers = find_strategy(config.strategy).is_coordinated
    if ps is not None and not uses_servers:
        raise InputError(
            f"Strategy {config.strategy!r} has no parameter servers. Leave ps out, got {ps}."
        )
    servers = (1 if ps is None else ps) if uses_servers else 0
    workers = check_count("workers", 2 if workers is None else workers, 1, MAX_TASKS)
    return workers, check_count("ps", servers, int(uses_servers), MAX_TASKS)


def train_on_cluster(
    config: TrainConfig,
    workers: int,
    ps: int,
    on_event: Listener,
    stop: threading.Event,
    make_launcher: Callable[[], "Launcher | None"] = lambda: None,
    restarts: int = 0,
) -> TrainReport:
    """Train on `workers` workers and `ps` parameter servers; return the chief's report.

    The launcher that `make_launcher` returns starts them and is closed at the end. Without one
    they start on this machine. Events of the chief go to `on_event`. Once `stop` is set, every
    task that trains gets SIGINT. They all save and stop together, and TrainingStopped is raised.
    Nothing outlives the call. Raises InputError with what a task couldn't use, and ClusterError
    with the task that failed.
    """
    from ..cluster import ClusterError, LocalCluster
    from ..data import open_data

    open_data(config.dataset, config.full_data, config.data_folder)  # wrong? say so at once
    launcher = make_launcher()
    with contextlib.ExitStack() as stack:
        if launcher is not None:
            stack.callback(launcher.close)
        cluster = LocalCluster(
            workers, ps, config.replicas, devices=config.devices, launcher=launcher
        )
        stack.enter_context(cluster)
        job = cluster.start(run_task, config, restarts=restarts)
        try:
            _follow(job, on_event, stop)
            results = job.wait(60)
        except ClusterError as error:
            kind, _, words = error.cause.partition(": ")
            known = kind in (InputError.__name__, RunError.__name__)  # written to be read
            raise (InputError(words) if known else error) from None
    report = results if ps else results[0]
    if isinstance(report, tuple):
        raise TrainingStopped(*report)
    return report


def run_task(config: TrainConfig) -> TrainReport | tuple[int, int, str | None]:
    """Train as one task of a local cluster. Return the report, or where it stopped on SIGINT.

    Not SIGTERM: TensorFlow takes that for a notice of preemption, once the strategy is made.
    """
    from .program import train

    stop = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        return train(config, on_event=_send, should_stop=stop.is_set)
    except TrainingStopped as stopped:
        return stopped.epoch, stopped.step, stopped.folder


def _send(event: Event) -> None:
    fields = {name: value for name, value in event.items() if name not in ("event", "time")}
    events.report(event["event"], **fields)


def _follow(job: "Job", on_event: Listener, stop: threading.Event) -> None:
    """Hand the job's events on until it has ended; ask its tasks to stop once `stop` is set."""
    started, failures = threading.Event(), []

    def hand_on() -> None:
        try:
            for event in job.events():
                on_event({k: v for k, v in event.items() if k not in ("task", "attempt")})
                started.set()
        except Exception as error:  # the events file can't be written
            failures.append(error)

    reader, asked = threading.Thread(target=hand_on, daemon=True), False
    reader.start()
    while reader.is_alive():
        reader.join(0.1)
        if stop.is_set() and not started.is_set():
            raise TrainingStopped(0, 0, None)
        if stop.is_set() and not asked:
            asked = True
            _ask_to_stop(job)
    if failures:
        raise failures[0]


def _ask_to_stop(job: "Job") -> None:
    for task in job.tasks:
        if task.order.role == "call":
            job.kill(task.job, task.index, signal.SIGINT)
