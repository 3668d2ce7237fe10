"""Each objective of a lesson is practiced somewhere: `objectives.toml` says where.

`python tests/course/test_objectives.py` prints the table in Markdown, for teachers.
"""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = tomllib.loads(Path(__file__).with_name("objectives.toml").read_text(encoding="utf-8"))
LESSONS = {
    path.name[:2]: path.read_text(encoding="utf-8")
    for path in sorted(ROOT.glob("notebooks/src/[0-9][0-9]_*.py"))
}
LABS = {
    path.name[:5]: path.read_text(encoding="utf-8")
    for path in sorted(ROOT.glob("solutions/src/lab[0-9][0-9]_*.py"))
}
_EXERCISE = re.compile(r'^# ## (Exercise \d+):.*?"grade_id": "([\w-]+)", "solution"', re.M | re.S)
EXERCISES = {
    f"{lab}:{name}": f"lab {lab[3:]}, {number.lower()} (`{name}`)"
    for lab, text in LABS.items()
    for number, name in _EXERCISE.findall(text)
}
each_lesson = pytest.mark.parametrize("lesson", sorted({*LESSONS, *TABLE}))


def list_objectives(lesson: str) -> list[str]:
    """Return the list under *Objectives* in the first cell of a lesson's source."""
    under = LESSONS.get(lesson, "").partition("\n# ## Objectives\n#\n")[2]
    listed = re.match(r"(?:# - .+\n)*", under)[0]
    return re.findall(r"^# - (.+)$", listed, re.M)


def list_places(lesson: str) -> dict[str, str]:
    """Return where a lesson's objectives can be practiced, and how a teacher finds each place."""
    text = LESSONS[lesson]
    _, *sections = re.split(r"^# (##+ .+)$", text, flags=re.M)
    cell = re.compile(r"^# %%(?! \[markdown\])", re.M)
    headings = [h for h, body in zip(sections[::2], sections[1::2]) if cell.search(body)]
    turns = re.findall(r"(turns\.[A-Z_]+)\.take\(", text)
    found = {heading: f"section *{heading.lstrip('# ')}*" for heading in headings}
    return found | {turn: f"*Your turn* (`{turn}`)" for turn in turns} | EXERCISES


@each_lesson
def test_each_objective_has_a_place_and_no_other_is_in_the_table(lesson):
    rows = TABLE.get(lesson, {})
    assert list(rows) == list_objectives(lesson), "the lesson's objectives, in its order"
    assert rows and all(rows.values()), "an objective is practiced somewhere, or it isn't one"


@each_lesson
def test_each_place_exists(lesson):
    places = list_places(lesson)
    named = [place for row in TABLE[lesson].values() for place in row]
    assert [place for place in named if place not in places] == []


def write_table() -> str:
    """Return the objectives of all lessons and where each is practiced, in Markdown."""
    lines = []
    for lesson, rows in TABLE.items():
        title, places = re.search(r"^# # (.+)$", LESSONS[lesson], re.M)[1], list_places(lesson)
        lines += [f"\n## {lesson} {title}\n", "| You will be able to | Practiced in |", "|---|---|"]
        lines += [f"| {text} | {'; '.join(places[p] for p in row)} |" for text, row in rows.items()]
    return "# Where each objective is practiced\n" + "\n".join(lines)


if __name__ == "__main__":
    print(write_table())
