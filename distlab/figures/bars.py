"""Horizontal bars with their values written next to them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from distlab.errors import CourseError
from distlab.figures import canvas
from distlab.figures.canvas import SMALL_PX, WIDTH_PX, Sheet, draw_sheet, say_number, text_width_px
from distlab.figures.picture import Picture

TOP_PX, ROW_PX, BAR_PX, GROUP_PX, GAP_PX, KEY_PX = 40.0, 34.0, 22.0, 22.0, 12.0, 22.0
LOG_PX, LOG_WORDS = 20.0, "logarithmic scale: equal lengths are equal factors"

Bar = tuple[str, Sequence[tuple[float, str]]]  # its name, (value, color) of each part


@dataclass(frozen=True)
class Scale:
    """The layout of bars: names end at `left`, bars begin at `base_px`; a reference line."""

    left: float
    unit: str
    to_px: Callable[[float | None], float]
    base_px: float
    line_px: float | None = None


def bars(
    values: Mapping[str, float],
    *,
    unit: str,
    title: str,
    reference: tuple[str, float] | None = None,
    highlight: str | Collection[str] | None = None,
    log: bool = False,
) -> Picture:
    """Draw one horizontal bar for each of `values`, in their order, with its value in `unit`.

    `reference` is a dashed line with its label, `(label, value)`; `highlight`
    names the bars that the text speaks of; `log` draws lengths on a logarithmic
    scale, and says so below the bars, which grow from `reference`, if there is one, to
    either side. Raises
    CourseError for no values, values that aren't finite and, with `log`, values
    of 0 or less.
    """
    _check_bars(values, log)
    marked = {highlight} if isinstance(highlight, str) else set(highlight or ())
    colors = [canvas.VERMILION if name in marked else canvas.BLUE for name in values]
    rows = [(name, [(value, color)]) for (name, value), color in zip(values.items(), colors)]
    says = "; ".join(f"{name}: {_with_unit(value, unit)}" for name, value in values.items())
    chart = None if log or marked else _describe_chart({"": values}, unit)
    if chart and reference:
        chart["limit"] = list(reference)
    return _draw({"": rows}, unit, title, says, reference=reference, log=log, chart=chart)


def grouped_bars(
    groups: Mapping[str, Mapping[str, float]],
    *,
    unit: str,
    title: str,
) -> Picture:
    """Draw the bars of several groups side by side: `{group: {name: value}}`.

    A name that occurs in several groups has one color in all of them. Raises
    CourseError as `bars` does, and for a group without bars.
    """
    for group, values in groups.items():
        if not values:
            raise CourseError(f"grouped_bars: {group!r} must have at least one bar.")
        _check_bars(values, log=False)
    if not groups:
        raise CourseError("grouped_bars must have at least one group, got none.")
    colors = _choose_colors(groups)
    rows = {
        group: [(name, [(value, colors[name])]) for name, value in values.items()]
        for group, values in groups.items()
    }
    return _draw(rows, unit, title, _list_parts(groups, unit), chart=_describe_chart(groups, unit))


def stacked_bars(
    rows: Mapping[str, Mapping[str, float]],
    *,
    unit: str,
    title: str,
    reference: tuple[str, float] | None = None,
) -> Picture:
    """Draw one bar for each row, made of its parts one after the other: `{row: {part: value}}`.

    A part has one color in all rows, named in a key. The row's sum is written at its end.
    `reference` is a dashed line with its label. Raises CourseError for no rows, for a row
    without parts, and for values that aren't finite or below 0.
    """
    totals = {name: _check_stack(name, values) for name, values in rows.items()}
    _check_bars(totals, log=False)
    colors = _choose_colors(rows)
    parts = [
        (name, [(value, colors[part]) for part, value in values.items()])
        for name, values in rows.items()
    ]
    says = _list_parts(rows, unit)
    return _draw({"": parts}, unit, title, says, reference=reference, key=colors)


def _choose_colors(rows: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return the color of each name that occurs in a row."""
    names = dict.fromkeys(name for values in rows.values() for name in values)
    return {name: canvas.COLORS[n % len(canvas.COLORS)] for n, name in enumerate(names)}


def _list_parts(rows: Mapping[str, Mapping[str, float]], unit: str) -> str:
    return "; ".join(
        f"{name}: {', '.join(f'{part} {_with_unit(v, unit)}' for part, v in values.items())}"
        for name, values in rows.items()
    )


def _describe_chart(groups: Mapping[str, Mapping[str, float]], unit: str) -> dict[str, Any]:
    listed = [[g, [[name, float(v)] for name, v in values.items()]] for g, values in groups.items()]
    return {"kind": "bars", "unit": unit, "groups": listed}


def _check_stack(name: str, values: Mapping[str, float]) -> float:
    """Return the sum of a row's parts."""
    if not values:
        raise CourseError(f"stacked_bars: {name!r} must have at least one part.")
    for part, value in values.items():
        if not (np.isfinite(value) and value >= 0):
            raise CourseError(
                f"stacked_bars: {part!r} of {name!r} must be finite and at least 0, got {value}."
            )
    return float(sum(values.values()))


def _check_bars(values: Mapping[str, float], log: bool) -> None:
    if not values:
        raise CourseError("bars must have at least one name with its value, got none.")
    for name, value in values.items():
        if not np.isfinite(value):
            raise CourseError(f"bars: {name!r} must be finite, got {value}.")
        if log and value <= 0:
            raise CourseError(f"bars: {name!r} must be above 0 for log=True, got {value}.")


def _draw(
    groups: Mapping[str, list[Bar]],
    unit: str,
    title: str,
    says: str,
    *,
    reference: tuple[str, float] | None = None,
    log: bool = False,
    key: Mapping[str, str] | None = None,
    chart: dict[str, Any] | None = None,
) -> Picture:
    """Draw the bars of each group under its name, "" for none; `says` has their values in words."""
    every = [bar for rows in groups.values() for bar in rows]
    top_px = TOP_PX + (KEY_PX if key else 0) + (20 if reference else 0)
    head_px, gap_px = (GROUP_PX, GAP_PX) if any(groups) else (0.0, 0.0)
    bottom_px = top_px + len(groups) * (head_px + gap_px) + len(every) * ROW_PX

    def paint(sheet: Sheet) -> None:
        left = max(text_width_px(name) for name, _ in every) + 14
        scale = _fit(every, unit, left, reference, log)
        _draw_key(sheet, key or {})
        y = top_px
        for group, rows in groups.items():
            if group:
                sheet.write(0, y + GROUP_PX / 2, group, "left", weight="bold")
            y += head_px
            if not (log and reference):
                ends = [y - (0 if group else 4), y + len(rows) * ROW_PX]
                sheet.line([scale.base_px] * 2, ends, linewidth=1)
            for bar in rows:
                _draw_bar(sheet, y, scale, bar)
                y += ROW_PX
            y += gap_px
        if reference:
            _draw_reference(sheet, reference[0], scale.line_px, top_px - 8, bottom_px)
        if log:
            sheet.write(left, bottom_px + LOG_PX / 2, LOG_WORDS, "left", SMALL_PX)

    line = f" A line marks {reference[0]} at {_with_unit(reference[1], unit)}." if reference else ""
    words = f"{title}. {says}.{line}{' The scale is logarithmic.' if log else ''}"
    height_px = bottom_px + (LOG_PX if log else 0) + (0 if any(groups) else 8)
    return draw_sheet(paint, title=title, alt=words, height_px=height_px, chart=chart)


def _fit(
    every: Sequence[Bar], unit: str, left: float, reference: tuple[str, float] | None, log: bool
) -> Scale:
    """Return the scale on which all bars, their values in words and the line have room."""
    lines = [reference[1]] if reference else []
    centered = log and bool(reference)
    values = [*(sum(value for value, _ in parts) for _, parts in every), *lines]
    room = max(text_width_px(_with_unit(value, unit)) for value in values) + 14
    if log:
        logs = np.log10(values)
        low, high = logs.min() if centered else np.floor(logs.min() - 0.1), logs.max()
    else:
        low, high = min(0.0, *values), max(0.0, *values)
    start = left + (room if centered or (low < 0 and not log) else 0)
    scale = (WIDTH_PX - start - room) / ((high - low) or 1.0)

    def to_px(value: float | None) -> float:
        at = (low if log else 0.0) if value is None else (np.log10(value) if log else value)
        return float(start + (at - low) * scale)

    line_px = to_px(reference[1]) if reference else None
    return Scale(left, unit, to_px, line_px if centered else to_px(None), line_px)


def _draw_key(sheet: Sheet, colors: Mapping[str, str]) -> None:
    x = 0.0
    for part, color in colors.items():
        sheet.rectangle(x + 1, TOP_PX - 4, 16, 13, color, 0.55, linewidth=1.2)
        sheet.write(x + 24, TOP_PX + 3, part, "left", SMALL_PX)
        x += 24 + text_width_px(part, SMALL_PX) + 22


def _draw_bar(sheet: Sheet, y: float, scale: Scale, bar: Bar) -> None:
    name, parts = bar
    base, middle = scale.base_px, y + ROW_PX / 2
    sums = list(accumulate(value for value, _ in parts))
    edges = [base, *map(scale.to_px, sums)]
    for (start, end), (_, color) in zip(pairwise(edges), parts):
        place = (min(start, end), y + (ROW_PX - BAR_PX) / 2, abs(end - start), BAR_PX)
        sheet.rectangle(*place, color, 0.55, linewidth=1.2)
    sheet.write(scale.left - 10, middle, name, "right")
    says, end = _with_unit(sums[-1], scale.unit), edges[-1]
    x, align = (end + 6, "left") if end > base - 1e-3 else (end - 6, "right")
    crossed = scale.line_px is not None and 0 < scale.line_px - x < text_width_px(says)
    sheet.write(x, middle, says, align, bbox=canvas.label_paper() if crossed else None)


def _draw_reference(sheet: Sheet, label: str, x: float, top: float, bottom: float) -> None:
    sheet.line([x, x], [top + 2, bottom], linewidth=1.5, linestyle=(0, (5, 3)))
    width = text_width_px(label, SMALL_PX)
    start = min(max(x - width / 2, 0), WIDTH_PX - width)
    sheet.write(start, top - 6, label, "left", SMALL_PX)


def _with_unit(value: float, unit: str) -> str:
    if unit in ("x", "×"):
        return f"×{say_number(value)}"
    return f"{say_number(value)}{'' if unit == '%' else ' '}{unit}".strip()
