"""One training step on every strategy: forward, loss, gradient, update, metrics.

A global batch is cut over the replicas. Each example has a weight, and the weights of a
global batch sum to 1 (padding weighs 0; `data.batches`, `training.own_data`). A replica's
loss is the sum of its weighted losses. The optimizer adds up the gradients of the replicas,
so what is applied is the gradient of the global batch's mean loss, whatever its size and
however it is cut.

A step stands here for one replica (`make_train_replica`). Loops take it in three forms:
several steps inside one compiled function (`compile_steps`), one step that a coordinator
sends to a worker (`compile_closure`), and Keras's own step (`make_keras_loss` gives it
the same loss). Follows https://www.tensorflow.org/tutorials/distribute/custom_training.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

from ..data.batches import unconverted
from .state import ExampleValues, TrainState

Batch = tuple[Any, Any, tf.Tensor]  # features, labels, weights [per_replica_batch]
Prepare = Callable[[Any, Any, tf.Tensor], Batch]
ScaleLoss = Callable[[tf.Tensor], tf.Tensor]
ReplicaStep = Callable[[Any, Any, tf.Tensor], Any]
Steps = Callable[[Iterator, tf.Tensor], None]


def make_train_replica(
    state: TrainState,
    prepare: Prepare | None = None,
    look: Callable[[list[Any]], None] | None = None,
) -> ReplicaStep:
    """Return the training step of one replica: features, labels, weights in, its loss out.

    `prepare` is what the feed does to a replica's batch first (`training.input_feed`), `look`
    may look at its own gradients before they are added up over the replicas.
    """

    def find(*batch: Any) -> tuple[tf.Tensor, list[Any], Any]:
        variables = state.model.trainable_variables
        scale_loss = state.optimizer.scale_loss
        return find_gradients(state.model, state.example_loss, batch, variables, scale_loss)

    if state.jit_compile:  # no collective in it, which XLA couldn't wait for
        find = tf.function(find, jit_compile=True, autograph=False)

    def train_replica(features: Any, labels: Any, weights: tf.Tensor) -> tf.Tensor:
        if prepare is not None:
            features, labels, weights = prepare(features, labels, weights)
        loss, gradients, outputs = find(features, labels, weights)
        if look is not None:
            look(gradients)
        state.optimizer.apply_gradients(zip(gradients, state.model.trainable_variables))
        for metric in state.metrics.values():
            metric.update_state(labels, outputs, weights)
        return loss

    return train_replica


def find_gradients(
    model: keras.Model,
    example_loss: ExampleValues,
    batch: tuple[Any, ...],
    variables: list[Any],
    scale_loss: ScaleLoss = tf.identity,
) -> tuple[tf.Tensor, list[Any], Any]:
    """Return a batch's loss, its gradient for each of `variables`, and the model's outputs.

    `batch` is (features, labels, weights), with weights [per_replica_batch]. Without weights
    the loss is the mean over the batch. `scale_loss` is an optimizer's, which divides the
    gradients again when it applies them.
    """
    features, labels, *weights = batch
    with tf.GradientTape() as tape:
        outputs = model(features, training=True)  # [per_replica_batch, ...]
        losses = example_loss(labels, outputs)  # [per_replica_batch]
        loss = tf.reduce_sum(losses * weights[0]) if weights else tf.reduce_mean(losses)
        if model.losses:  # regularization counts once, not once a replica
            loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
        scaled = scale_loss(loss)
    return loss, tape.gradient(scaled, variables), outputs


def make_test_replica(model: keras.Model, metrics: Iterable[keras.metrics.Metric]) -> ReplicaStep:
    """Return the test step of one replica, which counts into the metrics."""

    def test_replica(features: Any, labels: Any, weights: tf.Tensor) -> None:
        outputs = model(features, training=False)  # [per_replica_batch, ...]
        for metric in metrics:
            metric.update_state(labels, outputs, weights)

    return test_replica


def compile_steps(strategy: tf.distribute.Strategy, replica_step: ReplicaStep) -> Steps:
    """Return a compiled function of an iterator and a number of steps, which runs them.

    The loop is inside the `tf.function`, which leaves Python out of the steps. AutoGraph
    converts the loop alone: no step has Python control flow on tensors (`state.check_fit` traces
    without AutoGraph too), and converting it takes half the tracing time.
    """
    replica_step = unconverted(replica_step)

    @tf.function(reduce_retracing=True)
    def run_steps(iterator: Iterator, steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            strategy.run(replica_step, args=next(iterator))

    return run_steps


def compile_closure(strategy: tf.distribute.Strategy, replica_step: ReplicaStep) -> ReplicaStep:
    """Return `replica_step` as a function that a coordinator can send to a worker."""

    @tf.function(reduce_retracing=True, autograph=False)
    def step(features: Any, labels: Any, weights: tf.Tensor) -> None:
        strategy.run(replica_step, args=(features, labels, weights))

    return step


def make_keras_loss(state: TrainState, dtype: str) -> keras.losses.Loss:
    """Return the loss that makes Keras's own step the step above: a plain weighted sum.

    Keras doesn't scale a sum, and adds up the replicas.
    """

    class WeightedSum(keras.losses.Loss):
        def call(self, y_true: Any, y_pred: Any) -> tf.Tensor:
            return state.example_loss(y_true, y_pred)

    return WeightedSum(reduction="sum", dtype=dtype)
