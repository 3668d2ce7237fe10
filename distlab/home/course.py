"""The home page's data: lessons, their labs, and how far a learner is in each.

All of it is read from the notebooks themselves, since a students' copy has no sources: title
and minutes stand in the first cell, what one sees happen in that cell's metadata.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from distlab import copies, progress

_TITLE = re.compile(r"^# (?:Lab \d\d · )?(.+)$", re.MULTILINE)
_MINUTES = re.compile(r"^\*\*Time:\*\* (\d+) minutes", re.MULTILINE)
_LAB_LINK = re.compile(r"\]\((?:\.\./)?labs/(lab\d\d)-[^)]*\.ipynb\)")
_TURN = re.compile(r"\bturns\.(\w+)\.take\(")
_LESSON = re.compile(r"\b[Ll]esson (\d\d)\b")


@dataclass(frozen=True)
class Head:
    """A notebook's own data. `steps` are the things to do in it, in order.

    A step is a code cell of a lesson (its id) or an exercise of a lab (its name). `labs` and
    `lessons` are those that its text names, "lab05" and "05", in order.
    """

    path: str  # from the course folder
    title: str
    shows: str
    minutes: int
    steps: tuple[str, ...]
    labs: tuple[str, ...]
    lessons: tuple[str, ...]
    turns: int = 0  # number of *Your turn* cells in a lesson

    @property
    def name(self) -> str:
        """ "05" of a lesson, "lab05" of a lab."""
        return Path(self.path).stem.partition("-")[0]


@dataclass(frozen=True)
class Item:
    """A lesson or lab with the steps of it that are done, and when the last one was."""

    head: Head
    done: tuple[str, ...]
    touched: str
    labs: tuple["Item", ...] = ()
    tried: int = 0  # of a lesson's turns
    outdated: bool = False  # the learner's copy is of an older version

    @property
    def share(self) -> float:
        """The finished part, 0 to 1."""
        return len(self.done) / len(self.head.steps) if self.head.steps else 0.0

    @property
    def finished(self) -> bool:
        return bool(self.head.steps) and len(self.done) == len(self.head.steps)


def read_head(path: Path, course: Path) -> Head | None:
    """Return what a notebook says of itself, read once for each time it is saved.

    None for a file that can't be read, or says no title.
    """
    try:
        return _read_head(path, course, path.stat().st_mtime_ns)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@lru_cache(maxsize=128)
def _read_head(path: Path, course: Path, saved_at: int) -> Head | None:
    cells = progress.read_cells(path)
    if not cells:
        return None
    texts = [cell["source"] for cell in cells]
    title, minutes = _TITLE.search(texts[0]), _MINUTES.search(texts[0])
    if title is None:
        return None
    words = "\n".join(t for t, cell in zip(texts, cells) if cell["cell_type"] == "markdown")
    is_lab = path.stem.startswith("lab")
    steps = _list_exercises(cells) if is_lab else _list_code(cells)
    return Head(
        path.relative_to(course).as_posix(),
        title[1],
        cells[0]["metadata"].get("shows", ""),
        int(minutes[1]) if minutes else 0,
        tuple(steps),
        tuple(_LAB_LINK.findall(words)),
        tuple(_LESSON.findall(words)),
        sum(len(_TURN.findall(t)) for t, cell in zip(texts, cells) if cell["cell_type"] == "code"),
    )


def _list_exercises(cells: list[dict[str, Any]]) -> list[str]:
    """Return the ids of a lab's exercises."""
    marks = [cell.get("metadata", {}).get("nbgrader", {}) for cell in cells]
    return [mark.get("grade_id", "") for mark in marks if mark.get("solution")]


def _list_code(cells: list[dict[str, Any]]) -> list[str]:
    """Return the ids of the code cells that have something to run."""
    return [
        cell.get("id", "")
        for cell in cells
        if cell["cell_type"] == "code" and cell["source"].strip()
    ]


def read_course(course: Path) -> list[Item]:
    """Return the lessons in order, each with the labs that belong to it.

    A lab belongs to the first lesson that it names and that links to it, else to the last
    one that links to it. One that no lesson links to comes alone at the end.
    """
    lessons = _read_heads(course, "notebooks/[0-9][0-9]-*.ipynb")
    labs = _read_heads(course, "labs/lab*.ipynb")
    places = {name: _find_place(lab, lessons) for name, lab in labs.items()}
    passed, ran = progress.read(course), progress.read_lessons(course)

    def measure(head: Head, labs_of_it: tuple[Item, ...] = ()) -> Item:
        is_lab = head.name in labs
        times = passed.get(head.name, {}) if is_lab else ran.get(Path(head.path).stem, {})
        done = tuple(step for step in head.steps if step in times)
        tried = 0 if is_lab else len(passed.get(f"lesson{head.name}", {}))
        touched = max((times[step] for step in done), default="")
        newer = copies.is_outdated(course, Path(head.path).name)
        return Item(head, done, touched, labs_of_it, min(tried, head.turns), newer)

    items = [
        measure(head, tuple(measure(labs[n]) for n, place in places.items() if place == number))
        for number, head in lessons.items()
    ]
    return items + [measure(labs[name]) for name, place in places.items() if not place]


def _read_heads(course: Path, files: str) -> dict[str, Head]:
    found = (read_head(path, course) for path in sorted(course.glob(files)))
    return {head.name: head for head in found if head}


def _find_place(lab: Head, lessons: Mapping[str, Head]) -> str:
    """Return the number of the lesson that a lab belongs to, "" if none links to it."""
    linking = [number for number, lesson in lessons.items() if lab.name in lesson.labs]
    named = [number for number in lab.lessons if number in linking]
    return (named or linking[-1:] or [""])[0]


def find_next(items: list[Item]) -> Item | None:
    """Return the notebook to continue with: the last touched, or the one after it if it is done.

    None when everything from there on is done.
    """
    line = [one for item in items for one in (item, *item.labs)]
    last = max(range(len(line)), key=lambda place: (line[place].touched, -place), default=0)
    return next((one for one in line[last:] if not one.finished), None)
