"""Turn a stored notebook into a page's source: run nothing, and show its stored outputs."""

import ast
import html
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distlab.explorables.explorable import MIME, write_fragment
from distlab.figures.picture import SVG, embed_image

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
_GUESS = re.compile(r"^(my_\w+) = guess_", re.MULTILINE)
_ANSWER = re.compile(r"^(measured|simulated|predicted|computed|published): (.+)$", re.MULTILINE)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_SHAPE = re.compile(r'(<(?:path|text|use)\b[^<>]*) style="([^"]*)"')
_EXAMPLES = re.compile(r"\]\(\.\./examples/?(?:deploy/[\w.]*)?\)")
MAX_STILL = 40_000  # characters
MIN_SHAPES = 6  # of one style on a page
MIN_IMPORTS = 3  # at the head of a cell, to be folded


def make_page(path: Path, course: Path) -> str:
    """Return the text of the notebook that stands for `path` of `course` in the book."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    place = path.relative_to(course).as_posix()
    _add_answers(notebook["cells"])
    known: set[str] = set()  # pieces whose scripts stand further up
    turned = [
        cell for cell in (_turn(c, known) for c in notebook["cells"]) if cell["source"].strip()
    ]
    cells = [part for cell in turned for part in _fold_imports(cell)]
    cells[0]["source"] = _head(cells[0]["source"], place)
    _share_styles(cells)
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


def _turn(cell: Cell, known: set[str]) -> Cell:
    """Return a cell as the book wants it: text in one piece, explorables as fragments."""
    turned = {
        "cell_type": cell["cell_type"],
        "id": cell["id"],
        "metadata": {},
        "source": _join(cell["source"]),
    }
    if cell["cell_type"] == "code":
        outputs = [_turn_output(each, cell["id"], known) for each in cell["outputs"]]
        turned |= {"outputs": outputs, "execution_count": cell["execution_count"]}
    return turned


def _fold_imports(cell: Cell) -> Iterator[Cell]:
    """Yield a cell that begins with imports as two: they are folded, with their modules' names."""
    end, modules = find_imports(cell["source"]) if cell["cell_type"] == "code" else (0, [])
    if len(modules) < MIN_IMPORTS:
        yield cell
        return
    lines = cell["source"].split("\n")
    rest = "\n".join(lines[end:]).strip("\n")
    words = {"code_prompt_show": f"{len(modules)} imports: {', '.join(modules)}"}
    folded = {"tags": ["hide-input"], "mystnb": words | {"code_prompt_hide": "Imports"}}
    outputs = [] if rest else cell["outputs"]
    yield cell | {"source": "\n".join(lines[:end]), "metadata": folded, "outputs": outputs}
    if rest:
        yield cell | {"source": rest, "id": f"{cell['id']}-rest"}


def find_imports(source: str) -> tuple[int, list[str]]:
    """Return how many lines of imports a cell begins with, and the names of their modules."""
    end, modules = 0, []
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a line of IPython's, such as %%writefile
        return 0, []
    for statement in statements:
        inside = statement.body if isinstance(statement, ast.With) else [statement]
        if not all(isinstance(each, ast.Import | ast.ImportFrom) for each in inside):
            break
        end = statement.end_lineno
        for each in inside:
            is_from = isinstance(each, ast.ImportFrom)
            modules += [each.module] if is_from else [name.name for name in each.names]
    return end, modules


def _turn_output(output: dict[str, Any], cell: str, known: set[str]) -> dict[str, Any]:
    data = output.get("data", {})
    if SVG not in data and MIME not in data:
        return output
    still = embed_image(_join(data[SVG])) if SVG in data else _join(data["text/html"])
    if MIME not in data:
        return output | {"data": {"text/html": still}}
    what = json.loads(_join(data[MIME]))
    if len(still) > MAX_STILL:  # the script takes its place at once: words are enough until then
        still = f"<p>{html.escape(_join(data['text/plain']))}</p>"
    live = write_fragment(what["piece"], what["data"], what["options"], still, cell, known)
    return output | {"data": {"text/html": live}}


def _share_styles(cells: list[Cell]) -> None:
    """Write each style that many shapes of the page's drawings have once, as a class."""
    shown = [
        o["data"] for c in cells for o in c.get("outputs", []) if "text/html" in o.get("data", {})
    ]
    uses = Counter(m[2] for data in shown for m in _SHAPE.finditer(_join(data["text/html"])))
    names = {style: f"shape-{k}" for k, (style, n) in enumerate(uses.items()) if n >= MIN_SHAPES}

    def name(shape: re.Match[str]) -> str:
        found = names.get(shape[2])
        return f'{shape[1]} class="{found}"' if found else shape[0]

    for data in shown:
        data["text/html"] = _SHAPE.sub(name, _join(data["text/html"]))
    if names:
        rules = "\n".join(f".{name} {{{html.unescape(style)}}}" for style, name in names.items())
        shown[0]["text/html"] = f"<style>{rules}</style>\n{shown[0]['text/html']}"


def _add_answers(cells: list[Cell]) -> None:
    """Give each guess what a later cell printed as its answer: the page shows it when asked."""
    for place, cell in enumerate(cells):
        name = _GUESS.search(_join(cell["source"])) if cell["cell_type"] == "code" else None
        for output in cell["outputs"] if name else []:
            answer = _find_answer(cells[place + 1 :], name[1])
            if answer is None or MIME not in output.get("data", {}):
                continue
            what = json.loads(_join(output["data"][MIME]))
            said = answer[2].strip() if what["data"]["words"] else _read_number(answer[2])
            if said is not None:
                what["data"]["later"] = {"answer": said, "how": answer[1]}
                output["data"][MIME] = json.dumps(what, sort_keys=True)


def _find_answer(cells: list[Cell], name: str) -> re.Match[str] | None:
    """Return what the next cell that shows the guess `name` printed as the answer."""
    shown = next((c for c in cells if f"show_guess({name}," in _join(c["source"])), {})
    streams = (_join(output.get("text", "")) for output in shown.get("outputs", []))
    return next(filter(None, map(_ANSWER.search, streams)), None)


def _read_number(text: str) -> float | None:
    found = _NUMBER.search(text)
    return float(found[0].replace(",", "")) if found else None


def _join(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
