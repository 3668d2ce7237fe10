"""The custom loop that survives: CheckpointManager, and the handler that saves on notice.

Follows TensorFlow's guides "Multi-worker training with a custom loop" and "Fault
tolerance" (tensorflow.org/guide/migrate/fault_tolerance); the differences are the
check that a checkpoint is whole, and that the chief chooses where all go on.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from ...events import report
from .settings import RESTART_CODE, RecoveryReport
from .trainer import Trainer
from .whole import PREFIX, find_newest_whole, list_whole

KEPT = 3  # checkpoints in the folder: one to fall back on, and one more


def train_with_manager(trainer: Trainer) -> RecoveryReport:
    """Save every `save_every` steps; a death loses the steps since."""
    restore(trainer)
    with open_manager(trainer) as manager:
        for epoch, batch in trainer.batches_from(trainer.restored_step):
            step = trainer.take(epoch, batch)
            if trainer.settings.is_due(step):
                save(manager, step)
    return trainer.finish()


def train_with_handler(trainer: Trainer) -> RecoveryReport:
    """As above; and after a SIGTERM to any worker all save at one step and leave.

    A kill without notice is what the checkpoints every `save_every` steps are for.
    """
    restore(trainer)
    with open_manager(trainer) as manager:
        handler = listen(trainer, manager)
        for epoch, batch in trainer.batches_from(trainer.restored_step):
            step = trainer.take(epoch, batch)
            if trainer.settings.is_due(step):
                save(manager, step)
            handler.save_checkpoint_if_preempted(checkpoint_number=step)  # does not return then
    return trainer.finish()


def restore(trainer: Trainer) -> None:
    """Restore the newest whole checkpoint of the shared folder: the chief chooses, all follow."""
    folder, step, passed_over = trainer.settings.folder, 0, []
    if trainer.is_chief:
        step, passed_over = find_newest_whole(folder)
        list_whole(folder, step)
    trainer.restored_step = trainer.agree(step)
    if trainer.restored_step:
        saved = trainer.checkpoint.restore(f"{folder}/{PREFIX}-{trainer.restored_step}")
        saved.assert_existing_objects_matched()
    report("restore", step=trainer.restored_step, passed_over=passed_over)


@contextmanager
def open_manager(trainer: Trainer) -> Iterator[tf.train.CheckpointManager]:
    """Hand on a manager: the chief's writes into the shared folder, the others' away.

    Every worker must save, because reading a variable that has one copy for each
    replica takes all of them; but only one may write each file.
    """
    with tempfile.TemporaryDirectory() as own:
        folder = trainer.settings.folder if trainer.is_chief else own
        os.makedirs(folder, exist_ok=True)
        yield tf.train.CheckpointManager(
            trainer.checkpoint, folder, max_to_keep=KEPT, checkpoint_name=PREFIX
        )


def save(manager: tf.train.CheckpointManager, step: int) -> None:
    """Save, named after the steps taken, and report it; on every worker."""
    report("saving", step=step)
    manager.save(checkpoint_number=step)
    report("checkpoint", step=step)


def listen(trainer: Trainer, manager: tf.train.CheckpointManager):
    """Return TensorFlow's PreemptionCheckpointHandler, with SIGTERM as the notice.

    After saving, each worker leaves by `sys.exit(RESTART_CODE)`, which asks whoever
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
        manager,
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
