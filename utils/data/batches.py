"""Batches for training under any strategy: fixed shapes, uneven ends exact.

A global batch must be cut into equal pieces, one per replica, and the last batch
of an epoch is usually smaller than the others. Every batch here has the same
shape: missing places are filled with an example whose weight is 0. Each real
example weighs 1 / (real examples in its global batch), so that the sum over all
replicas of `weight * loss` is the mean loss of the batch, whatever its size and
however it is split. Padding never reaches the gradient, and fixed shapes keep
the training step to one trace.

Layers that look across the batch (BatchNormalization) do see the padding, which
is why it repeats a real image.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from .images import Split


@dataclass(frozen=True)
class BatchPlan:
    """The plan that cuts `examples` into global batches for `replicas` replicas."""

    examples: int
    global_batch_size: int
    replicas: int

    @property
    def steps_per_epoch(self) -> int:
        """The number of global batches, the smaller last one included."""
        return math.ceil(self.examples / self.global_batch_size)

    @property
    def per_replica_batch_size(self) -> int:
        """Places of one replica in one batch, padding included."""
        return math.ceil(min(self.global_batch_size, self.examples) / self.replicas)

    @property
    def padded_batch_size(self) -> int:
        """Places in one global batch, padding included: a multiple of `replicas`."""
        return self.per_replica_batch_size * self.replicas

    def examples_before(self, step: int) -> int:
        """The number of real examples in the first `step` batches of an epoch."""
        return min(step * self.global_batch_size, self.examples)


def epoch_order(examples: int, seed: int, epoch: int) -> np.ndarray:
    """Return an epoch's order of the `examples`: int64 [examples].

    It depends on `seed` and `epoch` alone, so a resumed run continues exactly where it stopped.

        >>> sorted(epoch_order(4, seed=0, epoch=1).tolist())
        [0, 1, 2, 3]
    """
    return np.random.default_rng([seed, epoch]).permutation(examples)


def batch_table(plan: BatchPlan, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which example is where, and its weight.

    Indices int64 [steps_per_epoch, padded_batch_size] and weights float64 of the
    same shape. Padding has index order[0] and weight 0, and the weights of every
    row sum to 1.
    """
    steps, places = plan.steps_per_epoch, plan.padded_batch_size
    indices = np.full((steps, places), order[0], dtype=np.int64)
    weights = np.zeros((steps, places))
    for step in range(steps):
        batch = order[plan.examples_before(step) : plan.examples_before(step + 1)]
        indices[step, : len(batch)] = batch
        weights[step, : len(batch)] = 1 / len(batch)
    return indices, weights


def make_batches(
    split: Split, plan: BatchPlan, orders: np.ndarray, dtype: str = "float32", first_step: int = 0
) -> tf.data.Dataset:
    """Return `split` in one or more `orders` as a dataset of (images, labels, weights) batches.

    Images `[places, 28, 28, 1]` in [0, 1] and weights `[places]` have `dtype`,
    labels `[places]` are int64; places = `plan.padded_batch_size`. Batches before
    `first_step` are left out. Each order is an epoch's, int64 [examples].
    """
    tables = [batch_table(plan, order) for order in np.atleast_2d(orders)]
    indices, weights = map(np.concatenate, zip(*tables))
    all_images, all_labels = tf.constant(split.images), tf.constant(split.labels)

    def gather(batch_indices: tf.Tensor, batch_weights: tf.Tensor):
        images = tf.cast(tf.gather(all_images, batch_indices), dtype) / 255
        return images[..., tf.newaxis], tf.gather(all_labels, batch_indices), batch_weights

    rows = (indices[first_step:], weights[first_step:].astype(dtype))
    batches = tf.data.Dataset.from_tensor_slices(rows).map(unconverted(gather))
    return without_autotune(batches.prefetch(2))


def unconverted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` as AutoGraph leaves it alone: it has no Python control flow on tensors.

    Reading and converting its source would take longer than tracing it.
    """
    return tf.autograph.experimental.do_not_convert(function)


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return `dataset` with tf.data's tuning thread switched off.

    That thread sleeps for up to a minute at a time, and an iterator that is dropped
    in an unlucky moment waits for it to wake (seen with MirroredStrategy, which
    makes several iterators). A pipeline with fixed settings has nothing to tune.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
