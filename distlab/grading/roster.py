"""Read tables of students: `students.csv`, lists of times, of marks.

A table has a head line. Its columns may be called as here or as Moodle (in English, German
or French) and Canvas export them: a list of participants, a grading worksheet, a gradebook.

    student,name,email,moodle,canvas,section
    ana,Ana Alt,ana@example.org,400100,501,Monday

`moodle` and `canvas` are the platform's own numbers. Only `student` is needed.
"""

import csv
import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from distlab.errors import CourseError
from distlab.grading.naming import Owner, clean_name, parse_time

Row = tuple[int, dict[str, str]]  # line, and cells by their column's name in lower case
# The first column of each list that has a text counts.
_COLUMNS = {
    "id": (
        "student",
        "username",
        "anmeldename",
        "nom d'utilisateur",
        "sis login id",
        "sis user id",
        "id number",
        "id-nummer",
        "numéro d'identification",
        "email",
        "email address",
        "e-mail-adresse",
        "e-mail",
        "adresse de courriel",
        "full name",
        "vollständiger name",
        "nom complet",
        "name",
        "identifier",
    ),
    "name": ("name", "full name", "vollständiger name", "nom complet"),
    "first": ("first name", "vorname", "prénom"),
    "last": ("surname", "last name", "nachname", "nom de famille", "nom"),
    "email": ("email", "email address", "e-mail-adresse", "e-mail", "adresse de courriel"),
    "moodle": ("moodle", "identifier", "identifiant"),
    "canvas": ("canvas", "id"),
    "section": ("section", "group", "groups", "gruppen", "groupes"),
    "time": ("handed_in", "handed_in_utc", "time", "last modified (submission)", "submitted at"),
}
_LETTERS = str.maketrans("łøđðıħ", "loddih")  # letters that Unicode doesn't take apart


@dataclass(frozen=True)
class ByHand:
    """A mark that a human sets: an exercise's id or number, its points (None: the automatic
    mark counts again), and why.
    """

    exercise: str
    points: float | None
    reason: str = ""


@dataclass(frozen=True)
class Student:
    """One student: `id` is what the gradebook calls them."""

    id: str
    name: str = ""
    email: str = ""
    moodle: str = ""
    canvas: str = ""
    section: str = ""

    @property
    def is_named(self) -> bool:
        """True if the list tells more of the student than numbers."""
        return bool(self.name or self.email)

    def is_called(self, name: str, fold: bool = True) -> bool:
        """Return True if `name` is the id, the name in any order, or the address.

        With `fold`, accents don't count.
        """
        squash = _fold if fold else _squash
        words = [word for word in re.split(r"[\s,]+", self.name) if word]
        turned = {squash("".join(words[k:] + words[:k])) for k in range(len(words))}
        own = {squash(self.id), squash(self.email.partition("@")[0]), *turned} - {""}
        return name == self.id or squash(name) in own


class Match(NamedTuple):
    """Whom a file's owner means: a student's id (None if not one), and what to ask a human.

    `by_name_only` says that the platform's number was another one than the list has.
    """

    student: str | None
    question: str = ""
    by_name_only: bool = False


@dataclass(frozen=True)
class PlatformTable:
    """A platform's own table as it was downloaded, to be filled in and given back."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    owners: tuple[str | None, ...]  # of each row; None for a row of the platform's own
    delimiter: str = ","
    encoding: str = "utf-8"

    def find(self, *names: str) -> int | None:
        """Return the number of the column with one of `names` (in lower case)."""
        head = [name.strip().lower() for name in self.head]
        return next((head.index(name) for name in names if name in head), None)


@dataclass(frozen=True)
class Roster:
    """The students of a course, by id; empty without a list."""

    students: Mapping[str, Student] = field(default_factory=dict)
    sheet: PlatformTable | None = None

    @property
    def ids(self) -> Iterable[str]:
        return self.students

    def find(self, owner: Owner) -> str | None:
        """Return the id of the student whom `owner` means, None if that isn't certain."""
        found = self.match(owner)
        return None if found.question else found.student

    def match(self, owner: Owner, taken: Container[str] = ()) -> Match:
        """Return whom the name means. A number only counts if it means the same student.

        `taken` are the platform's numbers of other files.
        """
        listed = [
            s
            for s in self.students.values()
            if owner.number and owner.platform and getattr(s, owner.platform, None) == owner.number
        ]
        called = self._find_called(owner.told)
        if listed and (listed[0] in called or _is_code(owner.told) or not listed[0].is_named):
            return Match(listed[0].id)
        if listed:
            other = (
                f"and {called[0].id} by its name" if len(called) == 1 else "but its name is another"
            )
            said = f"{owner.source!r} is {listed[0].id} by its number, {other}: whose is it?"
            return Match(called[0].id if len(called) == 1 else None, said)
        if len(called) != 1:
            return Match(None)
        number = getattr(called[0], owner.platform, "")
        differs = bool(owner.number and number not in ("", owner.number))
        if differs and number in taken:  # a namesake
            return Match(None)
        return Match(called[0].id, by_name_only=differs)

    def _find_called(self, name: str) -> list[Student]:
        """Return the students of a name: by id, else letter by letter, else without accents."""
        if name in self.students:
            return [self.students[name]]
        exact = [s for s in self.students.values() if s.is_called(name, fold=False)]
        return exact or [s for s in self.students.values() if s.is_called(name)]

    @cached_property
    def _namesakes(self) -> Counter[str]:
        return Counter(_fold(s.name) for s in self.students.values())

    def show(self, student: str) -> str:
        """Return the student's name (with the id if two share it), or the id without a name."""
        known = self.students.get(student)
        if not known or not known.name:
            return student
        return f"{known.name} ({student})" if self._namesakes[_fold(known.name)] > 1 else known.name


def _is_code(told: str) -> bool:
    """Return True if the platform has no names: blind marking."""
    return told == "Participant" or told.startswith("anon_")


def _squash(name: str) -> str:
    """Return what is left of a name without case, spaces and signs (Canvas writes `altana`)."""
    text = unicodedata.normalize("NFC", name).casefold()
    return "".join(c for c in text if unicodedata.category(c)[0] in "LMN")


def _fold(name: str) -> str:
    """Return `_squash`'s text without accents."""
    plain = unicodedata.normalize("NFKD", _squash(name).translate(_LETTERS))
    return "".join(c for c in plain if unicodedata.category(c)[0] != "M")


def decode(data: bytes) -> tuple[str, str]:
    """Return the text of a table and its encoding: UTF-8, with or without a mark, or Excel's.

    Raises ValueError for any other encoding.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16"), "utf-16"
    for encoding in ("utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8", "cp1252"):
        try:
            return data.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    raise ValueError("it must be UTF-8 or Windows text. Save it as CSV UTF-8")


def _open_table(path: Path) -> tuple[list[str], int, str, str]:
    """Return a CSV's lines, how many of them Excel put before the head, delimiter, encoding."""
    try:
        text, encoding = decode(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CourseError(f"{path} can't be read ({error}).") from None
    lines = text.splitlines(True)
    skipped = int(bool(lines) and lines[0].lower().startswith("sep="))
    head = lines[skipped] if len(lines) > skipped else ""
    return lines[skipped:], skipped, max(",;\t", key=head.count), encoding


def read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each row of a CSV that isn't blank, with its line; CourseError if it can't be read."""
    lines, skipped, delimiter, _ = _open_table(path)
    rows = csv.reader(lines, delimiter=delimiter)
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield rows.line_num + skipped, cells
    except csv.Error as error:
        raise CourseError(f"{path}, line {rows.line_num + skipped}: {error}") from None


def read_table(path: Path, *wanted: str) -> Iterator[Row]:
    """Yield each row below the head with its line; `wanted` are columns that must be there."""
    rows = read_rows(path)
    head = [name.lower() for name in next(rows, (0, []))[1]]
    if missing := [name for name in wanted if name not in head]:
        raise CourseError(f"{path} must have a column {missing[0]!r}, got {', '.join(head)}.")
    for line, cells in rows:
        if any(cells[: len(head)]):
            yield line, dict(zip(head, cells, strict=False))


def _read_sheet(path: Path) -> PlatformTable:
    lines, _, delimiter, encoding = _open_table(path)
    head, *rows = [tuple(row) for row in csv.reader(lines, delimiter=delimiter) if any(row)]
    names = [name.strip().lower() for name in head]
    students = [
        _read_student(dict(zip(names, (c.strip() for c in row), strict=False))) for row in rows
    ]
    owners = tuple(student and student.id for student in students)
    return PlatformTable(head, tuple(rows), owners, delimiter, encoding)


def _pick(cells: Mapping[str, str], what: str) -> str:
    return next((cells[name] for name in _COLUMNS[what] if cells.get(name)), "")


def _read_student(cells: dict[str, str]) -> Student | None:
    """Return the student of a row, None for a row of the platform's own."""
    if "section" in cells and "id" in cells:  # a gradebook of Canvas: `student` is the name
        if re.match(r"points possible|student, test$", cells.get("student", ""), re.IGNORECASE):
            return None
        cells = {**cells, "name": cells.get("student", ""), "student": ""}
        cells["student"] = _pick(cells, "id") if cells.get("sis login id") else cells["id"]
    given = cells.get("id", "") if "vollständiger name" in cells else ""  # a German worksheet
    moodle = re.sub(r"\D", "", _pick(cells, "moodle") or given)
    parts = (_pick(cells, "first"), _pick(cells, "last"))
    name = _pick(cells, "name") or " ".join(part for part in parts if part)
    canvas = "" if given else _pick(cells, "canvas")
    return Student(
        clean_name(_pick(cells, "id") or name),
        name,
        _pick(cells, "email"),
        moodle,
        canvas,
        _pick(cells, "section"),
    )


def read_roster(path: Path | None) -> Roster:
    """Return the students of a CSV (none if `path` is None); CourseError if it is bad."""
    found: dict[str, Student] = {}
    for line, cells in read_table(path) if path else ():
        student = _read_student(cells)
        if student is None:
            continue
        if student.id == "(no name)":
            needed = "student, username, ID number, email, or a name"
            raise CourseError(
                f"{path}, line {line} must name a student in a column {needed}, got the columns "
                f"{', '.join(cells)}."
            )
        if student.id in found:
            raise CourseError(
                f"{path}, line {line}: {student.id!r} is in the list twice. Remove one."
            )
        found[student.id] = student
    if path and not found:
        raise CourseError(f"{path}: the list of students is empty. Give one line per student.")
    return Roster(found, _read_sheet(path) if path else None)


def read_times(path: Path, zone: tzinfo = UTC) -> tuple[Roster, dict[str, datetime]]:
    """Return the students in a CSV and their times of submission, UTC without a zone, by id.

    Columns: `student` and `handed_in`, or a grading worksheet of Moodle. A time without
    a zone is in `zone`. CourseError, with the line, for a bad time.
    """
    found, times = {}, {}
    for line, cells in read_table(path):
        student, text = _read_student(cells), _pick(cells, "time")
        if not set(_COLUMNS["time"]) & set(cells):
            raise CourseError(f"{path} must have a column of times. Call it `handed_in`.")
        if student is None or text in ("", "-"):
            continue
        time = parse_time(text, zone)
        if time is None:
            raise CourseError(
                f"{path}, line {line}: a time must look like 2026-11-20T23:59, got {text!r}."
            )
        found[student.id], times[student.id] = student, time
    return Roster(found), times


def read_marks(path: Path) -> list[tuple[str, ByHand]]:
    """Return the marks by hand of a CSV: `student,exercise,points` and, if given, `reason`.

    CourseError, with the line, for a bad mark.
    """
    found = []
    for line, cells in read_table(path, "student", "exercise", "points"):
        try:
            points = parse_points(cells.get("points", ""))
        except CourseError as error:
            raise CourseError(f"{path}, line {line}: {error}") from None
        by_hand = ByHand(cells.get("exercise", ""), points, cells.get("reason", ""))
        found.append((cells.get("student", ""), by_hand))
    return found


def parse_points(text: str) -> float | None:
    """Return a mark by hand; None for "auto", which takes it back. CourseError for no mark."""
    if text == "auto":
        return None
    try:
        points = float(text)
    except ValueError:
        points = -1.0
    if not 0 <= points <= 1000:
        raise CourseError(f"points must be a number from 0 to 1000, or auto, got {text!r}.")
    return points
