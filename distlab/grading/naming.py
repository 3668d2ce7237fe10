"""Whose hand-in is it? The student's name, read from where the file lies and what it is called.

nbgrader's collected layout is `submitted/STUDENT/LAB/NOTEBOOK.ipynb` with a
`timestamp.txt` beside it. Learning platforms name files in their own ways; a pattern
with named groups, as nbgrader's `FileNameCollectorPlugin` takes one, says how:
https://nbgrader.readthedocs.io/en/stable/plugins/zipcollect-plugin.html
"""

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from distlab.errors import CourseError

MOODLE = r"(?P<student_id>[^/]+?)_(?P<number>\d+)_assignsubmission_(file|onlinetext)[^/]*/.+"
CANVAS = r"(?P<student_id>[^/_]+)(_late|_LATE)?_(?P<number>\d+)_\d+_(?P<file_id>[^/]+)"
PATTERNS = {"moodle": MOODLE, "canvas": CANVAS}
MAX_NAME = 128  # what nbgrader's gradebook takes
_WRAPPERS = {"submitted", "submissions", "downloaded", "extracted"}


@dataclass(frozen=True)
class Owner:
    """The student a file belongs to; `number` tells two of one name apart.

    `timestamp` is the time that the file's name states, in UTC; `collected` says that
    the file lies where nbgrader collects, so that the timestamp beside it counts.
    """

    student: str
    number: str = ""
    timestamp: datetime | None = None
    collected: bool = False


@dataclass(frozen=True)
class LabNames:
    """What a lab's folder and notebook are called: `lab05` and `lab05-loss-scaling`."""

    short: str
    slug: str

    def is_folder(self, name: str) -> bool:
        return name.lower() in (self.short.lower(), self.slug.lower())

    def is_other_lab(self, name: str) -> bool:
        found = re.match(r"lab\d+", name.lower())
        return found is not None and found.group() != self.short.lower()


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return a named pattern ("moodle", "canvas") or a regular expression, ready to match.

    Raises CourseError for one that is not valid or has no group `student_id`.
    """
    try:
        compiled = re.compile(PATTERNS.get(pattern, pattern))
    except re.error as error:
        raise CourseError(f"--pattern {pattern!r}: not a regular expression ({error})") from None
    if "student_id" not in compiled.groupindex:
        known = ", ".join(PATTERNS)
        raise CourseError(f"--pattern {pattern!r}: write (?P<student_id>...), or one of {known}")
    return compiled


def find_owner(
    parts: tuple[str, ...], lab: LabNames, pattern: str = "", alone: str = ""
) -> Owner | None:
    """Return whose file this is; None if `pattern` does not fit, or it belongs to another lab.

    `alone` is the name of a student whose file bears the lab's own name and lies in no folder.
    """
    if pattern:
        return _match(compile_pattern(pattern), parts)
    parts = parts[1:] if len(parts) > 1 and parts[0].lower() in _WRAPPERS else parts
    if len(parts) >= 3 and lab.is_folder(parts[-2]):
        return Owner(clean_name(parts[-3]), collected=True)
    if any(lab.is_other_lab(part) for part in parts[:-1]):
        return None
    for known in PATTERNS.values():
        if owner := _match(re.compile(known), parts):
            return owner
    folders = [part for part in parts[:-1] if not lab.is_folder(part)]
    if folders:
        return Owner(clean_name(_strip_extension(folders[0], ".zip")))
    return _name_flat(parts[-1], lab, alone)


def _match(pattern: re.Pattern[str], parts: tuple[str, ...]) -> Owner | None:
    found = pattern.match("/".join(parts))
    if found is None or not found["student_id"]:
        return None
    groups = found.groupdict()
    stamp = parse_time(groups.get("timestamp") or "")
    return Owner(clean_name(groups["student_id"]), groups.get("number") or "", stamp)


def _name_flat(name: str, lab: LabNames, alone: str) -> Owner | None:
    stem = _strip_extension(_strip_extension(name, ".ipynb"), ".zip")
    rest = re.sub(rf"{re.escape(lab.slug)}|{re.escape(lab.short)}", "", stem, flags=re.IGNORECASE)
    if rest == stem and lab.is_other_lab(stem):
        return None
    return Owner(clean_name(rest.strip(" _-.") or alone or stem))


def _strip_extension(name: str, extension: str) -> str:
    return name[: -len(extension)] if name.lower().endswith(extension) else name


def clean_name(name: str) -> str:
    """Return a student's name as one line of visible characters, 128 at most.

    What cannot be shown (control characters, bytes that are no text, marks that turn
    the direction of writing) is written as its code: \\x1b.
    """
    name = re.sub(r"[/\\]", "_", name)
    text = unicodedata.normalize("NFC", name.encode("utf-8", "backslashreplace").decode())
    shown = "".join(
        c if unicodedata.category(c) not in {"Cc", "Cf", "Zl", "Zp", "Co", "Cn"} else
        c.encode("unicode_escape").decode() for c in text
    )  # fmt: skip
    return shown.strip(" .")[:MAX_NAME] or "(no name)"


def parse_time(text: str) -> datetime | None:
    """Return a time in UTC, without a zone, as nbgrader keeps them; None for what is no time.

    Understands nbgrader's timestamps (`2026-01-30 15:00:00.5 UTC`), ISO 8601, and the
    digits of file names (`2026-01-30-15-00-00`). A time without a zone is UTC.
    """
    digits = re.fullmatch(r"(\d{4})\D?(\d\d)\D?(\d\d)\D?(\d\d)\D?(\d\d)(\D?(\d\d))?", text.strip())
    try:
        if digits:
            return datetime(*(int(digits[k] or 0) for k in (1, 2, 3, 4, 5, 7)))
        time, zone = _split_zone(text.strip()[:100])
        found = datetime.fromisoformat(time)
        if zone:
            found = found.replace(tzinfo=ZoneInfo(zone))
        return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found
    except (ValueError, OverflowError, ZoneInfoNotFoundError, OSError):
        return None


def _split_zone(text: str) -> tuple[str, str]:
    """Return a time that `fromisoformat` reads, and the name of its zone ("" if it has none)."""
    time, _, zone = text.rpartition(" ")
    if re.fullmatch(r"[+-]\d\d:?\d\d", zone):
        return time + zone, ""
    named = re.fullmatch(r"[A-Za-z][A-Za-z_/+-]+", zone)
    return (time, zone) if named and time else (text, "")
