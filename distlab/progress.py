"""What a learner has done, in a plain file: `.distlab/progress.json` of the course folder.

    {"lab01": {"epoch": "2026-11-20T15:04:05"}}

A lab's check cell writes it when an exercise passes; nothing of the answer is kept.
Only a notebook that runs in the course's `labs` folder counts, so that solutions and
tests leave no trace. A file that cannot be read is put aside, never thrown away; where
nothing can be written, nothing is, and the check says what it says all the same.
"""

import json
import re
from datetime import datetime
from pathlib import Path

from utils.files import write_atomically

Progress = dict[str, dict[str, str]]
FILE = Path(".distlab") / "progress.json"


def is_course(folder: Path, beside: str) -> bool:
    """Return whether `folder` has README.md and the folder `beside`."""
    return (folder / "README.md").is_file() and (folder / beside).is_dir()


def find_course(start: Path | None = None) -> Path | None:
    """Return the course folder (README.md beside labs/) in or above `start`, None if none is."""
    start = Path.cwd() if start is None else start
    return next((f for f in (start, *start.parents) if is_course(f, "labs")), None)


def record(lab: str, exercise: str) -> bool:
    """Note that an exercise has passed; return whether it was written down.

    It is written only when this process works in the `labs` folder of a course.
    Never raises for what the disk says.
    """
    try:
        here = Path.cwd()
        course = find_course(here)
        if course is None or here != course / "labs":
            return False
        progress = read(course)
        now = datetime.now().isoformat(timespec="seconds")
        progress.setdefault(lab, {}).setdefault(exercise, now)
        _write(course / FILE, progress)
        refresh_home_page(course)
    except OSError:
        return False
    return True


def read(course: Path) -> Progress:
    """Return what has been passed, {lab: {exercise: when}}; {} where nothing has.

    A damaged file is renamed to `progress.json.damaged`.
    """
    path = course / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not all(isinstance(v, dict) for v in found.values()):
            raise ValueError("not a table of labs")
    except FileNotFoundError:
        return {}
    except ValueError:
        path.replace(path.with_name(path.name + ".damaged"))
        return {}
    return {str(lab): {str(k): str(v) for k, v in done.items()} for lab, done in found.items()}


def _write(path: Path, progress: Progress) -> None:
    write_atomically(path, json.dumps(progress, indent=1, sort_keys=True) + "\n")


# ---- the home page

HOME_PAGE = "HOME.md"


def _read_cells(notebook: Path) -> list[dict]:
    """Return the cells of a lab, [] for a file that cannot be read."""
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        return [cell | {"source": "".join(cell["source"])} for cell in cells]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return []


def list_exercises(notebook: Path) -> list[str]:
    """Return the ids of a lab's exercises, in order; [] for a file that cannot be read."""
    marks = [cell.get("metadata", {}).get("nbgrader", {}) for cell in _read_cells(notebook)]
    return [mark.get("grade_id", "") for mark in marks if mark.get("solution")]


def read_title(notebook: Path) -> str:
    """Return the title that a lab gives itself, without its number; else what its file says."""
    head = "\n".join(cell["source"] for cell in _read_cells(notebook)[:1])
    found = re.search(r"^# Lab \d\d · (.+)$", head, re.MULTILINE)
    return found[1] if found else notebook.stem.partition("-")[2].replace("-", " ")


def show_progress(course: Path) -> str:
    """Return the learner's progress as a Markdown section: a row for each lab."""
    progress = read(course)
    rows = []
    for path in sorted((course / "labs").glob("lab*.ipynb")):
        name = path.stem.partition("-")[0]
        exercises = list_exercises(path)
        done = [e for e in exercises if e in progress.get(name, {})]
        boxes = " ".join("▣" if e in done else "☐" for e in exercises)
        said = "done" if exercises and len(done) == len(exercises) else f"{len(done)} passed"
        rows.append(f"| [{name[3:]} {read_title(path)}](labs/{path.name}) | {boxes} | {said} |")
    head = "## Your progress\n\n| Lab | Exercises passed | |\n|---|---|---|\n"
    foot = "\n`distlab check lab01` tries a whole lab, `distlab reset lab01` starts it again.\n"
    return head + "\n".join(rows) + "\n" + foot if rows else ""


def write_home_page(course: Path) -> Path:
    """Write HOME.md from README.md and the progress, and return its path.

    Raises OSError where the folder cannot be written to.
    """
    readme = (course / "README.md").read_text(encoding="utf-8")
    first = re.search(r"^## ", readme, re.MULTILINE)
    place = first.start() if first else len(readme)
    page = course / HOME_PAGE
    write_atomically(page, readme[:place] + show_progress(course) + "\n" + readme[place:])
    return page


def refresh_home_page(course: Path) -> None:
    """Write the home page again if there is one."""
    if (course / HOME_PAGE).exists():
        write_home_page(course)
