"""Which cell of a hand-in is which, and what is run: damage is mended, and said.

The graded cells are the course's: what stands in their place is only a place. Of the
learner's cells only what an answer needs is run (`answer_code`), in its own order. Runs in a
process of its own (`reader_server`), since it parses what learners wrote.
"""

from dataclasses import dataclass
from typing import Any

from distlab.grading import cell_text
from distlab.grading.answer_code import Code, Part
from distlab.grading.answer_reader import AnswerReader
from distlab.grading.labs import ExerciseSpec, GivenCell, GradedCell, LabSpec
from distlab.grading.notebook_file import Cell, Notebook
from distlab.grading.program_cell import is_program
from distlab.submission import ATTACHED

MAX_REMARKS = 5


@dataclass(frozen=True)
class PlannedCell:
    """One graded cell to run: its id, its exercise, the course's `source`, its `got` names.

    `parts` are the statements of the learner that its `functions` need. `needs` names earlier
    exercises whose answers are among them, `remarks` what a human should look at, `failed`
    why there is nothing to run. `answered` is False where no cell of the exercise was found.
    """

    id: str
    exercise: str
    source: str
    got: tuple[str, ...]
    functions: tuple[str, ...]
    parts: tuple[Part, ...] = ()
    needs: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    failed: str = ""
    answered: bool = True

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "PlannedCell":
        """Return it from plain data, in which tuples are lists."""
        told = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        parts = (Part(p["label"], p["text"], tuple(p["chosen"])) for p in data["parts"])
        return cls(**{**told, "parts": tuple(parts)})


@dataclass(frozen=True)
class Plan:
    """What is run for one submission, in order, and what was mended."""

    cells: tuple[PlannedCell, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Piece:
    """A learner's cell, or (`check`) the place where a graded cell stood."""

    label: str
    text: str
    grade_id: str = ""
    check: str = ""


class Aligner:
    """Aligns one notebook with its lab."""

    def __init__(self, lab: LabSpec, notebook: Notebook) -> None:
        self.lab, self.notebook = lab, notebook
        self.notes = list(notebook.notes)

    def align(self) -> Plan:
        """Return what to run."""
        pieces = [p for cell in self._find_code() for p in self._cut_checks(cell)]
        pieces = self._drop_stubs(self._join_split(pieces))
        pieces = self._add_given(pieces)
        places = {g.id: self._find_place(e, g, pieces) for e in self.lab.exercises for g in e.cells}
        return self._make_plan(pieces, places)

    def _find_code(self) -> list[Cell]:
        """Return the code cells, and those of other kinds that hold what is missing."""
        cells = self.notebook.cells
        defined = {n for c in cells if c.kind == "code" for n in cell_text.find_defined(c.text)}
        wanted = {n for e in self.lab.exercises for n in e.functions}
        wanted |= {n for g in self.lab.given if g.kind == "given" for n in g.names}
        missing = wanted - defined
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

    def _cut_checks(self, cell: Cell) -> list[Piece]:
        """Return what is the learner's own in `cell`, and the places of graded cells in it."""
        rest, checks = cell_text.drop_hidden(cell.text), []
        for graded in self.lab.graded.values():
            cut, share = cell_text.cut_lines(rest, graded.text)
            if share or cell.grade_id == graded.id:
                checks.append(graded.id)
                rest = cut
        if not checks:
            return [Piece(cell.label, cell.text, cell.grade_id)]
        places = [Piece(cell.label, "", check=check) for check in checks]
        if not cell_text.find_defined(rest, but_got=True):
            if rest.strip():
                self.notes.append(f"{cell.label}, a check, had been changed: the course's was run")
            return places
        self.notes.append(f"{cell.label} held a check and other code: taken apart")
        grade_id = "" if cell.grade_id in self.lab.graded else cell.grade_id
        return [Piece(cell.label, rest, grade_id), *places]

    def _join_split(self, pieces: list[Piece]) -> list[Piece]:
        """Join a cell that was split in the middle of a statement."""
        found: list[Piece] = []
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
                    first = Piece(first.label, "\n".join(texts), grade_id)
                    pieces = [first, *pieces[most:]]
                    break
            else:
                found.append(first)
        return found

    def _drop_stubs(self, pieces: list[Piece]) -> list[Piece]:
        """Leave out copies of an empty answer cell beside an answer."""
        stubs = {e.id: cell_text.drop_comments(self._get_stub(e)) for e in self.lab.exercises}
        dropped = []
        for exercise in self.lab.exercises:
            answers = [p for p in pieces if is_answer(p, exercise)]
            empty = [p for p in answers if cell_text.drop_comments(p.text) == stubs[exercise.id]]
            if empty and len(empty) < len(answers):
                dropped += empty
                self.notes += [f"{p.label} is the empty answer cell of {exercise.id!r}, "
                               "which is answered elsewhere: left out" for p in empty]  # fmt: skip
            elif len({p.text for p in answers}) < len(answers):
                self.notes.append(f"the answer cell of {exercise.id!r} is there more than once")
        return [p for p in pieces if not any(p is d for d in dropped)]

    def _get_stub(self, exercise: ExerciseSpec) -> str:
        return next(g.text for g in self.lab.given if g.id == exercise.id)

    def _add_given(self, pieces: list[Piece]) -> list[Piece]:
        """Put the lab's own cells back that are not there: imports and the like."""
        defined = {n for p in pieces for n in cell_text.find_defined(p.text)}
        texts = {cell_text.drop_comments(p.text) for p in pieces}
        found = list(pieces)
        for k, given in enumerate(self.lab.given):
            there = cell_text.drop_comments(given.text) in texts
            if given.kind != "given" or there or (given.names and set(given.names) <= defined):
                continue
            followers = self.lab.given[k + 1 :]
            at = next((i for i, p in enumerate(found) if any(stands_for(p, f) for f in followers)),
                      len(found))  # fmt: skip
            first = given.text.strip().split("\n")[0][:60]
            self.notes.append(f"a cell of the lab was missing: put back ({first})")
            found.insert(at, Piece("a cell of the lab", given.text))
        return found

    def _find_place(self, exercise: ExerciseSpec, graded: GradedCell, pieces: list[Piece]) -> int:
        """Return after which piece the graded cell runs (-1 for before all)."""
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

    def _make_plan(self, pieces: list[Piece], places: dict[str, int]) -> Plan:
        code = Code.read((piece.label, piece.text) for piece in pieces)
        exercises = {e.id: e for e in self.lab.exercises}
        order = sorted(self.lab.graded.values(), key=lambda g: places[g.id])
        cells = [
            self._plan_graded(graded, exercises[graded.exercise], pieces, code, places[graded.id])
            for graded in order
        ]
        return Plan(tuple(cells), tuple(dict.fromkeys(self.notes)))

    def _plan_graded(
        self,
        graded: GradedCell,
        exercise: ExerciseSpec,
        pieces: list[Piece],
        code: Code,
        place: int,
    ) -> PlannedCell:
        answers = [k for k, p in enumerate(pieces) if is_answer(p, exercise)]
        if not answers:
            self.notes.append(f"no answer cell of {exercise.id!r} was found")
        visible = graded.visible if self.lab.rules.visible_checks else graded.asking
        needed = code.find_needed(exercise.functions, place)
        bound = {name for statement in needed for name in statement.binds}
        failed = self._find_failure(exercise, pieces, code, answers, bound)
        attached = ATTACHED.get(self.lab.name, {}).get(exercise.id)
        remarks = [] if attached else AnswerReader(self.lab, needed).read()
        parts = code.cut(needed)
        if attached:  # a file is judged: nothing of the learner's runs
            (name,) = exercise.functions
            parts = (Part("the file that was handed in", f"{name} = {attached!r}", (0,)),)
        return PlannedCell(
            id=graded.id,
            exercise=exercise.id,
            source=f"{graded.imports}\n{graded.inputs}\n{visible}",
            got=graded.got,
            functions=exercise.functions,
            parts=() if failed else parts,
            needs=tuple(
                e.id for e in self.lab.exercises if e.id != exercise.id and bound & set(e.functions)
            ),  # fmt: skip
            remarks=tuple(f"{code.labels[k]}, {said}" for k, said in remarks[:MAX_REMARKS]),
            failed=failed,
            answered=bool(answers),
        )

    def _find_failure(
        self, exercise: ExerciseSpec, pieces: list[Piece], code: Code, answers: list[int],
        bound: set[str],
    ) -> str:  # fmt: skip
        """Return why an exercise cannot be run: not written, or not to be parsed."""
        stub = cell_text.drop_comments(self._get_stub(exercise))
        if answers and all(cell_text.drop_comments(pieces[k].text) == stub for k in answers):
            return "NotImplementedError"
        missing = [name for name in exercise.functions if name not in bound]
        if not missing:
            return ""
        broken = [f"{code.labels[k]} raised {code.broken[k]}" for k in answers if k in code.broken]
        said = f" ({broken[-1]})" if broken else ""
        return f"NameError: name {missing[0]!r} is not defined{said}"


def is_answer(piece: Piece, exercise: ExerciseSpec) -> bool:
    """Return whether `piece` holds the answer to `exercise`: by its id, or by what it defines."""
    if piece.check:
        return False
    named = piece.grade_id == exercise.id and bool(piece.text.strip())
    if exercise.program:
        return named or is_program(piece.text)
    return named or bool(set(cell_text.find_defined(piece.text)) & set(exercise.functions))


def stands_for(piece: Piece, given: GivenCell) -> bool:
    if given.kind == "graded":
        return piece.check == given.id
    if piece.check:
        return False
    names = set(cell_text.find_defined(piece.text)) & set(given.names)
    return piece.grade_id == given.id or bool(names) or piece.text == given.text
