"""Measure a dataset's speed, compare two datasets, and score a shuffle."""

import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..checks import check_count
from ..errors import InputError
from ..measure import Stopwatch, images_per_second
from .examples import sort_rows


@dataclass(frozen=True)
class Rates:
    """Images per second of each epoch, by pipeline; epoch 0 came first and filled the caches.

    `by_name` goes by the clock, `by_processor` by the seconds that this process's threads
    computed: what other programs take from the machine is in the first and not in the second.
    """

    by_name: dict[str, tuple[float, ...]] = field(default_factory=dict)
    by_processor: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def first(self, name: str) -> float:
        """Return the rate of the first epoch."""
        return self.by_name[name][0]

    def median(self, name: str) -> float:
        """Return the median rate after the first epoch."""
        return statistics.median(self.by_name[name][1:])

    def medians(self) -> dict[str, float]:
        return {name: self.median(name) for name in self.by_name}

    def ratio(self, name: str, to: str) -> float:
        """Return how many times as fast `name` is as `to`: the median over epochs of one round."""
        return _median_ratio(self.by_name[name], self.by_name[to])

    def processor_ratio(self, name: str, to: str) -> float:
        """Return the same by processor time: how many times less work an image costs."""
        return _median_ratio(self.by_processor[name], self.by_processor[to])


def _median_ratio(rates: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(rates[1:], others[1:], strict=True))


def measure_rates(datasets: Mapping[str, Any], rounds: int = 3) -> Rates:
    """Run one epoch of each of `datasets`, by name, to warm up and then `rounds` times.

    They take turns, so whatever else the machine does hits all of them. Returns the images/s of
    each epoch, by name. Raises InputError for fewer than one round and for an empty dataset.

        print(measure_rates({"plain": dataset, "cached": dataset.cache()}).by_name)
    """
    check_count("rounds", rounds)
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in datasets}
    names = list(datasets)
    for number in range(rounds + 1):
        shift = number % len(names) if number else 0
        for name in names[shift:] + names[:shift]:
            rates[name].append(_run_epoch(datasets[name], name))
    by_clock, by_processor = (
        {name: tuple(pair[kind] for pair in pairs) for name, pairs in rates.items()}
        for kind in (0, 1)
    )
    return Rates(by_clock, by_processor)


def _run_epoch(dataset: Any, name: str) -> tuple[float, float]:
    """Iterate `dataset` once; return images per second by the clock and by processor time."""
    images = 0
    begun = time.process_time()
    with Stopwatch() as watch:
        for batch in dataset:
            images += count_images(batch)
    if not images:
        raise InputError(f"{name} is empty, so there is nothing to measure.")
    computed = time.process_time() - begun
    return images_per_second(images, watch.seconds), images_per_second(images, computed)


def count_images(batch: Any) -> int:
    """Return the first dimension of a batch's first tensor (1 for a scalar)."""
    import tensorflow as tf

    first = tf.nest.flatten(batch)[0]
    shape = getattr(first, "shape", ())
    return int(shape[0]) if len(shape) else 1


def make_limit(dataset: Any) -> Any:
    """Return a dataset as long as `dataset` that repeats its first batch: it only hands on.

    No pipeline that ends in the same loop is faster.
    """
    import tensorflow as tf

    steps = sum(1 for _ in dataset)
    if not steps:
        raise InputError("The dataset is empty, so there is nothing to measure.")
    return tf.data.Dataset.from_tensors(next(iter(dataset))).repeat(steps)


def count_elements(dataset: Any) -> Counter[tuple[int, int, bytes]]:
    """Return how often each (id, label, fingerprint of the image) comes in one epoch.

    Equal for two datasets exactly when they deliver the same multiset of examples,
    whatever the order, the batches and the augmentation.
    """
    found: Counter[tuple[int, int, bytes]] = Counter()
    for images, labels, ids in dataset.as_numpy_iterator():
        prints = [rows.tobytes() for rows in sort_rows(images)]
        found.update(zip(ids.tolist(), labels.tolist(), prints, strict=True))
    return found


def ids_of(dataset: Any) -> list[list[int]]:
    """Return the ids of each batch of one epoch, in order."""
    return [np.atleast_1d(batch[-1]).tolist() for batch in dataset.as_numpy_iterator()]


def shuffle_quality(order: Sequence[int]) -> float:
    """Return the mean displacement of examples relative to a perfect shuffle.

    `order` holds each of 0 ... n-1 once: the example that came first, second, ... An unchanged
    order has 0, and a perfect shuffle about 1: the mean distance between place and number is
    (n² - 1) / 3n on average over all permutations. Raises InputError unless `order` is a
    permutation of 2 or more.

        >>> shuffle_quality(range(8))
        0.0
    """
    places = np.asarray(order)
    count = len(places)
    if count < 2 or not np.array_equal(np.sort(places), np.arange(count)):
        raise InputError(
            f"order must hold each number from 0 to n-1 once, for n of at least 2, got {count} "
            "numbers."
        )
    moved = np.abs(places - np.arange(count)).mean()
    return float(moved / ((count**2 - 1) / (3 * count)))


def classes_per_batch(labels: Sequence[int], batch: int) -> float:
    """Return the mean number of different labels in a batch. A shorter last batch is left out."""
    labels = np.asarray(labels)
    whole = len(labels) // batch
    if batch < 1 or not whole:
        raise InputError(f"The {len(labels)} labels must fill at least one batch of {batch}.")
    rows = labels[: whole * batch].reshape(whole, batch)
    return float(np.mean([len(np.unique(row)) for row in rows]))
