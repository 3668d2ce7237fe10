"""The custom loop that survives: checkpoints at intervals, and the handler that saves on notice.

Follows TensorFlow's guides "Multi-worker training with a custom loop" and "Fault tolerance"
(https://www.tensorflow.org/guide/migrate/fault_tolerance); the differences are in
`training.checkpoints`: a checkpoint is read whole before it is trusted, and the chief chooses where
all workers resume.
"""

import os
import signal
import sys

import tensorflow as tf

from ...events import report
from ..checkpoints import CheckpointFolder
from .settings import CHECKPOINT_NAME, RESTART_CODE, RecoveryReport
from .trainer import Trainer


def train_with_manager(trainer: Trainer) -> RecoveryReport:
    """Save every `checkpoint_every` steps; a death loses the steps since."""
    with open_checkpoints(trainer) as store:
        restore(trainer, store)
        for epoch, batch in trainer.batches_from(trainer.restored_step):
            save_if_due(trainer, store, trainer.take(epoch, batch))
    return trainer.finish()


def train_with_handler(trainer: Trainer) -> RecoveryReport:
    """As above; and after a SIGTERM to any worker all save at one step and leave.

    A kill without notice is what the checkpoints every `checkpoint_every` steps are for.
    """
    with open_checkpoints(trainer) as store:
        restore(trainer, store)
        handler = listen(trainer, store)
        for epoch, batch in trainer.batches_from(trainer.restored_step):
            step = trainer.take(epoch, batch)
            save_if_due(trainer, store, step)
            handler.save_checkpoint_if_preempted(checkpoint_number=step)  # doesn't return then
    return trainer.finish()


def open_checkpoints(trainer: Trainer) -> CheckpointFolder:
    """Return the shared folder's checkpoints of all that `trainer` must get back."""
    folder = trainer.settings.folder
    return CheckpointFolder(folder, trainer.checkpoint, trainer.group, name=CHECKPOINT_NAME)


def restore(trainer: Trainer, store: CheckpointFolder) -> None:
    """Restore the newest intact checkpoint, the same on every worker, and report which."""
    found = store.restore_newest()
    trainer.restored_step = found.step
    report("restore", step=found.step, skipped_checkpoints=list(found.skipped_checkpoints))


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
    """Hold back SIGTERM until it can be handled: call this before the strategy is made.

    The threads that TensorFlow starts inherit it, so that the notice reaches the
    main thread and waits there through imports, tracing and restoring.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
