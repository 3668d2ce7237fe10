"""The whole course in one table: every student's mark in every lab, and the weighted mean."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from distlab.grading.report.text import to_cell
from distlab.grading.report.wording import show_points
from distlab.grading.results import Course
from distlab.grading.roster import Roster
from utils.files import write_atomically


def list_labs(course: Course) -> list[str]:
    """Return the labs that the gradebook holds, by name."""
    return sorted({lab for marks in course.values() for lab in marks})


def find_percent(course: Course, student: str, weights: Mapping[str, float]) -> float | None:
    """Return a student's weighted percentage; None where nothing counts yet.

    A lab that was not handed in counts as 0; one that waits for a human does not count.
    """
    most = {lab: m for marks in course.values() for lab, (_, m) in marks.items()}
    mine = course.get(student, {})
    waits = {lab for lab, (mark, _) in mine.items() if mark is None}
    total = sum(w for lab, w in weights.items() if most.get(lab) and lab not in waits)
    share = sum(
        weights[lab] * mark / m for lab, (mark, m) in mine.items() if m and mark is not None
    )
    return 100 * share / total if total else None


def write_course(
    path: Path, course: Course, weights: Mapping[str, float], roster: Roster | None = None
) -> None:
    """Write the table of all labs in the gradebook as CSV; what waits for a human is blank."""
    labs, stream, roster = list_labs(course), io.StringIO(), roster or Roster()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(["student", "name", *labs, "percent", "waiting"])
    for student in sorted({*course, *roster.ids}):
        marks = course.get(student, {})
        got = [show_points(marks[lab][0]) if lab in marks else "" for lab in labs]
        percent = find_percent(course, student, weights)
        waits = " ".join(lab for lab in labs if lab in marks and marks[lab][0] is None)
        table.writerow([to_cell(student), to_cell(roster.show(student)), *got,
                        "" if percent is None else f"{percent:.1f}", waits])  # fmt: skip
    write_atomically(path, stream.getvalue())
