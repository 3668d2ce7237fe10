"""The result of `tune`: a plain record, a text for people and a dictionary for programs."""

from dataclasses import asdict, dataclass
from typing import Any

from .costs import StageCost
from .rebuild import TuneSettings

NOTHING_BETTER = "nothing better found: the pipeline stays as written"
MEASURABLE_SECONDS = 5e-8  # of an image; what is measured as less than this may be nothing at all


@dataclass(frozen=True)
class Trial:
    """One tried change, how many times as fast it was, and whether it stayed."""

    change: str
    ratio: float
    kept: bool


@dataclass(frozen=True)
class TuneReport:
    """Rates in images per second of the whole loop, step included; `limit`: with ready tensors."""

    step_seconds: float
    images_per_batch: float
    as_written: float
    tuned: float
    limit: float
    costs: tuple[StageCost, ...]
    trials: tuple[Trial, ...]
    settings: TuneSettings
    code: str
    notes: tuple[str, ...] = ()

    @property
    def bottleneck(self) -> str:
        """What the loop waits for: the costliest stage, or "the step" if all stages together
        take less time than a step."""
        input_seconds = sum(cost.seconds_per_image for cost in self.costs) * self.images_per_batch
        if self.step_seconds > input_seconds:
            return "the step"
        return max(self.costs, key=lambda cost: cost.seconds_per_image).name

    @property
    def improved(self) -> bool:
        """True if the search found something faster than the pipeline as written."""
        return self.settings != TuneSettings()

    @property
    def share_of_limit(self) -> float:
        """The tuned rate, of the rate of the same loop with ready tensors: 1 is all there is."""
        return self.tuned / self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        more = {"bottleneck": self.bottleneck, "share_of_limit": self.share_of_limit}
        return {**asdict(self), **more}

    def __str__(self) -> str:
        step = f"a step of {self.step_seconds * 1e3:g} ms" if self.step_seconds else "no step"
        lines = [f"images per second, {step}", f"  as written      {self.as_written:>12,.0f}"]
        which = "tuned" if self.improved else "as written"
        faster = f"{self.tuned:>12,.0f}   ×{self.tuned / self.as_written:.1f}"
        lines.append(f"  tuned           {faster if self.improved else NOTHING_BETTER}")
        share = f"{which} is {self.share_of_limit:.0%} of it"
        lines.append(f"  ready tensors   {self.limit:>12,.0f}   {share}")
        lines += ["", "microseconds per image, each stage alone on one thread"]
        for cost in self.costs:
            mark = "   <- the bottleneck" if cost.name == self.bottleneck else ""
            lines.append(f"  {cost.name:<28}{_say_cost(cost.seconds_per_image)}{mark}")
        if self.bottleneck == "the step":
            lines.append("  the step takes longer than all of them: prefetch hides the input")
        lines += ["", "tried, against the best so far"]
        for trial in self.trials:
            stays = "stays" if trial.kept else "goes"
            lines.append(f"  {trial.change:<36}×{trial.ratio:<6.2f} {stays}")
        lines += [f"  {note}" for note in self.notes]
        return "\n".join([*lines, "", self.code] if self.improved else lines)


def _say_cost(seconds: float) -> str:
    measured = seconds >= MEASURABLE_SECONDS
    return f"{seconds * 1e6:>8.1f}" if measured else "  too little to measure"
