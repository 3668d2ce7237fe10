"""How well an order is mixed, as numbers. NumPy only."""

from collections.abc import Sequence

import numpy as np

from ..errors import InputError


def shuffle_quality(order: Sequence[int]) -> float:
    """Return how far examples moved, of what a perfect shuffle moves them on average.

    `order` holds each of 0 ... n-1 once: the example that came first, second, ...
    The mean distance between place and number is 0 for an order left as it is, and
    (n² - 1) / 3n on average over all permutations; their quotient is 0 and about 1.
    Raises InputError unless `order` is a permutation of 2 or more.
    """
    places = np.asarray(order)
    count = len(places)
    if count < 2 or not np.array_equal(np.sort(places), np.arange(count)):
        raise InputError("shuffle_quality: give each number from 0 to n-1 once, n at least 2")
    moved = np.abs(places - np.arange(count)).mean()
    return float(moved / ((count**2 - 1) / (3 * count)))


def classes_per_batch(labels: Sequence[int], batch: int) -> float:
    """Return the mean number of different labels in a batch; a shorter last batch is left out."""
    labels = np.asarray(labels)
    whole = len(labels) // batch
    if batch < 1 or not whole:
        raise InputError(f"{len(labels)} labels in batches of {batch}: not one whole batch")
    rows = labels[: whole * batch].reshape(whole, batch)
    return float(np.mean([len(np.unique(row)) for row in rows]))
