"""Lab 05, loss scaling: the exercises, and what each known mistake does to the update."""

from collections.abc import Callable
from typing import Any

import numpy as np

from distlab.exercises.checking import read_number, refuse
from distlab.exercises.loss_scaling import (
    PIXELS,
    REPLICAS,
    Case,
    Scaling,
    UpdateCheck,
    by_share,
    make_case,
    measure_steps,
    measure_updates,
)

__all__ = ["EXERCISES", "make_case", "measure_updates"]
MEAN_OF_NOTHING = (
    "a replica without examples took the mean of nothing, which is nan: the sum of nothing is 0"
)


def _per_batch(own: int, case: Case) -> float:
    return 1 / case["global_batch_size"]


def _per_share(own: int, case: Case) -> float:
    return 1 / own if own else np.nan


def _nowhere(own: int, case: Case) -> float:
    return 0.0


_RIGHT = Scaling(_per_batch)
PLAIN = UpdateCheck(
    exercise="plain",
    function="replica_loss",
    kind="plain",
    right=_RIGHT,
    mistakes={
        "own-mean": (
            "each replica averaged over its own examples: divide by the global batch",
            Scaling(_per_share),
        ),
        "only-summed": (
            "the losses are added up and never divided",
            Scaling(lambda own, case: 1.0),
        ),
        "divided-twice": (
            "divided by the number of replicas once more: the global batch counts them already",
            Scaling(lambda own, case: 1 / case["global_batch_size"] / REPLICAS),
        ),
        "only-replicas": (
            "divided by the number of replicas, not of examples",
            Scaling(lambda own, case: 1 / REPLICAS),
        ),
    },
    cases=(make_case(1), make_case(2, examples=32)),
    hint="a replica's loss is its part of one mean over all examples of the batch",
)
WEIGHTED = UpdateCheck(
    exercise="weighted",
    function="weighted_loss",
    kind="weighted",
    right=Scaling(_per_batch),
    mistakes={
        "own-mean": (
            "each replica averaged over its own examples: divide by the global batch",
            Scaling(_per_share),
        ),
        "weights-ignored": (
            "every example counts the same: multiply each loss by its weight",
            Scaling(_per_batch, weigh=lambda case: np.ones(len(case["picks"]))),
        ),
        "own-weights": (
            "divided by the weights of the replica's own examples, which differ between replicas",
            Scaling(
                lambda own, case: 1.0,
                weigh=lambda case: (
                    np.asarray(case["weights"]) / by_share(case, lambda w: np.sum(w))
                ),
            ),
        ),
        "mean-weight": (
            "a mean loss times a mean weight is not the mean of weighted losses",
            Scaling(_per_batch, weigh=lambda case: by_share(case, np.mean)),
        ),
    },
    cases=(make_case(3), make_case(4, examples=34)),
    hint="weigh each loss first, then add up, then divide once by the global batch",
)
PENALISED = UpdateCheck(
    exercise="penalised",
    function="penalised_loss",
    kind="penalised",
    right=_RIGHT,
    mistakes={
        "on-every-replica": (
            "the penalty was added in full on every replica, so it counts four times",
            Scaling(_per_batch, penalty=lambda own, case: 1.0),
        ),
        "penalty-by-batch": (
            "the penalty belongs to the weights, not to examples: not divided by the batch",
            Scaling(_per_batch, penalty=_per_batch),
        ),
        "all-by-replicas": (
            "only the penalty is divided by the replicas: the data part has its divisor already",
            Scaling(lambda own, case: 1 / case["global_batch_size"] / REPLICAS),
        ),
        "penalty-forgotten": (
            "the penalty is missing",
            Scaling(_per_batch, penalty=_nowhere),
        ),
        "own-mean": (
            "each replica averaged over its own examples: divide by the global batch",
            Scaling(_per_share),
        ),
    },
    cases=(make_case(5, strength=0.05), make_case(6, examples=32, strength=0.1)),
    hint="two parts with two divisors: the batch for the data, the replicas for the penalty",
)
UNEVEN = UpdateCheck(
    exercise="uneven",
    function="uneven_loss",
    kind="uneven",
    right=Scaling(lambda own, case: 1 / len(case["picks"])),
    mistakes={
        "own-mean": (
            "each replica averaged over its own count, which differs: examples on a smaller share "
            "count for more",
            Scaling(_per_share),
        ),
        "full-batch": (
            "divided by the size of a full batch, though this one is smaller",
            Scaling(_per_batch),
        ),
        "own-times-replicas": (
            "own count times replicas, as compute_average_loss() has it without a batch size: "
            "wrong when shares differ",
            Scaling(lambda own, case: 1 / (own * REPLICAS) if own else np.nan),
        ),
    },
    cases=(make_case(7, 6, 32), make_case(8, 2, 32)),
    hint="divide by the number of examples that this batch really holds",
)
PIXELWISE = UpdateCheck(
    exercise="pixels",
    function="pixel_loss",
    kind="pixels",
    right=Scaling(lambda own, case: 1 / case["global_batch_size"] / PIXELS),
    mistakes={
        "pixels-summed": (
            "the 49 pixels of an image were added up: each image's loss is the mean over them",
            Scaling(_per_batch),
        ),
        "own-mean": (
            "a mean over the replica's own images: divide by the global batch",
            Scaling(lambda own, case: 1 / own / PIXELS),
        ),
        "one-axis": (
            "averaged over one axis of 7 only: an image has two",
            Scaling(lambda own, case: 1 / case["global_batch_size"] / 7),
        ),
        "only-pixels": (
            "averaged over pixels, and never divided by the batch",
            Scaling(lambda own, case: 1 / PIXELS),
        ),
    },
    cases=(make_case(9), make_case(10, examples=32)),
    hint="first one number for each image, then the mean over all images of the batch",
)
EXERCISES = {check.exercise: check for check in (PLAIN, WEIGHTED, PENALISED, UNEVEN, PIXELWISE)}


def try_empty(uneven_loss: Callable[..., Any], batch_examples: int) -> float:
    """Return `uneven_loss` of a replica without examples, in a last batch of `batch_examples`."""
    import tensorflow as tf

    return read_number(uneven_loss(tf.zeros([0], tf.float64), batch_examples, 32), "uneven_loss")


def find_fault_of_empty(value: Any) -> str:
    """Return what is wrong with the loss of a replica without examples, "" if nothing is."""
    if isinstance(value, float | int) and value == 0:
        return ""
    return f"uneven_loss gave {value} for no losses at all, should give 0: {MEAN_OF_NOTHING}"


def check_uneven(uneven_loss: Callable[..., Any]) -> None:
    """Try `uneven_loss` on no losses and on the worked cases; AssertionError names the mistake."""
    fault = find_fault_of_empty(try_empty(uneven_loss, 2))
    updates = measure_steps(uneven_loss, UNEVEN.cases, "uneven")
    if fault and UNEVEN.find_fault(UNEVEN.cases, updates) is None:
        raise refuse(fault)
    UNEVEN.verify_updates(updates)
