"""Lab 01, batches and words: the worked examples that its visible checks use."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises.checking import Check, Mistake

EPOCH = Check(
    lab="lab01",
    exercise="epoch",
    function="plan_epoch",
    examples=((66, 32), (64, 32), (5, 32)),
    right=((3, 2), (2, 32), (1, 5)),
    mistakes=(
        Mistake(
            "rest-dropped",
            "the examples left over make one more, smaller step: they are not dropped",
            ((2, 32), (2, 32), (0, 32)),
        ),
        Mistake(
            "rounded-down",
            "steps are rounded up, not down: what is left over wants a step of its own",
            ((2, 2), (2, 32), (0, 5)),
        ),
        Mistake(
            "zero-left-over",
            "a batch that divides the examples leaves nothing over: its last step is a full one",
            ((3, 2), (2, 0), (1, 5)),
        ),
        Mistake(
            "one-too-many",
            "adding 1 to the whole batches is one step too many where the batch divides exactly",
            ((3, 2), (3, 0), (1, 5)),
        ),
        Mistake(
            "last-is-full",
            "the last batch holds only what is left over, not a full batch",
            ((3, 32), (2, 32), (1, 32)),
        ),
    ),
    hint="count the whole batches, then look at what is left over",
)

BATCHES = Check(
    lab="lab01",
    exercise="batches",
    function="replica_batch_sizes",
    examples=((1024, 4, 4), (34, 2, 2), (2, 1, 4)),
    right=([64] * 16, [9, 9, 8, 8], [1, 1, 0, 0]),
    mistakes=(
        Mistake(
            "one-worker",
            "the batch is global: divide it by the replicas of all workers, not of one",
            ([256] * 4, [17, 17], [1, 1, 0, 0]),
        ),
        Mistake(
            "per-worker",
            "these are per-worker batches: each worker shares its batch among its replicas",
            ([256] * 4, [17, 17], [2]),
        ),
        Mistake(
            "rounded-down",
            "rounding down everywhere loses the examples that are left over",
            ([64] * 16, [8, 8, 8, 8], [0, 0, 0, 0]),
        ),
        Mistake(
            "rounded-up",
            "rounding up everywhere trains on more examples than the batch holds",
            ([64] * 16, [9, 9, 9, 9], [1, 1, 1, 1]),
        ),
        Mistake(
            "rest-to-last",
            "what is left over is spread, one each: no two replicas differ by more than one",
            ([64] * 16, [8, 8, 8, 10], [0, 0, 0, 2]),
        ),
        Mistake(
            "worker-by-worker",
            "the rule goes over all replicas at once, not worker by worker",
            ([64] * 16, [9, 8, 9, 8], [1, 1, 0, 0]),
        ),
    ),
    hint="as many sizes as replicas, whose sum is the global batch, the larger ones first",
)

PARALLELISM = Check(
    lab="lab01",
    exercise="parallelism",
    function="choose_parallelism",
    examples=(
        (1_000_000, 0.5, 16, 2, 8),
        (100_000_000, 4, 16, 30, 8),
        (2_000_000_000, 4, 24, 6, 8),
        (1_000_000_000, 12, 24, 6, 8),
        (10_000_000_000, 4, 24, 6, 8),
        (2_000_000_000, 4, 24, 30, 8),
    ),
    right=("one device", "data", "model", "model", "model", "both"),
    mistakes=(
        Mistake(
            "weights-only",
            "4 bytes are the weight alone: gradient and Adam's two moments make 16 a parameter",
            ("one device", "data", "one device", "one device", "model", "data"),
        ),
        Mistake(
            "no-activations",
            "activations need room beside the 16 bytes of each parameter",
            ("one device", "data", "model", "one device", "model", "both"),
        ),
        Mistake(
            "memory-ignored",
            "memory comes first: each data-parallel replica holds a whole copy of the model",
            ("one device", "data", "one device", "one device", "one device", "data"),
        ),
        Mistake(
            "time-ignored",
            "memory is not all: a run that fits and takes too long wants more replicas",
            ("one device", "one device", "model", "model", "model", "model"),
        ),
        Mistake(
            "split-needlessly",
            "a model that fits is not split: when only time is short, copies of it share the data",
            ("one device", "model", "model", "model", "model", "model"),
        ),
    ),
    hint="ask two questions apart: does one copy fit on one device, and is one copy fast enough?",
)

SCALING = Check(
    lab="lab01",
    exercise="scaling",
    function="measure_scaling",
    examples=(([1, 2, 4], [0.100, 0.125, 0.160]), ([4, 1], [0.200, 0.100])),
    right=(([1, 1.6, 2.5], [1, 0.8, 0.625]), ([2, 1], [0.5, 1])),
    mistakes=(
        Mistake(
            "times-not-images",
            "a step of n replicas handles n times as many images: compare images per second",
            (([1, 0.8, 0.625], [1, 0.4, 0.15625]), ([0.5, 1], [0.125, 1])),
        ),
        Mistake(
            "upside-down",
            "upside down: a shorter step is a larger speed-up",
            (([1, 2.5, 6.4], [1, 1.25, 1.6]), ([8, 1], [2, 1])),
        ),
        Mistake(
            "not-divided",
            "efficiency is the speed-up divided by the number of replicas",
            (([1, 1.6, 2.5], [1, 1.6, 2.5]), ([2, 1], [2, 1])),
        ),
        Mistake(
            "first-is-reference",
            "the reference is the run with one replica, wherever it stands in the list",
            (([1, 1.6, 2.5], [1, 0.8, 0.625]), ([1, 0.5], [0.25, 0.5])),
        ),
        Mistake(
            "percentage",
            "efficiency is a fraction of 1 here, not a percentage",
            (([1, 1.6, 2.5], [100, 80, 62.5]), ([2, 1], [50, 100])),
        ),
    ),
    hint="images per second are replicas x batch / seconds, and the batch cancels",
)


def check_epoch(answers: Sequence[Any]) -> None:
    """Compare `plan_epoch` of each of `EPOCH.examples`; AssertionError names the mistake."""
    EPOCH.verify(answers)


def check_batches(answers: Sequence[Any]) -> None:
    """Compare `replica_batch_sizes` of each of `BATCHES.examples` in the same way."""
    BATCHES.verify(answers)


def check_parallelism(answers: Sequence[Any]) -> None:
    """Compare `choose_parallelism` of each of `PARALLELISM.examples` in the same way."""
    PARALLELISM.verify(answers)


def check_scaling(answers: Sequence[Any]) -> None:
    """Compare `measure_scaling` of each of `SCALING.examples` in the same way."""
    SCALING.verify(answers)
