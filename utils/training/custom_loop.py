"""The custom loop: several steps inside one compiled function, for any strategy.

Follows TensorFlow's guide to custom training with `tf.distribute.Strategy`; the
differences are the weights that make uneven batches exact (`data.batches`) and
the loop inside the `tf.function`, which leaves the Python interpreter out of
the training step.
"""

from collections.abc import Callable, Iterator

import tensorflow as tf

from .parts import Parts, make_loss
from .sharding import Prepare

Steps = Callable[[Iterator, tf.Tensor], None]


def make_train_steps(parts: Parts, dtype: str, prepare: Prepare | None = None) -> Steps:
    """Return a compiled function that takes an iterator and a number of steps, and trains."""
    return compile_steps(parts.strategy, make_train_replica(parts, dtype, prepare))


def make_train_replica(
    parts: Parts, dtype: str, prepare: Prepare | None = None
) -> Callable[..., None]:
    """Return the training step of one replica: images, labels, weights in, nothing out.

    A replica's loss is the sum of its weighted losses; the optimizer adds up the
    gradients of the replicas, and the weights of a global batch sum to 1, so what
    is applied is the gradient of the global batch's mean loss. `prepare` is what the
    feed does to the batch first (`training.sharding`).
    """
    per_example_loss = make_loss(dtype, reduction="none")

    def train_replica(images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> None:
        if prepare is not None:
            images, labels, weights = prepare(images, labels, weights)
        with tf.GradientTape() as tape:
            logits = parts.model(images, training=True)  # [per_replica_batch, 10]
            loss = tf.reduce_sum(per_example_loss(labels, logits) * weights)
            if parts.model.losses:
                loss += tf.nn.scale_regularization_loss(tf.add_n(parts.model.losses))
        variables = parts.model.trainable_variables
        parts.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        parts.loss_metric.update_state(labels, logits, weights)
        parts.accuracy_metric.update_state(labels, logits, weights)

    return train_replica


def make_test_steps(parts: Parts) -> Steps:
    """Return a compiled function of an iterator and a number of steps that fills the metrics."""
    return compile_steps(parts.strategy, make_test_replica(parts))


def make_test_replica(parts: Parts) -> Callable[..., None]:
    """Return the test step of one replica, which counts into the metrics."""

    def test_replica(images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> None:
        logits = parts.model(images, training=False)  # [per_replica_batch, 10]
        parts.loss_metric.update_state(labels, logits, weights)
        parts.accuracy_metric.update_state(labels, logits, weights)

    return test_replica


def compile_steps(strategy: tf.distribute.Strategy, replica_step: Callable[..., None]) -> Steps:
    """Return a compiled function of an iterator and a number of steps that runs so many."""

    @tf.function(reduce_retracing=True)
    def run_steps(iterator: Iterator, steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            strategy.run(replica_step, args=next(iterator))

    return run_steps


def reset_metrics(parts: Parts) -> None:
    parts.loss_metric.reset_state()
    parts.accuracy_metric.reset_state()


def read_metrics(parts: Parts) -> tuple[float, float]:
    """Return mean loss and accuracy over all replicas since the last reset."""
    return float(parts.loss_metric.result()), float(parts.accuracy_metric.result())


def evaluate(parts: Parts, test_steps: Steps, batches: tf.data.Dataset) -> tuple[float, float]:
    """Return loss and accuracy over all real examples of `batches`."""
    reset_metrics(parts)
    steps = int(batches.cardinality())
    distributed = parts.strategy.experimental_distribute_dataset(batches)
    test_steps(iter(distributed), tf.constant(steps))
    return read_metrics(parts)
