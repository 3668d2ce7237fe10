"""The students' copy: what is on the list below, and nothing else of the course.

The labs are made anew of their sources, so that a lab that the teacher has tried out,
or one that isn't built yet, is handed out as its source says.
"""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from distlab.authoring.course_map import fill_readme
from distlab.authoring.sources import Target, make_lab, read_source, to_text
from distlab.class_seed import FILE, read_class_seed
from distlab.grading.release.papers import fit_makefile, fit_page, fit_pyproject, unlink

AS_THEY_ARE = ("LICENSE", "constraints.txt")
TEACHERS_COMMANDS = ("grade", "release", "hub_config", "build", "book", "command_page")
# What learners' commands use.
AUTHORING = ("__init__.py", "course_map.py", "execute.py", "sources.py")
TEACHERS_PAGES = ("grading.md", "hub.md", "architecture.md")
# `pip install ./utils` leaves `build`; an example that was tried, checkpoints and runs
JUNK = re.compile(r"__pycache__|build|checkpoints|runs|\..*|.*\.egg-info|.*\.py[co]|.*~")
IGNORED = ".venv/\n__pycache__/\n*.egg-info/\n.ipynb_checkpoints/\n.distlab/\n/work/\n"


def write_students(root: Path, folder: Path, labs: Sequence[Target]) -> int:
    """Write the students' copy of the course at `root` to `folder`; return the number of its
    lessons.

    Raises OSError where a file of the course is missing.
    """
    folder.mkdir(parents=True)
    for name in AS_THEY_ARE:
        shutil.copyfile(root / name, folder / name)
    _write(folder / ".gitignore", IGNORED)
    _copy_library(root, folder)
    if word := read_class_seed():
        _write(folder / "distlab" / FILE.name, f"{word}\n")
    lessons = _copy_lessons(root, folder)
    for lab in labs:
        _write(folder / "labs" / f"{lab.slug}.ipynb", to_text(make_lab(read_source(lab))))
    _write_papers(root, folder)
    _fix_links(folder)
    return lessons


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _copy_library(root: Path, folder: Path) -> None:
    """Copy utils, examples, docs, and distlab without what only teachers and authors need."""
    left_out = {root / "distlab" / name for name in ("grading", "book")}
    left_out |= {root / "distlab" / "cli" / f"{name}.py" for name in TEACHERS_COMMANDS}
    authoring = root / "distlab" / "authoring"
    left_out |= {path for path in authoring.iterdir() if path.name not in AUTHORING}
    left_out |= set((root / "distlab" / "labs").glob("*/judge.py"))
    left_out |= {root / "docs" / name for name in TEACHERS_PAGES}

    def choose(place: str, names: list[str]) -> list[str]:
        return [n for n in names if JUNK.fullmatch(n) or Path(place, n) in left_out]

    for package in ("utils", "distlab", "examples", "docs"):
        shutil.copytree(root / package, folder / package, ignore=choose)


def _copy_lessons(root: Path, folder: Path) -> int:
    lessons = sorted((root / "notebooks").glob("*.ipynb"))
    for path in lessons:
        _write(folder / "notebooks" / path.name, path.read_text(encoding="utf-8"))
    pictures = root / "notebooks" / "pictures"
    shutil.copytree(pictures, folder / "notebooks" / "pictures")
    return len(lessons)


def _write_papers(root: Path, folder: Path) -> None:
    """Write Makefile, pyproject.toml, environment.yml, README.md and docs that fit the copy."""
    makefile = fit_makefile((root / "Makefile").read_text(encoding="utf-8"))
    _write(folder / "Makefile", makefile)
    pyproject = fit_pyproject((root / "pyproject.toml").read_text(encoding="utf-8"))
    _write(folder / "pyproject.toml", pyproject)
    conda = (root / "environment.yml").read_text(encoding="utf-8")
    conda = re.sub(r"; tests/\S+ compares them|\n +# - -e \.\[teach,test\].*", "", conda)
    _write(folder / "environment.yml", conda)
    commands = {p.stem.replace("_", "-") for p in (folder / "distlab" / "cli").glob("*.py")}
    targets = set(re.findall(r"^(\w+):(?!=)", makefile, re.MULTILINE))
    readme = fill_readme(root)[1]  # also with a lab that was never built
    _write(folder / "README.md", fit_page(readme, commands, targets, _exists_from(folder)))
    for page in (folder / "docs").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        _write(page, fit_page(text, commands, targets, _exists_from(page.parent)))


def _exists_from(folder: Path) -> Callable[[str], bool]:
    return lambda link: (folder / link).exists()


def _fix_links(folder: Path) -> None:
    """In notebooks, leave the words and drop the link where its file isn't handed out."""
    for path in sorted(folder.glob("*/*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        before = json.dumps(notebook)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                text = unlink("".join(cell["source"]), _exists_from(path.parent))
                cell["source"] = text.splitlines(True)
        if json.dumps(notebook) != before:
            text = json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False)
            _write(path, text + "\n")
