"""Marks: the points of each exercise of a submission, and its message."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distlab.grading.cell_verdict import CellVerdict
from distlab.grading.labs import ExerciseSpec


@dataclass(frozen=True)
class ExerciseVerdict:
    """The verdict on one exercise. `status`: "right", "wrong" or "for a human".

    `misconception` is the name of the mistake ("" if none is known), `message` the learner's
    message: plain text, without control characters, not yet escaped for HTML. `table` shows the
    moment that it went wrong, where the exercise has such a table.
    """

    id: str
    points: float
    max: float
    misconception: str = ""
    message: str = ""
    status: str = "right"
    table: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Verdict:
    """The marks of one submission; `notes` are for the teacher."""

    student: str
    lab: str
    exercises: tuple[ExerciseVerdict, ...]
    notes: tuple[str, ...] = ()

    @property
    def mark(self) -> float:
        return sum((exercise.points for exercise in self.exercises), 0.0)

    @property
    def max(self) -> float:
        return sum(exercise.max for exercise in self.exercises)

    @property
    def for_human(self) -> bool:
        """True if a human should look at it."""
        return any(exercise.status == "for a human" for exercise in self.exercises)


def judge_exercise(
    exercise: ExerciseSpec, cells: Mapping[str, CellVerdict], problem: str
) -> ExerciseVerdict:
    """Return what one exercise earned, from the verdicts of its graded cells."""
    if problem:
        return ExerciseVerdict(exercise.id, 0.0, exercise.points, "", problem, "for a human")
    unseen = CellVerdict("for a human", "", "nothing was seen of this exercise")
    found = [(graded, cells.get(graded.id, unseen)) for graded in exercise.cells]
    points = sum((graded.points for graded, v in found if v.status == "right"), 0.0)
    order = {"wrong": 0, "for a human": 1, "right": 2}
    worst = min((verdict for _, verdict in found), key=lambda v: order[v.status])
    human = any(v.status == "for a human" for _, v in found)
    return ExerciseVerdict(
        exercise.id,
        points,
        exercise.points,
        worst.misconception,
        worst.message,
        "for a human" if human else worst.status,
        worst.table,
    )
