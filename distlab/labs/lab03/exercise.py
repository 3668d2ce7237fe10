"""Lab 03, Keras under a strategy: data sets, models and callbacks are used, and looked at."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.comparing import as_numbers, show
from distlab.exercises.exercise import Exercise, each
from distlab.labs.lab02.exercise import make_mirrored
from distlab.exercises.refusing import own_frames, refuse, require_kind, require_value

TRAINING, VALIDATION, BATCH = 64, 32, 16  # of exercise 5
STEPS_DONE = 12  # by the model that exercise 4 saves


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
    dataset = require_kind(make_input(images, labels, batch), "make_input", "tf.data.Dataset")
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for pair in dataset:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise refuse("make_input: each element should be a pair, (images, labels)")
        pairs.append((np.asarray(pair[0]), np.asarray(pair[1])))
        if sum(y.size for _, y in pairs) > 2 * examples:
            return {"ends": False}
    return describe_pairs(pairs)


def describe_pairs(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Return what a data set holds: batch sizes, shape, type and range of pixels, labels.

    The sum of all pixels is there for each label, which tells images that have got
    another one's label.
    """
    if not pairs:
        return {"ends": True, "batch sizes": []}
    labels = np.concatenate([np.ravel(y) for _, y in pairs]).astype(int)
    sums = [np.sum(image, dtype=float) for x, _ in pairs for image in x]
    seen = len(sums) == len(labels)
    ends = [(float(x.min()), float(x.max())) for x, _ in pairs]
    return {
        "ends": True,
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
        "endless": "one pass over it does not end after all examples: repeat() starts again, and "
        "fit does its own repeating, epoch by epoch",
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
    with own_frames():
        model = make_model(strategy)
    require_kind(model, "make_model", "keras.Model")
    if not model.weights:
        raise refuse(
            "the model has no weights yet: begin it with keras.Input((28, 28, 1)), or "
            "build it: model.build((None, 28, 28, 1))"
        )
    if not model.compiled:
        raise refuse("make_model returned a model that was not compiled: model.compile()")
    _put_weights(model, softmax.draw_weights(seed))
    images, labels = draw_digits(seed, 24)
    pixels = images[..., None].astype("float32") / 255
    batch = tf.data.Dataset.from_tensors((pixels, labels))
    with own_frames():
        found = model.evaluate(batch, verbose=0, return_dict=True)
    names = [name for name in found if "acc" in name]
    optimizer = model.optimizer
    return {
        "copies of each weight": _count_copies(strategy, model.weights[0]),
        "copies of the step counter": _count_copies(strategy, optimizer.iterations),
        "optimizer": type(optimizer).__name__,
        "learning rate": float(np.asarray(optimizer.learning_rate)),
        "momentum": float(getattr(optimizer, "momentum", 0.0) or 0.0),
        "largest output": float(np.max(model(pixels, training=False))),
        "loss": float(found["loss"]),
        "accuracy": float(found[names[0]]) if names else None,
    }


def _put_weights(model: Any, kernel: np.ndarray) -> None:
    shapes = [list(weights.shape) for weights in model.weights]
    if shapes not in ([[784, 10], [10]], [[784, 10]]):
        raise refuse(
            f"the model's weights have the shapes {shapes}: Flatten and one Dense layer of 10 make "
            "[784, 10] and [10]"
        )
    model.set_weights([kernel] + [np.zeros_like(w) for w in model.get_weights()[1:]])


def _count_copies(strategy: Any, variable: Any) -> int:
    return len(strategy.experimental_local_results(variable.value))


MODEL = Exercise(
    lab="lab03",
    name="model",
    function="make_model",
    examples=((3, 3),),
    mistakes={
        "outside-scope": "one copy of each weight: make and compile the model in strategy.scope()",
        "compiled-outside": "the weights have their copies, the optimizer does not: made outside "
        "the scope, it counts every replica's step, and schedules run too fast",
        "with-momentum": "this SGD has momentum: use it without",
        "no-accuracy": "accuracy is not among the metrics",
        "not-from-logits": "the loss takes logits for probabilities: say from_logits=True",
        "other-rate": "SGD's own learning rate was left: set 0.1",
        "softmax-layer": "the outputs are probabilities: return logits, without an activation",
        "adam": "the optimizer is Adam: use SGD",
    },
    hint="one Dense layer of 10 logits, SGD at 0.1, cross-entropy from logits, accuracy",
    shows_case=False,
    run=each(try_model),
)


# ---- exercise 3: callbacks


def try_callbacks(make_callbacks: Callable[..., Any], boundaries: Any, rates: Any) -> Any:
    """Run a real `fit`, two steps an epoch, in each of which the weight falls by the rate.

    Returns the rate of each epoch as used, and as the callback noted it down.
    """
    import keras

    model = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    loss = lambda y, output: keras.ops.mean(output)  # noqa: E731 - its slope is 1
    model.compile(keras.optimizers.SGD(0.5), loss=loss, run_eagerly=True)
    noted: list[float] = []
    weights, counts = [0.0], []  # counts: of what was noted by the end of each epoch

    def look(epoch: int, logs: Any) -> None:
        weights.append(float(model.get_weights()[0][0, 0]))
        counts.append(len(noted))

    watch = keras.callbacks.LambdaCallback(on_epoch_end=look)
    made = require_value(make_callbacks(boundaries, rates, noted), "make_callbacks", "a list")
    if not isinstance(made, list | tuple):
        raise refuse(f"make_callbacks returned {show(made)}: return a list of callbacks")
    callbacks = [*made, watch]
    two = np.ones((2, 1))
    model.fit(two, two, batch_size=1, epochs=boundaries[-1] + 2, verbose=0, callbacks=callbacks)
    if len(noted) == len(counts) and counts != list(range(1, len(counts) + 1)):
        raise refuse(
            f"{counts[0]} of the {len(noted)} rates were noted by the end of the first epoch: note "
            "one rate at the end of every epoch, the one that was in use"
        )
    return {"used": (-np.diff(weights) / 2).tolist(), "noted": [float(x) for x in noted]}


CALLBACKS = Exercise(
    lab="lab03",
    name="callbacks",
    function="make_callbacks",
    examples=(((2, 3), (0.1, 0.4, 0.2)), ((1,), (0.3, 0.05))),
    mistakes={
        "late-by-one": "each rate comes one epoch late: epoch 2 is the third, and boundary 2 "
        "begins there",
        "early-by-one": "each rate comes one epoch early: Keras counts epochs from 0",
        "never-changed": "the learning rate never changed: is the schedule among the callbacks?",
        "noted-before": "the rate was noted before the schedule had set it: note it at the "
        "epoch's end",
        "variable-noted": "the optimizer's variable itself was appended, again and again, and "
        "shows its last value: append float(…) of it",
        "not-noted": "nothing was noted: append the rate to the list that was passed",
        "noted-each-batch": "noted after every batch: on_epoch_end comes once an epoch",
        "rates-sorted": "the rates were used in another order than they came in",
    },
    hint="a LearningRateScheduler, and a callback that appends the optimizer's learning rate",
    shows_case=False,
    run=each(try_callbacks),
)


# ---- exercise 4: save and load


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
    model.optimizer.build(model.trainable_variables)
    model.optimizer.iterations.assign(STEPS_DONE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        with own_frames():
            loaded = save_and_reload(model, path, strategy)
        require_kind(loaded, "save_and_reload", "keras.Model")
        there = _holds_model(path, kernel)
    copies = max(len(set(_devices(v))) for v in loaded.weights)
    optimizer = getattr(loaded, "optimizer", None)
    return {
        "file written": there,
        "copies of each weight": copies,
        "steps its optimizer has counted": int(optimizer.iterations.numpy()) if optimizer else None,
        "outputs": np.asarray(loaded(inputs), dtype=float),
    }


def _holds_model(path: Path, kernel: np.ndarray) -> bool:
    """Return whether a file holds the whole model: this kernel, and the steps counted so far."""
    import keras

    try:
        model = keras.models.load_model(path)
        steps = int(model.optimizer.iterations)
    except Exception:  # Keras raises errors of many kinds for what is no model
        return False
    return steps == STEPS_DONE and bool(np.array_equal(model.get_weights()[0], kernel))


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
        "not-saved": "no whole model was written to the file, so none was loaded from it",
        "not-compiled": "the model came without its optimizer: load it compiled, ready to train on",
        "cloned": "the optimizer begins again at step 0: a clone with copied weights is not the "
        "model from the file, which keeps the optimizer's state",
        "fresh-weights": "the weights are those of a new model: the trained ones are lost",
        "another-strategy": "loaded under another strategy: use the one that was passed",
    },
    hint="save the model to the path, then load it in the scope of the strategy",
    shows_case=False,
    run=each(try_reload),
)


# ---- exercise 5: the whole program


def draw_run(seed: int) -> dict[str, Any]:
    """Return a run's data: training and validation images and labels, and a rate an epoch.

    The third rate is high: with some images the second epoch stays the best, with others the
    fourth is better again, and nothing but the validation loss tells. The last ruins the model.
    """
    images, labels = draw_digits(seed, TRAINING + VALIDATION)
    rng = np.random.default_rng(seed)
    rates = [*rng.uniform(0.1, 0.3, size=2), rng.uniform(0.65, 0.9), rng.uniform(0.1, 0.3), 3.0]
    return {
        "training": (images[:TRAINING], labels[:TRAINING]),
        "validation": (images[TRAINING:], labels[TRAINING:]),
        "rates": [float(rate) for rate in rates],
    }


def try_program(train_digits: Callable[..., Any], seed: int) -> dict[str, Any]:
    """Return the weights and copies of the model that a whole training program returns."""
    strategy = make_mirrored(2)
    with tempfile.TemporaryDirectory() as folder, own_frames():
        model = train_digits(strategy, **draw_run(seed), batch_size=BATCH, folder=folder)
    require_kind(model, "train_digits", "keras.Model")
    shapes = [list(weights.shape) for weights in model.weights]
    if shapes != [[784, 10], [10]]:
        raise refuse(f"train_digits: weights of shapes {shapes}, not [784, 10] and [10]")
    kernel, bias = model.get_weights()
    return {
        "copies of each weight": _count_copies(strategy, model.weights[0]),
        "biases": np.asarray(bias, dtype=float),
        "kernel": np.asarray(kernel, dtype=float),
    }


def read_run(found: Any, seed: int) -> Any:
    """Add what a kernel [784, 10] shows of how it came about, beside whether it is right.

    The weights of a pixel that is black everywhere stay what they were at the start. All
    others are sums over the images of image times slope (one row of 10 for each image).
    """
    kernel = as_numbers(found.get("kernel")) if isinstance(found, dict) else None
    if kernel is None or kernel.shape != (784, 10):
        return found
    run = draw_run(seed)
    images, held_out = (run[part][0].reshape(-1, 784) / 255 for part in ("training", "validation"))
    black = ~(images.any(axis=0) | held_out.any(axis=0))
    return found | {
        "began at zero": bool(np.all(np.abs(kernel[black]) < 1e-6)),
        "each image once an epoch": _count_images(kernel, images, run["training"][1], run["rates"]),
    }


def _count_images(kernel: np.ndarray, images: np.ndarray, labels: np.ndarray, rates: Any) -> bool:
    """Return whether each image had its part in some epochs of batches of the right size.

    An image's part in its own label's weights is at most what it has where the model is quite
    wrong in all of them, and for some image nearly that.
    """
    parts, *_ = np.linalg.lstsq(images.T, kernel, rcond=None)  # [image, class]
    own = parts[np.arange(len(labels)), labels] * BATCH
    spanned = np.allclose(images.T @ parts, kernel, atol=1e-3 * np.abs(kernel).max())
    fits = any(0.8 < own.max() / most < 1 for most in np.cumsum(rates)[[1, 3]])  # 2 or 4 epochs
    return bool(spanned and own.min() > 0 and fits)


PROGRAM = Exercise(
    lab="lab03",
    name="program",
    function="train_digits",
    examples=((22,),),
    read=read_run,
    mistakes={
        "last-epoch": "these are the last epoch's weights: load those of the epoch with the lowest "
        "validation loss",
        "first-rate-kept": "every epoch was trained with the first rate: a LearningRateScheduler "
        "sets it before each epoch",
        "not-scaled": "the pixels were not scaled: divide by 255",
        "outside-scope": "one copy of each weight: make and compile the model in strategy.scope()",
        "one-epoch": "these are the first epoch's weights: train one epoch for each rate",
        "stopped-early": "training stopped where the validation loss first rose, and a later "
        "epoch is better: train one epoch for each rate",
        "validation-trained": "the model was trained on the validation images too",
        "start-not-zero": "the weights did not begin at zero: a Dense layer draws its kernel at "
        "random, unless it gets kernel_initializer='zeros'",
        "shuffled": "each image was used once an epoch, but not in the order they came in: leave "
        "shuffle() out, and give fit a data set, or arrays with shuffle=False",
    },
    hint="one device that goes through the batches in order, each epoch with its rate, has other "
    "weights: is anything dropped, repeated or in batches of another size?",
    shows_case=False,
    run=each(try_program),
)
