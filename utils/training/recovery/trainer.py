"""The base of all three ways: the model, its step, and the batches from a step on."""

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ...data import load
from ...data.batches import BatchPlan, epoch_order, make_batches
from ...events import report
from ...models import build_mlp
from ...strategies import make_strategy
from ..config import TrainConfig
from ..state import make_state
from ..step import make_train_replica
from ..worker_group import WorkerGroup
from .settings import RecoveryReport, RecoverySettings

EPOCHS_AT_ONCE = 5  # whose batches one iterator gives


class Trainer:
    """One worker's part of a synchronous run that can begin at any step.

    What a checkpoint must hold is `checkpoint`: weights, the optimizer's moments
    and the number of steps taken. The place in the data follows from that number
    (`batches_from`), because the order of an epoch depends on seed and epoch alone.
    """

    def __init__(self, settings: RecoverySettings) -> None:
        self.settings = settings
        self.strategy = make_strategy("multi-worker")  # before any other op
        self.group = WorkerGroup(self.strategy)
        self.data = load("fashion_mnist").take(settings.examples).train
        replicas = self.strategy.num_replicas_in_sync
        self.plan = BatchPlan(len(self.data), settings.global_batch_size, replicas)
        self.state = make_state(self.strategy, _make_config(settings))
        self.model, self.optimizer = self.state.model, self.state.optimizer
        self.step = tf.Variable(0, dtype=tf.int64)
        self.checkpoint = tf.train.Checkpoint(
            model=self.model, optimizer=self.optimizer, step=self.step
        )
        self.restored_step, self.losses = 0, []
        self.train_step = self._compile_step()

    def batches_from(self, step: int) -> Iterator[tuple[int, tuple]]:
        """Yield (epoch, batch) for every step after the first `step`, to the end of the run.

        One iterator goes through several epochs: to make one takes as long as many steps.
        """
        per_epoch = self.plan.steps_per_epoch
        epochs = range(step // per_epoch, self.settings.epochs)
        for first in epochs[::EPOCHS_AT_ONCE]:
            some = range(first, min(first + EPOCHS_AT_ONCE, self.settings.epochs))
            batches = self.make_epochs(some, step)
            distributed = self.strategy.experimental_distribute_dataset(batches)
            for number, batch in enumerate(distributed, max(step, first * per_epoch)):
                yield number // per_epoch, batch

    def make_epochs(self, epochs: range, step: int) -> tf.data.Dataset:
        """Return the global batches of `epochs`, without the run's first `step`."""
        orders = [epoch_order(self.plan.examples, self.settings.seed, epoch) for epoch in epochs]
        first_step = max(0, step - epochs[0] * self.plan.steps_per_epoch)
        return make_batches(self.data, self.plan, np.stack(orders), "float64", first_step)

    def make_epoch(self, epoch: int, first_step: int) -> tf.data.Dataset:
        """Return the global batches of an epoch without its first `first_step`."""
        step = epoch * self.plan.steps_per_epoch + first_step
        return self.make_epochs(range(epoch, epoch + 1), step)

    def take(self, epoch: int, batch: tuple) -> int:
        """Train on one global batch and return the steps taken from the very start."""
        report("batch")  # has arrived: a distributed iterator waits for every worker
        self.pause()
        loss = float(self.train_step(batch))
        self.step.assign_add(1)
        return self.note(epoch, int(self.step.numpy()), loss)

    def note(self, epoch: int, step: int, loss: float) -> int:
        """Report one finished step, and return its number."""
        self.losses.append(loss)
        report("step", step=step, epoch=epoch + 1, loss=loss)
        return step

    def pause(self) -> None:
        """Take as long as a larger model would, if the run is to be watched."""
        time.sleep(self.settings.pause_seconds)

    def finish(self) -> RecoveryReport:
        """Return what this worker ended with."""
        step = self.restored_step + len(self.losses)
        report("end", step=step)
        weights = tuple(np.asarray(v) for v in self.model.trainable_variables)
        return RecoveryReport(step, self.restored_step, tuple(self.losses), weights)

    def _compile_step(self) -> Callable[[Any], tf.Tensor]:
        look = report_ready if self.settings.watched else None
        replica_step = make_train_replica(self.state, look=look)

        @tf.function(autograph=False)  # no Python control flow on tensors: half the tracing time
        def train_step(batch: Any) -> tf.Tensor:
            losses = self.strategy.run(replica_step, args=batch)  # weights of a batch sum to 1
            return self.strategy.reduce("SUM", losses, axis=None)

        return train_step


def report_ready(gradients: list[Any]) -> None:
    """Inside a step: report the event "ready" when the gradients are there, before they travel."""

    def write() -> np.bool_:
        report("ready")
        return np.True_

    with tf.control_dependencies(gradients):
        tf.numpy_function(write, [], tf.bool)


def _make_config(settings: RecoverySettings) -> TrainConfig:
    return TrainConfig(
        strategy="multi-worker",
        model=functools.partial(build_mlp, settings.seed, "float64", settings.hidden_units),
        optimizer=settings.optimizer,
        learning_rate=settings.learning_rate,
        dtype="float64",
        seed=settings.seed,
    )
