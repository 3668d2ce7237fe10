"""Lab 12, pipelines and shards: whole layers, 1F1B, and the bubble."""

from typing import Any

import numpy as np

from distlab.exercises import lab12
from distlab.exercises.lab12 import describe_schedule, draw_layer
from distlab.grading.judging import Judge, LabRules

RULES = LabRules(cell_seconds=10, submission_seconds=30)


def _whole(layer: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        "output": layer["x"] @ layer["kernel"] + layer["bias"],
        "kernel gradients": layer["x"].T @ layer["upstream"],
        "bias gradient": layer["upstream"].sum(axis=0),
        "x gradient": layer["upstream"] @ layer["kernel"].T,
    }


def expect_columns(seed: int, inputs: int, sizes: Any, way: str = "right") -> dict[str, Any]:
    layer = draw_layer(seed, inputs, sum(sizes))
    right = _whole(layer)
    edges = np.cumsum(sizes)[:-1]
    pairs = list(
        zip(
            np.split(layer["upstream"], edges, axis=1),
            np.split(layer["kernel"], edges, axis=1),
            strict=True,
        )
    )
    if way == "not-summed":
        right["x gradient"] = pairs[0][0] @ pairs[0][1].T
    if way == "averaged":
        right["x gradient"] = right["x gradient"] / len(pairs)
    if way == "bias-forgotten":
        right["output"] = layer["x"] @ layer["kernel"]
    if way == "bias-averaged":
        right["bias gradient"] = layer["upstream"].mean(axis=0)
    return right


def expect_rows(seed: int, sizes: Any, outputs: int, way: str = "right") -> dict[str, Any]:
    layer = draw_layer(seed, sum(sizes), outputs)
    right = _whole(layer)
    first = sizes[0]
    if way == "bias-everywhere":
        right["output"] = right["output"] + (len(sizes) - 1) * layer["bias"]
    if way == "first-part-only":
        right["output"] = layer["x"][:, :first] @ layer["kernel"][:first] + layer["bias"]
    if way == "averaged":
        product = layer["x"] @ layer["kernel"] / len(sizes)
        right["output"] = product + layer["bias"]
    if way == "upstream-shared":
        for name in ("kernel gradients", "x gradient", "bias gradient"):
            right[name] = right[name] / len(sizes)
    return right


def _order_stage(stage: int, stages: int, micro_batches: int, ahead: int) -> list[tuple[str, int]]:
    """Return `ahead` forwards, then a backward and a forward in turn, then the backwards left."""
    ahead = min(ahead, micro_batches)
    order = [("F", k) for k in range(ahead)]
    for k in range(micro_batches):
        order.append(("BW", k))
        if ahead + k < micro_batches:
            order.append(("F", ahead + k))
    return order


def expect_schedule(stages: int, micro_batches: int, way: str = "right") -> dict[str, Any]:
    """Return how 1F1B does, or a known other schedule."""
    ahead = {
        "all-forwards-first": lambda stage: micro_batches,
        "one-at-a-time": lambda stage: 1,
        "one-too-many": lambda stage: stages - stage + 1,
        "same-warm-up": lambda stage: stages,
    }.get(way, lambda stage: stages - stage)
    orders = [_order_stage(s, stages, micro_batches, ahead(s)) for s in range(stages)]
    return describe_schedule(orders, stages, micro_batches)


def expect_count(stages: int, most_bubble: float, way: str = "right") -> int:
    """Return the fewest micro-batches with a bubble fraction of `most_bubble` at most."""
    for micro_batches in range(1, 100_000):
        idle = {"all-stages": stages, "one-bubble": 1}.get(way, stages - 1)
        whole = micro_batches + (0 if way == "of-ideal-time" else idle)
        if idle / whole <= most_bubble + 1e-12:
            return micro_batches + (1 if way == "one-more" else 0)
    raise ValueError("no number of micro-batches is enough")


COLUMNS = Judge(lab12.COLUMNS, expect_columns)
ROWS = Judge(lab12.ROWS, expect_rows)
SCHEDULE = Judge(lab12.SCHEDULE, expect_schedule)
COUNT = Judge(lab12.COUNT, expect_count)
