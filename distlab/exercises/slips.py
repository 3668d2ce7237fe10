"""Name the slips that any function can have, in the form of an answer and in its numbers.

None of this knows the exercise. Its own misconceptions come first: its `mistakes`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from distlab.exercises.comparing import (
    AnyOf,
    Digest,
    as_items,
    as_numbers,
    compare,
    find_difference,
    same,
    show,
)

UNITS = (60, 3600, 1e3, 1e6, 1e9, 2**10, 2**20, 2**30)  # one unit in another
FACTORS = (2, 3, 4, 8, 10, 16)
SHAPE = "it doesn't have the expected shape: count its arrays, their rows and their columns"
REVERSED = "these are the right values in another order"
SORTED = "these are the right numbers in another order"
TURNED = "it's transposed: rows and columns are exchanged"
PERCENT = "this is a percentage, and a fraction is expected: don't multiply by 100"
STOPS_EARLY = "Does return stand inside the loop, or does the loop end too early?"
LAST_ALONE = "this is the last entry alone: collect the entries in a list and return it"
ALL_THE_LAST = (
    "every entry is the last one. Is it the same object each time, or made before the loop?"
)
NOTHING = (
    "the function returned nothing (None). Does every path through it end in return? print() shows "
    "a value on the screen, and doesn't return it"
)
RELATIONS: dict[str, Callable[[np.ndarray], Any]] = {  # what a slip makes of the right numbers
    "the sign is wrong: this is the negative of the expected value": np.negative,
    "it's upside down: this is 1 divided by the expected value": lambda x: 1 / x,
    "this is the square of the expected value: is a square root missing?": np.square,
    "this is the square root of the expected value: one root too many": np.sqrt,
    "this is 1 minus the expected value": lambda x: 1 - x,
    "each number is one too large. Do you count from 1, or something more?": lambda x: x + 1,
    "each number is one too small. Is the first or the last one left out?": lambda x: x - 1,
    "it's rounded down: // and int() drop what follows the point": np.floor,
    "it's rounded, and the expected value isn't a whole number": np.rint,
}


# ---- the form


def explain_slip(given: Any, right: Any = 0, tolerance: float = 1e-3) -> str:
    """Return what is wrong with the form of an answer, whatever its numbers are, or ""."""
    if given is None:
        return "" if right is None else NOTHING
    items = given if isinstance(given, list | tuple) else []
    for one in (given, *items):
        kind = str(getattr(one, "what", type(one).__name__))  # a judge sees an Opaque
        if kind in ("generator", "map", "zip", "filter"):
            return f"this is a {kind} object, which can be read only once: put list(...) round it"
    if _is_reversed(given, right, tolerance):
        return REVERSED
    given, right = _follow_parts(given, right)
    if isinstance(right, dict):
        return _explain_keys(given, right)
    if isinstance(right, str):
        return _explain_text(given, right)
    if isinstance(right, list) and as_numbers(right) is None:
        parts = any(isinstance(one, list | np.ndarray) for one in right)
        said = _explain_entries(given, right, tolerance)
        return said or (SHAPE if parts and len(as_items(given) or ()) != len(right) else "")
    wanted = right.shape if isinstance(right, Digest) else np.shape(as_numbers(right))
    unknown = as_numbers(right) is None and wanted == ()
    said = _explain_order(given, right) or (len(wanted) == 1 and _explain_entries(given, right))
    return said or ("" if unknown else _explain_shape(given, wanted))


def _is_reversed(given: Any, right: Any, tolerance: float) -> bool:
    """Return whether an answer's parts are the right ones from the last to the first."""
    if isinstance(given, dict) and isinstance(right, dict) and list(given) == list(right):
        given, right = list(given.values()), list(right.values())
    items = given if isinstance(given, list | tuple) else []
    return len(items) > 1 and same(items[::-1], right, tolerance)


def _follow_parts(given: Any, right: Any) -> tuple[Any, Any]:
    """Return the parts of two answers in which they first differ: arrays aren't taken apart."""
    for key in find_difference(given, right)[0]:
        if (
            isinstance(key, tuple)
            or as_numbers(right) is not None
            or _explain_entries(given, right)
        ):
            break
        given, right = given[key], right[key]
    return given, right


def _explain_entries(given: Any, right: Any, tolerance: float = 1e-3) -> str:
    """Return which entries of a list are missing, too many or all the same, or ""."""
    items, due = as_items(given), as_items(right) or []
    if len(due) < 2:
        return ""
    agree = partial(same, tolerance=tolerance)
    alone = not any(agree(one, due[-1]) for one in due[:-1])
    if alone and agree(given, due[-1]):
        return LAST_ALONE
    words = all(isinstance(one, str) for one in (*(items or ()), *due))
    if items is None:
        one = words and isinstance(given, str)
        return "this is one string, and a list of strings is expected" if one else ""
    more = len(items) - len(due)
    if words:
        return _explain_words(items, due)
    if more == 0:
        return ALL_THE_LAST if alone and all(agree(one, due[-1]) for one in items) else ""
    if items and all(map(agree, items, due)):  # up to the end of the shorter one
        if more > 0:
            return "after the right entries come others"
        return f"the last entries are missing. {STOPS_EARLY}"
    if items and more < 0 and all(map(agree, items, due[-len(items) :])):
        return "the first entries are missing. Does the loop start too late?"
    counted = more and np.ndim(as_numbers(given)) == np.ndim(as_numbers(right)) == 1
    return f"there are too {'many' if more > 0 else 'few'} entries" if counted else ""


def _explain_words(items: list[Any], due: list[Any]) -> str:
    """Return which words of a list are missing, too many or in another order, or ""."""
    if items == due:
        return ""
    if sorted(items) == sorted(due):
        return "these are the right entries in another order"
    missing, extra = [w for w in due if w not in items], [w for w in items if w not in due]
    if missing and extra:
        return ""
    does = "is missing from" if missing else "doesn't belong in"
    return f"{_list_words(missing or extra)} {does} the list" if missing or extra else ""


def _list_words(words: Sequence[Any]) -> str:
    return ", ".join(map(repr, words))


def _explain_keys(given: Any, right: dict[Any, Any]) -> str:
    """Return which keys an answer lacks or has too many, if what it has is correct; else ""."""
    has = given if isinstance(given, dict) else {}
    lacks, extra = [k for k in right if k not in has], [k for k in has if k not in right]
    if len(lacks) == len(extra) == 1 and same(has[extra[0]], right[lacks[0]]):
        return f"the key must be {lacks[0]!r}, not {extra[0]!r}"
    shared = {key: right[key] for key in right if key in has}
    known = bool(shared) and same({key: has[key] for key in shared}, shared)
    if lacks:
        return f"return a dictionary with {_list_words(lacks)}" if known or not has else ""
    return f"{_list_words(extra)} doesn't belong in the dictionary" if known and extra else ""


def _explain_text(given: Any, right: str) -> str:
    """Return "" unless a string has a folder before the right one, or an ending more or less."""
    text = str(given).strip()
    if not right or not text or right.lower() == text.lower():
        return ""
    end = right.removeprefix(text)
    if end != right and not end[0].isalnum():
        return f"the string ends too early: {end!r} is missing"
    if text in re.findall(r"\w+", right):
        return "this is only a part of the expected string"
    if not isinstance(given, str) or right not in given:
        return ""
    before, _, after = given.partition(right)
    if before[-1:] in ("", "/") and after[:1] in ("", "."):
        where = "before" if before else "after"
        return f"the expected string is there, with something {where} it: leave that out"
    return ""


def _explain_order(given: Any, right: Any) -> str:
    """Return "" unless these are the right numbers in another order."""
    left, due = as_numbers(given), as_numbers(right)
    if left is None or due is None or left.shape != due.shape or not due.size:
        return ""
    if due.ndim == 1 and not same(left, due) and same(np.sort(left), np.sort(due)):
        return SORTED
    return TURNED if due.ndim > 1 and same(left, due.T) else ""


def _explain_shape(given: Any, wanted: tuple[int, ...]) -> str:
    """Return how the shape of numbers differs from `wanted`, or ""."""
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


# ---- words, and what doesn't depend on the case


def explain_choice(given: Sequence[Any], right: Sequence[Any], wrong: Sequence[int]) -> str:
    """Return "" unless a part is the same in every case, or words are mixed up.

    `wrong` are the places of the wrong answers.
    """
    path = [k for k in find_difference(given[wrong[0]], right[wrong[0]])[0] if type(k) is not tuple]
    got, due = ([_get(one, path) for one in column] for column in (given, right))
    plain = not isinstance(got[0], dict | list | tuple | np.ndarray)
    if plain and all(same(one, got[0]) for one in got) and not all(same(d, due[0]) for d in due):
        return "it's the same in every case, whatever the function is given"
    pairs = [(due[k], got[k]) for k in wrong if isinstance(got[k], str)]
    words = {(show(a), show(b)) for a, b in pairs if isinstance(a, str | AnyOf) and not same(b, a)}
    if len(wrong) < 2 or not words or not isinstance(due[wrong[0]], str | AnyOf):
        return ""
    wanted, said = (sorted(set(column)) for column in zip(*words, strict=True))
    if len(words) == 2 and wanted == said:
        return f"{said[0]} and {said[1]} are exchanged"
    if len(said) == 1:
        return f"{said[0]} comes out in place of {', and of '.join(wanted)}: what tells them apart?"
    return f"{wanted[0]} is taken for {' and for '.join(said)}" if len(wanted) == 1 else ""


def _get(value: Any, path: Sequence[Any]) -> Any:
    """Return the part of an answer at `path`, the answer itself if it has no such part."""
    part = value
    for key in path:
        try:
            part = part[key]
        except (KeyError, IndexError, TypeError):
            return value
    return part


# ---- the numbers


def explain_numbers(
    given: Sequence[Any], right: Sequence[Any], cases: Sequence[Any], tolerance: float = 1e-3
) -> str:
    """Return what the wrong numbers of all these answers have in common, or "".

    Each of them must show it. If there is only one, it has to be a percentage or a unit. `cases`
    are the arguments of each call, empty where the learner's function has others.
    """
    parts = [_follow_parts(*pair) for pair in zip(given, right, strict=True)]
    found = [pair for pair in (_find_wrong_numbers(*each, tolerance) for each in parts) if pair]
    if not parts or len(found) < len(parts):
        return ""
    if len(found) > 1 and (said := _explain_position(found, cases)):
        return said
    got, due = (np.concatenate(column) for column in zip(*found, strict=True))
    for words, make in _list_relations(found, cases):
        with np.errstate(all="ignore"):
            made = np.broadcast_to(np.asarray(make(due), float), due.shape)
            slack = 1e-3 * np.minimum(np.abs(made), np.abs(made - due)) + 1e-12
        told = not words.startswith("it's rounded") or made.any()  # zeros have many causes
        if told and np.isfinite(made).all() and np.all(np.abs(got - made) <= slack):
            return words
    for unit in (u for n in UNITS for u in (n, 1 / n)):
        if np.all(np.abs(got - unit * due) <= max(1e-3, tolerance) * np.abs(unit * due)):
            return _word_factor(unit)
    if len(due) < 2:
        return ""
    whole = all(np.asarray(part).dtype.kind in "iu" for _, part in parts)
    broken = got != np.rint(got)
    if whole and broken.any() and np.all(np.abs(got - due)[broken] < 1):
        return "a whole number is expected: round up or down where you count things"
    return ""


def _find_wrong_numbers(given: Any, right: Any, tolerance: float) -> Any:
    """Return the wrong numbers of a part, and the right ones there: two arrays, or None."""
    left, due = as_numbers(given), as_numbers(right)
    if left is None or due is None or left.shape != due.shape or isinstance(right, bool):
        return None
    wrong = ~compare(left, due, tolerance)
    both = left[wrong], due[wrong]
    return both if wrong.any() and np.isfinite(both).all() else None


def _list_relations(
    pairs: Sequence[Any], cases: Sequence[Any]
) -> Iterator[tuple[str, Callable[[np.ndarray], Any]]]:
    """Yield (words, what such a slip makes of all right numbers of `pairs`)."""
    sizes = [len(got) for got, _ in pairs]
    if all(np.abs(due).max() <= 1 for _, due in pairs):
        yield PERCENT, lambda x: 100 * x
    if len({x for _, due in pairs for x in due.tolist()}) > 1:
        yield from RELATIONS.items()
    for name, values in _list_quantities(cases) if len(pairs) > 1 else ():
        q = np.repeat(values, sizes)
        yield f"this is the expected value times {name}: is a division missing?", q.__mul__
        yield (
            f"this is the expected value over {name}: is a multiplication missing?",
            (1 / q).__mul__,
        )
        yield f"this is {name} itself, not what follows from it", lambda x, q=q: q
        if len(pairs) > 2:  # small whole numbers differ by one another
            yield f"the difference is {name}: is it counted twice?", q.__add__
            yield f"the difference is {name}: is it left out?", (-q).__add__
    for factor in (f for n in FACTORS for f in (n, 1 / n) if sum(sizes) > 1):
        yield _word_factor(factor), partial(np.multiply, factor)


def _word_factor(factor: float) -> str:
    return (
        f"this is {factor:.4g} times the expected value. Are its units right, and does everything "
        "count once?"
    )


def _list_quantities(cases: Sequence[Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and the value in each case of its numbers, and of its lists' lengths."""
    for place, column in enumerate(zip(*cases, strict=False)):
        numbers = [as_numbers(one) for one in column]
        if all(n is not None and n.ndim == 0 and n for n in numbers):
            yield f"argument {place + 1}", np.array(numbers, float)
    counts = [sum(_count(one) for one in case if np.iterable(one)) for case in cases]
    if min(counts) > 1:
        yield "how many numbers were given", np.array(counts, float)


def _count(value: Any) -> int:
    """Return how many numbers a list of lists holds."""
    return 1 if isinstance(value, str) or not np.iterable(value) else sum(map(_count, value))


def _explain_position(pairs: Sequence[Any], cases: Sequence[Any]) -> str:
    """Return "" unless each answer is where the right one stands in a list of its case."""
    for column in zip(*cases, strict=False):
        lists = [as_numbers(one) for one in column]
        if all(
            values is not None
            and values.ndim == 1
            and len(got) == 1
            and got[0] in range(len(values))
            and values[int(got[0])] == due[0]
            for values, (got, due) in zip(lists, pairs, strict=True)
        ):
            return "this is a position in a list: return the value that stands there"
    return ""
