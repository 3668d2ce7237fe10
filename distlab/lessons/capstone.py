"""The size of the capstone's run, and the page written at its end."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distlab.lessons.killed_run import KilledRun
from distlab.lessons.logbook import Logbook
from utils.calibrate import Prediction
from utils.data.masks import MaskScore

REDUCED_VARIABLE = "DISTLAB_REDUCED"
GLOBAL_BATCH_SIZE = 32


@dataclass(frozen=True)
class Sizes:
    """Scenes to train on and to test with, epochs, and the scores that must be reached.

    A calibration measures steps of `measured_batch` scenes on each worker.
    """

    train: int
    test: int
    epochs: int
    every: int
    measured_batch: int
    tune_seconds: float
    least_foreground: float
    least_garments: float

    @property
    def steps(self) -> int:
        """Steps of the whole run; a last batch that isn't full is left out."""
        return self.epochs * (self.train // GLOBAL_BATCH_SIZE)

    def are_reached(self, score: MaskScore) -> bool:
        """Return whether the masks are as good as required."""
        enough = score.foreground >= self.least_foreground
        return enough and score.garments >= self.least_garments


FULL = Sizes(6_000, 1_000, 8, 40, 16, 6.0, 0.95, 0.50)
REDUCED = Sizes(640, 60, 4, 8, 2, 1.0, 0.60, 0.02)  # an untrained model has 0 and 0


def choose_sizes() -> Sizes:
    """Return the full run's sizes, or a tenth where DISTLAB_REDUCED is set, as tests set it."""
    return REDUCED if os.environ.get(REDUCED_VARIABLE) else FULL


def write_report(
    path: Path,
    book: Logbook,
    run: KilledRun,
    predicted_seconds: float,
    score: MaskScore,
    bills: Mapping[str, Prediction],
) -> str:
    """Write the project's report in Markdown to `path` and return it.

    `predicted_seconds` is what a step was expected to take, `bills` are larger runs by name.
    """
    last = run.steps[-1]
    error = predicted_seconds / run.step_seconds - 1
    rows = [
        f"| {name} | {row.step_seconds:.3g} | {row.efficiency:.0%} | {row.bottleneck} | "
        f"{row.hours:,.2f} | {row.cost:,.2f} |"
        for name, row in bills.items()
    ]
    text = f"""### A U-Net on scenes: report of {time.strftime("%Y-%m-%d")}

**What was run.** {last.step} steps of {GLOBAL_BATCH_SIZE} scenes on {run.report.workers} \
workers of this machine. Worker {run.victim} was killed after step {run.kill_after}; \
{run.lost_steps} steps were trained twice, and the next step was reported \
{run.restart_seconds:.0f} s after the kill.

**How fast.** {run.step_seconds:.2f} s a step, {GLOBAL_BATCH_SIZE / run.step_seconds:.0f} \
scenes a second; predicted were {predicted_seconds:.2f} s a step ({error:+.0%}). \
{run.report.seconds:.0f} s in all.

**How good.** On scenes of garments that were never trained on: IoU of the foreground \
{score.foreground:.3f}, mean of the ten garments {score.garments:.3f}.

**What larger runs would take** (predicted):

| run | seconds a step | efficiency | bottleneck | hours | cost |
|---|---|---|---|---|---|
{chr(10).join(rows)}

**What was decided, and what came of it.**

{book}
"""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return text
