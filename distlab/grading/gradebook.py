"""nbgrader's own gradebook.db, written as nbgrader writes it, in one transaction.

Automatic scores never touch a score or a comment that a human has set, in formgrader
or with `distlab grade --set`: nbgrader keeps the two in separate columns.
https://nbgrader.readthedocs.io/en/stable/api/gradebook.html
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from distlab.errors import CourseError
from distlab.grading.gradebook_rows import Rows
from distlab.grading.journal import hold_lock
from distlab.grading.labs import ExerciseSpec, LabSpec
from distlab.grading.roster import ByHand, Roster
from distlab.grading.verdict import ExerciseVerdict, Verdict
from utils.checks import check_choice

WAIT_SECONDS = 60.0
_REASONS = {
    "is locked": "another program has it open. No mark was changed. Close that program "
    "(formgrader, a database viewer) and repeat the command",
    "disk is full": "the disk is full. No mark was changed. Make room and repeat the command",
}


@dataclass(frozen=True)
class Entry:
    """The booking for one student. `penalty` is in points, times are UTC without a zone."""

    verdict: Verdict
    timestamp: datetime | None = None
    extra: timedelta = field(default_factory=timedelta)
    penalty: float = 0.0


class Book:
    """An open gradebook: everything done within `with` is kept together, or nothing of it.

    Raises CourseError for a file that isn't a gradebook, or if another program holds it.
    """

    def __init__(
        self, path: Path, lab: LabSpec, weights: Mapping[str, float] | None = None
    ) -> None:
        self.path, self.lab, self.weights = path, lab, weights or {}

    def __enter__(self) -> "Book":
        busy = f"{self.path}: another program writes to it: try again when it has ended"
        with ExitStack() as stack:
            stack.enter_context(hold_lock(_lock_path(self.path), busy, WAIT_SECONDS))
            stack.enter_context(_told_plainly(self.path))
            self._open()
            stack.callback(self._gradebook.close)
            stack.push(lambda kind, *_: (self._db.rollback if kind else self._db.commit)())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists() or self.path.is_file() and self.path.stat().st_size == 0:
            _create(self.path)
        self._gradebook = _connect(self.path)
        self._db: Any = self._gradebook.db
        self._rows = Rows(self._db, self.lab, self.weights)
        notebook = self._rows.find_notebook()  # fails here if it isn't a gradebook
        self.is_new = notebook is None or not notebook.submissions

    @property
    def most(self) -> dict[str, float]:
        """The points that each exercise counts in this course."""
        return {e.id: self._rows.weigh(e.points, e) for e in self.lab.exercises}

    # -- reading

    def _list_submitted(self) -> Any:
        notebook = self._rows.find_notebook()
        return notebook.submissions if notebook is not None else ()

    def read_manual(self) -> dict[str, dict[str, float]]:
        """Return the points that a human has set: student -> exercise -> points.

        An exercise counts as set if one of its graded cells is; the others count as they are.
        """
        found: dict[str, dict[str, float]] = {}
        for submitted in self._list_submitted():
            grades = {grade.name: grade for grade in submitted.grades}
            for exercise in self.lab.exercises:
                mine = [grades[c.id] for c in exercise.cells if c.id in grades]
                if any(_is_manual(grade) for grade in mine):
                    points = sum(_find_score(grade) for grade in mine)
                    found.setdefault(submitted.student.id, {})[exercise.id] = points
        return found

    def read_scored(self) -> set[str]:
        """Return the students who have automatic points in this lab."""
        return {
            s.student.id
            for s in self._list_submitted()
            if any(grade.auto_score for grade in s.grades)
        }

    def read_reasons(self) -> dict[str, dict[str, str]]:
        """Return what humans said of exercises: student -> exercise -> words."""
        found: dict[str, dict[str, str]] = {}
        for submitted in self._list_submitted():
            for comment in submitted.comments:
                if comment.manual_comment:
                    mine = found.setdefault(submitted.student.id, {})
                    mine[comment.name] = comment.manual_comment
        return found

    def read_course(self) -> dict[str, dict[str, tuple[float | None, float]]]:
        """Return every mark in the book: student -> assignment -> (mark less penalty, most).

        The mark is None where an exercise of it waits for a human.
        """
        found: dict[str, dict[str, tuple[float | None, float]]] = {}
        open_ones = self._rows.find_open()
        for assignment in self._gradebook.assignments:
            for submitted in assignment.submissions:
                mark = max(0.0, submitted.score - (submitted.late_submission_penalty or 0.0))
                waits = submitted.id in open_ones
                marks = found.setdefault(submitted.student.id, {})
                marks[assignment.name] = (None if waits else mark, assignment.max_score)
        return found

    # -- writing

    def set_points(self, student: str, by_hand: ByHand, above: bool = False) -> None:
        """Set a mark by hand, which no grading changes.

        Raises CourseError for more points than there are, unless `above` allows it.
        """
        exercise, points = _find_exercise(self.lab, by_hand.exercise), by_hand.points
        most = self._rows.weigh(exercise.points, exercise)
        if points is not None and points > most and not above:
            raise CourseError(
                f"{student}, {exercise.id}: the mark must be at most {most:g} points, got "
                f"{points:g}. Add --allow-bonus to give more."
            )
        notebook = self._rows.ensure_submission(student, self._rows.ensure_notebook())
        left, (*others, _) = points, exercise.cells
        for cell in exercise.cells:
            grade = self._rows.ensure_grade(notebook, cell.id)
            most = self._rows.weigh(cell.points, exercise)
            share = min(left, most) if left is not None and cell in others else left
            grade.manual_score, grade.extra_credit = share, None
            grade.needs_manual_grade = share is None and grade.auto_score is None
            left = None if left is None or share is None else left - share
        comment = self._rows.ensure_comment(notebook, exercise.id)
        comment.manual_comment = by_hand.reason or (
            None if points is None else comment.manual_comment
        )
        self._db.flush()

    def write(
        self,
        entries: Sequence[Entry],
        due: datetime | None = None,
        waiting: Sequence[str] = (),
        roster: Roster | None = None,
    ) -> None:
        """Book the marks of `entries`: scores, comments, times, extensions, late penalties.

        `waiting` have a submission, and no mark yet. formgrader shows the roster's names.
        """
        notebook = self._rows.ensure_notebook()
        if due is not None:
            notebook.assignment.duedate = due
        for entry in entries:
            self._write_entry(entry, notebook)
        for student in waiting:
            for grade in self._rows.ensure_submission(student, notebook).grades:
                grade.needs_manual_grade = grade.auto_score is None and not _is_manual(grade)
        self._rows.name_students(roster or Roster())
        self._db.flush()

    def remove(self, student: str) -> None:
        """Remove a student's marks of this lab, and the student if no other lab has any.

        Raises CourseError if there are none.
        """
        if not self._rows.remove(student):
            raise CourseError(
                f"{student!r} has no marks of {self.lab.name} in the gradebook, so nothing was "
                "removed."
            )

    def _write_entry(self, entry: Entry, notebook: Any) -> None:
        submitted = self._rows.ensure_submission(entry.verdict.student, notebook)
        submitted.assignment.timestamp = entry.timestamp
        known = notebook.assignment.duedate is not None  # nbgrader adds the one to the other
        submitted.assignment.extension = entry.extra or None if known else None
        submitted.late_submission_penalty = entry.penalty or None
        said = {verdict.id: verdict for verdict in entry.verdict.exercises}
        for exercise in self.lab.exercises:
            if verdict := said.get(exercise.id):
                self._write_exercise(submitted, exercise, verdict)

    def _write_exercise(
        self, submitted: Any, exercise: ExerciseSpec, verdict: ExerciseVerdict
    ) -> None:
        left = verdict.points
        for cell in exercise.cells:
            grade, share = self._rows.ensure_grade(submitted, cell.id), min(left, cell.points)
            before, left = grade.auto_score, left - share
            by_human = verdict.status == "for a human"
            grade.auto_score = None if by_human else self._rows.weigh(share, exercise)
            changed = grade.auto_score != before
            if not _is_manual(grade):
                grade.needs_manual_grade = by_human
            elif before is not None and changed:
                grade.needs_manual_grade = True  # formgrader asks whether it still holds
        self._rows.ensure_comment(submitted, exercise.id).auto_comment = to_comment(verdict.message)


def _find_exercise(lab: LabSpec, name: str) -> ExerciseSpec:
    by_number = {str(exercise.number): exercise for exercise in lab.exercises}
    by_id = {exercise.id: exercise for exercise in lab.exercises}
    return by_number.get(name) or by_id[check_choice(f"An exercise of {lab.name}", name, by_id)]


def _connect(path: Path) -> Any:
    from nbgrader.api import Gradebook
    from sqlalchemy import URL

    place = URL.create("sqlite", database=str(path), query={"timeout": f"{WAIT_SECONDS:g}"})
    return Gradebook(place)


def _create(path: Path) -> None:
    """Make an empty gradebook next to `path` and move it there: all of its tables, or none."""
    partial = path.with_name(path.name + ".part")
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(partial)) as tables, tables:
        # else nbgrader starts a program to ask for the version, which takes seconds
        tables.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        tables.execute("INSERT INTO alembic_version VALUES (?)", [_find_version()])
    gradebook = _connect(partial)
    gradebook.close()
    gradebook.engine.dispose()
    partial.replace(path)


def _find_version() -> str:
    """Return the version of nbgrader's tables: the last of its migrations."""
    import nbgrader
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(Path(nbgrader.__file__).parent / "alembic")).get_current_head()


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _is_manual(grade: Any) -> bool:
    return grade.manual_score is not None or grade.extra_credit is not None


def _find_score(grade: Any) -> float:
    base = grade.auto_score if grade.manual_score is None else grade.manual_score
    return (base or 0.0) + (grade.extra_credit or 0.0)


def to_comment(message: str) -> str | None:
    """Return a message as nbgrader may show it: its pages render comments as Markdown with HTML.

    So it becomes an indented block, without the signs that make a tag.
    """
    plain = message.replace("&", "＆").replace("<", "‹").replace(">", "›").replace("$", "＄")
    return "\n".join("    " + line for line in plain.splitlines()) or None


@contextmanager
def _told_plainly(path: Path) -> Iterator[None]:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        what = next(
            (said for word, said in _REASONS.items() if word in reason),
            f"can't be used as a gradebook ({reason})",
        )
        raise CourseError(f"{path}: {what}") from None
