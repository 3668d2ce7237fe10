"""Line charts with the names of the lines at their ends."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from distlab.errors import CourseError
from distlab.figures import canvas
from distlab.figures.canvas import SMALL_PX, TEXT_PX, say_number
from distlab.figures.picture import INK, Picture
from utils.measure import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]
Marks = Mapping[str, float | tuple[float, float]]
Ranges = Mapping[str, tuple[Sequence[float], Sequence[float]]]
Write = Callable[[float], str]  # a value in its unit

HEIGHT_PX = 340
MAX_MARKERS = 40
MAX_OWN_TICKS = 12
LABEL_STEP_PX = 17
TURN_SHARE = 0.1  # of the line's range: how far a peak worth a word lies beyond both ends


def lines(
    series: Series,
    *,
    x_label: str,
    y_label: str,
    title: str,
    log_x: bool = False,
    log_y: bool = False,
    x_unit: str = "",
    y_unit: str = "",
    colors: Mapping[str, str] | None = None,
    marks: Marks | None = None,
    ranges: Ranges | None = None,
    alt: str | None = None,
) -> Picture:
    """Draw each (x, y) of `series` as a line with its name at its end.

    `x` and `y` are of one length; values of `y` that aren't finite leave a gap
    and are named in the words. An axis whose unit is "B", "kB" or "s" has ticks like
    64 KiB, 100 kB or 20 ms. `colors` names the color of each line (one of canvas.COLORS);
    lines of one color differ in their dashes. A mark is a dashed vertical line at
    x, or a circle at (x, y), with its name. `ranges` gives a series (lowest, highest)
    of each point, drawn as bars. Raises CourseError for no series, for lengths that
    differ, an unknown unit, a line without a color, and for values of 0 or less on a
    logarithmic axis.
    """
    checked = {name: _check_line(name, x, y, log_x, log_y) for name, (x, y) in series.items()}
    if not checked:
        raise CourseError("lines must have at least one series, a name with its (x, y), got none.")
    styles = _choose_styles(list(checked), colors)
    units = _find_unit(x_unit), _find_unit(y_unit)

    def paint(figure: "Figure") -> None:
        widest = max(canvas.text_width_px(name) for name in checked)
        canvas.write_title(figure, title)
        axes = canvas.plot_axes(figure, 60, 58, widest + 26, 48)
        axes.margins(x=0.03, y=0.06)
        for name, (x, y) in checked.items():
            _plot(axes, styles[name], x, y)
        for name, (low, high) in (ranges or {}).items():
            _draw_ranges(axes, styles[name]["color"], checked[name][0], low, high)
        _scale(axes, checked, (log_x, log_y), units)
        for name, at in (marks or {}).items():
            _mark(axes, name, at)
        _frame(figure, axes, x_label, y_label, units)
        _name_lines(figure, axes, checked, styles)

    words = alt or _describe_lines(checked, x_label, title, units)
    if not alt:
        words += _describe_ranges(ranges or {}, units[1] or say_number)
    chart = {
        "kind": "lines",
        "title": title,
        "xLabel": x_label,
        "yLabel": y_label,
        "logX": log_x,
        "logY": log_y,
        "marks": [[name, at] for name, at in (marks or {}).items()],
        "lines": [[name, x.tolist(), y.tolist()] for name, (x, y) in checked.items()],
    }
    own = None if x_unit or y_unit or ranges else chart
    return canvas.draw(paint, alt=words, height_px=HEIGHT_PX, chart=own)


def _check_line(
    name: str, x: Sequence[float], y: Sequence[float], log_x: bool, log_y: bool
) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if x.ndim != 1 or x.shape != y.shape or len(x) == 0:
        raise CourseError(
            f"lines: x and y of {name!r} must be lists of equal length, at least 1, got "
            f"shapes {x.shape} and {y.shape}."
        )
    for axis, values, logarithmic in (("x", x, log_x), ("y", y, log_y)):
        if logarithmic and np.any(values[np.isfinite(values)] <= 0):
            raise CourseError(f"lines: {axis} of {name!r} must be above 0 for a logarithmic axis.")
    return x, y


def _choose_styles(
    names: Sequence[str], colors: Mapping[str, str] | None
) -> dict[str, dict[str, Any]]:
    """Return how each line is drawn: by its place, or in its color where `colors` are given."""
    styles, drawn = {}, Counter[str]()  # lines of each color so far
    for number, name in enumerate(names):
        color = canvas.COLORS[number % len(canvas.COLORS)]
        if colors is not None:
            color, number = colors.get(name, ""), drawn[colors.get(name, "")]
        if color not in canvas.COLORS:
            raise CourseError(f"lines: {name!r} has no color. Give it one of {canvas.COLORS}.")
        drawn[color] += 1
        styles[name] = {
            "color": color,
            "linestyle": canvas.DASHES[number % len(canvas.DASHES)],
            "marker": canvas.MARKERS[canvas.COLORS.index(color)],
        }
    return styles


def _plot(axes: "Axes", style: dict[str, Any], x: np.ndarray, y: np.ndarray) -> None:
    axes.plot(
        x,
        np.where(np.isfinite(y), y, np.nan),
        markevery=max(1, len(x) // MAX_MARKERS * 2) if len(x) > MAX_MARKERS else 1,
        clip_on=False,
        **style,
    )


def _draw_ranges(
    axes: "Axes", color: str, x: np.ndarray, low: Sequence[float], high: Sequence[float]
) -> None:
    middle = (np.asarray(low) + np.asarray(high)) / 2
    axes.errorbar(
        x,
        middle,
        middle - low,
        fmt="none",
        ecolor=color,
        elinewidth=1.4,
        capsize=4,
        capthick=1.4,
        clip_on=False,
    )


def _find_unit(unit: str) -> Write | None:
    """Return how a value of `unit` is written; raises CourseError for a unit it doesn't know."""
    if unit and unit not in UNITS:
        raise CourseError(f"lines: unit must be one of {', '.join(UNITS)}, got {unit!r}.")
    return UNITS.get(unit)


def _write_bytes(value: float) -> str:
    return format_bytes(value).replace(".0 ", " ")  # 64 KiB


def _write_decimal_bytes(value: float) -> str:
    fits = [(size, unit) for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if value >= size]
    size, unit = fits[0] if fits else (1.0, "B")
    return f"{value / size:.3g} {unit}"  # 100 kB


def _write_seconds(value: float) -> str:
    fits = [(size, unit) for size, unit in ((1.0, "s"), (1e-3, "ms")) if value >= 0.999 * size]
    size, unit = fits[0] if fits else (1e-6, "µs")
    return f"{value / size:.3g} {unit}"  # 20 ms


UNITS: Mapping[str, Write] = {"B": _write_bytes, "kB": _write_decimal_bytes, "s": _write_seconds}


def _scale(
    axes: "Axes", series: Mapping, logs: tuple[bool, bool], units: tuple[Write | None, Write | None]
) -> None:
    """Set both axes to their scale; `logs` and `units` hold (x, y)."""
    from matplotlib.ticker import (
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
        NullLocator,
    )

    axes.set_xscale("log" if logs[0] else "linear")
    axes.set_yscale("log" if logs[1] else "linear")
    for axis, logarithmic, unit in zip((axes.xaxis, axes.yaxis), logs, units, strict=True):
        if logarithmic and unit is _write_bytes:
            axis.set_major_locator(LogLocator(base=2, numticks=8))
        if logarithmic:
            axis.set_minor_formatter(NullFormatter())
        if logarithmic or unit:
            write = unit or "{:,.6g}".format
            axis.set_major_formatter(FuncFormatter(lambda value, _, write=write: write(value)))
    own_ticks = np.unique(np.concatenate([x for x, _ in series.values()]))
    whole = bool(np.all(own_ticks == np.round(own_ticks)))
    if whole and len(own_ticks) <= MAX_OWN_TICKS and (logs[0] or np.ptp(own_ticks) <= 12):
        axes.set_xticks(own_ticks)
        axes.xaxis.set_minor_locator(NullLocator())
    elif whole and not logs[0]:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # no step 2.5
    if logs[1] and units[1] is not _write_bytes:
        _tick_every_decade(axes)


def _tick_every_decade(axes: "Axes") -> None:
    """Tick 1, 10, 100, …; over less than two decades 2, 5, 20, … too; never fewer than three."""
    from matplotlib.ticker import LogLocator

    low, high = axes.get_ylim()
    if high / low >= 150:
        return
    for steps in ((1, 2, 5), (1, 2, 3, 5, 7), (1, 1.5, *range(2, 10))):
        locator = LogLocator(subs=steps)
        axes.yaxis.set_major_locator(locator)
        if sum(low <= tick <= high for tick in locator.tick_values(low, high)) >= 3:
            return


def _write_plain_ticks(axis: "Axis") -> None:
    """Write the ticks of a linear axis with one number of decimals: 0.8, 1.0, 1.2 or 2,000."""
    if axis.get_scale() == "log":
        return
    ticks = [tick for tick in axis.get_majorticklocs() if np.isfinite(tick)]
    decimals = next((d for d in range(7) if np.allclose(ticks, np.round(ticks, d))), None)
    texts = [f"{tick:,.{decimals}f}" if decimals is not None else f"{tick:g}" for tick in ticks]
    axis.set_ticks(ticks, texts)


def _frame(figure: "Figure", axes: "Axes", x_label: str, y_label: str, units: tuple) -> None:
    axes.grid(axis="y", color=INK, alpha=0.16, linewidth=1)
    axes.tick_params(which="both", length=0, pad=7)
    for axis, unit in zip((axes.xaxis, axes.yaxis), units, strict=True):
        low, high = axis.get_view_interval()
        if unit is None:
            _write_plain_ticks(axis)
        axis.set_view_interval(low, high, ignore=True)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(x_label, size=TEXT_PX, labelpad=7)
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    box = axes.get_position()
    width_px, height_px = figure.get_size_inches() * 72
    ticks_px = axes.yaxis.get_tightbbox(renderer).width + 11
    left = ticks_px / width_px
    axes.set_position((left, box.y0, box.x1 - left, box.height))
    figure.text(0, 1 - 42 / height_px, y_label, size=TEXT_PX, ha="left", va="center")


def _name_lines(figure: "Figure", axes: "Axes", series: Mapping, styles: Mapping) -> None:
    """Write each name right of the plot at its line's end, pushed apart where they meet."""
    ends = {}
    for name, (x, y) in series.items():
        good = np.flatnonzero(np.isfinite(y))
        if len(good):
            ends[name] = axes.transData.transform((x[good[-1]], y[good[-1]]))
    order = sorted(ends, key=lambda name: ends[name][1])
    heights = canvas.spread([ends[name][1] for name in order], LABEL_STEP_PX)
    right = axes.get_window_extent().x1
    to_figure = figure.transFigure.inverted().transform
    for name, height in zip(order, heights, strict=True):
        start, end = to_figure([ends[name] + (5, 0), (right + 14, height)])
        if abs(height - ends[name][1]) > 4 or right - ends[name][0] > 24:
            figure.add_artist(_leader(start, end, styles[name]["color"]))
        x_at, y_at = to_figure((right + 18, height))
        figure.text(x_at, y_at, name, size=TEXT_PX, ha="left", va="center")


def _leader(start: np.ndarray, end: np.ndarray, color: str) -> object:
    from matplotlib.lines import Line2D

    return Line2D(
        [start[0], end[0]], [start[1], end[1]], color=color, linewidth=1, linestyle=(0, (1, 2))
    )


def _mark(axes: "Axes", name: str, at: float | tuple[float, float]) -> None:
    if isinstance(at, tuple):
        axes.plot(*at, "o", markersize=13, markerfacecolor="none", color=INK, markeredgewidth=1.5)
        axes.annotate(
            name,
            at,
            (0, 12),
            textcoords="offset points",
            ha="center",
            size=SMALL_PX,
            bbox=canvas.label_paper(),
        )
        return
    axes.axvline(at, color=INK, linewidth=1, linestyle=(0, (4, 3)), alpha=0.7)
    place = axes.get_xaxis_transform()
    axes.annotate(
        name,
        (at, 1),
        (5, -2),
        xycoords=place,
        textcoords="offset points",
        ha="left",
        va="top",
        size=SMALL_PX,
        bbox=canvas.label_paper(),
    )


def _describe_lines(series: Mapping, x_label: str, title: str, units: tuple) -> str:
    """Return in words what `series` does: "loss falls from 0.95 to 0.41 as epoch goes …"."""
    write_x, write_y = (unit or say_number for unit in units)
    spans = {(x[0], x[-1]) for x, _ in series.values()}
    told = "; ".join(
        _describe_line(name, x, y, write_x, write_y) for name, (x, y) in series.items()
    )
    first, last = min(s[0] for s in spans), max(s[1] for s in spans)
    return f"{title}. {told}, as {x_label} goes from {write_x(first)} to {write_x(last)}."


def _describe_ranges(ranges: Ranges, write: Write) -> str:
    return "".join(
        f" Bars show the range of {name}, at the last point from {write(low[-1])} to "
        f"{write(high[-1])}."
        for name, (low, high) in ranges.items()
    )


def _find_turn(y: np.ndarray) -> int | None:
    """Return the place of a peak or a trough well beyond both ends of `y`, None without one."""
    low, high = sorted((y[0], y[-1]))
    beyond = np.maximum(y - high, low - y)
    return int(beyond.argmax()) if beyond.max() > TURN_SHARE * np.ptp(y) else None


def _describe_line(name: str, x: np.ndarray, y: np.ndarray, write_x: Write, write_y: Write) -> str:
    good = np.isfinite(y)
    if not good.any():
        return f"{name} is never a finite number"
    first, last = y[good][0], y[good][-1]
    turn = _find_turn(y[good])
    if turn is not None:
        there, back = ("rises", "falls") if y[good][turn] > first else ("falls", "rises")
        says = (
            f"{name} {there} from {write_y(first)} to {write_y(y[good][turn])} at "
            f"{write_x(x[good][turn])}, then {back} to {write_y(last)}"
        )
    elif write_y(first) == write_y(last):
        says = f"{name} begins and ends at {write_y(first)}"
    else:
        verb = "rises" if last > first else "falls"
        says = f"{name} {verb} from {write_y(first)} to {write_y(last)}"
    if not good.all():
        says += f" and is not finite at {write_x(x[np.argmin(good)])}"
    return says
