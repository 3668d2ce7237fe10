"""Cut a list of layers into pipeline stages by cost."""

from collections.abc import Sequence

import numpy as np

from ..checks import check_count
from ..errors import InputError


def partition_layers(costs: Sequence[float], stages: int) -> tuple[range, ...]:
    """Cut layers into `stages` runs of neighbors whose most expensive run is as cheap as possible.

    `costs` are the layers' costs in order, in any one unit, none negative. Returns the layer
    numbers of each stage, at least one each. An exact dynamic program over (stages, layers), as
    in PipeDream's partitioner (Narayanan et al. 2019, section 3.1); of all cuts with the
    smallest largest run it takes the most even (the smallest sum of squares). It takes time in
    stages * layers^2. Raises InputError for more stages than layers and for negative costs.

        >>> partition_layers([1, 1, 2, 4], stages=2)
        (range(0, 3), range(3, 4))
    """
    costs = _check(costs, stages)
    sums = np.concatenate([[0.0], np.cumsum(costs)])
    runs = sums[None, :] - sums[:, None]  # [first layer, end] -> cost
    runs[np.tril_indices(len(sums))] = np.inf  # a stage without a layer
    largest = _solve(runs, stages, np.maximum)[0]
    limit = largest * (1 + 1e-12)
    cuts = _solve(np.where(runs <= limit, runs**2, np.inf), stages, np.add)[1]
    return tuple(range(first, end) for first, end in zip(cuts, cuts[1:], strict=False))


def _check(costs: Sequence[float], stages: int) -> np.ndarray:
    check_count("stages", stages)
    try:
        costs = np.asarray(costs, dtype=float)
    except (TypeError, ValueError):
        raise InputError("Layer costs must be numbers, one per layer.") from None
    if costs.ndim != 1 or not np.all(np.isfinite(costs)) or np.any(costs < 0):
        raise InputError("Layer costs must be finite numbers of 0 or more, one per layer.")
    if stages > len(costs):
        raise InputError(f"Each stage needs a layer, got {stages} stages for {len(costs)} layers.")
    return costs


def _solve(runs: np.ndarray, stages: int, combine: np.ufunc) -> tuple[float, list[int]]:
    """Return the least `combine` of the runs' values over all cuts, and where that one cuts."""
    best, chosen = runs[0], []  # [end]: the best value of the stages so far for layers 0 to end
    for _ in range(stages - 1):
        values = combine(best[:, None], runs)  # [cut, end]
        chosen.append(values.argmin(axis=0))
        best = values.min(axis=0)
    cuts = [len(runs) - 1]
    for places in reversed(chosen):
        cuts.append(int(places[cuts[-1]]))
    return float(best[-1]), [0, *reversed(cuts)]
