"""A check's message in JupyterLab: a moment for a correct answer, and a first look for a wrong one.

A correct answer gets a green card with its points and the next exercise. The first wrong one gets
the difference; the second also its usual cause, so that hints come first. Elsewhere (`distlab
check`, nbgrader, tests) a check prints one line, or says all at once.
"""

import os
import re
from collections import Counter
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path
from typing import Any, NamedTuple

from distlab import progress

_HEADING = re.compile(r"^## (Exercise \d+): (.+)$", re.MULTILINE)
_CARD = (
    "border-left:5px solid #009e73;padding:0.55em 1em;max-width:44em;line-height:1.5;"
    "color:var(--jp-content-font-color1,#222);"
    "background:color-mix(in srgb,#009e73 13%,transparent)"
)
_TICK = (
    '<svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true" '
    'style="vertical-align:-5px;margin-right:0.4em"><circle cx="12" cy="12" r="11" '
    'fill="#009e73"/><path d="M6.5 12.5l4 4l7.5 -8.5" fill="none" stroke="#fff" '
    'stroke-width="2.8" stroke-linecap="round" stroke-linejoin="round"/></svg>'
)
_wrong: Counter[tuple[str, str]] = Counter()


class LabTask(NamedTuple):
    """An exercise as its lab's notebook has it: id, "Exercise 2", title, points."""

    name: str
    number: str
    title: str
    points: float


def is_watched() -> bool:
    """Return whether this is a notebook that is open in JupyterLab."""
    return "JPY_SESSION_NAME" in os.environ


def word_fault(lab: str, exercise: str, difference: str, why: str) -> str:
    """Return the message for a wrong answer: less at the first try."""
    _wrong[lab, exercise] += 1
    if is_watched() and _wrong[lab, exercise] == 1:
        return (
            f"{difference}. Can you see why? Hint 1 is above your code. When you check "
            "again, this line also names the likely reason."
        )
    return f"{difference}: {why}"


def show_picture(draw: Callable[[], Any]) -> None:
    """Draw an answer, right or wrong, in an open notebook; elsewhere draw nothing.

    `draw` returns a picture or an explorable, None for neither.
    """
    picture = draw() if is_watched() else None
    if picture is not None:
        from IPython.display import display

        display(picture)


def praise(lab: str, exercise: str, said: str, draw: Callable[[], Any] = lambda: None) -> None:
    """Say that an answer is correct: one printed line, or a card in JupyterLab.

    The picture that `draw` returns stands under the card.
    """
    progress.record(lab, exercise)
    if not is_watched():
        return print(said)
    from IPython.display import display

    tasks = read_tasks(lab)
    lines = [said, *_count_points(lab, exercise, tasks), *_name_next(lab, exercise, tasks)]
    head, *rest = lines
    more = "".join(f"<br>{line}" for line in rest)
    card = f'<div role="status" style="{_CARD}">{_TICK}<strong>{escape(head)}</strong>{more}</div>'
    plain = "\n".join(["✓ " + head, *(unescape(re.sub(r"<[^>]+>", "", line)) for line in rest)])
    display({"text/html": card, "text/plain": plain}, raw=True)
    show_picture(draw)


def read_tasks(lab: str) -> list[LabTask]:
    """Return the exercises of a lab in order; [] where its notebook isn't to be found."""
    course = progress.find_course()
    found = sorted((course / "labs").glob(f"{lab}-*.ipynb")) if course else []
    path = next((path for path in found if path.is_file()), None)  # a pipe would keep it waiting
    return _read_notebook(path) if path else []


def _read_notebook(path: Path) -> list[LabTask]:
    tasks: list[LabTask] = []
    heading = ("", "")
    for cell in progress.read_cells(path):
        found = _HEADING.search(cell["source"]) if cell["cell_type"] == "markdown" else None
        heading = (found[1], found[2]) if found else heading
        mark = cell.get("metadata", {}).get("nbgrader", {})
        if mark.get("solution"):
            tasks.append(LabTask(mark["grade_id"], *heading, 0))
        if mark.get("grade") and tasks:  # an exercise may have several graded cells
            tasks[-1] = tasks[-1]._replace(points=tasks[-1].points + mark.get("points", 0))
    return tasks


def _count_points(lab: str, exercise: str, tasks: list[LabTask]) -> list[str]:
    mine = next((task.points for task in tasks if task.name == exercise), None)
    if mine is None:
        return []
    done = _list_passed(lab) | {exercise}
    so_far = sum(task.points for task in tasks if task.name in done)
    word = "point" if mine == 1 else "points"
    return [
        f"Worth {mine:g} {word}. The checks of this lab that pass so far are worth "
        f"{so_far:g} of {sum(task.points for task in tasks):g}."
    ]


def _list_passed(lab: str) -> set[str]:
    course = progress.find_course()
    return set(progress.read(course).get(lab, {})) if course else set()


def _name_next(lab: str, exercise: str, tasks: list[LabTask]) -> list[str]:
    """Return what comes next: the first exercise that hasn't passed, from here on."""
    done = _list_passed(lab) | {exercise}
    here = next((k for k, task in enumerate(tasks) if task.name == exercise), 0)
    left = [task for task in tasks[here:] + tasks[:here] if task.name not in done]
    if left:
        return [f"Next: {left[0].number}, {escape(left[0].title)}."]
    if not tasks:
        return []
    learned = ", ".join(escape(task.title) for task in tasks)
    return [
        f"That was the whole lab. You've practiced: {learned}.",
        f"<code>distlab submit {lab}</code> packs it for submission. {_link_next_lesson(lab)}",
    ]


def _link_next_lesson(lab: str) -> str:
    """Return a link to the lesson after the last one that names this lab, or to the home."""
    course = progress.find_course()
    lessons = sorted((course / "notebooks").glob("[0-9]*.ipynb")) if course else []
    naming = [k for k, path in enumerate(lessons) if f"labs/{lab}-" in path.read_text("utf-8")]
    if not naming or naming[-1] + 1 == len(lessons):
        return "<em>Course home</em>, above, shows the whole course."
    path = lessons[naming[-1] + 1]
    title = progress.read_cells(path)[0]["source"].partition("\n")[0].lstrip("# ")
    words = f"lesson {path.stem[:2]}, {escape(title)}"
    return f'Next: <a href="../notebooks/{path.name}">{words}</a>.'
