"""Lab 04, custom training loop: what each function should be seen to do."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.comparing import AnyOf, Anything
from distlab.grading import regression
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab04 import exercise as lab04
from distlab.labs.lab04.draws import (
    REPLICAS,
    cut_column,
    draw_batch,
    draw_gradients,
    draw_run,
    draw_test,
)
from distlab.labs.lab04.exercise import CLASS_MOMENTUM, LOUDER, MOMENTUM, RATE

RULES = LabRules(own_seconds=60, cell_seconds=60, submission_seconds=120)


def expect_step(seed: int, examples: int, way: str = "right") -> dict[str, Any]:
    images, labels, kernel = draw_batch(seed, examples)
    images = np.concatenate([images, np.ones((examples, 1))], axis=1)  # the biases' column
    weights = np.concatenate([kernel, np.zeros((1, kernel.shape[1]))])
    logits = images @ weights
    own = np.concatenate([share / len(share) for share in cut_column(np.ones(examples))])
    factors = own if way == "own-mean" else np.full(examples, 1 / examples)
    factors = np.ones(examples) if way == "only-summed" else factors
    factors = own / REPLICAS if way == "own-mean-over-replicas" else factors
    slopes = softmax.slopes(logits, labels)
    if way == "softmax-first":  # the chain rule through one softmax more
        odds = softmax.probabilities(logits)
        outer, logits = softmax.slopes(odds, labels), odds
        slopes = odds * (outer - np.sum(outer * odds, axis=1, keepdims=True))
    loss = float(np.sum(factors * regression.losses(logits, labels)))
    times = {"not-applied": 0.0, "uphill": -1.0, "applied-twice": 2.0, "summed-twice": REPLICAS}
    times |= {"divided-twice": 1 / REPLICAS}
    update = times.get(way, 1.0) * images.T @ (slopes * factors[:, None])
    update[-1] *= way != "one-variable"
    right = loss / examples  # of only-summed, for which `loss` is the sum
    loss *= examples if way == "unscaled-loss" else 1
    if way == "own-mean-returned":
        loss = float(np.sum(own * regression.losses(logits, labels)))
    if way == "loss-after":
        loss = float(np.mean(regression.losses(images @ (weights - RATE * update), labels)))
    said = AnyOf((loss, right)) if way == "only-summed" else loss
    return {"weights": weights - RATE * update, "sum of losses": said}


def expect_epoch(losses: Sequence[float], batch: int, way: str = "right") -> dict[str, Any]:
    seen: Any = len(losses) * (2 if way == "stepped-twice" else 1)
    seen = Anything() if way in ("last-missing", "first-missing", "first-batch") else seen
    return {"mean loss": _average(losses, batch, way), "examples seen": seen}


def _average(losses: Sequence[float], batch: int, way: str) -> float:
    batches = [np.asarray(losses)[part] for part in _cut(len(losses), batch)]
    if way == "mean-of-batches":
        return float(np.mean([b.mean() for b in batches]))
    if way in ("mean-of-shares", "shares-averaged"):
        shares = [np.array_split(b, 2) for b in batches]
        means = [share.mean() for pair in shares for share in pair if len(share)]
        sizes = [len(b) / 2 for b in batches for _ in range(2)]
        return float(np.average(means, weights=sizes if way == "shares-averaged" else None))
    kept = {"last-batch": [-1], "first-batch": [0], "last-missing": range(len(batches) - 1)}
    kept |= {"first-missing": range(1, len(batches))}
    if way in kept:
        return float(np.concatenate([batches[k] for k in kept[way]]).mean())
    if way in ("not-divided", "sum-of-last"):
        return float(np.sum(losses) if way == "not-divided" else batches[-1].sum() / len(losses))
    if way == "by-batches":
        return float(np.sum(losses)) / len(batches)
    if way == "first-replica":
        return float(np.concatenate([b[: -(-len(b) // 2)] for b in batches]).mean())
    if way == "full-batches":
        return float(np.sum(losses)) / (len(batches) * batch)
    if way.endswith("-averaged"):  # over two replicas: whole numbers are rounded down
        total = float(np.sum(losses)) / (1 if way == "counts-averaged" else 2)
        halves = sum(len(b) // 2 for b in batches)
        return total / (len(losses) if way == "losses-averaged" else halves)
    return float(np.mean(losses))


def _cut(examples: int, batch: int) -> list[slice]:
    return [slice(k, min(k + batch, examples)) for k in range(0, examples, batch)]


def expect_accuracy(seed: int, examples: int, batch: int, way: str = "right") -> Any:
    images, labels, kernel = draw_test(seed, examples)
    logits = (images @ kernel) * (-1 if way == "least-likely" else 1)
    right = (logits.argmax(axis=1) == labels).astype(float)
    if way == "mean-of-batches":  # or of all their shares
        return AnyOf(tuple(_average(right, batch, one) for one in (way, "mean-of-shares")))
    return _average(1 - right if way == "counted-wrong" else right, batch, way)


def expect_resume(seed: int, saved: int, total: int, way: str = "right") -> dict[str, Any]:
    gradients, kernel = draw_gradients(seed, total)
    weights, velocity = kernel.copy(), np.zeros_like(kernel)
    states = [(weights, velocity)]
    for epoch in gradients[:saved]:
        for gradient in epoch:
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
    if way == "steps":  # counted in steps: an epoch has two
        done = 2 * saved
    for gradient in gradients[done:].reshape(-1, *kernel.shape):
        velocity = MOMENTUM * velocity - RATE * gradient
        weights = weights + velocity
    nothing = {
        "empty-folder": "an error",
        "kept-in-memory": saved,
        "empty-not-zero": AnyOf((-1, 1)),
    }.get(way, 0)
    return {"epochs done": done, "epochs in an empty folder": nothing, "weights": weights}


def _run_epochs(
    run: tuple[Any, ...],
    weights: np.ndarray,
    velocity: np.ndarray,
    epochs: int,
    way: str,
    batch: int = 8,
    rate: float = RATE,
    momentum: float | None = None,
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Take epochs of gradient descent with momentum. Return weights, velocity, mean losses."""
    images, labels, _ = run
    means = []
    cuts = _cut(len(labels), batch)
    momentum = CLASS_MOMENTUM.value if momentum is None else momentum
    for _ in range(epochs):
        found = []
        for part in cuts[:-1] if way == "rest-dropped" else cuts:
            x, y = images[part], labels[part]
            shares = cut_column(y, 2)
            if way != "not-distributed":
                x = x * np.repeat([[1.0], [1 + LOUDER]], [len(s) for s in shares], axis=0)
            found.append(regression.losses(x @ weights, y))
            own = np.concatenate([np.full(len(s), len(s)) for s in shares])
            divisor = {"own-mean": own, "full-batch": np.full(len(y), 8)}.get(way, len(y))
            slopes = softmax.slopes(x @ weights, y) / np.reshape(divisor, (-1, 1))
            velocity = momentum * velocity - rate * x.T @ slopes
            weights = weights + velocity
        batches = [batch.mean() for batch in found]
        means.append(float(np.mean(batches if way == "mean-of-batches" else np.concatenate(found))))
    return weights, velocity, means


# what mistakes of exercise 5 take in place of the contract's: the first epoch's loss shows it
OTHERS: dict[str, list[dict[str, Any]]] = {
    "another-momentum": [{"momentum": momentum} for momentum in (0.0, 0.9, 0.99)],
    "another-rate": [{"rate": factor * RATE} for factor in (2, 0.5, 0.02)],
    "another-batch": [{"batch": batch} for batch in (4, 16)],
}
# epochs of the three calls, and how many of the second call's are saved
CALLS = {"saved-at-the-end": (1, 0, 3), "epochs-more": (1, 1, 4)}
CALLS |= dict.fromkeys(("rest-dropped", "not-distributed"), (1, 2, 1))  # fewer steps, cut off later


def expect_program(seed: int, way: str = "right") -> dict[str, Any]:
    run = draw_run(seed)
    state = start = run[2], np.zeros_like(run[2])
    if way in OTHERS:
        firsts = [_run_epochs(run, *start, 1, way, **other)[2] for other in OTHERS[way]]
        free = {"losses after the run was cut off": Anything(), "weights": Anything()}
        return {"losses of one epoch": AnyOf(tuple(firsts))} | free
    losses = []
    for epochs in CALLS.get(way, (1, 1, 2)):
        if way == "no-optimizer":
            state = state[0], np.zeros_like(run[2])
        if way == "began-again":
            state, epochs = start, 1 if not losses else 4
        *state, means = _run_epochs(run, *state, epochs, way)
        losses.append(means)
    loose = way in ("own-mean", "full-batch")  # how such a loss is reported may differ
    return {
        "losses of one epoch": Anything() if loose else losses[0],
        "losses after the run was cut off": Anything() if loose else losses[2],
        "weights": state[0],
    }


STEP = Judge(lab04.STEP, expect_step)
EPOCH = Judge(lab04.EPOCH, expect_epoch)
ACCURACY = Judge(lab04.ACCURACY, expect_accuracy)
RESUME = Judge(lab04.RESUME, expect_resume)
PROGRAM = Judge(lab04.PROGRAM, expect_program)
