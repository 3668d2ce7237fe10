"""Horizontal bars with their values written next to them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from distlab.errors import CourseError
from distlab.figures import canvas
from distlab.figures.canvas import SMALL_PX, WIDTH_PX, Sheet, draw_sheet, say_number, text_width_px
from distlab.figures.picture import Picture

TOP_PX, ROW_PX, BAR_PX, GROUP_PX, GAP_PX, KEY_PX = 40.0, 34.0, 22.0, 22.0, 12.0, 22.0
LOG_PX, LOG_WORDS = 20.0, "logarithmic scale: equal lengths are equal factors"


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
    top_px = TOP_PX + (20 if reference else 0)
    bottom_px = top_px + len(values) * ROW_PX

    def paint(sheet: Sheet) -> None:
        left = max(text_width_px(name) for name in values) + 14
        lines = [reference[1]] if reference else []
        centered = log and bool(reference)
        to_px = _lengths([*values.values(), *lines], unit, left, log, centered)
        line_px = to_px(reference[1]) if reference else None
        scale = Scale(left, unit, to_px, line_px if centered else to_px(None), line_px)
        for number, (name, value) in enumerate(values.items()):
            color = canvas.VERMILION if name in marked else canvas.BLUE
            _draw_bar(sheet, top_px + number * ROW_PX, scale, name, value, color)
        if not centered:
            sheet.line([scale.base_px] * 2, [top_px - 4, bottom_px], linewidth=1)
        if reference:
            _draw_reference(sheet, reference[0], line_px, top_px - 8, bottom_px)
        if log:
            sheet.write(left, bottom_px + LOG_PX / 2, LOG_WORDS, "left", SMALL_PX)

    says = "; ".join(f"{name}: {_with_unit(value, unit)}" for name, value in values.items())
    line = f" A line marks {reference[0]} at {_with_unit(reference[1], unit)}." if reference else ""
    words = f"{title}. {says}.{line}{' The scale is logarithmic.' if log else ''}"
    height_px = bottom_px + (LOG_PX if log else 0) + 8
    chart = {"kind": "bars", "unit": unit, "groups": [["", _list_bars(values)]]}
    plain = None if log or reference or marked else chart
    return draw_sheet(paint, title=title, alt=words, height_px=height_px, chart=plain)


def _list_bars(values: Mapping[str, float]) -> list[list]:
    return [[name, float(value)] for name, value in values.items()]


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
    names = list(dict.fromkeys(name for values in groups.values() for name in values))
    every = [value for values in groups.values() for value in values.values()]

    def paint(sheet: Sheet) -> None:
        left = max(text_width_px(name) for name in names) + 14
        to_px = _lengths(every, unit, left, log=False)
        scale, y = Scale(left, unit, to_px, to_px(None)), TOP_PX
        for group, values in groups.items():
            sheet.write(0, y + GROUP_PX / 2, group, "left", weight="bold")
            y += GROUP_PX
            sheet.line([scale.base_px] * 2, [y, y + len(values) * ROW_PX], linewidth=1)
            for name, value in values.items():
                color = canvas.COLORS[names.index(name) % len(canvas.COLORS)]
                _draw_bar(sheet, y, scale, name, value, color)
                y += ROW_PX
            y += GAP_PX

    says = [
        f"{group}: {', '.join(f'{name} {_with_unit(v, unit)}' for name, v in values.items())}"
        for group, values in groups.items()
    ]
    words = f"{title}. {'; '.join(says)}."
    height_px = TOP_PX + sum(GROUP_PX + GAP_PX + len(v) * ROW_PX for v in groups.values())
    every_bar = [[group, _list_bars(values)] for group, values in groups.items()]
    chart = {"kind": "bars", "unit": unit, "groups": every_bar}
    return draw_sheet(paint, title=title, alt=words, height_px=height_px, chart=chart)


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
    parts = list(dict.fromkeys(part for values in rows.values() for part in values))
    top_px = TOP_PX + KEY_PX + (20 if reference else 0)
    bottom_px = top_px + len(rows) * ROW_PX

    def paint(sheet: Sheet) -> None:
        left = max(text_width_px(name) for name in rows) + 14
        ends = [*totals.values(), *([reference[1]] if reference else [])]
        to_px = _lengths(ends, unit, left, log=False)
        line_px = to_px(reference[1]) if reference else None
        scale = Scale(left, unit, to_px, to_px(None), line_px)
        _draw_parts_key(sheet, parts)
        for number, (name, values) in enumerate(rows.items()):
            _draw_stack(sheet, top_px + number * ROW_PX, scale, name, values, parts)
        sheet.line([scale.base_px] * 2, [top_px - 4, bottom_px], linewidth=1)
        if reference:
            _draw_reference(sheet, reference[0], line_px, top_px - 8, bottom_px)

    says = "; ".join(
        f"{name}: {', '.join(f'{part} {_with_unit(v, unit)}' for part, v in values.items())}"
        for name, values in rows.items()
    )
    line = f" A line marks {reference[0]} at {_with_unit(reference[1], unit)}." if reference else ""
    words = f"{title}. {says}.{line}"
    return draw_sheet(paint, title=title, alt=words, height_px=bottom_px + 8)


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


def _draw_parts_key(sheet: Sheet, parts: list[str]) -> None:
    x = 0.0
    for number, part in enumerate(parts):
        color = canvas.COLORS[number % len(canvas.COLORS)]
        sheet.rectangle(x + 1, TOP_PX - 4, 16, 13, color, 0.55, linewidth=1.2)
        sheet.write(x + 24, TOP_PX + 3, part, "left", SMALL_PX)
        x += 24 + text_width_px(part, SMALL_PX) + 22


def _draw_stack(sheet: Sheet, y: float, scale: Scale, name: str, values, parts: list[str]) -> None:
    middle, total = y + ROW_PX / 2, 0.0
    for part, value in values.items():
        start, end = scale.to_px(total), scale.to_px(total + value)
        color = canvas.COLORS[parts.index(part) % len(canvas.COLORS)]
        place = (start, y + (ROW_PX - BAR_PX) / 2, end - start, BAR_PX)
        sheet.rectangle(*place, color, 0.55, linewidth=1.2)
        total += value
    sheet.write(scale.left - 10, middle, name, "right")
    end, says = scale.to_px(total) + 6, _with_unit(total, scale.unit)
    crossed = scale.line_px is not None and 0 < scale.line_px - end < text_width_px(says)
    sheet.write(end, middle, says, "left", bbox=canvas.label_paper() if crossed else None)


def _check_bars(values: Mapping[str, float], log: bool) -> None:
    if not values:
        raise CourseError("bars must have at least one name with its value, got none.")
    for name, value in values.items():
        if not np.isfinite(value):
            raise CourseError(f"bars: {name!r} must be finite, got {value}.")
        if log and value <= 0:
            raise CourseError(f"bars: {name!r} must be above 0 for log=True, got {value}.")


def _lengths(values: list[float], unit: str, left: float, log: bool, centered: bool = False):
    """Return the function from a value (None: the base line) to pixels from the left edge."""
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

    return to_px


def _draw_bar(sheet: Sheet, y: float, scale: Scale, name: str, value: float, color: str) -> None:
    base, end, middle = scale.base_px, scale.to_px(value), y + ROW_PX / 2
    place = (min(base, end), y + (ROW_PX - BAR_PX) / 2, abs(end - base), BAR_PX)
    sheet.rectangle(*place, color, 0.55, linewidth=1.2)
    sheet.write(scale.left - 10, middle, name, "right")
    says = _with_unit(value, scale.unit)
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
