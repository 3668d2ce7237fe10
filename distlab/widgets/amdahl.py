"""Amdahl's law as a picture and an explorer: what does not spread over devices limits the rest."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from distlab.errors import CourseError
from distlab.figures import canvas
from distlab.figures.canvas import SMALL_PX, TEXT_PX, say_number
from distlab.figures.picture import INK, Picture
from distlab.widgets.controls import Slider
from distlab.widgets.explorer import Explorer, explore

HEIGHT_PX, RIGHT_PX = 360, 168


def amdahl_explorer(
    parallel_fraction: float = 0.9,
    measured: Mapping[float, float] | None = None,
    most_devices: int = 64,
) -> Explorer:
    """Show Amdahl's curve for a chosen parallel fraction and number of devices.

    `measured` maps a number of devices to a measured speed-up over one device;
    its points stay in the picture.
    """

    def show_curve(parallel_percent: float, most_devices: int) -> Picture:
        return show_speed_up(parallel_percent / 100, most_devices, measured)

    return explore(
        show_curve,
        parallel_percent=Slider(
            "Work that spreads", 0, 100, round(parallel_fraction * 100, 1), 0.5, "%"
        ),
        most_devices=Slider("Devices", 2, 256, most_devices),
    )


def show_speed_up(
    parallel_fraction: float, devices: int, measured: Mapping[float, float] | None = None
) -> Picture:
    """Return Amdahl's picture with what it means for `devices` devices as its caption."""
    speed_up = amdahl_speed_up(parallel_fraction, devices)
    words = (
        f"{devices} devices give a speed-up of {say_number(speed_up)}: each of them is used for "
        f"{say_number(100 * speed_up / devices)} % of the time. "
    )
    if parallel_fraction < 1:
        alone = say_number(100 * (1 - parallel_fraction))
        words += (
            f"The {alone} % that does not spread takes as long on any number of devices, so no "
            f"number gives more than {say_number(1 / (1 - parallel_fraction))}."
        )
    return replace(draw_amdahl(parallel_fraction, devices, measured), caption=words)


def amdahl_speed_up(parallel_fraction: float, devices: float) -> float:
    """Return the speed-up over one device when `parallel_fraction` of the work spreads evenly.

    1 / ((1 - p) + p / n), after G. M. Amdahl, "Validity of the single processor
    approach to achieving large scale computing capabilities", AFIPS 1967.
    """
    return 1.0 / ((1.0 - parallel_fraction) + parallel_fraction / devices)


def draw_amdahl(
    parallel_fraction: float,
    most_devices: int = 64,
    measured: Mapping[float, float] | None = None,
    *,
    title: str = "Speed-up against the number of devices",
    alt: str | None = None,
) -> Picture:
    """Draw speed-up against devices: Amdahl's curve, the ideal line, the limit, what was measured.

    `parallel_fraction` is the part of one device's time that spreads over
    devices, 0 to 1; `measured` maps a number of devices to a speed-up over one.
    Raises CourseError for a fraction outside 0 to 1 or fewer than 2 devices.
    """
    if not 0 <= parallel_fraction <= 1:
        raise CourseError(f"parallel_fraction={parallel_fraction}: choose a number from 0 to 1")
    if most_devices < 2:
        raise CourseError(f"most_devices={most_devices}: choose 2 or more")
    points = {float(n): float(s) for n, s in (measured or {}).items()}

    def paint(figure: "canvas.Figure") -> None:
        canvas.write_title(figure, title)
        axes = canvas.plot_axes(figure, 36, 58, RIGHT_PX, 48)
        figure.text(0, 1 - 42 / HEIGHT_PX, "speed-up", size=TEXT_PX, ha="left", va="center")
        top = _ceiling(parallel_fraction, most_devices, points)
        _draw_curves(axes, parallel_fraction, most_devices, top)
        _draw_points(axes, points)
        _scale(axes, max(most_devices, *points, 0), top)
        _write_names(axes, parallel_fraction, most_devices, top)

    words = alt or _describe_curve(parallel_fraction, most_devices, points)
    chart = _list_curves(parallel_fraction, most_devices, points)
    return canvas.draw(paint, alt=words, height_px=HEIGHT_PX, chart={"title": title, **chart})


def _list_curves(fraction: float, most: int, points: Mapping[float, float]) -> dict[str, Any]:
    """Return the same curves as numbers, as `figures.lines` has them."""
    devices, top = np.geomspace(1, most, 25), _ceiling(fraction, most, points)
    end = float(min(most, top))
    drawn = {
        f"{say_number(fraction * 100)} % parallel": (devices, amdahl_speed_up(fraction, devices)),
        "ideal": (np.array([1.0, end]), np.array([1.0, end])),
    }
    if fraction < 1 and 1 / (1 - fraction) <= top:
        limit = np.full(2, 1 / (1 - fraction))
        drawn[f"limit: {say_number(limit[0])}"] = (np.array([1.0, most]), limit)
    marks = [[f"measured {say_number(s)}", (n, s)] for n, s in points.items() if n <= most]
    return {
        "kind": "lines", "xLabel": "devices", "yLabel": "speed-up", "logX": False, "logY": False,
        "lines": [[name, x.tolist(), y.tolist()] for name, (x, y) in drawn.items()],
        "marks": marks, "low": 0,
    }  # fmt: skip


def _ceiling(fraction: float, most: int, points: Mapping[float, float]) -> float:
    """Return the top of the speed-up axis: room for the curve, the points and some ideal line."""
    top = max(amdahl_speed_up(fraction, most) * 1.35, 2.5, *points.values(), 0)
    limit = 1 / (1 - fraction) if fraction < 1 else np.inf
    return float(min(max(top, min(limit * 1.18, most)), most * 1.05))


def _draw_curves(axes: "canvas.Axes", fraction: float, most: int, top: float) -> None:
    devices = np.linspace(1, most, 400)
    end = min(most, top)
    axes.plot([1, end], [1, end], color=canvas.GREEN, linewidth=1.8, linestyle=(0, (6, 3)))
    axes.plot(devices, amdahl_speed_up(fraction, devices), color=canvas.BLUE, linewidth=2.6)
    if fraction < 1 and 1 / (1 - fraction) <= top:
        axes.axhline(1 / (1 - fraction), color=INK, linewidth=1.2, linestyle=(0, (2, 2)))


def _draw_points(axes: "canvas.Axes", points: Mapping[float, float]) -> None:
    axes.plot(
        list(points),
        list(points.values()),
        "s",
        color=canvas.VERMILLION,
        markersize=8,
        clip_on=False,
    )
    for number, (devices, speed_up) in enumerate(points.items()):
        text = f"measured {say_number(speed_up)}" if number == 0 else say_number(speed_up)
        axes.annotate(
            text, (devices, speed_up), (8, -11), textcoords="offset points", size=SMALL_PX,
            ha="left", va="center", bbox=canvas.label_paper(),
        )  # fmt: skip


def _scale(axes: "canvas.Axes", right: float, top: float) -> None:
    axes.set_xlim(1, right)
    axes.set_ylim(0, top)
    axes.set_xlabel("devices", size=TEXT_PX, labelpad=7)
    axes.grid(axis="y", color=INK, alpha=0.16, linewidth=1)
    axes.tick_params(which="both", length=0, pad=7)
    axes.spines["left"].set_visible(False)
    ticks = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if n >= right / 10]
    axes.set_xticks([1, *[n for n in ticks if 1 < n <= right]])


def _write_names(axes: "canvas.Axes", fraction: float, most: int, top: float) -> None:
    """Write the names of curve and limit right of the plot, the ideal line's beside it."""
    last = amdahl_speed_up(fraction, most)
    names = {f"{say_number(fraction * 100)} % parallel: {say_number(last)}": last}
    if fraction < 1 and 1 / (1 - fraction) <= top:
        names[f"limit: {say_number(1 / (1 - fraction))}"] = 1 / (1 - fraction)
    if most <= top:
        names[f"ideal: {most}"] = most
    pixel = (HEIGHT_PX - 58 - 48) / top
    order = sorted(names, key=names.get)
    places = canvas.spread([names[name] * pixel for name in order], 17)
    for name, height in zip(order, places, strict=True):
        axes.annotate(
            name, (1, height / pixel), (9, 0), xycoords=axes.get_yaxis_transform(),
            textcoords="offset points", ha="left", va="center", size=TEXT_PX,
        )  # fmt: skip
    if most > top:
        axes.annotate(
            "ideal", (top, top), (8, -8), textcoords="offset points", ha="left", va="center",
            size=TEXT_PX, bbox=canvas.label_paper(),
        )  # fmt: skip


def _describe_curve(fraction: float, most: int, points: Mapping[float, float]) -> str:
    limit = (
        f"the limit is {say_number(1 / (1 - fraction))}" if fraction < 1 else "there is no limit"
    )
    says = (
        f"With {say_number(fraction * 100)} % of the work spread over devices, {most} devices give "
        f"a speed-up of {say_number(amdahl_speed_up(fraction, most))} instead of {most}; {limit}."
    )
    if points:
        seen = ", ".join(f"{say_number(s)} on {say_number(n)}" for n, s in points.items())
        says += f" Measured: {seen}."
    return says
