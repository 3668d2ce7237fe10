"""The worked answers of the visible checks, `distlab/labs/labNN/worked.json`: examples only.

For each exercise and each of its examples they hold what is right and what each known
mistake gives. `python -m distlab.grading.worked labNN` writes them with the judge's
reference; a test compares them.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from distlab.errors import CourseError
from distlab.exercises.comparing import AnyOf, Anything, Digest, as_numbers, make_digest

FOLDER = Path(__file__).parents[1] / "labs"
MAX_NUMBERS = 64  # of an array that is kept in full; a larger one has a digest
Worked = Mapping[str, Mapping[str, Sequence[Any]]]  # exercise -> "right" or mistake -> answers


@cache
def read_worked(lab: str) -> Worked:
    """Return the worked answers of a lab; CourseError if they weren't worked out yet."""
    try:
        text = (FOLDER / lab / "worked.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CourseError(
            f"{lab} has no worked answers yet. Run python -m distlab.grading.worked {lab}."
        ) from None
    return json.loads(text, object_hook=_read)


def _read(data: dict[str, Any]) -> Any:
    if "digest of shape" in data:
        shape, first, sums = (tuple(data[k]) for k in ("digest of shape", "first", "sums"))
        return Digest(shape, first, sums)
    if "any of" in data:
        return AnyOf(tuple(data["any of"]))
    return Anything() if "anything" in data else data


def write_worked(lab: str, worked: Worked) -> Path:
    """Write the worked answers of a lab, a line for each mistake; return the file."""
    parts = []
    for exercise, ways in worked.items():
        kept = {way: [keep(answer) for answer in answers] for way, answers in ways.items()}
        lines = [f"  {json.dumps(way)}: {json.dumps(answers)}" for way, answers in kept.items()]
        parts.append(f" {json.dumps(exercise)}: {{\n" + ",\n".join(lines) + "\n }")
    path = FOLDER / lab / "worked.json"
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    read_worked.cache_clear()
    return path


def keep(value: Any) -> Any:
    """Return an answer as JSON has it: large arrays as digests, numbers to 12 digits."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Anything):
        return {"anything": True}
    if isinstance(value, AnyOf):
        return {"any of": [keep(answer) for answer in value.answers]}
    if isinstance(value, dict):
        return {key: keep(item) for key, item in value.items()}
    numbers = as_numbers(value)
    if numbers is not None and numbers.size > MAX_NUMBERS:
        digest = make_digest(numbers)
        return {
            "digest of shape": list(digest.shape),
            "first": _shorten(digest.first),
            "sums": _shorten(digest.sums),
        }
    if isinstance(value, list | tuple):
        return [keep(item) for item in value]
    return _shorten(np.asarray(value).tolist())


def _shorten(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_shorten(item) for item in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value
