"""The cost of each stage of a chain alone, measured on longer and longer beginnings of it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from ..errors import InputError, first_line
from ..measure import Stopwatch
from .chain import ChainStage, as_written, take_apart
from .rebuild import TuneSettings, rebuild

ROUNDS = 3


@dataclass(frozen=True)
class StageCost:
    """Seconds of one stage for each image, alone on one thread."""

    name: str
    kind: str
    seconds_per_image: float


def measure_costs(stages: list[ChainStage], seconds: float = 4.0) -> list[StageCost]:
    """Return what each stage adds to the time of one image, nothing at the same time.

    A stage's cost is the time of the chain up to it less the time of the chain up
    to the stage before. The beginnings of the chain take turns, so that a moment in
    which the machine is busy hits all of them, and the shortest of three rounds counts.
    `seconds` is for all of them. Caches, prefetches, repeats and options are left out:
    they do no work.
    """
    working = [s for s in stages if s.kind not in ("cache", "prefetch", "repeat", "options")]
    reads = [number for number, stage in enumerate(working) if stage.kind == "read"]
    first = max(reads, default=0)  # elements before it are files, not images
    ends = range(first + 1, len(working) + 1)
    timers = [
        make_timer(
            as_written(rebuild(working[:end], TuneSettings())),
            seconds / len(working) / 4,
            working[end - 1].name,
        )
        for end in ends
    ]
    rounds = [[timer() for timer in timers] for _ in range(ROUNDS)]
    added = split_times([min(times) for times in zip(*rounds, strict=True)])
    stages = [working[end - 1] for end in ends]
    return [StageCost(s.name, s.kind, cost) for s, cost in zip(stages, added, strict=True)]


def split_times(seconds: list[float]) -> list[float]:
    """Return what each stage adds, from the seconds of longer and longer beginnings of a chain.

    A beginning takes no longer than the whole: where it was measured so, the longer
    one's time counts for both. So no stage costs more than the chain, and they add up to it.
    """
    bounded = list(accumulate(reversed(seconds), min))[::-1]
    return [after - before for before, after in pairwise([0.0, *bounded])]


def make_timer(dataset: Any, seconds: float, name: str) -> Callable[[], float]:
    """Return a function that measures the seconds of `dataset` for each image, on one thread.

    Elements are made and thrown away by `Dataset.skip`, in C++: to hand each one to
    Python, or to a function of TensorFlow, costs more than most stages. Their number is
    doubled until those after the first one, which starts the pipeline, take eight times as
    long as that one (within twice `seconds`) or the dataset ends. What the first one takes
    is subtracted. Raises InputError for an empty dataset, and for one that fails.
    """
    import tensorflow as tf

    walk = tf.function(lambda most: _count(dataset.take(most).skip(most - 1)))
    wanted = 1
    with _explained(name):
        _time(walk, 1)  # traces it, unmeasured
        first, there = _time(walk, 1)
        enough, passed = max(seconds / 4, min(8 * first, 2 * seconds)), first
        while there and passed - first < enough:
            wanted *= 2
            passed, there = _time(walk, wanted)
        images, of_first = (int(_count_images(dataset.take(most))) for most in (wanted, 1))
    if not images:
        raise InputError(f"{name} gives no element, so there is nothing to measure.")

    def measure() -> float:
        with _explained(name):
            start = _time(walk, 1)[0] if images > of_first else 0.0
            passed = _time(walk, wanted)[0]
        return max(0.0, passed - start) / (images - of_first or images)

    return measure


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    import tensorflow as tf

    try:
        yield
    except (tf.errors.OpError, ValueError, TypeError) as error:
        said = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"{name} failed: {said}") from None


def _time(walk: Callable[[Any], Any], most: int) -> tuple[float, int]:
    """Return the seconds to the element in place `most`, and whether it is there (1 or 0).

    What the threads of this process computed or slept counts. What they waited for a core
    that other programs used doesn't, where Linux tells it (`/proc/self/task/*/schedstat`).
    """
    import tensorflow as tf

    number = tf.constant(most, tf.int64)
    computed, waited = time.process_time(), _waited_seconds()
    with Stopwatch() as watch:
        there = int(walk(number))
    waited, computed = _waited_seconds() - waited, time.process_time() - computed
    return min(watch.seconds, max(computed, watch.seconds - waited)), there


def _waited_seconds() -> float:
    """Return how long all threads of this process have waited for a core; 0 if unknown."""
    waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            waited += int(path.read_text().split()[1])  # running, waiting: nanoseconds
    return waited / 1e9


def _count(dataset: Any) -> Any:
    import tensorflow as tf

    def add(total: Any, *element: Any) -> Any:
        return total + 1

    return dataset.reduce(tf.constant(0, tf.int64), add)


def _count_images(dataset: Any) -> Any:
    """Return how many images `dataset` has: its elements, or the rows of its batches."""
    import tensorflow as tf

    if not any(stage.kind == "batch" for stage in take_apart(dataset)):
        return _count(dataset)

    def add(total: Any, *element: Any) -> Any:
        return total + tf.shape(tf.nest.flatten(element)[0], tf.int64)[0]

    return dataset.reduce(tf.constant(0, tf.int64), add)
