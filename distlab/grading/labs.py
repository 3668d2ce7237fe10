"""A lab as grading sees it: its exercises, the parts of its graded cells, its time limits.

Read from the lab's source (`solutions/src/labNN_slug.py`), the one truth. The parts of a graded
cell come from here and never from a submission.
"""

import ast
import importlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from distlab.authoring import sources
from distlab.errors import CourseError
from distlab.exercises.exercise import list_exercises
from distlab.grading.judging import LabRules
from distlab.grading.program_cell import is_program, to_statement
from distlab.submission import ATTACHED


@dataclass(frozen=True)
class GradedCell:
    """One graded cell: `inputs` are drawn again by the judge, `hidden` never leaves it.

    `imports` are the import statements of the lab that the cell leans on; `visible`
    assigns the `got_` names and runs the visible check.
    """

    id: str
    exercise: str
    points: float
    imports: str
    inputs: str
    visible: str
    hidden: str
    text: str  # what a learner sees: inputs with their markers, and visible

    @cached_property
    def asking(self) -> str:
        """The visible part up to the last `got_` name: what the judge needs, without the check."""
        body = ast.parse(self.visible).body
        names = [[n.id for n in ast.walk(s) if isinstance(n, ast.Name)] for s in body]
        last = max(k for k, found in enumerate(names) if any(n in self.got for n in found))
        return "\n".join(self.visible.split("\n")[: body[last].end_lineno])

    @property
    def source(self) -> str:
        """The harness's code: it draws the inputs and asks the answer."""
        return f"{self.imports}\n{self.inputs}\n{self.asking}"

    @cached_property
    def got(self) -> tuple[str, ...]:
        """The `got_` names that the visible part assigns, in order."""
        nodes = [n for n in ast.walk(ast.parse(self.visible)) if isinstance(n, ast.Name)]
        names = [n.id for n in nodes if isinstance(n.ctx, ast.Store) and n.id.startswith("got_")]
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class GivenCell:
    """A code cell of the learner's notebook: `kind` is "given", "solution" or "graded"."""

    kind: str
    id: str  # the grade_id, or the cell's own id where it has none
    text: str  # as a learner gets it: stub, no hidden tests


@dataclass(frozen=True)
class ExerciseSpec:
    """One exercise: the id is the grade_id of its solution cell, which may write a `program`."""

    id: str
    number: int
    title: str
    cells: tuple[GradedCell, ...]
    functions: tuple[str, ...]  # what its stub defines
    program: bool = False
    attached: str = ""  # the graded file, submitted with the notebook
    travels: bool = False  # as `Exercise` says it

    @property
    def points(self) -> float:
        return sum(cell.points for cell in self.cells)


@dataclass(frozen=True)
class LabSpec:
    """One lab: `name` is "lab01", `slug` the stem of its notebooks.

    `imported` are the modules that its source imports, solution and all, as full names.
    """

    name: str
    slug: str
    title: str
    exercises: tuple[ExerciseSpec, ...]
    given: tuple[GivenCell, ...]
    rules: LabRules
    source: Path
    imported: frozenset[str] = frozenset()

    @cached_property
    def prelude(self) -> str:
        """The start of an answer's process: the lab's own cells, except those that try answers."""
        texts = [cell.text for cell in self.given if cell.kind == "given"]
        kept = [s for text in texts for s in _parse(text) if not isinstance(s, ast.Try)]
        return "\n".join(ast.unparse(statement) for statement in kept)

    @property
    def points(self) -> float:
        return sum(exercise.points for exercise in self.exercises)

    @cached_property
    def graded(self) -> dict[str, GradedCell]:
        """Every graded cell by its id, in the order of the lab."""
        return {cell.id: cell for exercise in self.exercises for cell in exercise.cells}


def list_labs(root: Path) -> list[str]:
    """Return the names of the labs of the course at `root`."""
    return [t.slug.split("-")[0] for t in sources.find_targets(root) if t.lab]


def read_lab(name: str, root: Path | None = None) -> LabSpec:
    """Return the lab called `name` ("lab01", or its slug) of the course at `root`.

    Raises CourseError if there is no such lab here: a released course has no solutions.
    """
    root = root or sources.find_root(Path.cwd())
    labs = [t for t in sources.find_targets(root) if t.lab]
    if not labs:
        raise CourseError(
            "Grading needs the teacher's copy of the course, but there is no solutions/src here. "
            "Change to the folder of that copy."
        )
    targets = sources.choose_targets(labs, [name], "LAB")
    if len(targets) != 1:
        raise CourseError(f"LAB must name one lab, got {name!r} for {len(targets)}. Try lab01.")
    return _read_target(targets[0])


def _read_target(target: sources.Target) -> LabSpec:
    name = target.slug.split("-")[0]
    notebook = sources.read_source(target)
    shown = sources.make_lab(notebook)
    pairs = list(zip(notebook.cells, shown.cells, strict=True))
    given = tuple(_read_given(cell) for cell in shown.cells if cell.cell_type == "code")
    imports = [cell.text for cell in given if cell.kind == "given"]
    rules = _read_rules(name)
    known = list_exercises(importlib.import_module(f"distlab.labs.{name}.exercise"))
    exercises: list[ExerciseSpec] = []
    heading = ("", 0)
    for cell, seen in pairs:
        heading = _read_heading(cell, heading)
        role = cell.metadata.get("nbgrader", {})
        if role.get("solution"):
            title, number = heading
            names = find_names(seen.source)
            program, id = is_program(seen.source), role["grade_id"]
            attached = ATTACHED.get(name, {}).get(id, "")
            travels = id in known and known[id].travels
            exercises.append(ExerciseSpec(id, number, title, (), names, program, attached, travels))
        elif role.get("grade"):
            exercises[-1] = _add_graded(exercises[-1], cell, seen, imports)
    title = notebook.cells[0].source.split("\n")[0].lstrip("# ")
    imported = _find_imported([c.source for c in notebook.cells if c.cell_type == "code"])
    return LabSpec(
        name,
        target.slug,
        title,
        tuple(exercises),
        given,
        rules,
        target.source,
        imported,
    )


def _find_imported(texts: list[str]) -> frozenset[str]:
    """Return the modules that the cells of a lab import, as full names."""
    found = set()
    for node in (n for text in texts for s in _parse(text) for n in ast.walk(s)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def _read_heading(cell: Any, last: tuple[str, int]) -> tuple[str, int]:
    line = cell.source.split("\n")[0]
    if cell.cell_type != "markdown" or not line.startswith("## Exercise "):
        return last
    number, _, title = line.removeprefix("## Exercise ").partition(":")
    return title.strip(), int(number)


def _add_graded(exercise: ExerciseSpec, cell: Any, seen: Any, imports: list[str]) -> ExerciseSpec:
    role, source = cell.metadata["nbgrader"], cell.source
    visible = sources.replace_regions(source, "INPUTS", "")
    visible = sources.replace_regions(visible, "HIDDEN TESTS", "").strip("\n")
    graded = GradedCell(
        id=role["grade_id"],
        exercise=exercise.id,
        points=float(role["points"]),
        imports=_find_imports(imports, visible),
        inputs=sources.region_text(source, "INPUTS"),
        visible=visible,
        hidden=sources.region_text(source, "HIDDEN TESTS"),
        text=seen.source,
    )
    return replace(exercise, cells=(*exercise.cells, graded))


def _find_imports(texts: list[str], user: str) -> str:
    """Return the import statements of `texts` that bind a name which `user` uses."""
    used = {n.id for n in ast.walk(ast.parse(user)) if isinstance(n, ast.Name)}
    found = ["import numpy as np"]
    for statement in (s for text in texts for s in _parse(text)):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            bound = {(a.asname or a.name).split(".")[0] for a in statement.names}
            found += [ast.unparse(statement)] if bound & used else []
    return "\n".join(dict.fromkeys(found))


def _parse(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(to_statement(text)).body
    except SyntaxError:  # a magic
        return []


def _read_given(cell: Any) -> GivenCell:
    role = cell.metadata.get("nbgrader", {})
    kind = "solution" if role.get("solution") else "graded" if role.get("grade") else "given"
    return GivenCell(kind, role.get("grade_id", cell.id), cell.source)


def find_names(text: str) -> tuple[str, ...]:
    """Return the names that `text` defines at the top level, () if it isn't Python."""
    names: list[str] = []
    for statement in _parse(text):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            names += [(a.asname or a.name).split(".")[0] for a in statement.names]
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            nodes = (n for target in targets for n in ast.walk(target))
            names += [n.id for n in nodes if isinstance(n, ast.Name)]
    return tuple(dict.fromkeys(names))


def _read_rules(name: str) -> LabRules:
    try:
        return importlib.import_module(f"distlab.labs.{name}.judge").RULES
    except ModuleNotFoundError as error:
        raise CourseError(
            f"{name} can't be graded: it must have a file distlab/labs/{name}/judge.py."
        ) from error
