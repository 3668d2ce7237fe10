"""Hide modules that would give an answer away from the process of an answer.

A lab's `exercise.py` names them in `ABSENT`. The process that forks answers never imports them,
and in an answer's namespaces they aren't on the disk either. Only the standard library is used.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any


def find_absent(lab: str) -> tuple[str, ...]:
    """Return the modules that answers of `lab` don't have; a package stands for all in it."""
    return tuple(getattr(importlib.import_module(f"distlab.labs.{lab}.exercise"), "ABSENT", ()))


def list_imported(absent: Sequence[str]) -> list[str]:
    """Return the names of `absent`, or inside them, that this process has imported."""
    return [name for name in sys.modules if f"{name}.".startswith(tuple(f"{a}." for a in absent))]


def find_places(absent: Sequence[str], root: Path) -> list[Path]:
    """Return the files and folders below `root` that hold `absent`, compiled ones and data too."""
    found: list[Path] = []
    for name in absent:
        base = root.joinpath(*name.split("."))
        compiled = (base.parent / "__pycache__").glob(f"{base.name}.*.pyc")
        data = (base.with_suffix(".py"), base.with_suffix(".json"))
        found += [p for p in (base, *data, *compiled) if p.exists()]
    return found


class AbsentFinder(MetaPathFinder):
    """Raises ImportError, with a sentence, for what an answer doesn't have."""

    def __init__(self, absent: Sequence[str]) -> None:
        self.prefixes = tuple(f"{name}." for name in absent)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Find nothing; raise for an absent name."""
        if f"{name}.".startswith(self.prefixes):
            raise ImportError(
                f"{name} can't be imported when this lab is graded, since writing what it does is "
                "the exercise. Write it in your notebook."
            )
