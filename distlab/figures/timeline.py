"""Lanes of spans on one time axis: what each worker, stage or device does when."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from distlab.errors import CourseError
from distlab.figures import canvas
from distlab.figures.canvas import SMALL_PX, WIDTH_PX, Sheet, draw_sheet, say_number, text_width_px
from distlab.figures.picture import Picture
from utils.measure import count

Row = tuple[str, float, float, str, str]  # lane, start, end, label, kind

LANE_PX, TOP_PX, KEY_PX, AXIS_PX = 38.0, 36.0, 26.0, 46.0
PLAIN, DARK, LIGHT = 0.38, 0.68, 0.18  # how strong a bar's color is


class Style(NamedTuple):
    """The look of one kind of bars: the number of their color, and how strong it is."""

    color: int
    strength: float


def timeline(
    rows: Sequence[Row], *, title: str, unit: str = "s", axis: str = "time", alt: str | None = None
) -> Picture:
    """Draw spans (lane, start, end, label, kind) as bars in lanes, lanes in their first order.

    Spans of one kind share a color (from the seventh on, with a dashed edge), named in a
    key when there is more than one kind. Kinds that differ only behind a comma ("forward,
    chunk 0", "forward, chunk 1") are shades of one color, from dark to light. A label is
    written where it fits into its bar. `axis` and `unit` name what runs from left to right.
    Raises CourseError for no rows and for a span that ends before it starts.
    """
    _check_spans(rows)
    lanes = list(dict.fromkeys(row[0] for row in rows))
    styles = _choose_styles(list(dict.fromkeys(row[4] for row in rows)))
    key = _place_key(list(styles)) if len(styles) > 1 else []
    top_px = TOP_PX + (KEY_PX * (1 + key[-1][2]) if key else 0)

    def paint(sheet: Sheet) -> None:
        for kind, x, row in key:
            y = TOP_PX + row * KEY_PX
            _draw_swatch(sheet, x + 1, y, 16, 13, styles[kind])
            sheet.write(x + 24, y + 7, kind, "left", SMALL_PX)
        left = max(text_width_px(lane) for lane in lanes) + 14
        begin, end = min(row[1] for row in rows), max(row[2] for row in rows)
        scale = (WIDTH_PX - left - 12) / ((end - begin) or 1.0)
        bottom = top_px + len(lanes) * LANE_PX
        along = f"{axis} ({unit})" if axis and unit else axis or unit
        whole = all(float(place).is_integer() for row in rows for place in row[1:3])
        _draw_axis(sheet, begin, end, left, scale, top_px, bottom, along, whole)
        for number, lane in enumerate(lanes):
            sheet.write(left - 10, top_px + (number + 0.5) * LANE_PX, lane, "right")
        for lane, start, stop, label, kind in rows:
            y = top_px + lanes.index(lane) * LANE_PX
            x, wide = left + (start - begin) * scale, (stop - start) * scale
            _draw_span(sheet, x, y, wide, label, styles[kind])

    height_px = top_px + len(lanes) * LANE_PX + AXIS_PX
    words = alt or _describe_spans(rows, lanes, title, unit)
    chart = {"kind": "spans", "unit": unit, "rows": [list(row) for row in rows]}
    return draw_sheet(paint, title=title, alt=words, height_px=height_px, chart=chart)


def _check_spans(rows: Sequence[Row]) -> None:
    if not rows:
        raise CourseError("timeline must have at least one span, got none.")
    for lane, start, end, label, _ in rows:
        if not (np.isfinite(start) and np.isfinite(end) and end >= start):
            raise CourseError(
                f"timeline: {label!r} of {lane!r} must end after it starts, got {start} to {end}."
            )


def _draw_axis(sheet: Sheet, begin, end, left, scale, top, bottom, along: str, whole: bool) -> None:
    """Draw the axis; a `whole` one counts something, and has no ticks between whole numbers."""
    from matplotlib.ticker import MaxNLocator

    places = MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=whole)
    for tick in places.tick_values(begin, end):
        if begin - 1e-9 <= tick <= end + 1e-9:
            x = left + (tick - begin) * scale
            sheet.line([x, x], [top, bottom], alpha=0.16, linewidth=1)
            sheet.write(x, bottom + 13, f"{tick:,.6g}", size=SMALL_PX)
    middle = left + (WIDTH_PX - left) / 2
    sheet.write(middle, bottom + 33, along)


def _draw_span(sheet: Sheet, x, y, wide, label: str, style: Style) -> None:
    _draw_swatch(sheet, x + 0.75, y + 4, max(wide - 1.5, 1.0), LANE_PX - 8, style)
    if label and text_width_px(label, SMALL_PX) + 1 <= wide:
        sheet.write(x + wide / 2, y + LANE_PX / 2, label, size=SMALL_PX)


def _draw_swatch(sheet: Sheet, x, y, wide, tall, style: Style) -> None:
    color = canvas.COLORS[style.color % len(canvas.COLORS)]
    edge = "-" if style.color < len(canvas.COLORS) else (0, (3, 2))
    sheet.rectangle(x, y, wide, tall, color, style.strength, linewidth=1.2, linestyle=edge)


def _choose_styles(kinds: list[str]) -> dict[str, Style]:
    """Return {kind: its style}, in an order that has the shades of a color together."""
    families: dict[str, list[str]] = {}
    for kind in kinds:
        families.setdefault(kind.partition(", ")[0], []).append(kind)
    styles = {}
    for number, family in enumerate(families.values()):
        shades = np.linspace(DARK, LIGHT, len(family)) if len(family) > 1 else [PLAIN]
        for kind, shade in zip(sorted(family), shades, strict=True):
            styles[kind] = Style(number, float(shade))
    return styles


def _place_key(kinds: list[str]) -> list[tuple[str, float, int]]:
    """Return (kind, x, row) of each entry of the key, in as many rows as they need."""
    places, x, row = [], 0.0, 0
    for kind in kinds:
        wide = 24 + text_width_px(kind, SMALL_PX)
        if x + wide > WIDTH_PX:
            x, row = 0.0, row + 1
        places.append((kind, x, row))
        x += wide + 22
    return places


def _describe_spans(rows: Sequence[Row], lanes: list[str], title: str, unit: str) -> str:
    end = max(row[2] for row in rows)
    says = []
    for lane in lanes:
        spans = [row for row in rows if row[0] == lane]
        busy = sum(row[2] - row[1] for row in spans)
        says.append(f"{lane}: {count(len(spans), 'span')}, {say_number(busy)} {unit} in all")
    return f"{title}. {'; '.join(says)}. The last ends at {say_number(end)} {unit}.".replace(
        " .", "."
    )
