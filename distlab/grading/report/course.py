"""The whole course in one table: every student's mark in every lab, and the weighted mean."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from distlab.grading.report.text import to_cell
from utils.files import write_atomically

Course = Mapping[str, Mapping[str, tuple[float, float]]]  # student -> lab -> (mark, most)


def list_labs(course: Course) -> list[str]:
    """Return the labs that the gradebook holds, by name."""
    return sorted({lab for marks in course.values() for lab in marks})


def find_percent(course: Course, student: str, weights: Mapping[str, float]) -> float:
    """Return a student's weighted percentage; a lab that was not handed in counts as 0."""
    most = {lab: m for marks in course.values() for lab, (_, m) in marks.items()}
    total = sum(weight for lab, weight in weights.items() if most.get(lab))
    got = course[student].items()
    share = sum(weights[lab] * mark / m for lab, (mark, m) in got if m)
    return 100 * share / total if total else 0.0


def write_course(path: Path, course: Course, weights: Mapping[str, float]) -> None:
    """Write the table of all labs in the gradebook as CSV."""
    labs, stream = list_labs(course), io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(["student", *labs, "percent"])
    for student, marks in sorted(course.items()):
        got = [f"{marks[lab][0]:g}" if lab in marks else "" for lab in labs]
        percent = find_percent(course, student, weights)
        table.writerow([to_cell(student), *got, f"{percent:.1f}"])
    write_atomically(path, stream.getvalue())
