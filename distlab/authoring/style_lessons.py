"""The style lint's rules for the shape of a lesson; `distlab.authoring.style` spells them out."""

import ast
import re
import statistics
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]
Cell = dict[str, Any]

SECTIONS = (
    "Objectives",
    "The mistake",
    "What it costs",
    "Take-away card",
    "Where it is described",
    "The lab",
)
_VERBS = """
    add apply assert build calculate calibrate cap change check choose clip combine compare
    compile compute configure connect convert count create cut debug decide define derive
    describe detect diagnose distribute divide draw estimate evaluate explain export express
    extrapolate feed find fit fix follow gather give group handle implement inspect keep
    launch list load locate make match measure mend merge move name order pick place plan
    plot predict prove read rebuild recognise reduce repair replace report reproduce restart
    restore resume run save say scale schedule select send set shard show simulate sort split
    start state stop sum swap tell test time trace train translate tune turn use verify weigh
    work wrap write
"""
VERBS = frozenset(_VERBS.split())
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(\s*<?([^)\s>]+)[^)]*\)")


def cells_of(notebook: Notebook, kind: str) -> list[tuple[int, Cell]]:
    return [(k, c) for k, c in enumerate(notebook["cells"]) if c["cell_type"] == kind]


def sections(notebook: Notebook) -> dict[str, tuple[int, str, list[Cell]]]:
    """Return each `##` heading: (cell index, text under it in its cell, cells that follow)."""
    found: dict[str, tuple[int, str, list[Cell]]] = {}
    title = ""
    for k, cell in enumerate(notebook["cells"]):
        pieces = [cell["source"]]
        if cell["cell_type"] == "markdown":
            pieces = re.split(r"^## +(.+?) *$", cell["source"], flags=re.MULTILINE)
        if title and len(pieces) == 1:
            found[title][2].append(cell)
        for title, text in zip(pieces[1::2], pieces[2::2], strict=True):
            found[title] = (k, text, [])
    return found


def _section(notebook: Notebook, start: str) -> tuple[int, str, list[Cell]] | None:
    return next((s for title, s in sections(notebook).items() if title.startswith(start)), None)


def check_lesson(notebook: Notebook, name: str) -> list[str]:
    """Return what a lesson lacks of its shape, cell by cell."""
    cells = notebook["cells"]
    found = [] if 25 <= len(cells) <= 45 else [f"{name}: {len(cells)} cells: 25 to 45"]
    lengths = [len(c["source"].split("\n")) for _, c in cells_of(notebook, "code")]
    if lengths and statistics.median(lengths) > 8:
        found.append(f"{name}: code cells of {statistics.median(lengths)} lines (median): 8")
    for k, cell in cells_of(notebook, "code"):
        if len(cell["source"].split("\n")) > 40:
            found.append(f"{name}: cell {k}: more than 40 lines of code")
    checks = (check_first_cell, check_objectives, check_set_up, check_predictions, check_sections)
    return found + [line for check in checks for line in check(notebook, name)]


def check_first_cell(notebook: Notebook, name: str) -> list[str]:
    """Cell 0: title, one-sentence promise, minutes, what it builds on, hardware."""
    first = notebook["cells"][0] if notebook["cells"] else {"cell_type": "", "source": ""}
    if first["cell_type"] != "markdown" or not first["source"].startswith("# "):
        return [f"{name}: cell 0: begin with a markdown cell, `# Title`"]
    paragraphs = [p.strip() for p in first["source"].split("\n\n")]
    promise = paragraphs[1] if len(paragraphs) > 1 else ""
    found = []
    if not re.fullmatch(r"[A-Z][^\n#*|].*[.?!]", promise, re.DOTALL) or re.search(
        r"[.?!]\s+[A-Z]", promise
    ):
        found.append("a promise of one sentence comes after the title, as its own paragraph")
    for label, pattern in (
        ("**Time:** NN minutes", r"\*\*Time:\*\* *\d+ minutes"),
        ("**Builds on:** …", r"\*\*Builds on:\*\* *\S"),
        ("**Hardware:** …", r"\*\*Hardware:\*\* *\S"),
    ):
        if not re.search(pattern, first["source"]):
            found.append(f"write {label}")
    if re.search(r"needs? a GPU", first["source"], re.IGNORECASE):
        found.append('"needs a GPU": everything here runs without one')
    return [f"{name}: cell 0: {what}" for what in found]


def check_objectives(notebook: Notebook, name: str) -> list[str]:
    """`## Objectives`: three to five items, each beginning with a verb."""
    section = _section(notebook, "Objectives")
    if section is None:
        return []  # check_sections says so
    k, text, _ = section
    items = re.findall(r"^(?:[-*]|\d+\.) +(.+)$", text, re.MULTILINE)
    found = [] if 3 <= len(items) <= 5 else [f"{len(items)} objectives: 3 to 5"]
    for item in items:
        verb = re.sub(r"[^A-Za-z].*", "", item.strip("*_ "), flags=re.DOTALL).lower()
        if verb not in VERBS:
            found.append(
                f"objective {item[:40]!r} does not begin with a verb of style_lessons.VERBS"
            )
    return [f"{name}: cell {k}: {what}" for what in found]


def check_set_up(notebook: Notebook, name: str) -> list[str]:
    """One set-up cell, one import cell, and no import at the top level after them."""
    code = cells_of(notebook, "code")
    if len(code) < 2:
        return [f"{name}: no set-up cell and import cell"]
    found = []
    (k, first), (j, second) = code[:2]
    for words in ("quiet_tensorflow", "set_seeds(", "use_logical_devices("):
        if words not in first["source"]:
            found.append(f"cell {k}: the set-up cell has no {words}")
    body = _top_level(second["source"])
    if not body or not all(_is_import(node) for node in body):
        found.append(f"cell {j}: the second code cell is the import cell: imports only")
    elif "utils" not in second["source"]:
        found.append(f"cell {j}: import from utils what the lesson builds by hand")
    for k, cell in code[2:]:
        if any(_is_import(node) for node in _top_level(cell["source"])):
            found.append(f"cell {k}: imports stand in the import cell")
    return [f"{name}: {what}" for what in found]


def _top_level(source: str) -> list[ast.stmt]:
    lines = ["" if re.match(r"\s*[%!?]", line) else line for line in source.split("\n")]
    try:
        return ast.parse("\n".join(lines)).body
    except SyntaxError:  # a cell made to fail, or a %%magic of another language
        return []


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def check_predictions(notebook: Notebook, name: str) -> list[str]:
    """Two or more predictions, each with a cell to write the guess in, each shown later."""
    cells = notebook["cells"]
    asked = [k for k, c in cells_of(notebook, "markdown") if "**Predict.**" in c["source"]]
    found = [] if len(asked) >= 2 else [f"{name}: {len(asked)} **Predict.** cells: at least 2"]
    for k in asked:
        follows = cells[k + 1] if k + 1 < len(cells) else {"cell_type": "", "source": ""}
        if follows["cell_type"] != "code" or not re.search(
            r"^my_\w+ = None\b", follows["source"], re.MULTILINE
        ):
            found.append(f"{name}: cell {k}: after **Predict.** a code cell with `my_guess = None`")
    shown = sum(c["source"].count("show_guess(") for _, c in cells_of(notebook, "code"))
    if shown < len(asked):
        found.append(f"{name}: {len(asked)} predictions and {shown} show_guess(…)")
    return found


def check_sections(notebook: Notebook, name: str) -> list[str]:
    """The fixed sections: all there, in order, each with what it must hold."""
    known = {title: _section(notebook, title) for title in SECTIONS}
    found = [f"no section `## {title}`" for title, section in known.items() if section is None]
    places = [(s[0], i) for i, s in enumerate(known.values()) if s]
    if places != sorted(places):
        found.append("sections in another order than " + ", ".join(SECTIONS))
    for title in ("The mistake", "What it costs"):
        if known[title] and not any(c["cell_type"] == "code" for c in known[title][2]):
            found.append(f"`## {title}` holds no code cell")
    if known["Take-away card"]:
        blocks = re.findall(
            r"^```python\n(.*?)^```", known["Take-away card"][1], re.MULTILINE | re.DOTALL
        )
        if len(blocks) != 1 or len(blocks[0].strip().split("\n")) > 10:
            found.append("the take-away card is one ```python block of 10 lines or fewer")
    if known["Where it is described"]:
        links = [m for m in _LINK.finditer(known["Where it is described"][1]) if not m[1]]
        if not links or any(re.match(r"https?:|www\.", m[2]) for m in links):
            found.append("`## Where it is described` links to pages and papers by their names")
    if not any("assert" in c["source"] for _, c in cells_of(notebook, "code")):
        found.append("nothing is asserted: show that utils gives the same, and assert it")
    return [f"{name}: {what}" for what in found]


def check_lab_link(notebook: Notebook, name: str, root: Path) -> list[str]:
    """`## The lab` names a lab, and links to every named lab that exists."""
    section = _section(notebook, "The lab")
    if section is None:
        return []
    numbers = set(re.findall(r"\blab ?(\d\d)", section[1], re.IGNORECASE))
    if not numbers:
        return [f'{name}: cell {section[0]}: `## The lab` names its lab ("lab 05")']
    made = [p for n in sorted(numbers) for p in (root / "labs").glob(f"lab{n}-*.ipynb")]
    return [
        f"{name}: cell {section[0]}: link to ../labs/{path.name}"
        for path in made
        if f"(../labs/{path.name})" not in section[1]
    ]
