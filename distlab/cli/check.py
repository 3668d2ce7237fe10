"""`distlab check`: run a lab's notebook in a fresh kernel and say what each check says."""

import argparse
import json
from pathlib import Path
from typing import Any

from distlab import progress
from distlab.cli.long_command import say_waiting
from distlab.cli.parser import Commands, suggest
from distlab.errors import CourseError

CELL_SECONDS, LAB_SECONDS = 120.0, 600.0


def add_parser(subparsers: Commands) -> None:
    parser = subparsers.add_parser("check", help="try your answers of a lab")
    parser.add_argument("lab", help="lab05, 05, or a notebook's path")
    parser.add_json()
    parser.set_defaults(run=run)


def find_lab(name: str) -> Path:
    """Return the notebook of the lab that `name` means; CourseError lists what there is."""
    if name.endswith(".ipynb"):
        if not Path(name).is_file():
            raise CourseError(f"{name}: no such notebook")
        return Path(name).resolve()
    course = progress.find_course()
    if course is None:
        raise CourseError("no course here: change to the folder with README.md and labs/")
    number = name.removeprefix("lab").zfill(2)
    found = sorted((course / "labs").glob("lab*.ipynb"))
    fitting = [p for p in found if p.stem == name or p.stem.split("-")[0][3:] == number]
    if len(fitting) != 1:
        known = ", ".join(p.stem.split("-")[0] for p in found) or "none"
        near = suggest(name, [p.stem.split("-")[0] for p in found])
        raise CourseError(f"no lab is called {name!r}: choose from {known}{near}")
    return fitting[0]


def run(arguments: argparse.Namespace) -> int:
    """Print what each exercise's check says; return 0 if all pass, else 1."""
    path = find_lab(arguments.lab)
    with say_waiting(f"distlab check: running {path.name}", arguments.json):
        results = check_notebook(path)
    if arguments.json:
        print(json.dumps({"lab": path.stem, "exercises": results}, indent=1))
    else:
        for result in results:
            word = "right" if result["passed"] else "not yet"
            print(f"{word:<8} {result['id']}: {result['said']}")
    return 0 if all(result["passed"] for result in results) else 1


def check_notebook(path: Path) -> list[dict[str, Any]]:
    """Run a lab's notebook in a fresh kernel; return each check's id, passed, and what it said.

    Raises CourseError for a file that is no lab, or a kernel that dies.
    """
    import nbformat

    from distlab.authoring.execute import run_cells

    try:
        notebook = nbformat.read(path, as_version=4)
    except (OSError, ValueError, KeyError, AttributeError, nbformat.ValidationError) as error:
        raise CourseError(f"{path.name} cannot be read: {str(error).splitlines()[0]}") from None
    graded = [cell for cell in notebook.cells if _mark(cell).get("grade")]
    if not graded:
        raise CourseError(f"{path.name} has no exercises: is it a lab?")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    run_cells(notebook, path.parent, LAB_SECONDS, CELL_SECONDS)
    return [_read_result(cell) for cell in graded]


def _mark(cell: Any) -> dict[str, Any]:
    return cell.metadata.get("nbgrader", {})


def _read_result(cell: Any) -> dict[str, Any]:
    errors = [o for o in cell.outputs if o.output_type == "error"]
    said = "".join(o.text for o in cell.outputs if o.output_type == "stream" and o.name == "stdout")
    if errors:
        name, value = errors[0].ename, errors[0].evalue.strip()
        said = value if name == "AssertionError" and value else f"{name}: {value}"
        if name == "NotImplementedError":
            said = "not written yet"
    elif cell.execution_count is None:
        said = "did not run in time"
    passed = not errors and cell.execution_count is not None
    return {
        "id": _mark(cell)["grade_id"].removesuffix("-test"),
        "passed": passed,
        "said": said.strip().splitlines()[0] if said.strip() else "",
    }
