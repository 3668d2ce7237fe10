"""Release a course: the students' copy, and an nbgrader course for the teacher.

    DIR/students    notebooks, labs, the library without `distlab.grading`: works alone
    DIR/nbgrader    nbgrader_config.py, gradebook.db, source/LAB/LAB.ipynb with hidden tests

Both are made from the sources, next to DIR, and renamed into place when they are complete.

- `nbgrader_course`: an nbgrader course of the chosen labs, as `nbgrader` and formgrader open it
- `papers`: README.md, Makefile and pyproject.toml cut to what students get
- `students`: the students' copy: what is on the list below, and nothing else of the course
"""

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from distlab.authoring import sources
from distlab.authoring.new_lab import find_template_words
from distlab.errors import CourseError
from distlab.grading.release.nbgrader_course import write_nbgrader_course
from distlab.grading.release.students import write_students

KEPT_FOLDERS = ("utils", "distlab", "labs", "notebooks", "solutions", "tests", ".git")


@dataclass(frozen=True)
class Release:
    """A release: its two folders, the labs' slugs, and the number of lessons."""

    students: Path
    nbgrader: Path
    labs: tuple[str, ...]
    lessons: int


def make_release(root: Path, folder: Path, names: Sequence[str] = ()) -> Release:
    """Make the release of the course at `root` in `folder`, with the labs `names` (() for all).

    Raises CourseError if `folder` holds anything, lies inside a part of the course, or
    a lab isn't known, and then leaves nothing behind.
    """
    _check_folder(root, folder)
    labs = _choose_labs(root, names)
    _check_words(labs)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        lessons = write_students(root, partial / "students", labs)
        write_nbgrader_course(root, partial / "nbgrader", labs)
        partial.chmod(0o755)
        with suppress(FileNotFoundError):
            folder.rmdir()  # an empty folder gives way
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    slugs = tuple(lab.slug for lab in labs)
    return Release(folder / "students", folder / "nbgrader", slugs, lessons)


def _check_folder(root: Path, folder: Path) -> None:
    whole = folder.resolve()
    for name in KEPT_FOLDERS:
        if (root / name).resolve() in (whole, *whole.parents):
            raise CourseError(
                f"{folder} must not be inside the course's {name}/. Choose another folder."
            )
    if whole == root.resolve() or folder.is_dir() and any(folder.iterdir()):
        raise CourseError(f"{folder} must be a new or empty folder. Choose another one.")
    if folder.exists() and not folder.is_dir():
        raise CourseError(
            f"{folder} must be a new or empty folder, got a file. Choose another name."
        )


def _check_words(labs: Sequence[sources.Target]) -> None:
    """Raise CourseError for a lab that still has sentences of the template for new labs."""
    for lab in labs:
        if found := find_template_words(lab.source.read_text(encoding="utf-8")):
            raise CourseError(
                f"{lab.source.name} still says {found[0]!r}, as the template for new "
                "labs does. Write your own text, then release it."
            )


def _choose_labs(root: Path, names: Sequence[str]) -> list[sources.Target]:
    labs = [target for target in sources.find_targets(root) if target.lab]
    if not labs:
        raise CourseError(
            "Releasing needs the teacher's copy of the course, but there is no solutions/src here. "
            "Change to the folder of that copy."
        )
    wanted = [f"lab{name}" if name.isdigit() else name for name in names]  # 05 is lab05
    chosen = sources.choose_targets(labs, wanted, "--labs")
    return sorted(chosen, key=lambda target: target.slug)
