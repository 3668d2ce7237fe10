"""Lab 04, custom training loop: the worked examples that its visible checks use."""

from collections.abc import Callable
from typing import Any

from distlab.exercises import loop_trials as trials
from distlab.exercises.checking import make_check
from distlab.exercises.loop_trials import try_accuracy, try_epoch, try_resume, try_step

__all__ = ["try_accuracy", "try_epoch", "try_resume", "try_step"]

STEP = make_check(
    ("lab04", "step", "train_step"),
    ((1, 32), (2, 30)),
    trials.expect_step,
    {
        "own-mean": "each replica averaged over its own examples: divide by the global batch",
        "not-applied": "the weights did not change: the gradients were never applied",
        "uphill": "the weights went up the gradient: apply_gradients subtracts by itself",
        "applied-twice": "the gradients were applied twice",
        "unscaled-loss": "the weights are right, but the losses that came back are not divided: "
        "return the loss whose gradient was taken",
    },
    hint="the weights after the step are those of one device, and the replicas' losses add up to "
    "its mean loss",
    tolerance=1e-5,
)
EPOCH = make_check(
    ("lab04", "epoch", "run_epoch"),
    (((1.0, 2.0, 3.0, 4.0, 10.0), 4), ((5.0, 1.0, 0.0, 2.0, 8.0, 6.0, 7.0), 3)),
    trials.expect_epoch,
    {
        "mean-of-batches": "a mean of the batches' means: the last, smaller batch counts too much",
        "last-batch": "this is the mean of the last batch alone",
        "first-replica": "only replica 0's examples were counted: reduce over the replicas",
        "full-batches": "the last batch was counted as a full one",
    },
    hint="the sum of all losses of the epoch, divided by the number of its examples",
)
ACCURACY = make_check(
    ("lab04", "accuracy", "evaluate"),
    ((3, 40, 16), (4, 21, 8)),
    trials.expect_accuracy,
    {
        "mean-of-batches": "a mean of the batches' accuracies: the last one is smaller",
        "last-batch": "this is the accuracy of the last batch alone",
        "first-replica": "only replica 0's images were counted: reduce over the replicas",
        "full-batches": "the last batch was counted as a full one",
    },
    hint="the number of right answers, divided by the number of images",
)
RESUME = make_check(
    ("lab04", "resume", "save_state and load_state"),
    ((5, 3, 5), (6, 2, 6)),
    trials.expect_resume,
    {
        "no-optimizer": "the optimizer's state was not restored: its momentum begins at 0 again",
        "epoch-forgotten": "the number of epochs done was lost, so all of them were trained again",
        "oldest": "the oldest state was loaded, not the latest",
        "nothing-restored": "nothing was restored: the model has its first weights",
        "empty-folder": "load_state stops with an error where nothing was saved: it returns 0",
    },
    hint="weights, the optimizer's state and the epoch go into one checkpoint",
    tolerance=1e-5,
)


def check_step(train_step: Callable[..., Any]) -> None:
    """Try `train_step` on the worked examples; AssertionError names the mistake."""
    STEP.verify([try_step(train_step, *example) for example in STEP.examples])


def check_epoch(run_epoch: Callable[..., Any]) -> None:
    """Try `run_epoch` in the same way."""
    EPOCH.verify([try_epoch(run_epoch, *example) for example in EPOCH.examples])


def check_accuracy(evaluate: Callable[..., Any]) -> None:
    """Try `evaluate` in the same way."""
    ACCURACY.verify([try_accuracy(evaluate, *example) for example in ACCURACY.examples])


def check_resume(save_state: Callable[..., Any], load_state: Callable[..., Any]) -> None:
    """Try `save_state` and `load_state` in the same way, with real files."""
    functions = (save_state, load_state)
    RESUME.verify([try_resume(functions, *example) for example in RESUME.examples])
