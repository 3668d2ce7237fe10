"""Lab 12, pipelines and shards: gradients compared, schedules run by the judge's own simulator."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises import lab12
from distlab.grading.judging import LabRules, WrongAnswer, make_judge

RULES = LabRules(cell_seconds=10, submission_seconds=30)
COLUMNS = make_judge(lab12.COLUMNS, lab12.expect_columns)
ROWS = make_judge(lab12.ROWS, lab12.expect_rows)
SCHEDULE = make_judge(lab12.SCHEDULE, lab12.expect_schedule)
COUNT = make_judge(lab12.COUNT, lab12.expect_count)
MOST_OPERATIONS = 20_000


def judge_columns(cases: Sequence[Any], got: Any) -> None:
    """Judge output and gradients for each (seed, inputs, columns of each part)."""
    COLUMNS.verify(cases, got)


def judge_rows(cases: Sequence[Any], got: Any) -> None:
    """Judge output and gradients for each (seed, rows of each part, outputs)."""
    ROWS.verify(cases, got)


def judge_schedule(cases: Sequence[Any], got: Any) -> None:
    """Simulate the schedule of each (stages, micro-batches): its bubble and its peak memory."""
    if not isinstance(got, list | tuple) or len(got) != len(cases):
        raise WrongAnswer(f"make_1f1b gave no schedule for each of {len(cases)} cases")
    if any(_count(orders) > MOST_OPERATIONS for orders in got):
        raise WrongAnswer(f"make_1f1b gave a schedule of more than {MOST_OPERATIONS} operations")
    pairs = zip(got, cases, strict=True)
    SCHEDULE.verify(cases, [lab12.describe_schedule(orders, *case) for orders, case in pairs])


def _count(orders: Any) -> int:
    if not isinstance(orders, list | tuple):
        return 0
    return sum(len(order) if isinstance(order, list | tuple) else 1 for order in orders)


def judge_count(cases: Sequence[Any], got: Any) -> None:
    """Judge the number of micro-batches for each (stages, most bubble)."""
    COUNT.verify(cases, got)
