"""What each stage of a chain costs by itself, measured on longer and longer beginnings of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..measure import Stopwatch
from .chain import Stage, take_apart
from .ladder import as_written
from .rebuild import rebuild
from .settings import Settings


@dataclass(frozen=True)
class StageCost:
    """Seconds of one stage for each image, alone on one thread."""

    name: str
    kind: str
    seconds_per_image: float


def measure_costs(stages: list[Stage], seconds: float = 4.0) -> list[StageCost]:
    """Return what each stage adds to the time of one image, nothing at the same time.

    A stage's cost is the time of the chain up to it less the time of the chain up
    to the stage before. `seconds` is for all of them. Caches, prefetches, repeats
    and options are left out: they do no work of their own.
    """
    working = [s for s in stages if s.kind not in ("cache", "prefetch", "repeat", "options")]
    reads = [number for number, stage in enumerate(working) if stage.kind == "read"]
    first = max(reads, default=0)  # what comes before it has files for elements, not images
    costs, before = [], 0.0
    for end in range(first + 1, len(working) + 1):
        part = working[:end]
        chain = as_written(rebuild(part, Settings()))
        per_image = time_elements(chain, seconds / len(working), part[-1].name)
        costs.append(StageCost(part[-1].name, part[-1].kind, max(0.0, per_image - before)))
        before = max(before, per_image)
    return costs


def time_elements(dataset: Any, seconds: float, name: str = "the dataset") -> float:
    """Return the seconds that `dataset` takes for each image, inside TensorFlow, on one thread.

    Elements are counted by `Dataset.reduce`, in C++, since Python's loop would cost
    more than most stages; the cost of counting itself is measured and taken off.
    The number of elements is doubled until they fill half of `seconds` or the dataset
    ends; the shortest of two runs counts. Raises InputError for an empty dataset,
    and for one that fails.
    """
    counter = _make_counter(dataset)
    if not _count(counter, 1, name)[0]:  # starts it once, unmeasured
        raise InputError(f"{name} gives no element: there is nothing to measure")
    wanted = 16
    while True:
        passed, elements, images = _time_count(counter, wanted, name)
        if elements < wanted or passed > seconds / 4:
            break
        wanted *= 2
    again, _, _ = _time_count(counter, wanted, name)
    numbers = _make_counter(as_written(_range(elements)))
    _count(numbers, 1, "numbers")
    counting, _, _ = _time_count(numbers, elements, "numbers")
    return max(0.0, min(passed, again) - counting) / images


def _range(elements: int) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.range(elements)


def _make_counter(dataset: Any) -> Callable[[Any], Any]:
    """Return a compiled function: most elements to take -> [elements, images] that came."""
    import tensorflow as tf

    batched = any(stage.kind == "batch" for stage in take_apart(dataset))

    def add(totals: Any, *element: Any) -> Any:
        size = tf.shape(tf.nest.flatten(element)[0], tf.int64)[0] if batched else 1
        return totals + tf.stack([tf.constant(1, tf.int64), tf.cast(size, tf.int64)])

    return tf.function(lambda most: dataset.take(most).reduce(tf.zeros([2], tf.int64), add))


def _count(counter: Callable[[Any], Any], most: int, name: str) -> tuple[int, int]:
    import tensorflow as tf

    try:
        elements, images = counter(tf.constant(most, tf.int64)).numpy().tolist()
    except (tf.errors.OpError, ValueError, TypeError) as error:
        first = str(error).strip().split("\n")[0][:200]
        raise InputError(f"{name} failed: {type(error).__name__}: {first}") from None
    return elements, images


def _time_count(counter: Callable[[Any], Any], most: int, name: str) -> tuple[float, int, int]:
    with Stopwatch() as watch:
        elements, images = _count(counter, most, name)
    return watch.seconds, elements, images
