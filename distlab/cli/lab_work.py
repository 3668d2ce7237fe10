"""A learner's own labs: `distlab check`, `distlab submit` and `distlab reset`."""

import argparse
import getpass
import json
import re
import unicodedata
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from distlab import copies, progress
from distlab.cli.long_command import say_waiting
from distlab.cli.parser import Commands, add_command, declare
from distlab.errors import CourseError
from distlab.submission import is_generic, is_plain_name, list_attached, make_zip_name
from utils.checks import list_few, suggest

CELL_SECONDS, LAB_SECONDS = 120.0, 600.0
IMPORTED = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)
LAB = "LAB  lab05, 05, or a notebook's path"
SUBMIT = """
--name NAME  the name that your teacher knows [your login name]
--output OUTPUT  write the zip to this folder
"""


def add_parser(commands: Commands) -> None:
    check = add_command(commands, "check", run_check, "check your answers of a lab")
    declare(check, LAB)
    check.add_json()
    text = "check a lab and pack it for submission"
    submit = add_command(commands, "submit", run_submit, text)
    declare(submit, LAB + SUBMIT, output={"type": Path, "default": Path("submissions")})
    text = "start a lab from scratch, and keep your version in work/kept"
    reset = add_command(commands, "reset", run_reset, text)
    declare(reset, "LAB  lab05, 05, or a copy's path: work/NAME.ipynb")


def find_lab(name: str) -> Path:
    """Return the notebook of the lab that `name` means; CourseError lists what there is.

    That's the learner's copy in `work/`, or else the original lab. Anything but a plain file is
    skipped: a pipe would be read for ever.
    """
    if name.endswith(".ipynb"):
        if not Path(name).is_file():
            raise CourseError(f"{name}: notebook not found.")
        return Path(name).resolve()
    course = progress.require_course()
    number = name.removeprefix("lab").zfill(2)
    there = sorted((course / "labs").glob("lab*.ipynb"))
    named = [p for p in there if p.stem == name or p.stem.split("-")[0][3:] == number]
    found, fitting = ([p for p in some if p.is_file()] for some in (there, named))
    if named and not fitting:
        raise CourseError(
            f"{named[0].name} must be a file, got a pipe or a folder. Move it away, and put "
            "your notebook there."
        )
    if len(fitting) != 1:
        known = list_few(p.stem.split("-")[0] for p in found)
        near = suggest(name, [p.stem.split("-")[0] for p in found])
        raise CourseError(f"LAB must be one of {known}, got {name!r}{near or '.'}")
    copy = course / copies.FOLDER / fitting[0].name
    return copy if copy.is_file() else fitting[0]


def run_check(arguments: argparse.Namespace) -> int:
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
    """Run a lab's notebook in a fresh kernel. Return each check's id, whether it passed, and its
    message.

    Raises CourseError for a file that isn't a lab, or a kernel that dies.
    """
    import nbformat

    from distlab.authoring.execute import run_cells

    try:
        notebook = nbformat.read(path, as_version=4)
    except (OSError, ValueError, KeyError, AttributeError, nbformat.ValidationError) as error:
        raise CourseError(f"{path.name} can't be read: {str(error).splitlines()[0]}") from None
    graded = [cell for cell in notebook.cells if _mark(cell).get("grade")]
    if not graded:
        raise CourseError(f"{path.name} has no exercises. Is it a lab?")
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


def run_submit(arguments: argparse.Namespace) -> int:
    """Check the lab, say what is missing, and pack the notebook; return 0."""
    path = find_lab(arguments.lab)
    name = unicodedata.normalize("NFC", arguments.name or _login_name())
    if not is_plain_name(name):
        raise CourseError(
            "--name must be letters, digits, spaces and . - _ ' (200 bytes at most), got "
            f"{name!r}. Use the name your teacher knows."
        )
    if is_generic(name):
        raise CourseError(
            f"Many people share the login {name!r}. Give --name, as your teacher knows you."
        )
    with say_waiting(f"distlab submit: running {path.name}"):
        results = check_notebook(path)
    right = sum(result["passed"] for result in results)
    for result in results:
        if not result["passed"]:
            print(f"not yet  {result['id']}: {result['said']}")
    for module in _find_own_modules(path):
        print(f"left out {module}: only the notebook is submitted. Put its code into a cell")
    print(f"{right} of {len(results)} checks pass")
    packed = pack(path, name, arguments.output, _find_attached(path))
    print(f"submission: {packed}")
    return 0


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise CourseError("Your name is missing. Give --name, as your teacher knows you.") from None


def _find_own_modules(path: Path) -> list[str]:
    """Return the files beside the notebook that it imports, and doesn't write itself."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    found = dict.fromkeys(f"{name}.py" for name in IMPORTED.findall(code))
    return [file for file in found if (path.parent / file).is_file() and file not in code]


def _find_attached(path: Path) -> list[Path]:
    """Return the files that the lab wants next to its notebook. Say which are missing or too large.

    What the check cells have packed just now is there.
    """
    found = []
    for name, most in list_attached(path.stem).items():
        file = path.parent / name
        if not file.is_file():
            print(f"missing  {name}: the exercise that it belongs to earns nothing without it")
        elif file.stat().st_size > most:
            size = file.stat().st_size / 2**20
            print(f"too large  {name}: {size:.1f} MiB, {most / 2**20:g} may be submitted: left out")
        else:
            found.append(file)
    return found


def pack(path: Path, name: str, folder: Path, attached: Sequence[Path] = ()) -> Path:
    """Zip the notebook as STUDENT/LAB/LAB.ipynb, with the time, and return the zip's path.

    `attached` are files that go into the zip with the notebook.

    Nothing that is there is overwritten: each zip's name has its time.
    """
    now = datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    packed = folder / make_zip_name(path.stem, name, now)
    with zipfile.ZipFile(packed, "x", zipfile.ZIP_DEFLATED) as archive:
        archive.write(path, f"{name}/{path.stem}/{path.name}")
        for file in attached:
            archive.write(file, f"{name}/{path.stem}/{file.name}")
        archive.writestr(f"{name}/{path.stem}/timestamp.txt", f"{now:%Y-%m-%d %H:%M:%S} UTC\n")
    return packed


def run_reset(arguments: argparse.Namespace) -> int:
    """Put the original in place of the learner's copy, which is kept; return 0."""
    path = find_lab(arguments.lab)
    course = progress.find_course(path.parent)
    if course is None:
        raise CourseError(f"{path} isn't a copy in this course's work/.")
    kept = copies.start_over(course, path.name).relative_to(course)
    print(f"{copies.FOLDER}/{path.name} starts from scratch; yours is kept as {kept}")
    print("If it is open in JupyterLab: close it without saving, and open it again.")
    return 0
