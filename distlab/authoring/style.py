"""The style lint: what HOUSE rules ask of a committed notebook, lab or solution.

Every check is a pure function from a notebook (the dict of its JSON, sources as
strings) to a list of "file: cell k: what" lines; `lint_file` reads and runs all
that apply. What an author must write, exactly:

A lesson (notebooks/NN-slug.ipynb)
  - 25 to 45 cells. Code cells: median of 8 lines or fewer, none over 40.
  - Cell 0, markdown: `# Title`; a paragraph that is one sentence, the promise;
    then `**Time:** 40 minutes`, `**Builds on:** …` and `**Hardware:** …`.
    Nothing in it says "needs a GPU".
  - `## Objectives`: 3 to 5 list items, each beginning with one of
    `style_lessons.VERBS`.
  - The first code cell is the set-up cell (`quiet_tensorflow`, `set_seeds(`,
    `use_logical_devices(`), the second holds imports only, from `utils` among
    others; no later cell imports at its top level.
  - At least two markdown cells that contain `**Predict.**`, each followed by a
    code cell with `my_guess = None` (any name that begins with `my_`), and as
    many calls of `show_guess(`.
  - `## The mistake…` with a code cell in its section.
  - A code cell that asserts something: the same computation through `utils`.
  - `## What it costs` with a code cell in its section.
  - `## Take-away card`: one fenced ```python block, 10 lines or fewer.
  - `## Where it is described`: markdown links, by name and not by address.
  - `## The lab`: names it ("lab 05"); a link to each named lab that exists.
  - One h1; heading levels do not skip. These sections stand in this order:
    Objectives, The mistake, What it costs, Take-away card, Where it is
    described, The lab.
All files: relative links resolve (`distlab.authoring.style_outputs` says what is
asked of outputs; `distlab.authoring.style_labs` of labs and solutions); no
`%%bash --bg`, no `sleep(`, no tag `nbval-skip`.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from distlab.authoring.style_labs import check_lab, check_solution
from distlab.authoring.style_lessons import cells_of, check_lab_link, check_lesson
from distlab.authoring.style_outputs import check_outputs

Notebook = dict[str, Any]

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(\s*<?([^)\s>]+)[^)]*\)")
_HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)


def lint_file(path: Path) -> list[str]:
    """Return every complaint about the notebook at `path`, whose folder says what it is."""
    notebook = read_notebook(path)
    name = f"{path.parent.name}/{path.name}"
    kind: dict[str, Callable[[Notebook, str], list[str]]] = {
        "labs": check_lab,
        "solutions": check_solution,
    }
    found = kind.get(path.parent.name, check_lesson)(notebook, name)
    found += check_headings(notebook, name) + check_code(notebook, name)
    found += check_links(notebook, name, path.parent)
    if path.parent.name not in kind:
        found += check_lab_link(notebook, name, path.parents[1])
    return found + ([] if path.parent.name == "labs" else check_outputs(notebook, name))


def read_notebook(path: Path) -> Notebook:
    """Return the JSON of the notebook at `path`, with every source and text as one string."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
        for output in cell.get("outputs", []):
            if "text" in output:
                output["text"] = "".join(output["text"])
            for mime, value in output.get("data", {}).items():
                if isinstance(value, list):
                    output["data"][mime] = "".join(value)
    return notebook


def check_headings(notebook: Notebook, name: str) -> list[str]:
    """One h1, at the start; no heading level is skipped."""
    found, before = [], 0
    for k, cell in cells_of(notebook, "markdown"):
        for marks, title in _HEADING.findall(_FENCE.sub("", cell["source"])):
            level = len(marks)
            if level > before + 1:
                found.append(f"{name}: cell {k}: heading {title!r} skips a level")
            if level == 1 and before:
                found.append(f"{name}: cell {k}: a second h1, {title!r}")
            before = level
    return found


def check_code(notebook: Notebook, name: str) -> list[str]:
    """No background shell, no sleep, no skipped cell."""
    found = []
    for k, cell in cells_of(notebook, "code"):
        if re.search(r"%%bash.*--bg", cell["source"]):
            found.append(f"{name}: cell {k}: %%bash --bg leaves a process behind")
        if re.search(r"\bsleep\(", cell["source"]):
            found.append(f"{name}: cell {k}: sleep( waits blindly: wait for what must happen")
        if "nbval-skip" in cell["metadata"].get("tags", []):
            found.append(f"{name}: cell {k}: nbval-skip: every cell is checked")
    return found


def check_links(notebook: Notebook, name: str, folder: Path) -> list[str]:
    """Every relative link and picture of the prose leads to a file."""
    found = []
    for k, cell in cells_of(notebook, "markdown"):
        text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", cell["source"]))
        links = [m[3] for m in _LINK.finditer(text)]
        links += re.findall(r"(?:href|src)=[\"']([^\"']+)", text)
        for link in links:
            if re.match(r"[a-z][a-z0-9+.-]*:|#", link, re.IGNORECASE):
                continue
            if not (folder / unquote(re.split(r"[?#]", link)[0])).exists():
                found.append(f"{name}: cell {k}: link to {link}, which does not exist")
    return found
