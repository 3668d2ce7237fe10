"""Lab 05: one step of plain gradient descent on four real replicas, and what a loss makes of it."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.comparing import show
from distlab.exercises.exercise import Answer, Cases
from distlab.exercises.refusing import refuse, require_value
from utils.data import split_batch

REPLICAS = 4
FULL_BATCH = 64  # of the steps that exercise 5 reports
Step = Mapping[str, Any]
Batch = tuple[np.ndarray, np.ndarray]  # images [examples, inputs], labels [examples]


def make_step(
    seed: int, examples: int = 64, global_batch_size: int | None = None
) -> dict[str, Any]:
    """Return one step's inputs as plain data, drawn from `seed`.

    `picks` are the places of `examples` training images of Fashion-MNIST, `weights`
    one sample weight for each, `model` the seed of the model's first weights.
    """
    rng = np.random.default_rng(seed)
    return {
        "picks": rng.integers(0, 10_000, size=examples).tolist(),
        "weights": rng.uniform(0.25, 4.0, size=examples).tolist(),
        "model": int(rng.integers(2**31)),
        "global_batch_size": examples if global_batch_size is None else global_batch_size,
    }


def read_batch(step: Step) -> Batch:
    """Return the step's images, scaled to [0, 1], and labels."""
    return softmax.read_examples(step["picks"])


def draw_start(step: Step) -> np.ndarray:
    """Return the model's weights before the step, [784, 10]."""
    return softmax.draw_weights(step["model"])


def measure(kind: str) -> Callable[[Answer, Cases], list[Any]]:
    """Return the way to run a loss of this kind: cases are arguments of `make_step`.

    `kind` says what it is called with: "plain" (errors, global_batch_size), "weighted" (losses,
    weights, global_batch_size), "uneven" (losses, batch_examples, global_batch_size).
    """
    return lambda loss, cases: measure_updates(loss, [make_step(*case) for case in cases], kind)


def measure_updates(loss: Callable[..., Any], steps: Sequence[Step], kind: str) -> list[np.ndarray]:
    """Take each step on four replicas. Return the updates, [inputs, outputs] each.

    Each step has its own model. All run in one call of the replicas.
    Raises AssertionError if the loss returns anything but one number.
    """
    import tensorflow as tf

    batches = [read_batch(step) for step in steps]
    starts = [draw_start(step) for step in steps]
    strategy = get_strategy()
    with strategy.scope():
        models = [tf.Variable(w, aggregation=tf.VariableAggregation.SUM) for w in starts]

    def cut_shares(context: Any) -> list[tuple[Any, ...]]:
        replica = context.replica_id_in_sync_group
        return [_cut_share(step, batch, replica, kind) for step, batch in zip(steps, batches)]

    def take_steps(shares: Sequence[tuple[Any, ...]]) -> None:
        found = [_differentiate(loss, *each, kind) for each in zip(shares, models, steps)]
        tf.distribute.get_replica_context().merge_call(_subtract, args=(models, found))

    shares = strategy.experimental_distribute_values_from_function(cut_shares)
    strategy.run(take_steps, args=(shares,))
    return [start - weights.numpy() for start, weights in zip(starts, models)]


@cache
def get_strategy() -> Any:
    from utils.devices import use_logical_devices
    from utils.strategies import make_strategy

    use_logical_devices(REPLICAS)
    return make_strategy("mirrored", REPLICAS)


def _cut_share(step: Step, batch: Batch, replica: int, kind: str) -> tuple[Any, ...]:
    """Return a replica's images, labels and, if the loss takes them, sample weights."""
    import tensorflow as tf

    columns = (*batch, np.asarray(step["weights"])) if kind == "weighted" else batch
    return tuple(tf.constant(cut_column(column)[replica]) for column in columns)


def cut_column(column: np.ndarray) -> list[np.ndarray]:
    """Return each replica's part of a column of the batch, as TensorFlow splits a batch."""
    return np.split(column, np.cumsum(split_batch(len(column), REPLICAS))[:-1])


def _differentiate(loss: Any, share: tuple[Any, ...], weights: Any, step: Step, kind: str) -> Any:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        losses = _find_losses(share, weights, kind)
        value = _call_loss(loss, losses, share, step, kind)
    gradient = tape.gradient(value, weights)
    if gradient is None and not len(share[1]):
        return tf.zeros_like(weights)  # nothing of it depends on the weights
    if gradient is None:
        raise refuse(
            f"{_name(loss)} must return a number that depends on the losses. Is it a constant, or "
            "does it go through NumPy?"
        )
    return gradient


def _subtract(strategy: Any, models: Sequence[Any], found: Sequence[Any]) -> None:
    """Sum the replicas' gradients and subtract them: one all-reduce for all models."""
    totals = strategy.extended.batch_reduce_to("SUM", list(zip(found, models)))
    for weights, total in zip(models, totals):
        strategy.extended.update(weights, lambda w, g: w.assign_sub(g), (total,), group=False)


def _find_losses(share: tuple[Any, ...], weights: Any, kind: str) -> Any:
    """Return the share's losses [share]; for "plain" an error for each output, [share, 10]."""
    import tensorflow as tf

    outputs = tf.matmul(share[0], weights)
    if kind == "plain":
        return tf.square(outputs - tf.one_hot(share[1], outputs.shape[1], dtype=outputs.dtype))
    return tf.nn.sparse_softmax_cross_entropy_with_logits(share[1], outputs)


def _call_loss(loss: Any, losses: Any, share: tuple[Any, ...], step: Step, kind: str) -> Any:
    import tensorflow as tf

    more = [*share[2:], step["global_batch_size"]]
    value = loss(losses, *([len(step["picks"])] if kind == "uneven" else []), *more)
    if isinstance(value, int | float) and value == 0 and not len(share[0]):
        value = tf.zeros([], losses.dtype)
    require_value(value, _name(loss), "a scalar tensor")
    if not tf.is_tensor(value) or value.shape.rank != 0:
        shown = f"a tensor of shape {list(value.shape)}" if tf.is_tensor(value) else show(value)
        raise refuse(f"{_name(loss)} returned {shown}, not a scalar tensor")
    return value


def _name(loss: Any) -> str:
    return getattr(loss, "__name__", "the loss")


def compare_updates(given: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """Return how long `given` is along `wanted`, and the residual: what is left of it across."""
    square = float(np.sum(wanted * wanted))
    ratio = float(np.sum(given * wanted)) / square
    return ratio, float(np.linalg.norm(given - ratio * wanted)) / square**0.5
