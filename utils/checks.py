"""Checks of what a caller passes in: one wording for each, and one clear line."""

import math
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

from .errors import InputError

MAX_COUNT = 10**9
MAX_LISTED = 8  # choices in a message
MAX_SHOWN = 40  # letters of a value that a message shows
# categories of Unicode that a terminal may obey, or that nobody sees
UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))


def check_count(name: str, value: Any, least: int = 1, most: int = MAX_COUNT) -> int:
    """Return `value` as an int; raise InputError unless it is whole, from `least` to `most`.

    `MAX_COUNT` keeps out what no machine could do.
    """
    if not is_whole(value) or not least <= value <= most:
        is_open = most == MAX_COUNT and not (is_whole(value) and value > most)
        allowed = f"of at least {least}" if is_open else f"from {least} to {most:,}"
        raise InputError(f"{name} must be a whole number {allowed}, got {show(value)}.")
    return int(value)


def check_number(
    name: str, value: Any, *, least: float | None = None, above: float | None = None
) -> float:
    """Return `value` as a float; raise InputError unless it is finite and within the bound."""
    is_real = type(value) is float or (isinstance(value, Real) and not isinstance(value, bool))
    if not is_real or not is_finite(value):
        raise InputError(f"{name} must be a finite number, got {show(value)}.")
    if above is not None and value <= above:
        raise InputError(f"{name} must be above {above:g}, got {show(value)}.")
    if least is not None and value < least:
        raise InputError(f"{name} must be at least {least:g}, got {show(value)}.")
    return float(value)


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return `value`; raise InputError, which lists what is allowed, unless it is among it."""
    allowed = tuple(allowed)
    if value not in allowed:
        near = suggest(str(value), allowed) or "."
        raise InputError(
            f"{name} must be one of {list_few(allowed)}, got {show(repr(value))}{near}"
        )
    return value


def suggest(word: str, choices: Iterable[Any]) -> str:
    """Return ". Did you mean 'x'?" if one of `choices` is near `word`, else ""."""
    names = [str(choice) for choice in choices]
    near = [name for name in names if len(word) > 3 and name.startswith(word)]
    near = near or get_close_matches(word[: 4 * MAX_SHOWN], names, n=1, cutoff=0.6)
    return f". Did you mean {near[0]!r}?" if near else ""


def list_few(choices: Iterable[Any]) -> str:
    """Return the choices in one line: `MAX_LISTED` at most, and then how many there are."""
    names = [str(choice) for choice in choices]
    if len(names) > MAX_LISTED:
        names = [*names[: MAX_LISTED - 1], f"… ({len(names)} in all)"]
    return ", ".join(names) or "none"


def is_whole(value: Any) -> bool:
    """Return whether `value` is an integer of Python or NumPy; True and False aren't."""
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def is_finite(value: Any) -> bool:
    """Return whether `value` is finite as a float: an integer may be too large for one."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def show(value: Any) -> str:
    """Return `value` as a message shows it: the beginning, where it is long."""
    if (
        isinstance(value, int) and abs(value) >= 10**MAX_SHOWN
    ):  # Python refuses to print the longest
        return f"of about {round(value.bit_length() * math.log10(2))} digits"
    text = str(value)
    return text if len(text) <= 2 * MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
