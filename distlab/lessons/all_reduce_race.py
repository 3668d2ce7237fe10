"""Pictures of lessons 06 and 07: what an all-reduce costs, counted and timed."""

from collections.abc import Sequence

import numpy as np

from distlab import figures
from distlab.figures.canvas import BLUE, GREEN, SKY, VERMILION

COLORS = {"ours": BLUE, "TensorFlow": VERMILION, "ring": GREEN, "published": SKY}  # in both


def draw_times(
    series: dict[str, tuple[Sequence[float], Sequence[float]]], title: str
) -> figures.Picture:
    """Draw seconds against payload bytes, both axes logarithmic.

    `series` is name -> (payload bytes, seconds). What stands before a comma in a name is
    one of COLORS, so that a measured line and its prediction have one color.
    """
    return figures.lines(
        series,
        x_label="payload",
        y_label="time of one all-reduce",
        title=title,
        log_x=True,
        log_y=True,
        x_unit="B",
        y_unit="s",
        colors={name: COLORS[name.split(",")[0]] for name in series},
    )


def draw_costs(
    costs: dict[str, tuple[int, int, int]], between: dict[str, int], vector_bytes: int
) -> figures.Picture:
    """Draw a table of algorithms with the fewest of each column marked.

    `costs` is name -> (steps, messages, bytes), the last two of the rank that sends most;
    `between` the bytes from machine to machine. Bytes are drawn in vectors.
    """
    rows = np.array(
        [
            [steps, messages, sent / vector_bytes, between[name] / vector_bytes]
            for name, (steps, messages, sent) in costs.items()
        ]
    )
    fewest = rows <= 1.0001 * rows.min(axis=0)  # chunks of one vector may differ by an element
    return figures.matrix(
        rows,
        list(costs),
        ["steps", "messages*", "vectors sent*", "vectors between machines"],
        title="Four ranks on two machines (* by the rank that sends most); tinted: the fewest",
        format="{:.4g}",
        marked={(int(i), int(j)) for i, j in zip(*np.nonzero(fewest), strict=True)},
    )
