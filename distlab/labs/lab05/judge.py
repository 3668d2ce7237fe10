"""Lab 05, loss scaling: the update that each way to scale a loss applies, with NumPy alone.

A way to scale multiplies each example's gradient with a factor, and may put something in the
place of the sample weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.comparing import AnyOf, Anything
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab05 import exercise as lab05
from distlab.labs.lab05.exercise import draw_gradients
from distlab.labs.lab05.step import REPLICAS, Step, cut_column, draw_start, make_step, read_batch

RULES = LabRules(cell_seconds=30, submission_seconds=90, onednn=False)
OUTPUTS = softmax.CLASSES
Factor = Callable[[int, Step], float]  # (examples on this replica, step) -> factor of each


def per_batch(own: int, step: Step) -> float:
    return 1 / step["global_batch_size"]


def per_share(own: int, step: Step) -> float:
    return 1 / own if own else np.nan


def scaled(factor: Factor, by: float) -> Factor:
    return lambda own, step: by * factor(own, step)


def divided_twice(factor: Factor) -> Factor:
    return lambda own, step: factor(own, step) * per_batch(own, step)


@dataclass(frozen=True)
class Scaling:
    """Return the factor of each example's gradient on one replica.

    `weigh` returns a replacement for the sample weights, [examples]; None uses the step's own.
    """

    factor: Factor
    weigh: Callable[[Step], np.ndarray] | None = None


def by_share(step: Step, combine: Callable[[np.ndarray], Any]) -> np.ndarray:
    """Return `combine` of each replica's sample weights, put in the place of each of them."""
    parts = cut_column(np.asarray(step["weights"]))
    return np.concatenate([np.broadcast_to(combine(part), part.shape) for part in parts])


WAYS: dict[str, dict[str, Scaling]] = {
    "plain": {
        "right": Scaling(per_batch),
        "own-mean": Scaling(per_share),
        "mean-of-four": Scaling(scaled(per_share, 1 / REPLICAS)),
        "only-summed": Scaling(lambda own, step: OUTPUTS),
        "errors-summed": Scaling(scaled(per_batch, OUTPUTS)),
        "divided-twice": Scaling(scaled(per_batch, 1 / REPLICAS)),
        "only-replicas": Scaling(lambda own, step: OUTPUTS / REPLICAS),
        "examples-summed": Scaling(lambda own, step: 1.0),
        "mean-of-means": Scaling(divided_twice(per_share)),
        "other-axis": Scaling(scaled(divided_twice(per_share), OUTPUTS)),
    },
    "weighted": {
        "right": Scaling(lambda own, step: 1 / np.sum(step["weights"])),
        "own-mean": Scaling(per_share),
        "weights-ignored": Scaling(per_batch, weigh=lambda step: np.ones(len(step["picks"]))),
        "losses-unweighted": Scaling(
            lambda own, step: 1 / np.sum(step["weights"]),
            weigh=lambda step: np.ones(len(step["picks"])),
        ),
        "own-weights": Scaling(
            lambda own, step: 1.0,
            weigh=lambda step: np.asarray(step["weights"]) / by_share(step, np.sum),
        ),
        "by-examples": Scaling(per_batch),
        "times-replicas": Scaling(lambda own, step: REPLICAS / np.sum(step["weights"])),
        "divided-twice": Scaling(lambda own, step: 1 / np.sum(step["weights"]) / REPLICAS),
        "averaged-too": Scaling(lambda own, step: 1 / np.sum(step["weights"]) / own),
        "mean-weight": Scaling(per_batch, weigh=lambda step: by_share(step, np.mean)),
    },
    "uneven": {
        "right": Scaling(lambda own, step: 1 / len(step["picks"])),
        "own-mean": Scaling(per_share),
        "full-batch": Scaling(per_batch),
        "own-times-replicas": Scaling(scaled(per_share, 1 / REPLICAS)),
        "not-divided": Scaling(lambda own, step: 1.0),
        "divided-twice": Scaling(lambda own, step: 1 / len(step["picks"]) / REPLICAS),
    },
}


def expect_update(kind: str, *case: Any, way: str = "right") -> np.ndarray:
    """Return the update [inputs, outputs] that the scaling `way` applies."""
    scaling, step = WAYS[kind][way], make_step(*case)
    images, labels = read_batch(step)
    outputs = images @ draw_start(step)  # [examples, outputs]
    slope = softmax.slopes(outputs, labels)
    if kind == "plain":
        slope = 2 * (outputs - np.eye(OUTPUTS)[labels]) / OUTPUTS
    if kind == "weighted":
        weights = scaling.weigh(step) if scaling.weigh else np.asarray(step["weights"])
        slope = slope * weights[:, None]
    shares = [len(share) for share in cut_column(labels)]
    factors = np.concatenate([np.full(own, scaling.factor(own, step)) for own in shares])
    return images.T @ (slope * factors[:, None])


def expect_weighted(*case: Any, way: str = "right") -> Any:
    """Return the update, for its own weights also if it counts them once for each replica."""
    update = expect_update("weighted", *case, way=way)
    return AnyOf((update, update / REPLICAS)) if way == "own-weights" else update


def expect_clipped(seed: int, most: float, way: str = "right") -> Any:
    """Return the update of gradients clipped to a norm, or clipped in a mistaken way."""
    parts = [np.concatenate([g.ravel() for g in pair]) for pair in draw_gradients(seed)]
    whole = sum(parts)
    norms = [float(np.linalg.norm(part)) for part in parts]
    if way == "norms-added":
        added = (sum(norms), float(np.linalg.norm(norms)))
        return AnyOf(tuple(_shorten(whole, most, norm) for norm in added))
    if way == "each-variable":
        return np.concatenate([_shorten(half, most) for half in np.split(whole, [120])])
    return {
        "right": lambda: _shorten(whole, most),
        "not-clipped": lambda: whole,
        "clipped-before": lambda: sum(_shorten(part, most) for part in parts),
        "to-its-share": lambda: sum(_shorten(part, most / REPLICAS) for part in parts),
        "summed-again": lambda: REPLICAS * _shorten(whole, most),
        "always-scaled": lambda: whole * most / np.linalg.norm(whole),
        "norm-not-summed": lambda: _shorten(whole, most, np.linalg.norm(whole) / REPLICAS),
        "no-root": lambda: _shorten(whole, most, whole @ whole),
        "divided-twice": lambda: _shorten(whole, most) / REPLICAS,
        "minimum-for-maximum": lambda: whole * max(1.0, most / np.linalg.norm(whole)),
        "each-number": lambda: sum(np.clip(part, -most, most) for part in parts),
    }[way]()


def _shorten(gradient: np.ndarray, most: float, norm: float | None = None) -> np.ndarray:
    """Return `gradient` scaled down as if its norm were `norm`, to `most`."""
    norm = float(np.linalg.norm(gradient)) if norm is None else norm
    return gradient * min(1.0, most / norm)


def expect_uneven(*case: Any, way: str = "right") -> dict[str, Any]:
    """Return the update, and the loss of a replica without examples."""
    if way in ("mean-of-nothing", "empty-not-zero"):
        nothing = np.nan if way == "mean-of-nothing" else 1.0
        return {"update": expect_update("uneven", *case), "loss of nothing": nothing}
    nothing = 0.0 if way == "right" else Anything()
    return {"update": expect_update("uneven", *case, way=way), "loss of nothing": nothing}


CONFUSIONS: dict[str, dict[str, Any]] = {
    "below-one": {
        bug: AnyOf(tuple(one for one in lab05.BUGS if one != bug))
        for bug in ("full-batch", "divided-twice")
    },
    "residual-ignored": {"penalty-on-each": "own-mean", "own-weights": "own-mean"},
    "weights-not-seen": {"own-weights": "own-mean"},
    "called-right": dict.fromkeys(lab05.BUGS, "right"),
}


def expect_bug(bug: str, seed: int, shares: Sequence[int], kind: str, way: str = "right") -> Any:
    """Return the word for the bug of a report, or a confused one."""
    turned = bug in ("own-weights", "penalty-on-each") or (
        bug == "own-mean" and len(set(shares)) > 1
    )
    if way == "not-measured" and kind != "plain":
        return "own-weights" if kind == "weighted" else "penalty-on-each"
    if way == "above-one" and not turned:
        return {"not-divided": "own-mean", "own-mean": "not-divided"}.get(bug, bug)
    if way == "turned-is-penalty" and turned:
        return "penalty-on-each"
    if way == "equal-shares" and bug == "own-mean" and turned:
        return AnyOf(("not-divided", "full-batch", "divided-twice", "right", "penalty-on-each"))
    return CONFUSIONS.get(way, {}).get(bug, bug)


PLAIN = Judge(lab05.PLAIN, partial(expect_update, "plain"))
WEIGHTED = Judge(lab05.WEIGHTED, expect_weighted)
CLIPPED = Judge(lab05.CLIPPED, expect_clipped)
UNEVEN = Judge(lab05.UNEVEN, expect_uneven)
DIAGNOSIS = Judge(lab05.DIAGNOSIS, expect_bug)
