"""Counters that several workers add to at once.

Keras 3 counts steps with `iterations.assign(iterations + 1)`: read, add, write back.
Two workers that read the same number write the same number, and a step is lost;
Adam's bias correction then belongs to an earlier step. An addition that the server
makes in one go, under the variable's lock, loses nothing (`tf.Variable.assign_add`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


class ExactCounter:
    """A counter on one parameter server; `add` in a closure, `read` in the coordinator."""

    def __init__(self, strategy: tf.distribute.Strategy, name: str = "exact_counter") -> None:
        import tensorflow as tf

        with strategy.scope():
            self.variable = tf.Variable(0, dtype=tf.int64, trainable=False, name=name)

    def add(self, amount: int | tf.Tensor = 1) -> None:
        """Add at the server, under the variable's lock."""
        import tensorflow as tf

        self.variable.assign_add(tf.cast(amount, tf.int64), use_locking=True, read_value=False)

    def read(self) -> int:
        """Return the count of now."""
        return int(self.variable.numpy())


def use_atomic_step_counter(optimizer: keras.optimizers.Optimizer) -> None:
    """Make `optimizer.iterations` add at its server instead of read, add and write back.

    Call it before the first step is traced. Adam's bias correction, which reads
    `iterations`, then matches the steps really taken.
    """
    iterations = optimizer.iterations

    def assign_add(value: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        return iterations.value.assign_add(tf.cast(value, iterations.value.dtype))

    iterations.assign_add = assign_add


def adam_correction(step: int) -> float:
    """Return what Adam multiplies its learning rate by at `step` = 1, 2, …

    sqrt(1 - 0.999^t) / (1 - 0.9^t), Kingma and Ba, arXiv:1412.6980, section 2.
    """
    return math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
