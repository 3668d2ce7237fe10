"""Tables and pages of what others wrote: no formula in a table, no file written for nothing."""

import unicodedata
from pathlib import Path

from distlab.grading.text import clean_line
from utils.files import write_atomically


def to_cell(text: str) -> str:
    """Return `text` as a cell of a CSV that no spreadsheet takes for a formula."""
    line = clean_line(text, 2000)
    first = unicodedata.normalize("NFKC", line[:1])  # also the wide ones: ＝ ＋
    return "'" + line if first in ("=", "+", "-", "@", "|", "%", "−") else line


def write_if_new(path: Path, text: str) -> None:
    """Write `text`, unless the file holds it already."""
    if not path.is_file() or path.read_bytes() != text.encode(errors="backslashreplace"):
        write_atomically(path, text)
