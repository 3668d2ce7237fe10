"""Published measurements to compare the simulators with, one small CSV each.

A file begins with comment lines (`# ...`) that cite its source; then a header
and rows of plain values.
"""

import csv
from pathlib import Path

from ...errors import InputError

FOLDER = Path(__file__).parent


def read_table(name: str) -> list[dict[str, float | str]]:
    """Return the rows of the published table `name`.csv, numbers as float, all else unchanged.

    Raises InputError if there is no such table; the message lists them.

        >>> rows = read_table("gpipe_table3_2019")
    """
    path = FOLDER / f"{name}.csv"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.csv")))
        raise InputError(f"The published table must be one of {known}, got {name!r}.")
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return [{key: _read_value(text) for key, text in row.items()} for row in csv.DictReader(lines)]


def read_source(name: str) -> str:
    """Return the citation of `name`.csv: its comment lines as one text."""
    read_table(name)
    lines = (FOLDER / f"{name}.csv").read_text().splitlines()
    return " ".join(line.lstrip("# ").strip() for line in lines if line.startswith("#"))


def _read_value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
