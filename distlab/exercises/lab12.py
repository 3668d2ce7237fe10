"""Lab 12, pipelines and shards: split layers in NumPy, schedules for the judge's simulator."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distlab.exercises.checking import make_check, read_array, refuse, show
from utils.schedules import check_schedule, read_schedule
from utils.simulate.pipeline import StageTimes, simulate_pipeline

TIMES = StageTimes(forward=1.0, backward_input=1.0, backward_weight=1.0)


def draw_layer(seed: int, inputs: int, outputs: int, batch: int = 3) -> dict[str, np.ndarray]:
    """Return a layer's x [batch, inputs], kernel, bias, and the gradient for its output."""
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=(batch, inputs)),
        "kernel": rng.normal(size=(inputs, outputs)),
        "bias": rng.normal(size=outputs),
        "upstream": rng.normal(size=(batch, outputs)),
    }


# ---- split layers


def try_columns(column_layer: Callable[..., Any], seed: int, inputs: int, sizes: Any) -> Any:
    """Return what `column_layer` computes, its parts joined: output and three gradients."""
    layer = draw_layer(seed, inputs, sum(sizes))
    edges = np.cumsum(sizes)[:-1]
    kernels = np.split(layer["kernel"], edges, axis=1)
    biases = np.split(layer["bias"], edges)
    found = column_layer(layer["x"], kernels, biases, layer["upstream"])
    return _name_results(found, "column_layer", kernel_axis=1)


def try_rows(row_layer: Callable[..., Any], seed: int, sizes: Any, outputs: int) -> Any:
    """Return what `row_layer` computes, its parts joined: output and three gradients."""
    layer = draw_layer(seed, sum(sizes), outputs)
    edges = np.cumsum(sizes)[:-1]
    parts = np.split(layer["x"], edges, axis=1)
    kernels = np.split(layer["kernel"], edges, axis=0)
    found = row_layer(parts, kernels, layer["bias"], layer["upstream"])
    return _name_results(found, "row_layer", kernel_axis=0)


def _name_results(found: Any, function: str, kernel_axis: int) -> dict[str, Any]:
    if not isinstance(found, list | tuple) or len(found) != 4:
        raise refuse(
            f"{function} returns four things: output, kernels' gradients, biases' gradients and "
            f"x's gradients; it returned {len(found) if isinstance(found, tuple) else show(found)}"
        )
    output, kernels, bias, x = found
    return {
        "output": read_array(output, f"{function}, as output,"),
        "kernel gradients": _join(kernels, f"{function}, as kernels' gradients,", kernel_axis),
        "bias gradient": _join(bias, f"{function}, as bias's gradient,", 0),
        "x gradient": _join(x, f"{function}, as x's gradient,", 1 - kernel_axis),
    }


def _join(parts: Any, what: str, axis: int) -> np.ndarray:
    if not isinstance(parts, list | tuple):
        return read_array(parts, what)
    arrays = [read_array(part, what) for part in parts]
    try:
        return np.concatenate(arrays, axis)
    except ValueError:
        shapes = ", ".join(str(list(array.shape)) for array in arrays)
        raise refuse(f"{what} returned parts that do not fit together: shapes {shapes}") from None


def _whole(layer: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        "output": layer["x"] @ layer["kernel"] + layer["bias"],
        "kernel gradients": layer["x"].T @ layer["upstream"],
        "bias gradient": layer["upstream"].sum(axis=0),
        "x gradient": layer["upstream"] @ layer["kernel"].T,
    }


def expect_columns(seed: int, inputs: int, sizes: Any, way: str = "right") -> dict[str, Any]:
    """Return what `try_columns` should find, or finds for the mistake `way`."""
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
    """Return what `try_rows` should find, or finds for the mistake `way`."""
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


# ---- schedules


def describe_schedule(orders: Any, stages: int, micro_batches: int) -> dict[str, Any]:
    """Return how a schedule does in the simulator, with F, B and W of one unit each.

    `orders` has, for each stage, pairs of a kind, "F" or "BW", and a micro-batch. A
    schedule that cannot run is described by its fault.
    """
    if not isinstance(orders, list | tuple):
        return {"fault": "a schedule is a list with one list of operations for each stage"}
    else:
        orders = [[tuple(item) for item in order] if isinstance(order, list | tuple) else order
                  for order in orders]  # fmt: skip
    fault = check_schedule(orders, micro_batches=micro_batches, stages=stages)
    if fault:
        return {"fault": fault}
    run = simulate_pipeline(read_schedule(orders, micro_batches), TIMES)
    return {
        "bubble": run.bubble_fraction,
        "most micro-batches kept by each stage": list(run.peak_activations_per_stage),
    }


def order_stage(stage: int, stages: int, micro_batches: int, ahead: int) -> list[tuple[str, int]]:
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
    orders = [order_stage(s, stages, micro_batches, ahead(s)) for s in range(stages)]
    return describe_schedule(orders, stages, micro_batches)


def expect_count(stages: int, most_bubble: float, way: str = "right") -> int:
    """Return the fewest micro-batches with a bubble fraction of `most_bubble` at most."""
    for micro_batches in range(1, 100_000):
        idle = {"all-stages": stages, "one-bubble": 1}.get(way, stages - 1)
        whole = micro_batches + (0 if way == "of-ideal-time" else idle)
        if idle / whole <= most_bubble + 1e-12:
            return micro_batches + (1 if way == "one-more" else 0)
    raise ValueError("no number of micro-batches is enough")


COLUMNS = make_check(
    ("lab12", "columns", "column_layer"),
    ((1, 4, (5, 5)), (2, 3, (4, 3, 3))),
    expect_columns,
    {
        "not-summed": "x's gradient is only the first part's: every part has used all of x, so "
        "their gradients are summed (an all-reduce)",
        "averaged": "x's gradient is a mean over the parts: it is their sum",
        "bias-forgotten": "each part adds its own piece of the bias",
        "bias-averaged": "the bias's gradient is a sum over the batch, not a mean",
    },
    hint="y = [x W0 + b0, x W1 + b1, …]: outputs side by side, x's gradients summed",
    tolerance=1e-6,
)
ROWS = make_check(
    ("lab12", "rows", "row_layer"),
    ((3, (5, 5), 4), (4, (4, 3, 3), 2)),
    expect_rows,
    {
        "bias-everywhere": "every part added the whole bias: the sum has it once for each part",
        "first-part-only": "the output is the first part's alone: the parts are summed (an "
        "all-reduce)",
        "averaged": "the parts' outputs are a sum, not a mean",
        "upstream-shared": "the gradient for the output goes whole to every part: it is not "
        "divided",
    },
    hint="y = x0 W0 + x1 W1 + … + b: outputs summed, each part's gradients its own",
    tolerance=1e-6,
)
SCHEDULE = make_check(
    ("lab12", "schedule", "make_1f1b"),
    ((4, 8), (3, 5)),
    expect_schedule,
    {
        "all-forwards-first": "this is GPipe: all forwards, then all backwards, so that every "
        "stage keeps every micro-batch",
        "one-at-a-time": "one micro-batch after the other: no stage works ahead, and the bubble "
        "is large",
        "one-too-many": "one forward too many before the first backward: stage s does P - s",
        "same-warm-up": "all stages work ahead equally far: later stages need fewer, P - s",
    },
    hint="stage s: P - s forwards, then one backward, one forward in turn",
    tolerance=1e-6,
)
COUNT = make_check(
    ("lab12", "count", "fewest_micro_batches"),
    ((4, 0.1), (8, 0.2), (2, 0.5)),
    expect_count,
    {
        "of-ideal-time": "that is the bubble as a share of the work: the fraction is of the whole "
        "time, work and bubble",
        "all-stages": "P - 1 stages wait, not P",
        "one-bubble": "the bubble grows with the stages: P - 1 times, not once",
        "one-more": "one fewer is enough: the limit itself is allowed",
    },
    hint="bubble fraction = (P - 1) / (M + P - 1)",
    tolerance=1e-9,
)


def check_columns(column_layer: Callable[..., Any]) -> None:
    """Try `column_layer` on the worked examples; AssertionError names the mistake."""
    COLUMNS.verify([try_columns(column_layer, *example) for example in COLUMNS.examples])


def check_rows(row_layer: Callable[..., Any]) -> None:
    """Try `row_layer` in the same way."""
    ROWS.verify([try_rows(row_layer, *example) for example in ROWS.examples])


def check_schedule_of(make_1f1b: Callable[..., Any]) -> None:
    """Simulate `make_1f1b` of the worked examples in the same way."""
    examples = SCHEDULE.examples
    SCHEDULE.verify([describe_schedule(make_1f1b(*example), *example) for example in examples])


def check_count(answers: Sequence[Any]) -> None:
    """Compare `fewest_micro_batches` of each of `COUNT.examples`."""
    COUNT.verify(answers)
