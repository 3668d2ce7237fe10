"""Marks and feedback in the forms that learning platforms take in; what waits stays blank.

Moodle: the grading worksheet (mod/assign/feedback/offline: `Identifier`, `Grade` and
`Last modified (grade)` must be there, a blank grade is passed over) and the zip of
feedback files (mod/assign/feedback/file: NAME_ID_assignsubmission_file/FILE). Canvas: the
gradebook's CSV (lib/gradebook_importer.rb), where a blank would take a mark away: who
waits is left out.
"""

import csv
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

from distlab.grading.report.text import to_cell, write_if_new
from distlab.grading.report.wording import show_points
from distlab.grading.results import ClassResult, Result
from distlab.grading.text import clean_line
from utils.files import replace_atomically

MOODLE_HEAD = ("Identifier", "Full name", "Email address", "Grade", "Maximum Grade",
               "Last modified (grade)", "Feedback comments")  # fmt: skip
CANVAS_HEAD = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
_ALL_ZIPS_TIME = (1980, 1, 1, 0, 0, 0)  # so that the same pages are the same zip


def write_for_platforms(found: ClassResult, folder: Path, pages: dict[str, str]) -> list[Path]:
    """Write what Moodle and Canvas take in, where their numbers are known; return the paths.

    `pages` are the feedback pages by student.
    """
    paths = []
    moodle = [(r, number) for r in found.results if (number := _find_number(found, r, "moodle"))]
    canvas = [(r, number) for r in found.results if (number := _find_number(found, r, "canvas"))]
    if moodle:
        paths += [folder / "moodle.csv", folder / "moodle-feedback.zip"]
        write_if_new(paths[0], make_moodle_csv(found, moodle))
        _write_feedback(found, moodle, pages, paths[1])
    if canvas:
        paths.append(folder / "canvas.csv")
        write_if_new(paths[-1], make_canvas_csv(found, canvas))
    return paths


_Numbered = Sequence[tuple[Result, str]]


def _find_number(found: ClassResult, result: Result, platform: str) -> str:
    """Return the platform's number of a student, from the list of students or the file's name."""
    known = found.roster.students.get(result.student)
    listed = getattr(known, platform) if known else ""
    owner = result.hand_in.owner
    return listed or (owner.number if owner.platform == platform else "")


def _find_name(found: ClassResult, result: Result) -> str:
    known = found.roster.students.get(result.student)
    return clean_line((known.name if known else "") or result.hand_in.owner.told or result.student)


def _to_csv(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([head, *rows])
    return stream.getvalue()


def make_moodle_csv(found: ClassResult, numbered: _Numbered) -> str:
    """Return the marks as Moodle's grading worksheet."""
    rows = []
    for result, number in numbered:
        student = found.roster.students.get(result.student)
        rows.append([
            f"Participant {number}", to_cell(_find_name(found, result)),
            to_cell(student.email) if student else "", show_points(result.mark),
            show_points(result.max), "-", _comment(result),
        ])  # fmt: skip
    return _to_csv(MOODLE_HEAD, rows)


def _comment(result: Result) -> str:
    """Return one line for each exercise, "" while something waits."""
    if result.for_human:
        return ""
    lines = (f"{e.id}: {show_points(e.points)} of {show_points(e.max)}"
             for e in result.verdict.exercises)  # fmt: skip
    late = [f"late: -{show_points(result.penalty)}"] if result.penalty else []
    return "; ".join([*lines, *late])


def make_canvas_csv(found: ClassResult, numbered: _Numbered) -> str:
    """Return the marks as Canvas imports a gradebook, in a column called like the lab."""
    most = max(result.max for result, _ in numbered)
    rows = [["    Points Possible", "", "", "", "", show_points(most)]]
    for result, number in numbered:
        if result.mark is not None:
            student = found.roster.students.get(result.student)
            login, section = (student.id, student.section) if student else ("", "")
            rows.append([to_cell(_find_name(found, result)), number, "", to_cell(login),
                         to_cell(section), show_points(result.mark)])  # fmt: skip
    return _to_csv((*CANVAS_HEAD, found.lab.title), rows)


def _write_feedback(
    found: ClassResult, numbered: _Numbered, pages: dict[str, str], path: Path
) -> None:
    """Write the feedback pages as the zip that Moodle hands out to each student."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for result, number in numbered:
            name = _find_name(found, result).replace("_", " ").replace("/", " ")
            place = f"{name}_{number}_assignsubmission_file/{found.lab.name}-feedback.html"
            archive.writestr(zipfile.ZipInfo(place, _ALL_ZIPS_TIME), pages[result.student],
                             zipfile.ZIP_DEFLATED)  # fmt: skip
    if not path.is_file() or path.read_bytes() != stream.getvalue():
        with replace_atomically(path) as file:
            file.write(stream.getvalue())
