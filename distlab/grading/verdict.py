"""From an observation to marks: what each exercise earned, and what is said of it.

`with Bench(lab) as bench: bench.judge(observation)`. The judges run in a process of
their own; a kept observation gives the same marks whenever it is judged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from distlab.grading.clean_process import CleanProcess, Refused
from distlab.grading.evidence import CellVerdict
from distlab.grading.frames import clean_text
from distlab.grading.labs import ExerciseSpec, LabSpec
from distlab.grading.observe import CellObservation, Observation


@dataclass(frozen=True)
class ExerciseVerdict:
    """What one exercise earned. `status`: "right", "wrong" or "for a human".

    `misconception` is the name of the mistake ("" if none is known), `message` what
    is said to the learner: plain text, without control characters, not yet escaped
    for HTML.
    """

    id: str
    points: float
    max: float
    misconception: str = ""
    message: str = ""
    status: str = "right"


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
        """Whether a human should look at it."""
        return any(exercise.status == "for a human" for exercise in self.exercises)

    def to_record(self) -> dict[str, Any]:
        """Return it as plain data, as `distlab grade --json` prints it."""
        exercises = [asdict(exercise) for exercise in self.exercises]
        return {"student": self.student, "mark": self.mark, "max": self.max,
                "exercises": exercises, "notes": list(self.notes)}  # fmt: skip


class Bench:
    """A process of its own that judges observations of one lab, one after the other.

    `seconds` is the longest that judging may take, of all graded cells of a submission
    together, and of each by itself if that was too long.
    """

    def __init__(self, lab: LabSpec, seconds: float = 20.0) -> None:
        self.lab = lab
        self._process = CleanProcess(lab, seconds, lab.rules.data)

    def judge(self, observation: Observation) -> Verdict:
        """Return the marks of one observation. Never raises for what a learner handed in."""
        notes = list(observation.notes)
        if not observation.sealed:
            notes.append("graded without the sandbox (--unsealed)")
        if observation.problem:
            notes.insert(0, observation.problem)
        cells = {} if observation.problem else self._judge_cells(observation)
        marks = tuple(judge_exercise(e, cells, observation.problem) for e in self.lab.exercises)
        notes += [f"{m.id}: {m.message}" for m in marks
                  if m.status == "for a human" and not observation.problem]  # fmt: skip
        return Verdict(observation.student, self.lab.name, marks, tuple(notes))

    def _judge_cells(self, observation: Observation) -> dict[str, CellVerdict]:
        """Judge all cells in one request; should that fail, each by itself."""
        cells = [cell for cell in observation.cells if cell.id in self.lab.graded]
        try:
            found = self._ask(cells, observation.seed)
        except Refused:
            found = [self._judge_cell(cell, observation.seed) for cell in cells]
        return {cell.id: verdict for cell, verdict in zip(cells, found)}

    def _judge_cell(self, cell: CellObservation, seed: int) -> CellVerdict:
        try:
            return self._ask([cell], seed)[0]
        except Refused as error:
            why = f"the judge could not finish on this answer ({error})"
            return CellVerdict("for a human", "", clean_text(why))

    def _ask(self, cells: Sequence[CellObservation], seed: int) -> list[CellVerdict]:
        answer = self._process.ask(do="judge", cells=[asdict(c) for c in cells], seed=seed)
        return [CellVerdict(**verdict) for verdict in answer["cells"]]

    def close(self) -> None:
        self._process.close()

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


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
    return ExerciseVerdict(exercise.id, points, exercise.points, worst.misconception,
                           worst.message, "for a human" if human else worst.status)  # fmt: skip


def judge(lab: LabSpec, observation: Observation) -> Verdict:
    """Return the verdict of one observation, in a fresh process of the judges."""
    with Bench(lab) as bench:
        return bench.judge(observation)
