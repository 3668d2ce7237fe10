"""A lab's memory from one grading to the next: its rules, and the marks set by hand.

Both are files in the lab's journal, so a deleted gradebook, or a missing option, changes no mark
silently.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from distlab.errors import CourseError
from distlab.grading.report.text import write_if_new
from distlab.grading.roster import ByHand

FILES = ("submitted", "roster", "submission_times", "policy", "extensions", "gradebook")
TEXTS = ("due", "penalty", "pattern", "class_seed")
NONE = "none"  # given for an option: it isn't used any more
_DAMAGED = "{} is damaged ({}). Restore it from a backup, or delete it to start without."


def read_rules(journal: Path) -> dict[str, Any]:
    """Return what was remembered (nothing before the first grading); CourseError if damaged."""
    return _read(journal / "rules.json")


def write_rules(journal: Path, rules: Mapping[str, Any]) -> None:
    _write(journal / "rules.json", rules)


def fill_in(given: dict[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """Put into `given` what was remembered and isn't given now; return a text for each.

    Raises CourseError for a remembered file that isn't there any more.
    """
    used = []
    for name in (*FILES, *TEXTS):
        is_file, value = name in FILES, given[name]
        option = "SUBMITTED" if name == "submitted" else "--" + name.replace("_", "-")
        if value and (value.name if is_file else value) == NONE:
            given[name] = None if is_file else ""
        elif not value and kept.get(name):
            given[name] = Path(kept[name]) if is_file else kept[name]
            used.append(f"{option} {kept[name]}")
            if is_file and name != "gradebook" and not given[name].exists():
                raise CourseError(
                    f"{kept[name]} is remembered from the last grading and isn't "
                    f"there any more. Give {option} again."
                )
    return used


def list_rules(given: Mapping[str, Any]) -> dict[str, str]:
    """Return what to remember of the options that count now."""
    return {name: str(given[name]) for name in (*FILES, *TEXTS) if given[name]}


def read_marks(journal: Path) -> dict[str, dict[str, ByHand]]:
    """Return the marks by hand that the lab remembers; CourseError if they are damaged."""
    try:
        return {
            student: {
                name: ByHand(name, points, reason) for name, (points, reason) in marks.items()
            }
            for student, marks in _read(journal / "hand_marks.json").items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise CourseError(_DAMAGED.format(journal / "hand_marks.json", error)) from None


def write_marks(
    journal: Path, points: Mapping[str, Mapping[str, float]], reasons: Mapping[str, Any]
) -> None:
    """Remember the marks by hand that the gradebook holds, with their reasons."""
    kept = {
        student: {
            name: [mark, reasons.get(student, {}).get(name, "")] for name, mark in marks.items()
        }
        for student, marks in points.items()
    }
    if kept or (journal / "hand_marks.json").exists():
        _write(journal / "hand_marks.json", kept)


def spread(by_hand: ByHand, most: Mapping[str, float]) -> Iterator[ByHand]:
    """Yield the marks that `by_hand` means: for "all", each exercise's share of the points."""
    if by_hand.exercise != "all":
        yield by_hand
        return
    left, total = by_hand.points, sum(most.values())
    for number, (name, points) in enumerate(most.items(), 1):
        share = left
        if left is not None and by_hand.points is not None and number < len(most):
            share = points if by_hand.points == total else round(by_hand.points * points / total, 2)
            left = round(left - share, 6)
        yield ByHand(name, share, by_hand.reason)


def suggest_student(told: str, names: Mapping[str, str]) -> str:
    """Return ". Did you mean 'id'?" for an id or name that isn't known; `names` are by id."""
    ids = {**{student: student for student in names}, **{n: s for s, n in names.items()}}
    near = dict.fromkeys(ids[found] for found in get_close_matches(told, ids, 3))
    return f". Did you mean {' or '.join(map(repr, near))}?" if near else ""


def describe_waiting(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a line for each student of marks.csv who has no mark, with the reason."""
    waits = [row for row in rows if row["for_a_human"] != "no"]
    return [
        f"{row['name'] or row['student']}: {row['notes'] or 'waits for a human'}" for row in waits
    ]


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise CourseError(_DAMAGED.format(path, error)) from None


def _write(path: Path, data: Mapping[str, Any]) -> None:
    write_if_new(path, json.dumps(data, sort_keys=True, indent=1), durable=True)
