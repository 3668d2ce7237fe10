"""Find the lesson's section that an exercise builds on, by the most similar words.

The words of both are weighed by how few sections use them, and compared by their cosine
(Salton and Buckley, "Term-weighting approaches in automatic text retrieval", 1988).
"""

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from distlab.authoring import sources

_FRAME = {
    "Objectives",
    "Cheat sheet",
    "Further reading",
    "The lab",
    "What it costs",
    "Recap",
    "The course, lesson by lesson",
}
_TITLE_WEIGHT = 4


@dataclass(frozen=True)
class Section:
    """One section of a lesson: `slug` is the notebook's, `number` the lesson's."""

    slug: str
    title: str
    text: str

    @property
    def number(self) -> str:
        return self.slug.partition("-")[0]

    @property
    def link(self) -> str:
        """The notebook, and the place in it as JupyterLab calls it."""
        return f"notebooks/{self.slug}.ipynb#{self.title.replace(' ', '-')}"


def find_sections(lab: Path, root: Path) -> dict[str, Section]:
    """Return the section that each exercise of the lab's source builds on, by its grade_id."""
    found = [s for lesson in _find_lessons(lab, root) for s in _read_sections(lesson)]
    words = [_count(s.title, s.text) for s in found]
    used = Counter(word for counts in words for word in counts)
    weights = {word: math.log((len(found) + 1) / (n + 0.5)) for word, n in used.items()}
    chosen = {}
    for name, title, text in _read_exercises(lab) if found else ():
        mine = _count(title, text)
        scores = [_compare(mine, theirs, weights) for theirs in words]
        chosen[name] = found[scores.index(max(scores))]
    return chosen


def _find_lessons(lab: Path, root: Path) -> list[sources.Target]:
    """Return the lessons, but for the introduction, that link the lab."""
    name = f"{lab.stem.replace('_', '-')}.ipynb"
    lessons = [t for t in sources.find_targets(root) if not t.lab and t.slug[:2] != "00"]
    return [t for t in lessons if name in t.source.read_text(encoding="utf-8")]


def _read_sections(lesson: sources.Target) -> list[Section]:
    cells = (cell.source for cell in sources.read_source(lesson).cells)
    parts = re.split(r"(?m)^(?=## )", "\n".join(cells))[1:]
    found = [Section(lesson.slug, part.split("\n")[0][3:].strip(), part) for part in parts]
    return [s for s in found if s.title not in _FRAME]


def _read_exercises(lab: Path) -> list[tuple[str, str, str]]:
    """Return the grade_id, the title and the prose of each exercise."""
    found, title, prose = [], "", ""
    target = sources.Target(lab, lab.with_suffix(".ipynb"), None)
    for cell in sources.read_source(target).cells:
        role = cell.metadata.get("nbgrader", {})
        if cell.source.startswith("## Exercise "):
            title, prose = cell.source.split("\n")[0].partition(":")[2], cell.source
        elif role.get("solution"):
            found.append((role["grade_id"], title, prose + cell.source))
    return found


def _count(title: str, text: str) -> Counter[str]:
    return Counter(re.findall(r"[a-z_]{4,}", f"{(title + ' ') * _TITLE_WEIGHT}{text}".lower()))


def _compare(one: Counter[str], two: Counter[str], weights: dict[str, float]) -> float:
    """Return how alike two texts are: the cosine, but for the length of `one`."""
    first, second = (
        {word: (1 + math.log(n)) * weights.get(word, 0.0) for word, n in counts.items()}
        for counts in (one, two)
    )
    both = sum(first[word] * second[word] for word in first.keys() & second.keys())
    return both / (math.sqrt(sum(v * v for v in second.values())) or 1.0)
