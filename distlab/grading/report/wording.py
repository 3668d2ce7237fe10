"""How the pages name a student's page, write points, and call a verdict."""

import hashlib
import re

from distlab.grading.verdict import ExerciseVerdict


def page_name(student: str) -> str:
    """Return the file name of a student's page: safe, and no two students' the same."""
    safe = re.sub(r"[^A-Za-z0-9.-]+", "_", student).strip("._") or "student"
    return f"{safe[:60]}-{hashlib.sha256(student.encode()).hexdigest()[:10]}.html"


def show_points(points: float) -> str:
    """Return points as people write them: 2, 2.5, 0.33."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def find_kind(verdict: ExerciseVerdict, by_hand: bool) -> str:
    """Return "right", "wrong" or "human": what counts is the points, where a human set them."""
    if by_hand:
        return "right" if verdict.points >= verdict.max else "wrong"
    return {"for a human": "human", "right": "right"}.get(verdict.status, "wrong")
