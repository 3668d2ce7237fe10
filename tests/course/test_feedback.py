"""What a check says to somebody at work in JupyterLab, and what it says elsewhere."""

import importlib
import json
import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
from child_programs import run_python
from lab_runner import load_answers

from distlab import progress
from distlab.exercises import feedback
from distlab.exercises.answer_pictures import draw_answer
from distlab.exercises.comparing import make_digest
from distlab.exercises.exercise import list_exercises
from distlab.exercises.refusing import refuse_task
from distlab.exercises.worked import read_worked
from distlab.figures.picture import SVG
from distlab.labs.lab01 import exercise as lab01
from distlab.labs.lab12 import exercise as lab12
from utils.cluster.failures import ClusterError

ROOT = Path(__file__).parents[2]
FEW = "plan_epoch(66, 32) gave [2, 2], should give [3, 2]"


def plan_right(examples, batch):
    return -(-examples // batch), examples % batch or batch


def plan_wrong(examples, batch):
    return divmod(examples, batch)


@pytest.fixture
def at_work(tmp_path, monkeypatch):
    """The labs folder of a course, where a kernel of JupyterLab works."""
    (tmp_path / "labs").mkdir()
    (tmp_path / "README.md").touch()
    for lab in (ROOT / "labs").glob("lab01-*.ipynb"):
        shutil.copy(lab, tmp_path / "labs")
    monkeypatch.chdir(tmp_path / "labs")
    monkeypatch.setenv("JPY_SESSION_NAME", "labs/lab01-batches-and-words.ipynb")
    feedback._wrong.clear()
    return tmp_path


def say_right(check):
    """Return the card and the plain text that a check shows."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    InteractiveShell.instance()
    with capture_output() as said:
        check()
    assert said.stdout == ""
    pages = [shown.data.get("text/html") or shown.data[SVG] for shown in said.outputs]
    return "".join(pages), said.outputs[0].data["text/plain"]


def test_the_second_wrong_answer_is_told_the_likely_reason(at_work):
    for times, has_reason in ((1, False), (2, True), (3, True)):
        with pytest.raises(AssertionError) as refused:
            lab01.EPOCH.check(plan_wrong)
        said = str(refused.value)
        assert said.startswith(FEW) and ("without a rest the last step" in said) == has_reason, (
            times
        )
        assert ("Hint 1 is above your code" in said) != has_reason


def test_elsewhere_the_reason_comes_at_once(at_work, monkeypatch, capsys):
    monkeypatch.delenv("JPY_SESSION_NAME")
    with pytest.raises(AssertionError, match="the last step is a full one"):
        lab01.EPOCH.check(plan_wrong)
    lab01.EPOCH.check(plan_right)
    assert capsys.readouterr().out == "plan_epoch: 4 worked examples are right\n"


def test_a_right_answer_gets_a_card_with_points_and_what_comes_next(at_work):
    card, plain = say_right(lambda: lab01.EPOCH.check(plan_right))
    assert "<svg" in card and "plan_epoch: 4 worked examples are right" in card
    assert "✓ plan_epoch" in plain and "Worth 2 points" in plain and "2 of 10" in plain
    assert "Next: Exercise 2, each replica's share." in plain
    for exercise in ("batches", "parallelism"):
        progress.record("lab01", exercise)
    assert "Next: Exercise 4" in say_right(lambda: lab01.EPOCH.check(plan_right))[1]
    progress.record("lab01", "scaling")
    card, plain = say_right(lambda: lab01.EPOCH.check(plan_right))
    assert "10 of 10" in plain and "<code>distlab submit lab01</code>" in card
    assert "You've practiced: an epoch in steps, each replica's share, " in plain
    assert "Next:" not in plain and "Course home" in plain
    (at_work / "notebooks").mkdir()
    for name, text in (("01-a", "[lab](../labs/lab01-x.ipynb)"), ("02-b", "# Two & three\n\nx")):
        cells = [{"cell_type": "markdown", "source": text}]
        (at_work / "notebooks" / f"{name}.ipynb").write_text(json.dumps({"cells": cells}))
    card, plain = say_right(lambda: lab01.EPOCH.check(plan_right))
    assert '<a href="../notebooks/02-b.ipynb">lesson 02, Two &amp; three</a>' in card
    assert "Next: lesson 02, Two & three." in plain


def test_a_right_answer_outside_a_course_is_right_all_the_same(at_work, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path.parent)
    assert say_right(lambda: lab01.EPOCH.check(plan_right))[1].startswith("✓ plan_epoch")


def test_lines_are_broken_between_words(at_work):
    with pytest.raises(AssertionError) as refused:
        lab01.EPOCH.check(plan_wrong)
    lines = refused.value._render_traceback_()
    assert lines[0].startswith("Not right yet. ") and max(map(len, lines)) <= 96
    assert " ".join(lines) == f"Not right yet. {refused.value}"


# a cell of one's own, as a kernel runs it; and what is shown of its error when it is checked
CELL = """
def broken(*arguments):
    import tensorflow as tf

    tf.distribute.get_strategy().run(fail)


def fail():
    raise KeyError("mine")


def unwritten(*arguments):
    raise NotImplementedError("this exercise is not written yet")
"""


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    path = tmp_path_factory.mktemp("cells") / "cell.py"
    path.write_text(CELL)
    return runpy.run_path(str(path))


def test_an_error_is_shown_with_the_learners_lines_only(tf, cell):
    with pytest.raises(KeyError) as raised:
        lab01.EPOCH.observe(cell["broken"], lab01.EPOCH.examples)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(raised.value._render_traceback_()))
    assert "in broken" in shown and "in fail" in shown and "KeyError: 'mine'" in shown
    assert "site-packages" not in shown and str(ROOT) not in shown


@pytest.mark.parametrize("compiled", [False, True])
def test_an_exercise_that_is_not_written_is_one_line(tf, cell, compiled):
    answer = cell["unwritten"]
    with pytest.raises(NotImplementedError) as raised:
        lab01.EPOCH.observe(tf.function(answer) if compiled else answer, lab01.EPOCH.examples)
    (line,) = raised.value._render_traceback_()
    assert line.startswith("Not written yet. Put your code in place of")


def test_an_error_in_another_process_is_shown_with_the_learners_lines_only():
    ours, theirs = str(ROOT / "utils" / "cluster" / "task.py"), str(Path(np.__file__))
    frames = [(ours, "_run"), (theirs, "dot"), ("/tmp/ipykernel_7/12.py", "train_worker")]
    trace = "".join(
        f'  File "{file}", line 3, in {name}\n    x()\n    ^^^\n' for file, name in frames
    )
    details = f"Traceback (most recent call last):\n{trace}KeyError: 'mine'\n"
    shown = refuse_task(
        ClusterError("worker 0", "KeyError: 'mine'", "", details)
    )._render_traceback_()
    assert "\n".join(shown) == (
        "Not right yet. worker 0: KeyError: 'mine'\n\nTraceback (most recent call last):\n"
        '  File "/tmp/ipykernel_7/12.py", line 3, in train_worker\n    x()\n    ^^^\n'
        "KeyError: 'mine'\n"
    )
    unwritten = ClusterError("worker 0", "NotImplementedError: lab.py is not written yet", "")
    assert len(refuse_task(unwritten)._render_traceback_()) == 1


def refuse(exercise, answer):
    with pytest.raises(AssertionError):
        exercise.check(answer)


HOSTS = {"worker": ["a:1", "b:2"], "ps": ["c:3"]}
WORDS = {  # what an answer gave, right or wrong, and what its picture says of it
    "lab02 moments": ([{"mean": 6.0, "standard deviation": 1}] * 2, "your mean, 6."),
    "lab02 predict": ([[[1, 2], [3, 4]]], "row 1: 0 3, 1 4"),
    "lab05 plain": (None, "(seed 1): ×4;"),
    "lab07 worker": (
        [json.dumps({"cluster": HOSTS, "task": {"type": "ps", "index": 0}})],
        "ps 0: c:3 (this task)",
    ),
    "lab09 killed": ([{"steps taken": [0, 1, 2, 1, 2, 3]}], "your run"),
    "lab10 partitioner": ([{"rows and server of each piece": [[6, 0], [4, 1]]}], "4 rows"),
    "lab10 staleness": ([[1, 0, 7]], "closure 2: staleness 7"),
    "lab11 rate": (
        [1422.2, 1422.2],
        "every 30 ms. By your rate, 1,422 images/s, one leaves every 45",
    ),
    "lab11 calls": ([(5000, 5000), (1000, 5000), (7, 8)], "parse 7, augment 8"),
    "lab14 measured": (
        [8, 8, 16, 2, 64],
        "64 GPUs, 4 M parameters: your prediction ×64, expected ×32.6",
    ),
    "lab13 plan": ([{"micro_batches": 8, "recomputed": [0]}, *[None] * 9], "8 micro-batches"),
    "lab13 scale": ([{"scale": 1024.0}] * 4, "scale 1024, replicas 1"),
    "lab13 gradients": ([{"examples through each block": [48, 96, 96, 48]}] * 4, "block 2 96"),
}


@pytest.mark.parametrize("name", WORDS)
def test_what_an_answer_gave_is_drawn_whether_right_or_wrong(name):
    lab, exercise = name.split()
    module = importlib.import_module(f"distlab.labs.{lab}.exercise")
    cases = list_exercises(module)[exercise].examples
    observed, words = WORDS[name]
    right = read_worked(lab)[exercise]["right"]
    if observed is None:  # four times as long as the right update, which is kept as a digest
        wanted = np.random.default_rng(0).normal(size=(784, 10))
        observed, right = [4 * wanted] * len(cases), [make_digest(wanted)] * len(cases)
    drawn = draw_answer(lab, exercise, cases, observed, right)
    assert words in getattr(drawn, "still", drawn).alt
    for nonsense in ([None] * len(cases), [], [{"a": 1}], ["x", float("nan")], 3):
        draw_answer(lab, exercise, cases, nonsense, right)  # draws what it can, and never fails


STOPS = {  # where a ring stops: the words, the step and the marked chunk
    "scatter replaced": ("rank 0 overwrote its own 0.446 with -0.257 in step 0", 1, [0, 2]),
    "scatter read-elsewhere": ("rank 0 sent 0.516 in step 1; 1.516 was due", 1, [0, 3]),
    "scatter one-by-one": ("rank 1 sent nothing in step 0; 0.028 is due", 0, None),
    "scatter next-chunk": ("rank 0 sent -1.303 in step 1; 0.189 was due", 1, [0, 1]),
    "gather added": ("rank 0 sent 0.791 in step 1; 0.445 was due", 1, [0, 0]),
    "all-reduce not-sent": ("nothing was sent; rank 0 sends 2.041 in step 0", 0, None),
    "all-reduce whole-vectors": ("rank 0 sent 8 numbers in step 0; 3 were due", 0, None),
    "all-reduce averaged": ("rank 0 ends with 0.5527; 1.658 was due", 4, None),
}


@pytest.mark.parametrize("name", STOPS)
def test_a_ring_is_replayed_up_to_its_first_wrong_message(name):
    part, mistake = name.split()
    answers, known = {}, load_answers("lab06")
    for text in (known.RIGHT["scatter"][0], known.RIGHT["gather"][0], known.WRONG[part][mistake]):
        exec(text, answers)
    exercise = list_exercises(importlib.import_module("distlab.labs.lab06.exercise"))[part]
    right = read_worked("lab06")[part]
    observed = exercise.observe(answers[exercise.function], exercise.examples)
    fault = exercise.find_fault(exercise.examples, observed, right.__getitem__)
    words, step, marked = STOPS[name]
    assert words in fault.difference and words in fault.table.caption
    assert fault.table.marked == ([marked] if marked else [])
    drawn = draw_answer("lab06", part, exercise.examples, observed, right["right"])
    assert drawn.data["wrong"]["step"] == step and words in drawn.data["wrong"]["words"]
    assert len(drawn.data["steps"]) <= step + 1 and words in drawn.still.caption
    good = draw_answer("lab06", part, exercise.examples, right["right"], right["right"])
    assert good.data["wrong"] is None and "+" in str(good.data["steps"]) or part == "gather"


DEADLOCK = """
def make_1f1b(stages, micro_batches):
    orders = []
    for s in range(stages):
        ahead = min(s + 1, micro_batches)
        order = [("F", k) for k in range(ahead)]
        for k in range(micro_batches):
            order += [("BW", k), *[("F", ahead + k)] * (ahead + k < micro_batches)]
        orders.append(order)
    return orders
"""


@pytest.mark.parametrize(
    "text, words, why, marked",
    [
        ("all-forwards-first", "backward 0 is due", "keeps 8 micro-batches on stage 0", [3, 1]),
        ("one-too-few", "forward 1 is due", "should be 27.3 %", [2, 1]),
        (DEADLOCK, "stage 0 is at BW0 and waits for BW0 of stage 1", "can't run", [0, 1]),
    ],
)
def test_a_schedule_is_played_with_its_first_wrong_operation_framed(text, words, why, marked):
    answers, right = {}, read_worked("lab12")["schedule"]
    exec(load_answers("lab12").WRONG["schedule"].get(text, text), answers)
    exercise = lab12.SCHEDULE
    observed = exercise.observe(answers["make_1f1b"], exercise.examples)
    fault = exercise.find_fault(exercise.examples, observed, right.__getitem__)
    assert why in fault.difference and "[" not in fault.difference
    assert fault.table.marked == [marked] and words in fault.table.caption
    drawn = draw_answer("lab12", "schedule", exercise.examples, observed, right["right"])
    wrong = drawn.data["own"]["wrong"]
    assert [wrong["stage"], wrong["place"]] == marked and words in wrong["words"]
    assert words in drawn.still.caption


def test_an_array_is_drawn_with_its_first_wrong_number_marked():
    answers, right = {}, read_worked("lab16")["dispatch"]
    exec(load_answers("lab16").WRONG["dispatch"]["all-sent"], answers)
    exercise = list_exercises(importlib.import_module("distlab.labs.lab16.exercise"))["dispatch"]
    observed = exercise.observe(answers["dispatch"], exercise.examples)
    drawn = draw_answer("lab16", "dispatch", exercise.examples, observed, right["right"])
    assert "0: 0 2 (marked)" in drawn.alt
    assert drawn.caption == "Your answer['sent'] has 2 at [0, 0], and 1 was due"


def test_where_nobody_looks_nothing_that_draws_is_imported(tmp_path):
    code = (
        "import sys, distlab.labs.lab01.exercise\n"
        "print({'anywidget', 'matplotlib'} & {*sys.modules})"
    )
    assert run_python("-c", code, cwd=ROOT, status=0).stdout == "set()\n"


def test_the_answer_is_drawn_under_the_card(at_work):
    card, _ = say_right(lambda: lab01.EPOCH.check(plan_right))
    assert "66 in batches of 32: 3 spans" in card and "29 in batches of 32: 1 span" in card

    answers = {}
    exec(load_answers("lab01").RIGHT["batches"][0], answers)
    share = answers["replica_batch_sizes"]
    assert "34 on 2 × 2: 4 spans" in say_right(lambda: lab01.BATCHES.check(share))[0]

    for name in ("schedule", "sharded"):
        exec(load_answers("lab12").RIGHT[name][0], answers)
    drawn = say_right(lambda: lab12.SCHEDULE.check(answers["make_1f1b"]))[0]
    assert "own: 4 stages, 8 micro-batches" in drawn and "stage 3: 16 spans" in drawn
    wrong = say_right(lambda: refuse(lab01.EPOCH, plan_wrong))[0]
    assert "66 in batches of 32: 2 spans" in wrong and "<strong>" not in wrong
    card, _ = say_right(lambda: lab12.SHARDED.check(answers["sharded_step"]))
    assert card.count("<svg") == 1, "an exercise without a picture shows none"
