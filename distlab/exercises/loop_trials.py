"""How lab 04 tries the parts of a custom loop on real replicas, and what it should find.

Every `try_…` runs a learner's function for real and returns plain data; the
`expect_…` beside it computes the same data with NumPy, for the right way and for
each known mistake.
"""

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.checking import own_frames, read_number
from distlab.exercises.lab02 import make_mirrored
from distlab.exercises.loss_scaling import share_out

RATE = 0.5  # learning rate of every trial
MOMENTUM = 0.875  # exact in float32, in which Keras keeps it


def draw_batch(seed: int, examples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images [examples, 784], labels [examples] and first weights [784, 10]."""
    picks = np.random.default_rng(seed).choice(10_000, size=examples, replace=False)
    return *softmax.read_examples(picks), softmax.draw_weights(seed)


def _make_model(strategy: Any, kernel: np.ndarray) -> Any:
    import keras

    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((kernel.shape[0],), dtype="float64"),
                keras.layers.Dense(kernel.shape[1], use_bias=False, dtype="float64"),
            ]
        )
    model.set_weights([kernel])
    return model


def _make_optimizer(strategy: Any, model: Any, momentum: float = 0.0) -> Any:
    import keras

    with strategy.scope():
        optimizer = keras.optimizers.SGD(RATE, momentum=momentum)
        optimizer.build(model.trainable_variables)
    return optimizer


# ---- exercise 1: one step


def try_step(train_step: Callable[..., Any], seed: int, examples: int) -> dict[str, Any]:
    """Run one step on four replicas; return the weights after it and the sum of the losses."""
    import tensorflow as tf

    images, labels, kernel = draw_batch(seed, examples)
    strategy = make_mirrored(4)
    model = _make_model(strategy, kernel)
    optimizer = _make_optimizer(strategy, model)
    edges = np.cumsum([0, *share_out(examples)])

    def give(column: np.ndarray) -> Any:
        return strategy.experimental_distribute_values_from_function(
            lambda c: tf.constant(column[slice(*edges[c.replica_id_in_sync_group :][:2])])
        )

    arguments = (model, optimizer, give(images), give(labels), examples)
    with own_frames():
        found = strategy.run(train_step, args=arguments)
    parts = [read_number(x, "train_step") for x in strategy.experimental_local_results(found)]
    return {"weights": np.asarray(model.get_weights()[0]), "sum of losses": sum(parts)}


def expect_step(seed: int, examples: int, way: str = "right") -> dict[str, Any]:
    """Return what `try_step` should find, or finds for the mistake `way`."""
    images, labels, kernel = draw_batch(seed, examples)
    logits = images @ kernel
    shares = share_out(examples)
    own = np.concatenate([np.full(n, 1 / n) for n in shares if n])
    factors = own if way == "own-mean" else np.full(examples, 1 / examples)
    loss = float(np.sum(factors * softmax.losses(logits, labels)))
    times = {"not-applied": 0.0, "uphill": -1.0, "applied-twice": 2.0}.get(way, 1.0)
    update = images.T @ (softmax.slopes(logits, labels) * factors[:, None])
    loss *= examples if way == "unscaled-loss" else 1
    return {"weights": kernel - times * RATE * update, "sum of losses": loss}


# ---- exercise 2: one epoch, and exercise 3: accuracy


def try_epoch(run_epoch: Callable[..., Any], losses: Sequence[float], batch: int) -> float:
    """Return the epoch's mean loss that `run_epoch` finds, where example k has `losses[k]`."""
    import tensorflow as tf

    strategy = make_mirrored(2)
    data = tf.data.Dataset.from_tensor_slices(np.asarray(losses)).batch(batch)

    def step(share: Any) -> Any:
        return tf.reduce_sum(share), tf.size(share, out_type=tf.int64)

    found = run_epoch(strategy, strategy.experimental_distribute_dataset(_quiet(data)), step)
    return read_number(found, "run_epoch")


def _quiet(data: Any) -> Any:
    from utils.data.batches import without_autotune

    return without_autotune(data)


def cut(examples: int, batch: int) -> list[slice]:
    """Return the places of each batch."""
    return [slice(k, min(k + batch, examples)) for k in range(0, examples, batch)]


def expect_epoch(losses: Sequence[float], batch: int, way: str = "right") -> float:
    """Return what `try_epoch` should find, or finds for the mistake `way`."""
    batches = [np.asarray(losses)[part] for part in cut(len(losses), batch)]
    if way == "mean-of-batches":
        return float(np.mean([b.mean() for b in batches]))
    if way == "last-batch":
        return float(batches[-1].mean())
    if way == "first-replica":
        return float(np.concatenate([b[: -(-len(b) // 2)] for b in batches]).mean())
    if way == "full-batches":
        return float(np.sum(losses)) / (len(batches) * batch)
    return float(np.mean(losses))


def try_accuracy(evaluate: Callable[..., Any], seed: int, examples: int, batch: int) -> float:
    """Return the accuracy that `evaluate` finds for a known model on so many test images."""
    import tensorflow as tf

    images, labels, kernel = draw_test(seed, examples)
    strategy = make_mirrored(2)
    model = _make_model(strategy, kernel)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch)
    found = evaluate(strategy, model, strategy.experimental_distribute_dataset(_quiet(data)))
    return read_number(found, "evaluate")


def draw_test(seed: int, examples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return test images and labels, and weights that get about half of them right.

    The last, smaller batch is all right, so that it weighs differently from the rest.
    """
    rng = np.random.default_rng(seed)
    images, labels = softmax.read_examples(rng.choice(2000, examples, replace=False), test=True)
    wanted = np.where(rng.random(examples) < 0.5, labels, (labels + 1) % 10)
    wanted[-examples // 4 :] = labels[-examples // 4 :]
    kernel, *_ = np.linalg.lstsq(images, np.eye(10)[wanted], rcond=None)
    return images, labels, kernel


def expect_accuracy(seed: int, examples: int, batch: int, way: str = "right") -> float:
    """Return what `try_accuracy` should find, or finds for the mistake `way`."""
    images, labels, kernel = draw_test(seed, examples)
    return expect_epoch(((images @ kernel).argmax(axis=1) == labels).astype(float), batch, way)


# ---- exercise 4: save and resume


def try_resume(
    functions: tuple[Callable[..., Any], Callable[..., Any]], seed: int, saved: int, total: int
) -> dict[str, Any]:
    """Train `saved` epochs on two replicas, save after each, resume without a strategy.

    `functions` are `save_state` and `load_state`. Returns the weights [4, 3] after
    `total` epochs, and the epochs done that `load_state` said: of this run, and of an
    empty folder.
    """
    import tensorflow as tf

    save_state, load_state = functions
    gradients, kernel = draw_gradients(seed, total)
    with tempfile.TemporaryDirectory() as folder:
        strategy = make_mirrored(2)
        model = _make_model(strategy, kernel)
        optimizer = _make_optimizer(strategy, model, MOMENTUM)
        for epoch in range(saved):
            _apply(strategy, optimizer, model, gradients[epoch])
            save_state(folder, model, optimizer, epoch + 1)
        alone = tf.distribute.get_strategy()
        model = _make_model(alone, np.zeros_like(kernel))
        optimizer = _make_optimizer(alone, model, MOMENTUM)
        done = int(read_number(load_state(folder, model, optimizer), "load_state"))
    nothing = _load_nothing(load_state, kernel)
    for epoch in range(min(max(done, 0), total), total):
        _apply(alone, optimizer, model, gradients[epoch])
    weights = np.asarray(model.get_weights()[0])
    return {"epochs done": done, "epochs in an empty folder": nothing, "weights": weights}


def _load_nothing(load_state: Callable[..., Any], kernel: np.ndarray) -> Any:
    """Return what `load_state` says of an empty folder; "an error" if it stops with one."""
    import tensorflow as tf

    alone = tf.distribute.get_strategy()
    model = _make_model(alone, kernel)
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = load_state(folder, model, _make_optimizer(alone, model, MOMENTUM))
        except Exception:  # whatever a learner's code raises where there is nothing to read
            return "an error"
    return int(read_number(found, "load_state"))


def _apply(strategy: Any, optimizer: Any, model: Any, gradient: np.ndarray) -> None:
    import tensorflow as tf

    shares = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(gradient / context.num_replicas_in_sync)
    )  # a tensor of its own for each replica: one that all share would not be added up
    (variable,) = model.trainable_variables
    strategy.run(lambda share: optimizer.apply_gradients([(share, variable)]), args=(shares,))


def draw_gradients(seed: int, epochs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a gradient for each epoch, [epochs, 4, 3], and the first weights [4, 3]."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(epochs, 4, 3)), rng.normal(size=(4, 3))


def expect_resume(seed: int, saved: int, total: int, way: str = "right") -> dict[str, Any]:
    """Return what `try_resume` should find, or finds for the mistake `way`."""
    gradients, kernel = draw_gradients(seed, total)
    weights, velocity = kernel.copy(), np.zeros_like(kernel)
    states = [(weights, velocity)]
    for gradient in gradients[:saved]:
        velocity = MOMENTUM * velocity - RATE * gradient
        weights = weights + velocity
        states.append((weights, velocity))
    done = saved
    if way == "oldest":
        done, (weights, velocity) = 1, states[1]
    if way == "nothing-restored":
        done, weights = 0, np.zeros_like(kernel)
    if way in ("no-optimizer", "nothing-restored"):
        velocity = np.zeros_like(kernel)
    if way == "epoch-forgotten":
        done = 0
    for gradient in gradients[done:]:
        velocity = MOMENTUM * velocity - RATE * gradient
        weights = weights + velocity
    nothing = "an error" if way == "empty-folder" else 0
    return {"epochs done": done, "epochs in an empty folder": nothing, "weights": weights}
