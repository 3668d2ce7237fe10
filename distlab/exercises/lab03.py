"""Lab 03, Keras under a strategy: data sets, models and callbacks are used, and looked at."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.comparing import show
from distlab.exercises.exercise import Exercise, each
from distlab.exercises.lab02 import make_mirrored
from distlab.exercises.refusing import refuse, require_value


def draw_digits(seed: int, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return so many training examples of MNIST: uint8 [examples, 28, 28], int64 [examples]."""
    from utils.data import load

    picks = np.random.default_rng(seed).choice(10_000, size=examples, replace=False)
    train = load("mnist").train
    return train.images[picks], train.labels[picks]


# ---- exercise 1: the input


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


INPUT = Exercise(
    lab="lab03",
    name="input",
    function="make_input",
    examples=((1, 70, 32), (2, 64, 16)),
    mistakes={
        "not-scaled": "pixels reach 255: scale them to [0, 1]",
        "rest-dropped": "the examples of the last, smaller batch are dropped",
        "no-channel": "an image has a channel axis: [28, 28, 1]",
        "one-batch": "only the first batch is there: an epoch goes over all examples",
        "double-precision": "pixels are float64: NumPy divides integers into that. Convert to "
        "float32, half the bytes",
    },
    hint="pairs (images, labels) in batches: float32 [28, 28, 1] in [0, 1], every example once, "
    "each image with its own label",
    shows_case=False,
    run=each(try_input),
)


# ---- exercise 2: the model


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


MODEL = Exercise(
    lab="lab03",
    name="model",
    function="make_model",
    examples=((2, 3), (4, 4)),
    mistakes={
        "outside-scope": "one copy of each weight: make and compile the model in strategy.scope()",
        "no-accuracy": "accuracy is not among the metrics",
        "not-from-logits": "the loss takes logits for probabilities: say from_logits=True",
        "other-rate": "SGD's own learning rate was left: 0.1 is wanted",
        "softmax-layer": "the outputs are probabilities: logits, without an activation, are wanted",
        "adam": "the optimizer is Adam: SGD is wanted",
    },
    hint="one Dense layer of 10 logits, SGD at 0.1, cross-entropy from logits, accuracy",
    shows_case=False,
    run=each(try_model),
)


# ---- exercise 3: callbacks


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


CALLBACKS = Exercise(
    lab="lab03",
    name="callbacks",
    function="make_callbacks",
    examples=(((2, 3), (0.4, 0.2, 0.1)), ((1,), (0.3, 0.05))),
    mistakes={
        "late-by-one": "each rate comes one epoch late: epoch 2 is the third, and boundary 2 "
        "begins there",
        "early-by-one": "each rate comes one epoch early: Keras counts epochs from 0",
        "never-changed": "the learning rate never changed: is the schedule among the callbacks?",
        "noted-before": "the rate was noted before the schedule had set it: note it at the "
        "epoch's end",
        "variable-noted": "the optimizer's variable itself was appended, again and again, and "
        "shows its last value: append float(…) of it",
        "not-noted": "nothing was noted: append the rate to the list that was handed in",
    },
    hint="a LearningRateScheduler, and a callback that appends the optimizer's learning rate",
    shows_case=False,
    run=each(try_callbacks),
)


# ---- exercise 4: the best epoch


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


RESTORE = Exercise(
    lab="lab03",
    name="restore",
    function="restore_best",
    examples=((5, (0.9, 0.4, 0.6)), (6, (0.8, 0.7, 0.3, 0.5))),
    mistakes={
        "last-epoch": "these are the last epoch's weights, not the best's",
        "highest-loss": "these are the weights with the highest loss",
        "counted-from-zero": "files count epochs from 1, the list of losses from 0",
        "not-loaded": "the model still has the weights it came with",
    },
    hint="find the epoch with the lowest loss, then load its file",
    shows_case=False,
    run=each(try_restore),
)


# ---- exercise 5: save and load


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


RELOAD = Exercise(
    lab="lab03",
    name="reload",
    function="save_and_reload",
    examples=((2, 7), (3, 8)),
    mistakes={
        "outside-scope": "loaded outside strategy.scope(): there is one copy of each weight",
        "not-saved": "no file was written, so nothing was loaded from one",
        "fresh-weights": "the weights are those of a new model: the trained ones are lost",
        "another-strategy": "loaded under another strategy: use the one that was handed in",
    },
    hint="save the model to the path, then load it in the scope of the strategy",
    shows_case=False,
    run=each(try_reload),
)
