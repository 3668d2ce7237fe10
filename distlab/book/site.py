"""All pages in one folder, and Sphinx on top of it."""

import io
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from distlab.book import cards, errors, glossary, library, notebooks, written
from distlab.errors import CourseError
from distlab.home.course import read_course

HERE = Path(__file__).parent  # with Sphinx's settings, conf.py
PICTURE = "distlab/lessons/two_replicas.svg"


@dataclass(frozen=True)
class BuiltBook:
    """The built book: its folder, how many pages, and Sphinx's warnings."""

    folder: Path
    pages: int
    warnings: tuple[str, ...]


def build_book(course: Path, out: Path, work: Path) -> BuiltBook:
    """Build the book of `course` in `out`; `work` keeps what makes the next build quick.

    Raises CourseError where Sphinx and its theme aren't installed.
    """
    try:
        from sphinx.application import Sphinx
    except ImportError:
        raise CourseError("The book needs more packages. Run: pip install -e '.[book]'") from None
    source = work / "source"
    _write_pages(course, source)
    said = io.StringIO()
    Sphinx(source, HERE, out, work / "doctrees", "html", status=None, warning=said).build()
    plain = re.sub(r"\x1b\[[\d;]*m", "", said.getvalue())
    warnings = tuple(line for line in plain.split("\n") if line.strip())
    return BuiltBook(out, len(list(out.rglob("*.html"))), warnings)


def _write_pages(course: Path, source: Path) -> None:
    """Write every page's source; what hasn't changed keeps its time, and isn't built again."""
    wanted = dict(_list_pages(course))
    for name, make in wanted.items():
        path, text = source / name, make()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in [each for each in source.rglob("*") if each.is_file()]:
        if path.relative_to(source).as_posix() not in wanted:
            path.unlink()


def _list_pages(course: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield each file of the sources and the function that makes it."""
    items = read_course(course)
    yield "index.md", partial(written.write_home, items)
    yield PICTURE, (course / PICTURE).read_text
    for path in [*course.glob("notebooks/[0-9]*.ipynb"), *course.glob("labs/lab*.ipynb")]:
        yield path.relative_to(course).as_posix(), partial(notebooks.make_page, path, course)
    lessons = {p.stem[:2]: p.stem for p in course.glob("notebooks/[0-9]*.ipynb")}
    yield "reference/glossary.md", partial(glossary.write_glossary, lessons)
    yield "reference/errors.md", partial(errors.write_errors, course)
    yield "reference/cards.md", partial(cards.write_cards, course)
    for path in course.glob("docs/*.md"):
        yield path.relative_to(course).as_posix(), partial(written.write_document, path)
    yield from _list_programs(course)
    rooms = library.list_rooms(course)
    yield "api/index.md", partial(library.write_list, sorted(rooms))
    for room, files in rooms.items():
        yield f"api/{room}.md", partial(library.write_room, course, room, files)


def _list_programs(course: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    examples = sorted(course.glob("examples/*.py"))
    yield "examples/index.md", partial(written.write_examples, [p.stem for p in examples])
    for path in examples:
        yield f"examples/{path.stem}.md", partial(written.write_program, path, path.name)
    named = notebooks.list_named_sources(course)
    pages = {notebooks.find_source_page(name).removeprefix("sources/"): name for name in named}
    yield "sources/index.md", partial(written.write_sources, sorted(pages))
    for page, name in pages.items():
        yield f"sources/{page}", partial(written.write_program, course / name, name)


def write_zip(folder: Path, path: Path) -> None:
    """Pack the book into one zip whose first page is index.html, as learning platforms want it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for each in sorted(folder.rglob("*")):
            if each.is_file():
                packed.write(each, each.relative_to(folder).as_posix())


def check_folder(folder: Path) -> None:
    """Raise CourseError for a folder that holds something else than a book."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "searchindex.js").is_file():
        raise CourseError(f"{folder} isn't a book. Choose an empty folder with --output.")
