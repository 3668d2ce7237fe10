"""Lab 17, layouts on a mesh: what a layout map means, a cut that fits, and all-gathers placed."""

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from distlab.exercises.comparing import show
from distlab.exercises.exercise import Exercise, each
from distlab.exercises.refusing import refuse, require_list
from distlab.labs import ANSWERS

if TYPE_CHECKING:
    from distlab.labs.lab17.compiled_step import CompiledStep

ABSENT = (*ANSWERS, "distlab.labs.lab17.compiled_step")
Layouts, Sizes = Mapping[str, tuple[Any, ...]], Mapping[str, int]
Shapes = dict[str, tuple[int, ...]]
ATTENTION = tuple(f"attention/{name}/kernel" for name in ("query", "key", "value"))
OUTPUT, VOCABULARY = "attention/attention_output/kernel", ("embedding/embeddings", "logits/kernel")
SIZES = dict(hidden=32, heads=4, head=8, inner=64, vocabulary=64, texts=16, tokens=8)
SLACK = 1.02  # what a limit allows beyond what is needed
BYTES = 4  # of a float32


def list_shapes(sizes: Sizes) -> Shapes:
    """Return {path: shape} of the variables of the Transformer that this lab lays out."""
    hidden, inner, words = sizes["hidden"], sizes["inner"], sizes["vocabulary"]
    heads, head = sizes["heads"], sizes["head"]
    norms = {n: {f"norm{n}/gamma": (hidden,), f"norm{n}/beta": (hidden,)} for n in (1, 2)}
    return {
        "embedding/embeddings": (words, hidden),
        **norms[1],
        **{path: (hidden, heads, head) for path in ATTENTION},
        OUTPUT: (heads, head, hidden),
        **norms[2],
        "up/kernel": (hidden, inner),
        "up/bias": (inner,),
        "down/kernel": (inner, hidden),
        "down/bias": (hidden,),
        "logits/kernel": (hidden, words),
    }


def try_layouts(layouts: Layouts, sizes: Sizes, mesh: Mapping[str, int]) -> None:
    """Compile a step of the Transformer under `layouts`, and print what a device holds and sends.

    `mesh` is {"batch": 2, "model": 4}, and `sizes` is `SIZES` or another dictionary like it.
    """
    step = _compile(sizes, mesh, _read_layouts(layouts, "try_layouts"))
    print(step.error or f"{step.held_bytes:,} bytes of weights and momentum on a device")
    for name, sent, devices in step.collectives:
        print(f"{name:<18}{sent:>9,} bytes sent by each of {devices} devices")
    print("keys that no variable uses:", list(step.stray))


def _compile(sizes: Sizes, mesh: Mapping[str, int], layouts: Layouts) -> "CompiledStep":
    """Return the compiled step; the module that compiles isn't there for answers."""
    from distlab.labs.lab17.compiled_step import compile_step

    return compile_step(sizes, mesh, layouts)


def _read_layouts(found: Any, function: str) -> dict[str, tuple[Any, ...]]:
    """Return the layouts that `function` returned; AssertionError if they aren't plain data."""
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise refuse(f"{function} must return a dictionary {{key: axes}}, got {show(found)}")
    for key, axes in found.items():
        names = [axis for axis in axes if axis is not None] if isinstance(axes, tuple | list) else 0
        if names == 0 or not set(names) <= {"batch", "model"} or len(names) > len(set(names)):
            raise refuse(
                f"{function}: the layout of {key!r} must be a tuple with one entry per axis of the "
                f'variable, "batch" or "model" (each at most once) or None, got {show(axes)}.'
            )
    return {key: tuple(axes) for key, axes in found.items()}


# ---- exercise 1: what a layout map means


def draw_layouts(seed: int, batch: int, model: int) -> tuple[dict[str, Any], Shapes]:
    """Return layouts, a few of them unused, and the shapes of the variables."""
    rng = np.random.default_rng(seed)
    hidden, inner, words = (8 * int(rng.integers(*few)) for few in ((3, 7), (9, 14), (15, 20)))
    sizes = {"hidden": hidden, "heads": 8, "head": 8, "inner": inner, "vocabulary": words}
    first, second = rng.permutation(["batch", "model"]).tolist()
    layouts = {
        ".*(query|key|value)/kernel": (None, first, None),
        OUTPUT: (second, None, None),
        "attention/.*_output/.*": (None, None, first),  # the path in full goes first
        "up/kernel": (first, second),
        f"up/{'bias'[: rng.integers(1, 4)]}": (second,),  # begins as a path does
        "kernel"[rng.integers(4) :]: (second, first),  # is at the end of paths
        "embedding/.*": (None, second),
        ".*norm./gamma": (first,),
        f"norm./{rng.choice(['bias', 'scale'])}": (first,),  # a layer norm has gamma and beta
        "logits/.*": (None, first),
        "down/bias": (None,),
    }
    order = rng.permutation(list(layouts)).tolist()
    return {key: layouts[key] for key in order}, list_shapes(sizes)


def try_read(read_layouts: Callable[..., Any], *case: int) -> dict[str, Any]:
    """Return the shards' shapes and the stray keys that `read_layouts` returns."""
    _, batch, model = case
    found = read_layouts(*draw_layouts(*case), {"batch": batch, "model": model})
    if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[0], dict):
        raise refuse("read_layouts must return two things: {path: shape of a part}, and a list")
    parts = {
        path: require_list(shape, f"read_layouts, for {path},", "a tuple of sizes")
        for path, shape in found[0].items()
    }
    keys = require_list(found[1], "read_layouts, as unused keys,", "a list")
    return {"parts": parts, "keys": sorted(map(str, keys))}


READ = Exercise(
    lab="lab17",
    name="read",
    function="read_layouts",
    examples=((1, 2, 4), (2, 4, 2)),
    mistakes={
        "search": "a key has to match the path in full (re.fullmatch): re.search finds it anywhere",
        "prefix": "a key has to match the path up to its end: re.match stops where the key does",
        "names-only": "keys are patterns: a key that isn't a path may match several",
        "pattern-wins": "a key that is the path itself goes before any pattern that matches it",
        "match-is-use": "a pattern is of use only if a variable takes its layout: where the path "
        "itself is a key, the pattern gets nothing",
        "whole-mesh": "divide by the size of the axis that a layout names, not by all devices",
        "backwards": "a layout's entries are for the variable's axes in their order",
        "used-ones": "these are the keys that are used: return the others",
        "whole-shapes": "these are the shapes of whole variables: divide each axis that is cut",
        "counted": "parts are smaller than the variable: divide by the size of the mesh's axis",
        "left-out": "a variable without a key is there too: each device has all of it",
    },
    hint="take one variable: which key does Keras use for it, and which axis of the mesh does each "
    "entry name?",
    run=each(try_read),
    plain=True,
)


# ---- exercise 2: a cut that fits


def draw_cut(
    seed: int, batch: int, model: int, heads: int, words: int, tight: bool
) -> tuple[Sizes, int, int]:
    """Return the sizes of a model, and how many bytes a device may hold and send.

    `tight`: the block's cut isn't enough, so the vocabulary's two matrices are cut as well.
    """
    rng = np.random.default_rng(seed)
    sizes = {
        "hidden": 16 * int(rng.integers(2, 5)),
        "heads": heads,
        "head": 8,
        "vocabulary": words,
        "texts": 16,
        "tokens": 8,
    }
    sizes["inner"] = sizes["hidden"] * int(rng.integers(2, 4))
    whole = sum(map(prod, list_shapes(sizes).values()))
    kernels = 2 * sizes["hidden"] * sizes["inner"] + sizes["inner"]
    attention = 4 * sizes["hidden"] * heads * 8 if heads % model == 0 else 0
    vocabulary = 2 * words * sizes["hidden"] if tight else 0
    own = whole - (kernels + attention + vocabulary) * (model - 1) / model
    activations = 16 // batch * 8 * sizes["hidden"]  # of the texts of one device
    reduced = activations * (2 + 4 * bool(attention) + 2 * tight)
    sent = BYTES * 2 * (reduced * (model - 1) / model + own * (batch - 1) / batch)
    return sizes, int(SLACK * 2 * BYTES * own), int(SLACK * sent)


def try_cut(cut_model: Callable[..., Any], *case: Any) -> dict[str, Any]:
    """Return the layouts that `cut_model` returns."""
    _, batch, model, *_ = case
    sizes, memory, _ = draw_cut(*case)
    found = cut_model(list_shapes(sizes), {"batch": batch, "model": model}, memory)
    return _read_layouts(found, "cut_model")


def read_cut(layouts: Any, seed: int, batch: int, model: int, *case: Any) -> dict[str, Any]:
    """Return the fault in layouts, once compiled, and the findings."""
    sizes, memory, traffic = draw_cut(seed, batch, model, *case)
    step = _compile(sizes, {"batch": batch, "model": model}, layouts)
    flaw = _find_flaw(step, memory) or (
        _explain_traffic(layouts, step, tight=case[-1]) if step.sent_bytes > traffic else ""
    )
    said = step.error or (
        f"a device holds {step.held_bytes:,} bytes of weights and momentum ({memory:,} fit) and "
        f"sends {step.sent_bytes:,} bytes in {len(step.collectives)} collectives ({traffic:,} are "
        "allowed)"
    )
    return {"flaw": flaw or "none", "said": said}


def _contrast(got: Any, right: Any) -> str:
    """Return what was found; the flaw that it means is what the mistake's words are about."""
    return got["said"]


def _find_flaw(step: "CompiledStep", memory: int) -> str:
    """Return what is wrong with any layouts, whatever the exercise; "" if nothing is."""
    if step.error:
        return "not-divisible" if "divi" in step.error else "refused"
    if step.stray:
        return "stray"
    if _list_cut(step, "norm"):
        return "norm"
    return "too-large" if step.held_bytes > memory else ""


def _list_cut(step: "CompiledStep", word: str) -> list[str]:
    """Return the variables with `word` in their path that aren't whole on each device."""
    return [path for path in step.cut if word in path]


def _explain_traffic(layouts: Layouts, step: "CompiledStep", tight: bool) -> str:
    """Return the likely reason why a step sends more than is allowed."""
    cut = step.cut
    if any("batch" in axes for axes in layouts.values()):
        return "over-batch"
    if not tight and set(cut) & set(VOCABULARY):
        return "vocabulary"
    layers = {path.rpartition("/")[0] for path in step.shards}
    if any(re.fullmatch(key, f"{layer}/output") for key in layouts for layer in layers):
        return "outputs"
    reasons = {
        "embedding": (VOCABULARY[0], 1),
        "logits": (VOCABULARY[1], 0),
        "rows-first": ("up/kernel", 0),
        "columns-again": ("down/kernel", 1),
        "down-bias": ("down/bias", 0),
    }
    for name, (path, axis) in reasons.items():
        if axis in cut.get(path, ()):
            return name
    heads = {path: 1 for path in ATTENTION} | {OUTPUT: 0}
    return "heads" if any(cut.get(path, [k]) != [k] for path, k in heads.items()) else "other"


CUT = Exercise(
    lab="lab17",
    name="cut",
    function="cut_model",
    evidence="result",
    examples=((1, 2, 4, 4, 64, False), (2, 2, 4, 6, 96, True)),
    mistakes={
        "not-divisible": "an axis is cut that doesn't divide evenly by the mesh's axis: leave that "
        "variable whole, and what belongs to it",
        "stray": "a key matches no variable, so it cuts nothing, silently: a key has to match the "
        "path in full",
        "norm": "a layer norm is cut for nothing: it has two vectors, so that saves a few bytes, "
        "and the compiler moves activations to and fro to use it",
        "too-large": "a device holds more than fits: cut every kernel of the block that divides, "
        "and the vocabulary's two matrices if that isn't enough",
        "over-batch": "weights over the batch's axis have to be gathered in each step: cut them "
        "over the axis model",
        "vocabulary": "the vocabulary's matrices are cut though everything fits without that, and "
        "each costs another all-reduce of activations",
        "embedding": "the embedding is cut by columns: each device then has a piece of every "
        "word's vector, and the next layer norm needs all of it. Rows are words",
        "logits": "the logits' kernel is cut by rows, so the hidden values have to be cut to "
        "match it: cut its columns",
        "outputs": "a key such as logits/.* matches logits/output too, and Keras then gives that "
        "layer's output the layout: name the variable",
        "rows-first": "the first kernel of the MLP is cut by rows, so its sums are partial before "
        "the ReLU: columns first, then rows",
        "columns-again": "the second kernel of the MLP is cut by columns: a device has only its "
        "share of the inner values then, and needs the rows that belong to them",
        "down-bias": "the bias after the MLP's sum is added once, to all hidden values: leave it "
        "whole",
        "heads": "attention is cut through its heads or its hidden values, so scores or outputs "
        "are partial sums: give each device whole heads",
    },
    hint="run lab17.try_layouts on it. The MLP needs one sum each way, attention one forward and "
    "three backward (query, key and value): which collective isn't one of those, nor the "
    "gradients'?",
    run=each(try_cut),
    read=read_cut,
    contrast=_contrast,
    explain=lambda case, got, right: CUT.mistakes.get(got["flaw"], ""),
)


# ---- exercise 3: all-gathers, placed


def draw_gather(seed: int, devices: int, share: float) -> tuple[Sizes, int]:
    """Return the sizes of a model, and how many bytes of weights and momentum a device may hold.

    `share` is how much of what the matrices could save has to be saved.
    """
    rng = np.random.default_rng(seed)
    sizes = {
        "hidden": 8 * int(rng.integers(3, 9)),
        "heads": int(rng.integers(3, 10)),
        "head": 8,
        "inner": 4 * int(rng.integers(16, 48)),
        "vocabulary": 4 * int(rng.integers(20, 60)),
        "texts": 8 * devices,
        "tokens": 8,
    }
    shapes = list_shapes(sizes)
    whole = sum(map(prod, shapes.values()))
    most = sum(prod(shape) for path, shape in shapes.items() if can_cut(path, shape, devices))
    held = whole - share * most * (devices - 1) / devices
    return sizes, int(2 * BYTES * held)


def can_cut(path: str, shape: tuple[int, ...], devices: int) -> bool:
    """Return whether a matrix may be cut: an embedding by rows only, so that no text travels."""
    axes = shape[:1] if path == VOCABULARY[0] else shape
    return len(shape) > 1 and any(n % devices == 0 for n in axes)


def try_gather(place_gathers: Callable[..., Any], *case: Any) -> dict[str, Any]:
    """Return the layouts and the costs that `place_gathers` returns."""
    _, devices, _ = case
    sizes, memory = draw_gather(*case)
    found = place_gathers(list_shapes(sizes), devices, memory)
    if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[1], dict):
        raise refuse("place_gathers must return two things: layouts, and {path: bytes sent}")
    costs = {str(path): float(sent) for path, sent in found[1].items()}
    return {"layouts": _read_layouts(found[0], "place_gathers"), "costs": costs}


def read_gather(found: Any, seed: int, devices: int, share: float) -> dict[str, Any]:
    """Return the fault, the compiled program's gathers, and the findings."""
    sizes, memory = draw_gather(seed, devices, share)
    step = _compile(sizes, {"batch": devices}, found["layouts"])
    gathered = [sent for name, sent, _ in step.collectives if name == "all-gather"]
    flaw = _find_flaw(step, memory)
    if not flaw and any(path.endswith("bias") for path in step.cut):
        flaw = "norm"
    if not flaw and 1 in step.cut.get(VOCABULARY[0], ()):
        flaw = "embedding"
    flaw = flaw or _explain_costs(found["costs"], step, list_shapes(sizes), devices, gathered)
    told = sum(found["costs"].values())
    said = step.error or (
        f"a device holds {step.held_bytes:,} bytes ({memory:,} fit), and its {len(gathered)} "
        f"all-gathers send {sum(gathered):,} bytes (your costs: {told:,.0f})"
    )
    return {"flaw": flaw or "none", "gathered": sum(gathered), "said": said}


def _explain_costs(
    costs: Mapping[str, float], step: "CompiledStep", shapes: Shapes, devices: int, gathered: Any
) -> str:
    """Return what is wrong with the costs of all-gathers, "" if they are what the program sends."""
    if set(costs) != set(step.cut):
        return "others"
    whole, others = {path: BYTES * prod(shapes[path]) for path in costs}, devices - 1
    factors = {"": others, "payload": devices, "own-part": 1, "all-reduce": 2 * others}
    for name, factor in factors.items():
        if all(abs(costs[path] - factor * whole[path] / devices) <= 1 for path in costs):
            return name
    same = np.allclose(sorted(costs.values()), sorted(gathered), atol=1)
    return "swapped" if same else "cost"


GATHER = Exercise(
    lab="lab17",
    name="gather",
    function="place_gathers",
    evidence="result",
    examples=((2, 8, 0.5), (3, 4, 0.3)),
    mistakes={
        "not-divisible": "an axis is cut that doesn't divide evenly by the devices: choose another "
        "axis, or leave that variable whole",
        "stray": "a key matches no variable, so it cuts nothing: use the paths as keys",
        "norm": "a vector (a layer norm's, or a bias) is cut for nothing: it saves few bytes, and "
        "each one is one more all-gather",
        "too-large": "a device holds more than fits. Each number takes 8 bytes, weight and "
        "momentum, and a cut variable keeps 1/devices of them",
        "embedding": "the embedding is cut by columns, so a device has a piece of every word's "
        "vector, and activations travel: cut it by rows, or leave it whole",
        "everything": "every matrix is cut, though less is enough: each one that stays whole is "
        "an all-gather less",
        "largest-first": "you took the largest matrices until it fitted: another choice saves "
        "enough and gathers less",
        "smallest-first": "you took the smallest matrices until it fitted: another choice saves "
        "enough and gathers less",
        "others": "costs must have exactly the variables that your layouts cut",
        "swapped": "these are the right numbers, but with other variables' paths",
        "payload": "you counted the whole variable: on a ring, a device sends devices - 1 parts, "
        "each 1/devices of it",
        "own-part": "a device passes on others' parts too: it sends devices - 1 parts, not one",
        "all-reduce": "an all-gather goes round the ring once: an all-reduce goes round twice",
    },
    hint="compare what your choice holds and gathers with another choice that also fits",
    run=each(try_gather),
    read=read_gather,
    contrast=_contrast,
    explain=lambda case, got, right: GATHER.mistakes.get(got["flaw"], ""),
    tolerance=1e-6,
)
