"""The whole course: every student's mark in every lab, how each week went, and who falls behind."""

import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from distlab.grading.policy import Policy
from distlab.grading.report.text import to_cell, to_csv, write_if_new
from distlab.grading.report.wording import show_points
from distlab.grading.results import Course
from distlab.grading.roster import Roster, read_table
from distlab.grading.text import clean_line

LAST, FEW = 3, 50.0  # who falls behind: two of the last three labs missing or under half
_NEVER = datetime.max


def list_labs(course: Course, policies: Mapping[str, Policy] | None = None) -> list[str]:
    """Return the gradebook's labs in the order of their due dates."""
    labs = {lab for marks in course.values() for lab in marks}
    rules = policies or {}
    return sorted(labs, key=lambda lab: (rules.get(lab, Policy()).due or _NEVER, lab))


def find_percent(course: Course, student: str, weights: Mapping[str, float]) -> float | None:
    """Return a student's weighted percentage; None where nothing counts yet.

    A missing submission counts as 0. One that waits for a human doesn't count.
    """
    most = {lab: m for marks in course.values() for lab, (_, m) in marks.items()}
    mine = course.get(student, {})
    waits = {lab for lab, (mark, _) in mine.items() if mark is None}
    total = sum(w for lab, w in weights.items() if most.get(lab) and lab not in waits)
    got = ((lab, mark, m) for lab, (mark, m) in mine.items() if mark is not None and m)
    share = sum(weights[lab] * mark / m for lab, mark, m in got)
    return 100 * share / total if total else None


def write_course(
    folder: Path, course: Course, policies: Mapping[str, Policy], roster: Roster | None = None
) -> None:
    """Write course.csv and course.html into `folder`; `policies` are by lab."""

    from distlab.grading.report.pages import allow_script, render

    roster = roster or Roster()
    labs = list_labs(course, policies)
    marks = {lab: _read_notes(folder / lab / "marks.csv") for lab in labs}
    students = sorted({*course, *roster.ids}, key=lambda s: (roster.show(s).casefold(), s))
    write_if_new(folder / "course.csv", _make_csv(course, policies, roster, labs, students))
    rows = [_describe_student(course, policies, roster, labs, s, marks) for s in students]
    values = {
        "labs": labs,
        "students": rows,
        "behind": sorted((r for r in rows if r["behind"]), key=lambda r: -len(r["behind"])),
        "weeks": [_describe_lab(course, policies, lab, len(students)) for lab in labs],
    }
    write_if_new(folder / "course.html", render("course.html", values | allow_script("course.js")))


def _read_notes(path: Path) -> dict[str, list[str]]:
    """Return what else the class page says of each student's mark: late, changed by hand."""
    if not path.is_file():
        return {}
    return {
        row["student"]: ["late"] * (row["late_penalty"] not in ("", "0"))
        + ["by hand"] * bool(row["set_by_hand"])
        for _, row in read_table(path)
    }


def _weights(policies: Mapping[str, Policy], labs: Sequence[str]) -> dict[str, float]:
    return {lab: policies.get(lab, Policy()).weight for lab in labs}


def _make_csv(
    course: Course,
    policies: Mapping[str, Policy],
    roster: Roster,
    labs: Sequence[str],
    students: Sequence[str],
) -> str:
    """Return a line for each student; marks that wait for a human are blank."""
    rows = [["student", "name", *labs, "percent", "waiting"]]
    for student in students:
        marks = course.get(student, {})
        got = [show_points(marks[lab][0]) if lab in marks else "" for lab in labs]
        percent = find_percent(course, student, _weights(policies, labs))
        waits = " ".join(lab for lab in labs if lab in marks and marks[lab][0] is None)
        share = "" if percent is None else f"{percent:.1f}"
        rows.append([to_cell(student), to_cell(roster.show(student)), *got, share, waits])
    return to_csv(rows)


def _find_share(marks: Mapping[str, tuple[float | None, float]], lab: str) -> float | None:
    """Return the percent of a lab's points, None without a mark."""
    mark, most = marks.get(lab, (None, 0.0))
    return None if mark is None or not most else 100 * mark / most


def _describe_student(
    course: Course,
    policies: Mapping[str, Policy],
    roster: Roster,
    labs: Sequence[str],
    student: str,
    notes: Mapping[str, Mapping[str, list[str]]],
) -> dict[str, Any]:
    marks = course.get(student, {})
    percent = find_percent(course, student, _weights(policies, labs))
    cells, short = [], []
    for lab in labs:
        share, said = _find_share(marks, lab), notes[lab].get(to_cell(student), [])
        if lab not in marks:
            cells.append({"text": "–", "kind": "none", "states": ["missing"], "sort": -1})
            short += [f"{lab} not handed in"] * (lab in labs[-LAST:])
        elif share is None:
            cells.append({"text": "waits", "kind": "human", "states": ["waits", *said], "sort": -2})
        else:
            low = share < FEW
            cells.append(
                {
                    "text": f"{share:.0f}",
                    "kind": "low" if low else "",
                    "states": said,
                    "sort": round(share, 4),
                }
            )
            short += [f"{lab} {share:.0f} %"] * (low and lab in labs[-LAST:])
    behind = short if len(short) >= min(2, len(labs)) else []
    states = {state for cell in cells for state in cell["states"]} | (
        {"behind"} if behind else set()
    )
    return {
        "name": clean_line(roster.show(student)),
        "cells": cells,
        "behind": behind,
        "states": sorted(state.replace(" ", "-") for state in states),
        "sort": -1 if percent is None else round(percent, 4),
        "percent": "" if percent is None else f"{percent:.0f}",
    }


def _describe_lab(
    course: Course, policies: Mapping[str, Policy], lab: str, students: int
) -> dict[str, Any]:
    policy = policies.get(lab, Policy())
    theirs = [marks for marks in course.values() if lab in marks]
    shares = [s for marks in theirs if (s := _find_share(marks, lab)) is not None]
    median = round(statistics.median(shares)) if shares else 0
    week = f"week {policy.due.isocalendar().week}" if policy.due else ""
    due = policy.show_time(policy.due) if policy.due else "no due date"
    return {
        "lab": lab,
        "week": week,
        "due": due,
        "handed_in": len(theirs),
        "students": students,
        "waiting": len(theirs) - len(shares),
        "median": median,
        "low": sum(share < FEW for share in shares),
    }
