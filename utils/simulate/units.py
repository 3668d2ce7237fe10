"""Numbers with a unit, as specifications write them: "400Gb/s", "25 GB/s", "5us"."""

import math
import re

from ..errors import InputError

BITS_AND_BYTES = {"b": 1 / 8, "bit": 1 / 8, "B": 1.0}
PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
            "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}  # fmt: skip
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
NUMBER = r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
RATE = re.compile(NUMBER + r"\s*([kKMGT]i?)?(bit|b|B)(?:/s|ps)?\s*")
PLAIN_OR_TIME = re.compile(NUMBER + r"\s*(ns|us|µs|ms|s)?\s*")


def parse_rate(text: str) -> float:
    """Return bytes per second: "400Gb/s" and "50GB/s" are both 50e9.

    A small b is a bit, a capital B a byte. Raises InputError for any other text, a bare number
    included: nobody could tell which of the two it meant.
    """
    found = RATE.fullmatch(text)
    if not found:
        example = text.strip() if _read_plain(text) is not None else "100"
        raise InputError(
            f"rate must have a unit, got {text!r}. Write {example}Gb/s for gigabits per second, "
            f"or {example}GB/s for gigabytes per second."
        )
    number, prefix, unit = found.groups()
    rate = float(number) * PREFIXES[prefix or ""] * BITS_AND_BYTES[unit]
    if not 0 < rate < math.inf:
        raise InputError(f"rate must be greater than 0 and finite, got {text!r}. Try 100Gb/s.")
    return rate


def read_bandwidth_gbps(text: str) -> float:
    """Return gigabytes (1e9 bytes) a second: "50", "50GB/s" and "400Gb/s" are all 50.0.

    A small b is a bit, a capital B a byte. Raises InputError for any other text.
    """
    plain = _read_plain(text)
    if plain is not None:
        return plain
    found = RATE.fullmatch(text)
    if not found:
        raise InputError(
            f"bandwidth {text!r}: give gigabytes a second (50), or a value with a unit (400Gb/s, "
            "50GB/s)"
        )
    number, prefix, unit = found.groups()
    return float(number) * PREFIXES[prefix or ""] * BITS_AND_BYTES[unit] / 1e9


def read_latency_us(text: str) -> float:
    """Return microseconds: "5", "5us" and "0.005ms" are all 5.0; raise InputError otherwise."""
    plain = _read_plain(text)
    if plain is not None:
        return plain
    found = PLAIN_OR_TIME.fullmatch(text)
    if not found:
        raise InputError(f"latency {text!r}: give microseconds (5), or a value with a unit (5us)")
    return float(found[1]) * SECONDS[found[2]] * 1e6


def _read_plain(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
