"""Lab 07, cluster doctor: configurations are read again here, causes compared as words."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises import lab07
from distlab.grading.judging import LabRules, make_judge

RULES = LabRules(cell_seconds=10, submission_seconds=30)
WORKER = make_judge(lab07.WORKER, lab07.expect_worker)
ROLE = make_judge(lab07.ROLE, lab07.expect_role)
REPAIR = make_judge(lab07.REPAIR, lab07.expect_repair)
CAUSE = make_judge(lab07.CAUSE, lab07.expect_cause)


def _describe(got: Any) -> Any:
    return [lab07.describe_config(x) for x in got] if isinstance(got, list | tuple) else got


def judge_worker(cases: Sequence[Any], got: Any) -> None:
    """Judge the TF_CONFIG of each (hosts, index)."""
    WORKER.verify(cases, _describe(got))


def judge_role(cases: Sequence[Any], got: Any) -> None:
    """Judge the TF_CONFIG of each (machines, job, index)."""
    ROLE.verify(cases, _describe(got))


def judge_repair(cases: Sequence[Any], got: Any) -> None:
    """Judge the repaired configurations of each (hosts, twice, lost, shift)."""
    found = [lab07.describe_configs(x) for x in got] if isinstance(got, list | tuple) else got
    REPAIR.verify([(lab07.break_configs(*case),) for case in cases], found)


def judge_cause(cases: Sequence[Any], got: Any) -> None:
    """Judge the cause of each (name, seed)."""
    CAUSE.verify(cases, got)
