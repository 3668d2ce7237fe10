"""Compare two answers and show them: plain data, numbers within a tolerance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

MAX_SHOWN = 3  # numbers of an answer that a message shows
SUMS = 64  # random sums that are kept of a large array
UNITS = (60, 3600, 1e3, 1e6, 1e9, 2**10, 2**20, 2**30)  # one unit in another
SHAPE = "it doesn't have the expected shape: count its arrays, their rows and their columns"
TURNED = "it's transposed: rows and columns are exchanged"
NOTHING = (
    "the function returned nothing (None). Does every path through it end in return? print() shows "
    "a value on the screen, and doesn't return it"
)


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
        items = _as_items(given)
        return (
            items is not None
            and len(items) == len(wanted)
            and all(same(a, b, tolerance) for a, b in zip(items, wanted, strict=True))
        )
    left, right = as_numbers(given), as_numbers(wanted)
    return (
        left is not None
        and left.shape == right.shape
        and bool(_compare(left, right, tolerance).all())
    )


def _compare(left: np.ndarray, right: np.ndarray, tolerance: float) -> np.ndarray:
    """Return which numbers of two arrays of one shape agree."""
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


def _as_items(value: Any) -> list[Any] | None:
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
        wrong = np.argwhere(~_compare(left, right, tolerance)) if right.size > MAX_SHOWN else []
        if len(wrong):
            at = tuple(wrong[0].tolist())
            return [at], left[at], right[at]
    elif isinstance(wanted, list | tuple) and right is None:
        items = _as_items(given)
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


def explain_slip(given: Any, right: Any = 0) -> str:
    """Return what is wrong with the form of an answer, whatever its numbers are, or ""."""
    if given is None:
        return "" if right is None else NOTHING
    items = given if isinstance(given, list | tuple) else []
    for one in (given, *items):
        kind = str(getattr(one, "what", type(one).__name__))  # a judge sees an Opaque
        if kind in ("generator", "map", "zip", "filter"):
            return f"this is a {kind} object, which can be read only once: put list(...) round it"
    if len(items) > 1 and same(items[::-1], right):
        return "these are the right values in another order"
    given, right = _follow_parts(given, right)
    if isinstance(right, dict):
        return _explain_keys(given, right)
    if isinstance(right, list) and as_numbers(right) is None:
        parts = any(isinstance(one, list | np.ndarray) for one in right)
        return SHAPE if parts and len(_as_items(given) or ()) != len(right) else ""
    wanted = right.shape if isinstance(right, Digest) else np.shape(as_numbers(right))
    unknown = as_numbers(right) is None and wanted == ()
    return _explain_numbers(given, right) or ("" if unknown else _explain_shape(given, wanted))


def _follow_parts(given: Any, right: Any) -> tuple[Any, Any]:
    """Return the parts of two answers in which they first differ: arrays aren't taken apart."""
    for key in find_difference(given, right)[0]:
        if isinstance(key, tuple) or as_numbers(right) is not None:
            break
        given, right = given[key], right[key]
    return given, right


def _explain_keys(given: Any, right: dict[Any, Any]) -> str:
    """Return which keys an answer lacks, if what it has is correct; else ""."""
    has = given if isinstance(given, dict) else {}
    lacks = [repr(key) for key in right if key not in has]
    shared = {key: right[key] for key in right if key in has}
    known = bool(shared) and same({key: has[key] for key in shared}, shared)
    told = known or not isinstance(given, dict)
    return f"return a dictionary with {', '.join(lacks)}" if told and lacks else ""


def _explain_numbers(given: Any, right: Any) -> str:
    """Return "" unless these are the right numbers in another order, or in other units."""
    left, due = as_numbers(given), as_numbers(right)
    if left is None or due is None or left.shape != due.shape or not due.size:
        return ""
    if due.ndim == 1 and not same(left, due) and same(np.sort(left), np.sort(due)):
        return "these are the right numbers in another order"
    if due.ndim > 1 and same(left, due.T):
        return TURNED
    if due.size > 1 and np.allclose(left - due, 1, rtol=0.0, atol=1e-6):
        return "each number is one too large. Do you count from 1, or something more?"
    if np.abs(due).max() <= 1 and same(left, 100 * due):
        return "this is a percentage, and a fraction is expected: don't multiply by 100"
    for factor in (f for n in UNITS for f in (n, 1 / n)):
        if due.any() and np.allclose(left, factor * due, rtol=1e-6, atol=0.0):
            return f"this is {factor:.4g} times the expected value. Are its units right?"
    return ""


def _explain_shape(given: Any, wanted: tuple[int, ...]) -> str:
    """Return how the shape of numbers differs from `wanted`, or "": lists are shown in full."""
    if isinstance(given, str):
        return "this is a string, and numbers are expected: leave out the quotes or str()"
    if isinstance(given, dict):
        return "this is a dictionary, and a list or array is expected"
    numbers = as_numbers(given)
    parts = given if isinstance(given, list) else []
    if numbers is None and wanted and any(isinstance(p, list | tuple | np.ndarray) for p in parts):
        return "these are several arrays, and one is expected: join them"
    if numbers is None or numbers.shape == wanted:
        return ""
    if numbers.shape == (1,) and wanted == ():
        return "this is a list or array of one number: return the number itself"
    if numbers.shape == () and len(wanted) == 1:
        return "this is one number, and several are expected"
    if max(numbers.ndim, len(wanted)) < 2:
        return ""
    return TURNED if numbers.shape == wanted[::-1] else SHAPE


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
