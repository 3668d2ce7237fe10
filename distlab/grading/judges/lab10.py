"""Lab 10, parameter servers: what a real coordinator was asked, where tables lay, staleness."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises import lab10
from distlab.grading.judging import LabRules, make_judge

RULES = LabRules(cell_seconds=120, submission_seconds=300, processes=True, visible_checks=False)
CLOSURES = make_judge(lab10.CLOSURES, lab10.expect_closures)
PARTITIONER = make_judge(lab10.PARTITIONER, lab10.expect_partitioner)
STALENESS = make_judge(lab10.STALENESS, lab10.expect_staleness)
START = make_judge(lab10.START, lab10.expect_start)


def judge_closures(cases: Sequence[Any], got: Any) -> None:
    """Judge what was scheduled and joined, and the sum, for each (seed, closures)."""
    CLOSURES.verify(cases, got)


def judge_partitioner(cases: Sequence[Any], got: Any) -> None:
    """Judge the pieces of a table for each (rows,)."""
    PARTITIONER.verify(cases, got)


def judge_staleness(cases: Sequence[Any], got: Any) -> None:
    """Judge the staleness of each (seed, workers, updates)."""
    STALENESS.verify([(lab10.draw_events(*case),) for case in cases], got)


def judge_start(cases: Sequence[Any], got: Any) -> None:
    """Judge the decision for each (own clock, clocks, bound)."""
    START.verify(cases, got)
