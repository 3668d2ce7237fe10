"""Lab 06, ring all-reduce: sums, messages and bytes of each rank, and what each message held."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises import lab06
from distlab.grading.judging import LabRules, make_judge

RULES = LabRules(cell_seconds=10, submission_seconds=30)
SCATTER = make_judge(lab06.SCATTER, lab06.expect_scatter)
GATHER = make_judge(lab06.GATHER, lab06.expect_gather)
ALL_REDUCE = make_judge(lab06.ALL_REDUCE, lab06.expect_all_reduce)
SECONDS = make_judge(lab06.SECONDS, lab06.expect_seconds)


def judge_scatter(cases: Sequence[Any], got: Any) -> None:
    """Judge the first half for each (seed, ranks, length)."""
    SCATTER.verify(cases, got)


def judge_gather(cases: Sequence[Any], got: Any) -> None:
    """Judge the second half for each (seed, ranks, length)."""
    GATHER.verify(cases, got)


def judge_all_reduce(cases: Sequence[Any], got: Any) -> None:
    """Judge the whole for each (seed, ranks, length)."""
    ALL_REDUCE.verify(cases, got)


def judge_seconds(cases: Sequence[Any], got: Any) -> None:
    """Judge the prediction for each (ranks, payload bytes, latency, bandwidth)."""
    SECONDS.verify(cases, got)
