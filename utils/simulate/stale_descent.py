"""Gradient descent whose gradients are late: what staleness does to a loss.

    race = simulate_parameter_server("asynchronous", Cluster([1.0] * 4), 40)
    losses = descend_stale(race.staleness, rate=0.3)

The loss is a quadratic valley, half the sum of curvature x weight**2, with a largest curvature
of 1, so rates are in units of 1/k. Plain descent is stable below 2 and, where every gradient has
the staleness s, below 2 sin(pi / (4 s + 2)).

Zhang et al., "Staleness-aware Async-SGD for Distributed Deep Learning", arXiv:1511.05950.
"""

from collections.abc import Sequence

import numpy as np

from ..checks import check_number
from ..errors import InputError

CURVATURES = (1.0, 0.35, 0.1)


def descend_stale(staleness: Sequence[int], rate: float) -> np.ndarray:
    """Return the loss before each update and after the last, float64 [update + 1].

    Update u takes the gradient of the weights as they were `staleness[u]` updates before it. All
    weights start at 1. What overflows is infinite. Raises InputError for a rate of 0 or less, and
    for a staleness that is negative or reaches back behind the start.
    """
    check_number("rate", rate, above=0)
    curvatures = np.array(CURVATURES)
    weights = [np.ones(len(CURVATURES))]
    with np.errstate(over="ignore", invalid="ignore"):
        for update, stale in enumerate(staleness):
            if not 0 <= stale <= update:
                raise InputError(f"update {update} with staleness {stale}: give 0 to {update}")
            gradient = curvatures * weights[update - stale]
            weights.append(weights[update] - rate * gradient)
        losses = np.square(weights) @ curvatures / 2
    return np.nan_to_num(losses, nan=np.inf, posinf=np.inf)
