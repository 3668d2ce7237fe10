"""Lab 11, tf.data: right examples are a condition, then the ratio to the naive pipeline."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises import lab11
from distlab.grading.judging import LabRules, WrongAnswer, make_judge

RULES = LabRules(cell_seconds=120, submission_seconds=240, exclusive=True, visible_checks=False)
RATE = make_judge(lab11.RATE, lab11.expect_rate)
CALLS = make_judge(lab11.CALLS, lab11.expect_calls)


def judge_pipeline(cases: Sequence[Any], got: Any) -> None:
    """Judge elements and speed for each (seed, batch size); raise WrongAnswer."""
    if not isinstance(got, list | tuple) or len(got) != len(cases):
        raise WrongAnswer(f"make_fast gave no pipeline for each of {len(cases)} cases")
    for case, found in zip(cases, got, strict=True):
        fault = lab11.PIPELINE.find_fault(*case, found)
        if fault is not None:
            raise WrongAnswer(*fault)


def judge_rate(cases: Sequence[Any], got: Any) -> None:
    """Judge the rate of each (seconds of each stage, batch size, overlapped)."""
    RATE.verify(cases, got)


def judge_calls(cases: Sequence[Any], got: Any) -> None:
    """Judge the calls of each (examples, epochs, what the cache comes after)."""
    CALLS.verify(cases, got)
