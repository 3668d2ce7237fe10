"""Lesson 14: where the cores of a TPU sit, drawn from its topology."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from distlab import figures
from distlab.figures import Arrow, Box, Picture

HOST_PX, CHIP_PX, CORE_PX, GAP_PX, TOP_PX = 130.0, 116.0, 66.0, 44.0, 40.0


def draw_mesh(topology: Mapping[str, Any], global_batch_size: int) -> Picture:
    """Draw the chips of the first host as a grid, each with its cores and their replicas.

    `topology` is what `utils.devices.describe_topology` returns. Every core is a replica, in
    the order of `topology["coordinates"]`, and takes its share of `global_batch_size`.
    """
    cores: dict[tuple[int, int], list[int]] = defaultdict(list)
    for replica, (x, y, *_) in enumerate(topology["coordinates"][0]):
        cores[x, y].append(replica)
    columns, rows = (1 + max(place[axis] for place in cores) for axis in (0, 1))
    wide = (720 - HOST_PX - columns * GAP_PX) / columns
    tall = rows * CHIP_PX + (rows - 1) * GAP_PX
    boxes = {"host": Box("host", 0, TOP_PX, HOST_PX, tall)}
    inside = (12, TOP_PX + tall / 2 - 45, HOST_PX - 24, 90)
    boxes["input"] = Box("tf.data,\ncallbacks,\ncheckpoints", *inside, "data")
    for (x, y), replicas in cores.items():
        left = HOST_PX + GAP_PX + x * (wide + GAP_PX)
        top = TOP_PX + y * (CHIP_PX + GAP_PX)
        share = global_batch_size // topology["cores"]
        boxes |= _draw_chip((x, y), replicas, share, left, top, wide)
    title = f"A mesh of {columns} × {rows} chips, {len(cores[0, 0])} cores on each"
    return figures.diagram(
        boxes, _link(cores), title=title, alt=_describe(cores, title), height_px=TOP_PX + tall + 4
    )


def _draw_chip(
    place: tuple[int, int], replicas: list[int], share: int, left: float, top: float, wide: float
) -> dict[str, Box]:
    """Return the frame of a chip and a box for each of its cores."""
    boxes = {f"chip {place}": Box(f"chip {place[0]}, {place[1]}", left, top, wide, CHIP_PX)}
    core = (wide - 12 * (len(replicas) + 1)) / len(replicas)
    for number, replica in enumerate(replicas):
        x, y = left + 12 + number * (core + 12), top + CHIP_PX - CORE_PX - 12
        text = f"replica {replica}\n{share} images"
        boxes[f"replica {replica}"] = Box(text, x, y, core, CORE_PX, "compute")
    return boxes


def _link(cores: Mapping[tuple[int, int], list[int]]) -> list[Arrow]:
    """Return the links between neighboring chips, and the one from the host."""
    ends = [(f"chip {a}", f"chip {b}") for a in cores for b in cores if _are_next(a, b)]
    links = [Arrow(*pair, both=True) for pair in ends]
    first = [f"chip {place}" for place in cores if place[0] == 0]
    return links + [Arrow("host", chip, dashed=True, both=True) for chip in first]


def _are_next(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return (other[0] - one[0], other[1] - one[1]) in ((1, 0), (0, 1))


def _describe(cores: Mapping[tuple[int, int], list[int]], title: str) -> str:
    chips = [
        f"chip {x}, {y} has replicas {', '.join(map(str, own))}" for (x, y), own in cores.items()
    ]
    return f"{title}: {'; '.join(chips)}. Neighbors are linked; the host feeds all of them."
