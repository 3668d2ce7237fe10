"""Make the table of evidence in docs/grading.md: `python -m distlab.grading.evidence`.

Made of the exercises' own `evidence`, so that no page claims more than they do.
"""

import importlib
import re
from pathlib import Path

from distlab.authoring.sources import find_root
from distlab.exercises.exercise import EVIDENCE, list_exercises
from distlab.grading.labs import list_labs, read_lab
from utils.files import write_atomically

DRAWN = "number drawn with `--class-seed`"
_TABLE = re.compile(r"^\| Lab \| result \|.*?\n\n", re.MULTILINE | re.DOTALL)


def describe_evidence(root: Path) -> str:
    """Return the table: for each lab its exercises by their kind of evidence, with their points."""
    heads = ("Lab", *EVIDENCE, DRAWN)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in list_labs(root):
        known = list_exercises(importlib.import_module(f"distlab.labs.{name}.exercise"))
        columns: dict[str, list[str]] = {kind: [] for kind in EVIDENCE}
        for spec in read_lab(name, root).exercises:
            columns[known[spec.id].evidence].append(f"{spec.id} ({spec.points:g})")
        cells = [", ".join(columns[kind]) or "–" for kind in EVIDENCE]
        drawn = [f"{e.number.name} ({e.name})" for e in known.values() if e.number]
        cells.append(", ".join(drawn) or "–")
        lines.append(f"| {name.removeprefix('lab')} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n"


def fill_guide(text: str, root: Path) -> str:
    """Return the guide with its table as the exercises have it."""
    return _TABLE.sub(lambda _: describe_evidence(root), text)


if __name__ == "__main__":
    root = find_root(Path.cwd())
    guide = root / "docs" / "grading.md"
    write_atomically(guide, fill_guide(guide.read_text(encoding="utf-8"), root))
