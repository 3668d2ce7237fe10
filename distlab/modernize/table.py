"""The entries of `table.toml`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("table.toml")
STOPS, SILENT, STYLE = "stops", "silently wrong", "old style"


@dataclass(frozen=True)
class OldForm:
    """The entry of one old form. The head of `table.toml` explains the fields."""

    group: str
    name: str
    find: tuple[str, ...]
    says: str
    why: str
    old: str
    new: str
    error: str = ""
    edit: str = ""
    holds: str = ""
    legacy: bool = False
    alone: bool = False


@cache
def read_table() -> tuple[OldForm, ...]:
    """Return all entries in the order of the file."""
    with FILE.open("rb") as file:
        groups = tomllib.load(file)
    return tuple(
        OldForm(group, **(fields | {"find": _list(fields["find"])}))
        for group, rows in groups.items()
        for fields in rows
    )


def find_entry(name: str) -> OldForm:
    """Return the entry of that name."""
    return next(entry for entry in read_table() if entry.name == name)


def _list(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def choose(edit: str, name: str) -> str:
    """Return what an edit such as "path NEW" or "path {old=new,…}" makes of `name`."""
    target = edit.partition(" ")[2]
    if not target.startswith("{") or "=" not in target:
        return target
    return dict(pair.split("=") for pair in target[1:-1].split(","))[name]
