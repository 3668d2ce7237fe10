"""`distlab train` in a cluster: one that it starts on this machine, or one that stands."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from distlab.errors import CourseError
from utils import events
from utils.errors import InputError, RunError
from utils.events import Event
from utils.strategies import find_strategy
from utils.training.config import TrainConfig
from utils.training.report import TrainingStopped, TrainReport

Listener = Callable[[Event], None]
GRACE_SECONDS = 1.0


def train_on_cluster(
    config: TrainConfig, workers: int, ps: int, listener: Listener, stop: threading.Event
) -> TrainReport:
    """Train on a cluster of processes on this machine, and return the chief's report.

    Events of the chief go to `listener`. Once `stop` is set, every task that trains
    gets SIGINT, upon which all save and stop together: TrainingStopped is raised.
    Nothing outlives the call. Raises CourseError with the task that failed, and why.
    """
    from utils.cluster import ClusterError, LocalCluster
    from utils.data import load

    load(config.dataset, full=config.full_data, folder=config.data_folder)  # wrong? say so at once
    with LocalCluster(workers, ps, config.replicas or 1) as cluster:
        job = cluster.start(run_task, config)
        try:
            _follow(job, listener, stop)
            results = job.wait(60)
        except ClusterError as error:
            kind, _, words = error.cause.partition(": ")
            known = kind in (InputError.__name__, RunError.__name__)  # written to be read
            raise (CourseError(words) if known else error) from None
    report = results if ps else results[0]
    if isinstance(report, tuple):
        raise TrainingStopped(*report)
    return report


def run_task(config: TrainConfig) -> TrainReport | tuple[int, int, str | None]:
    """Train as one task of a local cluster; return the report, or where it stopped on SIGINT.

    Not SIGTERM: TensorFlow takes that for a notice of preemption, once the strategy is made.
    """
    from utils.training import train

    stop = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        return train(config, on_event=_send, should_stop=stop.is_set)
    except TrainingStopped as stopped:
        return stopped.epoch, stopped.step, stopped.folder


def _send(event: Event) -> None:
    fields = {name: value for name, value in event.items() if name not in ("event", "time")}
    events.report(event["event"], **fields)


def _follow(job: Any, listener: Listener, stop: threading.Event) -> None:
    """Hand the job's events on until it has ended; ask its tasks to stop once `stop` is set."""
    started, failures = threading.Event(), []

    def hand_on() -> None:
        try:
            for event in job.events():
                listener({k: v for k, v in event.items() if k not in ("task", "attempt")})
                started.set()
        except Exception as error:  # the events file cannot be written
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


def _ask_to_stop(job: Any) -> None:
    for task in job.tasks:
        if task.order.role == "call":
            job.kill(task.job, task.index, signal.SIGINT)


def train_as_task(
    config: TrainConfig, listener: Listener, stop: threading.Event
) -> TrainReport | None:
    """Be the task that TF_CONFIG names; return the report on the chief, None elsewhere.

    A worker or a parameter server of a parameter-server cluster serves until it is
    ended. Raises CourseError for a TF_CONFIG that is wrong.
    """
    from utils.tf_config import parse_tf_config

    task = parse_tf_config(os.environ["TF_CONFIG"], strategy=config.strategy)
    if task.job == "evaluator":
        raise CourseError("TF_CONFIG: task type evaluator trains nothing; start it as a worker")
    if find_strategy(config.strategy).is_coordinated and task.job != "chief":
        return _serve()
    from utils.training import train

    with _Insistence() as insistence:
        should_stop = insistence.after_first_steps(stop.is_set)
        report = train(config, on_event=listener, should_stop=should_stop)
    if task.is_chief:
        return report
    print(f"distlab train: {task.name} is done; the chief has the report", file=sys.stderr)
    return None


def _serve() -> None:
    from utils.cluster.task import serve
    from utils.environment import quiet_tensorflow

    with quiet_tensorflow():
        import tensorflow as tf
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # a server that waits runs no Python
    serve(tf)


class _Insistence:
    """Lets a signal end a task that waits for others inside TensorFlow, where Python does not run.

    While the strategy is made, TensorFlow lets no thread of Python run either, and
    nothing is lost yet: there the signal has its default effect. From the first steps
    on, the first signal asks to stop and the second ends the process.
    """

    def __enter__(self) -> "_Insistence":
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before = signal.set_wakeup_fd(self._write)
        threading.Thread(target=self._count, daemon=True).start()
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._handlers = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
        return self

    def after_first_steps(self, should_stop: Callable[[], bool]) -> Callable[[], bool]:
        """Return `should_stop`, which puts the signals' handlers back when it is first asked."""

        def ask() -> bool:
            self._put_back()
            return should_stop()

        return ask

    def _put_back(self) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def _count(self) -> None:
        os.read(self._read, 1)
        again = os.read(self._read, 1)
        os.close(self._read)
        if again:
            time.sleep(GRACE_SECONDS)  # Python's own handler, where it can run, is kinder
            os.write(2, b"distlab train: interrupted\n")
            os._exit(128 + again[0])

    def __exit__(self, *exception: object) -> None:
        self._put_back()
        signal.set_wakeup_fd(self._before)
        os.close(self._write)
