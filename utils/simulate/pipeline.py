"""Simulate a pipeline schedule: its time, its idle stages, and the memory that it needs.

    from utils.schedules import make_schedule
    from utils.simulate.pipeline import StageTimes, simulate_pipeline

    times = StageTimes(forward=1.0, backward_input=1.0, backward_weight=1.0)
    run = simulate_pipeline(make_schedule("1f1b", 4, 8), times)
    run.bubble_fraction, run.peak_activations_per_stage

The model, after Qi et al. 2023, "Zero Bubble Pipeline Parallelism": each stage
does its list in order, one operation at a time, each as soon as its input is
there. A result takes a delay to the next stage, which occupies nobody. The cost
of a schedule is the longest span of a stage, its first start to its last end.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..schedules.check import find_deadlock, find_local_fault
from ..schedules.operations import Schedule
from ..schedules.replay import BOTH, FORWARD, WEIGHT, Encoded, encode, replay

KIND_NAMES = {
    "F": "forward",
    "B": "backward for inputs",
    "W": "backward for weights",
    "BW": "backward",
}
Row = tuple[str, float, float, str, str]  # of a timeline: lane, start, end, label, kind


@dataclass(frozen=True, eq=False)
class StageTimes:
    """The cost of one micro-batch, in any one unit of time.

    `forward`, `backward_input` (B) and `backward_weight` (W) are the times of a full stage: one
    number for all stages, or one for each [stage]; with V chunks each chunk takes 1/V of it.
    [chunk, stage] gives each chunk its own time. `communication` is the delay of one hop from stage
    to stage. `simulate_pipeline` raises InputError for times that aren't positive or don't fit.

        >>> StageTimes(forward=1, backward_input=1, backward_weight=1).communication
        0.0
    """

    forward: ArrayLike
    backward_input: ArrayLike
    backward_weight: ArrayLike
    communication: float = 0.0

    def recompute(self) -> "StageTimes":
        """Return the times when each backward computes its forward again (B becomes F + B).

        A stage then keeps only its input of each micro-batch, and during a
        backward the activations of that one (GPipe, section 2.3). Ratios between
        numbers of equal stages stay as they are: each stage has the same more.
        """
        both = (np.asarray(self.forward), np.asarray(self.backward_input))
        chunks = next((each.shape[0] for each in both if each.ndim == 2), 1)
        again = sum(each if each.ndim == 2 else each / chunks for each in both)
        return replace(self, backward_input=again)

    def tabulate(self, stages: int, chunks: int) -> np.ndarray:
        """Return [F, B, W or BW; stage; chunk] times of one chunk; InputError if one can't be."""
        named = (
            ("forward", self.forward),
            ("backward for inputs", self.backward_input),
            ("backward for weights", self.backward_weight),
        )
        f, b, w = (_spread(name, value, stages, chunks) for name, value in named)
        if not np.any(f + b + w):
            raise InputError("At least one of F, B and W must take more than 0, got 0 for all.")
        return np.stack([f, b, w, b + w])

    def read_delay(self) -> float:
        """Return the communication delay; InputError if it can't be."""
        return float(_read_times("communication", self.communication, ((),)))


def _spread(name: str, value: ArrayLike, stages: int, chunks: int) -> np.ndarray:
    """Return [stage, chunk] times."""
    times = _read_times(f"{name} times", value, ((), (stages,), (chunks, stages)))
    if times.ndim == 2:
        return times.T
    return np.repeat(np.broadcast_to(times, stages)[:, None] / chunks, chunks, axis=1)


def _read_times(name: str, value: ArrayLike, shapes: tuple[tuple[int, ...], ...]) -> np.ndarray:
    try:
        times = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers of at least 0, got {value!r}.") from None
    if not np.all(np.isfinite(times)) or np.any(times < 0):
        raise InputError(f"{name} must be finite and at least 0, got {value}.")
    if times.shape not in shapes:
        allowed = " or ".join(str(list(shape)) if shape else "one number" for shape in shapes)
        raise InputError(f"{name} must be {allowed}, got shape {list(times.shape)}.")
    return times


@dataclass(frozen=True)
class Span:
    """One operation as it ran on `stage`, from `start` to `end`."""

    stage: int
    start: float
    end: float
    kind: str
    micro_batch: int
    chunk: int


def list_rows(spans: Iterable[Span]) -> list[Row]:
    """Return `spans` as rows of a timeline: (lane, start, end, label, kind).

    The lane is "stage 0", the label the micro-batch. Where stages hold several
    chunks, the kind names the chunk: "forward, chunk 1".
    """
    spans = list(spans)
    several = any(span.chunk for span in spans)
    return [
        (
            f"stage {span.stage}",
            span.start,
            span.end,
            str(span.micro_batch),
            KIND_NAMES[span.kind] + (f", chunk {span.chunk}" if several else ""),
        )
        for span in spans
    ]


@dataclass(frozen=True, eq=False)
class PipelineRun:
    """A schedule as it ran. Times in the unit of its StageTimes, from the first start on.

    `starts` and `ends` hold each operation [operation], stage after stage, in
    each stage's order. `busy_per_stage` and `span_per_stage` [stage] are the
    time at work and the time from first start to last end.
    `peak_activations_per_stage` is the most micro-batches whose activations a
    stage keeps at once, from F to W; one of V chunks counts 1/V.
    """

    schedule: Schedule
    starts: np.ndarray
    ends: np.ndarray
    busy_per_stage: np.ndarray
    span_per_stage: np.ndarray
    peak_activations_per_stage: tuple[float, ...]

    @property
    def makespan(self) -> float:
        """The end of the last operation of all."""
        return float(self.ends.max())

    @property
    def longest_stage_span(self) -> float:
        return float(self.span_per_stage.max())

    @property
    def bubble_fraction(self) -> float:
        """1 - work / longest stage span; the work is M (F + B + W), the mean of unequal stages."""
        return max(0.0, 1.0 - float(self.busy_per_stage.mean()) / self.longest_stage_span)

    def timeline(self) -> list[Span]:
        """Return every operation as it ran, stage after stage, each in order of time."""
        orders = self.schedule.orders
        placed = ((stage, operation) for stage, order in enumerate(orders) for operation in order)
        times = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [
            Span(stage, start, end, o.kind, o.micro_batch, o.chunk)
            for (stage, o), (start, end) in zip(placed, times, strict=True)
        ]

    def rows(self) -> list[Row]:
        """Return the rows of a timeline, as `list_rows` makes them."""
        return list_rows(self.timeline())


def simulate_pipeline(schedule: Schedule, times: StageTimes) -> PipelineRun:
    """Run `schedule` with the given `times`; each operation starts as early as it can.

    Returns starts, ends and idle time, in the unit of `times`. Raises InputError for a schedule
    that isn't complete or can't run (what `check_schedule` says) and for times that don't fit
    it.

        >>> run = simulate_pipeline(make_schedule("1f1b", 4, 8), StageTimes(1, 1, 1))
        >>> round(run.bubble_fraction, 3)
        0.273
    """
    encoded = encode(schedule)
    table = times.tabulate(schedule.stages, schedule.chunks)
    delay = times.read_delay()
    fault = find_local_fault(encoded)
    if fault is None:
        durations = table[encoded.kinds, encoded.stages, encoded.chunks]
        played = replay(encoded, durations, delay)
        fault = find_deadlock(encoded, played)
    if fault:
        raise InputError(f"Schedule {schedule.name!r} can't run: {fault}")
    if not np.isfinite(played.ends).all():
        raise InputError("The times are too large to add up. Use a larger unit.")
    begins, ends = encoded.firsts[:-1], encoded.firsts[1:] - 1
    return PipelineRun(
        schedule=schedule,
        starts=played.starts,
        ends=played.ends,
        busy_per_stage=np.add.reduceat(durations, begins),
        span_per_stage=played.ends[ends] - played.starts[begins],
        peak_activations_per_stage=_count_peaks(encoded),
    )


def _count_peaks(encoded: Encoded) -> tuple[float, ...]:
    change = np.zeros(len(encoded.kinds), dtype=int)
    change[encoded.kinds == FORWARD] = 1
    change[np.isin(encoded.kinds, (WEIGHT, BOTH))] = -1
    chunks = encoded.schedule.chunks
    peaks = [
        int(np.cumsum(change[begin:end]).max())
        for begin, end in zip(encoded.firsts, encoded.firsts[1:], strict=False)
    ]
    return tuple(peak if chunks == 1 else peak / chunks for peak in peaks)


def summarize(run: PipelineRun) -> dict[str, object]:
    """Return what `distlab simulate pipeline --json` prints."""
    return {
        "bubble_fraction": run.bubble_fraction,
        "makespan": run.makespan,
        "longest_stage_span": run.longest_stage_span,
        "peak_activations_per_stage": list(run.peak_activations_per_stage),
    }
