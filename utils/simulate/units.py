"""Numbers as people write and read them: "400Gb/s", "5us", "1.3e9"; 0.00125 s is 1.25 ms."""

import math
import re
from dataclasses import MISSING, field
from typing import Any

from ..errors import InputError

BITS_AND_BYTES = {"b": 1 / 8, "bit": 1 / 8, "B": 1.0}
PREFIXES = {
    "": 1.0,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
NUMBER = r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
RATE = re.compile(NUMBER + r"\s*([kKMGT]i?)?(bit|b|B)(?:/s|ps)?\s*")
TIME = re.compile(NUMBER + r"\s*(ns|us|µs|ms|s)\s*")


def parse_rate(text: str) -> float:
    """Return bytes per second: "400Gb/s" and "50GB/s" are both 50e9.

    A small b is a bit, a capital B a byte. Raises InputError for any other text, a bare number
    included: nobody could tell which of the two it meant.
    """
    found = RATE.fullmatch(text)
    if not found:
        example = text.strip() if _is_plain(text) else "100"
        raise InputError(
            f"rate must have a unit, got {text!r}. Write {example}Gb/s for gigabits per second, "
            f"or {example}GB/s for gigabytes per second."
        )
    number, prefix, unit = found.groups()
    rate = float(number) * PREFIXES[prefix or ""] * BITS_AND_BYTES[unit]
    if not 0 < rate < math.inf:
        raise InputError(f"rate must be greater than 0 and finite, got {text!r}. Try 100Gb/s.")
    return rate


def parse_time(text: str) -> float:
    """Return seconds: "5us" and "0.005ms" are both 5e-6. Raises InputError for a bare number."""
    found = TIME.fullmatch(text)
    if not found:
        example = text.strip() if _is_plain(text) else "5"
        raise InputError(
            f"time must have a unit, got {text!r}. Write {example}us for microseconds, "
            f"or {example}ms for milliseconds."
        )
    seconds = float(found[1]) * SECONDS[found[2]]
    if not 0 <= seconds < math.inf:
        raise InputError(f"time must be 0 or more, got {text!r}. Try 5us.")
    return seconds


def parse_whole(text: str) -> int:
    """Return the whole number in `text`, which may be as large as a model: "1000000" or "1e6"."""
    try:
        number = int(text) if text.strip().lstrip("+-").isdecimal() else float(text)
        if number != int(number):
            raise ValueError
    except (ValueError, OverflowError):
        raise InputError(f"must be a whole number, got {text!r}. Try 1000000 or 1e6.") from None
    return int(number)


def parse_sizes(text: str, most: int = 10_000) -> tuple[int, ...]:
    """Return the whole numbers in "1,8,64" or "1-16". Raises InputError for any other text."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 30:
            raise InputError(f"sizes must be whole numbers, got {text!r}. Try 1,8,64 or 1-16.")
        low, high = int(first), int(last or first)
        if high - low >= most or len(found) > most:
            raise InputError(f"{text!r} names too many sizes. Give at most {most:,} sizes.")
        found += range(low, high + 1)
    return tuple(found)


def ask(kind: str, help: str = "", default: Any = MISSING, choices: tuple = ()) -> Any:
    """Return a dataclass field that a command line can ask for.

    `kind` is how it is read: "text", "number", "whole", "large" (1e9 is whole too), "rate",
    "time", or "flag".
    """
    return field(default=default, metadata={"kind": kind, "help": help, "choices": choices})


def format_seconds(seconds: float) -> str:
    """Return a time for people: `format_seconds(0.00125)` is "1.25 ms"."""
    if seconds == 0:
        return "0 s"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:,.4g} {unit}"
    return f"{seconds / 1e-6:,.4g} us"


def _is_plain(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
