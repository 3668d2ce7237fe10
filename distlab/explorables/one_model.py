"""Lessons 15, 16, 18, 20 and 23: one model of 7 billion parameters, and what each of them changes.

The bytes and seconds are computed (`utils.simulate.layouts`), on H100s with 3,200 Gb/s a node.
"""

from collections.abc import Sequence
from dataclasses import replace

from distlab.errors import CourseError
from distlab.explorables.controls import Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import Picture, bars
from utils.calibrate import find_machine
from utils.simulate.layouts import Layout, LayoutCost, cost_layout
from utils.simulate.planner import Run, choose_batch

RUN = Run(parameters=7e9, layers=32, hidden=4096, sequence=4096, vocabulary=50_000)
DEVICES, DEVICE_GB = 64, 80
COPIES = "a copy on each"
CHANGES = {  # lesson -> what it does to the model, apart from the copies
    15: ("tensor 8", Layout(tensor=8)),
    16: ("pipeline 8", Layout(pipeline=8)),
    18: ("pipeline 8, recomputed", Layout(pipeline=8, recompute=True)),
    20: ("pipeline 2", Layout(pipeline=2)),
    23: ("ZeRO 1", Layout(zero_stage=1)),
}
LONGER = {  # lesson -> what it asks about the sequence, the exponent that answers, the answer
    15: (
        "Sequences of 16,384 tokens: does a GPU with tensor 8 hold them?",
        14,
        "Yes, easily: {} GB. "
        "Every GPU keeps an eighth of most activations, so four times the tokens cost little.",
    ),
    16: (
        "Sequences of 16,384 tokens: which cut still fits?",
        14,
        "Tensor parallelism. A stage of "
        "the pipeline keeps the activations of several sequences at once, and needs {} GB.",
    ),
    18: (
        "Sequences of 16,384 tokens: what makes eight stages fit?",
        14,
        "Recomputing: {} GB. It costs a third of a step, and without it there is no step at all.",
    ),
    20: (
        "Twice the sequence: do two stages still fit?",
        13,
        "No, they need {} GB. At 4,096 tokens they left no room. Eight stages still fit.",
    ),
    23: (
        "Sequences of 16,384 tokens: is ZeRO 1 still the quickest?",
        14,
        "It doesn't fit: {} GB, "
        "most of it activations, and ZeRO 1 splits none of them. Then a cut through the model "
        "pays.",
    ),
}


def cost_one_model(
    lesson: int, devices: int = DEVICES, sequence: int = RUN.sequence
) -> dict[str, LayoutCost]:
    """Return the cost of plain copies and of each change up to `lesson`, by its name.

    A step has about 4 million tokens, in sequences of `sequence`. Raises CourseError for a lesson
    that changes nothing.
    """
    if lesson not in CHANGES:
        raise CourseError(f"lesson must be one of {', '.join(map(str, CHANGES))}, got {lesson}.")
    layouts = {COPIES: Layout()}
    layouts |= {
        f"lesson {k}: {words}": layout for k, (words, layout) in CHANGES.items() if k <= lesson
    }
    model = replace(RUN, sequence=sequence).model
    machine, batch = find_machine(f"{devices} H100, 8x400Gb/s"), choose_batch(model, devices)
    return {
        name: cost_layout(model, replace(each, data=devices // each.devices), machine, batch)
        for name, each in layouts.items()
    }


def one_model_explorer(lesson: int) -> Explorer:
    """Show a GPU's memory and the seconds of a step, a row for each lesson up to `lesson`."""

    def show(devices: int, sequence: int) -> Sequence[Picture]:
        return _draw(cost_one_model(lesson, 2**devices, 2**sequence), 2**devices)

    start = {"devices": 6, "sequence": 12}
    copy = cost_one_model(lesson)[COPIES].memory.total / 1e9
    ask, longer, answer = LONGER[lesson]
    held = list(cost_one_model(lesson, sequence=2**longer).values())[-1].memory.total / 1e9
    return explore(
        show,
        tries=[
            Try(ask, start, {"sequence": longer}, answer.format(round(held))),
            Try(
                "Eight times the GPUs: do plain copies fit then?",
                {"devices": 3, "sequence": 12},
                {"devices": 6},
                f"No. Each holds the whole model, {copy:.0f} GB on any number of GPUs. More copies "
                "shorten the step and leave the memory as it is.",
            ),
        ],
        devices=Slider("GPUs", 3, 7, 6, base=2),
        sequence=Slider("Tokens of a sequence", 12, 15, 12, base=2),
    )


def _draw(costs: dict[str, LayoutCost], devices: int) -> list[Picture]:
    """Draw both rows of bars; red is over the limit, and the last name, the lesson's, is bold."""
    here, own = list(costs.items())[-1]
    memory = bars(
        {name: cost.memory.total / 1e9 for name, cost in costs.items()},
        unit="GB",
        title=f"The 7 B model: what each of {devices} GPUs holds",
        reference=(f"an H100: {DEVICE_GB} GB", DEVICE_GB),
    ).with_ideas({name: "variables" if cost.fits else "over" for name, cost in costs.items()})
    steps = {name: cost.step_seconds for name, cost in costs.items() if cost.fits}
    step = bars(steps, unit="s", title="A step of 4 million tokens, where it fits")
    says = "It doesn't fit."
    if own.fits:
        rest = {part: s for part, s in own.parts.items() if part != "computation"}
        most = max(rest, key=rest.get)
        says = (
            f"{own.parts['computation']:.1f} of {own.step_seconds:.1f} s are computation. The "
            f"largest other part is {most}, {rest[most]:.1f} s."
        )
    words = f"{here}: {own.memory.total / 1e9:.0f} GB. {says} Computed, not measured."
    step = replace(step.with_ideas(dict.fromkeys(steps, "forward")), caption=words)
    return [replace(each, chart={**each.chart, "bold": here}) for each in (memory, step)]
