"""Lab 12, pipelines and shards: whole layers, 1F1B, and the bubble."""

from typing import Any

import numpy as np

from distlab.exercises.comparing import AnyOf, Anything
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab12 import exercise as lab12
from distlab.labs.lab12.exercise import describe_schedule, draw_layer, draw_sharded

RULES = LabRules(cell_seconds=10, submission_seconds=30, data=())


def _whole(layer: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        "output": layer["x"] @ layer["kernel"] + layer["bias"],
        "kernel gradients": layer["x"].T @ layer["upstream"],
        "bias gradient": layer["upstream"].sum(axis=0),
        "x gradient": layer["upstream"] @ layer["kernel"].T,
    }


def expect_columns(seed: int, inputs: int, sizes: Any, way: str = "right") -> dict[str, Any]:
    layer = draw_layer(seed, inputs, sum(sizes))
    found = _whole(layer)
    if way == "averaged":
        found["x gradient"] = found["x gradient"] / len(sizes)
    if way == "not-summed":
        cuts = [slice(end - size, end) for size, end in zip(sizes, np.cumsum(sizes))]
        parts = [layer["upstream"][:, cut] @ layer["kernel"][:, cut].T for cut in cuts]
        found["x gradient"] = AnyOf(tuple(parts))
    if way == "bias-forgotten":
        found["output"] = layer["x"] @ layer["kernel"]
    batch = len(layer["x"])
    found["bias gradient"] /= batch if way == "bias-averaged" else 1
    found["kernel gradients"] /= batch if way == "kernel-averaged" else 1
    if way == "not-in-parts":
        return found | {"bias gradient": Anything()}
    edges = np.cumsum(sizes)[:-1] if way != "equal-parts" else len(sizes)
    biases = np.array_split(found["bias gradient"], edges)
    if way == "bias-wrong-axis":
        biases = [part.sum(axis=1) for part in np.split(layer["upstream"], edges, axis=1)]
    both = AnyOf((biases, [bias / batch for bias in biases]))  # one mean suggests two
    return found | {
        "kernel gradients": np.array_split(found["kernel gradients"], edges, axis=1),
        "bias gradient": both if way == "kernel-averaged" else biases,
        "x gradient": Anything() if way == "equal-parts" else found["x gradient"],
    }


def expect_rows(seed: int, sizes: Any, outputs: int, way: str = "right") -> dict[str, Any]:
    layer = draw_layer(seed, sum(sizes), outputs)
    found = _whole(layer)
    first, bias = sizes[0], layer["bias"]
    product = found["output"] - bias
    found["output"] = {
        "bias-everywhere": product + len(sizes) * bias,
        "bias-shared": product + bias / len(sizes),
        "first-part-only": layer["x"][:, :first] @ layer["kernel"][:first] + bias,
        "averaged": product / len(sizes) + bias,
        "bias-forgotten": product,
    }.get(way, found["output"])
    if way == "upstream-shared":  # for x, and perhaps for the others
        found["x gradient"] = found["x gradient"] / len(sizes)
        whole = found["bias gradient"]
        found["bias gradient"] = AnyOf((whole, whole / len(sizes)))
    if way == "bias-wrong-axis":
        found["bias gradient"] = layer["upstream"].sum(axis=1)
    if way == "bias-gradients-summed":
        found["bias gradient"] = len(sizes) * found["bias gradient"]
    if way == "not-in-parts":
        return found | {"x gradient": Anything()}
    edges = np.cumsum(sizes)[:-1]
    whole = found["kernel gradients"]
    found["kernel gradients"] = np.split(whole, edges, axis=0)
    if way == "upstream-shared":
        shared = np.split(whole / len(sizes), edges, axis=0)
        found["kernel gradients"] = AnyOf((found["kernel gradients"], shared))
    if way == "x-whole":
        return found
    return found | {"x gradient": np.split(found["x gradient"], edges, axis=1)}


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
        "later-first": lambda stage: stage + 1,
        "one-too-few": lambda stage: max(stages - stage - 1, 1),
    }.get(way, lambda stage: stages - stage)
    orders = [_order_stage(s, stages, micro_batches, ahead(s)) for s in range(stages)]
    for stage, order in enumerate(orders if way == "newest-first" else ()):
        last = min(ahead(stage), micro_batches)
        order[-last:] = order[: -last - 1 : -1]
    return describe_schedule(orders, stages, micro_batches)


def expect_sharded(
    seed: int, sizes: Any, batches: Any, rate: float, way: str = "right"
) -> dict[str, Any]:
    """Return each device's piece after a step of sharded training, and the bytes that it sends."""
    pieces, inputs, targets = draw_sharded(seed, sizes, batches)
    weights, edges = np.concatenate(pieces), np.cumsum(sizes)[:-1]
    factor = 1 if way == "two-forgotten" else 2
    parts = [factor * x.T @ (x @ weights - y) for x, y in zip(inputs, targets)]
    own = [part / batch for part, batch in zip(parts, batches)]
    gradient = np.mean(own, axis=0) if way == "own-mean" else sum(parts) / sum(batches)
    gradient = sum(own) if way == "means-added" else gradient
    gradient *= sum(batches) if way in ("summed", "by-devices") else 1
    gradient /= len(sizes) if way == "by-devices" else 1
    rate = -rate if way == "uphill" else rate
    new = np.split(weights - rate * gradient, edges)
    if way == "own-gradient":
        both = [
            [np.split(weights - rate * part / count, edges)[k] for k, part in enumerate(parts)]
            for count in (sum(batches),)
        ]
        alone = [np.split(weights - rate * part, edges)[k] for k, part in enumerate(own)]
        return {"pieces": AnyOf((*both, alone)), "bytes": Anything()}
    sent = _count_sent(np.asarray(sizes), way)
    if way == "equal-pieces" and len(set(sizes)) > 1:
        return {"pieces": new, "bytes": AnyOf((sent, np.floor(sent)))}
    return {"pieces": new, "bytes": sent}


def _count_sent(sizes: np.ndarray, way: str) -> np.ndarray:
    """Return the bytes that each device sends to the next one, in an all-gather and back."""
    whole, devices = sizes.sum(), len(sizes)
    gathered = whole - (sizes if way == "own-piece-kept" else np.roll(sizes, -1))
    gathered = (devices - 1) * sizes if way == "own-piece-again" else gathered
    scattered = whole - (np.roll(sizes, -1) if way == "next-piece-kept" else sizes)
    gathered = 0 * gathered if way == "scatter-only" else gathered
    if way == "all-reduced":
        scattered = scattered + gathered
    if way == "gather-only":
        scattered = 0 * scattered
    if way == "equal-pieces":
        gathered = scattered = np.full(devices, whole * (devices - 1) / devices)
    return {"eight-bytes": 8, "in-numbers": 1}.get(way, 4) * (gathered + scattered)


COLUMNS = Judge(lab12.COLUMNS, expect_columns)
ROWS = Judge(lab12.ROWS, expect_rows)
SCHEDULE = Judge(lab12.SCHEDULE, expect_schedule)
SHARDED = Judge(lab12.SHARDED, expect_sharded)
