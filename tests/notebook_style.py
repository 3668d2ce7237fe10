"""What a committed notebook, lab or solution keeps to: shape, links and outputs.

Every rule is a function from a notebook (the dict of its JSON, sources as strings) to
what breaks it, "cell k: what". `check_file` reads a file and runs all that apply;
notebooks/src/README.md and solutions/src/README.md say the same to authors.
"""

import ast
import builtins
import dis
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from distlab.authoring.outputs import WIDGET_VIEW
from distlab.authoring.sources import find_regions, region_text

Notebook = dict[str, Any]
Cell = dict[str, Any]
Section = tuple[int, str, list[Cell]]  # index of its cell, its text there, the cells that follow

SECTIONS = (
    "Objectives",
    "The mistake",
    "What it costs",
    "Cheat sheet",
    "Further reading",
    "The lab",
)
HEAD = {
    "a paragraph after the title that says why": r"^# .+\n\n+[A-Z][^\n#*|]*[.?!:]",
    "**Time:** NN minutes": r"\*\*Time:\*\* *\d+ minutes",
    "**Prerequisites:** …": r"\*\*Prerequisites:\*\* *\S",
    "**Hardware:** …": r"\*\*Hardware:\*\* *\S",
}
FORBIDDEN_CODE = {
    r"%%bash.*--bg": "%%bash --bg leaves a process behind",
    r"\bsleep\(": "sleep( waits blindly: wait for what must happen",
}
FORBIDDEN_OUTPUT = {
    "an absolute path": r"(?<![\w.:/<-])/(?:root|home|work|tmp|Users)(?=/|\b)[^\s<]*",
    "an object's address": r"\bat 0x[0-9a-fA-F]{6,}",
    "a progress bar": r"\r|\x08|━{3}|\d%\|| \d+/\d+ \[=|\d+(?:it|s)/(?:it|s)\b",
    "a log line": r"(?m)^[WEIF]\d{4} [\d:.]+|: [WEIF] \S*tensorflow|^(?:WARNING|ERROR):\w+:",
    "a color code": r"\x1b\[",
}
LAB_HEADING = re.compile(r"^## Exercise (\d+): \S", re.MULTILINE)
LAB_POINTS = re.compile(r"\*\*(\d+) points? · (?:easy|medium|hard) · (\d+) minutes\*\*")
LAB_PARTS = ("**Contract.**", "**Example.**")
LAB_SUMMARIES = ("Hint 1", "Hint 2", "Worked idea")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(\s*<?([^)\s>]+)[^)]*\)")
_NAMED = {
    re.compile(r"<img\b[^>]*>", re.I): (
        re.compile(r"""\balt=(?:"[^"]*\w[^"]*"|'[^']*\w[^']*')"""),
        "has no alt text",
    ),
    re.compile(r"<svg\b[^>]*>", re.I): (
        re.compile(r"""(?s)(?=.*role="img").*\baria-label=["'][^"']*\w|aria-hidden="true\""""),
        'has no role="img" with aria-label',
    ),
}


def check_file(path: Path) -> list[str]:
    """Return what breaks a rule in the notebook at `path`, whose folder says what it is."""
    notebook, kind = read_notebook(path), path.parent.name
    shape = {"labs": check_lab, "solutions": check_solution}.get(kind, check_lesson)
    found = [*shape(notebook), *check_prose(notebook, path.parent), *check_code(notebook)]
    found += [] if kind == "labs" else check_outputs(notebook)
    found += check_lab_links(notebook, path.parents[1]) if shape is check_lesson else []
    return [f"{kind}/{path.name}: {what}" for what in found]


def read_notebook(path: Path) -> Notebook:
    """Return the JSON of the notebook at `path`, with every source and text as one string."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
        for output in cell.get("outputs", []):
            output["text"] = "".join(output.get("text", ""))
            for mime, value in output.get("data", {}).items():
                if isinstance(value, list):
                    output["data"][mime] = "".join(value)
    return notebook


def of_kind(notebook: Notebook, kind: str) -> list[tuple[int, Cell]]:
    return [(k, c) for k, c in enumerate(notebook["cells"]) if c["cell_type"] == kind]


# ---- every notebook


def check_prose(notebook: Notebook, folder: Path) -> Iterator[str]:
    """One h1 and no skipped level; links lead somewhere; pictures have alt text."""
    before = 0
    for k, cell in of_kind(notebook, "markdown"):
        text = re.sub(r"^```.*?^```", "", cell["source"], flags=re.M | re.S)
        for marks, title in re.findall(r"^(#{1,6}) +(.+?) *$", text, re.MULTILINE):
            if len(marks) > before + 1:
                yield f"cell {k}: heading {title!r} skips a level"
            if len(marks) == 1 and before:
                yield f"cell {k}: a second h1, {title!r}"
            before = len(marks)
        text = re.sub(r"`[^`\n]*`", "", text)
        links = [m[3] for m in _LINK.finditer(text)] + re.findall(
            r"(?:href|src)=[\"']([^\"']+)", text
        )
        for link in links:
            place = folder / unquote(re.split(r"[?#]", link)[0])
            if not re.match(r"[a-z][a-z0-9+.-]*:|#", link, re.I) and not place.exists():
                yield f"cell {k}: link to {link}, which does not exist"
        yield from (f"cell {k}: {what}" for what in check_pictures(text))
        if re.search(r"!\[\s*\]\(", text):
            yield f"cell {k}: a picture without alt text"


def check_pictures(html: str) -> Iterator[str]:
    for kind, (named, what) in _NAMED.items():
        yield from (f"{tag[:40]!r} {what}" for tag in kind.findall(html) if not named.search(tag))


def check_code(notebook: Notebook) -> Iterator[str]:
    for k, cell in of_kind(notebook, "code"):
        for pattern, what in FORBIDDEN_CODE.items():
            if re.search(pattern, cell["source"]):
                yield f"cell {k}: {what}"
        if "nbval-skip" in cell["metadata"].get("tags", []):
            yield f"cell {k}: nbval-skip: every cell is checked"


# ---- outputs


def check_outputs(notebook: Notebook) -> Iterator[str]:
    """All cells ran, in order; what they show is the same everywhere, or is asserted."""
    code = of_kind(notebook, "code")
    sources = [cell["source"] for _, cell in code] + [""]
    for count, (k, cell) in enumerate(code, start=1):
        if cell["source"] and cell["execution_count"] != count:
            yield f"cell {k}: execution count is not {count}: run distlab build"
        yield from (
            f"cell {k}: {what}" for output in cell["outputs"] for what in _check(output, cell)
        )
        ignored = "nbval-ignore-output" in cell["metadata"].get("tags", [])
        asserted = re.search(
            r"(?m)^\s*assert\b|\bassert_\w+\(", "\n".join(sources[count - 1 : count + 1])
        )
        written = cell["source"].startswith("%%writefile")  # "Writing …" or "Overwriting …"
        if ignored and not (asserted or written or _only_pictures(cell)):
            yield f"cell {k}: nbval-ignore-output without an assertion"


def _only_pictures(cell: Cell) -> bool:
    shown = [output.get("data", {}) for output in cell["outputs"]]
    return bool(shown) and all(
        re.search(r"<img\b|<svg\b", data.get("text/html", ""), re.I)
        or {"image/png", "image/svg+xml"} & set(data)
        for data in shown
    )


def _check(output: dict[str, Any], cell: Cell) -> Iterator[str]:
    data = output.get("data", {})
    html = data.get("text/html", "")
    if output.get("name") == "stderr":
        yield "standard error: quieten it, or catch it and print it"
    if output["output_type"] == "error":
        if "raises-exception" not in cell["metadata"].get("tags", []):
            yield f"an error, {output['ename']}, without the tag raises-exception"
    texts = [output.get("text", ""), output.get("evalue", ""), *output.get("traceback", []), html]
    texts += [data.get(mime, "") for mime in ("text/plain", "text/markdown")]
    shown = re.sub(r"data:[\w/+;=-]+,[A-Za-z0-9+/=]+", "", "\n".join(texts))
    for what, pattern in FORBIDDEN_OUTPUT.items():
        if hit := re.search(pattern, shown):
            yield f"output holds {what}: {hit[0].strip()[:60]!r}"
    yield from check_pictures(html)
    if "image/png" in data and not any(kind.search(html) for kind in _NAMED):
        yield "image/png alone has no alt text: show it with figures.show(…)"
    if WIDGET_VIEW in data:
        yield "a widget's view is stored: rebuild with `distlab build --force`"


# ---- lessons


def check_lesson(notebook: Notebook) -> Iterator[str]:
    cells, code = notebook["cells"], of_kind(notebook, "code")
    for k, cell in code:
        limit = 40 if cell["source"].startswith("%%writefile") else 30  # a program to keep
        if _count_lines(cell["source"]) > limit:
            yield f"cell {k}: more than {limit} lines of code"
    yield from check_head(cells[0])
    yield from check_set_up(code)
    yield from check_predictions(cells)
    yield from check_sections(notebook)
    if not any("assert" in cell["source"] for _, cell in code):
        yield "nothing is asserted: show that utils gives the same, and assert it"


def _count_lines(source: str) -> int:
    """Count a cell's lines of code, without imports of the course's own helpers."""
    ours = [node for node in _top_level(source) if _is_import(node) and _is_ours(node)]
    dropped = {k for node in ours for k in range(node.lineno - 1, node.end_lineno or 0)}
    lines = enumerate(source.split("\n"))
    return sum(bool(line.strip()) for k, line in lines if k not in dropped)


def is_stub(cell: Cell) -> bool:
    """Return whether the learner writes in this cell (*Your turn*)."""
    return cell["cell_type"] == "code" and bool(
        re.search(r"(?:= |return |^ +)\.\.\.", cell["source"], re.M)
    )


def check_head(first: Cell) -> Iterator[str]:
    if first["cell_type"] != "markdown" or not first["source"].startswith("# "):
        yield "cell 0: begin with a markdown cell, `# Title`"
    yield from (
        f"cell 0: write {what}" for what, p in HEAD.items() if not re.search(p, first["source"])
    )
    if re.search(r"needs? a GPU", first["source"], re.IGNORECASE):
        yield 'cell 0: "needs a GPU": everything here runs without one'


def check_set_up(code: list[tuple[int, Cell]]) -> Iterator[str]:
    """One set-up cell; everything but the course's own is imported there or in the next cell.

    The course's own helpers are imported where they are first used.
    """
    if not code:
        yield "no set-up cell"
        return
    k, first = code[0]
    on_jax = "KERAS_BACKEND" in first["source"]
    own = (
        ("jax_num_cpu_devices", "set_random_seed(")
        if on_jax
        else ("set_seeds(", "use_logical_devices(")
    )
    for words in ("quiet_tensorflow", *own):
        if words not in first["source"]:
            yield f"cell {k}: the set-up cell has no {words}"
    second = _top_level(code[1][1]["source"]) if len(code) > 1 else []
    if all(map(_is_import, second)) and any(map(_is_ours, second)):
        yield f"cell {code[1][0]}: import the course's own helpers where they are first used"
    for k, cell in code[2:]:
        if any(_is_import(node) and not _is_ours(node) for node in _top_level(cell["source"])):
            yield f"cell {k}: import it in one of the first two code cells"


def _is_ours(node: ast.AST) -> bool:
    modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return all(module.split(".")[0] in ("utils", "distlab") for module in modules)


def _top_level(source: str) -> list[ast.stmt]:
    if source.startswith("%%writefile"):  # a program of its own, with imports of its own
        return []
    try:
        return ast.parse(re.sub(r"(?m)^\s*[%!?].*", "", source)).body
    except SyntaxError:  # a cell made to fail, or a %%magic of another language
        return []


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def check_predictions(cells: list[Cell]) -> Iterator[str]:
    """Predictions, each with a handle or buttons to guess with, each shown later.

    One or more, and with what the learner writes (*Your turn*) two or more.
    """
    asked, turns = 0, sum(is_stub(cell) for cell in cells)
    for k, (cell, following) in enumerate(pairwise(cells)):
        if cell["cell_type"] == "markdown" and "**Predict.**" in cell["source"]:
            asked += 1
            if not re.search(r"^my_\w+ = guess_", following["source"], re.MULTILINE):
                yield f"cell {k}: after **Predict.** a code cell with `my_guess = guess_…`"
    shown = sum(c["source"].count("show_guess(") for c in cells if c["cell_type"] == "code")
    if not asked or asked + turns < 2 or shown < asked:
        yield f"{asked} **Predict.** cells (at least 2) and {shown} show_guess(…)"


def sections(notebook: Notebook) -> dict[str, Section]:
    """Return each `##` heading with its section."""
    found: dict[str, Section] = {}
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


def check_sections(notebook: Notebook) -> Iterator[str]:
    """The fixed sections: all there, in order, each with what it must hold."""
    found = {
        wanted: next(
            (s for title, s in sections(notebook).items() if title.startswith(wanted)), None
        )
        for wanted in SECTIONS
    }
    yield from (f"no section `## {title}`" for title, section in found.items() if section is None)
    there = {title: section for title, section in found.items() if section is not None}
    if [s[0] for s in there.values()] != sorted(s[0] for s in there.values()):
        yield "sections in another order than " + ", ".join(SECTIONS)
    for title in {"The mistake", "What it costs"} & set(there):
        if not any(cell["cell_type"] == "code" for cell in there[title][2]):
            yield f"`## {title}` holds no code cell"
    words = {title: there.get(title, (0, "", []))[1] for title in SECTIONS}
    goals = re.findall(r"^(?:[-*]|\d+\.) +[A-Z]", words["Objectives"], re.MULTILINE)
    if not 3 <= len(goals) <= 5:
        yield f"{len(goals)} objectives that begin with a capital letter: 3 to 5"
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```", words["Cheat sheet"])
    if len(blocks) != 1 or len(blocks[0].strip().split("\n")) > 10:
        yield "the cheat sheet is one ```python block of 10 lines or fewer"
    named = [m[2] for m in _LINK.finditer(words["Further reading"]) if not m[1]]
    if not named or any(re.match(r"https?:|www\.", name) for name in named):
        yield "`## Further reading` links to pages and papers by their names"
    if not re.search(r"\.\./labs/lab\d\d-|\blab \d\d\b", words["The lab"], re.IGNORECASE):
        yield '`## The lab` names its lab ("lab 05") or links to it'


def check_lab_links(notebook: Notebook, root: Path) -> Iterator[str]:
    """`## The lab` links to every lab that it names and that exists."""
    text = sections(notebook).get("The lab", (0, "", []))[1]
    for number in sorted(set(re.findall(r"\blab ?(\d\d)", text, re.IGNORECASE))):
        for path in (root / "labs").glob(f"lab{number}-*.ipynb"):
            if f"(../labs/{path.name})" not in text:
                yield f"`## The lab`: link to ../labs/{path.name}"


# ---- labs and solutions


def check_lab(notebook: Notebook) -> Iterator[str]:
    """The frame of a lab; stubs that raise; no outputs, nothing of the solution."""
    yield from check_exercises(notebook)
    for k, cell in of_kind(notebook, "code"):
        if cell["outputs"] or cell["execution_count"] is not None:
            yield f"cell {k}: a lab carries no outputs"
        if re.search(r"(?:BEGIN|END) (?:SOLUTION|HIDDEN TESTS)", cell["source"]):
            yield f"cell {k}: holds what only the solution may hold"
        if _nbgrader(cell).get("solution") and "raise NotImplementedError" not in cell["source"]:
            yield f"cell {k}: the stub does not raise NotImplementedError"


def check_solution(notebook: Notebook) -> Iterator[str]:
    yield from check_exercises(notebook)
    for k, cell in of_kind(notebook, "code"):
        kinds = [region.name for region in find_regions(cell["source"])]
        if _nbgrader(cell).get("solution") and "SOLUTION" not in kinds:
            yield f"cell {k}: a solution cell without a SOLUTION region"
        if _nbgrader(cell).get("grade"):
            yield from (f"cell {k}: {what}" for what in check_graded_cell(cell["source"]))


def check_graded_cell(source: str) -> Iterator[str]:
    """INPUTS of np and SEED that leave a learner's names alone; got_…; HIDDEN TESTS of these."""
    if [region.name for region in find_regions(source)] != ["INPUTS", "HIDDEN TESTS"]:
        yield "a graded cell has one INPUTS and then one HIDDEN TESTS region"
        return
    visible = source.split("### END INPUTS")[1].split("### BEGIN HIDDEN TESTS")[0]
    got = {name for name in _assigned(visible) if name.startswith("got_")}
    if not got:
        yield "nothing is assigned to a got_… name"
    inputs, hidden = region_text(source, "INPUTS"), region_text(source, "HIDDEN TESTS")
    known = _assigned(inputs) | {"np", *dir(builtins)}
    stray = _used(inputs) - known - {"SEED"}
    yield from (f"the inputs use {name}: np and SEED only" for name in sorted(stray))
    steps = dis.get_instructions(compile(inputs, "", "exec"))  # a comprehension's names aren't set
    names = {step.argval for step in steps if step.opname == "STORE_NAME"}
    taken = [name for name in names if not re.fullmatch(r"_\w*|\w+_cases|rng", name)]
    yield from (f"the inputs set {n}, maybe a learner's own name: _{n}" for n in sorted(taken))
    stray = _used(hidden) - known - _assigned(hidden) - got - _imported_judges(hidden)
    yield from (f"the hidden tests use {n}: inputs, got_ and np only" for n in sorted(stray))


def _assigned(source: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(source)))
    names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    names |= {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
    return names | {n.arg for n in nodes if isinstance(n, ast.arg)}


def _used(source: str) -> set[str]:
    nodes = ast.walk(ast.parse(source))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _imported_judges(source: str) -> set[str]:
    nodes = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom))
    names = (a for n in nodes if n.names[0].name == "judge" for a in n.names)
    return {alias.asname or alias.name for alias in names}


def check_exercises(notebook: Notebook) -> Iterator[str]:
    """The frame of a lab: title, time, seed, exercises from 1, no grade id twice."""
    first = notebook["cells"][0]["source"]
    if not re.match(r"# Lab \d\d\b", first) or not re.search(HEAD["**Time:** NN minutes"], first):
        yield "cell 0: `# Lab NN …` and `**Time:** NN minutes`"
    code = [cell for _, cell in of_kind(notebook, "code")]
    seeds = sum(bool(re.search(r"(?m)^SEED = \d+$", cell["source"])) for cell in code)
    if seeds != 1:
        yield f"{seeds} cells `SEED = …`: one"
    exercises = _split_exercises(notebook)
    numbers = [number for number, _ in exercises]
    if not numbers or numbers != list(range(1, len(numbers) + 1)):
        yield f"exercises numbered {numbers}: from 1 on"
    yield from _check_sums(first, [cell["source"] for _, cells in exercises for cell in cells])
    for number, cells in exercises:
        yield from (f"exercise {number}: {what}" for what in _check_exercise(cells))
    ids = [_nbgrader(cell)["grade_id"] for cell in code if _nbgrader(cell)]
    yield from (f"grade id {i} is used twice" for i in sorted({i for i in ids if ids.count(i) > 1}))


def _check_sums(first: str, sources: list[str]) -> Iterator[str]:
    """The head's points are the exercises' together, and its minutes leave time for all of them."""
    head = re.search(r"\*\*Time:\*\* *(\d+) minutes · \*\*Points:\*\* *(\d+)", first)
    own = [found for source in sources if (found := LAB_POINTS.search(source))]
    points, minutes = (sum(int(found[part]) for found in own) for part in (1, 2))
    if head and int(head[2]) != points:
        yield f"cell 0: {head[2]} points, and the exercises have {points}"
    if head and int(head[1]) < minutes:
        yield f"cell 0: {head[1]} minutes, and the exercises take {minutes}"


def _split_exercises(notebook: Notebook) -> list[tuple[int, list[Cell]]]:
    exercises: list[tuple[int, list[Cell]]] = []
    for cell in notebook["cells"]:
        markdown = cell["cell_type"] == "markdown"
        heading = LAB_HEADING.search(cell["source"]) if markdown else None
        if heading:
            exercises.append((int(heading[1]), [cell]))
        elif markdown and re.search(r"^## ", cell["source"], re.MULTILINE):
            exercises.append((0, []))  # another section ends the exercise
        elif exercises:
            exercises[-1][1].append(cell)
    return [(number, cells) for number, cells in exercises if number]


def _check_exercise(cells: list[Cell]) -> Iterator[str]:
    prose = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    points = LAB_POINTS.search(prose)
    if not points:
        yield "no line **N points · easy · N minutes**"
    yield from (f"no {part}" for part in LAB_PARTS if part not in prose)
    summaries = re.findall(r"<details>\s*<summary>(.*?)</summary>", prose)
    yield from (f"no <details> {words!r}" for words in LAB_SUMMARIES if words not in summaries)
    solutions = [cell for cell in cells if _nbgrader(cell).get("solution")]
    graded = [cell for cell in cells if _nbgrader(cell).get("grade")]
    if len(solutions) != 1 or not graded:
        yield f"{len(solutions)} solution cells and {len(graded)} graded: 1 and at least 1"
    total = sum(_nbgrader(cell).get("points", 0) for cell in graded)
    if points and total != int(points[1]):
        yield f"its graded cells give {total} points, its heading says {points[1]}"
    wanted = {"grade", "grade_id", "locked", "schema_version", "solution", "task"}
    for data in map(_nbgrader, solutions + graded):
        if not wanted <= set(data) or data["schema_version"] != 3:
            yield f"nbgrader metadata {sorted(data)}: schema 3 wants {sorted(wanted)}"


def _nbgrader(cell: Cell) -> dict[str, Any]:
    return cell["metadata"].get("nbgrader", {})
