"""Combine one value per replica: `reduce`, `gather` and `all_reduce` in NumPy.

| way | TensorFlow's call | who holds the answer |
|---|---|---|
| sum, mean | `strategy.reduce("SUM", values, axis=None)`, `"MEAN"` | your program |
| sum-all, mean-all | the same with `axis=0` | your program |
| gather | `strategy.gather(values, axis=0)` | your program |
| all-reduce | `all_reduce("SUM", values)`, in the replica context | every replica |
| mean-of-means | `reduce("MEAN", run(tf.reduce_mean), axis=None)` | your program |

The last is the mean of all values only if every replica has equally many.

API pages: tf.distribute.Strategy, tf.distribute.ReplicaContext.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..checks import check_choice
from ..errors import InputError

Parts = Sequence[np.ndarray]  # [replica], each [value]
_COMBINE: Mapping[str, Callable[[Parts], np.ndarray]] = {
    "sum": lambda parts: np.sum(parts, axis=0),
    "mean": lambda parts: np.mean(parts, axis=0),
    "sum-all": lambda parts: np.concatenate(parts).sum(keepdims=True),
    "mean-all": lambda parts: np.concatenate(parts).mean(keepdims=True),
    "gather": np.concatenate,
    "all-reduce": lambda parts: np.sum(parts, axis=0),
    "mean-of-means": lambda parts: np.mean([[part.mean()] for part in parts], axis=0),
}
WAYS = tuple(_COMBINE)
_WANT_EQUAL = ("sum", "mean", "all-reduce")


def combine_values(way: str, parts: Sequence[Sequence[float]]) -> np.ndarray:
    """Return what `way`, one of WAYS, makes of the values of each replica, float64 [value].

    Raises InputError for another way, no values at all, replicas of different counts where
    they are added one to the other, and a mean of no values (TensorFlow's is nan).
    """
    check_choice("way", way, WAYS)
    arrays = [np.asarray(part, dtype=float) for part in parts]
    counts = [len(array) for array in arrays]
    if not sum(counts):
        raise InputError("At least one replica must have values, got none.")
    if way in _WANT_EQUAL and len(set(counts)) > 1:
        raise InputError(
            f"{way} adds replica to replica, so all replicas must hold equally many values, "
            f"got {counts}."
        )
    if way == "mean-of-means" and 0 in counts:
        raise InputError(
            f"Each replica must have values, got none for replica {counts.index(0)}: the mean "
            "of no values is nan."
        )
    return _COMBINE[way](arrays)
