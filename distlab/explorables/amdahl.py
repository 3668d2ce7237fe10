"""Amdahl's law as a picture and an explorer: what doesn't spread over devices limits the rest."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from distlab.errors import CourseError
from distlab.explorables.controls import Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import Picture, lines
from distlab.figures.canvas import say_number
from utils.checks import check_count

Dots = Mapping[str, Mapping[float, float]]  # by name: a number of devices, its speed-up over one
PERCENTS = (0, 20, 40, 50, 60, 70, 80, 90, 95, 98, 98.5, 99, 99.5, 100)
MAX_TRIES = 3


def amdahl_explorer(
    parallel_fraction: float = 0.9, measured: Dots | None = None, most_devices: int = 64
) -> Explorer:
    """Show Amdahl's curve for a chosen parallel fraction and number of devices.

    `measured` has dots by who measured them: a number of devices, and its speed-up over one
    device. They stay in the picture, and the first questions are about them.
    """

    def show_curve(parallel_percent: float, most_devices: int) -> Picture:
        return show_speed_up(parallel_percent / 100, most_devices, measured)

    percent = round(parallel_fraction * 100, 1)
    return explore(
        show_curve,
        tries=[*_ask_about(measured or {}), *_list_tries()][:MAX_TRIES],
        parallel_percent=Slider("Work that spreads", 0, 100, percent, 0.5, "%", grid=PERCENTS),
        most_devices=Slider("Devices", 2, 256, most_devices, grid=(2, 4, 8, 16, 32, 64, 128, 256)),
    )


def _ask_about(measured: Dots) -> list[Try]:
    """Ask which share of the work fits the dots, and say so where no share does."""
    tries = []
    for name, all_dots in measured.items():
        dots = {devices: speed_up for devices, speed_up in all_dots.items() if devices > 1}
        if not dots:
            continue
        devices = max(dots)
        fits = 100 * (1 - 1 / dots[devices]) / (1 - 1 / devices)
        share = min(PERCENTS, key=lambda percent: abs(percent - fits))
        answer = (
            f"About {say_number(share)} %. Then 256 devices get to "
            f"{say_number(amdahl_speed_up(share / 100, 256))}, by this curve. Nobody measured that."
        )
        if dots[devices] < 1:
            answer = (
                f"None does. At 0 % the curve is 1 everywhere, and the dot at {devices} devices is "
                "below it. They took longer: logical devices share the cores they run on."
            )
        start = {"parallel_percent": 70 if share > 70 else 100, "most_devices": 8}
        ask = f"{name}: which share of the work fits the dots?"
        near = [half / 2 for half in range(201) if abs(half / 2 - share) <= 1]
        tries.append(Try(ask, start, {"parallel_percent": near if share else 0}, answer))
    return tries


def _list_tries() -> list[Try]:
    start = {"parallel_percent": 90, "most_devices": 8}
    few, many = (amdahl_speed_up(0.9, devices) for devices in (8, 256))
    needed = next(p for p in np.arange(90, 100, 0.5) if amdahl_speed_up(p / 100, 8) >= 0.9 * 8)
    return [
        Try(
            "90 % spreads: how far do 256 devices get?",
            start,
            {"most_devices": 256},
            f"From {say_number(few)} to {say_number(many)}. The other 10 % allow no more than 10.",
        ),
        Try(
            "How much must spread to use 8 devices for 90 % of the time?",
            start,
            {"parallel_percent": float(needed)},
            f"{say_number(float(needed))} %. A little serial work costs much.",
        ),
    ]


def show_speed_up(parallel_fraction: float, devices: int, measured: Dots | None = None) -> Picture:
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
    parallel_fraction: float, most_devices: int = 64, measured: Dots | None = None
) -> Picture:
    """Draw speed-up against devices: Amdahl's curve, the ideal line, the limit, what was measured.

    `parallel_fraction` is the part of one device's time that spreads over
    devices, 0 to 1; `measured` has a number of devices and a speed-up over one, by name.
    Raises DistributedError for a fraction outside 0 to 1 or fewer than 2 devices.
    """
    if not 0 <= parallel_fraction <= 1:
        raise CourseError(f"parallel_fraction must be from 0 to 1, got {parallel_fraction}.")
    check_count("most_devices", most_devices, 2)
    points = {
        name: {float(n): float(s) for n, s in dots.items() if 1 < n <= most_devices}
        for name, dots in (measured or {}).items()
    }
    marks, ideas = _name_dots(points)
    picture = lines(
        _list_curves(parallel_fraction, most_devices, points),
        x_label="devices",
        y_label="speed-up",
        title="Speed-up against the number of devices",
        marks=marks,
        alt=_describe_curve(parallel_fraction, most_devices, points),
    )
    return replace(picture, chart={**picture.chart, "low": 0}).with_ideas({"ideal": "wait"} | ideas)


def _name_dots(
    points: Mapping[str, Mapping[float, float]],
) -> tuple[dict[str, tuple[float, float]], dict[str, str]]:
    """Return the marks, of which the last one of a series has its name, and their colors."""
    marks, ideas = {}, {}
    for (name, dots), idea in zip(points.items(), ("data", "optimizer", "variables")):
        for n, s in dots.items():
            last = n == max(dots)
            words = f"{name}: {say_number(s)}" if last else " " * (1 + len(marks))
            marks[words], ideas[words] = (n, s), idea
    return marks, ideas


def _list_curves(
    fraction: float, most: int, points: Dots
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    devices, top = np.geomspace(1, most, 25), _ceiling(fraction, most, points)
    ideal = np.array([1.0, min(most, top)])
    drawn = {
        f"{say_number(fraction * 100)} % parallel": (devices, amdahl_speed_up(fraction, devices)),
        "ideal": (ideal, ideal),
    }
    if fraction < 1 and 1 / (1 - fraction) <= top:
        limit = np.full(2, 1 / (1 - fraction))
        drawn[f"limit: {say_number(limit[0])}"] = (np.array([1.0, most]), limit)
    return drawn


def _ceiling(fraction: float, most: int, points: Dots) -> float:
    """Return the top of the speed-up axis: room for the curve, the points and some ideal line."""
    seen = [1.05 * s for dots in points.values() for s in dots.values()]
    top = max(amdahl_speed_up(fraction, most) * 1.35, 2.5, *seen)
    limit = 1 / (1 - fraction) if fraction < 1 else np.inf
    return float(min(max(top, min(limit * 1.18, most)), most * 1.05))


def _describe_curve(fraction: float, most: int, points: Dots) -> str:
    limit = (
        f"the limit is {say_number(1 / (1 - fraction))}" if fraction < 1 else "there is no limit"
    )
    says = (
        f"With {say_number(fraction * 100)} % of the work spread over devices, {most} devices give "
        f"a speed-up of {say_number(amdahl_speed_up(fraction, most))} instead of {most}; {limit}."
    )
    for name, dots in points.items():
        seen = ", ".join(f"{say_number(s)} on {say_number(n)}" for n, s in dots.items())
        says += f" {name}: {seen}."
    return says
