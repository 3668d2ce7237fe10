"""The conveyor: an input pipeline as machines on a belt, and who keeps the accelerator waiting."""

import os
from typing import Any

import numpy as np

from distlab.errors import CourseError
from distlab.explorables.explorable import Explorable
from distlab.figures import Picture, bars
from utils.simulate.input import InputChoice, InputCosts, InputRun, simulate_input

BOXES, BATCHES = 8, 16  # boxes that stand for a batch, and batches of a run
MIN_MS, MAX_MS, MAX_CORES = 1.0, 1000.0, 16  # of the sliders


def conveyor(costs: InputCosts, step_seconds: float, batch: int = 128) -> Explorable:
    """Show a pipeline whose stages cost `costs` an example, and a step that consumes batches.

    It opens with nothing at the same time and no prefetch. Times of a batch outside 1 ms to
    1 s are shown as the nearer end. The picture is `simulate_input`'s run of 16 batches,
    each in 8 boxes. Raises CourseError for a `batch` that 8 doesn't divide.
    """
    if batch < BOXES or batch % BOXES:
        raise CourseError(f"batch must be a multiple of {BOXES}, one for each box, got {batch}.")
    rng = np.random.default_rng(0)
    draws, picks = rng.exponential(size=BOXES * BATCHES), rng.random(BOXES * BATCHES)
    data: dict[str, Any] = {
        "label": "The conveyor",
        "batch": BOXES,
        "each": batch // BOXES,
        "draws": draws.round(3).tolist(),
        "picks": picks.round(4).tolist(),
    }
    seconds = {
        "read": batch * costs.read_seconds,
        "decode": batch * costs.decode_seconds,
        "augment": batch * costs.augment_seconds,
        "step": step_seconds,
    }
    options = {f"{name}Ms": _fit(1e3 * each) for name, each in seconds.items()} | {
        "reads": 1,
        "calls": 1,
        "cores": min(MAX_CORES, os.cpu_count() or 2),
        "prefetch": 0,
        "shuffle": 1,
        "jitter": 0,
        "cache": "nothing",
        "time": 0.62,
    }
    return Explorable("conveyor", data, options, _draw_still(run_belt(options, data)))


def _fit(milliseconds: float) -> float:
    return float(f"{min(MAX_MS, max(MIN_MS, milliseconds)):.3g}")


def run_belt(options: dict[str, Any], data: dict[str, Any]) -> InputRun:
    """Return what the piece draws for these options: a box is an element."""
    each = {
        name: options[f"{name}Ms"] / 1e3 / data["batch"] for name in ("read", "decode", "augment")
    }
    factors = 1 + options["jitter"] * (np.array(data["draws"]) - 1)
    return simulate_input(
        InputCosts(each["read"], each["decode"], each["augment"]),
        InputChoice(
            options["reads"],
            options["calls"],
            options["shuffle"],
            options["prefetch"],
            options["cache"],
        ),
        cores=options["cores"],
        step_seconds=options["stepMs"] / 1e3,
        batch=data["batch"],
        batches=len(data["draws"]) // data["batch"],
        factors=np.stack([factors, np.ones_like(factors)], axis=1),
        picks=data["picks"],
    )


def _draw_still(run: InputRun) -> Picture:
    """Draw the work of a batch in each stage, and its time."""
    parts = {name: 1e3 * seconds for name, seconds in run.machine_seconds.items()}
    whole = {"from batch to batch": 1e3 * run.batch_seconds}
    title = f"What a batch needs; the accelerator starves {run.starved:.0%} of the time"
    return bars(parts | whole, unit="ms", title=title, highlight=run.bottleneck)
