"""Who takes the course, and tables that name them: `students.csv`, lists of times, of marks.

A table has a head line. Its columns may be called as here or as Moodle and Canvas
export them (a grading worksheet, a gradebook):

    student,name,email,moodle,canvas,section
    ana,Ana Alt,ana@example.org,400100,501,Monday

`moodle` and `canvas` are the platform's own numbers. Only `student` is needed.
"""

import csv
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from pathlib import Path

from distlab.errors import CourseError
from distlab.grading.naming import Owner, clean_name

Row = tuple[int, dict[str, str]]  # line, and cells by their column's name in lower case
# The first column of each list that has a text counts.
_COLUMNS = {
    "id": ("student", "username", "sis login id", "sis user id", "id number", "email",
           "email address", "full name", "name", "identifier"),
    "name": ("name", "full name"),
    "email": ("email", "email address"),
    "moodle": ("moodle", "identifier"),
    "canvas": ("canvas", "id"),
    "section": ("section", "group"),
    "time": ("handed_in", "handed_in_utc", "time", "last modified (submission)", "submitted at"),
}  # fmt: skip
_MOODLE_TIMES = ("%A, %d %B %Y, %I:%M %p", "%A, %B %d, %Y, %I:%M %p", "%A, %d %B %Y, %H:%M")


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

    def is_called(self, name: str) -> bool:
        """Return whether `name` is the id, the name in any order, or the address."""
        wanted = _squash(name)
        words = [word for word in re.split(r"[\s,]+", self.name) if word]
        turned = {_squash("".join(words[k:] + words[:k])) for k in range(len(words))}
        own = {_squash(self.id), _squash(self.email.partition("@")[0]), *turned} - {""}
        return name == self.id or wanted in own


@dataclass(frozen=True)
class Roster:
    """The students of a course, by id; empty where there is no list."""

    students: Mapping[str, Student] = field(default_factory=dict)

    @property
    def ids(self) -> Iterable[str]:
        return self.students

    def find(self, owner: Owner) -> str | None:
        """Return the id of whom the platform's number or the name means, None if not one."""
        if owner.number and owner.platform:
            for student in self.students.values():
                if getattr(student, owner.platform, None) == owner.number:
                    return student.id
        if owner.told in self.students:
            return owner.told
        called = [s for s in self.students.values() if s.is_called(owner.told)]
        numbers = [getattr(s, owner.platform, "") for s in called]
        if len(called) != 1 or owner.number and numbers[0] not in ("", owner.number):
            return None
        return called[0].id

    def show(self, student: str) -> str:
        """Return the student's name, or the id where no name is known."""
        known = self.students.get(student)
        return known.name if known and known.name else student


def _squash(name: str) -> str:
    """Return what is left of a name without case, spaces and signs (Canvas writes `altana`)."""
    text = unicodedata.normalize("NFC", name).casefold()
    return "".join(c for c in text if unicodedata.category(c)[0] in "LMN")


def read_table(path: Path, *wanted: str) -> Iterator[Row]:
    """Yield each row of a CSV with its line; CourseError for one that cannot be read.

    `wanted` are columns that must be there.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            text = stream.read()
    except (OSError, ValueError) as error:
        raise CourseError(f"{path}: cannot be read ({error})") from None
    head_line = text.partition("\n")[0]
    rows = csv.reader(text.splitlines(True), delimiter=max(",;\t", key=head_line.count))
    try:
        head = [name.strip().lower() for name in next(rows, [])]
        if missing := [name for name in wanted if name not in head]:
            raise CourseError(f"{path}: has no column {missing[0]!r}: it has {', '.join(head)}")
        for row in rows:
            cells = {name: cell.strip() for name, cell in zip(head, row, strict=False)}
            if any(cells.values()):
                yield rows.line_num, cells
    except csv.Error as error:
        raise CourseError(f"{path}, line {rows.line_num}: {error}") from None


def _pick(cells: Mapping[str, str], what: str, columns: Sequence[str] = ()) -> str:
    return next((cells[name] for name in columns or _COLUMNS[what] if cells.get(name)), "")


def _read_student(cells: dict[str, str]) -> Student | None:
    """Return the student of a row, None for a row of the platform's own."""
    if "section" in cells and "id" in cells:  # a gradebook of Canvas: `student` is the name
        if re.match(r"points possible|student, test$", cells.get("student", ""), re.IGNORECASE):
            return None
        cells = {**cells, "name": cells.get("student", ""), "student": ""}
        cells["student"] = _pick(cells, "id") if cells.get("sis login id") else cells["id"]
    moodle = re.sub(r"\D", "", _pick(cells, "moodle"))
    return Student(clean_name(_pick(cells, "id")), _pick(cells, "name"), _pick(cells, "email"),
                   moodle, _pick(cells, "canvas"), _pick(cells, "section"))  # fmt: skip


def read_roster(path: Path | None) -> Roster:
    """Return the students of a CSV (nobody if `path` is None); CourseError if it is bad."""
    found: dict[str, Student] = {}
    for line, cells in read_table(path) if path else ():
        student = _read_student(cells)
        if student is None:
            continue
        if student.id == "(no name)":
            raise CourseError(f"{path}, line {line}: no student: give a column `student`")
        if student.id in found:
            raise CourseError(f"{path}, line {line}: {student.id!r} is there twice")
        found[student.id] = student
    return Roster(found)


def read_times(path: Path, zone: tzinfo = UTC) -> tuple[Roster, dict[str, datetime]]:
    """Return who is named in a CSV, and when they handed in, UTC without a zone, by id.

    Columns: `student` and `handed_in`, or a grading worksheet of Moodle. A time without
    a zone is in `zone`. CourseError, with the line, for what is no time.
    """
    found, times = {}, {}
    for line, cells in read_table(path):
        student, text = _read_student(cells), _pick(cells, "time")
        if not set(_COLUMNS["time"]) & set(cells):
            raise CourseError(f"{path}: has no column of times: call it `handed_in`")
        if student is None or text in ("", "-"):
            continue
        time = _parse_any(text, zone)
        if time is None:
            raise CourseError(f"{path}, line {line}: {text!r} is no time: write 2026-11-20T23:59")
        found[student.id], times[student.id] = student, time
    return Roster(found), times


def _parse_any(text: str, zone: tzinfo) -> datetime | None:
    """Return a time as ISO 8601 or Moodle (in English) writes it, in UTC; None for no time."""
    for how in ("", *_MOODLE_TIMES):
        try:
            text = text.removesuffix(" UTC") + "+00:00" * text.endswith(" UTC")
            time = datetime.strptime(text, how) if how else datetime.fromisoformat(text)
            time = time if time.tzinfo else time.replace(tzinfo=zone)
            return time.astimezone(UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):
            continue
    return None


def read_marks(path: Path) -> list[tuple[str, ByHand]]:
    """Return the marks by hand of a CSV: `student,exercise,points` and, if given, `reason`.

    CourseError, with the line, for what is no mark.
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
        raise CourseError(f"{text!r} is no number of points (0 to 1000), nor auto")
    return points
