"""Lab 08, multi-worker training: what real workers read, ended with, and left behind."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises import lab08
from distlab.grading.judging import LabRules, make_judge

RULES = LabRules(cell_seconds=90, submission_seconds=240, processes=True, visible_checks=False)
SHARDS = make_judge(lab08.SHARDS, lab08.expect_shards)
TRAINING = make_judge(lab08.TRAINING, lab08.expect_training)
SAVING = make_judge(lab08.SAVING, lab08.expect_saving)


def judge_shards(cases: Sequence[Any], got: Any) -> None:
    """Judge what each worker read, for each (workers, examples, global batch)."""
    SHARDS.verify(cases, got)


def judge_training(cases: Sequence[Any], got: Any) -> None:
    """Judge each worker's weights, for each (workers, seed, steps, global batch)."""
    TRAINING.verify(cases, got)


def judge_saving(cases: Sequence[Any], got: Any) -> None:
    """Judge where workers wrote, for each (workers, value)."""
    SAVING.verify(cases, got)
