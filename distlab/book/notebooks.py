"""A stored notebook becomes a page's source: nothing is run, and what it stored is shown."""

import json
import re
from pathlib import Path
from typing import Any

from distlab.explorables.explorable import MIME, write_fragment

Cell = dict[str, Any]
STORED = (
    "*You are reading a stored run: this is what the code printed. Pictures with controls work "
    "here as they stand. To run the code yourself, [get the course](../index.md#run-it-yourself) "
    "and open `{path}`.*"
)
EMPTY_LAB = (
    "*These are the exercises as you get them, to read. To work on them, [get the course]"
    "(../index.md#run-it-yourself) and open `{path}` in JupyterLab: there the cells below check "
    "your answers.*"
)
_TITLE = re.compile(r"\A# (?:Lab (\d\d) · )?(.+)$", re.MULTILINE)
_HEAD_END = re.compile(r"^\*\*Time:\*\*.*$", re.MULTILINE)
_SOURCE = re.compile(r"\]\(\.\./((?:utils|distlab)/[\w/]+\.py)\)")
_EXAMPLE = re.compile(r"\]\(\.\./examples/(\w+)\.py\)")
_EXAMPLES = re.compile(r"\]\(\.\./examples/?\)")


def make_page(path: Path, course: Path) -> str:
    """Return the text of the notebook that stands for `path` of `course` in the book."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    place = path.relative_to(course).as_posix()
    cells = [cell for cell in map(_turn, notebook["cells"]) if cell["source"].strip()]
    cells[0]["source"] = _head(cells[0]["source"], place)
    for cell in cells:
        if cell["cell_type"] == "markdown":
            cell["source"] = turn_links(cell["source"])
    metadata = {name: notebook["metadata"][name] for name in ("kernelspec", "language_info")}
    page = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(page, sort_keys=True, indent=1)


def _head(text: str, place: str) -> str:
    """Put the notebook's number into its title, and say under its minutes what one is reading."""
    number = Path(place).stem.partition("-")[0]
    text = _TITLE.sub(lambda m: f"# Lab {m[1]} · {m[2]}" if m[1] else f"# {number} · {m[2]}", text)
    said = (EMPTY_LAB if number.startswith("lab") else STORED).format(path=place)
    return _HEAD_END.sub(lambda m: f"{m[0]}\n\n{said}", text, count=1)


def turn_links(text: str) -> str:
    """Turn links to files of the repository into links to the book's pages."""
    text = _EXAMPLE.sub(r"](../examples/\1.md)", text)
    text = _EXAMPLES.sub("](../examples/index.md)", text)
    return _SOURCE.sub(lambda m: f"](../{find_source_page(m[1])})", text)


def find_source_page(path: str) -> str:
    """Return the page where a module's source stands."""
    return f"sources/{path.removesuffix('.py').replace('/', '-')}.md"


def list_named_sources(course: Path) -> list[str]:
    """Return the modules that notebooks link to by their files, such as "utils/data/masks.py"."""
    paths = [*course.glob("notebooks/*.ipynb"), *course.glob("labs/*.ipynb")]
    return sorted({name for path in paths for name in _SOURCE.findall(path.read_text("utf-8"))})


def _turn(cell: Cell) -> Cell:
    """Return a cell as the book wants it: text in one piece, explorables as fragments."""
    turned = {"cell_type": cell["cell_type"], "id": cell["id"], "metadata": {},
              "source": _join(cell["source"])}  # fmt: skip
    if cell["cell_type"] == "code":
        outputs = [_turn_output(each) for each in cell["outputs"]]
        turned |= {"outputs": outputs, "execution_count": cell["execution_count"]}
    return turned


def _turn_output(output: dict[str, Any]) -> dict[str, Any]:
    data = output.get("data", {})
    if MIME not in data:
        return output
    what = json.loads(_join(data[MIME]))
    still = _join(data["text/html"])
    live = write_fragment(what["piece"], what["data"], what["options"], still)
    return output | {"data": {"text/html": live}}


def _join(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
