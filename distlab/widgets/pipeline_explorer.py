"""The pipeline explorer: a schedule's picture, bubble and memory for the sizes that one chooses."""

from dataclasses import replace

from distlab.figures import Picture, timeline
from distlab.figures.canvas import say_number
from distlab.widgets.controls import Choice, Slider
from distlab.widgets.explorer import Explorer, explore
from utils.schedules import SCHEDULES, make_schedule
from utils.simulate.pipeline import PipelineRun, StageTimes, simulate_pipeline


def pipeline_explorer(name: str = "1f1b", stages: int = 4, micro_batches: int = 8) -> Explorer:
    """Show the timeline of a schedule; its bubble and its memory stand below.

    Times are in units of one stage's forward pass for one micro-batch. Where the
    sizes cannot be (interleaved 1F1B takes micro-batches in groups), one line says so.
    """
    return explore(
        show_schedule,
        name=Choice("Schedule", list(SCHEDULES), name),
        stages=Slider("Stages", 1, 8, stages),
        micro_batches=Slider("Micro-batches", 1, 24, micro_batches),
        chunks=Slider("Chunks of each stage (interleaved)", 1, 4, 2),
        backward=Slider("Backward pass", 1, 3, 2, 0.25, "forwards"),
        communication=Slider("Delay of a hop", 0, 1, 0, 0.1, "forwards"),
    )


def show_schedule(
    name: str, stages: int, micro_batches: int, chunks: int, backward: float, communication: float
) -> Picture:
    """Return the timeline of one step; the backward pass is half for inputs, half for weights."""
    own_chunks = chunks if name == "interleaved-1f1b" else None
    schedule = make_schedule(name, stages, micro_batches, own_chunks)
    times = StageTimes(1.0, backward / 2, backward / 2, communication)
    run = simulate_pipeline(schedule, times)
    title = f"{name}: {stages} stages, {micro_batches} micro-batches"
    picture = timeline(run.rows(), title=title, unit="forward passes")
    return replace(picture, caption=explain_run(run))


def explain_run(run: PipelineRun) -> str:
    """Return in words how long a step takes, how much of it is idle, and what is kept."""
    micro_batches = run.schedule.micro_batches
    peaks = ", ".join(say_number(peak) for peak in run.peak_activations_per_stage)
    return (
        f"The stages are idle for {100 * run.bubble_fraction:.1f} % of a step of "
        f"{say_number(run.longest_stage_span)} forward passes. Stage by stage they keep the "
        f"activations of at most {peaks} of the {micro_batches} micro-batches."
    )
