"""Summarize a class for its page, as plain values."""

import importlib
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from distlab.authoring.sources import find_targets
from distlab.exercises.exercise import list_exercises
from distlab.grading.labs import ExerciseSpec
from distlab.grading.report.changes import Change
from distlab.grading.report.similar import find_groups
from distlab.grading.report.wording import find_kind, page_name, show_points
from distlab.grading.results import ClassResult, Result
from distlab.grading.text import clean_line

BINS = 10


def describe_class(
    found: ClassResult,
    tasks: Mapping[str, Any],
    answers: Mapping[str, Mapping[str, str]],
    changes: Sequence[Change] = (),
) -> dict[str, Any]:
    """Return the values of the class page."""
    return {
        **_describe_marks(found),
        "absent": [(_name_of(found, s), clean_line(why)) for s, why in found.absent.items()],
        "human": [_describe_human(found, r) for r in found.results if r.for_human],
        "exercises": rank_exercises(found),
        "misconceptions": count_misconceptions(found),
        "lessons": list_lessons(found),
        "changes": [(_name_of(found, c.student), clean_line(c.describe())) for c in changes],
        "groups": _describe_groups(found, tasks, answers),
        "columns": [exercise.id for exercise in found.lab.exercises],
        "students": [_describe_student(found, result) for result in found.results],
        "waiting": [_name_of(found, student) for student in found.waiting],
        "notes": [clean_line(note) for note in found.notes],
    }


def _describe_marks(found: ClassResult) -> dict[str, Any]:
    marks = [result.mark for result in found.results if result.mark is not None]
    most = max((result.max for result in found.results), default=0.0)
    due = found.policy.due
    return {
        "lab": found.lab,
        "due": found.policy.show_time(due) if due else "",
        "times": [clean_line(line) for line in found.describe_times()],
        "mean": show_points(statistics.fmean(marks)) if marks else "",
        "median": show_points(statistics.median(marks)) if marks else "",
        "max": show_points(most),
        "marked": len(marks),
        "bins": make_bins(marks, most),
        "unsealed": sum(not result.observation.sealed for result in found.results),
    }


def make_bins(marks: Sequence[float], most: float) -> list[dict[str, Any]]:
    """Return a histogram of `marks` from 0 to `most`; a mark on an edge counts in the upper bin."""
    width = most / BINS or 1.0
    counts = [0] * BINS
    for mark in marks:
        counts[min(BINS - 1, max(0, int(mark / width + 1e-9)))] += 1
    tallest = max(counts, default=0) or 1
    rows = []
    for k, count in enumerate(counts):
        end = "" if k == BINS - 1 else "under "
        label = f"{show_points(k * width)} to {end}{show_points((k + 1) * width)}"
        rows.append({"label": label, "count": count, "percent": round(100 * count / tallest)})
    return rows


def rank_exercises(found: ClassResult) -> list[dict[str, Any]]:
    """Return the exercises, the one with the smallest share of its points first."""
    rows = []
    for exercise in found.lab.exercises:
        said = [
            e
            for r in found.results
            for e in r.verdict.exercises
            if e.id == exercise.id and e.id not in r.open
        ]
        if not said:
            continue
        mean, most = statistics.fmean(e.points for e in said), said[0].max
        share = mean / most if most else 1.0
        rows.append(
            {
                "number": exercise.number,
                "title": exercise.title,
                "share": share,
                "right": f"{sum(e.points >= e.max for e in said)} of {len(said)}",
                "mean": show_points(mean),
                "max": show_points(most),
                "percent": max(0, min(100, round(100 * share))),
            }
        )
    return sorted(rows, key=lambda row: (row["share"], row["number"]))


def list_lessons(found: ClassResult) -> list[dict[str, str]]:
    """Return the lessons, but for the introduction, that link the lab."""
    lessons = [t for t in find_targets(found.root) if not t.lab and t.slug[:2] != "00"]
    mine = [t for t in lessons if found.lab.slug in t.source.read_text(encoding="utf-8")]
    return [{"number": t.slug[:2], "link": f"notebooks/{t.slug}.ipynb"} for t in mine]


def count_misconceptions(found: ClassResult) -> list[dict[str, Any]]:
    """Return each misconception in words, and who shows it, the most common first."""
    students: dict[tuple[str, str], list[str]] = defaultdict(list)
    for result in found.results:
        for said in result.verdict.exercises:
            if said.misconception:
                students[said.id, said.misconception].append(_name_of(found, result.student))
    texts = read_mistakes(found.lab.name)
    numbers = {exercise.id: exercise for exercise in found.lab.exercises}
    rows = [
        {
            "id": exercise,
            "name": clean_line(name),
            "exercise": _name(numbers[exercise]),
            "students": who,
            "text": texts.get((exercise, name), ""),
            "percent": round(100 * len(who) / len(found.results)),
        }
        for (exercise, name), who in students.items()
    ]
    return sorted(rows, key=lambda row: (-len(row["students"]), row["exercise"], row["name"]))


def read_mistakes(lab: str) -> dict[tuple[str, str], str]:
    """Return the message for each known mistake: (exercise, name) -> words."""
    try:
        module = importlib.import_module(f"distlab.labs.{lab}.exercise")
    except ImportError:
        return {}
    exercises = list_exercises(module).values()
    return {(e.name, name): text for e in exercises for name, text in e.mistakes.items()}


def _name(exercise: ExerciseSpec) -> str:
    return f"{exercise.number}: {exercise.title}"


def _describe_groups(
    found: ClassResult, tasks: Mapping[str, Any], answers: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    stubs = {cell.id: cell.text for cell in found.lab.given if cell.kind == "solution"}
    known = {name: (stubs.get(name, ""), task.reference) for name, task in tasks.items()}
    return [
        {
            "students": [_name_of(found, student) for student in group.students],
            "exercises": ", ".join(f"{name} ({share:.0%})" for name, share in group.exercises),
        }
        for group in find_groups(answers, known)
    ]


def _describe_human(found: ClassResult, result: Result) -> dict[str, Any]:
    said = {e.id: e.message for e in result.verdict.exercises}
    each = "; ".join(
        f"{name}: {said[name] or 'no mark could be justified'}" for name in result.open
    )
    why = result.hand_in.question or result.observation.problem or each
    if result.hand_in.question and result.hand_in.sha256:
        why += f' (if it is theirs: confirmed = ["{result.hand_in.key}"])'
    return {"name": _name_of(found, result.student), "page": _link(result), "why": clean_line(why)}


def _name_of(found: ClassResult, student: str) -> str:
    return clean_line(found.roster.show(student))


def _link(result: Result) -> str:
    return f"feedback/{page_name(result.student)}"


def _describe_student(found: ClassResult, result: Result) -> dict[str, Any]:
    cells = [
        {
            "points": "" if e.id in result.open else show_points(e.points),
            "by_hand": e.id in result.by_hand,
            "kind": find_kind(e, e.id in result.by_hand),
        }
        for e in result.verdict.exercises
    ]
    return {
        "name": _name_of(found, result.student),
        "page": _link(result),
        "cells": cells,
        "penalty": f"−{show_points(result.penalty)}" if result.penalty else "",
        "mark": show_points(result.mark),
        "notes": [clean_line(note) for note in result.notes],
    }
