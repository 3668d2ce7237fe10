"""Lab 03, Keras under a strategy: what each function was seen to do, for fresh cases."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises import keras_trials as trials
from distlab.exercises import lab03
from distlab.grading.judging import LabRules, make_judge

RULES = LabRules(cell_seconds=60, submission_seconds=180, data=("mnist",))
INPUT = make_judge(lab03.INPUT, trials.expect_input)
MODEL = make_judge(lab03.MODEL, trials.expect_model)
CALLBACKS = make_judge(lab03.CALLBACKS, trials.expect_callbacks)
RESTORE = make_judge(lab03.RESTORE, trials.expect_restore)
RELOAD = make_judge(lab03.RELOAD, trials.expect_reload)


def judge_input(cases: Sequence[Any], got: Any) -> None:
    """Judge the data set of each (seed, examples, batch size)."""
    INPUT.verify(cases, got)


def judge_model(cases: Sequence[Any], got: Any) -> None:
    """Judge the compiled model of each (replicas, seed)."""
    MODEL.verify(cases, got)


def judge_callbacks(cases: Sequence[Any], got: Any) -> None:
    """Judge the rates used and noted of each (boundaries, rates)."""
    CALLBACKS.verify(cases, got)


def judge_restore(cases: Sequence[Any], got: Any) -> None:
    """Judge the weights loaded for each (seed, losses)."""
    RESTORE.verify(cases, got)


def judge_reload(cases: Sequence[Any], got: Any) -> None:
    """Judge the reloaded model of each (replicas, seed)."""
    RELOAD.verify(cases, got)
