"""Changes of earlier marks by a later grading: a trail that only grows.

It is kept in one file, replaced in one step, so that a killed grading notes each change once: at
its end, or at the next one's.
"""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from distlab.grading.report.text import to_cell, to_csv, write_if_new
from distlab.grading.report.wording import show_points
from distlab.grading.results import BY_HAND, ClassResult, Result
from distlab.grading.text import clean_line
from utils.files import write_atomically

LATENESS = "lateness"
HEAD = ("time_utc", "student", "exercise", "before", "after", "why")


@dataclass(frozen=True)
class Change:
    """One exercise's points (or what lateness cost), before and after; None while it waits."""

    time: str  # UTC
    student: str
    exercise: str
    before: float | None
    after: float | None
    why: str

    def describe(self) -> str:
        """Return "epoch 0 → 2 (set by hand: …)"."""
        before, after = (show_points(p) or "waits" for p in (self.before, self.after))
        return f"{self.exercise} {before} → {after} ({self.why})"


def note_changes(found: ClassResult, folder: Path) -> list[Change]:
    """Note what changed since the last call, in `folder`/changes.csv too; return it."""
    path = folder / "journal" / "marks.json"
    kept = _read(path)
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    states = {result.student: _describe(result) for result in found.results}
    changes = [
        Change(now, result.student, name, before, states[result.student]["points"][name], why)
        for result in found.results
        if (last := kept["marks"].get(result.student) or _begin(result, states[result.student]))
        for name, before, why in _compare(result, last, states[result.student])
    ]
    log = [*kept["log"], *(asdict(change) for change in changes)]
    text = json.dumps({"marks": {**kept["marks"], **states}, "log": log}, sort_keys=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_atomically(path, text, durable=True)
    rows = [HEAD, *(_to_row(Change(**item)) for item in log)]
    write_if_new(folder / "changes.csv", to_csv(rows))
    return changes


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {"marks": dict(kept["marks"]), "log": [asdict(Change(**c)) for c in kept["log"]]}
    except (OSError, ValueError, TypeError, KeyError):
        return {"marks": {}, "log": []}


def _describe(result: Result) -> dict[str, Any]:
    points = {e.id: None if e.id in result.open else e.points for e in result.verdict.exercises}
    return {
        "points": {**points, LATENESS: -result.penalty},
        "file": result.hand_in.sha256,
        "by_hand": sorted(result.by_hand),
        "seed": result.observation.seed,
    }


def _begin(result: Result, now: dict[str, Any]) -> dict[str, Any] | None:
    """Return what stands before the first mark of a student without a file: nothing by hand."""
    if result.hand_in.path or not result.by_hand:
        return None
    points = {name: p for name, p in now["points"].items() if name not in result.by_hand}
    return {**now, "points": points, "by_hand": []}


def _compare(
    result: Result, last: dict[str, Any], now: dict[str, Any]
) -> list[tuple[str, float | None, str]]:
    """Return the name, the points before and the reason of each difference."""
    if last["file"] != now["file"]:
        usual = "handed in anew"
    else:
        usual = "run again" if last["seed"] != now["seed"] else "judged again"
    found = []
    for name, points in now["points"].items():
        before = last["points"].get(name)
        if before == points:
            continue
        why = "another time or rule" if name == LATENESS and usual == "judged again" else usual
        if name in result.by_hand:
            why = f"{BY_HAND}: {result.reasons[name]}" if name in result.reasons else BY_HAND
        elif name in last["by_hand"]:
            why = "no longer set by hand"
        found.append((name, before, clean_line(why)))
    return found


def _to_row(c: Change) -> list[str]:
    points = (show_points(c.before), show_points(c.after))
    return [c.time, to_cell(c.student), c.exercise, *points, to_cell(c.why)]
