"""The settings and the result of a run that survives. Imports no TensorFlow."""

from dataclasses import dataclass

import numpy as np

from ...checks import check_choice, check_count
from ...errors import InputError

METHODS = {
    "manager": "CheckpointManager",
    "preemption": "PreemptionCheckpointHandler",
    "backup": "BackupAndRestore",
}
CHECKPOINT_NAME = "ckpt"  # files are ckpt-<steps>.index and ckpt-<steps>.data-*
RESTART_CODE = 42  # the exit status that asks the platform to start the group again


@dataclass(frozen=True)
class RecoverySettings:
    """One run: a small float64 MLP on Fashion-MNIST, on all workers of the cluster.

    `folder` is shared by all workers. `checkpoint_every` counts steps; None saves at the end of
    each epoch. `method` is a key of `METHODS`: "manager" and "preemption" run the custom loop,
    "backup" runs Keras's `fit`. The run has `epochs` of `examples` in batches of
    `global_batch_size`; the MLP has `hidden_units`, and `optimizer`, `learning_rate` and `seed`
    are its own. `pause_seconds` are slept in each step before its gradients, as a larger model
    would compute, so that a reader can follow; with `watched`, each worker also reports the
    event "ready" when its own gradients are there. Raises InputError, which names the value and
    the allowed ones.

        settings = RecoverySettings("checkpoints", epochs=1, checkpoint_every=2)
    """

    folder: str
    method: str = "manager"
    checkpoint_every: int | None = 4
    epochs: int = 5
    examples: int = 130
    global_batch_size: int = 32
    hidden_units: int = 16
    optimizer: str = "momentum"
    learning_rate: float = 0.05
    seed: int = 0
    pause_seconds: float = 0.0
    watched: bool = False

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        if self.checkpoint_every is not None:
            check_count("checkpoint_every", self.checkpoint_every)
        if not 0 <= self.pause_seconds < 60:
            raise InputError(f"pause_seconds must be from 0 to 60, got {self.pause_seconds}.")

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.examples // self.global_batch_size)

    @property
    def total_steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint is due after `step` steps from the very start."""
        every = self.checkpoint_every or self.steps_per_epoch
        return step % every == 0 or step == self.total_steps


@dataclass(frozen=True)
class RecoveryReport:
    """One worker's result: `restored_step` is where its last attempt began.

    `losses` has the loss of each step of the last attempt, `weights` the model's
    trainable variables, float64.
    """

    step: int
    restored_step: int
    losses: tuple[float, ...]
    weights: tuple[np.ndarray, ...]
