"""Lab 16, which way to cut: ZeRO with clipping, a masked merge, two experts a token, a layout."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from distlab.class_seed import ClassNumber
from distlab.exercises.comparing import show
from distlab.exercises.exercise import Exercise, each
from distlab.exercises.refusing import read_array, refuse, require_list, require_parts
from distlab.labs import ANSWERS

ABSENT = ANSWERS
make_exercise = partial(Exercise, lab="lab16", tolerance=1e-6, plain=True)


def _read_several(found: Any, function: str, wanted: tuple[str, ...]) -> dict[str, Any]:
    """Return the things that `function` returned by name: arrays, or lists of arrays."""
    parts = require_parts(found, function, *wanted)
    return {name: _read(one, f"{function}, as {name},") for name, one in zip(wanted, parts)}


def _read(value: Any, what: str) -> Any:
    if isinstance(value, list | tuple) and any(np.ndim(one) for one in value):
        return [read_array(one, what) for one in value]
    return read_array(value, what)


# ---- exercise 1: ZeRO with momentum and clipping


def draw_zero(seed: int, ranks: int, parameters: int) -> tuple[Any, list[Any], list[Any]]:
    """Return weights [parameters], each rank's slice of the velocity, each rank's gradient."""
    rng = np.random.default_rng(seed)
    velocities = np.array_split(rng.normal(size=parameters), ranks)
    gradients = [rng.normal(size=parameters) + 1 for _ in range(ranks)]
    return rng.normal(size=parameters), velocities, gradients


def try_zero(
    zero_step: Callable[..., Any], seed: int, ranks: int, parameters: int, *settings: float
) -> dict[str, Any]:
    """Return the weights, velocities and squares that `zero_step` returns."""
    weights, velocities, gradients = draw_zero(seed, ranks, parameters)
    found = zero_step(weights, velocities, gradients, *settings)
    return _read_several(found, "zero_step", ("weights", "velocities", "squares"))


ZERO = make_exercise(
    name="zero",
    function="zero_step",
    examples=((1, 4, 10, 0.1, 0.9, 1.0), (2, 3, 7, 0.05, 0.5, 50.0), (3, 4, 3, 0.1, 0.8, 0.5)),
    mistakes={
        "slice-norm": "you clipped each slice by its own norm: the limit is for the norm of the "
        "full gradient, which takes one small all-reduce of the squares",
        "clipped-first": "you clipped each rank's gradient: take the mean first, then clip it",
        "squares-clipped": "these are the squares after clipping: the ranks need them before, "
        "to find the norm",
        "rate-in-velocity": "the velocity holds rate x gradient: velocity = momentum x velocity + "
        "gradient, and the rate comes with the weights",
        "summed": "this uses the sum of the ranks' mean gradients: divide by the ranks",
        "always-scaled": "a gradient below the limit was made longer: clipping only shortens",
        "velocity-clipped": "you clipped the velocity: clip the gradient before that",
        "own-gradient": "each rank used only its own gradient for its slice: the slice needs the "
        "mean over all ranks (a reduce-scatter)",
        "damped": "the gradient isn't multiplied by (1 - momentum) here",
        "not-clipped": "the gradient is too long and wasn't clipped: multiply it by limit / norm",
        "each-clipped": "each number was clipped: the limit is for the norm of the full gradient",
        "no-momentum": "the old velocity is missing: velocity = momentum x velocity + gradient",
        "gradient-slowed": "momentum multiplies the old velocity, not the gradient",
        "old-velocity": "the weights moved by the old velocity: take the new one",
        "nesterov": "this is Nesterov's step: here the new velocity alone moves the weights",
        "uphill": "the weights went up the gradient: subtract rate x velocity",
        "no-root": "the norm is the square root of the sum of squares: the root is missing",
        "norms-added": "the slices' norms don't add up: add their squares, then take the root",
        "norms": "ranks add up squares, not norms: the root comes after the sum",
    },
    hint="compare weights, velocities and squares one at a time, on an example that isn't clipped",
    run=each(try_zero),
)


# ---- exercise 2: the merge of ring attention


def draw_blocks(seed: int, blocks: int, tokens: int, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs [block, token, 3] and log-sum-exps [block, token] of masked attention.

    As under a causal mask, a token sees the first blocks only: -inf and nan are where it sees
    nothing. The first token is padding, and sees no block.
    """
    rng = np.random.default_rng(seed)
    outputs, lses = rng.normal(size=(blocks, tokens, 3)), size * rng.normal(size=(blocks, tokens))
    seen = np.sort(rng.integers(1, blocks + 1, size=tokens))
    seen[0] = 0
    empty = np.arange(blocks)[:, None] >= seen  # [block, token]
    outputs[empty], lses[empty] = np.nan, -np.inf
    order = rng.permutation(blocks)  # as they come round the ring
    return outputs[order], lses[order]


def try_merge(merge: Callable[..., Any], *case: Any) -> dict[str, Any]:
    """Return the output and the log-sum-exp that `merge` returns."""
    with np.errstate(all="ignore"):
        found = merge(*draw_blocks(*case))
    return _read_several(found, "merge", ("output", "lse"))


MERGE = make_exercise(
    name="merge",
    function="merge",
    examples=((4, 2, 3, 1.0), (5, 4, 6, 1.0), (6, 3, 5, 1000.0)),
    mistakes={
        "mean": "this is the plain mean of the blocks: weight each block by e to its lse",
        "overflow": "e to a lse of 1,000 is infinite, and of -1,000 zero: subtract the token's "
        "largest lse first",
        "one-top": "subtract each token's own largest lse: with one for all tokens, a token far "
        "below it has weights of zero",
        "nan-left": "a block that a token doesn't see has weight 0, but 0 x nan is nan: put "
        "zeros in its place first (np.where)",
        "nothing-seen": "a token that sees no block has a largest lse of -inf, and -inf minus "
        "-inf is nan: its output is zeros and its lse -inf",
        "other-base": "the lse is a natural logarithm (np.log): this one has another base",
        "top-left-out": "the largest lse was subtracted: add it to the lse at the end",
        "padding-as-zero": "nothing seen is a sum of no weights: its logarithm is -inf, not 0",
        "added-up": "the blocks' outputs are divided already: take their weighted mean, not a sum",
        "top-only": "to the largest lse comes the logarithm of the sum of the weights",
        "not-divided": "the weighted sum isn't divided by the sum of the weights",
    },
    hint="look at one token: which blocks does it see, and what are their weights?",
    run=each(try_merge),
)


# ---- exercise 3: two experts for each token


def draw_tokens(
    seed: int, counts: list[int], capacity: int
) -> tuple[list[Any], list[Any], list[Any], int]:
    """Return tokens and gates of each rank, the experts' kernels, and the capacity."""
    rng = np.random.default_rng(seed)
    ranks = len(counts)
    tokens = [rng.normal(size=(count, 3)) for count in counts]
    gates = [rng.integers(1, 6, size=(count, ranks)) / 10 for count in counts]  # with ties
    for gate in gates:
        gate[:, 0] += 0.1  # expert 0 is the most popular
    return tokens, gates, [rng.normal(size=(3, 3)) for _ in range(ranks)], capacity


def try_dispatch(dispatch: Callable[..., Any], *case: Any) -> dict[str, Any]:
    """Return outputs, what was dropped in order, and the rows sent, as `dispatch` returns them."""
    found = dispatch(*draw_tokens(*case))
    outputs, dropped, sent = require_parts(found, "dispatch", "outputs", "dropped", "sent")
    dropped = require_list(dropped, "dispatch, as dropped,", "a list of (rank, token, expert)")
    outputs = require_list(outputs, "dispatch, as outputs,", "a list of arrays")
    return {
        "outputs": [read_array(one, "dispatch, as outputs,") for one in outputs],
        "dropped": sorted(
            read_array(row, "dispatch, as dropped,").ravel().tolist() for row in dropped
        ),
        "sent": read_array(sent, "dispatch, as sent,"),
    }


DISPATCH = make_exercise(
    name="dispatch",
    function="dispatch",
    examples=((7, [2, 3], 3), (8, [4, 1, 4], 2), (9, [3, 5, 2, 4], 5)),
    mistakes={
        "one-expert": "each token went to one expert: it goes to the two with the largest gates",
        "ties-last": "two gates are equal: the expert with the lower number comes first",
        "no-limit": "an expert took more rows than its capacity",
        "token-by-token": "you served both choices of a token together: first all first choices "
        "take their places, then the second ones",
        "each-rank": "the capacity is an expert's limit for the rows of all ranks together",
        "redistributed": "you divided by the gates of the experts that had room: divide by both "
        "gates, even if one expert is full",
        "as-they-are": "the two gates are divided by their sum",
        "halves": "both experts got the same weight: weight them by their gates",
        "all-gates": "you divided by the sum of all gates of the token: divide by its two largest",
        "smallest-gates": "these are the experts with the smallest gates: take the two largest",
        "one-too-many": "an expert took one row more than its capacity: with `capacity` it's full",
        "own-not-sent": "count the rows that stay on their rank, too: expert e is on rank e",
        "passed-on": "a dropped row adds nothing: not the token itself, either",
        "softmax": "the gates are weights already: divide by their sum, without a softmax",
        "best-gates-first": "an expert serves by rank and token, not the largest gates first",
        "transposed": "the expert turns a row x into x @ kernel, not kernel @ x",
        "last-choice-only": "the second expert's output took the place of the first's: add it",
        "all-sent": "a row that finds no room isn't sent",
    },
    hint="follow one token: its two experts, their gates, its place in each queue",
    run=each(try_dispatch),
)


# ---- exercise 4: a layout


def try_layout(
    choose_layout: Callable[..., Any], model: Mapping[str, Any], machine: Mapping[str, Any]
) -> list[int]:
    """Return the three numbers that `choose_layout` returns."""
    found = choose_layout(dict(model), dict(machine))
    numbers = read_array(found, "choose_layout", "three whole numbers")
    if numbers.shape != (3,) or not np.isfinite(numbers).all():
        raise refuse(f"choose_layout must return data, tensor and pipeline, got {show(found)}")
    return [int(number) for number in numbers]


def say_layout(got: Any, right: Any) -> str:
    """Return the chosen layout and the quickest one, in words."""
    best = right.answers[0] if hasattr(right, "answers") else right
    both = [f"data {d:g} x tensor {t:g} x pipeline {p:g}" for d, t, p in (got, best)]
    return f"chose {both[0]}; {both[1]} fits and is the quickest"


def _describe(*numbers: float) -> tuple[dict[str, float], dict[str, float]]:
    names = ("parameters", "layers", "hidden", "sequence", "batch")
    machine = ("devices", "per_node", "memory", "flops", "inside", "between")
    return dict(zip(names, numbers)), dict(zip(machine, numbers[len(names) :]))


KEPT_BYTES = ClassNumber(  # of a token and hidden number in each layer
    "kept bytes", (32, 24, 40, 48), ("+ {} · s · h · L", "+ {} * width * L")
)
LAYOUT = make_exercise(
    number=KEPT_BYTES,
    name="layout",
    function="choose_layout",
    examples=(
        _describe(3e9, 32, 2560, 8192, 256, 256, 4, 24e9, 1.5e14, 2e10, 5e10),
        _describe(20e9, 44, 6144, 4096, 512, 32, 8, 24e9, 1.5e14, 2e10, 2e9),
        _describe(3e9, 32, 2560, 8192, 64, 16, 8, 24e9, 1.5e14, 2e10, 2e9),
        _describe(20e9, 44, 6144, 8192, 256, 256, 8, 40e9, 4e14, 2e10, 5e10),
        _describe(13e9, 32, 2560, 4096, 16, 64, 8, 80e9, 1e14, 3e11, 1e10),
        _describe(3e9, 24, 6144, 2048, 8, 64, 8, 40e9, 1e14, 2e10, 5e10),
        _describe(7e9, 24, 6144, 8192, 8, 8, 8, 80e9, 4e14, 3e11, 5e10),
    ),
    mistakes={
        "idle-devices": "every device has to be used: data x tensor x pipeline = devices",
        "memory-forgotten": "this is the quickest layout of all, but it doesn't fit into memory",
        "activations-forgotten": "with the activations it doesn't fit: state alone is only a part",
        "in-flight": "the first stage of a pipeline keeps the activations of several "
        "micro-batches: the smaller of pipeline and m",
        "state-whole": "the optimizer's 12 bytes are divided by data too, so less cutting fits",
        "bubble-forgotten": "while a pipeline fills and empties, stages wait: (pipeline - 1) / m",
        "tensor-free": "tensor parallelism's four all-reduces a layer take time as well",
        "data-free": "the all-reduce of the gradients takes time, above all between nodes",
        "batch-uneven": "data has to divide the batch: all copies get equally many sequences",
        "across-nodes": "tensor has to divide per_node: its all-reduces stay within a node",
        "slowest": "this is the slowest layout that fits: take the quickest",
        "layers-uneven": "pipeline has to divide the layers: all stages get equally many",
        "other-order": "are these three numbers in this order: data, tensor, pipeline?",
        "least-memory": "this is the layout with the least memory: take the quickest that fits",
    },
    hint="list every layout, leave out what doesn't fit, and time the rest by the three formulas",
    run=each(try_layout),
    contrast=say_layout,
    by_hand=("utils.simulate",),
)
