"""Lab 04, custom training loop: what each function should be seen to do."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.exercises import lab04, softmax
from distlab.exercises.lab04 import (
    MOMENTUM,
    RATE,
    REPLICAS,
    draw_batch,
    draw_gradients,
    draw_test,
)
from distlab.grading.judges import regression
from distlab.grading.judging import Judge, LabRules

RULES = LabRules(cell_seconds=60, submission_seconds=120)


def expect_step(seed: int, examples: int, way: str = "right") -> dict[str, Any]:
    images, labels, kernel = draw_batch(seed, examples)
    logits = images @ kernel
    shares = np.array_split(np.ones(examples), REPLICAS)
    own = np.concatenate([share / len(share) for share in shares])
    factors = own if way == "own-mean" else np.full(examples, 1 / examples)
    loss = float(np.sum(factors * regression.losses(logits, labels)))
    times = {"not-applied": 0.0, "uphill": -1.0, "applied-twice": 2.0}.get(way, 1.0)
    update = images.T @ (softmax.slopes(logits, labels) * factors[:, None])
    loss *= examples if way == "unscaled-loss" else 1
    return {"weights": kernel - times * RATE * update, "sum of losses": loss}


def expect_epoch(losses: Sequence[float], batch: int, way: str = "right") -> float:
    batches = [np.asarray(losses)[part] for part in _cut(len(losses), batch)]
    if way == "mean-of-batches":
        return float(np.mean([b.mean() for b in batches]))
    if way == "last-batch":
        return float(batches[-1].mean())
    if way == "first-replica":
        return float(np.concatenate([b[: -(-len(b) // 2)] for b in batches]).mean())
    if way == "full-batches":
        return float(np.sum(losses)) / (len(batches) * batch)
    return float(np.mean(losses))


def _cut(examples: int, batch: int) -> list[slice]:
    return [slice(k, min(k + batch, examples)) for k in range(0, examples, batch)]


def expect_accuracy(seed: int, examples: int, batch: int, way: str = "right") -> float:
    images, labels, kernel = draw_test(seed, examples)
    return expect_epoch(((images @ kernel).argmax(axis=1) == labels).astype(float), batch, way)


def expect_resume(seed: int, saved: int, total: int, way: str = "right") -> dict[str, Any]:
    gradients, kernel = draw_gradients(seed, total)
    weights, velocity = kernel.copy(), np.zeros_like(kernel)
    states = [(weights, velocity)]
    for gradient in gradients[:saved]:
        velocity = MOMENTUM * velocity - RATE * gradient
        weights = weights + velocity
        states.append((weights, velocity))
    done = saved
    if way == "oldest":
        done, (weights, velocity) = 1, states[1]
    if way == "nothing-restored":
        done, weights = 0, np.zeros_like(kernel)
    if way in ("no-optimizer", "nothing-restored"):
        velocity = np.zeros_like(kernel)
    if way == "epoch-forgotten":
        done = 0
    for gradient in gradients[done:]:
        velocity = MOMENTUM * velocity - RATE * gradient
        weights = weights + velocity
    nothing = "an error" if way == "empty-folder" else 0
    return {"epochs done": done, "epochs in an empty folder": nothing, "weights": weights}


STEP = Judge(lab04.STEP, expect_step)
EPOCH = Judge(lab04.EPOCH, expect_epoch)
ACCURACY = Judge(lab04.ACCURACY, expect_accuracy)
RESUME = Judge(lab04.RESUME, expect_resume)
