"""How lab 03 tries Keras code under a strategy, and what it should find.

Every `try_…` runs a learner's function for real and returns plain data; the
`expect_…` beside it computes the same data with NumPy, for the right way and for
each known mistake.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.checking import refuse, require_value, show
from distlab.exercises.lab02 import make_mirrored

EPSILON = 1e-7  # Keras keeps probabilities this far from 0 and 1


def draw_digits(seed: int, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return so many training examples of MNIST: uint8 [examples, 28, 28], int64 [examples]."""
    from utils.data import load

    picks = np.random.default_rng(seed).choice(10_000, size=examples, replace=False)
    train = load("mnist").train
    return train.images[picks], train.labels[picks]


# ---- how the functions are tried


def try_input(make_input: Callable[..., Any], seed: int, examples: int, batch: int) -> Any:
    """Return what the data set of `make_input` holds, in a few numbers."""
    images, labels = draw_digits(seed, examples)
    dataset = require_value(make_input(images, labels, batch), "make_input", "a tf.data.Dataset")
    batches = list(dataset)
    if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in batches):
        raise refuse("make_input: each element should be a pair, (images, labels)")
    return describe_pairs([(np.asarray(x), np.asarray(y)) for x, y in batches])


def describe_pairs(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Return what a data set holds: batch sizes, shape, type and range of pixels, labels.

    The sum of all pixels is there for each label, which tells images that have got
    another one's label.
    """
    if not pairs:
        return {"batch sizes": []}
    labels = np.concatenate([np.ravel(y) for _, y in pairs]).astype(int)
    sums = [np.sum(image, dtype=float) for x, _ in pairs for image in x]
    seen = len(sums) == len(labels)
    ends = [(float(x.min()), float(x.max())) for x, _ in pairs]
    return {
        "batch sizes": [len(x) for x, _ in pairs],
        "image shape": list(pairs[0][0].shape[1:]),
        "pixel type": str(pairs[0][0].dtype),
        "pixel range": [float(np.min(ends)), float(np.max(ends))],
        "examples of each label": np.bincount(labels, minlength=10).tolist(),
        "pixels of each label": np.bincount(labels, sums, minlength=10).tolist() if seen else [],
    }


def try_model(make_model: Callable[..., Any], replicas: int, seed: int) -> dict[str, Any]:
    """Make the model, put known weights in, and evaluate it on 24 images of MNIST."""
    import tensorflow as tf

    strategy = make_mirrored(replicas)
    model = require_value(make_model(strategy), "make_model", "a compiled Keras model")
    if not model.weights:
        raise refuse("the model has no weights yet: begin it with keras.Input((28, 28, 1))")
    if not model.compiled:
        raise refuse("make_model returned a model that was not compiled: model.compile()")
    images, labels = draw_digits(seed, 24)
    kernel = softmax.draw_weights(seed)
    model.set_weights([kernel] + [np.zeros_like(w) for w in model.get_weights()[1:]])
    pixels = images[..., None].astype("float32") / 255
    batch = tf.data.Dataset.from_tensors((pixels, labels))
    found = model.evaluate(batch, verbose=0, return_dict=True)
    names = [name for name in found if "acc" in name]
    return {
        "copies of each weight": len(strategy.experimental_local_results(model.weights[0].value)),
        "optimizer": type(model.optimizer).__name__,
        "learning rate": float(np.asarray(model.optimizer.learning_rate)),
        "largest output": float(np.max(model(pixels, training=False))),
        "loss": float(found["loss"]),
        "accuracy": float(found[names[0]]) if names else None,
    }


def try_callbacks(make_callbacks: Callable[..., Any], boundaries: Any, rates: Any) -> Any:
    """Run a real `fit`, one step an epoch, in which the weight falls by the learning rate.

    Returns the rate of each epoch as used, and as the callback noted it down.
    """
    import keras

    model = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    model.compile(keras.optimizers.SGD(0.5), loss=lambda y, output: keras.ops.mean(output))
    noted: list[float] = []
    weights = [0.0]
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: weights.append(float(model.get_weights()[0][0, 0]))
    )
    made = require_value(make_callbacks(boundaries, rates, noted), "make_callbacks", "a list")
    if not isinstance(made, list | tuple):
        raise refuse(f"make_callbacks returned {show(made)}: a list of callbacks is wanted")
    callbacks = [*made, watch]
    one = np.ones((1, 1))
    model.fit(one, one, epochs=boundaries[-1] + 2, verbose=0, callbacks=callbacks)
    return {"used": (-np.diff(weights)).tolist(), "noted": [float(x) for x in noted]}


def try_restore(restore_best: Callable[..., Any], seed: int, losses: Sequence[float]) -> np.ndarray:
    """Return the weights [3, 2] of a model that `restore_best` has loaded."""
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, use_bias=False)])
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(1, len(losses) + 1):
            model.set_weights([weights_of_epoch(seed, epoch)])
            model.save_weights(Path(folder) / f"epoch-{epoch:02d}.weights.h5")
        model.set_weights([weights_of_epoch(seed, 0)])
        restore_best(model, folder, list(losses))
        return np.asarray(model.get_weights()[0], dtype=float)


def weights_of_epoch(seed: int, epoch: int) -> np.ndarray:
    """Return the weights [3, 2] that the model had at the end of an epoch; 0: at the start."""
    return np.random.default_rng([seed, epoch]).normal(size=(3, 2)).astype("float32")


def try_reload(save_and_reload: Callable[..., Any], replicas: int, seed: int) -> dict[str, Any]:
    """Return what the reloaded model is: its file, its copies, its outputs for 3 inputs."""
    import keras

    strategy = make_mirrored(replicas)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(2, kernel_initializer="zeros", use_bias=False)]
    )
    model.compile("sgd", "mse")
    inputs, kernel = draw_layer(seed)
    model.set_weights([kernel])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        loaded = save_and_reload(model, path, strategy)
        require_value(loaded, "save_and_reload", "the loaded model")
        there = path.exists()
    copies = max(len(set(_devices(v))) for v in loaded.weights)
    return {
        "file written": there,
        "copies of each weight": copies,
        "outputs": np.asarray(loaded(inputs), dtype=float),
    }


def _devices(variable: Any) -> list[str]:
    value = variable.value
    return [str(copy.device) for copy in getattr(value, "values", (value,))]


def draw_layer(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs [3, 4] and a kernel [4, 2]."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(3, 4)).astype("float32"), rng.normal(size=(4, 2)).astype("float32")


# ---- what the answers should be, and what the known mistakes give


def expect_input(seed: int, examples: int, batch: int, way: str = "right") -> dict[str, Any]:
    """Return what `try_input` should find, or finds for the mistake `way`."""
    images, labels = draw_digits(seed, examples)
    kind = "float64" if way == "double-precision" else "float32"
    pixels = images.astype(kind) / np.dtype(kind).type(1 if way == "not-scaled" else 255)
    pixels = pixels[..., None] if way != "no-channel" else pixels
    stops = list(range(batch, examples, batch)) + [examples]
    if way == "rest-dropped":
        stops = [stop for stop in stops if stop % batch == 0]
    if way == "one-batch":
        stops = stops[:1]
    starts = [0, *stops[:-1]]
    return describe_pairs([(pixels[a:b], labels[a:b]) for a, b in zip(starts, stops, strict=True)])


def expect_model(replicas: int, seed: int, way: str = "right") -> dict[str, Any]:
    """Return what `try_model` should find, or finds for the mistake `way`."""
    images, labels = draw_digits(seed, 24)
    logits = images.reshape(24, -1) / 255 @ softmax.draw_weights(seed)
    seen = logits
    outputs = softmax.probabilities(logits) if way == "softmax-layer" else logits
    if way == "not-from-logits":
        seen = np.log(np.clip(logits, EPSILON, 1 - EPSILON))
    return {
        "copies of each weight": 1 if way == "outside-scope" else replicas,
        "optimizer": "Adam" if way == "adam" else "SGD",
        "learning rate": 0.01 if way == "other-rate" else 0.1,
        "largest output": float(np.max(outputs)),
        "loss": float(softmax.losses(seen, labels).mean()),
        "accuracy": None if way == "no-accuracy" else float(np.mean(logits.argmax(1) == labels)),
    }


def expect_callbacks(boundaries: Any, rates: Any, way: str = "right") -> dict[str, Any]:
    """Return what `try_callbacks` should find, or finds for the mistake `way`."""
    shift = {"late-by-one": -1, "early-by-one": 1}.get(way, 0)
    epochs = range(boundaries[-1] + 2)
    used = [rates[sum(edge <= epoch + shift for edge in boundaries)] for epoch in epochs]
    if way == "never-changed":
        used = [0.5] * len(used)
    noted = [0.5, *used[:-1]] if way == "noted-before" else used
    noted = used[-1:] * len(used) if way == "variable-noted" else noted
    return {"used": used, "noted": [] if way == "not-noted" else noted}


def expect_restore(seed: int, losses: Sequence[float], way: str = "right") -> np.ndarray:
    """Return what `try_restore` should find, or finds for the mistake `way`."""
    best = int(np.argmin(losses)) + 1
    epoch = {"last-epoch": len(losses), "highest-loss": int(np.argmax(losses)) + 1,
             "counted-from-zero": best - 1, "not-loaded": 0}.get(way, best)  # fmt: skip
    return weights_of_epoch(seed, epoch)


def expect_reload(replicas: int, seed: int, way: str = "right") -> dict[str, Any]:
    """Return what `try_reload` should find, or finds for the mistake `way`."""
    inputs, kernel = draw_layer(seed)
    copies = {"outside-scope": 1, "not-saved": 1, "another-strategy": 4}.get(way, replicas)
    return {
        "file written": way != "not-saved",
        "copies of each weight": copies,
        "outputs": inputs @ (kernel * (way != "fresh-weights")),
    }
