"""Read each exercise's task from the lab's own source: contract, example, hints."""

import re
from dataclasses import dataclass

from distlab.authoring import sources
from distlab.grading.labs import LabSpec

_DETAILS = re.compile(r"<details><summary>(.*?)</summary>(.*?)</details>", re.DOTALL)
_PARAGRAPH = re.compile(r"\*\*(Contract|Example)\.\*\*.*?(?=\n\*\*|\n<details>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Task:
    """The task of one exercise, as HTML of the course's own words; hints are (title, HTML).

    `reference` is the course's own solution, which no page shows.
    """

    asked: str
    hints: tuple[tuple[str, str], ...]
    reference: str


def read_tasks(lab: LabSpec) -> dict[str, Task]:
    """Return what each exercise of `lab` asked, by its id."""
    target = sources.Target(lab.source, lab.source.with_name(f"{lab.slug}.ipynb"), None)
    found, prose = {}, ""
    for cell in sources.read_source(target).cells:
        if cell.cell_type == "markdown":
            begins = cell.source.startswith("## ")
            prose = cell.source if begins else f"{prose}\n\n{cell.source}"
        elif cell.metadata.get("nbgrader", {}).get("solution"):
            found[cell.metadata["nbgrader"]["grade_id"]] = _read_task(prose, cell.source)
    return found


def _read_task(prose: str, reference: str) -> Task:
    hints = tuple((title.strip(), _to_html(text)) for title, text in _DETAILS.findall(prose))
    asked = "\n\n".join(match.group() for match in _PARAGRAPH.finditer(prose))
    return Task(_to_html(asked), hints, reference)


def _to_html(markdown: str) -> str:
    import mistune

    return str(mistune.html(markdown.strip()))
