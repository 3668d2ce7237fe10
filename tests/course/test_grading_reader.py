"""The reader of answers: ordinary answers pass, and what reaches beyond an answer is shown."""

import json

import pytest
from grading_notebooks import ROOT
from grading_reaching import ORDINARY, REACHING
from lab_runner import LABS, load_answers

from distlab.grading.alignment import Aligner, PlannedCell
from distlab.grading.answer_code import Code
from distlab.grading.labs import LabSpec, read_lab
from distlab.grading.notebook_file import Cell, Notebook

NAMES = [target.slug.split("-")[0] for target in LABS]
SPECS = {name: read_lab(name, ROOT) for name in NAMES}
FIRST = {name: SPECS[name].exercises[0].id for name in NAMES}
PLACES = [(name, lab or each, exercise or FIRST[each], body)
          for name, (lab, exercise, body) in REACHING.items()
          for each in (NAMES if not lab else [lab])]  # fmt: skip


def plan(lab: LabSpec, answers: dict[str, str], first: str = "") -> dict[str, PlannedCell]:
    """Return what would be run of a notebook with `answers`, by exercise; `first` is a cell."""
    notebook = json.loads((ROOT / "labs" / f"{lab.slug}.ipynb").read_text())
    cells = [Cell(1, "code", first, "")] if first else []
    for k, cell in enumerate(notebook["cells"], 2):
        name = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
        cells.append(Cell(k, cell["cell_type"], answers.get(name, "".join(cell["source"])), name))
    planned = Aligner(lab, Notebook(tuple(cells), ())).align().cells
    return {cell.exercise: cell for cell in planned}


@pytest.mark.parametrize("name", NAMES)
def test_no_right_answer_is_shown_to_a_human(name):
    lab, right = SPECS[name], load_answers(name).RIGHT
    for exercise, texts in right.items():
        for k, text in enumerate(texts):
            cell = plan(lab, {exercise: text})[exercise]
            assert cell.parts and not cell.remarks and not cell.failed, (exercise, k, cell)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_answer_is_not_run(name):
    for cell in plan(SPECS[name], {}).values():
        assert cell.failed == "NotImplementedError" and not cell.parts


@pytest.mark.parametrize(("name", "lab", "exercise", "body"), PLACES,
                         ids=[f"{p[1]}: {p[0]}" for p in PLACES])  # fmt: skip
def test_what_reaches_beyond_an_answer_is_shown_with_its_line(name, lab, exercise, body):
    spec = SPECS[lab]
    function = next(e for e in spec.exercises if e.id == exercise).functions[-1]
    indented = "\n".join(f"    {line}" for line in body.split("\n"))
    right = load_answers(lab).RIGHT[exercise][0]
    text = (
        f"{right}\ndef reach():\n{indented}\nright = {function}\n"
        f"def {function}(*a):\n    reach()\n    return right(*a)\n"
    )
    cell = plan(spec, {exercise: text})[exercise]
    assert cell.remarks and "line" in cell.remarks[0], cell
    alone = plan(spec, {exercise: right}, f"def f():\n{indented}")
    assert not alone[exercise].remarks, "a cell that no answer needs is nobody's business"


@pytest.mark.parametrize("body", ORDINARY.values(), ids=ORDINARY)
def test_an_ordinary_line_is_nobodys_business(body):
    indented = "\n".join(f"    {line}" for line in body.split("\n"))
    text = f"def helper():\n{indented}\ndef plan_epoch(n, b):\n    return helper()\n"
    cell = plan(SPECS["lab01"], {"epoch": text})["epoch"]
    assert cell.parts and not cell.remarks and not cell.failed, cell


def needs(text: str, name: str = "f", place: int = 99) -> list[str]:
    code = Code.read((f"cell {k}", cell) for k, cell in enumerate(text.split("\n---\n")))
    return [f"{part.label}: {part.chosen}" for part in code.cut(code.find_needed([name], place))]


PROGRAM = """%%writefile capstone.py
import argparse, numpy as np
def read(argv=None):
    parser = argparse.ArgumentParser()
    return parser.parse_args()
options = read()
print(vars({}))
"""


@pytest.mark.parametrize(("what", "shown"), [("options", False), ("read()", False), ("np", True),
                         ("argparse.ArgumentParser().parse_args()", False), ("parser", True),
                         ("read", True), ("print", True)])  # fmt: skip
def test_a_program_may_look_at_its_own_command_line(what, shown):
    cell = plan(SPECS["lab15"], {"program": PROGRAM.format(what)})["program"]
    assert bool(cell.remarks) == shown, cell.remarks


@pytest.mark.parametrize(("text", "found"), [
    ("x = 1\ndef f():\n    return x\nprint(f())", ["cell 0: (0, 1)"]),
    ("x = 1\ndef f(x):\n    return x", ["cell 0: (1,)"]),
    ("import os, sys\ny = []\ny.append(2)\nprint(y)\nf = lambda: y", ["cell 0: (1, 2, 4)"]),
    ("t = {}\nt['a'] = 1\nfor k in range(3):\n    t[k] = k\nf = lambda: t",
     ["cell 0: (0, 1, 2, 3)"]),
    ("t = []\ndef rule(w):\n    def keep(g):\n        t.append((w, g))\n        return g\n"
     "    return keep\n@rule('a')\ndef _(x):\n    return x\nf = lambda: t",
     ["cell 0: (0, 1, 2, 3)"]),
    ("def load():\n    global t\n    t = 2\nload()\nf = lambda: t", ["cell 0: (0, 1, 2)"]),
    ("print(1)\nt = []\ndef print(x):\n    t.append(x)\nprint(2)\nf = lambda: t",
     ["cell 0: (1, 2, 3, 4)"]),
    ("t = {}\ndef keep(w, g):\n    t[w] = g\nfor w in 'ab':\n    keep(w, len)\nf = lambda: t",
     ["cell 0: (0, 1, 2, 3)"]),
    ("class T(list):\n    pass\nt = T()\n@t.append\ndef g():\n    pass\nf = lambda: t",
     ["cell 0: (0, 1, 2, 3)"]),
    ("t = {}\ndef f(n):\n    t[n] = 1\n    return n\nf(2)\nprint(f(3))", ["cell 0: (0, 1)"]),
    ("import numpy as np\nnp.sum = max\nf = lambda: np.sum([1])", ["cell 0: (0, 2)"]),
    ("from math import *\nf = lambda: sqrt(4)", ["cell 0: (0, 1)"]),
    ("if True:\n    def f():\n        pass", ["cell 0: (0,)"]),
    ("def g():\n    pass\n---\n@g\ndef f():\n    pass", ["cell 0: (0,)", "cell 1: (0,)"]),
    ("class A:\n    k = w\n---\nw = 2\n---\ndef f():\n    return A()",
     ["cell 0: (0,)", "cell 1: (0,)", "cell 2: (0,)"]),
    ("%%time\ndef f():\n    pass", ["cell 0: (0,)"]),
    ("%time q = 2\n!pip install x\nf = lambda: q", ["cell 0: (0, 2)"]),
    ("def f(:\n---\ndef f():\n    pass", ["cell 1: (0,)"]),
])  # fmt: skip
def test_what_an_answer_needs(text, found):
    assert needs(text) == found


def test_what_stands_above_the_check_counts_and_what_stands_below_only_where_it_must():
    text = "def f():\n    return g()\n---\ndef g():\n    pass\n---\ndef f():\n    pass"
    assert needs(text, place=0) == ["cell 0: (0,)", "cell 1: (0,)"]
    assert needs(text, place=2) == ["cell 0: (0,)", "cell 1: (0,)", "cell 2: (0,)"]
