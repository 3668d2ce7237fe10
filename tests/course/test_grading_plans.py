"""Labs 13 and 14 graded whole: answers in several styles, mistakes, nothing at all, and attacks."""

from importlib import import_module

import pytest
from grading_notebooks import ROOT, fill, read_stub, write
from lab_runner import load_answers

from distlab.exercises.exercise import list_exercises
from distlab.grading.executor import observe
from distlab.grading.judge_process import JudgeProcess
from distlab.grading.labs import read_lab
from distlab.grading.observation import Submission

LABS, SEED = ("lab13", "lab14"), 4242
# what stands in the place of every answer, as the body of its function
BODIES = {
    "a constant": "return ('backward', 3)",
    "nothing": "return None",
    "what it was given": "return arguments[0]",
    "an array of zeros": "import numpy as np\nreturn np.zeros(3)",
    "only printed": "print(('forward', 1), {'scale': 1024.0}, 0.37)",
    "the worked answers, from their file": "import json\n"
    "with open('/course/distlab/labs/@LAB@/worked.json') as file:\n"
    "    return json.load(file)['@NAME@']['right'][0]",
    "the teacher's reference": "import importlib\n"
    "judges = importlib.import_module('distlab.labs.@LAB@.judge')\n"
    "return judges.list_judges('@LAB@')['@NAME@'].work_out([arguments])[0]",
    "the course's own run, replaced": "import sys\n"
    "course = sys.modules['distlab.labs.@LAB@.exercise']\n"
    "course.Meter.watch = lambda self, tensor: tensor\n"
    "course.same = course.find_wrong = lambda *a: None\nreturn {}",
    "TensorFlow and NumPy, patched": "import numpy as np, tensorflow as tf, keras\n"
    "np.allclose = np.isfinite = tf.math.is_finite = lambda *a, **k: True\n"
    "keras.Sequential.__call__ = tf.Variable.assign_sub = lambda *a, **k: 0.0\n"
    "np.float16 = np.float32\nreturn np.asarray(arguments[0])",
    "the caller's variables": "import sys\nframe = sys._getframe(1)\n"
    "while frame is not None:\n    print(list(frame.f_locals))\n"
    "    found = frame.f_locals.get('right') or frame.f_locals.get('expected')\n"
    "    if found:\n        return found\n    frame = frame.f_back",
}


def write_attack(lab: str, name: str, function: str, body: str) -> str:
    body = body.replace("@LAB@", lab).replace("@NAME@", name)
    return f"def {function}(*arguments):\n" + "".join(f"    {s}\n" for s in body.splitlines())


def hand_in(name: str, folder) -> dict[str, Submission]:
    """Return two books of right answers, one of wrong ones, an empty one, and every attack."""
    lab, answers = read_lab(name, ROOT), load_answers(name)
    stub = read_stub(lab)
    functions = {e: lab_function(name, e) for e in answers.RIGHT}
    books = {f"right {k}": {e: texts[k] for e, texts in answers.RIGHT.items()} for k in (0, 5)}
    books["wrong"] = {e: next(iter(texts.values())) for e, texts in answers.WRONG.items()}
    books["empty"] = {}
    for what, body in BODIES.items():
        books[what] = {e: write_attack(name, e, f, body) for e, f in functions.items()}
    return {
        what: Submission(what, write(fill(book, stub=stub), folder / f"{k}.ipynb"))
        for k, (what, book) in enumerate(books.items())
    }


def lab_function(name: str, exercise: str) -> str:
    return list_exercises(import_module(f"distlab.labs.{name}.exercise"))[exercise].function


@pytest.mark.parametrize("name", LABS)
def test_right_answers_get_all_points_and_attacks_none(name: str, tmp_path) -> None:
    lab, handed = read_lab(name, ROOT), hand_in(name, tmp_path)
    with JudgeProcess(lab) as judges:
        verdicts = {
            o.student: (o, judges.judge(o))
            for o in observe(lab, list(handed.values()), lambda s: SEED, 2)
        }
    assert set(verdicts) == set(handed)
    for what, (observation, verdict) in verdicts.items():
        wanted = lab.points if what.startswith("right") else 0
        assert verdict.mark == wanted, (what, verdict, observation)
    wrong = verdicts["wrong"][1]
    answers = load_answers(name).WRONG
    for mark in wrong.exercises:
        assert mark.misconception == next(iter(answers[mark.id])), mark
