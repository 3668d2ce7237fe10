"""The style lint's rules for labs and their solutions.

- Cell 0, markdown: `# Lab NN …` and `**Time:** NN minutes`. One code cell holds
  `SEED = …` and nothing else is called so.
- Three to five exercises, `## Exercise N: title`, numbered from 1. Under each:
  `**3 points · medium · 10 minutes**` (easy, medium or hard); `**Contract.**`;
  `**Example.**`; `<details>` whose summaries are Hint 1, Hint 2, Worked idea.
- Each has one solution cell and at least one graded cell (nbgrader metadata,
  schema 3), whose points add up to those of the heading. Grade ids are unique.
- A lab holds stubs that raise NotImplementedError, no outputs, and nothing of
  the solution or the hidden tests.
- In a solution, a graded cell has, in this order, INPUTS, a `got_…`
  assignment and HIDDEN TESTS, which use only the inputs, `got_…`, `np`,
  Python's builtins and what they import from `distlab.grading`.
"""

import ast
import builtins
import re
from typing import Any

from distlab.authoring.regions import find_regions, region_text

_HEADING = re.compile(r"^## Exercise (\d+): \S", re.MULTILINE)
_POINTS = re.compile(r"\*\*(\d+) points? · (?:easy|medium|hard) · \d+ minutes\*\*")
_SUMMARIES = ("Hint 1", "Hint 2", "Worked idea")


def check_lab(notebook: dict[str, Any], name: str) -> list[str]:
    """Return what the learner's notebook lacks, or shows and should not."""
    found = check_exercises(notebook, name)
    for k, cell in _code(notebook):
        if cell["outputs"] or cell["execution_count"] is not None:
            found.append(f"{name}: cell {k}: a lab carries no outputs")
        if re.search(r"(?:BEGIN|END) (?:SOLUTION|HIDDEN TESTS)", cell["source"]):
            found.append(f"{name}: cell {k}: holds what only the solution may hold")
        if _is(cell, "solution") and "raise NotImplementedError" not in cell["source"]:
            found.append(f"{name}: cell {k}: the stub does not raise NotImplementedError")
    return found


def check_solution(notebook: dict[str, Any], name: str) -> list[str]:
    """Return what the executed solution lacks; its graded cells part by part."""
    found = check_exercises(notebook, name)
    for k, cell in _code(notebook):
        kinds = [r.name for r in find_regions(cell["source"], name)]
        if _is(cell, "solution") and "SOLUTION" not in kinds:
            found.append(f"{name}: cell {k}: a solution cell without a SOLUTION region")
        if _is(cell, "grade"):
            found += [f"{name}: cell {k}: {what}" for what in check_graded_cell(cell["source"])]
    return found


def check_graded_cell(source: str) -> list[str]:
    """Return what a graded cell's source lacks of its four parts."""
    kinds = [r.name for r in find_regions(source)]
    if kinds != ["INPUTS", "HIDDEN TESTS"]:
        return ["a graded cell has one INPUTS and then one HIDDEN TESTS region"]
    visible = source.split("### END INPUTS")[1].split("### BEGIN HIDDEN TESTS")[0]
    got = {n for n in _assigned(visible) if n.startswith("got_")}
    found = [] if got else ["nothing is assigned to a got_… name"]
    inputs, hidden = region_text(source, "INPUTS"), region_text(source, "HIDDEN TESTS")
    stray = _used(inputs) - _assigned(inputs) - {"np", "SEED", *dir(builtins)}
    found += [f"the inputs use {n}: np and SEED only" for n in sorted(stray)]
    allowed = _assigned(inputs) | _assigned(hidden) | got | {"np", *dir(builtins)}
    stray = _used(hidden) - allowed - _imported_judges(hidden)
    return found + [f"the hidden tests use {n}: inputs, got_ and np only" for n in sorted(stray)]


def _assigned(source: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(source)))
    names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    names |= {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
    return names | {n.arg for n in nodes if isinstance(n, ast.arg)}


def _imported_judges(source: str) -> set[str]:
    nodes = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom))
    names = (a for n in nodes if (n.module or "").startswith("distlab.grading") for a in n.names)
    return {alias.asname or alias.name for alias in names}


def _used(source: str) -> set[str]:
    nodes = ast.walk(ast.parse(source))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def check_exercises(notebook: dict[str, Any], name: str) -> list[str]:
    """Return what the lab's frame lacks: title, time, seed, exercises, points, hints."""
    found = []
    first = notebook["cells"][0]["source"]
    if not re.match(r"# Lab \d\d\b", first) or not re.search(r"\*\*Time:\*\* *\d+ minutes", first):
        found.append("cell 0: `# Lab NN …` and `**Time:** NN minutes`")
    seeds = [k for k, c in _code(notebook) if re.search(r"^SEED = \d+$", c["source"], re.MULTILINE)]
    if len(seeds) != 1:
        found.append(f"{len(seeds)} cells `SEED = …`: one")
    exercises = _split_exercises(notebook)
    numbers = [number for number, _ in exercises]
    if numbers != list(range(1, len(numbers) + 1)) or not 3 <= len(numbers) <= 5:
        found.append(f"exercises numbered {numbers}: three to five, from 1")
    for number, cells in exercises:
        found += [f"exercise {number}: {what}" for what in _check_exercise(cells)]
    ids = [c["metadata"]["nbgrader"]["grade_id"] for _, c in _code(notebook) if _nbgrader(c)]
    found += [f"grade id {i} is used twice" for i in sorted({i for i in ids if ids.count(i) > 1})]
    return [f"{name}: {what}" for what in found]


def _split_exercises(notebook: dict[str, Any]) -> list[tuple[int, list[dict[str, Any]]]]:
    exercises: list[tuple[int, list[dict[str, Any]]]] = []
    for cell in notebook["cells"]:
        markdown = cell["cell_type"] == "markdown"
        heading = _HEADING.search(cell["source"]) if markdown else None
        if heading:
            exercises.append((int(heading[1]), [cell]))
        elif markdown and re.search(r"^## ", cell["source"], re.MULTILINE):
            exercises.append((0, []))  # another section ends the exercise
        elif exercises:
            exercises[-1][1].append(cell)
    return [(number, cells) for number, cells in exercises if number]


def _check_exercise(cells: list[dict[str, Any]]) -> list[str]:
    prose = "\n".join(c["source"] for c in cells if c["cell_type"] == "markdown")
    points = _POINTS.search(prose)
    found = [] if points else ["no line **N points · easy · N minutes**"]
    found += [f"no {part}" for part in ("**Contract.**", "**Example.**") if part not in prose]
    summaries = re.findall(r"<details>\s*<summary>(.*?)</summary>", prose)
    found += [f"no <details> {s!r}" for s in _SUMMARIES if s not in summaries]
    solutions = [c for c in cells if _is(c, "solution")]
    graded = [c for c in cells if _is(c, "grade")]
    if len(solutions) != 1 or not graded:
        found.append(f"{len(solutions)} solution cells and {len(graded)} graded: 1 and at least 1")
    total = sum(_nbgrader(c).get("points", 0) for c in graded)
    if points and total != int(points[1]):
        found.append(f"its graded cells give {total} points, its heading says {points[1]}")
    wanted = {"grade", "grade_id", "locked", "schema_version", "solution", "task"}
    for cell in solutions + graded:
        data = _nbgrader(cell)
        if not wanted <= set(data) or data["schema_version"] != 3:
            found.append(f"nbgrader metadata {sorted(data)}: schema 3 wants {sorted(wanted)}")
    return found


def _code(notebook: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    return [(k, c) for k, c in enumerate(notebook["cells"]) if c["cell_type"] == "code"]


def _nbgrader(cell: dict[str, Any]) -> dict[str, Any]:
    return cell["metadata"].get("nbgrader", {})


def _is(cell: dict[str, Any], what: str) -> bool:
    return bool(_nbgrader(cell).get(what))
