"""The pages that aren't notebooks: home, examples, sources that lessons name, the API."""

import ast
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from distlab.book.notebooks import turn_links
from distlab.explorables.page_replicas import write_page_replicas
from distlab.home.course import Head, Item
from distlab.home.pictures import read_picture
from distlab.progress import PARTS
from utils.data import load

LOOK_UP = "reference/glossary reference/errors reference/cards examples/index api/index".split()
MORE = "More labs"
RECORDING = "_images/two_replicas.svg"  # lesson 00 shows it, so Sphinx has copied it there
HOME = Path(__file__).with_name("home.md")
DOCS = Path(__file__).parents[2] / "docs"


def write_home(items: Sequence[Item]) -> str:
    """Return the first page: the course as tiles, and the list of all pages in reading order."""
    lessons = [item for item in items if not item.head.name.startswith("lab")]
    parts = "".join(
        _write_part(number, title, [x for x in lessons if int(x.head.name) in numbers])
        for number, (numbers, title) in enumerate(PARTS, 1)
    )
    return "\n".join(
        [
            "# Distributed training with TensorFlow",
            "",
            "Train one model on many devices, and see what really happens. This is the whole "
            "course to read: every lesson with the results of a real run, pictures that you can "
            "move, and the labs.",
            "",
            "Here two copies of one network train in your browser, each on its own classes of "
            "clothes. Break the all-reduce, and watch them forget the rest.",
            "",
            "```{raw} html",
            f'<div class="book-hero">{write_page_replicas(load("fashion_mnist"), RECORDING)}</div>',
            "```",
            "",
            "```{raw} html",
            f'<div id="distlab-home"><div class="dl-home">{parts}</div></div>',
            "```",
            "",
            HOME.read_text(encoding="utf-8"),
            *_write_contents(items),
        ]
    )


def _write_part(number: int, title: str, lessons: Sequence[Item]) -> str:
    tiles = "".join(f"<li>{_write_tile(lesson)}</li>" for lesson in lessons)
    heading = f'<h2 id="part-{number}"><span>{number}</span> {title}</h2>'
    inside = f'{heading}<ul class="dl-tiles">{tiles}</ul>'
    return f'<section aria-labelledby="part-{number}">{inside}</section>' if tiles else ""


def _write_tile(lesson: Item) -> str:
    head = lesson.head
    labs = "".join(
        f'<a class="dl-lab" data-here="" href="{_link(lab.head)}">Lab {lab.head.name[3:]} '
        f"{escape(lab.head.title)}</a>"
        for lab in lesson.labs
    )
    return (
        f'<div class="dl-place" data-here=""><a class="dl-tile" href="{_link(head)}">'
        f'<span class="dl-picture">{read_picture(head.name)}</span>'
        f'<span class="dl-title"><b>{head.name}</b> {escape(head.title)}</span>'
        f'<span class="dl-shows">{_write_code(head.shows)}</span>'
        f'<span class="dl-minutes">{head.minutes} min</span></a>{labs}</div>'
    )


def _link(head: Head) -> str:
    return head.path.removesuffix(".ipynb") + ".html"


def _write_code(words: str) -> str:
    parts = escape(words).split("`")
    return "".join(f"<code>{part}</code>" if k % 2 else part for k, part in enumerate(parts))


def _write_contents(items: Sequence[Item]) -> Iterator[str]:
    """Yield the sidebar: each part's lessons with their labs, then what is looked up."""
    parts = [(title, [item for item in items if _find_part(item) == title]) for _, title in PARTS]
    for title, chosen in [*parts, (MORE, [item for item in items if _find_part(item) == MORE])]:
        heads = [one.head for item in chosen for one in (item, *item.labs)]
        if heads:
            yield from _write_list(title, [head.path.removesuffix(".ipynb") for head in heads], 1)
    docs = sorted(f"docs/{path.stem}" for path in DOCS.glob("*.md"))
    yield from _write_list("Look things up", [*LOOK_UP, *docs], 2)


def _find_part(item: Item) -> str:
    if item.head.name.startswith("lab"):
        return MORE
    return next(title for numbers, title in PARTS if int(item.head.name) in numbers)


def _write_list(title: str, pages: Sequence[str], depth: int) -> Iterator[str]:
    """Yield a part of the sidebar. Without `depth` Sphinx copies all headings for every page."""
    yield from [
        "```{toctree}",
        ":hidden:",
        f":maxdepth: {depth}",
        f":caption: {title}",
        "",
        *pages,
        "```",
        "",
    ]


# ---- pages of docs and programs


def write_document(path: Path) -> str:
    """Return a page of docs; what the book doesn't have is named without a link."""
    text = turn_links(path.read_text(encoding="utf-8"))
    kept = r"(?:notebooks|labs|examples(?!/deploy))/"
    return re.sub(rf"\[([^\]]*)\]\(\.\./(?!{kept})[^)]*\)", r"\1", text)


def write_program(path: Path, name: str) -> str:
    """Return the page of a Python file: its docstring's first line, and the whole of it."""
    text = path.read_text(encoding="utf-8")
    first = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
    return f"# {name}\n\n{' '.join(first.split())}\n\n``````python\n{text}``````\n"


def write_examples(names: Sequence[str]) -> str:
    """Return the page that lists the example programs."""
    said = "Whole programs in plain TensorFlow, one page each; they import nothing of this course."
    return "\n".join(["# Examples", "", said, "", *list_pages(names)])


def write_sources(names: Sequence[str]) -> str:
    said = "Files of the repository that lessons point to."
    return "\n".join(["---", "orphan: true", "---", "# Sources", "", said, "", *list_pages(names)])


def list_pages(names: Sequence[str], depth: int = 1) -> list[str]:
    """Return the list of a part's pages, with their headings from a depth of 2 on."""
    return ["```{toctree}", f":maxdepth: {depth}", "", *names, "```", ""]
