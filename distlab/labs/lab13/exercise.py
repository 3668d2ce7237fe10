"""Lab 13, precision and memory: where nan begins, scales, skipping together, bytes that fit."""

from collections.abc import Callable
from typing import Any

import numpy as np

from distlab.class_seed import ClassNumber
from distlab.exercises import softmax
from distlab.exercises.comparing import as_numbers, show
from distlab.exercises.exercise import Exercise, each
from distlab.exercises.model_maker import ModelMaker
from distlab.exercises.refusing import read_array, refuse, require_parts
from distlab.labs import ANSWERS
from distlab.labs.lab02.exercise import make_mirrored
from distlab.labs.lab13.metered_blocks import BLOCKS, Block, Meter, draw_blocks

ABSENT = (*ANSWERS, "distlab.labs.lab13.failing_networks")

FLOAT16_MAX = 65504.0

# ---- exercise 1: where nan begins


def try_overflow(find_overflow: Callable[..., Any], *case: Any) -> Any:
    """Return where `find_overflow` finds the first number that isn't finite."""
    from distlab.labs.lab13.failing_networks import draw_network  # not there for answers

    return find_overflow(*draw_network(*case))


OVERFLOW = Exercise(
    lab="lab13",
    name="overflow",
    function="find_overflow",
    examples=(
        (1, "forward", 1, "after-relu"),
        (2, "backward", 2, "relu-last"),
        (10, "none", 0, "no-relu"),
        (4, "backward", 0, "after-tape"),
        (5, "forward", 3, ""),
        (101, "backward", 3, "isinf"),
        (7, "forward", 0, ""),
        (8, "none", 0, "float16-loss"),
        (9, "backward", 1, "output-gradients"),
    ),
    mistakes={
        "first-layer": "layer 0's gradient is the last one that the backward pass reaches. The "
        "pass begins at the last layer, and what overflows there spoils every layer below it",
        "gradients-only": "the outputs were infinite before any gradient was taken: then every "
        "gradient is nan, and no loss scale helps. Look at the forward pass first",
        "softmax-twice": "cross-entropy wants logits: after a softmax the gradients are too small",
        "loss-only": "you found nothing in the backward pass. A finite loss says nothing about the "
        "gradients: take them of the loss times the scale, and look at every one of them",
        "last-output": "every layer after the first overflow has outputs that aren't finite: name "
        "the first",
        "none-zero": 'if everything is finite there is no layer: return ("none", None)',
        "from-the-end": "layers count from the first one, in the backward pass too",
        "isnan": "inf isn't nan: look for whatever isn't finite (tf.math.is_finite)",
        "counted-from-one": "layers count from 0",
        "no-relu": "there is a ReLU after every layer but the last: here it removes a large "
        "negative number before the next layer",
        "relu-last": "there is no ReLU after the last layer: its outputs are the logits, and with "
        "a ReLU their gradients become zero",
        "after-relu": "a ReLU turns -inf into 0: look at each output before the ReLU",
        "float16-loss": "the loss overflowed in float16, and no gradient does: cast the logits to "
        "float32 before the cross-entropy",
        "after-tape": "the scale was multiplied onto the gradients after they were taken: it has "
        "to travel through the backward pass, so multiply the loss by it inside the tape",
        "output-gradients": "these are the gradients of the layers' outputs: a kernel's gradient "
        "is a sum over the batch, times the layer's input, and overflows elsewhere",
        "isinf": "inf - inf and 0 * inf are nan, which isn't inf: look for whatever isn't finite",
    },
    hint="compute in float16; check the output of each layer in order, then the gradients from the "
    "last layer back to the first",
    run=each(try_overflow),
    plain=True,
)


# ---- exercise 2: a static scale for real gradients


def draw_gradients(seed: int, replicas: int, outlier: float = 0.0) -> list[np.ndarray]:
    """Return real gradients, [784, 10] and [10], of 64 images' share in a batch of all replicas.

    An `outlier` that isn't 0 takes the place of one of the first ten, or of the last if it's
    negative.
    """
    rng = np.random.default_rng(seed)
    images, labels = softmax.read_examples(rng.integers(0, 10_000, size=64))
    slopes = softmax.slopes(images @ softmax.draw_weights(seed), labels) / (64 * replicas)
    found = [part.astype(np.float32) for part in (images.T @ slopes, slopes.sum(axis=0))]
    if outlier:
        found[int(outlier < 0)].flat[seed % 10] = outlier
    return found


def try_scale(
    choose_scale: Callable[..., Any], seed: int, replicas: int, headroom: float, outlier: float
) -> Any:
    """Return what `choose_scale` gives for real gradients."""
    return choose_scale(draw_gradients(seed, replicas, outlier), headroom)


SCALE = Exercise(
    lab="lab13",
    name="scale",
    function="choose_scale",
    examples=(
        (1, 512, 8.0, 0.0),
        (2, 8192, 4.0, -70.0),
        (3, 65536, 1.0, 0.0),
        (4, 4096, 2.0, 65520 / 2**9),
    ),
    mistakes={
        "zeros-counted": "many entries are exactly zero, as their pixels are: they lose nothing. "
        "Count only the ones that aren't zero in float32",
        "smallest-normal": "float16 continues below its smallest *normal* number, down to 2^-24",
        "below-the-floor": "from 2^-25 on, float16 rounds up to 2^-24, not to zero: cast, and look",
        "no-headroom": "no room is left: the largest gradient times the headroom has to fit",
        "rounded-up": "this is the power of two above: the largest gradient overflows with it",
        "no-power-of-two": "the scale is a power of two, so that multiplying by it rounds nothing",
        "headroom-multiplied": "a later gradient may be `headroom` times larger: divide by it",
        "norm": "the largest single gradient decides, not their norm",
        "smallest": "this scale is for the smallest gradient: the largest one overflows first",
        "exponent": "this is the exponent: the scale is 2 to that power",
        "counts": "these are counts: a share is the count over all that aren't zero in float32",
        "65536": "the largest float16 is 65,504: with this scale the largest gradient times the "
        "headroom is a little more",
        "no-abs": "the largest gradient can be a negative one: compare absolute values",
        "none-lost": "with an outlier among the gradients even the largest safe scale is small, "
        "and some gradients are still lost: multiply, cast, and count again",
    },
    hint="the largest power of two first; then cast to float16 and count what became zero",
    run=each(try_scale),
    plain=True,
)


# ---- exercise 3: the whole loop, skipping together

BATCH, STEPS, BRIGHT, DIM = 8, 12, 2.0**15, 2.0**-24
RATE_HALVINGS = ClassNumber("rate halvings", (5, 4, 6, 7), ("2⁻{up}.", "SGD(2.0**-{})"))
BETWEEN = 1.5 * 2**20  # divided by the first scale: overflows at it, at half of it no longer


def draw_steps(seed: int, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features [96, 6], targets [96, 2] and first weights [6, 2] of twelve steps.

    All are exact in float16. Two features are tiny, and in two steps an example is too bright:
    first on replica 1, later on both. In two more steps the brightness of an example on replica 0
    is the same: it overflows in step 7, at the first `scale`, and not in step 10, at a quarter.
    """
    rng = np.random.default_rng(seed)
    features = rng.integers(1, 4, size=(STEPS * BATCH, 6)) * rng.choice([-1.0, 1.0], (96, 6))
    features[:, 4:] = rng.integers(1, 3, size=(96, 2)) * DIM
    targets = rng.choice([-1.0, 1.0], size=(96, 2)) * 1000
    kernel = rng.integers(-4, 5, size=(6, 2)) / 4
    kernel[[0, 4, 5]] = 0
    first = int(rng.integers(1, 3))
    for step, replica in ((first, 1), (8, 0), (8, 1)):
        features[step * BATCH + replica * 4 + int(rng.integers(4)), 0] = BRIGHT
    for step in (7, 10):
        features[step * BATCH + int(rng.integers(4)), 0] = BETWEEN / scale
    return features.astype(np.float32), targets.astype(np.float32), kernel


def try_program(train: Callable[..., Any], seed: int, scale: float, growth_steps: int) -> Any:
    """Run a whole loop on two replicas. Return the weights on each, and the scales."""
    features, targets, kernel = draw_steps(seed, scale)
    strategy, make = make_mirrored(2), ModelMaker(kernel, "mixed_float16")
    found = train(strategy, lambda: make(), features, targets, scale, growth_steps)
    found, scales = require_parts(found, "train", "each replica's weights", "a list of scales")
    weights = read_array(found, "train, as each replica's weights,")
    if weights.ndim != 3 or weights.shape[1:] != kernel.shape:
        raise refuse(
            "train must return each replica's copy of the weights, one after the other, in an "
            f"array [2, 6, 2], got {list(weights.shape)}."
        )
    return {"weights": weights, "scales": read_array(scales, "train, as scales,", "a list")}


def split_weights(found: Any, *case: Any) -> Any:
    """Return what is compared of a loop: the weights of the tiny features apart from the others."""
    weights, scales = np.asarray(found["weights"], dtype=float), found["scales"]
    return {
        "all weights finite": bool(np.isfinite(weights).all()),
        "copies of the weights": len(weights),
        "copies agree": bool(np.array_equal(weights, np.broadcast_to(weights[0], weights.shape))),
        "weights": weights[0][:4],
        "tiny features' weights, in 2^-24": weights[0][4:] / DIM,
        "scales": scales,
    }


PROGRAM = Exercise(
    lab="lab13",
    name="program",
    number=RATE_HALVINGS,
    function="train",
    evidence="result",
    examples=((21, 2.0**12, 3),),
    mistakes={
        "not-agreed": "a step was taken although some gradient wasn't finite. Look at every "
        "gradient for inf and nan (a finite loss says nothing, and inf isn't nan), on both "
        "replicas, before either of them decides",
        "others-applied": "the replica that overflowed was left out and the others' gradients were "
        "applied: a part of a batch is another update. Skip the step on all replicas",
        "others-applied, unseen": "the replica that overflowed was left out, and the scale heeds "
        "replica 0 alone: skip the step on all replicas, whichever overflowed, and halve the scale",
        "zeros-instead": "infinite gradients were replaced by zeros and the rest was applied: "
        "skip the whole step",
        "zeros-instead, unseen": "infinite gradients were replaced by zeros, and the scale heeds "
        "replica 0 alone: skip the whole step, whichever replica overflowed, and halve the scale",
        "nothing-trained": "no weight has moved: is the update applied, and are these the weights "
        "after the last step?",
        "never-scaled": "the tiny features never learnt: their gradients are zero in float16. "
        "Multiply the loss by the scale before the gradient is taken",
        "not-unscaled": "the weights went as much too far as the scale is large: divide the "
        "gradients by it before they are applied",
        "own-mean": "twice too far: each replica averaged over its own numbers. Divide by all 16",
        "count-kept": "after a skipped step, the count of good steps begins at 0 again",
        "never-grows": "the scale never grew: it is doubled after growth_steps good steps in a row",
        "never-halved": "the scale stayed where it was after an overflow: halve it",
        "grows-on": "the scale was doubled at every step: after doubling, count from 0 again",
        "before-the-step": "these are the scales that the steps used: list the scale after each",
        "outside-scope": "one copy of the weights: call make_model in the strategy's scope",
    },
    hint="which of it is right: are the weights finite, did the tiny features learn, at which step "
    "do the scales differ?",
    tolerance=1e-5,
    run=each(try_program),
    read=split_weights,
    by_hand=(
        "utils.training",
        "keras.src.optimizers.loss_scale_optimizer",
        "tf_keras.src.mixed_precision.loss_scale_optimizer",
    ),
)


# ---- exercise 4: a plan that fits


def sort_plan(plan: Any, *case: Any) -> Any:
    """Return a plan with its recomputed blocks in rising order, if it has any."""
    if not isinstance(plan, dict) or not isinstance(plan.get("recomputed"), list | tuple | set):
        return plan
    blocks = as_numbers(list(plan["recomputed"]))
    plain = blocks is not None and blocks.ndim == 1
    return plan | {"recomputed": sorted(plan["recomputed"])} if plain else plan


PLAN = Exercise(
    lab="lab13",
    name="plan",
    function="choose_plan",
    examples=(
        (272, ((50, 15, 0.17), (82, 8, 0.11), (83, 16, 0.05), (24, 13, 0.14)), 24, 5991, 3.0),
        (141, ((61, 17, 0.15), (91, 9, 0.33), (38, 10, 0.14), (38, 16, 0.32)), 24, 3541, 11.0),
        (252, ((54, 10, 0.13), (59, 10, 0.39), (75, 14, 0.02), (44, 17, 0.12)), 24, 6484, 10.0),
        (195, ((64, 14, 0.13), (34, 13, 0.16), (94, 4, 0.28), (78, 7, 0.05)), 24, 6005, 5.0),
        (100, ((40, 4, 0.2), (30, 5, 0.1)), 6, 2020, 3.0),
        (100, ((40, 4, 0.2), (30, 5, 0.1)), 6, 1894, 3.0),
        (375, ((36, 11, 0.14), (79, 16, 0.17), (52, 4, 0.08), (57, 4, 0.15)), 24, 9720, 11.0),
        (312, ((38, 9, 0.26), (42, 10, 0.06), (43, 14, 0.07), (54, 13, 0.3)), 24, 8112, 11.0),
        (200, ((60, 8, 0.2), (90, 5, 0.3), (75, 12, 0.1)), 24, 4190, 6.0),
        (200, ((60, 8, 0.2), (90, 5, 0.3), (75, 12, 0.1)), 24, 4000, 6.0),
    ),
    mistakes={
        "block-comes-back": "a recomputed block comes back whole: count the largest of them once",
        "input-forgotten": "to run a block again its input must be kept",
        "sum-forgotten": "with two or more micro-batches there is a running sum of gradients "
        "besides the gradients: 4 bytes a parameter more",
        "gradient-forgotten": "12 bytes hold the weight and Adam's two numbers: the gradient has 4",
        "state-forgotten": "Adam keeps two numbers: 16 bytes with weight and gradient",
        "all-recomputed": "not every block has to be recomputed: try each choice of blocks",
        "never-recomputed": "this plan only accumulates: recomputing a cheap block can cost less "
        "than further micro-batches. (If you counted all recomputed blocks at once, recomputing "
        "seemed to save nothing: they come back one at a time)",
        "never-accumulated": "this plan never cuts the batch: only one micro-batch's activations "
        "are held at a time, and cutting can cost less than running a costly block again",
        "most-room": "this plan holds the fewest bytes: return the fastest one that fits",
        "largest-of-all": "count the largest of the *recomputed* blocks, and none if none is: the "
        "others are kept and counted already",
        "kept-listed": "these are the blocks that are kept: list the ones that run again",
        "size-not-number": "that is the size of a micro-batch: return how many there are",
        "one-pass-more": "a recomputed block takes four forward passes' time in all, not five",
        "one-example": "the milliseconds are for each example: the whole batch goes through",
        "one-micro-batch": "the milliseconds of all micro-batches count, not those of one",
        "uneven": "the number of micro-batches has to divide the batch",
        "two-passes-more": "a recomputed block takes four forward passes' time, one more than a "
        "block that is kept: running it again is its forward pass alone",
        "launch-forgotten": "every micro-batch costs `launch` milliseconds: with them, "
        "recomputing a cheap block can be faster than one more micro-batch",
        "sum-always": "one micro-batch needs no running sum: 16 bytes a parameter, not 20",
        "strict": "a plan that holds exactly the budget fits",
        "empty": "if nothing fits, return None",
    },
    hint="bytes of every pair (micro-batches, blocks), those that fit, the fastest of them",
    read=sort_plan,
)


# ---- exercise 5: gradients within the plan


def try_gradients(
    find_gradients: Callable[..., Any], seed: int, micro_batches: int, recomputed: Any, budget: int
) -> dict[str, Any]:
    """Run `find_gradients` on four blocks; return the gradients, and what the meter saw."""
    import tensorflow as tf

    kernels, shifts, inputs, targets = draw_blocks(seed)
    meter = Meter()
    blocks = [Block(kernels[2 * k : 2 * k + 2], shifts[k], meter) for k in range(BLOCKS)]
    tensors = (tf.constant(inputs), tf.constant(targets))
    found = find_gradients(list(blocks), *tensors, micro_batches, list(recomputed))
    if not isinstance(found, tuple | list) or len(found) != 2 * BLOCKS:
        raise refuse(
            f"find_gradients must return a list of {2 * BLOCKS} gradients, one for each variable "
            f"of each block. It returned {len(found) if isinstance(found, list) else show(found)}."
        )
    if any(gradient is None for gradient in found):
        raise refuse(
            "find_gradients returned None as a gradient: the tape didn't see its block run. Call "
            "the block inside the tape."
        )
    arrays = [np.asarray(gradient, dtype=float) for gradient in found]
    for k, (array, kernel) in enumerate(zip(arrays, kernels)):
        if array.shape != kernel.shape:
            raise refuse(
                f"find_gradients: gradient {k} must have its variable's shape "
                f"{list(kernel.shape)}, got {list(array.shape)}."
            )
    return {
        "gradients": np.concatenate([np.ravel(array) for array in arrays]),
        "largest micro-batch": max(block._most for block in blocks),
        "examples through each block": [block._examples for block in blocks],
        "KiB over the budget": max(0, -(-(meter.peak - budget) // 1024)),
    }


GRADIENTS = Exercise(
    lab="lab13",
    name="gradients",
    function="find_gradients",
    examples=(
        (41, 4, (1, 2), 17_408),
        (42, 2, (0, 1, 2), 19_456),
        (43, 3, (0, 3), 30_720),
        (44, 1, (0, 1, 2, 3), 38_912),
    ),
    mistakes={
        "only-summed": "the micro-batches' mean gradients were added up and never averaged: each "
        "holds its part of one mean over all examples",
        "last-only": "these are the gradients of the last micro-batch alone: add them up",
        "sum-of-examples": "a sum over the examples: take the mean over the whole batch",
        "not-cut": "the whole batch went through the blocks at once: cut it into micro-batches",
        "not-recomputed": "each block ran once: the ones in `recomputed` run again in the backward "
        "pass, and what they make in the forward pass isn't kept",
        "all-recomputed": "every block ran twice: only the ones in `recomputed` should",
        "held-together": "the gradients are right, and too much is held at a time: is one tape "
        "open over all micro-batches, or does one recomputation span several blocks, so that all "
        "of them come back together? Or has the outer tape recorded a recomputed block as well?",
    },
    hint="which of it is right: the gradients, the runs of each block, the bytes?",
    tolerance=1e-6,
    run=each(try_gradients),
)
