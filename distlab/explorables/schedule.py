"""The schedule as a toy: pipeline schedules drawn, compared and followed in the browser."""

from dataclasses import replace
from typing import Any

from distlab.errors import CourseError
from distlab.explorables.explorable import Explorable
from distlab.figures import timeline
from utils.checks import check_choice, check_count
from utils.schedules import SCHEDULES, Schedule, check_schedule, make_schedule
from utils.simulate.pipeline import StageTimes, simulate_pipeline

MAX_STAGES, MAX_MICRO_BATCHES = 8, 16


def schedule_toy(
    name: str = "gpipe",
    compare: str | None = "1f1b",
    *,
    stages: int = 4,
    micro_batches: int = 8,
    own: Schedule | None = None,
    wrong: tuple[int, int, str] | None = None,
) -> Explorable:
    """Show a schedule's lanes, its bubble and its activations, and below it another to compare.

    With `own`, that schedule stands above. `wrong` is an operation of it, as its stage and place,
    that gets a red frame, and words about it. Such a schedule is drawn up to where it gets stuck.
    Times are in forward passes of one micro-batch. The backward pass is half for the inputs and
    half for the weights. Raises DistributedError for an unknown name, more than 8 stages or 16
    micro-batches, and an own schedule that `check_schedule` refuses, unless its fault is given.
    """
    for each in (name, compare or name):
        check_choice("schedule", each, SCHEDULES)
    fault = None
    if own is not None:
        stages, micro_batches = own.stages, own.micro_batches
        if (fault := check_schedule(own)) and wrong is None:
            raise CourseError(f"own must be a schedule that can run: {fault}")
    check_count("stages", stages, 1, MAX_STAGES)
    check_count("micro_batches", micro_batches, 1, MAX_MICRO_BATCHES)
    data: dict[str, Any] = {"label": "Pipeline schedules", "own": own and _write_orders(own)}
    if wrong is not None:
        data["own"] |= {"wrong": dict(zip(("stage", "place", "words"), wrong, strict=True))}
    options = {
        "upper": "own" if own else name,
        "lower": compare or "none",
        "stages": stages,
        "micros": micro_batches,
        "chunks": 2,
        "backward": 2,
        "hop": 0,
        "follow": -1,
        "time": 1,
    }
    stands_in = (compare or name) if fault else name
    shown = own if own and not fault else make_schedule(stands_in, stages, micro_batches)
    run = simulate_pipeline(shown, _UNITS)
    title = f"{run.schedule.name}: {stages} stages, {micro_batches} micro-batches"
    still = timeline(run.rows(), title=title, unit="forwards")
    still = replace(still, caption=wrong[2]) if wrong else still
    return Explorable("schedule", data, options, still)


_UNITS = StageTimes(forward=1.0, backward_input=1.0, backward_weight=1.0)


def _write_orders(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as the browser's `makeSchedule` has it."""
    orders = [
        [{"kind": o.kind, "micro": o.micro_batch, "chunk": o.chunk} for o in order]
        for order in schedule.orders
    ]
    micro, chunks = schedule.micro_batches, schedule.chunks
    return {"name": "own", "micros": micro, "chunks": chunks, "orders": orders}
