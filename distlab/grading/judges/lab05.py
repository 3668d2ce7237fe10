"""Lab 05, loss scaling: each update held against the single-device gradient of fresh batches."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises import lab05
from distlab.grading.judging import LabRules, WrongAnswer

RULES = LabRules(cell_seconds=30, submission_seconds=90, visible_checks=False, onednn=False)


def judge_updates(exercise: str, cases: Sequence[Any], got: Any) -> None:
    """Judge the update that a loss made on four replicas for each of `cases`.

    `cases` are arguments of `make_case`; `got` holds one array [inputs, outputs] for each.
    Raises WrongAnswer with the ratio to the single-device gradient.
    """
    check = lab05.EXERCISES[exercise]
    if not isinstance(got, list | tuple) or len(got) != len(cases):
        raise WrongAnswer(f"{check.function} gave no update for each of {len(cases)} batches")
    fault = check.find_fault([lab05.make_case(*case) for case in cases], got)
    if fault is not None:
        raise WrongAnswer(*fault)


def judge_uneven(cases: Sequence[Any], got: Any, empty: Any) -> None:
    """Judge updates as `judge_updates`, and `empty`, the loss of a replica without examples."""
    judge_updates("uneven", cases, got)
    fault = lab05.find_fault_of_empty(empty)
    if fault:
        raise WrongAnswer(fault, "mean-of-nothing", lab05.MEAN_OF_NOTHING)
