"""Programs as text and back: Python files, notebooks, and folders of both."""

import ast
import os
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from distlab.errors import CourseError
from distlab.modernize.reading import FoundForm, read_program
from distlab.modernize.table import find_entry

SUFFIXES = (".py", ".ipynb")
LEFT_OUT = ("__pycache__", "node_modules", "site-packages", "build", "dist")
RELEVANT = re.compile(
    rb"tensorflow|keras|horovod|numpy|\bxrange\b|\biter(?:items|values|keys)\b|\braw_input\b"
)
CELL, HIDDEN = "# distlab-cell", "distlab-magic: "
MAGIC = re.compile(r"^(\s*)((?:[\w, ]+=\s*)?[%!].*|\?.*|.*\?)$")
PYTHON_2 = re.compile(
    r"Missing parentheses in call to|multiple exception types must be|leading zeros in decimal|"
    r"inconsistent use of tabs"
)
PYTHON_2_LINE = re.compile(
    r"^\s*(?:print\s+[\"'\w]|exec\s+[\"'\w]|raise\s+\w+\s*,)|<>|\bur[\"']|\b0\d+L?\b|`\w+`"
)


@dataclass(frozen=True)
class Program:
    """A program's text. Of a notebook: all its code cells, each after a line with its number."""

    path: Path
    text: str
    encoding: str = "utf-8"
    notebook: Any = None

    def name_place(self, line: int) -> str:
        """Return where a line is: FILE:LINE, or FILE:cell N:LINE."""
        if self.notebook is None:
            return f"{self.path}:{line}"
        lines = self.text.split("\n")[:line]
        start = max(k for k, each in enumerate(lines, 1) if each.startswith(CELL))
        return f"{self.path}:cell {lines[start - 1].split()[-1]}:{line - start}"

    def show(self) -> str:
        """Return the text with its magics, as a reader knows it."""
        return _show(self.text)


@dataclass(frozen=True)
class Reading:
    """The findings in one file. `problem` says why it couldn't be read, and `note` what else."""

    path: Path
    program: Program | None = None
    found: list[FoundForm] = field(default_factory=list)
    problem: str = ""
    note: str = ""


# ---- files


def list_files(name: str) -> list[Path]:
    """Return the file, or every Python file and notebook of the folder. Raises CourseError."""
    path = Path(name)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise CourseError(f"{name}: file or folder not found. Check the path.")
    found = []
    for folder, below, files in os.walk(path):
        below[:] = sorted(
            each
            for each in below
            if not each.startswith(".")
            and each not in LEFT_OUT
            and not Path(folder, each, "pyvenv.cfg").is_file()
        )
        found += [Path(folder, each) for each in sorted(files) if each.endswith(SUFFIXES)]
    if not found:
        raise CourseError(f"{name} must have a .py or .ipynb file. Name another folder.")
    return found


def list_modules(files: list[Path]) -> frozenset[str]:
    """Return the modules that these programs may import: files and folders next to them."""
    folders = {file.parent for file in files}
    folders |= {above for folder in folders for above in list(folder.parents)[:2] if len(files) > 1}
    found = {part for folder in folders for part in folder.parts}
    for folder in folders:
        found |= {entry.name.removesuffix(".py") for entry in os.scandir(folder)}
    return frozenset(found)


def read_file(path: Path, local: frozenset[str], skim: bool = False) -> Reading:
    """Return what the table says of a file. A file that can't be read has a problem instead.

    With `skim`, a file that mentions nothing of interest isn't parsed.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        return Reading(path, problem=f"{path}: {error.strerror}.")
    if skim and path.suffix == ".py" and not RELEVANT.search(data):
        return Reading(path)
    try:
        program = load_program(path, data)
        found = [*_find_magics(program), *read_program(program.text, local)]
        if program.notebook is not None:  # there TF_CONFIG is often set for programs that it starts
            found = [each for each in found if each.entry.name != "late-tf-config"]
    except SyntaxError as error:
        return Reading(path, problem=_explain_syntax(path, error))
    except (CourseError, RecursionError) as error:
        return Reading(path, problem=f"{path}: {error or 'nested too deeply to be read.'}")
    note = ""
    if "sys.path" in program.text and re.search(
        r"sys\.path\.|sys\.path\[|sys\.path *\+?=", program.text
    ):
        note = f"{path}: changes sys.path, so missing modules aren't looked for here."
    return Reading(path, program, found, note=note)


def load_program(path: Path, data: bytes) -> Program:
    """Return the program in a file. Raises CourseError if it's neither text nor a notebook."""
    if path.suffix == ".ipynb":
        return _load_notebook(path, data)
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError):
        raise CourseError("isn't a text file.") from None
    if "\0" in text:
        raise CourseError("isn't a text file.")
    return Program(path, text, encoding)


def _explain_syntax(path: Path, error: SyntaxError) -> str:
    line = (error.text or "").rstrip("\n")
    where = f"{path}:{error.lineno or 1}"
    if PYTHON_2.search(error.msg) or PYTHON_2_LINE.search(line):
        cure = "Convert it first: python3.11 -m lib2to3 --write FILE."
        return f"{where}: stops: Python 2 syntax: {line.strip()[:60]}. {cure}"
    return f"{where}: stops: this isn't Python: {error.msg}."


def write_program(program: Program, text: str) -> Path:
    """Write the changed text into the program's file. Return where the copy of the old one is."""
    number = 1
    while (copy := Path(f"{program.path}.bak{number if number > 1 else ''}")).exists():
        number += 1
    copy.write_bytes(program.path.read_bytes())
    if program.notebook is None:
        program.path.write_bytes(text.encode(program.encoding))
    else:
        _write_notebook(replace(program, text=text))
    return copy


# ---- notebooks


def _load_notebook(path: Path, data: bytes) -> Program:
    try:
        import nbformat
    except ImportError:
        raise CourseError("notebooks need nbformat. Run: pip install nbformat") from None
    try:
        notebook = nbformat.reads(data.decode("utf-8"), as_version=4)
        cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    except Exception:  # whatever a broken file makes of nbformat
        raise CourseError("isn't a notebook that nbformat can read.") from None
    parts = [f"{CELL} {number}\n{_hide_magics(cell)}" for number, cell in enumerate(cells, 1)]
    return Program(path, "\n".join(parts) + "\n", notebook=notebook)


def _hide_magics(cell: str) -> str:
    """Return a cell as Python: magics, and cells that aren't Python, become comments."""
    lines = cell.split("\n")
    first = next((k for k, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        if not re.match(r"%%(time|timeit|capture|prun)\b", lines[first]):
            return "\n".join(f"# {HIDDEN}{line}" for line in lines)
        lines[first] = f"# {HIDDEN}{lines[first]}"
    if not _parses(lines):
        lines = [MAGIC.sub(rf"\1pass  # {HIDDEN}\2", line) for line in lines]
    return "\n".join(
        lines if _parses(lines) else [f"# {HIDDEN}{line}" for line in cell.split("\n")]
    )


def _parses(lines: list[str]) -> bool:
    try:
        ast.parse("\n".join(lines))
    except (SyntaxError, ValueError):
        return False
    return True


def _show(text: str) -> str:
    return re.sub(rf"(?m)^(\s*)(?:pass  )?# {HIDDEN}", r"\1", text)


def _split_cells(text: str) -> Iterator[str]:
    for part in re.split(rf"(?m)^{CELL} \d+\n", text)[1:]:
        yield _show(part.removesuffix("\n"))


def _write_notebook(program: Program) -> None:
    import nbformat

    cells = [cell for cell in program.notebook.cells if cell.cell_type == "code"]
    for cell, source in zip(cells, _split_cells(program.text), strict=True):
        cell.source = source
    nbformat.write(program.notebook, program.path)


def _find_magics(program: Program) -> Iterator[FoundForm]:
    entry = find_entry("tensorflow-version-magic")
    for number, line in enumerate(program.text.split("\n"), 1):
        if f"{HIDDEN}%tensorflow_version 1" in line:
            yield FoundForm(entry, (number, 0, number, len(line)), "%tensorflow_version 1.x")
