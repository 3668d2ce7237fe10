"""Training as the task of a cluster that TF_CONFIG names."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from ..devices import count_gpus, limit_gpus
from ..environment import quiet_tensorflow
from ..errors import InputError
from ..events import Event, Listener
from ..processes.missing_peers import name_missing_peers
from ..processes.registry import MARK_VARIABLE
from ..strategies import find_strategy
from ..tf_config import TaskConfig, parse_tf_config
from .config import TrainConfig
from .program import train
from .report import TrainReport

GRACE_SECONDS = 1.0


def train_as_task(
    config: TrainConfig, on_event: Listener, stop: threading.Event, program: str
) -> TrainReport | None:
    """Be the task that TF_CONFIG names. Return the report on the chief, None elsewhere.

    A worker or a parameter server of a parameter-server cluster serves until it is
    ended. `program` begins each line on standard error. Raises InputError for a TF_CONFIG that
    is wrong.
    """
    task = parse_tf_config(os.environ["TF_CONFIG"], strategy=config.strategy)
    if task.job == "evaluator":
        raise InputError(
            "A task of type evaluator in TF_CONFIG doesn't train. Start it as a worker."
        )
    if find_strategy(config.strategy).is_coordinated and task.job != "chief":
        return _serve(task.job, config.devices)
    with _Insistence(program) as insistence, contextlib.ExitStack() as waiting:
        if MARK_VARIABLE not in os.environ:  # no launcher does it
            waiting.enter_context(name_missing_peers(program, list_peers(task)))

        def listen(event: Event) -> None:
            waiting.close()  # there is an event: all are there
            on_event(event)

        should_stop = insistence.after_first_steps(stop.is_set)
        report = train(config, on_event=listen, should_stop=should_stop)
    if task.is_chief:
        return report
    print(f"{program}: {task.name} is done; the chief has the report", file=sys.stderr)
    return None


def list_peers(task: TaskConfig) -> dict[str, str]:
    """Return the name and the address of every other task of this training."""
    cluster = task.cluster
    return {
        f"{job}:{index}": cluster.address_of(job, index)
        for job, index in cluster.tasks
        if (job, index) != (task.job, task.index) and job != "evaluator"
    }


def _serve(job: str, devices: str) -> None:
    """Serve until killed: a worker on one device, as its coordinator expects, a server on none."""
    from ..cluster.task import serve

    with quiet_tensorflow():
        import tensorflow as tf
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # a server that waits runs no Python
    wanted = int(job == "worker" and devices != "cpu")
    if count_gpus() > wanted:
        limit_gpus(wanted)
    serve(tf)


class _Insistence:
    """Lets a signal end a task that waits for others inside TensorFlow, where Python doesn't run.

    While the strategy is made, TensorFlow lets no thread of Python run either, and
    nothing is lost yet: there the signal has its default effect. From the first steps
    on, the first signal asks to stop and the second ends the process.
    """

    def __init__(self, program: str) -> None:
        self._program = program

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
            os.write(2, f"{self._program}: interrupted\n".encode())
            os._exit(128 + again[0])

    def __exit__(self, *exception: object) -> None:
        self._put_back()
        signal.set_wakeup_fd(self._before)
        os.close(self._write)
