"""Honest but unusual answers: each gets its marks, none waits; facts about them are said."""

import importlib
import importlib.util
import json

import pytest
from grading_notebooks import ANSWERS, LAB, RIGHT, ROOT, fill, write

from distlab.authoring.sources import find_targets, read_source
from distlab.exercises.exercise import list_exercises
from distlab.grading.absent import find_absent, find_places
from distlab.grading.alignment import Aligner
from distlab.grading.executor import observe
from distlab.grading.judge_process import JudgeProcess
from distlab.grading.labs import list_labs
from distlab.grading.notebook_file import read_notebook
from distlab.grading.observation import Submission

NAMES = list_labs(ROOT)
LABS = [target for target in find_targets(ROOT) if target.lab]
EPOCH = "-(-n // b), (n - 1) % b + 1"
HONEST = {  # answers to the first exercise of lab 01, `plan_epoch`
    "a class that orders": f"""
class Size:
    def __init__(self, size):
        self._size = size
    def __lt__(self, other):
        return self._size < other._size
def plan_epoch(n, b):
    assert Size(0) < Size(1)
    return {EPOCH}
""",
    "attrgetter": f"""
from operator import attrgetter, itemgetter
from types import SimpleNamespace
def plan_epoch(n, b):
    plan = SimpleNamespace(destination=({EPOCH}))
    return attrgetter("destination")(plan)
""",
    "a key called dev": f"def plan_epoch(n, b):\n    return {{'dev': ({EPOCH})}}['dev']",
    "getattr of a made name": f"""
class Plan:
    def do_plan(self, n, b):
        return {EPOCH}
def plan_epoch(n, b):
    return getattr(Plan(), "do_" + "plan")(n, b)
""",
    "globals": f"def plan_epoch(n, b):\n    assert 'plan_epoch' in globals()\n    return {EPOCH}",
    "text evaluated": f"def plan_epoch(n, b):\n    return eval('({EPOCH})', {{'n': n, 'b': b}})",
    "a class that is called": f"""
class Planner:
    def __call__(self, n, b):
        return {EPOCH}
plan_epoch = Planner()
""",
    "a partial": f"""
import functools
def plan(extra, n, b):
    return {EPOCH}
plan_epoch = functools.partial(plan, 1)
""",
    "annotations of what is nowhere": f"""
from __future__ import annotations
def plan_epoch(n: int, b: int) -> tuple[Count, Count]:
    return {EPOCH}
""",
    "a cache": f"import functools\n@functools.cache\ndef plan_epoch(n, b):\n    return {EPOCH}",
    "a generator inside": f"def plan_epoch(n, b):\n    return tuple(x for x in ({EPOCH}))",
    "a lambda": f"plan_epoch = lambda n, b: ({EPOCH})",
    "a stopwatch": f"import time\ndef plan_epoch(n, b):\n    time.time()\n    return {EPOCH}",
    "a pickle": f"import pickle\ndef plan_epoch(n, b):\n"
    f"    return pickle.loads(pickle.dumps(({EPOCH})))",
    "threads": f"""
from concurrent.futures import ThreadPoolExecutor
def plan_epoch(n, b):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: ({EPOCH})).result()
""",
    "inspect": f"import inspect\ndef plan_epoch(n, b):\n"
    f"    inspect.signature(plan_epoch)\n    return {EPOCH}",
    "a frame": f"import sys\ndef plan_epoch(n, b):\n    sys._getframe()\n    return {EPOCH}",
    "a nested function": f"def plan_epoch(n, b):\n    def go():\n        return {EPOCH}\n"
    "    return go()",
    "a table by a decorator": f"""
RULES = {{}}
def rule(name):
    def keep(f):
        RULES[name] = f
        return f
    return keep
@rule("epoch")
def _(n, b):
    return {EPOCH}
def plan_epoch(n, b):
    return RULES["epoch"](n, b)
""",
    "NumPy's own numbers": "def plan_epoch(n, b):\n"
    "    return np.array([np.ceil(n / b), (n - 1) % b + 1])",
    "a data class": f"""
import dataclasses
@dataclasses.dataclass
class Plan:
    both: tuple
def plan_epoch(n, b):
    return Plan(({EPOCH})).both
""",
    "a loop with a walrus": "def plan_epoch(n, b):\n    steps = 0\n"
    "    while (left := n - steps * b) > 0:\n        steps, last = steps + 1, left\n"
    "    return steps, min(last, b)",
    "a subprocess": f"import subprocess, sys\ndef plan_epoch(n, b):\n    return {EPOCH}",
    "ctypes": f"import ctypes\ndef plan_epoch(n, b):\n    ctypes.c_int(3)\n    return {EPOCH}",
    "a name with underscores": f"def plan_epoch(n, b):\n    _mine_ = {EPOCH}\n    return _mine_",
}
# whole notebooks: cells before and after the right answers
NOTEBOOKS = {
    "a training run left in a cell": (("x = 0\nwhile True:\n    x += 1",), ()),
    "helpers of one name": (
        ("def share(n):\n    return n",),
        ("def share(n):\n    raise RuntimeError('another')",),
    ),
    "a question, a plot and pip": (
        (
            "name = input('who? ')\n!pip install seaborn\n%matplotlib inline",
            "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()",
        ),
        ("plan_epoch(10, 3)\n1 / 0",),
    ),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("honest")
    books = {name: fill({**RIGHT, "epoch": text}) for name, text in HONEST.items()}
    books |= {name: fill(RIGHT, *cells) for name, cells in NOTEBOOKS.items()}
    handed = [
        Submission(name, write(book, folder / f"{k}.ipynb"))
        for k, (name, book) in enumerate(books.items())
    ]
    with JudgeProcess(LAB) as judges:
        return {o.student: (o, judges.judge(o)) for o in observe(LAB, handed, lambda s: 7)}


@pytest.mark.parametrize("name", [*HONEST, *NOTEBOOKS])
def test_an_unusual_answer_gets_its_marks_and_does_not_wait(graded, name):
    observation, verdict = graded[name]
    assert verdict.mark == LAB.points, (verdict, observation.cells)
    assert not verdict.for_human


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("text evaluated", "cell 5 gives text to eval"),
        ("ctypes", "cell 5 imports ctypes"),
        ("a subprocess", "cell 5 imports subprocess"),
    ],
)
def test_facts_stand_next_to_the_mark(graded, name, fact):
    observation, verdict = graded[name]
    assert observation.facts == (fact,) and fact in verdict.notes


def test_no_right_answer_of_any_lab_has_a_fact_but_those_that_evaluate_text():
    for text in ANSWERS.RIGHT["epoch"]:
        data = json.dumps(fill({"epoch": text})).encode()
        assert Aligner(LAB, read_notebook(data)).align().facts == ()


# ---- what would give the answer away


@pytest.mark.parametrize("name", NAMES)
def test_modules_that_hold_an_answer_exist_and_cover_what_is_written_by_hand(name):
    assert hasattr(importlib.import_module(f"distlab.labs.{name}.exercise"), "ABSENT")
    absent = find_absent(name)  # none if nothing of the course holds an answer
    assert all(importlib.util.find_spec(module) for module in absent)
    assert all(find_places([module], ROOT) for module in absent)
    exercises = list_exercises(importlib.import_module(f"distlab.labs.{name}.exercise"))
    ours = {m for e in exercises.values() for m in e.by_hand if m.startswith(("utils", "distlab"))}
    prefixes = tuple(f"{module}." for module in absent)
    assert {module for module in ours if not f"{module}.".startswith(prefixes)} == set()


@pytest.mark.parametrize("target", LABS, ids=lambda t: t.slug)
def test_a_lab_names_the_modules_that_are_not_there_when_it_is_graded(target):
    shown = read_source(target).cells[0].source
    for module in find_absent(target.slug.partition("-")[0]):
        package, _, name = module.rpartition(".")
        named = f"`{module}`" in shown or (f"`{package}." in shown and f"`.{name}`" in shown)
        assert named or module.startswith("distlab.labs."), module


PROBE = """
import functools, importlib, sys
def plan_epoch(n, b):
    look()
    return 1, 1
@functools.cache
def look():
    said = []
    for name in {names!r}:
        try:
            importlib.import_module(name)
            said.append(f"{{name}} is there")
        except ImportError as error:
            said.append(str(error))
    print("|".join(said))
    print([m for m in sys.modules if m.startswith(("utils.simulate", "distlab.lessons"))])
    sys.meta_path.pop(0)
    for name in {names!r}:
        try:
            found = importlib.import_module(name)
            print("left of it:", [n for n in vars(found) if not n.startswith("__")])
        except ImportError:
            pass
    for path in {paths!r}:
        try:
            print("read:", open(path).read())
        except OSError:
            pass
"""


def test_what_holds_an_answer_is_neither_in_memory_nor_on_the_disk(tmp_path):
    absent = find_absent("lab01")
    paths = ["/course/utils/data/shares.py", "/course/utils/simulate/step.py"]
    book = fill({**RIGHT, "epoch": PROBE.format(names=absent, paths=paths)})
    handed = [Submission("ana", write(book, tmp_path / "ana.ipynb"))]
    (seen,) = observe(LAB, handed, lambda s: 7)
    lines = seen.cells[0].output.split("\n")
    assert lines[0].count("can't be imported when this lab is graded") == len(absent), lines
    assert lines[1] == "[]"
    assert all(line in ("left of it: []", "read: ", "read:") for line in lines[2:]), lines
    assert seen.cells[0].error == ""
