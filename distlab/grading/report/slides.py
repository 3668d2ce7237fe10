"""A lab's misconceptions as slides for the room: wrong lines without names, a question, why.

A student's function is printed from its syntax tree, without comments and docstrings. The number of
students with a misconception shows only from three on.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from distlab.grading.labs import ExerciseSpec
from distlab.grading.report.answers import parse
from distlab.grading.report.tasks import Task
from distlab.grading.report.wording import split_message
from distlab.grading.results import ClassResult
from distlab.grading.text import clean, clean_line
from utils.errors import shorten
from utils.measure import count

MAX_LINES, MAX_LINE, MAX_VALUE = 9, 90, 160
FEWEST_PEOPLE = 3
Line = tuple[str, bool]


def describe_slides(
    found: ClassResult,
    tasks: Mapping[str, Task],
    answers: Mapping[str, Mapping[str, str]],
    misconceptions: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return a slide for each of `misconceptions` (as `count_misconceptions` has them), in order.

    `lines` are (line, whether the reference has no such line), the shortest student's; `call`,
    `gave`, `wanted` and `why` come from one message, or are empty.
    """
    slides = []
    for row in misconceptions:
        (exercise,) = (e for e in found.lab.exercises if e.id == row["id"])
        said = [
            (result.student, verdict.message)
            for result in found.results
            for verdict in result.verdict.exercises
            if (verdict.id, clean_line(verdict.misconception)) == (row["id"], row["name"])
        ]
        parts = next(filter(None, (split_message(clean(m, 4000)) for _, m in said)), {})
        wrong = [answers[student].get(row["id"], "") for student, _ in said]
        people = len(said)
        slides.append(
            {
                **{
                    name: shorten(clean_line(parts.get(name, "")), MAX_VALUE)
                    for name in ("call", "gave", "wanted")
                },
                "why": row["text"] or clean_line(parts.get("why", "")) or row["name"],
                "exercise": row["exercise"],
                "lines": pick_lines(wrong, tasks[row["id"]].reference, exercise),
                "people": count(people, "student") if people >= FEWEST_PEOPLE else "",
            }
        )
    return slides


def pick_lines(answers: Sequence[str], reference: str, exercise: ExerciseSpec) -> list[Line]:
    """Return the lines of the shortest answer, MAX_LINES around the first that is its own."""
    printed = [lines for lines in (_print(text, exercise.functions) for text in answers) if lines]
    if not printed:
        return []
    lines = min(printed, key=lambda lines: (len(lines), lines))
    common = set(_rename(_print(reference, exercise.functions)))
    own = [plain not in common for plain in _rename(lines)]
    marked = [(shorten(line, MAX_LINE), is_own) for line, is_own in zip(lines, own)]
    first = next((k for k, (_, own) in enumerate(marked) if own), 0)
    start = max(0, min(first - 2, len(marked) - MAX_LINES))
    return marked[start : start + MAX_LINES]


def _print(text: str, names: Sequence[str]) -> list[str]:
    """Return the lines of an answer's functions, without comments and docstrings."""
    tree = parse(text)
    if tree is None:
        return []
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in names]
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return [clean(line) for f in functions for line in _unparse(f)]


def _rename(lines: Sequence[str]) -> list[str]:
    """Return the lines, stripped, with the names that they assign numbered as they appear."""
    own: dict[str, str] = {}
    for node in ast.walk(parse("\n".join(lines)) or ast.Module([], [])):
        if isinstance(node, ast.arg):
            own.setdefault(node.arg, f"v{len(own)}")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.setdefault(node.id, f"v{len(own)}")
    return [re.sub(r"\b\w+\b", lambda m: own.get(m[0], m[0]), line.strip()) for line in lines]


def _unparse(function: ast.FunctionDef) -> list[str]:
    try:
        return ast.unparse(function).splitlines()
    except (RecursionError, ValueError):
        return []
