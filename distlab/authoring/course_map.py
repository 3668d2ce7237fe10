"""The course map: what README and lesson 00 say of each lesson and lab.

It is read from the head of each source: the title and the line of minutes stand in
its first cell, what one sees happen in that cell's header, `shows="…"`. In README.md
the tables stand between `<!-- lessons: begin -->` and `<!-- lessons: end -->` (and
labs), in a source the line `# {{lessons}}` stands for them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from distlab.errors import CourseError
from distlab.progress import PARTS as COURSE_PARTS
from utils.files import write_atomically

PLACEHOLDER = "# {{lessons}}\n"
PARTS = {
    f"{roman}: {title[0].lower()}{title[1:]}": numbers
    for roman, (numbers, title) in zip(("I", "II", "III", "IV", "V"), COURSE_PARTS, strict=True)
}
_HEADER = re.compile(r'\A# %% \[markdown\].*? shows="([^"]+)"')
_TITLE = re.compile(r"^# # (?:Lab \d\d · )?(.+)$", re.MULTILINE)
_MINUTES = re.compile(r"^# \*\*Time:\*\* (\d+) minutes(.*(?:\n# .+)*)", re.MULTILINE)
_LESSON = re.compile(r"\((\d\d)-[^)]*\.ipynb\)|lesson (\d\d)")


@dataclass(frozen=True)
class MapEntry:
    """One lesson or lab; `after` are the numbers of the lessons that it builds on."""

    number: int
    title: str
    shows: str
    minutes: int
    after: tuple[str, ...]
    file: str


def read_entries(root: Path, kind: str) -> list[MapEntry]:
    """Return what the sources of `kind`, "lessons" or "labs", say at their heads, in order."""
    files = {"lessons": "notebooks/src/[0-9][0-9]_*.py", "labs": "solutions/src/lab[0-9][0-9]_*.py"}
    return [read_entry(path) for path in sorted(root.glob(files[kind]))]


def read_entry(source: Path) -> MapEntry:
    """Return what the head of `source` says; raise CourseError for what it lacks."""
    text, name = source.read_text(encoding="utf-8"), source.name
    shows, title, line = _HEADER.search(text), _TITLE.search(text), _MINUTES.search(text)
    if not (shows and title and line):
        missing = [
            what
            for what, found in (
                ('first line: # %% [markdown] shows="what one sees happen"', shows),
                ("title: # # Title", title),
                ("line: # **Time:** NN minutes", line),
            )
            if not found
        ]
        raise CourseError(f"{name} must give the course map its {'; '.join(missing)}.")
    built_on = line[2].partition("**Prerequisites:**")[2].partition("**Hardware:**")[0]
    after = tuple(sorted(a or b for a, b in _LESSON.findall(built_on)))
    number = int(re.search(r"\d\d", name)[0])
    return MapEntry(
        number, title[1], shows[1], int(line[1]), after, source.stem.replace("_", "-") + ".ipynb"
    )


def write_lessons(root: Path, folder: str = "notebooks/") -> str:
    """Return the lessons as a table for each part; `folder` leads to them in links."""
    entries = {entry.number: entry for entry in read_entries(root, "lessons")}
    strays = entries.keys() - {number for numbers in PARTS.values() for number in numbers}
    if strays:
        raise CourseError(
            f"Lesson {min(strays)} must be in a part of the course. Add it to PARTS in "
            "distlab/progress.py."
        )
    tables = []
    for part, numbers in PARTS.items():
        rows = [_show_lesson(entries[n], folder) for n in numbers if n in entries]
        head = "| Lesson | What you see happen | Minutes | After |\n|---|---|---|---|\n"
        tables.append(f"### Part {part}\n\n{head}" + "\n".join(rows))
    return "\n\n".join(tables)


def _show_lesson(entry: MapEntry, folder: str) -> str:
    link = f"[{entry.number:02} {entry.title}]({folder}{entry.file})"
    return f"| {link} | {entry.shows} | {entry.minutes} | {', '.join(entry.after)} |"


def name_solution(slug: str) -> str:
    """Return the file name of a lab's solution: another than the lab's, so that tabs differ."""
    return f"{slug}-solution.ipynb"


def write_labs(root: Path) -> str:
    """Return the labs as a table, each with its solution."""
    rows = []
    for entry in read_entries(root, "labs"):
        links = f"[{entry.number:02} {entry.title}](labs/{entry.file})"
        solution = f"[solution](solutions/{name_solution(entry.file.removesuffix('.ipynb'))})"
        rows.append(f"| {links} | {entry.shows} | {entry.minutes} | {solution} |")
    return "| Lab | Exercises | Minutes | Solution |\n|---|---|---|---|\n" + "\n".join(rows)


TABLES: dict[str, Callable[[Path], str]] = {"lessons": write_lessons, "labs": write_labs}


def fill_readme(root: Path) -> tuple[str, str]:
    """Return README.md now, and as the sources would make it ("" twice without one)."""
    path = root / "README.md"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    after = before
    for name, write in TABLES.items():
        region = re.compile(
            rf"(<!-- {name}: begin -->\n\n).*?(\n\n<!-- {name}: end -->)", re.DOTALL
        )
        if region.search(after):
            table = write(root)
            after = region.sub(lambda found, table=table: found[1] + table + found[2], after)
    return before, after


def refresh_readme(root: Path) -> bool:
    """Write the tables of README.md again if they have changed; return whether they had."""
    before, after = fill_readme(root)
    if before != after:
        write_atomically(root / "README.md", after, mode=0o644)
    return before != after


def fill_placeholder(text: str, root: Path) -> str:
    """Return a source's text with the lessons' tables in place of its placeholder line."""
    if PLACEHOLDER not in text:
        return text
    table = "".join(f"# {line}".rstrip() + "\n" for line in write_lessons(root, "").split("\n"))
    return text.replace(PLACEHOLDER, table)
