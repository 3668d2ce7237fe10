"""Read a student's answer to each exercise from the notebook, without running it."""

import ast
from pathlib import Path

from distlab.grading.labs import LabSpec, find_names
from distlab.grading.notebook_file import Unreadable, read_bytes, read_notebook

MAX_BYTES = 20 * 2**20
MAX_CODE = 20_000  # characters of one answer


def read_answers(path: Path | None, lab: LabSpec) -> dict[str, str]:
    """Return the code of each exercise that can be found in the notebook at `path`.

    The cell with the exercise's grade_id, or else the last one that defines its
    function; {} for a file that isn't a notebook.
    """
    cells = _read_cells(path)
    found = {}
    for exercise in lab.exercises:
        mine = [text for role, text in cells if role == exercise.id]
        wanted = set(exercise.functions)
        mine = mine or [t for _, t in cells if wanted and wanted & set(_find_names(t))]
        if mine:
            found[exercise.id] = mine[-1][:MAX_CODE]
    return found


def _read_cells(path: Path | None) -> list[tuple[str, str]]:
    """Return (grade_id or "", text) of every code cell."""
    try:
        if path is None or path.stat().st_size > MAX_BYTES:
            return []
        cells = read_notebook(read_bytes(path)).cells
    except (OSError, Unreadable, MemoryError):
        return []
    return [(cell.grade_id, cell.text) for cell in cells if cell.kind == "code"]


def _find_names(text: str) -> tuple[str, ...]:
    try:
        return find_names(text[:MAX_CODE])
    except (ValueError, RecursionError, MemoryError):
        return ()


def parse(text: str) -> ast.Module | None:
    """Return the syntax tree of an answer, None if it has none."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
