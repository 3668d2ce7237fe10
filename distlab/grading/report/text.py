"""Tables and pages with others' text: no formula in a table, no file written for nothing."""

import csv
import io
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from distlab.grading.text import clean_line
from utils.files import replace_atomically


def to_cell(text: str) -> str:
    """Return `text` as a cell of a CSV that no spreadsheet takes for a formula."""
    line = clean_line(text, 2000)
    first = unicodedata.normalize("NFKC", line[:1])  # also the wide ones: ＝ ＋
    return "'" + line if first in ("=", "+", "-", "@", "|", "%", "−") else line


def to_csv(rows: Sequence[Sequence[str]], delimiter: str = ",") -> str:
    """Return rows, the head first, as the text of a table; `to_cell` is the caller's."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n", delimiter=delimiter).writerows(rows)
    return stream.getvalue()


def write_if_new(path: Path, content: str | bytes, durable: bool = False) -> None:
    """Write `content`, unless the file holds it already; `durable` waits for the disk."""
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    if not path.is_file() or path.read_bytes() != data:
        with replace_atomically(path, durable) as file:
            file.write(data)
