"""Lab 03, Keras under a strategy: the worked examples that its visible checks use."""

from collections.abc import Callable
from typing import Any

from distlab.exercises import keras_trials as trials
from distlab.exercises.checking import make_check
from distlab.exercises.keras_trials import (
    try_callbacks,
    try_input,
    try_model,
    try_reload,
    try_restore,
)

__all__ = ["try_callbacks", "try_input", "try_model", "try_reload", "try_restore"]

INPUT = make_check(
    ("lab03", "input", "make_input"),
    ((1, 70, 32), (2, 64, 16)),
    trials.expect_input,
    {
        "not-scaled": "pixels reach 255: scale them to [0, 1]",
        "rest-dropped": "the examples of the last, smaller batch are dropped",
        "no-channel": "an image has a channel axis: [28, 28, 1]",
        "one-batch": "only the first batch is there: an epoch goes over all examples",
        "double-precision": "pixels are float64: NumPy divides integers into that. Convert to "
        "float32, half the bytes",
    },
    hint="pairs (images, labels) in batches: float32 [28, 28, 1] in [0, 1], every example once, "
    "each image with its own label",
)
MODEL = make_check(
    ("lab03", "model", "make_model"),
    ((2, 3), (4, 4)),
    trials.expect_model,
    {
        "outside-scope": "one copy of each weight: make and compile the model in strategy.scope()",
        "no-accuracy": "accuracy is not among the metrics",
        "not-from-logits": "the loss takes logits for probabilities: say from_logits=True",
        "other-rate": "SGD's own learning rate was left: 0.1 is wanted",
        "softmax-layer": "the outputs are probabilities: logits, without an activation, are wanted",
        "adam": "the optimizer is Adam: SGD is wanted",
    },
    hint="one Dense layer of 10 logits, SGD at 0.1, cross-entropy from logits, accuracy",
)
CALLBACKS = make_check(
    ("lab03", "callbacks", "make_callbacks"),
    (((2, 3), (0.4, 0.2, 0.1)), ((1,), (0.3, 0.05))),
    trials.expect_callbacks,
    {
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
)
RESTORE = make_check(
    ("lab03", "restore", "restore_best"),
    ((5, (0.9, 0.4, 0.6)), (6, (0.8, 0.7, 0.3, 0.5))),
    trials.expect_restore,
    {
        "last-epoch": "these are the last epoch's weights, not the best's",
        "highest-loss": "these are the weights with the highest loss",
        "counted-from-zero": "files count epochs from 1, the list of losses from 0",
        "not-loaded": "the model still has the weights it came with",
    },
    hint="find the epoch with the lowest loss, then load its file",
)
RELOAD = make_check(
    ("lab03", "reload", "save_and_reload"),
    ((2, 7), (3, 8)),
    trials.expect_reload,
    {
        "outside-scope": "loaded outside strategy.scope(): there is one copy of each weight",
        "not-saved": "no file was written, so nothing was loaded from one",
        "fresh-weights": "the weights are those of a new model: the trained ones are lost",
        "another-strategy": "loaded under another strategy: use the one that was handed in",
    },
    hint="save the model to the path, then load it in the scope of the strategy",
)


def check_input(make_input: Callable[..., Any]) -> None:
    """Try `make_input` on the worked examples; AssertionError names the mistake."""
    INPUT.verify([try_input(make_input, *example) for example in INPUT.examples])


def check_model(make_model: Callable[..., Any]) -> None:
    """Try `make_model` in the same way."""
    MODEL.verify([try_model(make_model, *example) for example in MODEL.examples])


def check_callbacks(make_callbacks: Callable[..., Any]) -> None:
    """Try `make_callbacks` in the same way, in a real `fit`."""
    CALLBACKS.verify([try_callbacks(make_callbacks, *example) for example in CALLBACKS.examples])


def check_restore(restore_best: Callable[..., Any]) -> None:
    """Try `restore_best` in the same way, on real files."""
    RESTORE.verify([try_restore(restore_best, *example) for example in RESTORE.examples])


def check_reload(save_and_reload: Callable[..., Any]) -> None:
    """Try `save_and_reload` in the same way."""
    RELOAD.verify([try_reload(save_and_reload, *example) for example in RELOAD.examples])
