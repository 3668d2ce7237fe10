"""A large batch of small ones: gradients added up over micro-batches, then one update.

Goyal and others 2017 (arXiv:1706.02677), section 3, on why the loss must be divided by the
whole batch. Keras's `gradient_accumulation_steps` does the same sum; under a strategy with
replicas it works only outside a `tf.function` (Keras 3.15: its reduction is in a branch,
where `merge_call` isn't allowed). The loop here holds no branch, and works in both.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ..checks import check_count
from ..errors import InputError

Step = Callable[[Any, Any, Any], None]


def make_accumulating_step(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    per_example_loss: Callable[[Any, Any], Any],
    micro_batches: int,
) -> Step:
    """Return a compiled step of (images, labels, weights) that updates once per global batch.

    Each replica of `strategy` cuts its share, [per_replica_batch, ...], into `micro_batches` of
    equal size, one after the other, and keeps one micro-batch's activations of `model` at a
    time. As in `data.batches`, the weights of a global batch sum to 1, so the sums of gradients
    are the gradient of its mean loss. Replicas are summed once, in the update.

    Build `optimizer` in the strategy's scope first. `per_example_loss(labels, logits)` returns
    [micro_batch]. Raises InputError for `micro_batches` that isn't a whole number of at least
    1, for an optimizer that accumulates itself and, at the call, for a share that isn't
    divisible.

        step = make_accumulating_step(strategy, model, optimizer, per_example_loss, 4)
        step(images, labels, weights)
    """
    check_count("micro batches", micro_batches)
    update_replica = _make_update(model, optimizer, per_example_loss, micro_batches)
    update = tf.function(lambda *batch: strategy.run(update_replica, batch), reduce_retracing=True)

    def step(images: Any, labels: Any, weights: Any) -> None:
        for share in strategy.experimental_local_results(labels):
            check_share(len(share), micro_batches)
        update(images, labels, weights)

    return step


def _make_update(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    per_example_loss: Callable[[Any, Any], Any],
    micro_batches: int,
) -> Callable[..., None]:
    """Return one replica's update from its share of a global batch, [per_replica_batch, ...]."""
    if optimizer.gradient_accumulation_steps:
        said = "the step accumulates already; make the optimizer without"
        raise InputError(f"The optimizer has gradient_accumulation_steps already: {said}")
    variables = [variable.value for variable in model.trainable_variables]

    def update_replica(images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> None:
        pieces = tuple(cut(values, micro_batches) for values in (images, labels, weights))
        totals = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
        for number in tf.range(micro_batches):
            own_images, own_labels, own_weights = (piece[number] for piece in pieces)
            with tf.GradientTape() as tape:
                losses = per_example_loss(own_labels, model(own_images, training=True))
                loss = tf.reduce_sum(losses * own_weights)  # losses: [micro_batch]
            gradients = tape.gradient(loss, variables)
            totals = [total + part for total, part in zip(totals, gradients)]
        optimizer.apply_gradients(zip(totals, variables))

    return update_replica


def cut(values: tf.Tensor, pieces: int) -> tf.Tensor:
    """Return [n, ...] as [pieces, n / pieces, ...]."""
    shape = tf.shape(values)
    return tf.reshape(values, tf.concat([[pieces, shape[0] // pieces], shape[1:]], axis=0))


def check_share(examples: int, micro_batches: int) -> None:
    """Raise InputError unless a replica's `examples` divide into `micro_batches`."""
    if examples == 0 or examples % micro_batches:
        raise InputError(
            f"micro_batches must divide the {examples} examples of a replica, got {micro_batches}."
        )
