"""Keras's `fit` that survives: BackupAndRestore, corrected: a kill at any moment does no harm.

What Keras's callback does, and why that isn't exact recovery:

- If it saves every N batches, it resumes at the *start* of the epoch with the weights from its
  middle: the batches before the backup are trained twice. Here the place is exact.
- It overwrites its only file. A kill in that moment leaves half a file, and the next
  start fails. Between that file and the second one, with the epoch's number, the
  epoch is counted incorrectly. Here one file holds all, written aside and put in place
  by a rename, which happens or doesn't; the one before is kept, as with
  `double_checkpoint=True`.
- Every worker writes the same file. Here only the chief writes.
"""

import os
from itertools import pairwise
from pathlib import Path

import keras

from ...errors import RunError
from ...events import report
from ...keras_multi_worker import patch_keras_fit
from ..step import make_keras_loss
from .settings import RecoveryReport
from .trainer import EPOCHS_AT_ONCE, Trainer


class AtomicBackup(keras.callbacks.BackupAndRestore):
    """Keras's BackupAndRestore with backups that are whole, the chief's, and know their step.

    `save_freq` is "epoch" or a number of steps, counted from the very start of the run.
    `restore` is called before `fit` and returns the steps taken; the optimizer's
    own step counter, which is in the file, says them.
    """

    def __init__(self, folder: str, save_freq: str | int, is_chief: bool) -> None:
        super().__init__(
            folder, save_freq=save_freq, double_checkpoint=True, delete_checkpoint=False
        )
        self._prev_weights_path = str(Path(folder) / "before.weights.h5")  # Keras wants this ending
        self.is_chief = is_chief

    def restore(self, model: keras.Model) -> tuple[int, list[str]]:
        """Load the newest readable backup. Return its steps, and the skipped backups.

        HDF5 notices a file that was cut short. It has no checksum: a changed byte
        in the middle of a weight stays unseen, unlike in TensorFlow's checkpoints.
        """
        skipped_checkpoints = []
        for path in (self._weights_path, self._prev_weights_path):
            if not os.path.exists(path):
                continue
            try:
                model.load_weights(path)
                break
            except (OSError, KeyError, ValueError) as error:
                skipped_checkpoints.append(f"{Path(path).name}: {str(error).splitlines()[0]}")
        return int(model.optimizer.iterations.numpy()), skipped_checkpoints

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Nothing: the weights were restored before `fit`, and the data begin at their step."""

    def _should_save_on_batch(self, batch: int) -> bool:
        return self.save_freq != "epoch" and self._steps_taken() % self.save_freq == 0

    def _save_model(self) -> None:
        step = self._steps_taken()
        report("saving", step=step)
        if self.is_chief:
            os.makedirs(self.backup_dir, exist_ok=True)
            aside = str(Path(self.backup_dir) / "aside.weights.h5")
            self.model.save_weights(aside, overwrite=True)
            if os.path.exists(self._weights_path):
                os.replace(self._weights_path, self._prev_weights_path)
            os.replace(aside, self._weights_path)
        report("checkpoint", step=step)

    def _steps_taken(self) -> int:
        return int(self.model.optimizer.iterations.numpy())


class StepReporter(keras.callbacks.Callback):
    """Reports every step of `fit`."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        self.trainer, self.epoch = trainer, 0

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self.epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Keras asks for the batch inside the step, so this can't say when it has arrived."""
        self.trainer.pause()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """`logs` has the mean loss since the epoch began, here and in Keras."""
        step = int(self.model.optimizer.iterations.numpy())
        self.trainer.note(self.epoch, step, float(logs["loss"]))


def train_with_backup(trainer: Trainer) -> RecoveryReport:
    """Train with `fit`; a death loses the steps since the last backup."""
    patch_keras_fit()
    settings, model = trainer.settings, trainer.model
    with trainer.strategy.scope():
        loss = make_keras_loss(trainer.state, "float64")
        model.compile(trainer.optimizer, loss, jit_compile=False)
    backup = AtomicBackup(
        settings.folder, settings.checkpoint_every or "epoch", trainer.group.is_chief
    )
    step, skipped_checkpoints = backup.restore(model)
    chiefs = trainer.group.broadcast(step)
    if chiefs != step:
        raise RunError(
            f"backup {settings.folder}: the chief is at step {chiefs} and "
            f"{trainer.group.name} at {step}. Name a folder that all workers share."
        )
    trainer.restored_step = step
    report("restore", step=step, skipped_checkpoints=skipped_checkpoints)
    per_epoch = trainer.plan.steps_per_epoch
    for first, end in pairwise(list_bounds(step, per_epoch, settings.epochs)):
        model.fit(
            trainer.make_epochs(range(first, end), step),
            initial_epoch=first,
            epochs=end,
            steps_per_epoch=per_epoch - max(0, step - first * per_epoch),
            callbacks=[StepReporter(trainer), backup],
            shuffle=False,
            verbose=0,
        )
    return trainer.finish()


def list_bounds(step: int, per_epoch: int, epochs: int) -> list[int]:
    """Return the epochs where a call of `fit` begins or ends, for a run that begins at `step`.

    What is left of an epoch takes its own call, and a call has a few whole epochs: each makes
    iterators, which takes as long as many steps.

        >>> list_bounds(step=7, per_epoch=5, epochs=12)
        [1, 2, 7, 12]
    """
    epoch, whole = step // per_epoch, -(-step // per_epoch)
    return sorted({epoch, *range(whole, epochs, EPOCHS_AT_ONCE), epochs})
