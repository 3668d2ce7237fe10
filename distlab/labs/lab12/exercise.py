"""Lab 12, pipelines and shards: split layers, schedules for a simulator, weights in shards."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from distlab.exercises.comparing import same
from distlab.exercises.exercise import Exercise, each
from distlab.exercises.refusing import read_array, require_parts
from distlab.exercises.schedule_trace import MAX_OPERATIONS, describe_schedule, tell_schedule
from distlab.labs import ANSWERS, COLLECTIVES

ABSENT = (*ANSWERS, "utils.schedules", *COLLECTIVES)
make_exercise = partial(Exercise, lab="lab12", tolerance=1e-6)

# ---- exercises 1 and 2: split layers


def draw_layer(seed: int, inputs: int, outputs: int) -> dict[str, np.ndarray]:
    """Return a layer's x [3, inputs], kernel, bias, and the gradient for its output."""
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=(3, inputs)),
        "kernel": rng.normal(size=(inputs, outputs)),
        "bias": rng.normal(size=outputs),
        "upstream": rng.normal(size=(3, outputs)),
    }


def _name_results(found: Any, function: str, x_in_parts: bool) -> dict[str, Any]:
    """Return output and gradients by name: arrays, and lists of arrays for those in parts."""
    wanted = ("output", "kernels' gradients", "biases' gradients", "x's gradients")
    output, kernels, bias, x = require_parts(found, function, *wanted)
    return {
        "output": read_array(output, f"{function}, as output,"),
        "kernel gradients": _read_parts(kernels, f"{function}, as kernels' gradients,"),
        "bias gradient": _read_parts(bias, f"{function}, as bias's gradient,"),
        "x gradient": (_read_parts if x_in_parts else read_array)(
            x, f"{function}, as x's gradient,"
        ),
    }


def _read_parts(parts: Any, what: str) -> Any:
    """Return a list or tuple as a list of arrays, anything else as one array."""
    if isinstance(parts, list | tuple):
        return [read_array(part, what) for part in parts]
    return read_array(parts, what)


def try_columns(column_layer: Callable[..., Any], seed: int, inputs: int, sizes: Any) -> Any:
    """Return what `column_layer` computes: output and three gradients."""
    layer = draw_layer(seed, inputs, sum(sizes))
    edges = np.cumsum(sizes)[:-1]
    kernels = np.split(layer["kernel"], edges, axis=1)
    biases = np.split(layer["bias"], edges)
    found = column_layer(layer["x"], kernels, biases, layer["upstream"])
    return _name_results(found, "column_layer", x_in_parts=False)


COLUMNS = make_exercise(
    name="columns",
    function="column_layer",
    examples=((1, 4, (5, 5)), (2, 3, (4, 1, 3))),
    mistakes={
        "not-summed": "x's gradient is only one part's: every part has used all of x, so "
        "their gradients are summed (an all-reduce)",
        "averaged": "x's gradient is a mean over the parts: it is their sum",
        "bias-forgotten": "each part adds its own piece of the bias",
        "bias-averaged": "the bias's gradient is a sum over the batch, not a mean",
        "bias-wrong-axis": "the bias's gradient is summed over the columns: sum it over the batch",
        "kernel-averaged": "each kernel's gradient is a sum over the batch, not a mean",
        "equal-parts": "the kernels may have different numbers of columns: don't cut equal parts",
        "not-in-parts": "one whole gradient for all kernels: return a list with each kernel's "
        "own, in its shape",
    },
    hint="look at one of the four results at a time: which columns does a device know, and who "
    "has used x?",
    by_hand=("utils.parallel",),
    run=each(try_columns),
    plain=True,
)


def try_rows(row_layer: Callable[..., Any], seed: int, sizes: Any, outputs: int) -> Any:
    """Return what `row_layer` computes: output and three gradients."""
    layer = draw_layer(seed, sum(sizes), outputs)
    edges = np.cumsum(sizes)[:-1]
    parts = np.split(layer["x"], edges, axis=1)
    kernels = np.split(layer["kernel"], edges, axis=0)
    found = row_layer(parts, kernels, layer["bias"], layer["upstream"])
    return _name_results(found, "row_layer", x_in_parts=True)


ROWS = make_exercise(
    name="rows",
    function="row_layer",
    examples=((3, (5, 5), 4), (4, (4, 1, 3), 2)),
    mistakes={
        "bias-everywhere": "every part added the whole bias: the sum has it once for each part",
        "first-part-only": "the output is the first part's alone: sum the parts (an all-reduce)",
        "averaged": "the parts' outputs are a sum, not a mean",
        "bias-shared": "the bias is added once, in full: it isn't divided among the parts",
        "bias-wrong-axis": "the bias's gradient is summed over the outputs: sum it over the batch",
        "upstream-shared": "the gradient for the output goes to every part undivided",
        "bias-gradients-summed": "the bias is added once: don't sum its gradient over the parts",
        "bias-forgotten": "the bias is missing: it is added once, to the sum of the parts",
        "x-whole": "x's gradient came in one piece: return a list with each part's, in its shape",
        "not-in-parts": "one whole gradient: return lists with a gradient for each kernel and "
        "for each part of x, in their shapes",
    },
    hint="look at one of the four results at a time: what does a device know of the output, and "
    "what of x?",
    by_hand=("utils.parallel",),
    run=each(try_rows),
    plain=True,
)


# ---- exercise 3: a schedule


def try_schedule(make_1f1b: Callable[..., Any], stages: int, micro_batches: int) -> Any:
    """Return the schedule that `make_1f1b` makes, generators read into lists."""
    return _read_out(make_1f1b(stages, micro_batches), MAX_OPERATIONS + 1)


def _read_out(found: Any, most: int) -> Any:
    if isinstance(found, list | tuple | Iterator):
        return [_read_out(item, most) for item in islice(found, most)]
    return found


def say_schedule(got: Any, right: Any) -> str:
    """Return how a schedule does and how 1F1B does: the first of the two numbers that differs."""
    if "fault" in got:
        return f"can't run: {got['fault']}"
    if not same(got["bubble"], right["bubble"], 1e-6):
        idle, due = (f"{100 * one['bubble']:.3g} %" for one in (got, right))
        return f"leaves the stages idle for {idle} of the time, should be {due}"
    kept, due = (one["most micro-batches kept by each stage"] for one in (got, right))
    k = next(k for k in range(len(due)) if kept[k] != due[k])
    return f"keeps {kept[k]:g} micro-batches on stage {k}, should be {due[k]:g}"


SCHEDULE = make_exercise(
    name="schedule",
    function="make_1f1b",
    seconds=20,
    evidence="result",
    examples=((4, 8), (3, 5), (5, 3)),
    mistakes={
        "all-forwards-first": "this is GPipe, in which every stage keeps every micro-batch",
        "one-at-a-time": "one micro-batch at a time: no stage works ahead, so the bubble is large",
        "one-too-many": "one forward too many before the first backward: stage s does P - s",
        "same-warm-up": "all stages work ahead equally far: later stages need fewer, P - s",
        "later-first": "a later stage does more forwards first than the one before, so they wait "
        "for each other. Turn it round: stage s does P - s",
        "newest-first": "the last backwards take the newest micro-batch first: go on in order",
        "one-too-few": "one forward too few before the first backward: stage s does P - s",
    },
    hint="write down what stage 0 of 2 does with 3 micro-batches, and compare with the example",
    run=each(try_schedule),
    shows_case=True,
    read=describe_schedule,
    contrast=say_schedule,
    tell=tell_schedule,
    by_hand=("utils.schedules", "utils.simulate"),
)


# ---- exercise 4: parameters in shards


def draw_sharded(
    seed: int, sizes: Any, batches: Any
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Return each device's piece of the weights, its inputs [examples, weights] and its targets."""
    rng = np.random.default_rng(seed)
    pieces = [rng.normal(size=size) for size in sizes]
    inputs = [rng.normal(size=(batch, sum(sizes))) for batch in batches]
    return pieces, inputs, [rng.normal(size=batch) for batch in batches]


def try_sharded(
    sharded_step: Callable[..., Any], seed: int, sizes: Any, batches: Any, rate: float
) -> dict[str, Any]:
    """Return the pieces after a step, and the bytes that `sharded_step` counts."""
    found = sharded_step(*draw_sharded(seed, sizes, batches), rate)
    wanted = ("a list with each device's new piece", "a list with the bytes that each device sends")
    pieces, sent = require_parts(found, "sharded_step", *wanted)
    return {
        "pieces": _read_parts(pieces, "sharded_step, as pieces,"),
        "bytes": read_array(sent, "sharded_step, as bytes,"),
    }


SHARDED = make_exercise(
    name="sharded",
    function="sharded_step",
    examples=(
        (5, (4, 3, 2), (6, 6, 6), 0.1),
        (6, (2, 5), (3, 8), 0.05),
        (7, (1, 2, 6, 3), (4, 2, 5, 3), 0.1),
    ),
    mistakes={
        "own-gradient": "each device took only its own examples' gradient for its piece: a "
        "reduce-scatter adds up the gradients of all devices, piece by piece",
        "own-mean": "devices have different numbers of examples: divide by all of them together",
        "means-added": "these are the devices' means, added up: divide once, by all examples",
        "by-devices": "you divided by the number of devices: divide by all examples",
        "next-piece-kept": "in the reduce-scatter a device keeps its *own* piece: it arrives last",
        "scatter-only": "only the reduce-scatter is counted: add the all-gather of the weights",
        "summed": "this is a sum over the examples: divide by the number of all of them",
        "two-forgotten": "the square's derivative is 2 (output - target)",
        "uphill": "the pieces went up the gradient: subtract rate x gradient",
        "all-reduced": "these are the bytes of an all-gather and an all-reduce: nobody needs the "
        "other pieces' gradients, so a reduce-scatter is enough",
        "gather-only": "only the all-gather of the weights is counted: add the reduce-scatter of "
        "the gradients, in which a device leaves out another piece",
        "equal-pieces": "the pieces differ in size: in a ring a device sends every piece but one, "
        "and which one differs between the two collectives",
        "own-piece-again": "in the all-gather a device sends its own piece once, and then passes "
        "on what it received",
        "own-piece-kept": "in the all-gather a device doesn't send the *next* device's piece (that "
        "one has it already); its own piece it does send",
        "eight-bytes": "the network carries float32: 4 bytes a number, not NumPy's 8",
        "in-numbers": "bytes, please: 4 for each number",
    },
    hint="which of the two is right: the pieces, or the bytes? Follow one piece round the ring",
    by_hand=ABSENT,
    run=each(try_sharded),
    plain=True,
)
