"""From an observation to marks, in a separate process.

`with JudgeProcess(lab) as judges: judges.judge(observation)`. A stored observation always gives the
same marks.
"""

from collections.abc import Sequence
from dataclasses import asdict

from distlab.grading.cell_verdict import CellVerdict
from distlab.grading.labs import LabSpec
from distlab.grading.observation import CellObservation, Observation
from distlab.grading.reader_process import ReaderProcess, Refused
from distlab.grading.text import clean
from distlab.grading.verdict import Verdict, judge_exercise


class JudgeProcess(ReaderProcess):
    """A separate process that judges observations of one lab, one after the other.

    The lab's `judge_seconds` are for all graded cells of a submission together, and for each by
    itself if that was too long.
    """

    def __init__(self, lab: LabSpec) -> None:
        super().__init__(lab, lab.rules.judge_seconds, lab.rules.data)
        self.lab = lab

    def judge(self, observation: Observation) -> Verdict:
        """Return the marks of one observation. Never raises because of a submission."""
        notes = [*observation.notes, *observation.facts]
        if not observation.sealed:
            notes.append("graded without the sandbox (--no-sandbox)")
        if observation.problem:
            notes.insert(0, observation.problem)
        cells = {} if observation.problem else self._judge_cells(observation)
        marks = tuple(judge_exercise(e, cells, observation.problem) for e in self.lab.exercises)
        notes += [
            f"{m.id}: {m.message}"
            for m in marks
            if m.status == "for a human" and not observation.problem
        ]
        return Verdict(observation.student, self.lab.name, marks, tuple(notes))

    def _judge_cells(self, observation: Observation) -> dict[str, CellVerdict]:
        """Judge all cells in one request; if that fails, each separately."""
        cells = [cell for cell in observation.cells if cell.id in self.lab.graded]
        try:
            found = self._ask_cells(cells, observation)
        except Refused:
            found = [self._judge_cell(cell, observation) for cell in cells]
        return {cell.id: verdict for cell, verdict in zip(cells, found)}

    def _judge_cell(self, cell: CellObservation, seen: Observation) -> CellVerdict:
        try:
            return self._ask_cells([cell], seen)[0]
        except Refused as error:
            why = f"the judge couldn't finish on this answer ({error})"
            return CellVerdict("for a human", "", clean(why))

    def _ask_cells(self, cells: Sequence[CellObservation], seen: Observation) -> list[CellVerdict]:
        answer = self.ask(
            do="judge", cells=[asdict(c) for c in cells], seed=seen.seed, sealed=seen.sealed
        )
        return [CellVerdict(**verdict) for verdict in answer["cells"]]
