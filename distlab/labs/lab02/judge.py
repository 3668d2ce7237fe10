"""Lab 02, strategy API: references."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.labs.lab02 import exercise as lab02
from distlab.labs.lab02.exercise import Parts
from distlab.grading.judging import Judge, LabRules

RULES = LabRules(cell_seconds=30, submission_seconds=90)


def expect_variable(start: float, numbers: Sequence[float], way: str = "right") -> list[float]:
    copies = len(numbers)
    return {
        "right": [start + float(np.mean(numbers))] * copies,
        "outside-scope": [start + sum(numbers)],
        "summed": [start + sum(numbers)] * copies,
        "first-only": [start + numbers[0]] * copies,
        "copies-differ": [start + number for number in numbers],
    }[way]


def expect_mean(parts: Parts, way: str = "right") -> float:
    numbers, means = np.concatenate(parts), [np.mean(part) for part in parts]
    return {
        "right": np.mean(numbers),
        "mean-of-means": np.mean(means),
        "sum-of-means": np.sum(means),
        "first-only": means[0],
        "divided-by-replicas": np.sum(numbers) / len(parts),
    }[way]


def expect_collect(parts: Sequence[Parts], way: str = "right") -> Any:
    return {
        "right": np.concatenate(parts),
        "summed": np.sum(parts, axis=0),
        "first-only": np.asarray(parts[0]),
        "wrong-axis": np.concatenate(parts, axis=1),
        "stacked": np.stack(parts),
    }[way]


def expect_deal(replicas: int, examples: int, way: str = "right") -> dict[str, Any]:
    dealt = [list(range(k, examples, replicas)) for k in range(replicas)]
    ids = {
        "right": dealt,
        "floats": dealt,
        "in-blocks": [part.tolist() for part in np.array_split(np.arange(examples), replicas)],
        "all-to-all": [list(range(examples))] * replicas,
        "counted-from-one": [list(range(k + 1, examples, replicas)) for k in range(replicas)],
        "all-the-first": dealt[:1] * replicas,
        "rest-dropped": [hand[: examples // replicas] for hand in dealt],
    }[way]
    return {"whole numbers": way != "floats", "ids": ids}


VARIABLE = Judge(lab02.VARIABLE, expect_variable)
MEAN = Judge(lab02.MEAN, expect_mean)
COLLECT = Judge(lab02.COLLECT, expect_collect)
DEAL = Judge(lab02.DEAL, expect_deal)
