"""The home page as HTML: a fragment that the extension of JupyterLab puts into its tab.

Parts that change during the work have an id and the mark `data-live`: the extension takes over
attributes and contents of these elements alone, so that focus and place stay.
Links have the path of a notebook in `data-path`, which opens it in a tab.
"""

import base64
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from urllib.parse import quote

from distlab.copies import FOLDER
from distlab.home.course import Item, find_next, read_course
from distlab.home.pictures import read_picture
from distlab.progress import PARTS

RECORDING = Path(__file__).parents[1] / "lessons" / "two_replicas.svg"
NEWER = " · newer version: open it and press Start over"
RING = 2 * 3.14159265 * 15.5  # the way round a ring
_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)


def make_page(course: Path) -> str:
    """Return the home page of the course in a folder, as it stands now."""
    items = read_course(course)
    if not items or not (course / "README.md").is_file():
        return _write_elsewhere(course)
    going_on = find_next(items)
    lessons = [item for item in items if not item.head.name.startswith("lab")]
    others = [item for item in items if item.head.name.startswith("lab")]
    parts = [
        _write_part(number, title, _pick(lessons, numbers), going_on)
        for number, (numbers, title) in enumerate(PARTS, 1)
    ]
    if others:
        more = "".join(f"<li>{_write_lab(lab, going_on)}</li>" for lab in others)
        parts.append(f'<section><h2>More labs</h2><ul class="dl-labs">{more}</ul></section>')
    return (
        f'<div class="dl-home">{_write_head(course, items, going_on)}'
        f"{''.join(parts)}{_write_foot(course)}</div>"
    )


def _write_elsewhere(folder: Path) -> str:
    return (
        '<div class="dl-home"><h1>The course isn’t in this folder</h1>'
        "<p>Jupyter must be started in the course’s folder, got "
        f"<code>{escape(str(folder))}</code>. Stop it, go to the folder that holds "
        "<code>README.md</code> and <code>notebooks</code>, "
        "and run <code>make lab</code> there. On a JupyterHub, tell your teacher.</p></div>"
    )


def _pick(lessons: Sequence[Item], numbers: range) -> list[Item]:
    return [lesson for lesson in lessons if int(lesson.head.name) in numbers]


def _link(path: str, words: str, look: str, more: str = "") -> str:
    """A link that opens `path`, which JupyterLab finds below `lab/tree`; a notebook's copy."""
    path = re.sub(r"^(notebooks|labs)/", f"{FOLDER}/", path)
    return (
        f'<a class="{look}" href="lab/tree/{quote(path)}" data-path="{escape(path)}" {more}>'
        f"{words}</a>"
    )


def _write_head(course: Path, items: Sequence[Item], going_on: Item | None) -> str:
    found = _HEADING.search((course / "README.md").read_text(encoding="utf-8"))
    title = escape(found[1] if found else "The course")
    return (
        f'<div class="dl-head"><div><h1>{title}</h1>'
        "<p>Train one model on many devices, and see what really happens: "
        "every lesson runs on this computer, without a GPU.</p>"
        f'<div id="dl-next" data-live>{_write_next(items, going_on)}</div>'
        '<div id="dl-guesses" hidden></div></div>'
        f'<div class="dl-hero">{_show_recording()}</div></div>'
    )


@cache
def _show_recording() -> str:
    """The recording of lesson 00 as an image, whose styles reach nothing else on the page."""
    raw = RECORDING.read_bytes()
    words = re.search(rb'aria-label="([^"]*)"', raw)[1].decode()
    source = base64.b64encode(raw).decode("ascii")
    return f'<img alt="{words}" src="data:image/svg+xml;base64,{source}">'


def _write_next(items: Sequence[Item], going_on: Item | None) -> str:
    """The large button, and how far one is in all."""
    every = [one for item in items for one in (item, *item.labs)]
    finished = sum(one.finished for one in every)
    if going_on is None:
        return "<p><strong>Everything is done.</strong> Take <code>utils</code> home with you.</p>"
    begun = any(one.done for one in every)
    words = "Go on with" if begun else "Begin here:"
    minutes = f"{going_on.head.minutes} minutes" if going_on.head.minutes else ""
    button = _link(
        going_on.head.path,
        f"<span>{words}</span> <b>{escape(_name(going_on))}</b><small>{minutes}</small>",
        "dl-next",
    )
    kinds = "lessons and labs" if any(item.labs for item in items) else "lessons"
    said = (
        f"{finished} of {len(every)} {kinds} finished"
        if begun
        else "Click a cell, press Shift+Enter, and watch."
    )
    return f'{button}<span class="dl-said">{said}</span>'


def _name(item: Item) -> str:
    number = item.head.name
    lead = f"Lab {number[3:]}" if number.startswith("lab") else number
    return f"{lead} {item.head.title}"


def _write_part(number: int, title: str, lessons: Sequence[Item], going_on: Item | None) -> str:
    if not lessons:
        return ""
    tiles = "".join(f"<li>{_write_tile(lesson, going_on)}</li>" for lesson in lessons)
    heading = f'<h2 id="dl-part-{number}"><span>{number}</span> {title}</h2>'
    return (
        f'<section aria-labelledby="dl-part-{number}">{heading}'
        f'<ul class="dl-tiles">{tiles}</ul></section>'
    )


def _write_tile(lesson: Item, going_on: Item | None) -> str:
    name, head = lesson.head.name, lesson.head
    minutes = f"{head.minutes} min" if head.minutes else ""
    turns = f" · {lesson.tried} of {head.turns} tried" if head.turns else ""
    turns += NEWER * lesson.outdated
    here = "" if going_on is not lesson else "continue here" if lesson.done else "start here"
    inside = (
        f'<span class="dl-picture">{read_picture(name)}{_write_ring(lesson)}'
        f'<span class="dl-here" id="dl-here-{name}" data-live>{here}</span></span>'
        f'<span class="dl-title" id="dl-title-{name}"><b>{name}</b> {escape(head.title)}</span>'
        f'<span class="dl-shows">{_write_code(head.shows)}</span>'
        f'<span class="dl-minutes">{minutes}<span id="dl-turns-{name}" data-live>{turns}</span>'
        "</span>"
    )
    named = f'aria-labelledby="dl-title-{name} dl-state-{name}"'
    tile = _link(head.path, inside, "dl-tile", named)
    labs = "".join(_write_lab(lab, going_on) for lab in lesson.labs)
    return (
        f'<div class="dl-place" id="dl-place-{name}" data-live-class data-here="{here}">'
        f"{tile}{labs}</div>"
    )


def _write_ring(lesson: Item) -> str:
    """A ring that is as full as the lesson is done; the words say so too."""
    name, total = lesson.head.name, len(lesson.head.steps)
    look = "full" if lesson.finished else "some" if lesson.done else "none"
    words = f"{len(lesson.done)} of {total} cells run" if lesson.done else "not begun"
    return (
        f'<span class="dl-ring" id="dl-ring-{name}" data-live-class data-look="{look}">'
        '<svg viewBox="0 0 36 36" aria-hidden="true"><circle cx="18" cy="18" r="15.5"/>'
        f'<circle cx="18" cy="18" r="15.5" id="dl-arc-{name}" data-live-class class="dl-arc" '
        f'stroke-dasharray="{RING:.1f}" stroke-dashoffset="{RING * (1 - lesson.share):.1f}"/>'
        '<path class="dl-tick" d="M11 18.5l5 5l9.5 -10.5"/></svg></span>'
        f'<span class="dl-hidden" id="dl-state-{name}" data-live>, {words}</span>'
    )


def _write_lab(lab: Item, going_on: Item | None) -> str:
    name, total = lab.head.name, len(lab.head.steps)
    done = (str(step in lab.done).lower() for step in lab.head.steps)
    dots = "".join(f'<i data-done="{one}"></i>' for one in done)
    words = f"{len(lab.done)} of {total} exercises passed"
    newer = NEWER * lab.outdated
    here = "continue here" if going_on is lab else ""
    inside = (
        f'<span class="dl-lab-title">Lab {name[3:]} {escape(lab.head.title)}'
        f'<span id="dl-newer-{name}" data-live>{newer}</span></span>'
        f'<span class="dl-dots" id="dl-dots-{name}" data-live aria-hidden="true">{dots}</span>'
        f'<span class="dl-hidden" id="dl-state-{name}" data-live>, {words}</span>'
    )
    more = f'id="dl-lab-{name}" data-live-class data-here="{here}"'
    return _link(lab.head.path, inside, "dl-lab", more)


def _write_code(words: str) -> str:
    """Escape `words`; text in backticks becomes code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))


def _write_foot(course: Path) -> str:
    pages = (
        ("README.md", "README: examples, and where to look things up"),
        ("TEACHING.md", "Teaching and grading"),
    )
    links = [_link(path, words, "dl-page") for path, words in pages if (course / path).is_file()]
    return (
        f'<div class="dl-foot">{" · ".join(links)}'
        "<p>What you have run and passed is kept in <code>.distlab</code> of this folder, and "
        "goes nowhere else. You work in copies, in <code>work</code>, so updating never meets what "
        "you wrote. <code>distlab check lab01</code> tries a whole lab.</p></div>"
    )
