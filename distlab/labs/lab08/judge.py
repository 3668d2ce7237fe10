"""Lab 08, multi-worker training: what real workers should read, end with, and leave behind."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.comparing import AnyOf, Anything
from distlab.grading.judging import Judge, LabRules
from distlab.grading.regression import mean_gradient
from distlab.labs.lab08 import exercise as lab08
from distlab.labs.lab08.exercise import NEXT_SUM, RATE, read_step

RULES = LabRules(own_seconds=60, cell_seconds=90, submission_seconds=240, processes=True)


def expect_shards(
    workers: int, examples: int, batch: int, way: str = "right"
) -> list[list[list[int]]] | str:
    if way in ("not-batched", "endless"):
        return "single ids" if way == "not-batched" else "it never ends"
    found = []
    for worker in range(workers):
        ids = np.arange(worker, examples, workers)
        if way == "not-sharded":
            ids = np.arange(examples)
        if way == "cut-to-fit":
            ids = ids[: examples // workers]
        if way == "skipped-only":
            ids = np.arange(worker, examples)
        if way == "always-the-first":
            ids = np.arange(0, examples, workers)
        if way == "in-blocks":
            ids = np.array_split(np.arange(examples), workers)[worker]
        size = batch if way == "global-batch" else batch // workers
        if way == "batches-dealt":
            starts = range(worker * size, examples, workers * size)
            ids = np.concatenate([np.arange(examples)[k : k + size] for k in starts])
        steps = [ids[k : k + size].tolist() for k in range(0, len(ids), size)]
        found.append([s for s in steps if len(s) == size or way != "rest-dropped"])
    return found


def expect_training(workers: int, seed: int, steps: int, batch: int, way: str = "right") -> Any:
    """Return the weights that each worker ends with, or that it may end with by a mistake."""
    if way == "not-reduced":
        ways = ("own mean alone", "own sum alone")
        return AnyOf(tuple(expect_training(workers, seed, steps, batch, one) for one in ways))
    return [_train(workers, rank, seed, steps, batch, way) for rank in range(workers)]


def _train(workers: int, rank: int, seed: int, steps: int, batch: int, way: str) -> np.ndarray:
    weights = softmax.draw_weights(lab08.derive_seed(seed))
    more = {"one-step-short": -1, "one-step-too-many": 1}.get(way, 0)
    for step in range(steps + more):
        images, labels = read_step(seed, step + (way == "next-step"), batch)
        gradient = mean_gradient(images, labels, weights)
        factors = {
            "own-mean": workers,
            "averaged-again": 1 / workers,
            "not-divided": batch,
            "uphill": -1,
            "whole-batch": np.nan,
        }
        gradient = gradient * factors.get(way, 1)
        if way in ("own mean alone", "own sum alone"):
            own = slice(rank, None, workers)
            gradient = mean_gradient(images[own], labels[own], weights)
            gradient = gradient / (workers if way == "own sum alone" else 1)
        if way == "one-batch-only":
            gradient = mean_gradient(*read_step(seed, 0, batch), weights)
        weights = weights - RATE * gradient
    return weights


def expect_saving(*counts: Sequence[float], way: str = "right") -> dict[str, Any]:
    workers, own = len(counts), float(np.sum(counts[0]))
    total = float(sum(np.sum(count) for count in counts))
    saved: float | None = {
        "own-count": own,
        "averaged": total / workers,
        "counted-twice": workers * total,
        "chief-elsewhere": None,
    }.get(way, total)
    sums: Any = [[NEXT_SUM] * 3 for _ in counts]
    if way == "chief-alone":  # of two workers: worker 1's next addend is half of NEXT_SUM, plus 0.5
        saved, sums = own + NEXT_SUM / 2 + 0.5, Anything()
    if way == "at-each-addition":  # the additions that some worker doesn't have meet later sums
        met = min(len(count) for count in counts)
        saved, sums = float(sum(np.sum(count[:met]) for count in counts)), Anything()
    return {
        "count in the shared checkpoint": saved,
        "others that wrote into the shared folder": (workers - 1) * (way == "all-in-one-place"),
        "folders or files left next to it": (
            Anything() if way == "chief-elsewhere" else (workers - 1) * (way == "left-behind")
        ),
        "sums of the next all-reduces": sums,
    }


SHARDS = Judge(lab08.SHARDS, expect_shards)
TRAINING = Judge(lab08.TRAINING, expect_training)
SAVING = Judge(lab08.SAVING, expect_saving)
