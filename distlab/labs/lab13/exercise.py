"""Lab 13, precision and memory: where nan begins, scales, skipping together, bytes that fit."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.comparing import show
from distlab.exercises.exercise import Exercise, call, each
from distlab.labs.lab13.failing_networks import draw_network
from distlab.labs.lab02.exercise import make_mirrored
from distlab.exercises.model_maker import ModelMaker
from distlab.exercises.refusing import own_frames, refuse

FLOAT16_MAX = 65504.0

# ---- exercise 1: where nan begins


def try_overflow(find_overflow: Callable[..., Any], seed: int, where: str, layer: int) -> Any:
    """Return where `find_overflow` finds the first number that is not finite."""
    return find_overflow(*draw_network(seed, where, layer))


OVERFLOW = Exercise(
    lab="lab13",
    name="overflow",
    function="find_overflow",
    examples=((1, "forward", 1), (2, "backward", 2), (3, "none", 0), (4, "backward", 0),
              (5, "forward", 3), (6, "backward", 3), (7, "forward", 0)),
    mistakes={
        "first-layer": "layer 0's gradient is the last that the backward pass reaches: it begins "
        "at the last layer, and what overflowed there spoils every layer before it",
        "gradients-only": "the outputs were infinite before any gradient was taken: then every "
        "gradient is nan, and no loss scale helps. Look at the forward pass first",
        "loss-only": "a finite loss says nothing of the gradients: they are multiplied by the "
        "scale, before the backward pass, and by every kernel on their way back",
        "last-output": "every layer after the first that overflowed has outputs that are not "
        "finite: name the first",
        "counted-from-one": "layers count from 0",
    },
    hint="compute in float16; check the output of each layer in order, then the gradients from the "
    "last layer back to the first",
    shows_case=False,
    run=each(try_overflow),
    plain=True,
)  # fmt: skip


# ---- exercise 2: a static scale for real gradients


def draw_gradients(seed: int, replicas: int) -> list[np.ndarray]:
    """Return real gradients, [784, 10] and [10], of 64 images' share in a batch of all replicas."""
    rng = np.random.default_rng(seed)
    images, labels = softmax.read_examples(rng.integers(0, 10_000, size=64))
    slopes = softmax.slopes(images @ softmax.draw_weights(seed), labels) / (64 * replicas)
    return [(images.T @ slopes).astype(np.float32), slopes.sum(axis=0).astype(np.float32)]


def try_scale(choose_scale: Callable[..., Any], seed: int, replicas: int, headroom: float) -> Any:
    """Return what `choose_scale` gives for real gradients."""
    return choose_scale(draw_gradients(seed, replicas), headroom)


SCALE = Exercise(
    lab="lab13",
    name="scale",
    function="choose_scale",
    examples=((1, 512, 8.0), (2, 8192, 4.0), (3, 65536, 1.0)),
    mistakes={
        "zeros-counted": "many entries are exactly zero, as their pixels are: they lose nothing. "
        "Count only those that are not zero in float32",
        "smallest-normal": "finfo's tiny is the smallest *normal* number: float16 goes on below "
        "it, down to 2^-24",
        "below-the-floor": "what lies between 2^-25 and 2^-24 is rounded up to 2^-24, not to zero: "
        "cast, and look",
        "no-headroom": "there is no room left: the largest gradient times the headroom should "
        "still be at most 65,504",
        "rounded-up": "the power of two above: with it the largest gradient times the headroom is "
        "more than 65,504",
        "no-power-of-two": "the scale is a power of two, so that multiplying by it rounds nothing",
    },
    hint="the largest power of two first; then cast to float16 and count what became zero",
    shows_case=False,
    run=each(try_scale),
    plain=True,
)


# ---- exercise 3: the whole loop, skipping together

BATCH, STEPS, RATE, BRIGHT, DIM = 8, 12, 2.0**-5, 2.0**15, 2.0**-24
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
    """Run a whole loop on two replicas; return the weights, their copies and the scales."""
    features, targets, kernel = draw_steps(seed, scale)
    strategy, make = make_mirrored(2), ModelMaker(kernel, "mixed_float16")
    with own_frames():
        found = train(strategy, lambda: make(), features, targets, scale, growth_steps)
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise refuse("train returns two things: the model, and a list with the scale of each step")
    model, scales = found
    copies = strategy.experimental_local_results(model.weights[0].value)
    weights = [np.asarray(copy, dtype=float) for copy in copies]
    return {
        "all weights finite": bool(np.isfinite(weights).all()),
        "copies of each weight": len(weights),
        "weights": weights[0][:4],
        "tiny features' weights, in 2^-24": weights[0][4:] / DIM,
        "scales": [float(one) for one in scales],
        "compiled": make.was_compiled(STEPS),  # of two replicas times twelve steps
        "gradient taken": make.differentiated,
    }


PROGRAM = Exercise(
    lab="lab13",
    name="program",
    function="train",
    examples=((21, 2.0**12, 3),),
    mistakes={
        "not-agreed": "a replica's gradients overflowed and the step was taken all the same: add "
        "up the gradients over the replicas, or their flags, before anybody decides",
        "others-applied": "the replica that overflowed was left out and the others' gradients were "
        "applied: a part of a batch is another update. Skip the step on all replicas",
        "others-applied, unseen": "the replica that overflowed was left out, and the scale heeds "
        "replica 0 alone: skip the step on all replicas, whichever overflowed, and halve the scale",
        "zeros-instead": "infinite gradients were replaced by zeros and the rest was applied: "
        "skip the whole step",
        "zeros-instead, unseen": "infinite gradients were replaced by zeros, and the scale heeds "
        "replica 0 alone: skip the whole step, whichever replica overflowed, and halve the scale",
        "never-scaled": "the tiny features never learnt: their gradients are zero in float16. "
        "Multiply the loss by the scale before the gradient is taken",
        "not-unscaled": "the weights went as much too far as the scale is large: divide the "
        "gradients by it before they are applied",
        "own-mean": "twice too far: each replica averaged over its own numbers. Divide by all 16",
        "count-kept": "the good steps before a skipped one were counted: after a skip the count "
        "begins at 0 again",
        "never-grows": "the scale never grew: it is doubled after growth_steps good steps in a row",
        "never-halved": "the scale stayed where it was after an overflow: halve it",
        "grows-on": "once it may grow the scale was doubled at every step: after doubling, the "
        "count begins at 0 again",
        "before-the-step": "these are the scales that the steps used: the list has the scale after "
        "each step",
        "outside-scope": "one copy of each weight: call make_model in the strategy's scope",
        "not-compiled": "all is right, and runs op by op: put @tf.function round the step",
        "no-gradient": "the weights are right, and no gradient was ever taken through the model: "
        "each replica takes its own, with a tf.GradientTape round model(x) and the loss",
    },
    hint="which of it is right: are the weights finite, did the tiny features learn, at which step "
    "do the scales differ?",
    tolerance=1e-5,
    shows_case=False,
    run=each(try_program),
    by_hand=("utils.training", "keras.src.optimizers.loss_scale_optimizer",
             "tf_keras.src.mixed_precision.loss_scale_optimizer"),
)  # fmt: skip


# ---- exercise 4: a plan that fits


def sort_plan(plan: Any, *case: Any) -> Any:
    """Return a plan with its recomputed blocks in rising order, if it has any."""
    if not isinstance(plan, dict) or not isinstance(plan.get("recomputed"), list | tuple):
        return plan
    blocks = np.asarray(plan["recomputed"])
    plain = blocks.ndim == 1 and (blocks.size == 0 or np.issubdtype(blocks.dtype, np.number))
    return plan | {"recomputed": sorted(blocks.tolist())} if plain else plan


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
        (100, ((40, 4, 0.2), (30, 5, 0.1)), 6, 1900, 3.0),
    ),
    mistakes={
        "block-comes-back": "a recomputed block is whole again while its backward pass runs: count "
        "the largest of them once",
        "input-forgotten": "to run a block again its input must be kept",
        "sum-forgotten": "with two or more micro-batches there is a running sum of gradients "
        "besides the gradients: 4 bytes a parameter more",
        "state-forgotten": "Adam keeps two numbers for each parameter: 16 bytes with weight and "
        "gradient",
        "all-recomputed": "not every block has to be recomputed: try each choice of blocks",
        "never-recomputed": "this plan only accumulates: recomputing a cheap block can cost less "
        "than further micro-batches",
        "never-accumulated": "this plan never cuts the batch: only one micro-batch's activations "
        "are held at a time, and cutting can cost less than running a costly block again",
        "most-room": "this plan holds the fewest bytes: return the fastest one that fits",
    },
    hint="bytes of every pair (micro-batches, blocks), those that fit, the fastest of them",
    run=call,
    read=sort_plan,
)


# ---- exercise 5: gradients within the plan

WIDTH, HIDDEN, BLOCKS, EXAMPLES = 4, 64, 4, 48


def draw_blocks(seed: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Return two kernels of each block, each block's c [4, 64], inputs and targets [48, 4]."""
    rng = np.random.default_rng(seed)
    shapes = [(WIDTH, HIDDEN), (HIDDEN, WIDTH)] * BLOCKS
    kernels = [rng.normal(0.0, shape[0] ** -0.5, size=shape) for shape in shapes]
    return kernels, rng.normal(size=(BLOCKS, HIDDEN)), *rng.normal(size=(2, EXAMPLES, WIDTH))


class Meter:
    """Counts the bytes of the tensors that blocks have made and that something still holds."""

    def __init__(self) -> None:
        self.held = self.peak = 0

    def watch(self, tensor: Any) -> Any:
        size = int(np.prod(tensor.shape)) * tensor.dtype.size
        self.held += size
        self.peak = max(self.peak, self.held)
        weakref.finalize(tensor, self._release, size)
        return tensor

    def _release(self, size: int) -> None:
        self.held -= size


class Block:
    """x + tanh(x A + c) B, whose tensors a meter watches; `variables` are A and B.

    Nobody else has c [64]: gradients come from calls of the block, or are wrong.
    """

    def __init__(self, kernels: Sequence[np.ndarray], shift: np.ndarray, meter: Meter) -> None:
        import tensorflow as tf

        self.variables = [tf.Variable(kernel) for kernel in kernels]
        self._shift, self._meter, self._examples, self._most = shift, meter, 0, 0

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise refuse("a block can't be copied: the meter counts the calls of this one")

    def __call__(self, x: Any) -> Any:
        """Return the block's output for x, [examples, 4] in float64."""
        import tensorflow as tf

        x = tf.convert_to_tensor(x)
        if not hasattr(x, "numpy"):
            raise refuse(
                "a block was called inside a tf.function, where the meter sees no tensors: "
                "write this one without"
            )
        self._examples += len(x)
        self._most = max(self._most, len(x))
        first, second = self.variables
        hidden = self._meter.watch(tf.tanh(tf.matmul(x, first) + self._shift))  # [n, 64]
        return self._meter.watch(x + tf.matmul(hidden, second))


def try_gradients(
    find_gradients: Callable[..., Any], seed: int, micro_batches: int, recomputed: Any, budget: int
) -> dict[str, Any]:
    """Run `find_gradients` on four blocks; return the gradients, and what the meter saw."""
    import tensorflow as tf

    kernels, shifts, inputs, targets = draw_blocks(seed)
    meter = Meter()
    blocks = [Block(kernels[2 * k : 2 * k + 2], shifts[k], meter) for k in range(BLOCKS)]
    tensors = (tf.constant(inputs), tf.constant(targets))
    with own_frames():
        found = find_gradients(list(blocks), *tensors, micro_batches, list(recomputed))
    if not isinstance(found, tuple | list) or len(found) != 2 * BLOCKS:
        raise refuse(
            f"find_gradients returns a list of {2 * BLOCKS} gradients, one for each variable of "
            f"each block; it returned {len(found) if isinstance(found, list) else show(found)}"
        )
    if any(gradient is None for gradient in found):
        raise refuse("a gradient is None: the tape did not see its block run")
    arrays = [np.asarray(gradient, dtype=float) for gradient in found]
    for k, (array, kernel) in enumerate(zip(arrays, kernels)):
        if array.shape != kernel.shape:
            raise refuse(
                f"find_gradients: gradient {k} has shape {list(array.shape)}, its variable "
                f"{list(kernel.shape)}"
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
    examples=((41, 4, (1, 2), 17_408), (42, 2, (0, 1, 2), 19_456), (43, 3, (0, 3), 30_720),
              (44, 1, (0, 1, 2, 3), 38_912)),
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
    shows_case=False,
    run=each(try_gradients),
)  # fmt: skip
