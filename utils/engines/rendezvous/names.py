"""Names that came over a network: letters and digits, short, and nothing that a terminal obeys."""

import unicodedata
from collections.abc import Collection
from itertools import chain, count

MAX_NAME, MAX_MARKS = 32, 2  # letters of a name; accents on one letter
ALSO = " .-_'’"


def clean_name(name: str) -> str:
    """Return what is fit to be shown of `name`, in any script; "somebody" where nothing is."""
    kept, marks = [], 0
    for letter in unicodedata.normalize("NFC", " ".join(name[: 8 * MAX_NAME].split())):
        kind = unicodedata.category(letter)[0]
        marks = marks + 1 if kind == "M" else 0
        if kind in "LN" or letter in ALSO or (kind == "M" and kept and marks <= MAX_MARKS):
            kept.append(letter)
    return "".join(kept)[:MAX_NAME].strip() or "somebody"


def find_free_name(name: str, taken: Collection[str]) -> str:
    """Return `name`, or "name 2", "name 3" if it is taken."""
    names = chain([name], (f"{name} {number}" for number in count(2)))
    return next(each for each in names if each not in taken)
