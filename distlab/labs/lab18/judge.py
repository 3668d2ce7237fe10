"""Lab 18, many small jobs: what workers leave, who is stopped when, and what a merge finds."""

import math
from typing import Any

import numpy as np

from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab18 import exercise as lab18
from distlab.labs.lab18.exercise import draw_losses, draw_parts

RULES = LabRules(cell_seconds=60, submission_seconds=150, processes=True)
LOST = -1000.0


def expect_work(how: str, seed: int, way: str = "right") -> dict[str, Any]:
    """Return the files that the workers of one trial leave, correct or with a mistake."""
    again = way == "no-claim" and how != "cut"
    missing = {
        "claim-outlives-its-worker": ("killed", "cut"),
        "waits-for-the-dead": ("killed", "cut"),
        "half-file": ("cut",),
        "looked-once": ("killed",),
    }.get(way, ())
    rows = "some missing" if how in missing else "all there"
    return {
        "rows": rows,
        "predicted again": "too much" if again else "no more than needed",
        "all workers returned": way != "waits-for-the-dead" or how not in missing,
    }


def find_lowest(losses: list[float]) -> float:
    """Return the lowest loss that is a number, infinity if there is none."""
    return min((one for one in losses if not math.isnan(one)), default=math.inf)


def expect_halve(
    seed: int, trials: int, first: int, rungs: int, way: str = "right"
) -> tuple[list[int], Any]:
    """Return the epochs that each trial runs, and the winner."""
    losses = draw_losses(seed, trials, first, rungs)
    worst = -math.inf if way == "nan-is-best" else math.inf

    def read(trial: int, epochs: int) -> tuple[float, int]:
        late = way == "one-epoch-late" and epochs < len(losses[0])
        history = losses[trial][: epochs + late]
        loss = history[-1]
        if way == "best-so-far":
            loss = find_lowest(history)
        if way == "end-of-the-table":
            loss = losses[trial][-1]
        if way == "mean-so-far":
            loss = sum(history) / len(history)
        if way != "sorts-nan" and math.isnan(loss):
            loss = worst
        early = epochs < len(losses[0]) and math.isfinite(loss)
        if way == "keeps-the-worst" or (way == "keeps-the-highest" and early):
            loss = -loss
        return loss, -trial if way == "ties-last" else trial

    left, epochs, ran = list(range(trials)), first, [0] * trials
    while True:
        for trial in left:
            ran[trial] = epochs + (ran[trial] if way == "epochs-added" else 0)
        if epochs == len(losses[0]):
            break
        others = {"rounded-up": -(-len(left) // 2), "half-of-all": trials // 2}
        kept = others.get(way, max(1, len(left) // 2))
        left = sorted(left, key=lambda trial: read(trial, epochs))[:kept]  # noqa: B023
        epochs = min(epochs + first, len(losses[0])) if way == "same-step" else 2 * epochs
    if way == "best-ever":
        return ran, min(range(trials), key=lambda trial: find_lowest(losses[trial][: ran[trial]]))
    if way == "rung-before":
        return ran, left[0]
    if way == "own-last":
        return ran, min(range(trials), key=lambda trial: read(trial, ran[trial]))
    among = range(trials) if way == "stopped-ones-too" else left
    best = min(among, key=lambda trial: read(trial, epochs))
    return ran, losses[best][-1] if way == "loss-told" else best


def expect_merge(seed: int, count: int, way: str = "right") -> dict[str, Any]:
    """Return the values in order, LOST for lost ones, and the damaged files."""
    parts, (wrong, cut, gone) = draw_parts(seed, count)
    lost = {cut, gone} if way == "rows-only" else {wrong, cut, gone}
    lost = set(range(count)) if way == "values-digested" else lost
    order = sorted(range(count), key=str) if way == "by-name" else list(range(count))
    if way == "as-listed":
        np.random.default_rng(seed).shuffle(order)
    values = []
    for number in order:
        part = parts[number]
        if number == wrong and way == "rows-only":
            part = _flip(part)
        if number in lost and way == "shifted":
            continue
        filler = 0.0 if way == "zeros" else LOST
        values.append(np.full(len(part), filler) if number in lost else part)
    named = {
        "gone-ones-not-named": lost - {gone},
        "intact-ones": {*range(count)} - lost,
    }.get(way, lost)
    damaged = sorted(f"part-{number}.npy" for number in named)
    return {"values": np.concatenate(values), "damaged": damaged}


def _flip(part: np.ndarray) -> np.ndarray:
    body = bytearray(part.tobytes())
    body[-2] ^= 1
    return np.frombuffer(bytes(body), part.dtype)


WORK = Judge(lab18.WORK, expect_work)
HALVE = Judge(lab18.HALVE, expect_halve)
MERGE = Judge(lab18.MERGE, expect_merge)
