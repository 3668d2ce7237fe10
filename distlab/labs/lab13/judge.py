"""Lab 13, precision and memory: float16 by NumPy, the rule of a moving scale, bytes of plans."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.comparing import AnyOf, Anything
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab13 import exercise as lab13
from distlab.labs.lab13.exercise import BATCH, DIM, FLOAT16_MAX, RATE_HALVINGS
from distlab.labs.lab13.failing_networks import LAYERS, draw_network
from distlab.labs.lab13.metered_blocks import BLOCKS, EXAMPLES, draw_blocks

RULES = LabRules(own_seconds=60, cell_seconds=60, submission_seconds=120, onednn=False)


def expect_overflow(seed: int, where: str, layer: int, trap: str, way: str = "right") -> Any:
    """Return where the first number is that isn't finite: networks are drawn to fail there."""
    found: tuple[str, int | None] = (where, None if where == "none" else layer)
    if way == "loss-only" and where == "backward":
        found = ("none", None)
    if way == "none-zero" and where == "none":
        found = ("none", 0)
    if way == "counted-from-one" and where != "none":
        found = (where, layer + 1)
    if way == "from-the-end" and where == "backward":
        found = (where, LAYERS - 1 - layer)
    if way not in ("right", "loss-only", "counted-from-one", "none-zero", "from-the-end"):
        told = find_overflow(*draw_network(seed, where, layer, trap), way=way)
        if told != found:  # what is left after it depends on how 0 times inf is computed
            return Anything() if way == "isinf" else list(told)
    return list(found)


def find_overflow(
    kernels: Sequence[np.ndarray],
    features: np.ndarray,
    labels: np.ndarray,
    scale: float,
    way: str = "right",
) -> tuple[str, int | None]:
    """Return where a network in float16 fails, or where the mistake `way` says that it does."""
    looks = {"isinf": np.isinf, "isnan": np.isnan}
    bad = looks.get(way, lambda numbers: ~np.isfinite(numbers))
    inputs, outputs = [features], []
    with np.errstate(all="ignore"):
        for k, kernel in enumerate(kernels):
            outputs.append(_multiply(inputs[-1], kernel))
            bent = way != "no-relu" and (k < LAYERS - 1 or way == "relu-last")
            inputs.append(np.maximum(outputs[-1], np.float16(0)) if bent else outputs[-1])
        seen = [*inputs[1:-1], outputs[-1]] if way == "after-relu" else outputs
        failed = [k for k, output in enumerate(seen) if bad(output).any()]
        if failed and way != "gradients-only":
            return "forward", failed[-1 if way == "last-output" else 0]
        gradients = _run_back(kernels, inputs, outputs, labels, scale, way)
    failed = [k for k, gradient in enumerate(gradients) if bad(gradient).any()]
    last = 0 if way == "first-layer" else -1
    return ("backward", failed[last]) if failed else ("none", None)


def _run_back(
    kernels: Sequence[np.ndarray],
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    labels: np.ndarray,
    scale: float,
    way: str,
) -> list[np.ndarray]:
    """Return the gradient of each kernel in float16, or what the mistake `way` looks at."""
    times = {"after-tape": 1.0, "float16-loss": np.float16(scale)}.get(way, scale)
    slopes = _find_slopes(inputs[-1].astype(np.float32), labels, way) / len(labels) * times
    slopes = slopes.astype(np.float16)
    if way == "relu-last":
        slopes = slopes * (outputs[-1] > 0)
    found: list[np.ndarray] = []
    for k in reversed(range(LAYERS)):
        gradient = slopes if way == "output-gradients" else _multiply(inputs[k].T, slopes)
        found.insert(0, gradient * np.float16(scale) if way == "after-tape" else gradient)
        slopes = _multiply(slopes, kernels[k].T)
        if way != "no-relu":
            slopes = slopes * (inputs[k] > 0)
    return found


def _find_slopes(logits: np.ndarray, labels: np.ndarray, way: str) -> np.ndarray:
    """Return d loss / d logits of each example, of a softmax of them for "softmax-twice"."""
    if way != "softmax-twice":
        return softmax.slopes(logits, labels)
    odds = softmax.probabilities(logits)
    slopes = softmax.slopes(odds, labels)
    return odds * (slopes - (slopes * odds).sum(axis=1, keepdims=True))


def _multiply(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one.astype(np.float32) @ other.astype(np.float32)).astype(np.float16)


SCALES = ("no-power-of-two", "rounded-up", "no-headroom", "headroom-multiplied", "65536")
SCALES += ("no-abs", "norm", "smallest", "exponent")  # mistakes of the scale


def expect_scale(
    seed: int, replicas: int, headroom: float, outlier: float, way: str = "right"
) -> dict[str, float]:
    """Return the scale, and the shares of gradients that float16 loses without it and with it."""
    gradients = lab13.draw_gradients(seed, replicas, outlier)
    values = np.concatenate([np.ravel(g) for g in gradients]).astype(float)
    largest = {
        "no-abs": values.max(),
        "norm": np.linalg.norm(values),
        "smallest": np.abs(values[values != 0]).min(),
    }.get(way, np.abs(values).max())
    limit = 65536.0 if way == "65536" else FLOAT16_MAX
    room = {"no-headroom": 1, "headroom-multiplied": 1 / headroom}.get(way, headroom)
    power = np.log2(limit / largest / room)
    power = np.ceil(power) if way == "rounded-up" else np.floor(power)
    scale = float(2.0**power)
    if way == "no-power-of-two":
        scale = FLOAT16_MAX / largest / headroom
    values = np.abs(values if way == "zeros-counted" else values[values != 0])
    floor = {"smallest-normal": 2.0**-14, "below-the-floor": 2.0**-24}.get(way)

    def lose(times: float) -> Any:
        if way in SCALES:
            return Anything()
        scaled = (values * times).astype(np.float16)
        lost = scaled == 0 if floor is None else values * times < floor
        share = float(np.mean(lost))
        if way == "counts":
            return int(lost.sum())
        if way == "zeros-counted":  # or in the total only
            return AnyOf((share, float(np.mean(lost & (values != 0)))))
        return share

    after = 0.0 if way == "none-lost" else lose(scale)
    scale = power if way == "exponent" else scale
    return {"scale": scale, "lost without": lose(1.0), "lost with": after}


# ---- exercise 3


def _move(scale: float, good: int, finite: bool, growth: int, way: str) -> tuple[float, int]:
    """Return the scale and the count of good steps after a step."""
    if not finite:
        kept = good if way == "count-kept" else 0
        return scale * (1.0 if way == "never-halved" else 0.5), kept
    good += 1
    if good < growth or way == "never-grows":
        return scale, good
    return scale * 2, good if way == "grows-on" else 0


PATCHED = ("zeros-instead", "others-applied")  # in place of a skipped step


def _add_up(parts: Sequence[np.ndarray], way: str) -> np.ndarray:
    """Return the sum of the replicas' gradients, as the mistake `way` patches them."""
    if way.startswith("zeros-instead"):
        parts = [np.where(np.isfinite(part), part, 0) for part in parts]
    if way.startswith("others-applied"):
        parts = [part if np.isfinite(part).all() else 0 * np.ones(part.shape) for part in parts]
    return np.asarray(sum(parts))


def _take_steps(
    seed: int, scale: float, growth: int, way: str
) -> tuple[np.ndarray, list[float], list[float]]:
    """Return the weights [6, 2], and the scales before and after each step."""
    features, targets, weights = (np.asarray(a, float) for a in lab13.draw_steps(seed, scale))
    before, after, good = [], [], 0
    rate = 2.0**-RATE_HALVINGS.value
    for start in range(0, len(features), BATCH):
        x, y = (np.split(a[start : start + BATCH], 2) for a in (features, targets))
        signs = [np.sign(a @ weights - b) for a, b in zip(x, y)]
        times = scale / (BATCH if way == "own-mean" else 2 * BATCH)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [(a.T @ (s * times)).astype(np.float16).astype(float) for a, s in zip(x, signs)]
            update = _add_up(parts, way)
        seen = parts[:1] if way.endswith("unseen") else parts  # by whom the scale is moved
        finite = bool(np.isfinite(seen).all())
        before.append(scale)
        if finite or way.startswith(PATCHED):
            weights = weights - rate * update / (1 if way == "not-unscaled" else scale)
        scale, good = _move(scale, good, finite, growth, way)
        after.append(scale)
    return weights, before, after


def expect_program(seed: int, scale: float, growth_steps: int, way: str = "right") -> Any:
    """Return what a whole loop leaves: its weights, their copies and the scales."""
    weights, before, after = _take_steps(seed, scale, growth_steps, way)
    if way == "nothing-trained":
        weights = np.asarray(lab13.draw_steps(seed, scale)[2])
    found: dict[str, Any] = {
        "all weights finite": True,
        "copies of the weights": 1 if way == "outside-scope" else 2,
        "copies agree": True,
        "weights": weights[:4],
        "tiny features' weights, in 2^-24": weights[4:] / DIM,
        "scales": before if way == "before-the-step" else after,
    }
    anything = dict.fromkeys(found, Anything())
    if way == "not-agreed":
        return anything | {"all weights finite": False}
    if way == "nothing-trained":
        return found | {"scales": Anything()}
    if way == "outside-scope":
        return anything | {"copies of the weights": 1}
    if way == "never-scaled":
        tiny = {"tiny features' weights, in 2^-24": np.zeros((2, 2))}
        return anything | tiny | {"all weights finite": True}
    if way.startswith(PATCHED):
        found["scales"] = Anything()
    return found


# ---- exercise 4


def _count_bytes(
    parameters: int, blocks: Sequence[Any], batch: int, pieces: int, chosen: Any, way: str
) -> float:
    """Return the bytes of a plan: parameters' own, and one micro-batch's activations."""
    fixed = {"state-forgotten": 8, "gradient-forgotten": 12}.get(way, 16) * parameters
    summed = way == "sum-always" or (pieces > 1 and way != "sum-forgotten")
    fixed += 4 * parameters if summed else 0
    kept = sum(b[0] for k, b in enumerate(blocks) if k not in chosen)
    inputs = 0 if way == "input-forgotten" else sum(blocks[k][1] for k in chosen)
    again = [blocks[k][0] for k in (range(len(blocks)) if way == "largest-of-all" else chosen)]
    held = kept + inputs + (0 if way == "block-comes-back" else max(again, default=0))
    return fixed + held * batch / pieces


def _list_plans(count: int, batch: int, way: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    for pieces in range(1, batch + 1):
        if (batch % pieces and way != "uneven") or (way == "never-accumulated" and pieces > 1):
            continue
        for size in range(count + 1):
            if way == "all-recomputed" and size not in (0, count):
                continue
            if way == "never-recomputed" and size:
                continue
            yield from ((pieces, chosen) for chosen in combinations(range(count), size))


def expect_plan(
    parameters: int,
    blocks: Sequence[Any],
    batch: int,
    budget: float,
    launch: float,
    way: str = "right",
) -> Any:
    """Return the fastest plan that fits, None if none does."""
    best: tuple[float, Any] = (np.inf, None)
    for pieces, chosen in _list_plans(len(blocks), batch, way):
        held = _count_bytes(parameters, blocks, batch, pieces, chosen, way)
        again = {"two-passes-more": 6, "one-pass-more": 5}.get(way, 4)
        passes = sum(b[2] * (again if k in chosen else 3) for k, b in enumerate(blocks))
        through = {"one-example": 1, "one-micro-batch": batch / pieces}.get(way, batch)
        seconds = through * passes + (0 if way == "launch-forgotten" else pieces * launch)
        worth = held if way == "most-room" else seconds
        if (held < budget if way == "strict" else held <= budget) and worth < best[0]:
            told = batch // pieces if way == "size-not-number" else pieces
            kept = [k for k in range(len(blocks)) if k not in chosen]
            listed = kept if way == "kept-listed" else list(chosen)
            best = worth, {"micro_batches": told, "recomputed": listed}
    return {} if way == "empty" and best[1] is None else best[1]


# ---- exercise 5


def _differentiate(
    kernels: Sequence[np.ndarray], shifts: np.ndarray, inputs: np.ndarray, targets: np.ndarray
) -> np.ndarray:
    """Return the gradients of the sum over examples, block by block, as one vector."""
    kept, x = [], inputs
    for first, second, shift in zip(kernels[::2], kernels[1::2], shifts):
        hidden = np.tanh(x @ first + shift)
        kept.append((x, hidden))
        x = x + hidden @ second
    slopes, found = 2 * (x - targets), []
    for k in reversed(range(BLOCKS)):
        x, hidden = kept[k]
        inner = (slopes @ kernels[2 * k + 1].T) * (1 - hidden**2)
        found = [x.T @ inner, hidden.T @ slopes, *found]
        slopes = slopes + inner @ kernels[2 * k].T
    return np.concatenate([np.ravel(array) for array in found])


def expect_gradients(
    seed: int, micro_batches: int, recomputed: Sequence[int], budget: int, way: str = "right"
) -> Any:
    """Return the whole batch's gradients, and what the blocks and the meter see."""
    kernels, shifts, inputs, targets = draw_blocks(seed)
    own = EXAMPLES // micro_batches
    divisor = {"only-summed": own, "sum-of-examples": 1}.get(way, EXAMPLES)
    if way == "last-only":
        inputs, targets = inputs[-own:], targets[-own:]
        divisor = own
    gradients = _differentiate(kernels, shifts, inputs, targets) / divisor
    either = AnyOf((gradients, gradients * own / EXAMPLES))
    twice = {"not-recomputed": [], "all-recomputed": range(BLOCKS)}.get(way, recomputed)
    loose = way in ("not-recomputed", "not-cut", "held-together")
    return {
        "gradients": either if way == "last-only" else gradients,
        "largest micro-batch": EXAMPLES if way == "not-cut" else own,
        "examples through each block": [EXAMPLES * (2 if k in twice else 1) for k in range(BLOCKS)],
        "KiB over the budget": Anything() if loose else 0,
    }


OVERFLOW = Judge(lab13.OVERFLOW, expect_overflow)
SCALE = Judge(lab13.SCALE, expect_scale)
PROGRAM = Judge(lab13.PROGRAM, expect_program)
PLAN = Judge(lab13.PLAN, expect_plan)
GRADIENTS = Judge(lab13.GRADIENTS, expect_gradients)
