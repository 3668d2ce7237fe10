"""Reads a submitted notebook, whatever it turns out to be.

Runs in a separate process with limits (`reader_server`): a hostile file can
only harm its own submission. Formats 2 to 4 of
https://nbformat.readthedocs.io/en/latest/format_description.html
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distlab.grading.handed_in import open_plain

MAX_BYTES, MAX_CELLS, MAX_CODE = 64 * 2**20, 1000, 2**19
HUMAN = "a human should look at it"


class Unreadable(ValueError):
    """Raised for a file that isn't a runnable notebook; the message is one line."""


@dataclass(frozen=True)
class Cell:
    """One cell of a submission: `number` counts from 1 among all cells."""

    number: int
    kind: str  # "code", "markdown" or "raw"
    text: str
    grade_id: str = ""

    @property
    def label(self) -> str:
        return f"cell {self.number}"


@dataclass(frozen=True)
class Notebook:
    """The result of reading: the cells, and notes on the file."""

    cells: tuple[Cell, ...]
    notes: tuple[str, ...]


def read_bytes(path: Path) -> bytes:
    """Return the content of the plain file `path`; Unreadable for anything else."""
    try:
        file = open_plain(path)
    except OSError as error:
        link = os.path.islink(path)
        why = "it is a link, and links aren't followed" if link else error.strerror
        raise Unreadable(f"the file can't be opened: {why or 'not a plain file'}") from None
    with file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            raise Unreadable(
                f"the file must have at most {MAX_BYTES // 2**20} MiB, got {size / 2**20:,.0f}. "
                "Clear its outputs and submit it again"
            )
        return file.read(MAX_BYTES + 1)[:MAX_BYTES]


def read_notebook(data: bytes) -> Notebook:
    """Return the cells of the notebook in `data`; Unreadable, with the reason, if it isn't one."""
    notes: list[str] = []
    content = _parse(data, notes)
    raw = _find_cells(content, notes)
    _note_language(content.get("metadata"), notes)
    if len(raw) > MAX_CELLS:
        raise Unreadable(
            f"the notebook must have at most {MAX_CELLS:,} cells, got {len(raw):,}: {HUMAN}"
        )
    cells = tuple(_read_cell(k + 1, cell) for k, cell in enumerate(raw))
    if sum(len(c.text) for c in cells if c.kind == "code") > MAX_CODE:
        raise Unreadable(f"the notebook must have at most {MAX_CODE:,} characters of code: {HUMAN}")
    if not any(c.text.strip() for c in cells):
        raise Unreadable("the notebook is empty")
    return Notebook(cells, tuple(notes))


def hash_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _parse(data: bytes, notes: list[str]) -> dict[str, Any]:
    if not data.strip():
        raise Unreadable("the file is empty")
    text = _decode(data, notes)
    try:
        content = json.loads(text)
    except RecursionError:
        raise Unreadable("the file is JSON nested too deeply to be a notebook") from None
    except ValueError as error:
        raise Unreadable(f"the file isn't JSON, so it isn't a notebook ({error})"[:200]) from None
    if not isinstance(content, dict):
        raise Unreadable("the file is JSON, but not a notebook")
    return content


def _decode(data: bytes, notes: list[str]) -> str:
    encoding = json.detect_encoding(data)  # by its mark, or by where it has zeros
    if encoding != "utf-8":
        marked = encoding in ("utf-8-sig", "utf-16", "utf-32")
        notes.append(
            f"the file began with a byte order mark ({encoding}): left out"
            if marked
            else f"the file is written in {encoding}: read as that"
        )
        return data.decode(encoding, "replace").removeprefix("\ufeff")
    if data.endswith(b"\0"):
        notes.append("the file ended in zeros: left out")
        data = data.rstrip(b"\0")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        notes.append(f"the file is not UTF-8 (byte {error.start}): what can't be read shows as �")
        return data.decode("utf-8", "replace")


def _find_cells(content: dict[str, Any], notes: list[str]) -> list[Any]:
    cells = content.get("cells")
    if isinstance(cells, list):
        return cells
    sheets = content.get("worksheets")
    if isinstance(sheets, list):
        notes.append("an old notebook (format 3 or 2): read as one of today")
        found = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)]
        return [cell for cells in found if isinstance(cells, list) for cell in cells]
    raise Unreadable("the file is JSON without cells, so it isn't a notebook")


def _note_language(metadata: Any, notes: list[str]) -> None:
    kernel = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    language = kernel.get("language") if isinstance(kernel, dict) else None
    if isinstance(language, str) and language.lower() != "python":
        notes.append(f"written for a kernel of {language[:40]!r}: run as Python")


def _read_cell(number: int, cell: Any) -> Cell:
    if not isinstance(cell, dict):
        return Cell(number, "raw", "")
    kind = cell.get("cell_type")
    source = cell.get("source", cell.get("input", ""))  # format 3: code cells have an input
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    text = source if isinstance(source, str) else ""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", "")
    metadata = cell.get("metadata")
    role = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = role.get("grade_id") if isinstance(role, dict) else None
    return Cell(
        number,
        kind if kind in ("code", "markdown") else "raw",
        text,
        name if isinstance(name, str) else "",
    )
