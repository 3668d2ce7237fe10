"""The `fit` path: Keras's own loop on the same weighted batches, exact for uneven ends.

Plain `fit` fails or drifts where a batch does not divide by the replicas. Here
padding weighs 0 and the weights of a global batch sum to 1, so the loss is a
plain weighted sum (`reduction="sum"`, which Keras does not scale by itself) and
the optimizer adds up the replicas.
"""

import keras
import tensorflow as tf

from .parts import Parts, make_loss
from .progress import Run
from .sharding import Prepare

# Steps in one call of the compiled function. With several workers it must be 1: Keras asks
# "is there another batch?" around each step, and a collective inside such a branch stops with
# "You must feed a value for placeholder tensor" (Keras 3.15.1).
STEPS_PER_EXECUTION = 16


def compile_model(
    parts: Parts, dtype: str, steps_per_execution: int, prepare: Prepare | None = None
) -> None:
    """Compile the model for `fit_epoch`, without XLA: it makes small CNNs slower on CPUs.

    `prepare` is what the feed does to a replica's batch before Keras's own step gets it.
    """
    with parts.strategy.scope():
        parts.model.compile(
            optimizer=parts.optimizer,
            loss=make_loss(dtype, reduction="sum"),
            weighted_metrics=[parts.loss_metric, parts.accuracy_metric],
            steps_per_execution=steps_per_execution,
            jit_compile=False,
        )
    if prepare is not None:
        train_step = parts.model.train_step
        parts.model.train_step = lambda batch: train_step(prepare(*batch))


def fit_epoch(parts: Parts, batches: tf.data.Dataset, run: Run) -> None:
    """Train on `batches` with `model.fit`, reporting to `run` as it goes."""
    parts.model.fit(batches, verbose=0, shuffle=False, callbacks=[_Reporter(run)])


class _Reporter(keras.callbacks.Callback):
    """Tells `run` after every call of the compiled steps."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run, self.done = run, 0
        self.steps = run.plan.steps_per_epoch - run.position.step

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Count up to batch `batch`, from 0; Keras counts a last, shorter call as a whole one."""
        before, self.done = self.done, min(batch + 1, self.steps)
        self.run.advance(self.done - before, lambda: read_logs(logs))


def read_logs(logs: dict) -> tuple[float, float]:
    """Return loss and accuracy from Keras's logs, which may hold one value per replica."""
    return float(logs["cross_entropy"]), float(logs["accuracy"])
