"""Find a submission's student from the file's folder and name.

The outermost part of a path always decides: the platform, nbgrader or the teacher has named it.
Names below it, from the student, don't count. Learning platforms name files in their own ways; a
pattern with named groups, as nbgrader's `FileNameCollectorPlugin` takes one, says how:
https://nbgrader.readthedocs.io/en/stable/plugins/zipcollect-plugin.html
"""

import re
import unicodedata
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from distlab.errors import CourseError
from distlab.submission import MAX_NAME, MAX_NAME_BYTES, read_packed_name
from utils.checks import list_few, suggest

# Moodle's mod/assign: folders NAME_ID_assignsubmission_file (before 4.1 with a _ at the end),
# or files that begin so; with blind marking NAME is "Participant". Canvas's content_zipper:
# NAME_LATE_USERID_FILEID_FILENAME, with anonymous marking LATE_anon_CODE_FILEID_FILENAME.
MOODLE = r"(?P<student_id>[^/]+?)_(?P<number>\d+)_assignsubmission_(file|onlinetext)(_[^/]*)?(/|$)"
CANVAS = (
    r"((?P<early>late_|LATE_)?(?P<student_id>anon_\w+?)"
    r"|(?P<named>[^/]+?)(?P<late>_late|_LATE)?_(?P<number>\d+))_\d+_[^/]+"
)
TIMESTAMP = "timestamp.txt"  # nbgrader writes it next to a notebook
PATTERNS = {"moodle": MOODLE, "canvas": CANVAS}
# the course's own folders around a lab's notebook: never a student's name
COURSE_FOLDERS = ("labs", "notebooks", "solutions", "originals", "kept", "work")
_MOODLE_TIMES = ("%A, %d %B %Y, %I:%M %p", "%A, %B %d, %Y, %I:%M %p", "%A, %d %B %Y, %H:%M")
_LAB = re.compile(r"lab\d\d(?!\d)", re.IGNORECASE)


@dataclass(frozen=True)
class Owner:
    """The student a file belongs to, and what says so.

    `told` is the name in `source`, the outermost part of the path. `number` distinguishes two of
    one name; `platform` is "moodle", "canvas", "pattern" or "". `timestamp` (UTC) is what the
    outermost part states, `clock` whose it is. `late` says that the platform calls it late;
    `inside`, that nothing outside tells the name.
    """

    told: str
    source: str = ""
    number: str = ""
    platform: str = ""
    timestamp: datetime | None = None
    clock: str = ""
    late: bool = False
    inside: bool = False

    @property
    def student(self) -> str:
        return clean_name(self.told)


@dataclass(frozen=True)
class LabNames:
    """The names of a lab's folder and notebook: `lab05` and `lab05-loss-scaling`."""

    short: str
    slug: str

    def is_folder(self, name: str) -> bool:
        return name.lower() in (self.short.lower(), self.slug.lower())

    def is_nobody(self, name: str) -> bool:
        """Return whether a folder of this name is the lab's or the course's, and no student's."""
        return self.is_folder(name) or name.lower() in COURSE_FOLDERS

    def is_named(self, name: str) -> bool:
        """Return whether `name` holds this lab's."""
        found = _LAB.findall(name)
        return self.slug.lower() in name.lower() or self.short.lower() in map(str.lower, found)

    def is_other_lab(self, name: str) -> bool:
        """Return whether `name` begins with another lab's."""
        found = _LAB.match(name)
        return found is not None and found.group().lower() != self.short.lower()


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return a named pattern ("moodle", "canvas") or a regular expression, ready to match.

    Raises CourseError for one that isn't valid or has no group `student_id`.
    """
    try:
        compiled = re.compile(PATTERNS.get(pattern, pattern))
    except re.error as error:
        raise CourseError(
            f"--pattern must be a regular expression, got {pattern!r} ({error})."
        ) from None
    if "student_id" not in compiled.groupindex:
        raise CourseError(
            f"--pattern must be one of {list_few(PATTERNS)}, or have (?P<student_id>...) in it, "
            f"got {pattern!r}{suggest(pattern, PATTERNS) or '.'}"
        )
    return compiled


def find_owner(
    parts: tuple[str, ...], lab: LabNames, pattern: str = "", alone: str = ""
) -> Owner | None:
    """Return whose file this is; None if `pattern` doesn't fit, or its name is another lab's.

    `alone` is the name of a student whose file has the lab's own name and isn't in a folder.
    """
    if pattern:
        return _match(compile_pattern(pattern), parts, pattern if pattern in PATTERNS else "")
    if _is_packed(parts[0]):  # before a platform's pattern: a name such as 2024_117 fits that, too
        return _name_flat(parts, lab, alone)
    for platform, known in PATTERNS.items():
        if owner := _match(re.compile(known), parts, platform):
            return owner
    if len(parts) > 1 and lab.is_nobody(parts[0]):  # LAB/STUDENT/..., or the course's folder
        lesson = parts[0].lower() == "notebooks" and not lab.is_named(parts[-1])
        return None if lesson else find_owner(parts[1:], lab, "", alone)
    if len(parts) == 1 or parts[0].lower().endswith(".zip"):
        return _name_flat(parts, lab, alone)
    others = _LAB.match(parts[0]) and not any(lab.is_named(part) for part in parts)
    return None if others else Owner(parts[0], parts[0])


def _match(pattern: re.Pattern[str], parts: tuple[str, ...], platform: str) -> Owner | None:
    found = pattern.match("/".join(parts))
    groups = found.groupdict() if found else {}
    told = groups.get("student_id") or groups.get("named")
    if not told:
        return None
    stamp, number = parse_time(groups.get("timestamp") or ""), groups.get("number") or ""
    late = bool(groups.get("late") or groups.get("early"))
    clock = "the platform's file name" if stamp else ""
    source = f"{told}_{number}" if number else told
    return Owner(told, source, number, platform or "pattern", stamp, clock, late)


def _is_packed(name: str) -> bool:
    """Return whether a file is called as `distlab submit` calls one, of this lab or another."""
    slug, _, rest = _strip_extension(name, ".zip").partition("_")
    return name.lower().endswith(".zip") and bool(_LAB.match(slug) and read_packed_name(rest)[0])


def _name_flat(parts: tuple[str, ...], lab: LabNames, alone: str) -> Owner | None:
    """Return the owner of a file (or of a zip's contents) outside any folder."""
    stem = _strip_extension(parts[0], ".zip", ".ipynb.txt", ".ipynb.json", ".ipynb")
    if lab.is_other_lab(stem):
        return None
    rest = re.sub(rf"{re.escape(lab.slug)}|{re.escape(lab.short)}", "", stem, flags=re.IGNORECASE)
    rest = rest.strip(" _-.")
    name, time = read_packed_name(rest)
    stamp = parse_time(time)
    if stamp:
        return Owner(name, parts[0], timestamp=stamp, clock="the name of the student's zip")
    if rest or len(parts) == 1 or lab.is_nobody(parts[1]):
        return Owner(rest or alone or stem, parts[0], inside=not rest)
    if parts[1].lower().endswith(".ipynb"):
        owner = _name_flat(parts[1:], lab, alone or stem)
    else:
        owner = Owner(parts[1])
    return owner and replace(owner, source=parts[0], timestamp=None, clock="", inside=True)


def _strip_extension(name: str, *extensions: str) -> str:
    for extension in extensions:
        if name.lower().endswith(extension):
            return name[: -len(extension)]
    return name


def clean_name(name: str) -> str:
    """Return a student's name as one line of visible characters, 128 and 200 bytes at most.

    Invisible characters (control characters, bytes that aren't text, marks that turn the direction
    of writing) are written as their codes: \\x1b.
    """
    name = re.sub(r"[/\\]", "_", name)
    text = unicodedata.normalize("NFC", name.encode("utf-8", "backslashreplace").decode())
    shown = "".join(
        c
        if unicodedata.category(c) not in {"Cc", "Cf", "Zl", "Zp", "Co", "Cn"}
        else c.encode("unicode_escape").decode()
        for c in text
    )
    short = shown.strip(" .")[:MAX_NAME].encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    return short.strip(" .") or "(no name)"


def is_stamp(parts: tuple[str, ...]) -> bool:
    """Return whether a file may be taken for nbgrader's time stamp: in any spelling."""
    return parts[-1].lower() == TIMESTAMP


def parse_time(text: str, zone: tzinfo = UTC) -> datetime | None:
    """Return a time in UTC, without a zone, as nbgrader keeps them; None if it isn't a time.

    Understands nbgrader's timestamps (`2026-01-30 15:00:00.5 UTC`), ISO 8601, the digits of file
    names (`2026-01-30-15-00-00`), and Moodle in English. A time without a zone is in `zone`.
    """
    text = text.strip()[:100]
    if digits := re.fullmatch(r"(\d{4})\D?(\d\d)\D?(\d\d)\D?(\d\d)\D?(\d\d)(\D?(\d\d))?", text):
        year, month, day, hour, minute, _, second = digits.groups("00")
        text = f"{year}-{month}-{day}T{hour}:{minute}:{second}"
    for how in ("", *_MOODLE_TIMES):
        try:
            time, named = (text, "") if how else _split_zone(text)
            found = datetime.strptime(time, how) if how else datetime.fromisoformat(time)
            own = ZoneInfo(named) if named else found.tzinfo or zone
            return found.replace(tzinfo=own).astimezone(UTC).replace(tzinfo=None)
        except (ValueError, OverflowError, ZoneInfoNotFoundError, OSError):
            continue
    return None


def _split_zone(text: str) -> tuple[str, str]:
    """Return a time that `fromisoformat` reads, and the name of its zone ("" if it has none)."""
    time, _, zone = text.rpartition(" ")
    if re.fullmatch(r"[+-]\d\d:?\d\d", zone):
        return time + zone, ""
    named = re.fullmatch(r"[A-Za-z][A-Za-z_/+-]+", zone)
    return (time, zone) if named and time else (text, "")
