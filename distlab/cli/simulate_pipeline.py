"""`distlab simulate pipeline`: what a pipeline schedule costs, from times and sizes."""

import argparse
import json

from distlab.cli.parser import Commands, add_command
from distlab.cli.simulate_options import add_picture, write_picture
from distlab.errors import CourseError
from distlab.figures import Picture
from utils.schedules import SCHEDULES, make_schedule
from utils.simulate.pipeline import PipelineRun, StageTimes, simulate_pipeline, summarize

MAX_DRAWN = 6_000

DESCRIPTION = (
    "Simulate one step of a pipeline of equal stages. Times are in any one unit, one whole "
    "stage's for one micro-batch; with V chunks each chunk takes 1/V. gpipe and 1f1b and "
    "interleaved-1f1b do both parts of the backward pass together."
)
EPILOG = (
    "bubble fraction = 1 - M(F+B+W) / longest stage span, a stage's span running from its first "
    "start to its last end. Peak activations: the most micro-batches that a stage keeps at once, "
    "each from its F to its W; one of V chunks counts 1/V."
)


def add_parser(models: Commands) -> None:
    parser = add_command(
        models, "pipeline", run, "bubble, makespan and peak activations of a pipeline schedule",
        DESCRIPTION, EPILOG,
    )  # fmt: skip
    add = parser.add_argument
    add("--schedule", required=True, choices=SCHEDULES)
    add("--stages", type=int, required=True, metavar="P")
    add("--micro-batches", type=int, required=True, metavar="M", help="micro-batches in one step")
    add("--forward", type=float, required=True, metavar="F", help="time of the forward pass")
    add("--backward-input", type=float, required=True, metavar="B",
        help="time of the backward pass for the inputs")  # fmt: skip
    add("--backward-weight", type=float, required=True, metavar="W",
        help="time of the backward pass for the weights")  # fmt: skip
    add("--communication", type=float, default=0.0, metavar="C",
        help="delay of a hop from stage to stage, which occupies no stage (default 0)")  # fmt: skip
    add("--chunks", type=int, metavar="V",
        help="parts of the model on each stage (interleaved-1f1b, default 2; else 1)")  # fmt: skip
    add_picture(parser, "the timeline into FILE.svg")
    parser.add_json()


def run(arguments: argparse.Namespace) -> int:
    schedule = make_schedule(
        arguments.schedule, arguments.stages, arguments.micro_batches, arguments.chunks
    )
    times = StageTimes(
        arguments.forward, arguments.backward_input, arguments.backward_weight,
        arguments.communication,
    )  # fmt: skip
    result = simulate_pipeline(schedule, times)
    if arguments.picture:
        write_picture(arguments.picture, lambda: draw(result))
    print(json.dumps(summarize(result)) if arguments.json else tabulate(result))
    return 0


def tabulate(result: PipelineRun) -> str:
    """Return the result as text: the totals, and a line for each stage."""
    schedule = result.schedule
    sizes = f"{schedule.stages} stages, {schedule.micro_batches} micro-batches"
    sizes += f", {schedule.chunks} chunks" if schedule.chunks > 1 else ""
    lines = [
        f"{schedule.name}: {sizes}",
        f"bubble fraction     {result.bubble_fraction:.4f}",
        f"makespan            {result.makespan:,.6g}",
        f"longest stage span  {result.longest_stage_span:,.6g}",
        "",
        "stage        busy        span  peak activations",
    ]
    columns = (result.busy_per_stage, result.span_per_stage, result.peak_activations_per_stage)
    for stage, (busy, span, peak) in enumerate(zip(*columns, strict=True)):
        lines.append(f"{stage:5d}  {busy:10,.6g}  {span:10,.6g}  {peak:16,.6g}")
    return "\n".join(lines)


def draw(result: PipelineRun) -> Picture:
    """Return the timeline; CourseError where there is too much to draw."""
    if len(result.starts) > MAX_DRAWN:
        raise CourseError(
            f"--picture: {len(result.starts):,} operations are too many to draw: choose fewer "
            f"stages or micro-batches (at most {MAX_DRAWN:,} operations)"
        )
    from distlab.figures import timeline

    schedule = result.schedule
    title = f"{schedule.name}, {schedule.stages} stages, {schedule.micro_batches} micro-batches"
    return timeline(result.rows(), title=title, unit="")
