"""The words of the pages: a student's page, points, and verdicts."""

import hashlib
import re

from distlab.grading.verdict import ExerciseVerdict

_SENTENCE = re.compile(
    r"(?P<call>.+?) gave (?P<gave>.*?), should give (?P<wanted>.*?): (?P<why>.*)"
)


def page_name(student: str) -> str:
    """Return the file name of a student's page: safe, and no two students' the same."""
    safe = re.sub(r"[^A-Za-z0-9.-]+", "_", student).strip("._") or "student"
    return f"{safe[:60]}-{hashlib.sha256(student.encode()).hexdigest()[:10]}.html"


def split_message(message: str) -> dict[str, str]:
    """Return a message's `call`, `gave`, `wanted` and `why`; {} if it isn't such a sentence."""
    found = _SENTENCE.fullmatch(message)
    return found.groupdict() if found else {}


def show_points(points: float | None) -> str:
    """Return points as people write them: 2, 2.5, 0.33; nothing for a mark that waits."""
    if points is None:
        return ""
    return f"{points:.2f}".rstrip("0").rstrip(".") if points % 1 else f"{points:.0f}"


def find_kind(verdict: ExerciseVerdict, by_hand: bool) -> str:
    """Return "right", "wrong" or "human": if a human set the points, these count."""
    if by_hand:
        return "right" if verdict.points >= verdict.max else "wrong"
    return {"for a human": "human", "right": "right"}.get(verdict.status, "wrong")
