"""One value per replica, and where reduce, gather and all_reduce leave it."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from distlab.errors import CourseError
from distlab.explorables.explorable import Explorable
from distlab.figures import Picture, split_evenly, timeline
from utils.checks import check_choice
from utils.collectives.replica_values import WAYS, combine_values
from utils.errors import InputError

REPLICAS, MAX_VALUES = 4, 16  # at first


def replica_values(
    way: str = "sum",
    count: int = 8,
    values: Sequence[float] | None = None,
    *,
    autoplay: bool = True,
) -> Explorable:
    """Show what `way`, one of WAYS, makes of `count` values that replicas hold in equal parts.

    `values` are up to 16 numbers to take them from: 0 to 15 unless given. Raises
    DistributedError for an unknown way, and for more values than there are.
    """
    values = [float(value) for value in (range(MAX_VALUES) if values is None else values)]
    check_choice("way", way, WAYS)
    if not 1 <= count <= len(values) <= MAX_VALUES or not np.isfinite(values).all():
        raise CourseError(
            f"values must be 1 to {MAX_VALUES} finite numbers and count at most as many, got "
            f"{len(values)} and count={count}."
        )
    data = {
        "label": "One value per replica, reduced and gathered",
        "values": values,
        "autoplay": autoplay,
    }
    options = {
        "way": way,
        "replicas": REPLICAS,
        "count": count,
        "first": values[0],
        "pieces": "even",
        "owners": "",
        "time": 0,
    }
    return Explorable("values", data, options, _draw(way, values[:count]))


def _draw(way: str, values: list[float]) -> Picture:
    """Draw what each replica holds, and the answer where there is one."""
    ends = np.cumsum(split_evenly(len(values), REPLICAS))[:-1]
    parts = np.split(np.array(values), ends)
    lanes = {f"replica {k}": part for k, part in enumerate(parts)}
    with suppress(InputError):  # then the picture shows what the replicas hold
        lanes["the answer"] = combine_values(way, parts)
    kinds = dict.fromkeys(lanes, "held by a replica") | {"the answer": "the answer"}
    rows = [
        (lane, k, k + 1, f"{value:.4g}", kinds[lane])
        for lane, held in lanes.items()
        for k, value in enumerate(held.tolist())
    ]
    title = f"What {REPLICAS} replicas hold, and what {way} makes of it"
    return timeline(rows, title=title, axis="", unit="numbers")
