"""Lab 08, multi-worker training: what real workers should read, end with, and leave behind."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.labs.lab08 import exercise as lab08
from distlab.labs.lab08.exercise import RATE, read_step
from distlab.grading.regression import mean_gradient
from distlab.grading.judging import Judge, LabRules

STEP_BYTES = 784 * 10 * 4  # of one gradient, which has to travel in each step


def bound_training(inputs: Mapping[str, Any]) -> tuple[float, float]:
    """Return the least and the most bytes that the kernel may count."""
    return STEP_BYTES * sum(case[2] for case in inputs["training_cases"]), 2e7


RULES = LabRules(cell_seconds=90, submission_seconds=240, processes=True, visible_checks=False,
                 one_fork=True, traffic={"training": bound_training})  # fmt: skip


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
        if way == "always-the-first":
            ids = np.arange(0, examples, workers)
        if way == "in-blocks":
            ids = np.array_split(np.arange(examples), workers)[worker]
        size = batch if way == "global-batch" else batch // workers
        steps = [ids[k : k + size].tolist() for k in range(0, len(ids), size)]
        found.append([s for s in steps if len(s) == size or way != "rest-dropped"])
    return found


def expect_training(
    workers: int, seed: int, steps: int, batch: int, way: str = "right"
) -> list[np.ndarray]:
    return [_train(workers, rank, seed, steps, batch, way) for rank in range(workers)]


def _train(workers: int, rank: int, seed: int, steps: int, batch: int, way: str) -> np.ndarray:
    weights = softmax.draw_weights(seed)
    for step in range(steps):
        images, labels = read_step(seed, step, batch)
        gradient = mean_gradient(images, labels, weights)
        factors = {"own-mean": workers, "averaged-again": 1 / workers, "whole-batch": np.nan}
        gradient = gradient * factors.get(way, 1)
        if way == "not-reduced":
            own = slice(rank, None, workers)
            gradient = mean_gradient(images[own], labels[own], weights)
        if way == "one-batch-only":
            gradient = mean_gradient(*read_step(seed, 0, batch), weights)
        weights = weights - RATE * gradient
    return weights


def expect_saving(workers: int, value: float, way: str = "right") -> dict[str, Any]:
    everyone, nobody = way == "all-in-one-place", way == "chief-elsewhere"
    lost = nobody or way == "shared-removed"
    one = way == "others-share"
    return {
        "worker 0 wrote into the shared folder": not nobody,
        "workers that wrote there": workers if everyone else int(not nobody),
        "folders of the others": 1 if everyone or one else workers - 1,
        "folders inside the shared one": (workers - 1) * (way == "inside-shared"),
        "folders left over": {"left-behind": workers - 1}.get(way, 0),
        "value in the shared checkpoint": None if lost else value + everyone * (workers - 1),
    }


SHARDS = Judge(lab08.SHARDS, expect_shards)
TRAINING = Judge(lab08.TRAINING, expect_training)
SAVING = Judge(lab08.SAVING, expect_saving)
