"""The checkpoint-interval explorer: what each interval costs, and which one costs least."""

from dataclasses import replace

import numpy as np

from distlab.explorables.controls import Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import Picture, lines
from distlab.figures.canvas import say_number
from utils.simulate.failures import (
    best_interval_seconds,
    daly_interval_seconds,
    group_mtbf_seconds,
    overhead_fraction,
    young_interval_seconds,
)

DAY_SECONDS = 86_400.0
MAX_PERCENT = 1000.0  # intervals with more overhead are left out of the picture


def interval_explorer(save_seconds: float = 30.0, workers: int = 1000) -> Explorer:
    """Show what is lost to saving and to failures, for every interval between checkpoints.

    Starts from a checkpoint that takes `save_seconds`, on `workers` workers of which
    each fails once a year; a failure of one stops all. A restart takes a minute.
    """
    start = min(300.0, max(0.1, round(save_seconds, 1)))
    return explore(
        show_intervals,
        tries=_list_tries(),
        save_seconds=Slider(
            "One checkpoint takes",
            0.1,
            300,
            start,
            step=0.1,
            unit="s",
            grid=(0.1, 1, 10, 30, 100, 300),
        ),
        workers=Slider("Workers", 1, 20000, workers, grid=(1, 10, 100, 1000, 4000, 20000)),
        mtbf_days=Slider(
            "Each fails once in", 1, 3000, 365.0, unit="days", grid=(1, 30, 365, 1000, 3000)
        ),
    )


def _list_tries() -> list[Try]:
    start = {"save_seconds": 1, "workers": 1000, "mtbf_days": 365}

    def say_best(save_seconds: float, workers: int) -> str:
        mtbf = group_mtbf_seconds(365 * DAY_SECONDS, workers)
        return say_seconds(best_interval_seconds(save_seconds, mtbf))

    return [
        Try(
            "A checkpoint takes 100 times as long: how much rarer should it be?",
            start,
            {"save_seconds": 100},
            f"Every {say_best(100, 1000)} instead of every {say_best(1, 1000)}. The interval "
            "grows about with the square root.",
        ),
        Try(
            "Four times the workers: how often now?",
            start,
            {"workers": 4000},
            f"Every {say_best(1, 4000)} instead of every {say_best(1, 1000)}. Failures come four "
            "times as often, and the interval about halves.",
        ),
    ]


def show_intervals(
    save_seconds: float, workers: int, mtbf_days: float, restart_seconds: float = 60.0
) -> Picture | str:
    """Return the expected overhead (%) over the interval (minutes), with Young's and Daly's.

    If even the best interval adds ten times the work's own time, it returns a sentence instead.
    """
    mtbf = group_mtbf_seconds(mtbf_days * DAY_SECONDS, workers)
    title = f"One failure in {say_seconds(mtbf)}, {say_seconds(save_seconds)} to save"
    places = {
        "Young": young_interval_seconds(save_seconds, mtbf),
        "Daly": daly_interval_seconds(save_seconds, mtbf),
        "Least possible": best_interval_seconds(save_seconds, mtbf),
    }

    def percent(interval: float) -> float:
        return 100 * overhead_fraction(interval, save_seconds, mtbf, restart_seconds)

    costs = {name: percent(interval) for name, interval in places.items()}
    if costs["Least possible"] > MAX_PERCENT:
        return (
            f"<p>{title}: this run makes almost no progress. Even with the best interval, it "
            "takes more than ten times as long as the work alone.</p>"
        )
    says = "; ".join(
        f"{name}: every {say_seconds(places[name])}, {say_number(cost)} % overhead"
        for name, cost in costs.items()
    )
    intervals = places["Least possible"] * np.geomspace(1 / 30, 30, 41)  # [41]
    curve = np.array([percent(interval) for interval in intervals])
    shown = curve <= MAX_PERCENT
    picture = lines(
        {"overhead": (intervals[shown] / 60, curve[shown])},
        x_label="minutes of work between two checkpoints",
        y_label="extra time, % of the work alone",
        title=title,
        log_x=True,
        log_y=True,
        marks={"Young": (places["Young"] / 60, costs["Young"]), "Daly": places["Daly"] / 60},
        alt=f"{title}. The overhead falls and then rises with the interval between checkpoints. "
        f"{says}.",
    )
    return replace(picture, caption=f"{says}.")


def say_seconds(seconds: float) -> str:
    """Return a time in the unit that suits it: "45 s", "12 min", "3.1 h", "6.5 days"."""
    for unit, size, up_to in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 2 * DAY_SECONDS)):
        if seconds < up_to:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / DAY_SECONDS:,.3g} days"
