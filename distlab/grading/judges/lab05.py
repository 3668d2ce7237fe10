"""Lab 05, loss scaling: the update that each way to scale a loss applies, with NumPy alone.

A way to scale multiplies each example's gradient with a factor, the penalty's with
another, and may put something in the place of the sample weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distlab.exercises import lab05, softmax
from distlab.exercises.comparing import Anything
from distlab.exercises.lab05 import PIXELS, REPLICAS, Step, draw_start, make_step, read_batch
from distlab.grading.judging import Judge, LabRules

RULES = LabRules(cell_seconds=30, submission_seconds=90, visible_checks=False, onednn=False)
Factor = Callable[[int, Step], float]  # (examples on this replica, step) -> factor of each


def per_batch(own: int, step: Step) -> float:
    return 1 / step["global_batch_size"]


def per_share(own: int, step: Step) -> float:
    return 1 / own if own else np.nan


def one_share(own: int, step: Step) -> float:
    return 1 / REPLICAS


def scaled(factor: Factor, by: float) -> Factor:
    return lambda own, step: by * factor(own, step)


@dataclass(frozen=True)
class Scaling:
    """What the gradients of one replica are multiplied with: each example's, the penalty's.

    `weigh` gives what stands in for the sample weights, [examples], the step's own if None.
    """

    factor: Factor
    penalty: Factor = one_share
    weigh: Callable[[Step], np.ndarray] | None = None


def by_share(step: Step, combine: Callable[[np.ndarray], Any]) -> np.ndarray:
    """Return `combine` of each replica's sample weights, put in the place of each of them."""
    parts = np.array_split(np.asarray(step["weights"]), REPLICAS)
    return np.concatenate([np.broadcast_to(combine(part), part.shape) for part in parts])


WAYS: dict[str, dict[str, Scaling]] = {
    "plain": {
        "right": Scaling(per_batch),
        "own-mean": Scaling(per_share),
        "only-summed": Scaling(lambda own, step: 1.0),
        "divided-twice": Scaling(scaled(per_batch, 1 / REPLICAS)),
        "only-replicas": Scaling(one_share),
    },
    "weighted": {
        "right": Scaling(per_batch),
        "own-mean": Scaling(per_share),
        "weights-ignored": Scaling(per_batch, weigh=lambda step: np.ones(len(step["picks"]))),
        "own-weights": Scaling(
            lambda own, step: 1.0,
            weigh=lambda step: np.asarray(step["weights"]) / by_share(step, np.sum),
        ),
        "mean-weight": Scaling(per_batch, weigh=lambda step: by_share(step, np.mean)),
    },
    "penalised": {
        "right": Scaling(per_batch),
        "on-every-replica": Scaling(per_batch, penalty=lambda own, step: 1.0),
        "penalty-by-batch": Scaling(per_batch, penalty=per_batch),
        "all-by-replicas": Scaling(scaled(per_batch, 1 / REPLICAS)),
        "penalty-forgotten": Scaling(per_batch, penalty=lambda own, step: 0.0),
        "own-mean": Scaling(per_share),
    },
    "uneven": {
        "right": Scaling(lambda own, step: 1 / len(step["picks"])),
        "own-mean": Scaling(per_share),
        "full-batch": Scaling(per_batch),
        "own-times-replicas": Scaling(scaled(per_share, 1 / REPLICAS)),
    },
    "pixels": {
        "right": Scaling(scaled(per_batch, 1 / PIXELS)),
        "pixels-summed": Scaling(per_batch),
        "own-mean": Scaling(scaled(per_share, 1 / PIXELS)),
        "one-axis": Scaling(scaled(per_batch, 1 / 7)),
        "only-pixels": Scaling(lambda own, step: 1 / PIXELS),
    },
}


def expect_update(kind: str, *case: Any, way: str = "right") -> np.ndarray:
    """Return the update [inputs, outputs] that the scaling `way` applies."""
    scaling, step = WAYS[kind][way], make_step(*case)
    images, labels = read_batch(step, kind)
    start = draw_start(step, kind)
    shares = [len(share) for share in np.array_split(labels, REPLICAS)]
    factors = np.concatenate([np.full(own, scaling.factor(own, step)) for own in shares])
    outputs = images @ start  # [examples, outputs]
    slope = 2 * (outputs - images) if kind == "pixels" else softmax.slopes(outputs, labels)
    if kind == "weighted":
        weights = scaling.weigh(step) if scaling.weigh else np.asarray(step["weights"])
        slope = slope * weights[:, None]
    update = images.T @ (slope * factors[:, None])
    if kind == "penalised":
        times = sum(scaling.penalty(own, step) for own in shares)
        update += times * 2 * step["strength"] * start
    return update


def expect_uneven(*case: Any, way: str = "right") -> dict[str, Any]:
    """Return the update, and the loss of a replica without examples."""
    if way == "mean-of-nothing":
        return {"update": expect_update("uneven", *case), "loss of nothing": np.nan}
    nothing = 0.0 if way == "right" else Anything()
    return {"update": expect_update("uneven", *case, way=way), "loss of nothing": nothing}


PLAIN = Judge(lab05.PLAIN, partial(expect_update, "plain"))
WEIGHTED = Judge(lab05.WEIGHTED, partial(expect_update, "weighted"))
PENALISED = Judge(lab05.PENALISED, partial(expect_update, "penalised"))
UNEVEN = Judge(lab05.UNEVEN, expect_uneven)
PIXELWISE = Judge(lab05.PIXELWISE, partial(expect_update, "pixels"))
