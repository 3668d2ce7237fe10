"""Lab 03, Keras under a strategy: data sets, models and callbacks are used, and looked at."""

import tempfile
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.comparing import show
from distlab.exercises.exercise import Exercise, each, explain_parts
from distlab.exercises.refusing import refuse, require_kind, require_value
from distlab.labs import ANSWERS
from distlab.labs.lab02.exercise import make_mirrored
from distlab.labs.lab03.digits import (
    BATCH,
    describe_pairs,
    draw_digits,
    draw_run,
    find_order,
    read_pass,
    read_run,
    weigh_loss,
)

ABSENT = (*ANSWERS, "utils.models")
make_exercise = partial(Exercise, lab="lab03", seconds=60)

STEPS_DONE = 12  # by the model that exercise 4 saves
# Of 43 images or more in nine random orders, one comes this part of all places early, or more.
EARLY = 0.7


# ---- exercise 1: the input


def try_input(make_input: Callable[..., Any], seed: int, examples: int, batch: int) -> Any:
    """Return what the data set of `make_input` holds, in a few numbers, and how it is shuffled."""
    images, labels = draw_digits(seed, examples)

    def make(mix: int) -> Any:
        dataset = make_input(images, labels, batch, mix)
        return require_kind(dataset, "make_input", "tf.data.Dataset")

    dataset = make(7)
    passes = [read_pass(data, examples) for data in (dataset, dataset, make(7), make(8))]
    if None in passes:
        return {"ends": False}
    orders = [find_order(pairs, images) for pairs in passes]
    one, following, same_seed, other_seed = orders
    feeds = (data for mix in (9, 10, 11) for data in (dataset, make(mix)))
    more = (find_order(read_pass(data, examples) or [], images) for data in feeds)
    return describe_pairs(passes[0]) | {
        "mixed throughout": int(np.sum(np.diff(one) == 1)) < examples / 4
        and any(
            max(np.subtract(order, range(len(order))), default=0) >= EARLY * examples
            for order in chain(orders, more)
        ),
        "another order in the next epoch": one != following,
        "the same order for the same seed": one == same_seed,
        "another order for another seed": one != other_seed,
    }


INPUT = make_exercise(
    name="input",
    function="make_input",
    examples=((1, 70, 32), (2, 64, 16)),
    mistakes={
        "not-scaled": "pixels reach 255: scale them to [0, 1]",
        "scaled-256": "the largest pixel is 255, not 256: divide by 255",
        "rest-dropped": "the examples of the last, smaller batch are dropped",
        "no-channel": "an image has a channel axis: [28, 28, 1]",
        "one-batch": "only the first batch is there: an epoch goes over all examples",
        "endless": "one pass doesn't end after all examples: leave out repeat(), fit repeats",
        "not-one-label": "labels are numbers from 0 to 9, one for each image: one-hot rows, or any "
        "other shape, need another loss",
        "float-labels": "the labels are floats: leave them as they come, integers",
        "not-shuffled": "the images come in the order that they were given: shuffle them",
        "small-buffer": "images are mixed with their neighbors only: the buffer must hold all",
        "batches-shuffled": "the batches were shuffled, not the examples: shuffle before batch()",
        "same-each-epoch": "every epoch has the same order: shuffle anew in each, so not before a "
        "cache() and not without reshuffling",
        "seed-ignored": "two data sets made with one seed have different orders: pass it on",
        "seed-fixed": "every seed gives the same order: pass `seed` on to shuffle()",
        "double-precision": "pixels are float64: NumPy divides integers into that. Use float32",
    },
    explain=explain_parts(
        {
            "pixel range": "the pixels aren't scaled to [0, 1]: they come as 0 to 255",
            "image shape": "the channel axis is the last one: [28, 28, 1]",
            "batch sizes": "the batches have other sizes: batch_size each, the rest in the last",
            "examples of each label": "one pass doesn't hold every example exactly once",
            "pixels of each label": "images have got other images' labels: shuffle them as pairs",
        }
    ),
    hint="pairs (images, labels) in batches: float32 [28, 28, 1] in [0, 1], every example once, "
    "each image with its own label, in a new order each epoch",
    run=each(try_input),
)


# ---- exercise 2: the model


def try_model(make_model: Callable[..., Any], replicas: int, seed: int) -> dict[str, Any]:
    """Make the model, put known weights in, and take one step, on 24 images.

    The loss and the accuracy that `fit` reports are those before the step.
    """
    import tensorflow as tf

    strategy = make_mirrored(replicas)
    model = make_model(strategy)
    require_kind(model, "make_model", "keras.Model")
    if not model.weights:
        raise refuse(
            "make_model returned a model without weights. Begin it with keras.Input((28, 28, 1)), "
            "or build it with model.build((None, 28, 28, 1))."
        )
    if not model.compiled:
        raise refuse(
            "make_model must return a compiled model, got one that isn't. Call model.compile()."
        )
    _put_weights(model, softmax.draw_weights(seed))
    images, labels = draw_digits(seed, 24)
    pixels = images[..., None].astype("float32") / 255
    batch = tf.data.Dataset.from_tensors((pixels, labels))
    output = float(np.max(model(pixels, training=False)))
    found = model.fit(batch, verbose=0, shuffle=False).history
    names = [name for name in found if "acc" in name]
    optimizer = model.optimizer
    return {
        "copies of each weight": _count_copies(strategy, model.weights[0]),
        "copies of the step counter": _count_copies(strategy, optimizer.iterations),
        "optimizer": type(optimizer).__name__,
        "learning rate": float(np.asarray(optimizer.learning_rate)),
        "momentum": float(getattr(optimizer, "momentum", 0.0) or 0.0),
        "largest output": output,
        "loss": float(found["loss"][0]),
        "accuracy": float(found[names[0]][0]) if names else None,
        "kernel after one step": np.asarray(model.get_weights()[0], dtype=float),
    }


def _put_weights(model: Any, kernel: np.ndarray) -> None:
    shapes = [list(weights.shape) for weights in model.weights]
    if shapes != [[784, 10], [10]]:
        raise refuse(
            "The model's weights must have the shapes [784, 10] and [10], as Flatten and one Dense "
            f"layer of 10 make, got {shapes}."
        )
    model.set_weights([kernel] + [np.zeros_like(w) for w in model.get_weights()[1:]])


def _count_copies(strategy: Any, variable: Any) -> int:
    return len(strategy.experimental_local_results(variable.value))


MODEL = make_exercise(
    name="model",
    function="make_model",
    examples=((3, 3),),
    mistakes={
        "outside-scope": "one copy of each weight: make and compile the model in strategy.scope()",
        "compiled-outside": "the weights have their copies, the optimizer doesn't: made outside "
        "the scope, it counts every replica's step, and schedules run too fast",
        "with-momentum": "this SGD has momentum: use it without",
        "no-accuracy": "accuracy isn't among the metrics",
        "not-from-logits": "the loss takes logits for probabilities: say from_logits=True",
        "other-rate": "SGD's own learning rate was left: set 0.1",
        "softmax-layer": "the outputs are probabilities: return logits, without an activation",
        "adam": "the optimizer is Adam: use SGD",
        "step-of-another": "this optimizer's step isn't learning rate × mean gradient: use plain "
        "keras.optimizers.SGD, without clipping or weight decay",
    },
    hint="one Dense layer of 10 logits, SGD at 0.1, cross-entropy from logits, accuracy",
    explain=explain_parts(
        {
            "learning rate": "SGD has another learning rate than 0.1, which isn't multiplied by "
            "the number of replicas",
            "optimizer": "the optimizer isn't keras.optimizers.SGD",
            "momentum": "this SGD has momentum: use it without",
            "loss": "the loss isn't the mean cross-entropy of logits: look at its arguments",
            "accuracy": "the metric isn't the accuracy of the labels",
        }
    ),
    run=each(try_model),
)


# ---- exercise 3: callbacks


def try_callbacks(make_callbacks: Callable[..., Any], boundaries: Any, rates: Any) -> Any:
    """Run a real `fit` with two steps per epoch. In each step the weight falls by the rate.

    Returns the rate of each epoch as used, and as the callback noted it down.
    """
    import keras
    import tensorflow as tf

    model = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    loss = lambda y, output: keras.ops.mean(output)  # noqa: E731 - its slope is 1
    model.compile(keras.optimizers.SGD(0.5), loss=loss, run_eagerly=True)
    noted: list[float] = []
    weights, counts = [0.0], []  # counts: of the rates noted by the end of each epoch

    def look(epoch: int, logs: Any) -> None:
        weights.append(float(model.get_weights()[0][0, 0]))
        counts.append(len(noted))

    made = require_value(make_callbacks(boundaries, rates, noted), "make_callbacks", "a list")
    if not isinstance(made, list | tuple):
        raise refuse(f"make_callbacks must return a list of callbacks, got {show(made)}.")
    callbacks = [*made, keras.callbacks.LambdaCallback(on_epoch_end=look)]
    data = tf.data.Dataset.from_tensors(([[1.0]], [[1.0]])).repeat()
    options = {"steps_per_epoch": 2, "epochs": sum(boundaries) + 2, "callbacks": callbacks}
    model.fit(data, shuffle=False, verbose=0, **options)
    if len(noted) == len(counts) and counts != list(range(1, len(counts) + 1)):
        raise refuse(
            f"You noted {counts[0]} of the {len(noted)} rates by the end of the first epoch. Note "
            "one rate at the end of every epoch: the rate that was in use."
        )
    return {"used": (-np.diff(weights) / 2).tolist(), "noted": [float(x) for x in noted]}


CALLBACKS = make_exercise(
    name="callbacks",
    function="make_callbacks",
    examples=(((2, 3), (0.1, 0.4, 0.2)), ((1,), (0.3, 0.05))),
    mistakes={
        "late-by-one": "each rate comes one epoch late: boundary 2 begins with epoch 2, the third",
        "early-by-one": "each rate comes one epoch early: Keras counts epochs from 0",
        "never-changed": "the learning rate never changed: is the schedule among the callbacks?",
        "noted-before": "you noted the rate before it was set: note it at the epoch's end",
        "variable-noted": "the optimizer's variable itself was appended, again and again, and "
        "shows its last value: append float(…) of it",
        "not-noted": "the list is empty: append the rate to it",
        "noted-each-batch": "noted after every batch: on_epoch_end comes once an epoch",
        "rates-sorted": "the rates were used in another order than they came in",
        "first-boundary-only": "the rate changes at the first boundary only: count how many "
        "boundaries have been reached",
        "boundaries-added": "the boundaries were added up: they are epochs counted from the start, "
        "not the lengths of phases",
        "noted-last-only": "only the last epoch's rate is left in the list: append to it",
    },
    hint="a LearningRateScheduler, and a callback that appends the optimizer's learning rate",
    explain=explain_parts(
        {
            "used": "a rate is used in the wrong epoch: before epoch boundaries[0] it is rates[0], "
            "from there on rates[1], and so on",
            "noted": "the right rates were used, and something else was noted: append the "
            "optimizer's learning rate, a number, at the end of every epoch",
        }
    ),
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
    """Return whether a file holds the full model: this kernel, and the steps counted so far."""
    import keras

    try:
        model = keras.models.load_model(path)
        steps = int(model.optimizer.iterations)
    except Exception:  # Keras raises many types of errors for a file without a model
        return False
    return steps == STEPS_DONE and bool(np.array_equal(model.get_weights()[0], kernel))


def _devices(variable: Any) -> list[str]:
    value = variable.value
    return [str(copy.device) for copy in getattr(value, "values", (value,))]


def draw_layer(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs [3, 4] and a kernel [4, 2]."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(3, 4)).astype("float32"), rng.normal(size=(4, 2)).astype("float32")


RELOAD = make_exercise(
    name="reload",
    function="save_and_reload",
    examples=((2, 7), (3, 8)),
    mistakes={
        "outside-scope": "loaded outside strategy.scope(): there is one copy of each weight",
        "not-saved": "the file doesn't hold the full model, so it couldn't be loaded from there",
        "not-compiled": "the model came without its optimizer: load it compiled, ready to train on",
        "cloned": "the optimizer begins again at step 0: a clone with copied weights isn't the "
        "model from the file, which keeps the optimizer's state",
        "fresh-weights": "these are a new model's weights: the trained ones are lost",
        "another-strategy": "loaded under another strategy: use the one that you were given",
    },
    hint="save the model to the path, then load it in the scope of the strategy",
    explain=explain_parts(
        {"file written": "the file at `path` doesn't hold the full model: save the model there"}
    ),
    run=each(try_reload),
)


# ---- exercise 5: the whole program


def try_program(train_digits: Callable[..., Any], seed: int) -> dict[str, Any]:
    """Return the weights that a whole training program returns."""
    import keras

    strategy, run = make_mirrored(2), draw_run(seed)
    with tempfile.TemporaryDirectory() as folder:
        found = train_digits(strategy, weigh_loss, **run, batch_size=BATCH, folder=folder)
    require_value(found, "train_digits", "a list with kernel and bias")
    if isinstance(found, keras.Model):
        raise refuse("train_digits returned a model, not its weights. Return model.get_weights().")
    parts = list(found) if isinstance(found, list | tuple) else [found]
    shapes = [list(np.shape(part)) for part in parts]
    if shapes != [[784, 10], [10]]:
        raise refuse(f"train_digits returned arrays of shapes {shapes}, not [784, 10] and [10]")
    kernel, bias = (np.asarray(part, dtype=float) for part in parts)
    return {"biases": bias, "kernel": kernel}


PROGRAM = make_exercise(
    name="program",
    function="train_digits",
    examples=((22,),),
    read=read_run,
    mistakes={
        "last-epoch": "these are the last epoch's weights, and its validation loss is the highest: "
        "load the weights of the epoch with the lowest (a checkpoint's mode is 'min')",
        "first-rate-kept": "every epoch was trained with the first rate: a LearningRateScheduler "
        "sets it before each epoch",
        "next-rate": "each epoch was trained with the next one's rate: Keras counts epochs from 0",
        "rates-doubled": "the rates are multiplied by the number of replicas: use them unchanged",
        "not-scaled": "the pixels weren't scaled: divide by 255",
        "not-distributed": "these are the weights of one device, or of losses other than `loss`: "
        "make and compile the model in strategy.scope(), with the loss that was passed",
        "one-epoch": "these are the first epoch's weights: train one epoch for each rate",
        "best-by-training": "these are the weights of the epoch with the lowest training loss: "
        "monitor val_loss, and give fit the validation images for it. Training images can't tell "
        "when a model learns wrong labels by heart",
        "best-by-accuracy": "these are the weights of the epoch with the highest accuracy: the "
        "contract asks for the lowest validation loss",
        "stopped-early": "training stopped where the validation loss first rose, and a later "
        "epoch is better: train one epoch for each rate",
        "with-momentum": "this SGD has momentum: use it without",
        "another-batch": "the batches are too small or too large: batch_size is the global batch, "
        "and the strategy splits it over the replicas",
        "validation-trained": "the model was trained on the validation images too",
        "start-not-zero": "the weights didn't begin at zero: a Dense layer draws its kernel at "
        "random, unless it gets kernel_initializer='zeros'",
        "shuffled": "each image was used once an epoch, but not in the order they came in: leave "
        "shuffle() out, and give fit a data set, or arrays with shuffle=False",
    },
    hint="one device that goes through the batches in order, each epoch with its rate, has other "
    "weights: is anything dropped, repeated or in batches of another size?",
    seconds=120,
    run=each(try_program),
    tolerance=1e-2,  # float32 against float64, over 24 steps
    evidence="result",
)
