"""Lab 02, strategy API: references and misconceptions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.exercises import lab02
from distlab.grading.judging import Judge, LabRules

RULES = LabRules(cell_seconds=30, submission_seconds=90)
Parts = Sequence[Sequence[float]]


def _all_ids(replicas: int, examples: int) -> list[list[int]]:
    return [list(range(k, examples, replicas)) for k in range(replicas)]


def _in_blocks(replicas: int, examples: int) -> list[list[int]]:
    return [part.tolist() for part in np.array_split(np.arange(examples), replicas)]


def _from_one(replicas: int, examples: int) -> list[list[int]]:
    return [list(range(k + 1, examples, replicas)) for k in range(replicas)]


def _means(parts: Parts) -> list[float]:
    return [float(np.mean(part)) for part in parts]


VARIABLE = Judge(
    lab02.VARIABLE,
    right=lambda start, numbers: [start + float(np.mean(numbers))] * len(numbers),
    mistakes={
        "outside-scope": lambda start, numbers: [start + sum(numbers)],
        "summed": lambda start, numbers: [start + sum(numbers)] * len(numbers),
        "first-only": lambda start, numbers: [start + numbers[0]] * len(numbers),
        "copies-differ": lambda start, numbers: [start + number for number in numbers],
    },
)
MEAN = Judge(
    lab02.MEAN,
    right=lambda parts: float(np.mean(np.concatenate(parts))),
    mistakes={
        "mean-of-means": lambda parts: float(np.mean(_means(parts))),
        "sum-of-means": lambda parts: sum(_means(parts)),
        "first-only": lambda parts: _means(parts)[0],
        "divided-by-replicas": lambda parts: float(np.sum(np.concatenate(parts))) / len(parts),
    },
)
COLLECT = Judge(
    lab02.COLLECT,
    right=lambda parts: np.concatenate(parts),
    mistakes={
        "summed": lambda parts: np.sum(parts, axis=0),
        "first-only": lambda parts: np.asarray(parts[0]),
        "wrong-axis": lambda parts: np.concatenate(parts, axis=1),
        "stacked": lambda parts: np.stack(parts),
    },
)
DEAL = Judge(
    lab02.DEAL,
    right=_all_ids,
    mistakes={
        "in-blocks": _in_blocks,
        "all-to-all": lambda replicas, examples: [list(range(examples))] * replicas,
        "counted-from-one": _from_one,
        "all-the-first": lambda replicas, examples: _all_ids(replicas, examples)[:1] * replicas,
    },
)


def judge_variable(cases: Sequence[Any], got: Any) -> None:
    """Judge what each copy holds, for each (start, what each replica adds)."""
    VARIABLE.verify(cases, got)


def judge_mean(cases: Sequence[Any], got: Any) -> None:
    """Judge the mean of each (parts,), where parts[k] are replica k's numbers."""
    MEAN.verify(cases, got)


def judge_collect(cases: Sequence[Any], got: Any) -> None:
    """Judge the rows of each (parts,), where parts[k] are replica k's rows [rows, 2]."""
    COLLECT.verify(cases, got)


def judge_deal(cases: Sequence[Any], got: Any) -> None:
    """Judge the ids of each replica, for each (replicas, examples)."""
    DEAL.verify(cases, got)
