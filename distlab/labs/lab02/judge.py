"""Lab 02, strategy API: references."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.exercises.comparing import AnyOf, Anything
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab02 import exercise as lab02
from distlab.labs.lab02.exercise import Parts

RULES = LabRules(cell_seconds=30, submission_seconds=90)


def expect_variable(start: float, numbers: Sequence[float], way: str = "right") -> list[float]:
    copies = len(numbers)
    return {
        "right": [start + float(np.mean(numbers))] * copies,
        "outside-scope": [start + sum(numbers)],
        "summed": [start + sum(numbers)] * copies,
        "first-only": [start + numbers[0]] * copies,
        "start-ignored": [float(np.mean(numbers))] * copies,
        "copies-differ": [start + number for number in numbers],
    }[way]


def expect_moments(parts: Parts, way: str = "right") -> dict[str, float]:
    numbers = np.concatenate(parts)
    own = [(np.mean(part), np.std(part), len(part)) for part in parts]
    means, deviations, counts = (np.array(column) for column in zip(*own, strict=True))
    mean = {
        "mean-of-means": np.mean(means),
        "sum-of-means": np.sum(means),
        "first-only": means[0],
        "divided-by-replicas": np.sum(numbers) / len(parts),
    }.get(way, np.mean(numbers))
    deviation: Any = {
        "mean-of-deviations": AnyOf((np.mean(deviations), deviations @ counts / len(numbers))),
        "around-own-mean": np.sqrt(np.sum(deviations**2 * counts) / len(numbers)),
        "variance": np.var(numbers),
        "around-zero": np.sqrt(np.mean(numbers**2)),
        "one-less": np.std(numbers, ddof=1),
        "root-of-the-sum": np.std(numbers) / np.sqrt(len(numbers)),
        "distances-not-squared": np.mean(np.abs(numbers - np.mean(numbers))),
        "mean-not-squared": np.sqrt(abs(np.mean(numbers**2) - np.mean(numbers))),
    }.get(way, np.std(numbers))
    loose = way in ("mean-of-means", "sum-of-means", "first-only", "divided-by-replicas")
    return {"mean": float(mean), "standard deviation": Anything() if loose else deviation}


def expect_predict(replicas: int, rows: Any, weight: float, way: str = "right") -> np.ndarray:
    rows = np.asarray(rows, float)  # [row, 2]
    n = len(rows)
    made = np.stack([rows[:, 0] + weight * rows[:, 1], np.arange(n) % replicas], axis=1)
    if way == "in-blocks":
        made[:, 1] = np.repeat(
            np.arange(replicas), [len(b) for b in np.array_split(rows, replicas)]
        )
    if way == "on-one-replica":
        made[:, 1] = 0
    if way == "counted-from-one":
        made[:, 1] = (np.arange(n) + 1) % replicas
    if way == "averaged":
        made[:, 1] = (replicas - 1) / 2
    hands = [np.arange(k, n, replicas) for k in range(replicas)]
    if way == "replica-by-replica":
        return made[np.concatenate(hands)]
    if way == "all-to-all":
        return np.concatenate(
            [np.stack([made[:, 0], np.full(n, k)], axis=1) for k in range(replicas)]
        )
    if way == "summed":  # of shares cut to the same length
        return np.sum([made[hand[: n // replicas]] for hand in hands], axis=0)
    return made[: n - n % replicas] if way == "rest-dropped" else made


def expect_meter(*calls: Parts, way: str = "right") -> Any:
    found: list[Any] = [[0.0, np.nan if way == "empty" else 0.0]]
    parts_before: list[Any] = []
    for parts in calls:
        parts_before = [*(parts_before if way != "last-only" else []), parts]
        held = [p[:1] for p in parts_before] if way == "first-only" else parts_before
        numbers = np.concatenate([part for parts in held for part in parts])
        times = {"averaged": 1 / len(parts), "reduced-twice": len(parts)}.get(way, 1)
        means = [np.mean(part) for parts in held for part in parts]
        total, last = np.sum(numbers), np.concatenate(parts)
        mean = {
            "mean-of-means": np.mean(means),
            "summed": total,
            "sum-reduced-twice": len(parts) * np.mean(numbers),
            "sum-of-last": np.sum(last) / len(numbers),
            "count-of-last": total / len(last),
            "batches-counted": AnyOf((total / len(means), np.mean(means))),
        }.get(way, np.mean(numbers))
        count = {"count-of-last": len(last), "batches-counted": len(means)}.get(way, len(numbers))
        found.append([count * times, mean])
    return found


VARIABLE = Judge(lab02.VARIABLE, expect_variable)
MOMENTS = Judge(lab02.MOMENTS, expect_moments)
PREDICT = Judge(lab02.PREDICT, expect_predict)
METER = Judge(lab02.METER, expect_meter)
