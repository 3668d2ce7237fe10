"""Measure a training step of lab 05 with a known bug in its loss."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.labs.lab05.step import FULL_BATCH, compare_updates

Shares = Sequence[int]  # examples on each replica


def make_report(bug: str, seed: int, shares: Shares, kind: str) -> tuple[Any, ...]:
    """Return what is measured of a step with one of BUGS in its loss.

    `kind` is "plain", "weighted" or "penalized". The report: ratio, residual, shares,
    size of a full batch, whether there are sample weights, whether there is a penalty.
    """
    rng = np.random.default_rng(seed)
    examples, own = sum(shares), np.repeat(shares, shares)  # own: [examples]
    slopes = rng.normal(1.0, 1.0, size=(examples, 20))  # of each example's loss
    weights = rng.uniform(0.25, 4.0, examples) if kind == "weighted" else np.ones(examples)
    replica = np.repeat(np.arange(len(shares)), shares)
    held = np.bincount(replica, weights, minlength=len(shares))[replica]  # weights on my replica
    penalty = rng.normal(0.0, 1.0, size=20) if kind == "penalized" else np.zeros(20)
    divisor = {"own-mean": own, "own-weights": held, "not-divided": 1, "full-batch": FULL_BATCH}
    one = weights / weights.sum() @ slopes + penalty
    times = len(shares) if bug == "penalty-on-each" else 1
    found = weights / divisor.get(bug, weights.sum()) @ slopes + times * penalty
    found = found / (len(shares) if bug == "divided-twice" else 1)
    ratio, residual = compare_updates(found, one)
    return (
        round(ratio, 4),
        round(residual, 4),
        list(shares),
        FULL_BATCH,
        kind == "weighted",
        kind == "penalized",
    )
