"""A learner's copies of lessons and labs, in `work/` of the course folder.

A copy is made when its notebook is first opened in JupyterLab. The originals in `notebooks/` and
`labs/` stay as they came, so a newer version of the course never meets a change. An unchanged copy
follows its original. `.distlab/copies.json` has the original of each:

    {"05-loss-scaling.ipynb": {"file": SHA-256 of the copy, "cells": SHA-256 of its cells' text}}
"""

import hashlib
import json
import shutil
from datetime import datetime
from pathlib import Path

from distlab import progress
from distlab.errors import CourseError
from utils.files import write_atomically

FOLDER = "work"
ORIGINALS = ("notebooks", "labs")
FILE = Path(".distlab") / "copies.json"


def find_original(course: Path, name: str) -> Path | None:
    """Return the lesson or lab that a copy called `name` has been made from, None for none."""
    paths = (course / folder / name for folder in ORIGINALS)
    return next((path for path in paths if path.suffix == ".ipynb" and path.is_file()), None)


def open_copy(course: Path, name: str) -> Path | None:
    """Return the copy of a notebook, made or renewed if need be; None if it isn't the course's.

    Raises OSError if nothing can be written.
    """
    original, copy = find_original(course, name), course / FOLDER / name
    if original is None:
        return None
    unchanged = copy.is_file() and _digest(copy) == _read(course).get(name, {}).get("file")
    if not copy.exists() or unchanged and is_outdated(course, name):
        _copy(course, original)
    return copy


def is_outdated(course: Path, name: str) -> bool:
    """Return whether the original has other cells than when its copy was made."""
    made, original = _read(course).get(name), find_original(course, name)
    there = bool(made and original) and (course / FOLDER / name).is_file()
    return there and _digest_cells(original) != made.get("cells")


def start_over(course: Path, name: str) -> Path:
    """Put the original back in place of its copy. Return where the learner's own is kept.

    Raises CourseError if there is no such copy.
    """
    original, copy = find_original(course, name), course / FOLDER / name
    if original is None or not copy.is_file():
        raise CourseError(f"{FOLDER}/{name} isn't there. Open it in JupyterLab first.")
    kept = keep(course, copy)
    _copy(course, original)
    return kept


def keep(course: Path, path: Path) -> Path:
    """Copy a notebook into `work/kept`, under its name and the time; return where it is."""
    kept = course / FOLDER / "kept" / f"{path.stem}_{datetime.now():%Y%m%d-%H%M%S-%f}.ipynb"
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, kept)
    return kept


def _copy(course: Path, original: Path) -> None:
    text = original.read_bytes().decode("utf-8")
    write_atomically(course / FOLDER / original.name, text)
    note_origin(course, original)


def note_origin(course: Path, original: Path) -> None:
    """Note that the copy of this lesson or lab was made from its present version."""
    raw = original.read_bytes()
    made = {"file": hashlib.sha256(raw).hexdigest(), "cells": _digest_cells(original)}
    table = {**_read(course), original.name: made}
    write_atomically(course / FILE, json.dumps(table, indent=1, sort_keys=True) + "\n")


def _read(course: Path) -> dict[str, dict[str, str]]:
    try:
        return dict(json.loads((course / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest_cells(path: Path) -> str:
    cells = [(cell.get("id"), cell["source"]) for cell in progress.read_cells(path)]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()
