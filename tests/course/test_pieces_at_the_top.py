"""Lessons that open with a piece as their question, and end with the same piece."""

import json
import re
from pathlib import Path

import pytest

from distlab.explorables.explorable import MIME

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = {  # lesson: the piece that asks
    "05": "arrow",
    "08": "cluster",
    "12": "conveyor",
    "13": "sharding",
    "15": "memory",
    "16": "schedule",
    "18": "floats",
    "19": "explorer",
    "20": "step",
    "23": "explorer",
}


def list_pieces(cells: list[dict]) -> list[str]:
    """Return the kinds of the pieces that cells show, without guesses and the 7 B model's."""
    own = [cell for cell in cells if "one_model_explorer(" not in "".join(cell["source"])]
    data = [output.get("data", {}) for cell in own for output in cell.get("outputs", [])]
    shown = [json.loads("".join(each[MIME]))["piece"] for each in data if MIME in each]
    return [piece for piece in shown if piece != "guess"]


@pytest.mark.parametrize("lesson", QUESTIONS)
def test_a_lesson_opens_with_its_question_and_returns_to_it(lesson):
    """The first piece is in the first section, after a question; the last is of its kind."""
    (path,) = ROOT.glob(f"notebooks/{lesson}-*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    heads = [k for k, c in enumerate(cells) if re.search("(?m)^## ", "".join(c["source"]))]
    first = cells[heads[1] : heads[2] + 1]  # heads[0] has the objectives
    pieces = list_pieces(cells)
    assert list_pieces(first)[:1] == pieces[:1] == [QUESTIONS[lesson]]
    assert len(pieces) > 1 and pieces[-1] == pieces[0]
    asked = "".join("".join(c["source"]) for c in first if c["cell_type"] == "markdown")
    assert re.search(r"\*\*[A-Z]\w+ \w+ [^*]+\*\*", asked), "no question in bold"
