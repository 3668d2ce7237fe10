"""Lessons 15, 16, 18, 20 and 23: one model of 7 billion parameters, and what each of them changes.

The bytes and seconds are computed (`utils.simulate.layouts`), on 64 H100s with 3,200 Gb/s a node.
"""

from dataclasses import replace

from distlab.errors import CourseError
from distlab.figures import Picture, bars
from distlab.figures.picture import stack
from utils.calibrate import find_machine
from utils.simulate.layouts import Layout, LayoutCost, cost_layout
from utils.simulate.planner import Run, choose_batch

RUN = Run(parameters=7e9, layers=32, hidden=4096, sequence=4096, vocabulary=50_000)
DEVICES, DEVICE_GB = 64, 80
COPIES = "a copy on each"
CHANGES = {  # lesson -> what it does to the model
    15: ("tensor 8", Layout(data=8, tensor=8)),
    16: ("pipeline 8", Layout(data=8, pipeline=8)),
    18: ("pipeline 8, recomputed", Layout(data=8, pipeline=8, recompute=True)),
    20: ("pipeline 2", Layout(data=32, pipeline=2)),
    23: ("ZeRO 1", Layout(data=DEVICES, zero_stage=1)),
}


def cost_one_model(lesson: int) -> dict[str, LayoutCost]:
    """Return the cost of plain copies and of each change up to `lesson`, by its name.

    Raises CourseError for a lesson that changes nothing.
    """
    if lesson not in CHANGES:
        raise CourseError(f"lesson must be one of {', '.join(map(str, CHANGES))}, got {lesson}.")
    layouts = {COPIES: Layout(data=DEVICES)}
    layouts |= {f"{k}: {words}": layout for k, (words, layout) in CHANGES.items() if k <= lesson}
    machine = find_machine(f"{DEVICES} H100, 8x400Gb/s")
    batch = choose_batch(RUN.model, DEVICES)
    return {
        name: cost_layout(RUN.model, layout, machine, batch) for name, layout in layouts.items()
    }


def draw_one_model(lesson: int) -> Picture:
    """Draw the memory of a GPU and the seconds of a step, up to `lesson`, whose bar is marked."""
    costs = cost_one_model(lesson)
    here = list(costs)[-1]
    memory = bars(
        {name: cost.memory.total / 1e9 for name, cost in costs.items()},
        unit="GB",
        title=f"The 7 B model so far: what each of {DEVICES} GPUs holds",
        reference=(f"an H100: {DEVICE_GB} GB", DEVICE_GB),
        highlight=here,
    )
    steps = {name: cost.step_seconds for name, cost in costs.items() if cost.fits}
    step = bars(steps, unit="s", title="A step of 4 million tokens, where it fits", highlight=here)
    return replace(stack([memory, step]), caption="Computed, not measured.")
