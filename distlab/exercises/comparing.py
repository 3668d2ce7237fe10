"""Compare two answers and show them: plain data, numbers within a tolerance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

MAX_SHOWN = 3  # numbers of an answer that a message shows
SUMS = 64  # random sums that are kept of a large array


class Anything:
    """Agrees with every answer: for a part that doesn't matter."""


@dataclass(frozen=True)
class AnyOf:
    """Agrees with each of several answers."""

    answers: tuple[Any, ...]


@dataclass(frozen=True)
class Digest:
    """A summary of a large array: its shape, its first numbers and random sums of all of it.

    Each sum takes every element with a random sign. Arrays that differ by a share of
    their length have sums that differ by about that share of the sums' size
    (Johnson and Lindenstrauss 1984), and multiples of an array have multiples of its sums.
    """

    shape: tuple[int, ...]
    first: tuple[float, ...]
    sums: tuple[float, ...]


def make_digest(numbers: np.ndarray) -> Digest:
    """Return the digest of an array."""
    first = tuple(float(x) for x in numbers.flat[:4])
    return Digest(numbers.shape, first, tuple(add_up(numbers).tolist()))


def add_up(numbers: np.ndarray) -> np.ndarray:
    """Return the random sums [SUMS] of an array of any shape."""
    return _draw_signs(numbers.size) @ np.ravel(numbers)


@lru_cache(4)
def _draw_signs(size: int) -> np.ndarray:
    return np.random.default_rng(0).choice([-1.0, 1.0], size=(SUMS, size))


def find_wrong(got: Sequence[Any], right: Sequence[Any], tolerance: float = 1e-3) -> int | None:
    """Return the index of the first answer that is wrong, None if all are right."""
    pairs = zip(got, right, strict=True)
    return next((k for k, pair in enumerate(pairs) if not same(*pair, tolerance)), None)


def same(given: Any, wanted: Any, tolerance: float = 1e-3) -> bool:
    """Return whether two answers agree: words but for case, numbers within `tolerance`, shapes.

    `wanted` may be or hold a `Digest` of the expected value, `AnyOf` or `Anything`. A dictionary
    agrees key by key; a list or tuple that isn't an array of numbers (words in it, or parts of
    different lengths) item by item.
    """
    if wanted is None or isinstance(wanted, str):
        return _same_word(given, wanted)
    if isinstance(wanted, Anything):
        return True
    if isinstance(wanted, AnyOf):
        given = given.answers if isinstance(given, AnyOf) else (given,)
        return all(any(same(one, w, tolerance) for w in wanted.answers) for one in given)
    if isinstance(wanted, Digest):
        return _same_digest(given, wanted, tolerance)
    if isinstance(wanted, dict):
        return _same_dictionary(given, wanted, tolerance)
    if isinstance(wanted, list | tuple) and as_numbers(wanted) is None:
        items = as_items(given)
        return (
            items is not None
            and len(items) == len(wanted)
            and all(same(a, b, tolerance) for a, b in zip(items, wanted, strict=True))
        )
    left, right = as_numbers(given), as_numbers(wanted)
    return (
        left is not None
        and left.shape == right.shape
        and bool(compare(left, right, tolerance).all())
    )


def compare(left: np.ndarray, right: np.ndarray, tolerance: float) -> np.ndarray:
    """Return which numbers of two arrays of one shape agree within a relative `tolerance`."""
    scale = float(np.max(np.abs(right[np.isfinite(right)]), initial=0.0))
    slack = 1e-9 + 1e-3 * tolerance * scale
    return np.isclose(left, right, rtol=tolerance, atol=slack, equal_nan=True)


def _same_digest(given: Any, wanted: Digest, tolerance: float) -> bool:
    numbers = as_numbers(given)
    if numbers is None or numbers.shape != wanted.shape:
        return False
    found, sums = add_up(numbers), np.array(wanted.sums)
    if not np.isfinite(sums).all():
        return not np.isfinite(found).all()
    slack = tolerance * float(np.max(np.abs(sums)))
    return bool(np.allclose(found, sums, rtol=0.0, atol=slack))


def _same_word(given: Any, wanted: str | None) -> bool:
    if wanted is None:
        return given is None
    return isinstance(given, str) and given.strip().lower() == wanted.lower()


def _same_dictionary(given: Any, wanted: dict[Any, Any], tolerance: float) -> bool:
    return (
        isinstance(given, dict)
        and set(given) == set(wanted)
        and all(same(given[key], wanted[key], tolerance) for key in wanted)
    )


def as_items(value: Any) -> list[Any] | None:
    if isinstance(value, list | tuple):
        return list(value)
    return list(value) if isinstance(value, np.ndarray) and value.ndim else None


def as_numbers(value: Any) -> np.ndarray | None:
    """Return `value` as an array of float64, None if it isn't an array of numbers."""
    if isinstance(value, str | dict) or value is None:
        return None
    try:
        if np.asarray(value).dtype.kind in "USc":  # "12" isn't 12, and 12 + 3j isn't either
            return None
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # the last for 2**4000
        return None


def show(value: Any) -> str:
    """Return a short text of an answer: NumPy's numbers and arrays as plain ones."""
    if isinstance(value, Digest):
        return _show_first(value.shape, value.first[:MAX_SHOWN])
    if isinstance(value, AnyOf):
        return " or ".join(show(answer) for answer in value.answers)
    if isinstance(value, str | bool):
        return repr(str(value)) if isinstance(value, str) else str(value)
    if isinstance(value, dict):
        return "{" + _cut(", ".join(f"{show(k)}: {show(v)}" for k, v in value.items())) + "}"
    numbers = as_numbers(value)
    if numbers is not None:
        return _show_numbers(numbers)
    if isinstance(value, list | tuple) and value:
        return "[" + _cut(", ".join(show(item) for item in value)) + "]"
    try:
        return repr(value)[:80]
    except Exception:  # a learner's own object may not even have a text
        return f"an object of type {type(value).__name__}"


def find_difference(given: Any, wanted: Any) -> tuple[list[Any], Any, Any]:
    """Return the path to where two answers first differ, and what each of them has there.

    Keys and places in lists lead to the part that differs, and in arrays of more than three
    numbers a tuple leads to the number, if both have the same keys, length or shape. What is
    clearly wrong comes before what differs in its seventh digit.
    """
    tolerances = (tolerance for tolerance in (1e-3, 1e-6) if not same(given, wanted, tolerance))
    return _follow_difference(given, wanted, next(tolerances, 1e-6))


def _follow_difference(given: Any, wanted: Any, tolerance: float) -> tuple[list[Any], Any, Any]:
    pairs: dict[Any, tuple[Any, Any]] = {}
    left, right = as_numbers(given), as_numbers(wanted)
    if isinstance(wanted, dict) and isinstance(given, dict) and set(given) == set(wanted):
        pairs = {key: (given[key], wanted[key]) for key in wanted}
    elif right is not None and left is not None and left.shape == right.shape:
        wrong = np.argwhere(~compare(left, right, tolerance)) if right.size > MAX_SHOWN else []
        if len(wrong):
            at = tuple(wrong[0].tolist())
            return [at], left[at], right[at]
    elif isinstance(wanted, list | tuple) and right is None:
        items = as_items(given)
        if items is not None and len(items) == len(wanted):
            pairs = dict(enumerate(zip(items, wanted, strict=True)))
    for where, pair in pairs.items():
        if not same(*pair, tolerance):
            inside, *values = _follow_difference(*pair, tolerance)
            return ([where, *inside], *values)
    return [], given, wanted


def show_path(path: Sequence[Any]) -> str:
    """Return a path of `find_difference` as one would write it after a name: ['output'][0, 2]."""
    return "".join(f"[{repr(key).strip('(,)')}]" for key in path)


def _cut(text: str, longest: int = 200) -> str:
    return text if len(text) <= longest else text[:longest] + " …"


def _show_numbers(numbers: np.ndarray) -> str:
    if max(numbers.size, *numbers.shape, 0) > 8:  # an empty array may have a huge axis
        return _show_first(numbers.shape, numbers.flat[:MAX_SHOWN])
    text: Callable[[float], str] = np.vectorize(lambda x: f"{x:.4g}", otypes=[object])
    return str(text(numbers).tolist()).replace("'", "")


def _show_first(shape: Sequence[int], first: Sequence[float]) -> str:
    shown = ", ".join(f"{x:.4g}" for x in first)
    return f"an array of shape {list(shape)}" + (f" beginning {shown}" if shown else "")
