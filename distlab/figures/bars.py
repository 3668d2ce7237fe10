"""Horizontal bars with their values written beside them."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from distlab.errors import CourseError
from distlab.figures.canvas import (
    BLUE,
    COLOURS,
    SMALL_PX,
    TEXT_PX,
    VERMILLION,
    WIDTH_PX,
    draw,
    label_paper,
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

ROW_PX, BAR_PX, TOP_PX = 34.0, 22.0, 40.0


def bars(
    values: Mapping[str, float],
    *,
    unit: str,
    title: str,
    reference: tuple[str, float] | None = None,
    highlight: str | Collection[str] | None = None,
    log: bool = False,
    alt: str | None = None,
) -> Picture:
    """Draw one horizontal bar for each of `values`, in their order, with its value in `unit`.

    `reference` is a dashed line with its label, `(label, value)`; `highlight`
    names the bars that the text speaks of; `log` draws lengths on a logarithmic
    scale, where bars grow from `reference`, if there is one, to either side. Raises
    CourseError for no values, values that are not finite and, with `log`, values
    of 0 or less.
    """
    _check(values, log)
    marked = {highlight} if isinstance(highlight, str) else set(highlight or ())
    rows = [(name, value, VERMILLION if name in marked else BLUE) for name, value in values.items()]
    top_px = TOP_PX + (20 if reference else 0)

    def paint(figure: "Figure") -> None:
        write_title(figure, title)
        axes = pixel_axes(figure)
        left = max(text_width_px(name) for name in values) + 14
        lines = [reference[1]] if reference else []
        centred = log and bool(reference)
        to_px = _lengths([*values.values(), *lines], unit, left, log, centred)
        line_px = to_px(reference[1]) if reference else None
        base_px = line_px if centred else to_px(None)
        for number, (name, value, colour) in enumerate(rows):
            y = top_px + number * ROW_PX
            _draw_row(axes, y, left, base_px, to_px, name, value, unit, colour, line_px=line_px)
        bottom = top_px + len(rows) * ROW_PX
        if not centred:
            axes.plot([base_px] * 2, [top_px - 4, bottom], color=INK, linewidth=1)
        if reference:
            _draw_reference(axes, reference, to_px(reference[1]), top_px - 8, bottom)

    height_px = top_px + len(rows) * ROW_PX + 8
    return draw(paint, alt=alt or _describe(values, unit, title, reference), height_px=height_px)


def _check(values: Mapping[str, float], log: bool) -> None:
    if not values:
        raise CourseError("bars: no values to draw: give at least one name with its value")
    for name, value in values.items():
        if not np.isfinite(value):
            raise CourseError(f"bars: {name!r} is {value}: only finite values can be drawn")
        if log and value <= 0:
            raise CourseError(f"bars: {name!r} is {value}: log=True needs values above 0")


def _lengths(values: list[float], unit: str, left: float, log: bool, centred: bool = False):
    """Return the function from a value (None: the base line) to pixels from the left edge."""
    room = max(text_width_px(_with_unit(value, unit)) for value in values) + 14
    if log:
        logs = np.log10(values)
        low, high = logs.min() if centred else np.floor(logs.min() - 0.1), logs.max()
    else:
        low, high = min(0.0, *values), max(0.0, *values)
    start = left + (room if centred or (low < 0 and not log) else 0)
    scale = (WIDTH_PX - start - room) / ((high - low) or 1.0)

    def to_px(value: float | None) -> float:
        at = (low if log else 0.0) if value is None else (np.log10(value) if log else value)
        return float(start + (at - low) * scale)

    return to_px


def _draw_row(axes, y, left, base, to_px, name, value, unit, colour, line_px=None) -> None:
    from matplotlib.patches import Rectangle

    end = to_px(value)
    edge = y + (ROW_PX - BAR_PX) / 2
    box = Rectangle(
        (min(base, end), edge), abs(end - base), BAR_PX, facecolor=tinted(colour, 0.55),
        edgecolor=colour, linewidth=1.2,
    )  # fmt: skip
    axes.add_patch(box)
    axes.text(left - 10, y + ROW_PX / 2, name, ha="right", va="center", size=TEXT_PX)
    says = _with_unit(value, unit)
    side = (end + 6, "left") if end > base - 1e-3 else (end - 6, "right")
    crossed = line_px is not None and 0 < line_px - side[0] < text_width_px(says)
    axes.text(
        side[0], y + ROW_PX / 2, says, ha=side[1], va="center", size=TEXT_PX,
        bbox=label_paper() if crossed else None,
    )  # fmt: skip


def _draw_reference(axes: "Axes", reference: tuple[str, float], x, top, bottom) -> None:
    label, value = reference
    axes.plot([x, x], [top + 2, bottom], color=INK, linewidth=1.5, linestyle=(0, (5, 3)))
    width = text_width_px(label, SMALL_PX)
    start = min(max(x - width / 2, 0), WIDTH_PX - width)
    axes.text(start, top - 6, label, ha="left", va="center", size=SMALL_PX)


def _with_unit(value: float, unit: str) -> str:
    if unit in ("x", "×"):
        return f"×{say_number(value)}"
    return f"{say_number(value)}{'' if unit == '%' else ' '}{unit}".strip()


def _describe(values: Mapping[str, float], unit: str, title: str, reference) -> str:
    says = "; ".join(f"{name}: {_with_unit(value, unit)}" for name, value in values.items())
    line = f" A line marks {reference[0]} at {_with_unit(reference[1], unit)}." if reference else ""
    return f"{title}. {says}.{line}"


def grouped_bars(
    groups: Mapping[str, Mapping[str, float]],
    *,
    unit: str,
    title: str,
    log: bool = False,
    alt: str | None = None,
) -> Picture:
    """Draw the bars of several groups side by side: `{group: {name: value}}`.

    A name that occurs in several groups has one colour in all of them. Raises
    CourseError as `bars` does, and for a group without bars.
    """
    for group, values in groups.items():
        if not values:
            raise CourseError(f"grouped_bars: {group!r} has no bars")
        _check(values, log)
    if not groups:
        raise CourseError("grouped_bars: no groups to draw")
    names = list(dict.fromkeys(name for values in groups.values() for name in values))
    every = [value for values in groups.values() for value in values.values()]
    gap_px, head_px = 12, 22

    def paint(figure: "Figure") -> None:
        write_title(figure, title)
        axes = pixel_axes(figure)
        left = max(text_width_px(name) for name in names) + 14
        to_px = _lengths(every, unit, left, log)
        y = TOP_PX
        for group, values in groups.items():
            axes.text(0, y + head_px / 2, group, ha="left", va="center", weight="bold")
            y += head_px
            axes.plot([to_px(None)] * 2, [y, y + len(values) * ROW_PX], color=INK, linewidth=1)
            for name, value in values.items():
                style = names.index(name) % len(COLOURS)
                _draw_row(axes, y, left, to_px(None), to_px, name, value, unit, COLOURS[style])
                y += ROW_PX
            y += gap_px

    height_px = TOP_PX + sum(head_px + gap_px + len(v) * ROW_PX for v in groups.values())
    return draw(paint, alt=alt or _describe_groups(groups, unit, title), height_px=height_px)


def _describe_groups(groups: Mapping[str, Mapping[str, float]], unit: str, title: str) -> str:
    says = []
    for group, values in groups.items():
        inside = ", ".join(f"{name} {_with_unit(value, unit)}" for name, value in values.items())
        says.append(f"{group}: {inside}")
    return f"{title}. {'; '.join(says)}."
