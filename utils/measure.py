"""Timing, bytes, throughput and peak memory as plain dataclasses. NumPy at most."""

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .checks import check_count


@dataclass(frozen=True)
class Timing:
    """Wall-clock seconds of several runs of one thing, in the order they ran."""

    seconds: tuple[float, ...]

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best_seconds(self) -> float:
        return min(self.seconds)


class Stopwatch:
    """Measure the wall-clock time of a `with` block in `seconds`.

    with Stopwatch() as watch:
        work()
    watch.seconds
    """

    seconds: float = 0.0

    def __enter__(self) -> "Stopwatch":
        self._begun = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds = time.perf_counter() - self._begun


def time_calls(call: Callable[[], Any], repeats: int = 5, warm_up: int = 1) -> Timing:
    """Call `call` `warm_up` times unmeasured, then `repeats` times measured; return the seconds.

    A TensorFlow call must finish its work before it returns (end it with `.numpy()`), or only its
    launch is measured. Raises InputError for fewer than one repeat.

        timing = time_calls(lambda: step(batch).numpy(), repeats=10)
        print(timing.median_seconds)
    """
    check_count("repeats", repeats)
    for _ in range(warm_up):
        call()
    seconds = []
    for _ in range(repeats):
        with Stopwatch() as watch:
            call()
        seconds.append(watch.seconds)
    return Timing(tuple(seconds))


def images_per_second(images: int, seconds: float) -> float:
    """Return the throughput of `images` handled in `seconds`."""
    return images / seconds if seconds > 0 else float("inf")


def array_bytes(arrays: Iterable[Any]) -> int:
    """Return the bytes of all elements of `arrays` (NumPy arrays, tensors or variables).

    >>> array_bytes([np.ones((256, 256), np.float32)])
    262144
    """
    return sum(math.prod(a.shape) * _item_bytes(a) for a in arrays)


def _item_bytes(array: Any) -> int:
    import numpy as np  # not for callers who only count or take the time: it takes 0.2 s

    dtype = array.dtype
    if hasattr(dtype, "size") and not isinstance(dtype, np.dtype):  # a TensorFlow dtype
        return dtype.size
    name = str(dtype)
    return 2 if name == "bfloat16" else np.dtype(name).itemsize


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `count(1, "worker")` is "1 worker", 4 "4 workers"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_bytes(count: float) -> str:
    """Return the bytes `count` for people, in B, KiB, MiB or GiB.

    >>> format_bytes(65536)
    '64.0 KiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def peak_memory_bytes() -> int:
    """Return the most memory this process has held so far, in bytes (its peak resident set).

    >>> peak_memory_bytes() > 2**20
    True
    """
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
