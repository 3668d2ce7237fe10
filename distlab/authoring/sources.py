"""From a py:percent source to a notebook that hasn't run yet.

The source is the one truth. Building from it is deterministic: a cell's id comes
from the slug and the cell's first line, so that a cell put between others leaves
their ids; metadata is fixed, keys are sorted.
Format: https://jupytext.readthedocs.io/en/latest/formats-scripts.html

Parts of a cell are marked, `### BEGIN NAME` to `### END NAME`, each on its own line:
SOLUTION is what a learner writes, HIDDEN TESTS what only the judge runs, INPUTS what both
see. nbgrader's preprocessors read the same markers (`ClearSolutions`, `ClearHiddenTests`).
"""

import hashlib
import importlib
import io
import re
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distlab.authoring.course_map import fill_placeholder, name_solution
from distlab.class_seed import ClassNumber, draw_below, read_class_seed
from distlab.errors import CourseError
from utils.checks import list_few

NAMES = ("SOLUTION", "HIDDEN TESTS", "INPUTS")
ABSENT = "# {{absent}}\n"  # in a lab's source: what its answers can't import
_MARKER = re.compile(r"^\s*#+\s*(BEGIN|END)\b\s*(.*?)\s*$")
_EXACT = re.compile(r"^\s*### (BEGIN|END) (SOLUTION|HIDDEN TESTS|INPUTS)$")


@dataclass(frozen=True)
class Region:
    """One region of a text: its name and the indexes of its two marker lines."""

    name: str
    begin: int
    end: int


def find_regions(text: str, where: str = "text") -> list[Region]:
    """Return the regions of `text` in order; `where` names the file in an error.

    `text` may be one cell or a full py:percent source. No region may reach over a `# %%`
    line. Raises CourseError with file and line for an unclosed or nested region, an end without a
    beginning, and a misspelled marker.
    """
    found, open_name, begin = [], None, 0
    for i, line in enumerate([*text.split("\n"), "# %%"]):
        if line.startswith("# %%") and open_name:
            raise CourseError(
                f"{where}:{begin + 1}: {open_name} must end in its own cell. Add END."
            )
        marker = _MARKER.match(line)
        if not marker:
            continue
        verb, name = marker.groups()
        if not _EXACT.match(line):
            raise CourseError(f"{where}:{i + 1}: must be ### {verb} and one of {', '.join(NAMES)}.")
        if verb == "BEGIN" and open_name:
            raise CourseError(f"{where}:{i + 1}: {name} begins inside {open_name}. End that first.")
        if verb == "END" and name != open_name:
            raise CourseError(f"{where}:{i + 1}: END {name} without its BEGIN. Add or remove one.")
        if verb == "END":
            found.append(Region(name, begin, i))
        open_name, begin = (name, i) if verb == "BEGIN" else (None, 0)
    return found


def replace_regions(text: str, name: str, replacement: str) -> str:
    """Return `text` with every region `name`, markers included, replaced.

    The replacement takes the indentation of the BEGIN marker. An empty one
    removes the region.
    """
    lines = text.split("\n")
    for region in reversed([r for r in find_regions(text) if r.name == name]):
        marker = lines[region.begin]
        indent = marker[: len(marker) - len(marker.lstrip())]
        new = [indent + line for line in replacement.split("\n")] if replacement else []
        lines[region.begin : region.end + 1] = new
    return "\n".join(lines).rstrip("\n")


def region_text(text: str, name: str) -> str:
    """Return the lines inside the regions `name` of `text`, without markers ("" if none)."""
    lines = text.split("\n")
    regions = [r for r in find_regions(text) if r.name == name]
    return "\n".join(line for r in regions for line in lines[r.begin + 1 : r.end])


DIGEST_LENGTH = 8
STUB = """# Write your code in place of the next line.
raise NotImplementedError("this exercise is not written yet")"""
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE_INFO = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}
CHECK = "# Check {}: run this line{}"  # all that JupyterLab shows of a check cell, which is folded
_LIMIT = re.compile(r"# (stops after \d+ s)$", re.MULTILINE)
_EXERCISE = re.compile(r"^## (Exercise \d+):", re.MULTILINE)
_NAME = re.compile(r"^(\d\d|lab\d\d)(_[a-z0-9]+)+$")
_JUPYTEXT_KEYS = ("lines_to_next_cell", "lines_to_end_of_cell_marker", "cell_marker")


@dataclass(frozen=True)
class Target:
    """One source and the files made from it; `lab` is None for a lesson."""

    source: Path
    notebook: Path
    lab: Path | None

    @property
    def slug(self) -> str:
        return self.source.stem.replace("_", "-")


def find_root(start: Path) -> Path:
    """Return the nearest folder at or above `start` that holds `notebooks/src`."""
    for folder in (start.resolve(), *start.resolve().parents, Path(__file__).parents[2]):
        if (folder / "notebooks" / "src").is_dir():
            return folder
    raise CourseError(
        f"There is no folder notebooks/src at {start} or above it. Run this inside the course."
    )


def find_targets(root: Path) -> list[Target]:
    """Return every lesson and lab of the course at `root`, by name."""
    found = []
    for folder, prefix in (("notebooks", ""), ("solutions", "lab")):
        for source in sorted((root / folder / "src").glob("*.py")):
            if not _NAME.match(source.stem) or source.stem.startswith("lab") != bool(prefix):
                wanted = f"{prefix}NN_slug.py in lower case"
                raise CourseError(f"{folder}/src/{source.name}: a source must be named {wanted}.")
            slug = source.stem.replace("_", "-")
            lab = root / "labs" / f"{slug}.ipynb" if prefix else None
            name = name_solution(slug) if prefix else f"{slug}.ipynb"
            found.append(Target(source, root / folder / name, lab))
    return found


def choose_targets(targets: list[Target], names: list[str], what: str = "NAME") -> list[Target]:
    """Return the targets that `names` name ("03", "lab01" or a slug); all of them for no name.

    Raises CourseError for an unknown name, which says that `what` must be another.
    """
    chosen = []
    for name in names:
        wanted = name.removesuffix(".ipynb").removesuffix(".py").replace("_", "-")
        found = [t for t in targets if wanted in (t.slug, t.slug.split("-")[0])]
        found += [t for t in targets if t.slug.partition("-")[2] == wanted]
        if not found:
            known = list_few(t.slug.split("-")[0] for t in targets)
            raise CourseError(f"{what} must be one of {known}, or a slug, got {name!r}.")
        chosen += [t for t in found if t not in chosen]
    return chosen if names else targets


def find_orphans(root: Path) -> list[Path]:
    """Return every notebook in notebooks/, solutions/ and labs/ whose source is gone."""
    made = {path for t in find_targets(root) for path in (t.notebook, t.lab)}
    folders = (root / name for name in ("notebooks", "solutions", "labs"))
    return [
        path for folder in folders for path in sorted(folder.glob("*.ipynb")) if path not in made
    ]


def read_source(target: Target) -> Any:
    """Return the notebook of `target` (an nbformat NotebookNode), without outputs.

    Raises CourseError for a bad region marker, or for a cell kind that isn't
    code or markdown.
    """
    jupytext = _import_jupytext()
    text = target.source.read_text(encoding="utf-8")
    where = f"{target.source.parent.parent.name}/src/{target.source.name}"
    find_regions(text, where)
    text = fill_placeholder(text, target.source.parents[2])
    if target.lab and ABSENT in text:
        text = text.replace(ABSENT, f"# {tell_absent(target.slug.split('-')[0])}\n")
    word = read_class_seed() if target.lab else ""
    if word:
        text = _draw_numbers(text, target)
    notebook = jupytext.reads(text, fmt="py:percent")
    used: Counter[str] = Counter()
    exercise = "this exercise"
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type not in ("code", "markdown"):
            raise CourseError(
                f"{where}: cell {index} must be code or markdown, got {cell.cell_type}."
            )
        cell.metadata = _clean_metadata(cell.metadata)
        if cell.cell_type == "markdown":
            exercise = (_EXERCISE.findall(cell.source) or [exercise])[-1]
        elif cell.metadata.get("nbgrader", {}).get("grade"):
            limit = _LIMIT.search(cell.source)
            line = CHECK.format(exercise.lower(), f" ({limit[1]})" if limit else "")
            cell.source = f"{line}\n{cell.source}"
        cell.id = _name_cell(target.slug, cell, used)
    if word:
        _rename_functions(notebook, word)
    own = {"keras_backend": backend} if (backend := _take_backend(notebook)) else {}
    notebook.metadata = {
        "distlab": {"code": digest_code(notebook), "source": where, **own},
        "kernelspec": dict(KERNELSPEC),
        "language_info": dict(LANGUAGE_INFO),
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def tell_absent(lab: str) -> str:
    """Return the sentence on the modules that answers of `lab` can't import: its `ABSENT`.

    Modules of one package follow the first of them as `.name`; the labs' own aren't named.
    """
    named, package = [], ""
    for name in importlib.import_module(f"distlab.labs.{lab}.exercise").ABSENT:
        if name.startswith("distlab.labs."):
            continue
        before, package = package, name.rpartition(".")[0]
        if package.count(".") and package == before:
            named.append(f"`{name.removeprefix(package)}`")
        else:
            named.append(f"`{name}`")
    if not named:
        return (
            "When this lab is graded, all modules of the course that your code may use are there."
        )
    return (
        "When this lab is graded, some modules of the course aren't there, because they hold "
        f"answers: {', '.join(named)}. Don't import them in your code."
    )


def _draw_numbers(text: str, target: Target) -> str:
    """Return a lab's source with the class's own `SEED`, and the numbers that the lab declares."""
    name = target.slug.split("-")[0]
    text = re.sub(r"^SEED = \d+$", f"SEED = {draw_below(10**6, name)}", text, flags=re.MULTILINE)
    for number in vars(importlib.import_module(f"distlab.labs.{name}.exercise")).values():
        text = number.replace(text) if isinstance(number, ClassNumber) else text
    return text


def _rename_functions(notebook: Any, word: str) -> None:
    """Let the functions that a learner writes end in `_word`: in code, and in a text's `code`."""
    written = [c.source for c in notebook.cells if c.metadata.get("nbgrader", {}).get("solution")]
    names = {
        name
        for text in written
        if not text.startswith("%%")  # a program keeps its names
        for name in re.findall(r"^def (\w+)", replace_regions(text, "SOLUTION", ""), re.MULTILINE)
    }
    spans = re.compile(rf"(?<![\w.\"'])({'|'.join(map(re.escape, names))})(?![\w\"'=])")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = _rename_tokens(cell.source, names, word)
        elif names:
            code = re.compile(r"```.*?```|`[^`]+`", re.DOTALL)
            cell.source = code.sub(lambda c: spans.sub(rf"\1_{word}", c[0]), cell.source)


def _rename_tokens(text: str, names: set[str], word: str) -> str:
    """Return code in which `names` end in `_word`, but for attributes and keywords."""
    if text.startswith("%%"):
        return text
    lines = text.split("\n")
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for k in reversed(range(len(tokens))):
        token = tokens[k]
        if token.type != tokenize.NAME or token.string not in names:
            continue
        before, after = tokens[k - 1].string if k else "", tokens[k + 1].string
        if before != "." and not (before in ("(", ",") and after == "="):
            row, end = token.end[0] - 1, token.end[1]
            lines[row] = f"{lines[row][:end]}_{word}{lines[row][end:]}"
    return "\n".join(lines)


def _take_backend(notebook: Any) -> str:
    """Return the Keras backend that the head of the source names, "" for TensorFlow."""
    return notebook.cells[0].metadata.pop("keras_backend", "") if notebook.cells else ""


def _name_cell(slug: str, cell: Any, used: Counter[str]) -> str:
    """Return the id of `cell`: of its exercise's name or its first line, and of how many had it."""
    first = cell.metadata.get("nbgrader", {}).get("grade_id") or cell.source.split("\n")[0]
    mark = hashlib.sha256(f"{cell.cell_type} {first}".encode()).hexdigest()[:6]
    used[mark] += 1
    return f"{slug[:48]}-{mark}" + (f"-{used[mark]}" if used[mark] > 1 else "")


def digest_code(notebook: Any) -> str:
    """Return a digest of what a run of `notebook` runs: its code cells, in order."""
    ran = [
        (cell.source, "raises-exception" in cell.metadata.get("tags", []))
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    return hashlib.sha256(repr(ran).encode()).hexdigest()[:DIGEST_LENGTH]


def _import_jupytext() -> Any:
    """Import jupytext without its part for Jupyter's server, which takes it 0.2 s more."""
    for part in ("sync_contentsmanager", "async_contentsmanager"):
        sys.modules.setdefault(f"jupytext.{part}", None)  # type: ignore[arg-type]
    try:
        import jupytext
    except ModuleNotFoundError:
        raise CourseError("Building needs jupytext. Run: make build") from None
    return jupytext


def _clean_metadata(metadata: Any) -> dict[str, Any]:
    clean = {key: value for key, value in metadata.items() if key not in _JUPYTEXT_KEYS}
    if "nbgrader" in clean:
        clean["nbgrader"] = complete_nbgrader(clean["nbgrader"])
        if clean["nbgrader"]["grade"]:  # a check cell is run, not read: JupyterLab folds it
            clean["jupyter"] = {"source_hidden": True}
    return clean


def complete_nbgrader(written: dict[str, Any]) -> dict[str, Any]:
    """Return nbgrader's cell metadata, schema 3, with what the header left out.

    A graded cell is locked and no solution. A cell that isn't graded has no points.
    """
    full = {"grade": False, "solution": False, "task": False, "schema_version": 3, **written}
    full.setdefault("locked", full["grade"])
    return full


def make_lab(notebook: Any) -> Any:
    """Return the learner's notebook: stubs for solutions, no hidden tests, no outputs.

    A key struck in the wrong place changes no instruction and no check, and deletes no exercise.
    """
    import copy

    lab = copy.deepcopy(notebook)
    lab.metadata.pop("distlab", None)
    for cell in lab.cells:
        role = cell.metadata.get("nbgrader", {})
        if role.get("locked") or (cell.cell_type == "markdown" and not role):
            cell.metadata["editable"] = False
        if role or cell.cell_type == "markdown":
            cell.metadata["deletable"] = False
        if cell.cell_type != "code":
            continue
        cell.source = replace_regions(cell.source, "SOLUTION", STUB)
        cell.source = replace_regions(cell.source, "HIDDEN TESTS", "")
        cell.outputs, cell.execution_count = [], None
    return lab


def to_text(notebook: Any) -> str:
    """Return the file text of `notebook`: sorted keys, one-space indent, a newline at the end."""
    import nbformat

    return (
        nbformat.writes(nbformat.from_dict(notebook), version=nbformat.NO_CONVERT).rstrip() + "\n"
    )
