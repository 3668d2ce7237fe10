"""Running a dataset for a while, with a step after each batch, and comparing two of them."""

import statistics
import time
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, first_line
from .measuring import count_images


@dataclass(frozen=True)
class Pace:
    """How a dataset kept up: seconds and images per batch, and whether it came to its end."""

    batches: int
    images: int
    seconds: float
    ended: bool

    @property
    def seconds_per_batch(self) -> float:
        return self.seconds / self.batches

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds if self.seconds else float("inf")


def run_for(dataset: Any, seconds: float, step_seconds: float = 0.0) -> Pace:
    """Iterate `dataset` for about `seconds`, or to its end, sleeping a step after each batch.

    The first batch is waited for before the clock starts: what starts a pipeline is
    not its pace. A dataset of one batch is timed with it. Raises InputError for an
    empty dataset and for one that fails, with TensorFlow's first line.
    """
    batches = images = 0
    begun = time.perf_counter()
    elements = _guarded(dataset)
    first = next(elements, None)
    if first is None:
        raise InputError("the dataset is empty: there is nothing to measure")
    started, ended = time.perf_counter(), True
    time.sleep(step_seconds)
    for batch in elements:
        batches, images = batches + 1, images + count_images(batch)
        if step_seconds:
            time.sleep(step_seconds)
        if time.perf_counter() - started > seconds:
            ended = False
            break
    passed = time.perf_counter() - (started if batches else begun)
    return Pace(max(batches, 1), images or count_images(first), passed, ended)


def _guarded(dataset: Any) -> Any:
    import tensorflow as tf

    number = 0
    try:
        for element in dataset:
            number += 1
            yield element
    except tf.errors.OpError as error:
        raise InputError(
            f"the dataset failed at element {number + 1}: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from None


def fill_cache(dataset: Any, seconds: float) -> bool:
    """Run one whole epoch, which fills the caches; return False if it is not over in `seconds`."""
    return run_for(dataset, seconds).ended


@dataclass(frozen=True)
class Comparison:
    """How many times as fast the second dataset is, and of either: seconds, images per second."""

    ratio: float
    seconds_per_batch: tuple[float, float]
    images_per_second: tuple[float, float]


def compare(best: Any, other: Any, seconds: float, step_seconds: float) -> Comparison:
    """Run both in turns for `seconds` in all, three rounds; medians over the rounds."""
    rounds = 3
    paces: tuple[list[Pace], list[Pace]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            dataset = (best, other)[which]
            paces[which].append(run_for(dataset, seconds / (2 * rounds), step_seconds))
    ratio = statistics.median(
        b.images_per_second / a.images_per_second for a, b in zip(*paces, strict=True)
    )
    of_batch, rates = (
        tuple(statistics.median(getattr(pace, name) for pace in each) for each in paces)
        for name in ("seconds_per_batch", "images_per_second")
    )
    return Comparison(ratio, of_batch, rates)
