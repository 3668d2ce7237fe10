"""Choose what to run of a submission, in order: the learner's cells, and the lab's
questions.

Cells that the course gave, graded cells and visible checks are recognized by id or by text and
don't run: their calls are the harness's. Damage is mended, and said. Runs in a process of its
own (`reader_server`), since it parses what learners wrote.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from distlab.grading import cell_text
from distlab.grading.facts import find_facts
from distlab.grading.labs import ExerciseSpec, GradedCell, LabSpec
from distlab.grading.notebook_file import Cell, Notebook
from distlab.grading.program_cell import is_program

# in case a full solution was submitted
_HIDDEN = re.compile(
    r"^### BEGIN HIDDEN TESTS$.*?^### END HIDDEN TESTS$\n?", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Step:
    """A learner's cell to run, called `label`, or the place of the graded cell to `check`.

    `grade_id` is the cell's own, if it has one. A cell that is a `program` writes a file, and
    nothing of it runs.
    """

    label: str = ""
    text: str = ""
    grade_id: str = ""
    check: str = ""
    program: bool = False


@dataclass(frozen=True)
class Plan:
    """The plan for one submission, in order, its repairs, and `facts` without a verdict.

    `unanswered` has, for graded cells that need not run, why not.
    """

    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    unanswered: Mapping[str, str] | None = None

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "Plan":
        """Return it from plain data, in which tuples are lists."""
        steps = tuple(Step(**step) for step in data["steps"])
        return cls(steps, tuple(data["notes"]), tuple(data["facts"]), dict(data["unanswered"]))


class Aligner:
    """Aligns one notebook with its lab."""

    def __init__(self, lab: LabSpec, notebook: Notebook) -> None:
        self.lab, self.notebook = lab, notebook
        self.notes = list(notebook.notes)
        self.stubs = {
            g.id: cell_text.drop_comments(g.text) for g in lab.given if g.kind == "solution"
        }

    def align(self) -> Plan:
        """Return what to run."""
        pieces = [p for cell in self._find_code() for p in self._cut_checks(cell)]
        pieces = self._join_split(pieces)
        pieces, empty = self._drop_given(pieces)
        unanswered = {
            graded.id: why
            for exercise in self.lab.exercises
            if (why := self._find_unanswered(exercise, pieces, empty))
            for graded in exercise.cells
        }
        steps = self._order(pieces, unanswered)
        own = [(p.label, p.text) for p in pieces if not p.check]
        facts = find_facts(own, self.lab.imported)
        return Plan(steps, tuple(dict.fromkeys(self.notes)), facts, unanswered)

    def _find_code(self) -> list[Cell]:
        """Return the code cells, and other cells that hold missing answers."""
        cells = self.notebook.cells
        defined = {n for c in cells if c.kind == "code" for n in cell_text.find_defined(c.text)}
        missing = {n for e in self.lab.exercises for n in e.functions} - defined
        found = []
        for cell in cells:
            if cell.kind == "code":
                found.append(cell)
                continue
            text = cell_text.strip_fences(cell.text)
            names = missing & set(cell_text.find_defined(text)) if missing else set()
            if names and cell_text.compiles(text):
                self.notes.append(f"{cell.label} was turned to {cell.kind}: run as code")
                found.append(Cell(cell.number, "code", text, cell.grade_id))
        return found

    def _cut_checks(self, cell: Cell) -> list[Step]:
        """Return what is the learner's own in `cell`, and the places of graded cells in it."""
        rest, checks, given = drop_hidden(cell.text), [], set()
        for graded in self.lab.graded.values():
            rest, found = cell_text.cut_check(rest, graded.text)
            if found or cell.grade_id == graded.id:
                checks.append(graded.id)
                given |= set(cell_text.find_defined(graded.text))
        if not checks:
            return [Step(cell.label, cell.text, cell.grade_id)]
        places = [Step(cell.label, "", check=check) for check in checks]
        if not set(cell_text.find_defined(rest)) - given:
            if rest.strip():
                self.notes.append(f"{cell.label}, a check, had been changed: the course's was run")
            return places
        self.notes.append(f"{cell.label} held a check and other code: taken apart")
        grade_id = "" if cell.grade_id in self.lab.graded else cell.grade_id
        return [Step(cell.label, rest, grade_id), *places]

    def _join_split(self, pieces: list[Step]) -> list[Step]:
        """Join a cell that was split in the middle of a statement."""
        found: list[Step] = []
        pieces = list(pieces)
        while pieces:
            first = pieces.pop(0)
            if first.check:
                found.append(first)
                continue
            for most in range(1, 5):
                parts = [p for p in pieces[:most] if not p.check]
                texts = [p.text for p in (first, *parts)]
                if len(parts) == most and cell_text.are_split(texts):
                    labels = " and ".join(p.label for p in (first, *parts))
                    self.notes.append(f"{labels} were one cell, split: joined")
                    grade_id = first.grade_id or parts[-1].grade_id
                    first = Step(first.label, "\n".join(texts), grade_id)
                    pieces = [first, *pieces[most:]]
                    break
            else:
                found.append(first)
        return found

    def _drop_given(self, pieces: list[Step]) -> tuple[list[Step], set[str]]:
        """Leave out what the course gave. Return the rest, and whose empty answer cell is there."""
        given = {cell_text.drop_comments(g.text) for g in self.lab.given if g.kind == "given"}
        own, empty = [], set()
        for piece in pieces:
            text = cell_text.drop_comments(piece.text)
            stub = next((e for e, stub in self.stubs.items() if text == stub), "")
            if stub and not piece.check:
                empty.add(stub)
            elif piece.check or text and text not in given:
                own.append(piece)
        return own, empty

    def _find_unanswered(self, exercise: ExerciseSpec, pieces: list[Step], empty: set[str]) -> str:
        """Return why an exercise need not be run. Its function may yet be made some other way."""
        if exercise.attached or any(is_answer(p, exercise) for p in pieces):
            return ""
        if exercise.id in empty:
            return "NotImplementedError"
        names = " and ".join(exercise.functions)
        if any(name in piece.text for name in exercise.functions for piece in pieces):
            return ""
        self.notes.append(f"no answer cell of {exercise.id!r} was found")
        return f"NameError: no cell of the notebook defines {names}"

    def _order(self, pieces: list[Step], unanswered: Mapping[str, str]) -> tuple[Step, ...]:
        """Return the learner's cells with each graded cell at its place among them."""
        after: dict[int, list[str]] = {}
        for exercise in self.lab.exercises:
            for graded in exercise.cells:
                if graded.id not in unanswered:
                    place = self._find_place(exercise, graded, pieces)
                    after.setdefault(place, []).append(graded.id)
        steps = [Step(check=check) for check in after.get(-1, [])]
        for k, piece in enumerate(pieces):
            if not piece.check:
                text, program = cell_text.to_python(piece.text), is_program(piece.text)
                steps.append(replace(piece, text=text, program=program))
            steps += [Step(check=check) for check in after.get(k, [])]
        return tuple(steps)

    def _find_place(self, exercise: ExerciseSpec, graded: GradedCell, pieces: list[Step]) -> int:
        """Return after which piece the graded cell runs."""
        answers = [k for k, p in enumerate(pieces) if is_answer(p, exercise)]
        own = [k for k, p in enumerate(pieces) if p.check == graded.id]
        if not answers:
            return len(pieces) - 1
        if not own:
            self.notes.append(f"the check {graded.id!r} was missing: put back")
            named = [k for k in answers if pieces[k].grade_id == exercise.id]
            return max(named or answers)
        if max(own) < answers[0]:
            self.notes.append(f"the check {graded.id!r} came before its answer: run after it")
            return answers[-1]
        return max(own)


def drop_hidden(text: str) -> str:
    """Return `text` without hidden tests, in time linear in its length."""
    head, end, tail = text.rpartition("\n### END HIDDEN TESTS")
    return _HIDDEN.sub("", head + end) + tail.removeprefix("\n") if end else text


def is_answer(piece: Step, exercise: ExerciseSpec) -> bool:
    """Return whether `piece` holds the answer to `exercise`: by its id, or by its definitions."""
    if piece.check:
        return False
    named = piece.grade_id == exercise.id and bool(piece.text.strip())
    if exercise.program:
        return named or is_program(piece.text)
    return named or bool(set(cell_text.find_defined(piece.text)) & set(exercise.functions))
