"""Lab 11, tf.data: a pipeline has no mistake; rates and calls are worked out."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises.comparing import AnyOf, Anything
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab11 import exercise as lab11

RULES = LabRules(own_seconds=60, cell_seconds=120, submission_seconds=240, exclusive=True)


def expect_pipeline(seed: int, batch_size: int, way: str = "right") -> dict[str, Any]:
    return {"mistake": "" if way == "right" else way, "speed": Anything()}


def expect_rate(
    stage_seconds: Sequence[float], batch_size: int, overlapped: bool, way: str = "right"
) -> float:
    """Return images per second, or what a mistake gives."""
    together = not overlapped if way == "overlap-swapped" else overlapped
    seconds = max(stage_seconds) if together else sum(stage_seconds)
    if way == "always-added":
        seconds = sum(stage_seconds)
    if way == "fastest-stage" and overlapped:
        seconds = min(stage_seconds)
    if way == "mean-stage":
        seconds = sum(stage_seconds) / len(stage_seconds)
    if way == "seconds-told":
        return seconds
    return 1 / seconds if way == "batches-counted" else batch_size / seconds


def expect_calls(examples: int, epochs: int, cache_after: str, way: str = "right") -> Any:
    """Return [decodings, augmentations] in `epochs` epochs, or the result of a mistake."""
    every = examples * epochs
    decodings = every if cache_after == "nothing" else examples
    augmentations = examples if cache_after == "augment" else every
    if way == "cache-ignored" or (way == "parsed-again" and cache_after == "augment"):
        decodings = every
    if way in ("cache-ignored", "never-frozen"):
        augmentations = every
    if way == "always-cached" and cache_after == "nothing":
        decodings = augmentations = examples
    if way == "all-cached" and cache_after != "nothing":
        augmentations = examples
    if way == "later-epochs-only" and cache_after == "parse":
        augmentations -= examples
    if way == "first-epoch-free":
        if cache_after == "nothing":  # it may be free only with a cache
            return AnyOf(([decodings, augmentations], [decodings - examples, augmentations]))
        free = 0 if cache_after == "augment" else augmentations
        return AnyOf(([0, augmentations], [0, free]))
    return [decodings, augmentations]


PIPELINE = Judge(lab11.PIPELINE, expect_pipeline)
RATE = Judge(lab11.RATE, expect_rate)
CALLS = Judge(lab11.CALLS, expect_calls)
