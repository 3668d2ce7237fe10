"""Submissions run as a notebook would run them, within limits, and leave nothing behind."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from grading_notebooks import LAB, RIGHT, fill, write
from needs import need_sandbox
from process_watch import wait_for

from distlab.grading import sandbox, submission_server
from distlab.grading.alignment import Aligner
from distlab.grading.executor import observe
from distlab.grading.judge_process import JudgeProcess
from distlab.grading.judging import LabRules
from distlab.grading.notebook_file import read_notebook
from distlab.grading.observation import Observation, Submission
from utils.errors import DistributedError

RULES = LabRules(data=(), cell_seconds=4, own_seconds=1, submission_seconds=30)
QUICK = dataclasses.replace(LAB, rules=RULES)
SAY = (
    RIGHT["epoch"]
    + """
import functools
right_epoch = plan_epoch
@functools.cache
def say():  # once: for `said` may start a cluster
    print("said:", said())
def plan_epoch(n, b):
    say()
    return right_epoch(n, b)
"""
)
NOTEBOOK = (  # all of it runs; what fails, asks or never ends costs nothing but its time
    "import os, sys, warnings",
    "%time timed = 1\n%env DISTLAB_TEST=7",
    "from IPython.display import display, HTML, SVG\nshown = display({'a': 1}, HTML('<b>x</b>'))",
    "import asyncio\nawait asyncio.sleep(0.01)\nasync def later():\n    return 5",
    "waited = await later()",
    "%%bash\necho three > shell.txt",
    "_ = 1 / 0\nreached = True\ntable = {}\ntable['a'] = 1\ntable.update(b=2)",
    "raise SystemExit",
    "%%time\ncounted = [table[name] for name in 'ab']\n",
    "!pip install seaborn\nimport seaborn as sns\nneeded = 6",
    "for k in range(3):\n    counted.append(k)",
    "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()",
    "import time\ntime.sleep(1000)",
    "def said():\n    return (timed, waited, counted, needed, SEED, "
    "os.path.exists('shell.txt'), 'reached' in globals())",
)
TENSORFLOW = (
    "import tensorflow as tf\nfrom utils.devices import use_logical_devices\n"
    "devices = use_logical_devices(4)",
    "strategy = tf.distribute.MirroredStrategy(devices)\n"
    "with strategy.scope():\n    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n"
    "    model.compile('sgd', 'mse')\n"
    "model.fit(tf.ones((64, 3)), tf.ones((64, 1)), batch_size=16, verbose=0)",
    "def said():\n    return strategy.num_replicas_in_sync, model.count_params()",
)
HANG = "def {}(*a):\n    while True:\n        pass\n"
DEAF = """
def {}(*a):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
"""
CLUSTER = """
def train():
    import os, json, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"], strategy.num_replicas_in_sync
def said():
    from utils.cluster.local import LocalCluster
    with LocalCluster(workers=2) as cluster:
        return cluster.run(train, timeout=150, echo=False)
"""


def hand_in(folder: Path) -> list[Submission]:
    say = {**RIGHT, "epoch": SAY}
    notebooks = {
        "notebook": fill(say, NOTEBOOK),
        "sleeps": fill(RIGHT, ("import time\ntime.sleep(1000)",), ("while True:\n    pass",)),
        "hangs": fill({**RIGHT, "batches": HANG.format("replica_batch_sizes")}),
        "deaf": fill({**RIGHT, "batches": DEAF.format("replica_batch_sizes")}),
        "exits": fill({**RIGHT, "epoch": "import os\ndef plan_epoch(*a):\n    os._exit(3)"}),
        "raises": fill({**RIGHT, "epoch": "def plan_epoch(n, b):\n    return {}['left over']"}),
        "broken": fill({**RIGHT, "epoch": "def plan_epoch(n, b:\n    return 1"}),
        "floats": fill({k: v.replace("return ", "return  ") for k, v in RIGHT.items()}),
    }
    return [Submission(n, write(book, folder / f"{n}.ipynb")) for n, book in notebooks.items()]


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    handed = hand_in(tmp_path_factory.mktemp("executor"))
    with JudgeProcess(QUICK) as bench:
        seen = {o.student: o for o in observe(QUICK, handed, lambda s: len(s.student))}
        return {name: (o, bench.judge(o)) for name, o in seen.items()}


def test_the_learners_own_cells_run_in_order_and_once(graded):
    observation, verdict = graded["notebook"]
    assert verdict.mark == LAB.points and not verdict.for_human, verdict
    said = "said: (1, 5, [1, 2, 0, 1, 2], 6, 2026, False, True)"
    assert said in observation.cells[0].output, observation.cells[0]
    assert observation.seed == 8 and observation.sealed and observation.lab == "lab01"
    assert Observation.from_json(observation.to_json()) == observation


def test_a_cell_that_takes_too_long_costs_only_what_depends_on_it(graded):
    assert graded["sleeps"][1].mark == LAB.points
    for name in ("hangs", "deaf"):
        observation, verdict = graded[name]
        marks = {e.id: e for e in verdict.exercises}
        assert marks["batches"].points == 0 and "within 4 s" in marks["batches"].message
        assert verdict.mark == LAB.points - marks["batches"].max, verdict
        assert {c.id: c.status for c in observation.cells}["batches-test"] == "timed out"


def test_an_answer_that_ends_the_process_costs_only_itself(graded):
    observation, verdict = graded["exits"]
    assert verdict.exercises[0].points == 0 and "status 3" in verdict.exercises[0].message
    assert verdict.mark == LAB.points - verdict.exercises[0].max
    assert observation.cells[0].status == "killed"


def test_errors_are_told_with_the_learners_own_lines(graded):
    (message,) = (e.message for e in graded["raises"][1].exercises if e.id == "epoch")
    assert "KeyError: 'left over'" in message and "line 2 in plan_epoch" in message
    assert "ipython-input" not in message and "answer_process" not in message
    (message,) = (e.message for e in graded["broken"][1].exercises if e.id == "epoch")
    assert "NameError" in message and "SyntaxError" in message
    assert graded["broken"][1].mark == LAB.points - 2


def test_a_kept_observation_gives_the_same_marks(graded):
    with JudgeProcess(LAB) as bench:
        for observation, verdict in graded.values():
            kept = Observation.from_json(observation.to_json())
            assert bench.judge(kept) == verdict
    for text in ("", "{}", "[]", "null", '{"cells": [{"id": 1}], "notes": []}', "[" * 10**5):
        with pytest.raises(DistributedError, match="isn't an observation"):
            Observation.from_json(text)


def test_strategies_and_clusters_of_processes_run_in_the_sandbox(tmp_path):
    rules = LabRules(
        data=(), cell_seconds=200, submission_seconds=250, processes=True, exclusive=True
    )
    lab = dataclasses.replace(LAB, rules=rules)
    say = {**RIGHT, "epoch": SAY}
    books = {"cluster": fill(say, (CLUSTER,)), "strategy": fill(say, TENSORFLOW)}
    handed = [Submission(n, write(book, tmp_path / f"{n}.ipynb")) for n, book in books.items()]
    seen = {o.student: o for o in observe(lab, handed, lambda s: 1, jobs=2)}
    assert "said: [(0, 2), (1, 2)]" in seen["cluster"].cells[0].output, seen["cluster"]
    assert "said: (4, 4)" in seen["strategy"].cells[0].output, seen["strategy"]


def test_unsealed_says_so_and_closing_early_leaves_nothing(tmp_path):
    answer = "import time, os\ndef plan_epoch(*a):\n    os.system('sleep 7654321 &')"
    answer += "\n    time.sleep(1000)"
    sleeper = fill({**RIGHT, "epoch": answer})
    lab = dataclasses.replace(
        LAB, rules=LabRules(data=(), cell_seconds=100, submission_seconds=100)
    )
    handed = [
        Submission("asleep", write(sleeper, tmp_path / "asleep.ipynb")),
        Submission("awake", write(fill(RIGHT), tmp_path / "awake.ipynb")),
    ]
    before = psutil.Process().children(recursive=True)
    run = observe(lab, handed, lambda s: 3, sealed=False)
    observation = next(run)
    assert observation.student == "awake" and not observation.sealed
    with JudgeProcess(lab) as bench:
        verdict = bench.judge(observation)
    assert verdict.mark == LAB.points and "graded without the sandbox" in verdict.notes[-1]
    run.close()
    wait_for(lambda: set(psutil.Process().children(recursive=True)) <= set(before))
    every = psutil.process_iter
    wait_for(lambda: not [p for p in every(["cmdline"]) if "7654321" in (p.info["cmdline"] or [])])


@pytest.mark.parametrize(
    "script, said",
    [
        ("", "Install the package bubblewrap"),
        ("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", "Permission denied"),
    ],
)
def test_it_refuses_where_it_cannot_seal(tmp_path, monkeypatch, script, said):
    if script:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
        os.chmod(tmp_path / "bwrap", 0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    with pytest.raises(DistributedError, match=said) as caught:
        list(observe(LAB, [], lambda s: 1))
    assert "no-sandbox" in str(caught.value)


def test_the_folder_of_the_course_is_hidden_and_nothing_can_be_left_there(monkeypatch):
    need_sandbox()
    folder = Path(sys.prefix) / "share"
    monkeypatch.chdir(folder)
    command = sandbox.build_command(sandbox.check_can_seal())
    passed = [int(n) for f, n in zip(command, command[1:]) if f == "--file"]
    shown = sandbox._show_at(folder)
    code = f"import os; print(os.listdir({str(shown)!r})); open({str(shown / 'note')!r}, 'w')"
    try:
        ended = subprocess.run(
            [*command[: command.index("-m")], "-c", code],
            pass_fds=passed,
            capture_output=True,
            text=True,
        )
    finally:
        for number in passed:
            os.close(number)
    assert ended.stdout == "[]\n" and "Read-only file system" in ended.stderr


def test_it_refuses_on_other_systems(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(DistributedError, match="Linux or WSL2"):
        sandbox.check_can_seal()


def _look_at_descriptors(kept: set[int]) -> set[int]:
    """In a fork, without /proc: close all but `kept`; return which of the first 300 are open."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.listdir = None  # where /proc shows other namespaces, there is nothing to list
        os.dup2(writer, 299)
        submission_server.close_all_but(kept | {299})
        still = [number for number in range(299) if _is_open(number)]
        os.write(299, json.dumps(still).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        found = set(json.loads(file.read()))
    os.waitpid(child, 0)
    return found


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("kept", [set(), {0}, {0, 1, 2}, {1, 2, 200}])
def test_all_descriptors_but_those_named_are_closed(kept, tmp_path):
    with (tmp_path / "file").open("w") as file:
        os.dup2(file.fileno(), 200)
        try:
            assert _look_at_descriptors(kept) == kept
        finally:
            os.close(200)


def test_a_graded_cell_is_asked_for_its_answers_and_its_check_does_not_run():
    (graded,) = (g for g in LAB.graded.values() if g.exercise == "epoch")
    assert graded.visible.startswith(graded.asking) and "EPOCH.check" in graded.visible
    assert "got_epochs" in graded.source and "EPOCH.check" not in graded.source
    plan = Aligner(LAB, read_notebook(json.dumps(fill(RIGHT)).encode())).align()
    assert [s.check for s in plan.steps if s.check] == list(LAB.graded)
    assert [s.text for s in plan.steps if not s.check] == [RIGHT[e.id] for e in LAB.exercises]
