"""A learner's progress, in two plain files of the course folder's `.distlab`.

    progress.json   {"lab01": {"epoch": "2026-11-20T15:04:05"}, "lesson05": {"divisor": "…"}}
    lessons.json    {"03-mirrored-keras": {"03-mirrored-keras-1b2c3d": "2026-11-20T14:31:10"}}

A lab's check cell writes the first when an exercise passes, and a lesson's when a *Your turn*
was tried; the server of `distlab lab` the
second when a cell of a lesson has run. Nothing of the answer is kept, and nothing leaves the
machine. Only a notebook that runs in the course's `labs` folder or in `work`, which has the
learner's copies, counts as a lab, so that solutions and tests leave no trace. A file that
can't be read is put aside, never thrown away. Where nothing can be written, nothing is, and the
check says what it says all the same.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from distlab.errors import CourseError
from utils.files import write_atomically

Progress = dict[str, dict[str, str]]
FILE = Path(".distlab") / "progress.json"
LESSONS_FILE = FILE.with_name("lessons.json")
# The parts of the course: their lessons, and what they are about.
PARTS = (
    (range(0, 8), "One machine, many replicas"),
    (range(8, 12), "Many machines"),
    (range(12, 19), "Feeding and fitting"),
    (range(19, 23), "Beyond one machine"),
    (range(23, 100), "Today's scale"),
)


def find_course(start: Path | None = None) -> Path | None:
    """Return the course folder (with README.md and labs/) in or above `start`, None if none is."""
    start = Path.cwd() if start is None else start
    folders = (start, *start.parents)
    return next((f for f in folders if (f / "README.md").is_file() and (f / "labs").is_dir()), None)


def require_course(start: Path | None = None) -> Path:
    """Return the course folder in or above `start`, the current folder; CourseError if none is."""
    if course := find_course(start):
        return course
    raise CourseError("There is no course here. Change to the folder with README.md and labs/.")


def record(lab: str, exercise: str) -> bool:
    """Note that an exercise has passed; return whether it was saved.

    It is written only when this process works in the `labs` or `work` folder of a course.
    Never raises for what the disk says.
    """
    return _note(lab, exercise, "labs")


def _note(what: str, part: str, folder: str) -> bool:
    try:
        here = Path.cwd()
        course = find_course(here)
        if course is None or here not in (course / folder, course / "work"):
            return False
        progress = read(course)
        progress.setdefault(what, {}).setdefault(part, _tell_time())
        _write(course / FILE, progress)
    except OSError:
        return False
    return True


def record_turn(lesson: str, name: str) -> bool:
    """Note that a *Your turn* of a lesson ("05") was tried; return whether it was saved.

    It is written only when this process works in the `notebooks` or `work` folder of a course.
    Never raises for what the disk says.
    """
    return _note(f"lesson{lesson}", name, "notebooks")


def record_cells(course: Path, lesson: str, cells: Iterable[str]) -> None:
    """Note that cells of a lesson have run; `lesson` is the name of its file without its end.

    One process alone may do so at a time. Raises OSError where nothing can be written.
    """
    ran = read_lessons(course)
    now = _tell_time()
    ran.setdefault(lesson, {}).update(dict.fromkeys(cells, now))
    _write(course / LESSONS_FILE, ran)


def _tell_time() -> str:
    return datetime.now().isoformat(timespec="seconds")


def read(course: Path) -> Progress:
    """Return what has been passed, {lab: {exercise: when}}; {} where nothing has.

    A damaged file is renamed to `progress.json.damaged`.
    """
    return _read(course / FILE)


def read_lessons(course: Path) -> Progress:
    """Return which cells have run, {lesson: {cell: when}}; for the rest as `read`."""
    return _read(course / LESSONS_FILE)


def _read(path: Path) -> Progress:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not all(isinstance(v, dict) for v in found.values()):
            raise ValueError("not a table of tables")
    except FileNotFoundError:
        return {}
    except ValueError:
        path.replace(path.with_name(path.name + ".damaged"))
        return {}
    return {str(lab): {str(k): str(v) for k, v in done.items()} for lab, done in found.items()}


def _write(path: Path, progress: Progress) -> None:
    write_atomically(path, json.dumps(progress, indent=1, sort_keys=True) + "\n")


def read_cells(notebook: Path) -> list[dict]:
    """Return the cells of a notebook with their text; [] for a file that can't be read."""
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        return [cell | {"source": "".join(cell["source"])} for cell in cells]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return []
