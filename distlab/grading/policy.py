"""Due dates, penalties for lateness, extensions, and weights.

From a plain file, `grading.toml`, for the whole course:

    zone = "Europe/Prague"  # of times without one, and of those on the pages; else UTC

    absent = 0             # a platform's file has 0 for who handed in nothing; else "blank"

    [penalty]              # for every lab that has a due date; or points = 1
    percent = 10           # of the lab's points, for each day that has begun
    per = "day"            # or "hour"
    at_most = 50           # percent (points, where the penalty is in points)
    grace_minutes = 15

    [extra_time]           # for every lab
    ana = "2 days"

    [labs.lab05]
    due = 2026-11-20T23:59:00+01:00
    weight = 2                         # of the lab in the course
    weights = {scale = 1.5}            # of an exercise in the lab
    extra_time = {bela = "90 minutes"}
    confirmed = ["ana 3f2a91cd"]       # what was asked about this very file is settled: it counts
"""

import math
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from distlab.errors import CourseError
from distlab.grading.naming import parse_time
from distlab.grading.roster import read_rows
from utils.checks import check_choice
from utils.errors import DistributedError

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_PENALTY = re.compile(r"(\d+\.?\d*)(%?)/(hour|day)(?:,(\d+\.?\d*)%?)?")


@dataclass(frozen=True)
class Penalty:
    """The price of lateness: `amount` for each `per_seconds` that has begun, at most `at_most`.

    Both are percent of the lab's points if `percent`, else points.
    """

    amount: float = 0.0
    percent: bool = True
    per_seconds: int = 86400
    at_most: float | None = None
    grace_seconds: float = 0.0

    def find_points(self, late_seconds: float, lab_points: float) -> float:
        """Return the points that `late_seconds` cost in a lab of `lab_points`."""
        if late_seconds <= self.grace_seconds or not self.amount:
            return 0.0
        cost = self.amount * math.ceil(late_seconds / self.per_seconds)
        cost = cost if self.at_most is None else min(cost, self.at_most)
        points = cost * lab_points / 100 if self.percent else cost
        return round(min(points, lab_points), 2)


@dataclass(frozen=True)
class Policy:
    """The rules of one lab; `due` is UTC, `weights` are by exercise."""

    due: datetime | None = None
    penalty: Penalty = Penalty()
    extra: Mapping[str, timedelta] = field(default_factory=dict)
    weight: float = 1.0
    weights: Mapping[str, float] = field(default_factory=dict)
    confirmed: frozenset[str] = frozenset()
    zone: tzinfo = UTC
    absent: float | None = None  # platforms' mark for students without a submission; None: blank

    @property
    def own_zone(self) -> tzinfo:
        """The zone of times that name none: what `zone` says, else UTC."""
        return self.zone if isinstance(self.zone, ZoneInfo) else UTC

    def show_time(self, time: datetime) -> str:
        """Return a time (UTC, without a zone) as the pages write it: in the course's zone."""
        return time.replace(tzinfo=UTC).astimezone(self.zone).strftime("%Y-%m-%d %H:%M %Z")

    def find_lateness(self, student: str, timestamp: datetime | None) -> float:
        """Return how many seconds after the student's own due date it came; 0 if unknown."""
        if self.due is None or timestamp is None:
            return 0.0
        return max(0.0, (timestamp - self.due - self.find_extra(student)).total_seconds())

    def find_extra(self, student: str) -> timedelta:
        return self.extra.get(student, timedelta())


def read_policy(path: Path | None, lab: str, labs: Collection[str] = ()) -> Policy:
    """Return the rules of `lab` in a grading.toml (none if `path` is None); CourseError if bad.

    `labs` are the course's: a table of any other name is a mistake.
    """
    if path is None:
        return Policy()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        _check_file(data, labs)
        return _make_policy(data, lab)
    except OSError as error:
        raise CourseError(
            f"{path} can't be read ({error.strerror}). Correct its permissions."
        ) from None
    except (ValueError, TypeError, AttributeError, KeyError, DistributedError) as error:
        raise CourseError(f"{path}: {error}") from None


def _check_file(data: dict[str, Any], labs: Collection[str]) -> None:
    _check_keys(data, {"zone", "penalty", "extra_time", "absent", "labs"}, "the file")
    if data.get("absent", "blank") not in ("blank", 0):
        raise CourseError(f'absent must be 0 or "blank", got {data["absent"]!r}.')
    if labs:
        _check_keys(data.get("labs", {}), set(labs), "labs")
    known = {"due", "weight", "weights", "extra_time", "penalty", "confirmed"}
    for name, table in data.get("labs", {}).items():
        _check_keys(table, known, f"labs.{name}")
        _read_penalty(table.get("penalty", {}))


def _make_policy(data: dict[str, Any], lab: str) -> Policy:
    mine = data.get("labs", {}).get(lab, {})
    times = {**data.get("extra_time", {}), **mine.get("extra_time", {})}
    zone = _read_zone(data.get("zone"))
    due = mine.get("due")
    if not isinstance(names := mine.get("confirmed", []), list):
        raise CourseError(f'confirmed must be a list such as ["ana 3f2a91cd"], got {names!r}.')
    return Policy(
        due=None if due is None else parse_due(str(due), zone or UTC),
        penalty=_read_penalty(mine.get("penalty", data.get("penalty", {}))),
        extra={student: parse_duration(str(text)) for student, text in times.items()},
        weight=_read_number(mine, "weight", 1.0),
        weights={name: _read_number(mine["weights"], name) for name in mine.get("weights", {})},
        confirmed=frozenset(map(str, names)),
        zone=zone or _find_zone(str(due)) or UTC,
        absent=0.0 if data.get("absent") == 0 else None,
    )


def _read_zone(name: Any) -> tzinfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise CourseError(
            f'zone must be a time zone such as "Europe/Prague", got {name!r}.'
        ) from None


def _find_zone(due: str) -> tzinfo | None:
    """Return the zone of a due date that has one, for the pages."""
    try:
        return datetime.fromisoformat(due).tzinfo
    except ValueError:
        return None


def _check_keys(table: dict[str, Any], known: set[str], where: str) -> None:
    for name in sorted(table):
        check_choice(f"A key of {where}", name, sorted(known))


def _read_number(table: Mapping[str, Any], name: str, usual: float = 0.0) -> float:
    value = table.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        raise CourseError(f"{name} must be a number from 0, got {value!r}.")
    return float(value)


def _read_penalty(table: dict[str, Any]) -> Penalty:
    known = {"percent", "points", "per", "at_most", "grace_minutes"}
    _check_keys(table, known, "penalty")
    if not table:
        return Penalty()
    if ("percent" in table) == ("points" in table) or table.get("per") not in ("hour", "day"):
        raise CourseError(
            'penalty must have either percent or points, and per = "hour" or "day", got '
            f"{', '.join(f'{name} = {value!r}' for name, value in table.items())}."
        )
    percent = "percent" in table
    return Penalty(
        _read_number(table, "percent" if percent else "points"),
        percent,
        3600 if table["per"] == "hour" else 86400,
        _read_number(table, "at_most") if "at_most" in table else None,
        60 * _read_number(table, "grace_minutes"),
    )


def parse_penalty(text: str, grace_seconds: float = 0.0) -> Penalty:
    """Return the penalty of a text: "10%/day", "0.5/hour", "10%/day,50%" (50 % at most)."""
    found = _PENALTY.fullmatch(text.replace(" ", ""))
    if found is None:
        raise CourseError(
            f"penalty must look like 10%/day, 0.5/hour or, with a limit, 10%/day,50%, got {text!r}."
        )
    amount, percent, per, most = found.groups()
    seconds = 3600 if per == "hour" else 86400
    limit = None if most is None else float(most)
    return Penalty(float(amount), bool(percent), seconds, limit, grace_seconds)


def parse_due(text: str, zone: tzinfo = UTC) -> datetime:
    """Return a due date in UTC, without a zone; a text without a zone is in `zone`."""
    due = parse_time(text, zone)
    if due is None:
        raise CourseError(
            f"due must look like 2026-11-20T23:59 (UTC) or 2026-11-20T23:59+01:00, got {text!r}."
        )
    return due


def parse_duration(text: str) -> timedelta:
    """Return a length of time: "90 minutes", "36 h", "2 days", "1 week"."""
    found = re.fullmatch(
        r"(\d{1,6}\.?\d*)\s*(m|min|minutes?|h|hours?|d|days?|w|weeks?)", text.strip()
    )
    if found is None:
        raise CourseError(
            f"A duration must look like 90 minutes, 36 hours or 2 days, got {text!r}."
        )
    return timedelta(seconds=float(found[1]) * _UNITS[found[2][0]])


def read_extra(path: Path) -> dict[str, timedelta]:
    """Return the extra time of students from lines `student,2 days`; CourseError if bad."""
    found = {}
    for number, (line, row) in enumerate(read_rows(path)):
        if number == 0 and row[0].lower() == "student":
            continue
        if len(row) != 2:
            raise CourseError(
                f"{path}, line {line} must be a student and a time, such as ana,2 days; got "
                f"{','.join(row)!r}."
            )
        found[row[0]] = parse_duration(row[1])
    return found


def override(policy: Policy, due: str, penalty: str, extra: Path | None) -> Policy:
    """Return `policy` with what the command line says ("" and None: as it was)."""
    if due:
        policy = replace(policy, due=parse_due(due, policy.own_zone))
    if penalty:
        grace = policy.penalty.grace_seconds
        policy = replace(policy, penalty=parse_penalty(penalty, grace))
    if extra:
        policy = replace(policy, extra={**policy.extra, **read_extra(extra)})
    if penalty and policy.due is None:
        raise CourseError("A penalty needs a due date. Give --due, or due in grading.toml.")
    return policy
