"""Lanes of spans on one time axis: what each worker, stage or device does when."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from distlab.errors import CourseError
from distlab.figures.canvas import (
    COLOURS,
    SMALL_PX,
    TEXT_PX,
    WIDTH_PX,
    count,
    draw,
    pixel_axes,
    say_number,
    text_width_px,
    tinted,
    write_title,
)
from distlab.figures.picture import INK, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = tuple[str, float, float, str, str]  # lane, start, end, label, kind

LANE_PX, TOP_PX, KEY_PX, AXIS_PX = 38.0, 36.0, 26.0, 46.0


def timeline(
    rows: Sequence[Row], *, title: str, unit: str = "s", alt: str | None = None
) -> Picture:
    """Draw spans (lane, start, end, label, kind) as bars in lanes, lanes in their first order.

    Spans of one kind share a colour (from the seventh kind on, with a dashed
    edge), named in a key when there is more than one kind. A label is written
    where it fits into its bar. Raises CourseError for no rows and for a span
    that ends before it starts.
    """
    _check(rows)
    lanes = list(dict.fromkeys(row[0] for row in rows))
    kinds = list(dict.fromkeys(row[4] for row in rows))
    top_px = TOP_PX + (KEY_PX if len(kinds) > 1 else 0)

    def paint(figure: "Figure") -> None:
        write_title(figure, title)
        axes = pixel_axes(figure)
        if len(kinds) > 1:
            _draw_key(axes, kinds)
        left = max(text_width_px(lane) for lane in lanes) + 14
        begin, end = min(row[1] for row in rows), max(row[2] for row in rows)
        scale = (WIDTH_PX - left - 12) / ((end - begin) or 1.0)
        bottom = top_px + len(lanes) * LANE_PX
        _draw_axis(axes, begin, end, left, scale, top_px, bottom, unit)
        for number, lane in enumerate(lanes):
            y = top_px + (number + 0.5) * LANE_PX
            axes.text(left - 10, y, lane, ha="right", va="center", size=TEXT_PX)
        for lane, start, stop, label, kind in rows:
            y = top_px + lanes.index(lane) * LANE_PX
            x, wide = left + (start - begin) * scale, (stop - start) * scale
            _draw_span(axes, x, y, wide, label, kinds.index(kind))

    height_px = top_px + len(lanes) * LANE_PX + AXIS_PX
    return draw(paint, alt=alt or _describe(rows, lanes, title, unit), height_px=height_px)


def _check(rows: Sequence[Row]) -> None:
    if not rows:
        raise CourseError("timeline: no rows to draw: give at least one span")
    for lane, start, end, label, _ in rows:
        if not (np.isfinite(start) and np.isfinite(end) and end >= start):
            raise CourseError(f"timeline: {label!r} of {lane!r} starts at {start}, ends at {end}")


def _draw_axis(axes: "Axes", begin, end, left, scale, top, bottom, unit: str) -> None:
    from matplotlib.ticker import MaxNLocator

    for tick in MaxNLocator(nbins=8, steps=[1, 2, 5, 10]).tick_values(begin, end):
        if begin - 1e-9 <= tick <= end + 1e-9:
            x = left + (tick - begin) * scale
            axes.plot([x, x], [top, bottom], color=INK, alpha=0.16, linewidth=1)
            text = f"{tick:,.6g}"
            axes.text(x, bottom + 13, text, ha="center", va="center", size=SMALL_PX)
    middle = left + (WIDTH_PX - left) / 2
    name = f"time ({unit})" if unit else "time"
    axes.text(middle, bottom + 33, name, ha="center", va="center", size=TEXT_PX)


def _draw_span(axes: "Axes", x, y, wide, label: str, style: int) -> None:
    _draw_swatch(axes, x + 0.75, y + 4, max(wide - 1.5, 1.0), LANE_PX - 8, style)
    if label and text_width_px(label, SMALL_PX) + 4 <= wide:
        y_middle = y + LANE_PX / 2
        axes.text(x + wide / 2, y_middle, label, ha="center", va="center", size=SMALL_PX)


def _draw_swatch(axes: "Axes", x, y, wide, tall, style: int) -> None:
    from matplotlib.patches import Rectangle

    colour = COLOURS[style % len(COLOURS)]
    edge = "-" if style < len(COLOURS) else (0, (3, 2))
    face = tinted(colour, 0.38)
    axes.add_patch(
        Rectangle(
            (x, y), wide, tall, facecolor=face, edgecolor=colour, linewidth=1.2, linestyle=edge
        )
    )


def _draw_key(axes: "Axes", kinds: list[str]) -> None:
    x = 0.0
    for style, kind in enumerate(kinds):
        _draw_swatch(axes, x + 1, TOP_PX, 16, 13, style)
        axes.text(x + 24, TOP_PX + 7, kind, ha="left", va="center", size=SMALL_PX)
        x += 24 + text_width_px(kind, SMALL_PX) + 22


def _describe(rows: Sequence[Row], lanes: list[str], title: str, unit: str) -> str:
    end = max(row[2] for row in rows)
    says = []
    for lane in lanes:
        spans = [row for row in rows if row[0] == lane]
        busy = sum(row[2] - row[1] for row in spans)
        says.append(f"{lane}: {count(len(spans), 'span')}, {say_number(busy)} {unit} in all")
    return f"{title}. {'; '.join(says)}. The last ends at {say_number(end)} {unit}.".replace(
        " .", "."
    )
