"""Marks and feedback in the forms that learning platforms take in; what waits stays blank.

Moodle: the grading worksheet (mod/assign/feedback/offline: `Identifier`, `Grade` and
`Last modified (grade)` must be there, a blank grade is passed over) and the zip of
feedback files (mod/assign/feedback/file: NAME_ID_assignsubmission_file/FILE). Canvas: the
gradebook's CSV (lib/gradebook_importer.rb), where a blank would take a mark away: who
waits is left out. If the list of students is the platform's own table, that table is filled
in and given back: the same rows in the same order and encoding, points on its own scale.
"""

import io
import re
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from distlab.grading.report.text import to_cell, to_csv, write_if_new
from distlab.grading.report.wording import show_points
from distlab.grading.results import ClassResult, Result
from distlab.grading.roster import PlatformTable
from distlab.grading.text import clean_line

MOODLE_HEAD = (
    "Identifier",
    "Full name",
    "Email address",
    "Grade",
    "Maximum Grade",
    "Last modified (grade)",
    "Feedback comments",
)
CANVAS_HEAD = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
_ALL_ZIPS_TIME = (1980, 1, 1, 0, 0, 0)  # so that the same pages are the same zip


def write_for_platforms(found: ClassResult, folder: Path, pages: dict[str, str]) -> list[Path]:
    """Write what Moodle and Canvas take in, where their numbers are known; return the paths.

    `pages` are the feedback pages by student.
    """
    paths = []
    moodle = [(r, number) for r in found.results if (number := _find_number(found, r, "moodle"))]
    canvas = [(r, number) for r in found.results if (number := _find_number(found, r, "canvas"))]
    sheet = found.roster.sheet
    if moodle:
        paths += [folder / "moodle.csv", folder / "moodle-feedback.zip"]
        filled = fill_worksheet(found, sheet) if sheet else None
        write_if_new(paths[0], filled or make_moodle_csv(found, moodle))
        _write_feedback(found, moodle, pages, paths[1])
    if canvas:
        paths.append(folder / "canvas.csv")
        filled = fill_canvas(found, sheet) if sheet else None
        write_if_new(paths[-1], filled or make_canvas_csv(found, canvas))
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


_GRADE, _MOST = ("grade", "bewertung", "note"), ("maximum grade", "bestwertung", "note maximale")
_COMMENT = ("feedback comments", "feedback als kommentar", "feedback par commentaires")


def fill_worksheet(found: ClassResult, sheet: PlatformTable) -> bytes | None:
    """Return Moodle's worksheet with grades on its own scale; None if `sheet` isn't one."""
    grade, most = sheet.find(*_GRADE), sheet.find(*_MOST)
    if grade is None or most is None:
        return None
    comment = sheet.find(*_COMMENT)
    by_student = {result.student: result for result in found.results}
    rows = [list(row) for row in sheet.rows]
    for row, owner in zip(rows, sheet.owners, strict=True):
        result = by_student.get(owner or "")
        row[grade] = _scale(found, owner, result, row[most])
        if comment is not None and result is not None:
            row[comment] = _comment(result)
    return _encode(sheet, rows)


def fill_canvas(found: ClassResult, sheet: PlatformTable) -> bytes | None:
    """Return Canvas's gradebook with the lab's column only; None if `sheet` isn't one.

    Whoever has no mark keeps what Canvas has already: a blank would take it away.
    """
    section = sheet.find("section")
    if section is None or sheet.find("id") is None:
        return None
    lab = found.lab
    names = (lab.title.lower(), lab.name.lower(), lab.slug.lower())
    stems = [re.sub(r" \(\d+\)$", "", name).lower() for name in sheet.head]
    place = next((k for k, stem in enumerate(stems) if k > section and stem in names), None)
    head = [*sheet.head[: section + 1], lab.title if place is None else sheet.head[place]]
    by_student = {result.student: result for result in found.results}
    most = max((result.max for result in found.results), default=0.0)
    rows, total = [], ""
    for row, owner in zip(sheet.rows, sheet.owners, strict=True):
        before = row[place] if place is not None and len(row) > place else ""
        if owner is None and "points possible" in row[0].lower():
            before = total = before or show_points(most)
        mark = _scale(found, owner, by_student.get(owner or ""), total) if owner else ""
        rows.append([*row[: section + 1], mark or before])
    return _encode(replace(sheet, head=tuple(head)), rows)


def _scale(found: ClassResult, owner: str | None, result: Result | None, most: str) -> str:
    """Return a mark on the platform's scale, with its decimal sign; "" while there is none."""
    mark = found.policy.absent if result is None and owner in found.absent else None
    if result is not None and result.mark is not None:
        try:
            mark = result.mark * float(most.replace(",", ".")) / result.max
        except (ValueError, ZeroDivisionError):
            mark = result.mark
    text = show_points(mark if mark is None else round(mark, 2))
    return text.replace(".", ",") if "," in most else text


def _encode(sheet: PlatformTable, rows: Sequence[Sequence[str]]) -> bytes:
    text = to_csv([sheet.head, *rows], sheet.delimiter)
    return text.encode(sheet.encoding, errors="replace")


def make_moodle_csv(found: ClassResult, numbered: _Numbered) -> str:
    """Return the marks as Moodle's grading worksheet."""
    rows = []
    for result, number in numbered:
        student = found.roster.students.get(result.student)
        rows.append(
            [
                f"Participant {number}",
                to_cell(_find_name(found, result)),
                to_cell(student.email) if student else "",
                show_points(result.mark),
                show_points(result.max),
                "-",
                _comment(result),
            ]
        )
    return to_csv([MOODLE_HEAD, *rows])


def _comment(result: Result) -> str:
    """Return one line for each exercise, "" while something waits."""
    if result.for_human:
        return ""
    lines = (
        f"{e.id}: {show_points(e.points)} of {show_points(e.max)}" for e in result.verdict.exercises
    )
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
            rows.append(
                [
                    to_cell(_find_name(found, result)),
                    number,
                    "",
                    to_cell(login),
                    to_cell(section),
                    show_points(result.mark),
                ]
            )
    return to_csv([(*CANVAS_HEAD, found.lab.title), *rows])


def _write_feedback(
    found: ClassResult, numbered: _Numbered, pages: dict[str, str], path: Path
) -> None:
    """Write the feedback pages as the zip that Moodle hands out to each student."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for result, number in numbered:
            name = _find_name(found, result).replace("_", " ").replace("/", " ")
            place = f"{name}_{number}_assignsubmission_file/{found.lab.name}-feedback.html"
            archive.writestr(
                zipfile.ZipInfo(place, _ALL_ZIPS_TIME), pages[result.student], zipfile.ZIP_DEFLATED
            )
    write_if_new(path, stream.getvalue())
