"""Lab 16, which way to cut: the references, and what each known mistake gives."""

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

import numpy as np

from distlab.exercises.comparing import AnyOf, Anything
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab16 import exercise as lab16
from distlab.labs.lab16.exercise import draw_blocks, draw_tokens, draw_zero

RULES = LabRules(cell_seconds=10, submission_seconds=30, data=())
NEAR = 1.1  # times the quickest layout's step

# ---- exercise 1


def _clip(vector: np.ndarray, limit: float, power: int = 1) -> np.ndarray:
    return vector * min(1.0, limit / np.linalg.norm(vector) ** power) if len(vector) else vector


def expect_zero(
    seed: int,
    ranks: int,
    parameters: int,
    rate: float,
    momentum: float,
    limit: float,
    way: str = "right",
) -> dict[str, Any]:
    weights, parts, gradients = draw_zero(seed, ranks, parameters)
    pieces = [np.array_split(gradient, ranks) for gradient in gradients]  # [rank][slice]
    mean = np.sum(gradients, axis=0) / (1 if way == "summed" else ranks)
    if way == "own-gradient":
        mean = np.concatenate([pieces[rank][rank] for rank in range(ranks)])
    squares = np.array([np.sum(piece**2) for piece in np.array_split(mean, ranks)])
    if way == "slice-norm":
        clipped = np.concatenate([_clip(piece, limit) for piece in np.array_split(mean, ranks)])
    elif way == "clipped-first":
        clipped = np.mean([_clip(gradient, limit) for gradient in gradients], axis=0)
    elif way == "always-scaled":
        clipped = mean * limit / np.linalg.norm(mean)
    elif way == "each-clipped":
        clipped = np.clip(mean, -limit, limit)
    elif way == "norms-added":
        clipped = mean * min(1.0, limit / np.sqrt(squares).sum())
    else:
        whole = way in ("velocity-clipped", "not-clipped")
        clipped = mean if whole else _clip(mean, limit, 1 + (way == "no-root"))
    clipped = clipped * (1 - momentum) if way == "damped" else clipped
    scale = rate if way == "rate-in-velocity" else 1.0
    old = np.concatenate(parts)
    velocity = (way != "no-momentum") * momentum * old + scale * clipped
    velocity = old + momentum * clipped if way == "gradient-slowed" else velocity
    velocity = _clip(velocity, limit) if way == "velocity-clipped" else velocity
    told = np.sqrt(squares) if way == "norms" else squares
    if way == "norms-added":
        told = AnyOf((squares, np.sqrt(squares)))
    if way == "squares-clipped":
        told = np.array([np.sum(piece**2) for piece in np.array_split(clipped, ranks)])
    moved = momentum * velocity + clipped if way == "nesterov" else velocity
    moved = {"uphill": -moved, "old-velocity": old}.get(way, moved)
    loose = ("slice-norm", "clipped-first", "velocity-clipped", "own-gradient")
    return {
        "weights": weights - rate / scale * moved,
        "velocities": np.array_split(velocity, ranks),
        "squares": Anything() if way in loose else told,
    }


# ---- exercise 2


def expect_merge(
    seed: int, blocks: int, tokens: int, size: float, way: str = "right"
) -> dict[str, Any]:
    outputs, lses = draw_blocks(seed, blocks, tokens, size)
    seen = np.isfinite(lses)
    if way != "nan-left":
        outputs = np.where(seen[..., None], outputs, 0.0)
    with np.errstate(all="ignore"):
        if way == "overflow":
            return _merge_naively(outputs, lses)
        top = np.full(tokens, lses.max()) if way == "one-top" else lses.max(axis=0)
        base = top if way == "nothing-seen" else np.where(np.isfinite(top), top, 0.0)
        weights = np.exp(lses - base)  # [block, token]
        total = weights.sum(axis=0)
        divided = total[:, None] if way != "not-divided" else 1.0
        output = (weights[..., None] * outputs).sum(axis=0) / divided
        lse = base + np.log(total)
        others = tuple(base + np.log(total) / np.log(b) for b in (2, 10))
    if way in ("mean", "added-up"):
        output = outputs.sum(axis=0)
    if way == "mean":  # of all blocks, or of those that it sees
        output = AnyOf((output / blocks, output / np.maximum(seen.sum(axis=0), 1)[:, None]))
    if way not in ("nothing-seen", "nan-left", "mean"):
        output = np.where(seen.any(axis=0)[:, None], output, 0.0)
    if way == "nan-left":  # the token that sees nothing may be cared for
        output = AnyOf((output, np.where(seen.any(axis=0)[:, None], output, 0.0)))
    if way == "one-top":
        return {"output": AnyOf((output, np.nan_to_num(output))), "lse": lse}
    if way == "other-base":
        return {"output": output, "lse": AnyOf(others)}
    if way == "top-only":
        lse = top
    if way == "top-left-out":
        lse = lse - base
    if way == "padding-as-zero":
        lse = np.where(seen.any(axis=0), lse, 0.0)
    if way in ("mean", "not-divided", "added-up"):
        return {"output": output, "lse": Anything()}
    if way == "nothing-seen":
        return {"output": output, "lse": AnyOf((lse, np.where(seen.any(axis=0), lse, top)))}
    return {"output": output, "lse": lse}


def _merge_naively(outputs: np.ndarray, lses: np.ndarray) -> dict[str, Any]:
    """Return the merge without a maximum. A token that sees nothing may be cared for, or not."""
    weights = np.exp(lses)
    total = weights.sum(axis=0)
    output = (weights[..., None] * outputs).sum(axis=0) / total[:, None]
    empty = ~np.isfinite(lses).any(axis=0)
    cared = np.where(empty[:, None], 0.0, output)
    lost = np.where(total[:, None] > 0, output, 0.0)
    return {"output": AnyOf((output, cared, lost)), "lse": Anything()}


# ---- exercise 3


def expect_dispatch(
    seed: int, counts: list[int], capacity: int, way: str = "right"
) -> dict[str, Any]:
    tokens, gates, experts, capacity = draw_tokens(seed, counts, capacity)
    places = [(r, k) for r, count in enumerate(counts) for k in range(count)]
    chosen = {place: _choose(gates[place[0]][place[1]], way) for place in places}
    rounds = 1 if way == "one-expert" else 2
    wanted = [(place, chosen[place][c]) for c in range(rounds) for place in places]
    if way == "token-by-token":
        wanted = [(place, e) for place in places for e in chosen[place]]
    if way == "best-gates-first":
        share = {
            (p, e): gates[p[0]][p[1]][e] / gates[p[0]][p[1]][chosen[p]].sum() for p, e in wanted
        }
        wanted.sort(key=lambda wish: (wish[1] != chosen[wish[0]][0], -share[wish]))
    taken, dropped = _serve(wanted, len(counts), capacity, way)
    outputs = [np.zeros_like(own) for own in tokens]
    for place in places:
        r, k = place
        kept = [e for e in chosen[place][:rounds] if (place, e) in taken]
        base = kept if way in ("redistributed", "one-expert") else chosen[place]
        base = range(len(experts)) if way == "all-gates" else base
        divisor = 1.0 if way == "as-they-are" else gates[r][k][list(base)].sum()
        odds = np.exp(gates[r][k]) / np.exp(gates[r][k][chosen[place]]).sum()
        for e in kept:
            weight = {"halves": 0.5, "softmax": odds[e]}.get(way, gates[r][k][e] / divisor)
            kernel = experts[e].T if way == "transposed" else experts[e]
            outputs[r][k] *= way != "last-choice-only"
            outputs[r][k] += weight * (tokens[r][k] @ kernel)
        for e in set(chosen[place]) - set(kept) if way == "passed-on" else ():
            outputs[r][k] += gates[r][k][e] / divisor * tokens[r][k]
    sent = np.zeros((len(counts), len(counts)))
    for (r, _), e in wanted if way == "all-sent" else taken:
        sent[r, e] += way != "own-not-sent" or r != e
    return {
        "outputs": outputs,
        "dropped": sorted([r, k, e] for (r, k), e in dropped),
        "sent": sent,
    }


def _choose(gate: np.ndarray, way: str) -> list[int]:
    """Return the two experts with the largest gates, of equal ones the lower number first."""
    sign = -1 if way == "ties-last" else 1
    size = 1 if way == "smallest-gates" else -1
    return sorted(range(len(gate)), key=lambda e: (size * gate[e], sign * e))[:2]


def _serve(wanted: list[Any], experts: int, capacity: int, way: str) -> tuple[Any, Any]:
    """Return who finds room and who doesn't, in order."""
    taken, dropped, asked = [], [], np.zeros((experts, experts), int)
    for (r, k), e in wanted:
        queue = asked[r, e] if way == "each-rank" else asked[:, e].sum()
        room = way == "no-limit" or queue < capacity + (way == "one-too-many")
        (taken if room else dropped).append(((r, k), e))
        asked[r, e] += 1
    return taken, dropped


# ---- exercise 4

Numbers = Mapping[str, float]


def list_layouts(
    model: Numbers, machine: Numbers, way: str = "right"
) -> Iterator[tuple[int, int, int]]:
    """Yield every (data, tensor, pipeline) that divides devices, node, layers and batch."""
    devices, node = int(machine["devices"]), int(machine["per_node"])
    most = devices if way == "across-nodes" else node
    for tensor in (t for t in range(1, most + 1) if max(node, most) % t == 0):
        uneven = way == "layers-uneven"
        for pipeline in (p for p in range(1, devices + 1) if uneven or model["layers"] % p == 0):
            data, rest = divmod(devices, tensor * pipeline)
            rest = 0 if way == "idle-devices" else rest
            if data and not rest and (way == "batch-uneven" or model["batch"] % data == 0):
                yield data, tensor, pipeline


def find_memory(model: Numbers, layout: tuple[int, int, int], way: str = "right") -> float:
    data, tensor, pipeline = layout
    micro = model["batch"] / data
    each = 4 + 12 / (1 if way == "state-whole" else data)
    layers = model["layers"] / pipeline / tensor
    kept = lab16.KEPT_BYTES.value * model["sequence"] * model["hidden"] * layers
    kept *= 1 if way == "in-flight" else min(pipeline, micro)
    kept *= way != "activations-forgotten"
    return model["parameters"] / (tensor * pipeline) * each + kept


def find_seconds(
    model: Numbers, machine: Numbers, layout: tuple[int, int, int], way: str = "right"
) -> float:
    data, tensor, pipeline = layout
    micro = model["batch"] / data
    tokens = model["sequence"] * model["batch"]
    work = 6 * model["parameters"] * tokens / (machine["devices"] * machine["flops"])
    sent = 2 * (tensor - 1) / tensor * 2 * model["sequence"] * model["hidden"]
    inside = micro * model["layers"] / pipeline * 4 * sent / machine["inside"]
    link = "inside" if machine["devices"] <= machine["per_node"] else "between"
    own = 2 * model["parameters"] / (tensor * pipeline)
    gradients = 2 * (data - 1) / data * own / machine[link]
    bubble = 0 if way == "bubble-forgotten" else (pipeline - 1) / micro
    inside *= way != "tensor-free"
    gradients *= way != "data-free"
    return (work + inside) * (1 + bubble) + gradients


def expect_layout(model: Numbers, machine: Numbers, way: str = "right") -> Any:
    """Return the layouts within 10 % of the quickest, that one first, or a mistake's choice."""
    fitting = [
        layout
        for layout in list_layouts(model, machine, way)
        if way == "memory-forgotten" or find_memory(model, layout, way) <= machine["memory"]
    ]
    seconds = {layout: find_seconds(model, machine, layout, way) for layout in fitting}
    ranked = sorted(seconds, key=seconds.get)
    if way == "least-memory":
        return list(min(fitting, key=lambda layout: find_memory(model, layout)))
    if way == "other-order":
        return AnyOf(tuple(map(list, permutations(ranked[0]))))
    if way != "right":
        return list(ranked[-1 if way == "slowest" else 0])
    near = [list(each) for each in ranked if seconds[each] <= NEAR * seconds[ranked[0]]]
    return AnyOf(tuple(near))


ZERO = Judge(lab16.ZERO, expect_zero)
MERGE = Judge(lab16.MERGE, expect_merge)
DISPATCH = Judge(lab16.DISPATCH, expect_dispatch)
LAYOUT = Judge(lab16.LAYOUT, expect_layout)
