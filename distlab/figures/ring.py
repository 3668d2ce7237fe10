"""One moment of a ring all-reduce: every rank's chunks, and what travels to its neighbour."""

import math
from typing import TYPE_CHECKING

import numpy as np

from distlab.errors import CourseError
from distlab.figures.canvas import (
    BLUE,
    GREEN,
    SMALL_PX,
    TEXT_PX,
    VERMILLION,
    WIDTH_PX,
    draw,
    pixel_axes,
    tinted,
    write_title,
)
from distlab.figures.picture import INK, Picture
from utils.collectives import Message, Moment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_RANKS = 6
TOP_PX, HEAD_PX, LEFT_PX, GAP_PX, RIGHT_PX, FOOT_PX = 34.0, 24.0, 62.0, 34.0, 30.0, 34.0
LINE_PX, MOST_VALUES = 17.0, 3


def ring_moment(moment: Moment) -> Picture:
    """Draw the ranks side by side, a box for each chunk, and an arrow for each message to come.

    A box shows its first numbers and whose they are the sum of; green with a solid
    thick edge is whole, blue with a dashed edge has just arrived. The last rank's arrow
    comes in again at the left. Raises CourseError for more than six ranks.
    """
    check_ranks(moment)
    scale, unit = choose_unit(moment)
    shown = min(MOST_VALUES, max(len(v) for v in moment.values[0]))
    box_px = (shown + 1) * LINE_PX + 12

    def paint(figure: "Figure") -> None:
        write_title(figure, say_title(moment))
        axes = pixel_axes(figure)
        wide = (WIDTH_PX - LEFT_PX - RIGHT_PX - GAP_PX * (moment.ranks - 1)) / moment.ranks
        for rank in range(moment.ranks):
            x = LEFT_PX + rank * (wide + GAP_PX)
            head = TOP_PX + HEAD_PX / 2
            axes.text(x + wide / 2, head, f"rank {rank}", ha="center", va="center", size=TEXT_PX)
            for chunk in range(moment.ranks):
                y = TOP_PX + HEAD_PX + chunk * (box_px + 8)
                _draw_box(axes, moment, rank, chunk, (x, y, wide, box_px), scale)
        for chunk in range(moment.ranks):
            y = TOP_PX + HEAD_PX + chunk * (box_px + 8) + box_px / 2
            axes.text(0, y - 14, f"chunk {chunk}", ha="left", va="center", size=SMALL_PX)
        for message in moment.leaving:
            y = TOP_PX + HEAD_PX + message.chunk * (box_px + 8) + box_px / 2
            _draw_arrow(axes, message, y, wide, moment.ranks)
        axes.text(0, height_px - 12, say_key(unit), ha="left", va="center", size=SMALL_PX)

    height_px = TOP_PX + HEAD_PX + moment.ranks * (box_px + 8) + FOOT_PX
    return draw(paint, alt=describe_moment(moment), height_px=height_px)


def check_ranks(moment: Moment) -> None:
    """Raise CourseError for more ranks than can stand side by side."""
    if moment.ranks > MOST_RANKS:
        raise CourseError(f"{moment.ranks} ranks side by side: give {MOST_RANKS} or fewer")


def _draw_box(axes: "Axes", moment: Moment, rank: int, chunk: int, place, scale: float) -> None:
    from matplotlib.patches import Rectangle

    x, y, wide, tall = place
    whole = moment.is_whole(rank, chunk)
    fresh = any(m.destination == rank and m.chunk == chunk for m in moment.arrived)
    colour = GREEN if whole else (BLUE if fresh else INK)
    box = Rectangle(
        (x, y), wide, tall, facecolor=tinted(colour, 0.22 if whole or fresh else 0.04),
        edgecolor=colour, linewidth=2.0 if whole or fresh else 1.0,
        linestyle=(0, (4, 2)) if fresh and not whole else "-",
    )  # fmt: skip
    axes.add_patch(box)
    lines = write_values(moment.values[rank][chunk], scale)
    first = y + (tall - len(lines) * LINE_PX) / 2  # so that all lines stand in the middle
    for number, text in enumerate([*lines, say_parts(moment, rank, chunk)]):
        last = number == len(lines)
        axes.text(
            x + wide / 2, first + number * LINE_PX, text, ha="center", va="center",
            size=SMALL_PX if last else TEXT_PX, weight="normal" if last else "bold",
        )  # fmt: skip


def _draw_arrow(axes: "Axes", message: Message, y: float, wide: float, ranks: int) -> None:
    """Draw the message from its box to the next rank's; the last rank's in two halves."""
    end = LEFT_PX + message.source * (wide + GAP_PX) + wide
    spans = [(end + 2, end + GAP_PX - 2)]
    if message.destination == 0:
        spans = [(end + 2, end + RIGHT_PX - 2), (LEFT_PX - 28, LEFT_PX - 2)]
    for start, stop in spans:
        axes.annotate(
            "", (stop, y), (start, y),
            arrowprops={"arrowstyle": "-|>", "color": VERMILLION, "linewidth": 2.4,
                        "shrinkA": 0, "shrinkB": 0, "mutation_scale": 15},
        )  # fmt: skip


# ---- words and numbers, shared with the stepper


def choose_unit(moment: Moment) -> tuple[float, str]:
    """Return what to multiply the numbers with so that they are short, and how to say that."""
    finite = [np.abs(v[np.isfinite(v)]) for row in moment.values for v in row]
    largest = max((float(v.max()) for v in finite if v.size), default=0.0)
    if largest == 0 or 1 <= largest < 1000:
        return 1.0, "numbers are rounded"
    power = 3 * math.floor(math.log10(largest) / 3)
    return 10.0**-power, f"numbers in units of 1e{power:+03d}, rounded"


def write_values(values: np.ndarray, scale: float) -> list[str]:
    """Return the first numbers of a chunk, at most three lines."""
    if not len(values):
        return ["(empty)"]
    shown = [f"{float(v) * scale:.2f}".replace("-", "\u2212") for v in values[:MOST_VALUES]]
    if len(values) > MOST_VALUES:
        shown[-1] = f"\u2026 {len(values) - MOST_VALUES + 1} more"
    return shown


def say_parts(moment: Moment, rank: int, chunk: int) -> str:
    """Return whose numbers a chunk is: "of 2", "of 1+2", "whole sum"."""
    if moment.is_whole(rank, chunk):
        return "whole sum"
    return "of " + "+".join(str(one) for one in sorted(moment.parts[rank][chunk]))


def say_title(moment: Moment) -> str:
    """Return "After step 2 of 6, reduce-scatter"."""
    if moment.step == 0:
        return f"Before step 1 of {moment.steps}: every rank has its own numbers"
    return f"After step {moment.step} of {moment.steps}, {moment.phase}"


def say_key(unit: str) -> str:
    key = "of 0+1: sum over ranks 0 and 1 · arrow: what travels next"
    return f"{key} · {unit}"


def describe_moment(moment: Moment) -> str:
    """Return in words who holds whole sums and what travels next."""
    whole = [
        f"rank {rank} chunk {chunk}"
        for rank in range(moment.ranks)
        for chunk in range(moment.ranks)
        if moment.is_whole(rank, chunk)
    ]
    says = f"{say_title(moment)}. {moment.ranks} ranks on a ring, each with {moment.ranks} chunks. "
    everything = moment.ranks**2
    if len(whole) == everything:
        return says + "Every rank has the whole sum of every chunk."
    says += f"Whole sums: {', '.join(whole) or 'none'}. "
    next_ones = [f"chunk {m.chunk} from rank {m.source} to {m.destination}" for m in moment.leaving]
    return f"{says}Next travel: {', '.join(next_ones)}."
