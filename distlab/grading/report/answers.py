"""What a student wrote for each exercise, read from the notebook without running it."""

import ast
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from distlab.grading.handed_in import open_plain
from distlab.grading.labs import LabSpec, find_names

MAX_BYTES = 20 * 2**20
MAX_CODE = 20_000  # characters of one answer


def read_answers(path: Path | None, lab: LabSpec) -> dict[str, str]:
    """Return the code of each exercise that can be found in the notebook at `path`.

    The cell with the exercise's grade_id, or else the last one that defines its
    function; {} for a file that is no notebook.
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
        with closing(open_plain(path)) as stream:
            data: Any = json.loads(stream.read(MAX_BYTES))
        sheets = data.get("worksheets") or [data]
        cells = [cell for sheet in sheets for cell in sheet.get("cells", [])]
        return [_read_cell(cell) for cell in cells if cell.get("cell_type") == "code"]
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, MemoryError):
        return []


def _read_cell(cell: dict[str, Any]) -> tuple[str, str]:
    text = cell.get("source", cell.get("input", ""))
    text = "".join(text) if isinstance(text, list) else str(text)
    role = (cell.get("metadata") or {}).get("nbgrader") or {}
    return str(role.get("grade_id", "")), text.replace("\r\n", "\n")


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
