"""The rows of one lab in nbgrader's tables: found, or made as nbgrader makes them.

https://nbgrader.readthedocs.io/en/stable/api/models.html
"""

import json
from collections.abc import Mapping
from typing import Any

from distlab.errors import CourseError
from distlab.grading.labs import ExerciseSpec, LabSpec
from distlab.grading.roster import Roster
from utils.checks import list_few

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


class Rows:
    """Finds and makes rows in the session `db`; nothing is committed here."""

    def __init__(self, db: Any, lab: LabSpec, weights: Mapping[str, float]) -> None:
        self._db, self.lab, self.weights = db, lab, weights
        self._submissions: dict[str, Any] | None = None

    def weigh(self, points: float, exercise: ExerciseSpec) -> float:
        """Return what `points` of `exercise` count in this course."""
        return points * self.weights.get(exercise.id, 1.0)

    def find_notebook(self) -> Any:
        t = _tables()
        names = [self.lab.name, self.lab.slug]
        query = self._db.query(t.Notebook).join(
            t.Assignment, t.Assignment.id == t.Notebook.assignment_id
        )
        found = query.filter(t.Assignment.name.in_(names), t.Notebook.name == self.lab.slug)
        return found.first()

    def find_open(self) -> set[str]:
        """Return the ids of the submissions, of any lab, with a grade that has no score."""
        t = _tables()
        query = self._db.query(t.SubmittedNotebook.assignment_id).join(
            t.Grade, t.Grade.notebook_id == t.SubmittedNotebook.id
        )
        unset = (t.Grade.auto_score, t.Grade.manual_score, t.Grade.extra_credit)
        return {row[0] for row in query.filter(*(column.is_(None) for column in unset)).distinct()}

    def name_students(self, roster: Roster) -> None:
        """Give the students of the book the names and addresses of the roster."""
        for student in self._db.query(_tables().Student):
            if (known := roster.students.get(student.id)) and known.name:
                student.first_name, _, student.last_name = known.name.rpartition(" ")
                student.email = known.email or student.email

    def ensure_notebook(self) -> Any:
        t = _tables()
        notebook = self.find_notebook()
        if notebook is None:
            names = [self.lab.name, self.lab.slug]
            assignment = self._db.query(t.Assignment).filter(t.Assignment.name.in_(names)).first()
            if assignment is None:
                assignment = t.Assignment(name=self.lab.name)
                self._db.add(assignment)
            notebook = t.Notebook(
                name=self.lab.slug, assignment=assignment, kernelspec=json.dumps(KERNELSPEC)
            )
            self._db.add(notebook)
        self._ensure_cells(notebook)
        return notebook

    def _ensure_cells(self, notebook: Any) -> None:
        t = _tables()
        graded = {cell.name: cell for cell in notebook.grade_cells}
        solutions = {cell.name for cell in notebook.solution_cells}
        unknown = set(graded) - set(self.lab.graded)
        if unknown:
            raise CourseError(
                f"The gradebook must have the graded cells of this {self.lab.name}, got "
                f"{list_few(sorted(unknown))}. For another version of the lab, choose a new "
                "--gradebook."
            )
        for exercise in self.lab.exercises:
            if exercise.id not in solutions:
                self._db.add(t.SolutionCell(name=exercise.id, notebook=notebook))
            for cell in exercise.cells:
                row = graded.get(cell.id) or t.GradeCell(name=cell.id, notebook=notebook)
                row.max_score, row.cell_type = self.weigh(cell.points, exercise), "code"
                self._db.add(row)
        self._ensure_sources(notebook)
        self._db.flush()
        self._db.expire(notebook)

    def _ensure_sources(self, notebook: Any) -> None:
        """nbgrader keeps the text of every graded and solution cell; it compares them."""
        t = _tables()
        known = {cell.name for cell in notebook.source_cells}
        for cell in self.lab.given:
            if cell.kind != "given" and cell.id not in known:
                row = t.SourceCell(
                    name=cell.id,
                    notebook=notebook,
                    cell_type="code",
                    source=cell.text,
                    locked=cell.kind == "graded",
                )
                self._db.add(row)

    def ensure_submission(self, student: str, notebook: Any) -> Any:
        """Return the submitted notebook of a student, with all of its rows."""
        t = _tables()
        submission = self._find_submissions(notebook).get(student)
        if submission is None:
            if self._db.get(t.Student, student) is None:
                self._db.add(t.Student(id=student))
            submission = t.SubmittedAssignment(assignment=notebook.assignment, student_id=student)
            self._db.add(submission)
            self._submissions[student] = submission
        submitted = next((s for s in submission.notebooks if s.notebook is notebook), None)
        if submitted is None:
            submitted = t.SubmittedNotebook(notebook=notebook, assignment=submission)
            self._db.add(submitted)
        for exercise in self.lab.exercises:
            self.ensure_comment(submitted, exercise.id)
            for cell in exercise.cells:
                self.ensure_grade(submitted, cell.id)
        return submitted

    def remove(self, student: str) -> bool:
        """Remove the submission of a student, who goes too if it was the only one."""
        notebook = self.find_notebook()
        submission = self._find_submissions(notebook).pop(student, None) if notebook else None
        if submission is None:
            return False
        owner = submission.student
        self._db.delete(submission)
        self._db.flush()
        self._db.expire(owner)
        if not owner.submissions:
            self._db.delete(owner)
            self._db.flush()
        return True

    def _find_submissions(self, notebook: Any) -> dict[str, Any]:
        """Return the submissions of the lab by student: read once."""
        if self._submissions is None:
            self._submissions = {s.student_id: s for s in notebook.assignment.submissions}
        return self._submissions

    def ensure_grade(self, submitted: Any, name: str) -> Any:
        cells = submitted.notebook.grade_cells
        return self._ensure(_tables().Grade, cells, submitted, submitted.grades, name)

    def ensure_comment(self, submitted: Any, name: str) -> Any:
        cells = submitted.notebook.solution_cells
        return self._ensure(_tables().Comment, cells, submitted, submitted.comments, name)

    def _ensure(self, table: Any, cells: Any, submitted: Any, rows: Any, name: str) -> Any:
        """Return the row of `table` for a submitted notebook's cell, made if there is none."""
        (cell,) = (c for c in cells if c.name == name)
        row = next((row for row in rows if row.cell is cell), None)
        if row is None:
            row = table(cell=cell, notebook=submitted)
            self._db.add(row)
        return row


def _tables() -> Any:
    import nbgrader.api

    return nbgrader.api
