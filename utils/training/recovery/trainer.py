"""What all three ways share, and the custom loop that survives.

All share what is trained, its step, and the batches from a step on (`Trainer`). The custom
loop saves at intervals, and, where the handler is asked for, on notice. It follows
TensorFlow's guides "Multi-worker training with a custom loop" and "Fault tolerance"
(https://www.tensorflow.org/guide/migrate/fault_tolerance); the differences are those of
`training.checkpoints`: a checkpoint is read whole before it is trusted, and the chief
chooses where all workers resume.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from ...data import load
from ...data.batches import BatchPlan, epoch_order, make_batches
from ...events import report
from ...models import build_mlp
from ...strategies import make_strategy
from ..checkpoints import CheckpointFolder
from ..config import TrainConfig
from ..state import make_state
from ..step import make_train_replica
from ..worker_group import WorkerGroup
from .settings import CHECKPOINT_NAME, RESTART_CODE, RecoveryReport, RecoverySettings


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
        """Yield (epoch, batch) for every step after the first `step`, to the end of the run."""
        per_epoch = self.plan.steps_per_epoch
        for epoch in range(step // per_epoch, self.settings.epochs):
            first_step = max(0, step - epoch * per_epoch)
            batches = self.make_epoch(epoch, first_step)
            for batch in self.strategy.experimental_distribute_dataset(batches):
                yield epoch, batch

    def make_epoch(self, epoch: int, first_step: int) -> tf.data.Dataset:
        """Return the global batches of an epoch without its first `first_step`."""
        order = epoch_order(self.plan.examples, self.settings.seed, epoch)
        return make_batches(self.data, self.plan, order, "float64", first_step)

    def take(self, epoch: int, batch: tuple) -> int:
        """Train on one global batch and return the steps taken from the very start."""
        loss = float(self.train_step(batch))
        self.step.assign_add(1)
        return self.note(epoch, int(self.step.numpy()), loss)

    def note(self, epoch: int, step: int, loss: float) -> int:
        """Report one step that was taken, pause if it is to be watched, and return its number."""
        self.losses.append(loss)
        report("step", step=step, epoch=epoch + 1, loss=loss)
        time.sleep(self.settings.pause_seconds)
        return step

    def finish(self) -> RecoveryReport:
        """Return what this worker ended with."""
        step = self.restored_step + len(self.losses)
        report("end", step=step)
        weights = tuple(np.asarray(v) for v in self.model.trainable_variables)
        return RecoveryReport(step, self.restored_step, tuple(self.losses), weights)

    def _compile_step(self) -> Callable[[Any], tf.Tensor]:
        replica_step = make_train_replica(self.state)

        @tf.function
        def train_step(batch: Any) -> tf.Tensor:
            losses = self.strategy.run(replica_step, args=batch)  # weights of a batch sum to 1
            return self.strategy.reduce("SUM", losses, axis=None)

        return train_step


def _make_config(settings: RecoverySettings) -> TrainConfig:
    return TrainConfig(
        strategy="multi-worker",
        model=partial(build_mlp, settings.seed, "float64", settings.hidden_units),
        optimizer=settings.optimizer,
        learning_rate=settings.learning_rate,
        dtype="float64",
        seed=settings.seed,
    )


def train_with_checkpoints(trainer: Trainer, on_notice: bool) -> RecoveryReport:
    """Save every `save_every` steps; a death loses the steps since.

    With `on_notice`, a SIGTERM to any worker makes all save at one step and leave, too. A
    kill without notice is what the checkpoints every `save_every` steps are for.
    """
    folder = trainer.settings.folder
    with CheckpointFolder(folder, trainer.checkpoint, trainer.group, name=CHECKPOINT_NAME) as store:
        restore(trainer, store)
        handler = listen(trainer, store) if on_notice else None
        for epoch, batch in trainer.batches_from(trainer.restored_step):
            step = trainer.take(epoch, batch)
            save_if_due(trainer, store, step)
            if handler is not None:  # does not return where there was notice
                handler.save_checkpoint_if_preempted(checkpoint_number=step)
    return trainer.finish()


def restore(trainer: Trainer, store: CheckpointFolder) -> None:
    """Restore the newest whole checkpoint, the same on every worker, and report which."""
    found = store.restore_newest()
    trainer.restored_step = found.step
    report("restore", step=found.step, passed_over=list(found.passed_over))


def save_if_due(trainer: Trainer, store: CheckpointFolder, step: int) -> None:
    """Save after `step` steps if the settings say so, and report it; on every worker."""
    if trainer.settings.is_due(step):
        report("saving", step=step)
        store.save(step)
        report("checkpoint", step=step)


def listen(
    trainer: Trainer, store: CheckpointFolder
) -> tf.distribute.experimental.PreemptionCheckpointHandler:
    """Return TensorFlow's PreemptionCheckpointHandler, with SIGTERM as the notice.

    After saving, each worker leaves by `sys.exit(RESTART_CODE)`, which asks whatever
    started the group to start it again. A SIGTERM that came earlier was held back
    (`hold_notice`) and is delivered now.
    """

    def leave() -> None:
        report("left", step=int(trainer.step.numpy()))
        sys.exit(RESTART_CODE)

    # The handler asks for Google Cloud's metadata server first, for up to 5 s, and on one
    # of its machines without GPU does nothing at all. Nobody answers at port 9 here.
    os.environ.setdefault("GCE_METADATA_IP", "127.0.0.1:9")
    handler = tf.distribute.experimental.PreemptionCheckpointHandler(
        trainer.strategy.cluster_resolver,
        store.manager,
        termination_config=tf.distribute.experimental.TerminationConfig(exit_fn=leave),
    )
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    return handler


def hold_notice() -> None:
    """Hold back SIGTERM until somebody listens: call it before the strategy is made.

    The threads that TensorFlow starts inherit it, so that the notice reaches the
    main thread and waits there through imports, tracing and restoring.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
