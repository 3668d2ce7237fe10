"""`distlab reset`: start a lab from scratch; what was there is kept as a copy."""

import argparse
import shutil
from datetime import datetime
from pathlib import Path

from distlab.cli.check import find_lab
from distlab.cli.parser import Commands
from distlab.errors import CourseError


def add_parser(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "reset", help="start a lab from scratch; what was there is kept as a copy"
    )
    parser.add_argument("lab", help="lab05, or 05")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Put the lab back as it was given out; the learner's own is kept next to it."""
    path = find_lab(arguments.lab)
    fresh = read_original(path)
    if fresh == path.read_text(encoding="utf-8", errors="replace"):
        print(f"{path.name} is as it was given out: nothing to do")
        return 0
    kept = path.parent / "kept" / f"{path.stem}_{datetime.now():%Y%m%d-%H%M%S}.ipynb"
    kept.parent.mkdir(exist_ok=True)
    shutil.copy2(path, kept)
    path.write_text(fresh, encoding="utf-8")
    print(f"{path.name} starts from scratch; yours is kept as labs/kept/{kept.name}")
    print("If it is open in JupyterLab: close it without saving, and open it again.")
    return 0


def read_original(path: Path) -> str:
    """Return the lab's text as it was given out: from labs/originals, or made of its source."""
    given = path.parent / "originals" / path.name
    if given.is_file():
        return given.read_text(encoding="utf-8")
    from distlab.authoring.sources import find_targets, make_lab, read_source, to_text

    targets = [t for t in find_targets(path.parent.parent) if t.lab == path]
    if not targets:
        raise CourseError(f"{path.name}: its original is not here (labs/originals)")
    return to_text(make_lab(read_source(targets[0])))
