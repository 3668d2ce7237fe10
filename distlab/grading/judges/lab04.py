"""Lab 04, custom training loop: what each function was seen to do, for fresh cases."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises import lab04
from distlab.exercises import loop_trials as trials
from distlab.grading.judging import LabRules, make_judge

RULES = LabRules(cell_seconds=60, submission_seconds=120)
STEP = make_judge(lab04.STEP, trials.expect_step)
EPOCH = make_judge(lab04.EPOCH, trials.expect_epoch)
ACCURACY = make_judge(lab04.ACCURACY, trials.expect_accuracy)
RESUME = make_judge(lab04.RESUME, trials.expect_resume)


def judge_step(cases: Sequence[Any], got: Any) -> None:
    """Judge weights and losses of each (seed, examples)."""
    STEP.verify(cases, got)


def judge_epoch(cases: Sequence[Any], got: Any) -> None:
    """Judge the mean loss of each (losses, batch size)."""
    EPOCH.verify(cases, got)


def judge_accuracy(cases: Sequence[Any], got: Any) -> None:
    """Judge the accuracy of each (seed, images, batch size)."""
    ACCURACY.verify(cases, got)


def judge_resume(cases: Sequence[Any], got: Any) -> None:
    """Judge the resumed run of each (seed, epochs saved, epochs in all)."""
    RESUME.verify(cases, got)
