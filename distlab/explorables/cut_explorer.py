"""The cut explorer: one model on more and more GPUs, cut one way or another; memory and seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from distlab.explorables.controls import Choice, Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import Picture, bars

WAYS = (
    "data, ZeRO 0",
    "data, ZeRO 1",
    "data, ZeRO 3",
    "data, tensor",
    "data, pipeline",
    "data, tensor, pipeline",
    "data, context",
    "data, tensor, context",
)
SMALLEST, LARGEST = 3, 9  # devices as powers of two
HELD = {  # what has no idea of its own, as a sum, has the ink of the words
    "weights": "variables",
    "gradients": "backward",
    "optimizer": "optimizer",
    "activations": "forward",
}
SPENT = {
    "computation": "forward",
    "bubble": "wait",
    "optimizer": "optimizer",
    "memory traffic": "data",
    **dict.fromkeys(("data", "tensor", "pipeline", "context"), "all-reduce"),
}
Rows = Sequence[Mapping[str, Any]]


def cut_explorer(tables: Mapping[str, Rows], capacity_gb: float, name: str) -> Explorer:
    """Show memory and step time of one way to cut, on 8 to 512 devices called `name`.

    `tables` has, for each choice of a model, the rows of `utils.simulate.planner.tabulate_layouts`.
    Of two choices, the first has short sequences and the second long ones: then it asks.
    """
    found = {
        (model, row["devices"], row["way"]): row for model, rows in tables.items() for row in rows
    }

    def show(size: int, way: str, model: str) -> Sequence[Picture | str]:
        row = found.get((model, 2**size, way))
        if row is None:
            return [f"<p>{way}: the batch has fewer sequences than {2**size} GPUs need.</p>"]
        return _draw(row, capacity_gb, name)

    return explore(
        show,
        tries=_list_questions(*tables) if len(tables) == 2 else (),
        size=Slider("GPUs", SMALLEST, LARGEST, 6, grid=range(SMALLEST, LARGEST + 1), base=2),
        way=Choice("Cut along", WAYS, WAYS[0]),
        model=Choice("A sequence has", list(tables), next(iter(tables))),
    )


def _list_questions(short: str, long: str) -> list[Try]:
    alone, pipeline = "data, ZeRO 3", "data, pipeline"
    return [
        Try(
            "64 copies don't fit: which is the smallest cut that helps?",
            {"size": 6, "way": "data, ZeRO 0", "model": short},
            {"way": "data, ZeRO 1"},
            "Adam's state, split over the copies. What crosses the network stays the same, and no "
            "other way in the list takes a shorter step here.",
        ),
        Try(
            "ZeRO 3 doesn't fit on 8 GPUs: which cut fits and takes the shortest step?",
            {"size": 3, "way": alone, "model": long},
            {"way": "data, context"},
            "The sequence: 546 s. Tensor parallelism fits too and is within 1 %. ZeRO splits only "
            "what is stored of the model, and here the activations are too large.",
        ),
        Try(
            "Eight times the GPUs: which part of the step doesn't get shorter?",
            {"size": 6, "way": pipeline, "model": long},
            {"size": 9},
            "The bubble. The batch has too few sequences to keep so many stages busy, so most GPUs "
            "wait most of the time.",
        ),
    ]


def _draw(row: Mapping[str, Any], capacity_gb: float, name: str) -> list[Picture]:
    memory = bars(
        {**row["memory"], "in all": row["memory_gb"]},
        unit="GB",
        title=f"Memory of each of {row['devices']} GPUs",
        reference=(f"an {name}: {capacity_gb:g} GB", capacity_gb),
    ).with_ideas(HELD)
    if not row["fits"]:
        return [replace(memory, caption="It doesn't fit, so there is no step to time.")]
    parts = {part: seconds for part, seconds in row["parts"].items() if seconds > 0}
    step = bars({**parts, "whole step": row["step_seconds"]}, unit="s", title="Seconds of a step")
    said = (
        f"{row['layout']}: {row['hours']:,.0f} hours, {100 * row['mfu']:.0f} % MFU. "
        f"Bottleneck: {row['bottleneck']}."
    )
    return [memory, replace(step, caption=said).with_ideas(SPENT)]
