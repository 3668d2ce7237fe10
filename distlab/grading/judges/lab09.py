"""Lab 09, fault tolerance: the steps and weights of killed runs, the checkpoint that was chosen."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises import lab09
from distlab.grading.judging import LabRules, make_judge

RULES = LabRules(cell_seconds=120, submission_seconds=300, processes=True, visible_checks=False)
KILLED = make_judge(lab09.KILLED, lab09.expect_killed_run)
NEWEST = make_judge(lab09.NEWEST, lab09.expect_newest)
INTERVAL = make_judge(lab09.INTERVAL, lab09.expect_interval)
LOSS = make_judge(lab09.LOSS, lab09.expect_loss)


def judge_killed(cases: Sequence[Any], got: Any) -> None:
    """Judge steps and weights of each (seed, steps, steps between saves, step of the kill)."""
    KILLED.verify(cases, got)


def judge_newest(cases: Sequence[Any], got: Any) -> None:
    """Judge the checkpoint chosen for each (seed, steps, damage)."""
    NEWEST.verify(cases, got)


def judge_interval(cases: Sequence[Any], got: Any) -> None:
    """Judge the interval of each (checkpoint seconds, mean seconds between failures)."""
    INTERVAL.verify(cases, got)


def judge_loss(cases: Sequence[Any], got: Any) -> None:
    """Judge the share lost for each (interval, checkpoint seconds, seconds between failures)."""
    LOSS.verify(cases, got)
