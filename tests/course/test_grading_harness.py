"""The harness: the same marks as a cell that runs as it stands, and only what can be counted on."""

import dataclasses
import io
import json
import os
import pickle
import random
import socket
import time
from itertools import cycle, islice
from types import SimpleNamespace

import pytest
from grading_notebooks import LAB, RIGHT, ROOT, WRONG, fill, read_stub, write
from lab_runner import get_lab, load_answers
from needs import EVERYTHING

from distlab.grading.answer_calls import AnswerGone, AnswerLate, Channel, RemoteAnswer, within
from distlab.grading.cell_verdict import judge_right, judge_unanswered
from distlab.grading.encoding import encode
from distlab.grading.executor import observe
from distlab.grading.harness import Harness
from distlab.grading.judge_process import JudgeProcess
from distlab.grading.judging import LabRules, WrongAnswer
from distlab.grading.labs import list_labs, read_lab
from distlab.grading.observation import CellObservation, Observation, Submission
from distlab.grading.sandbox import Sandbox

SEED = 2027
LABS = list_labs(ROOT) if EVERYTHING else ["lab01", "lab05", "lab06", "lab12"]
LABS = [name for name in LABS if name != "lab15"]  # handed in with a file: test_grading_capstone
BOOKS = int(os.environ.get("DISTLAB_BOOKS", "3"))  # of right and of wrong answers, in each lab


def choose(answers: dict, books: int) -> list[dict[str, str]]:
    """Return the answers of so many notebooks: each exercise's, one after the other."""
    texts = {e: list(a.values() if isinstance(a, dict) else a) for e, a in answers.items()}
    columns = {e: list(islice(cycle(t), books)) for e, t in texts.items()}
    return [{e: column[k] for e, column in columns.items()} for k in range(books)]


def grade(lab, handed, seed_for=lambda s: SEED, jobs=2):
    with JudgeProcess(lab) as judges:
        return {o.student: (o, judges.judge(o)) for o in observe(lab, handed, seed_for, jobs)}


@pytest.mark.parametrize("name", LABS)
def test_a_cell_that_runs_as_it_stands_and_the_harness_give_the_same_marks(name, tmp_path):
    lab, answers = read_lab(name, ROOT), load_answers(name)
    stub = read_stub(lab)
    books = choose(answers.RIGHT, BOOKS) + choose(answers.WRONG, BOOKS)
    handed = [
        Submission(f"{k}", write(fill(book, stub=stub), tmp_path / f"{k}.ipynb"))
        for k, book in enumerate(books)
    ]
    found = grade(lab, handed)
    for k, book in enumerate(books):
        observation, verdict = found[f"{k}"]
        for mark in verdict.exercises:
            judged = get_lab(name).try_answer(mark.id, book[mark.id], SEED).judged
            where = (k, mark, [c for c in observation.cells if c.id.startswith(mark.id)])
            assert (mark.points == mark.max) == (judged is None), where
            if isinstance(judged, WrongAnswer):
                assert mark.misconception == judged.misconception, where
            assert mark.status != "for a human", where


CALLS = """
def all_reduce(vectors, network):
    from copy import deepcopy
    ranks = len(vectors)
    chunks = [[piece.copy() for piece in np.array_split(vector, ranks)] for vector in vectors]
    found = reduce_scatter(chunks, network)
    found = all_gather(chunks if found is None else found, network)
    return [np.concatenate(row) for row in (chunks if found is None else found)]
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Lab 06, its third answer built on the first one, which is right, wrong or empty."""
    folder, lab = tmp_path_factory.mktemp("built"), read_lab("lab06", ROOT)
    right = {e: a[0] for e, a in load_answers("lab06").RIGHT.items()}
    stub = read_stub(lab)
    books = {
        "right": {**right, "all-reduce": CALLS},
        "wrong": {
            **right,
            "all-reduce": CALLS,
            "scatter": load_answers("lab06").WRONG["scatter"]["one-step-short"],
        },
        "empty": {k: v for k, v in {**right, "all-reduce": CALLS}.items() if k != "scatter"},
    }
    handed = [
        Submission(n, write(fill(b, stub=stub), folder / f"{n}.ipynb")) for n, b in books.items()
    ]
    return {n: {e.id: e for e in v.exercises} for n, (_, v) in grade(lab, handed).items()}


def test_an_answer_may_call_an_earlier_one(built):
    assert all(mark.status == "right" for mark in built["right"].values()), built["right"]


@pytest.mark.parametrize("name", ["wrong", "empty"])
def test_what_is_built_on_a_wrong_answer_is_wrong_and_nothing_else(built, name):
    marks = built[name]
    assert marks["all-reduce"].status == marks["scatter"].status == "wrong"
    assert marks["gather"].status == marks["seconds"].status == "right"


MISSING = "import a_package_of_mine\ndef plan_epoch(n, b):\n    return a_package_of_mine.plan(n, b)"
PEEKS = "def plan_epoch(n, b):\n    import distlab.labs.lab01.judge"
UNUSED = "import a_package_of_mine\n" + RIGHT["epoch"]
WIDE = "def plan_epoch(n, b):\n    return ['\\U0001f600' * 500_000]"  # 6 MB, of each case


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    books = {
        n: {**RIGHT, "epoch": text}
        for n, text in {
            "missing": MISSING,
            "unused": UNUSED,
            "peeks": PEEKS,
            "wide": WIDE,
        }.items()
    }
    handed = [Submission(n, write(fill(b), folder / f"{n}.ipynb")) for n, b in books.items()]
    return grade(LAB, handed, lambda s: random.randrange(2**31))


def test_a_package_that_is_not_here_waits_for_a_human_with_its_reason(odd):
    _, verdict = odd["missing"]
    marks = {e.id: e for e in verdict.exercises}
    assert marks["epoch"].status == "for a human" and marks["epoch"].points == 0
    assert "ModuleNotFoundError" in marks["epoch"].message
    assert all(mark.status == "right" for name, mark in marks.items() if name != "epoch")


def test_a_package_that_is_not_here_costs_nothing_where_the_answer_does_not_use_it(odd):
    assert odd["unused"][1].mark == LAB.points
    assert odd["unused"][0].facts == ("cell 5 imports a_package_of_mine",)


def test_what_the_course_leaves_out_is_no_reason_to_wait(odd):
    mark = odd["peeks"][1].exercises[0]
    assert mark.status == "wrong" and "distlab.labs.lab01.judge" in mark.message


def test_an_answer_that_is_too_large_costs_only_itself(odd):
    observation, verdict = odd["wide"]
    assert verdict.mark == LAB.points - 2 and not verdict.notes
    assert "gives too much" in verdict.exercises[0].message, observation.cells[0]


def test_when_no_time_is_left_nothing_is_asked():
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    channel, (reader, writer) = Channel(ours), os.pipe()
    check = {"id": "c", "source": "got_x = f(1)", "got": ["got_x"], "functions": ["f"]}
    order = {
        "steps": [{"label": "cell 1", "text": "f = abs", "program": False}, {"check": 0}],
        "checks": [{**check, "program": False, "attached": "", "travels": False}],
        **dict.fromkeys(("submission_seconds", "own_together_seconds"), 0),
        **dict.fromkeys(("own_seconds", "cell_seconds", "seed", "token", "prelude"), 1),
        "files": {},
    }
    answers = SimpleNamespace(start=lambda: channel, close=lambda: "")
    Harness(order, answers, writer, io.StringIO()).run()
    hello, frame, rest = os.read(reader, 2**16).split(b"\n")
    assert (hello, rest) == (b"", b"") and json.loads(frame)["status"] == "timed out"
    assert json.loads(frame)["error"] == "all cells together didn't end within 0 s"
    with pytest.raises(BlockingIOError):
        theirs.recv(1)


@pytest.mark.parametrize("function", ["make_fast", "predict_rate"])
def test_what_cannot_be_measured_before_is_graded_again_and_other_exercises_need_none(function):
    """The process that should measure has gone. Then the check is missing, and nothing is asked."""
    started, (reader, writer) = [], os.pipe()

    def start():
        ours, theirs = socket.socketpair()
        theirs.close()
        started.append(ours)
        return Channel(ours)

    check = {"id": "c", "source": "got_x = 1", "got": ["got_x"], "functions": [function]}
    check |= {"program": False, "attached": "", "travels": False}
    numbers = ("submission_seconds", "own_together_seconds", "cell_seconds", "seed")
    order = {"steps": [{"check": 0}], "checks": [check], **dict.fromkeys(numbers, 60)}
    order |= {"token": "t", "prelude": "", "files": {}}
    harness = Harness(order, SimpleNamespace(start=start, close=lambda: ""), writer, io.StringIO())
    harness.measure_before("lab11")
    assert len(started) == (function == "make_fast")
    harness.run()
    frame = json.loads(os.read(reader, 2**16).strip())
    assert frame["status"] == ("missing" if function == "make_fast" else "ok"), frame
    if function == "make_fast":
        verdict = judge_unanswered(CellObservation.from_data(frame))
        assert verdict.status == "for a human" and "grade it again" in verdict.message


def test_a_partial_reply_or_a_time_limit_is_not_an_answer():
    ours, theirs = map(Channel, socket.socketpair())
    theirs.send(failed=[])  # the reply to a cell, one request late
    with pytest.raises(AnswerGone):
        RemoteAnswer(ours, "plan_epoch", lambda: ours)(1000, 64)

    class Slow:
        def __array__(self):
            raise AnswerLate

    with pytest.raises(AnswerLate):
        encode([Slow()])


def test_a_limit_within_another_stops_its_clock_until_it_has_ended():
    with pytest.raises(AnswerLate):
        with within(0.2):
            with within(60, AnswerGone):
                end = time.monotonic() + 0.4
                while time.monotonic() < end:
                    pass
            while True:
                pass


REMEMBERS = """
import keras, tensorflow as tf
kept = []
def train(strategy, make_model, images, labels, batch_size, epochs, folder):
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch_size)
    with strategy.scope():
        model = make_model()
        optimizer = keras.optimizers.SGD(0.5, momentum=0.875)
        optimizer.build(model.trainable_variables)
    done = 0
    if epochs > 1 and kept:
        done, weights, state = kept[-1]
        model.set_weights(weights)
        for variable, value in zip(optimizer.variables, state):
            variable.assign(value)
    means = []
    for epoch in range(done, epochs):
        total = 0.0
        for x, y in strategy.experimental_distribute_dataset(data):
            held = len(tf.concat(strategy.experimental_local_results(y), 0))
            losses = strategy.run(train_step, args=(model, optimizer, x, y, held))
            total += float(strategy.reduce("SUM", losses, axis=None)) * held
        means.append(total / len(images))
        state = [v.numpy() for v in optimizer.variables]
        kept.append((epoch + 1, model.get_weights(), state))
    return model.get_weights()[0], means
"""


def test_what_an_answer_remembers_is_no_checkpoint(tmp_path):
    """Lab 04's run is continued in a fresh process: before, this earned all five points."""
    lab, right = read_lab("lab04", ROOT), load_answers("lab04").RIGHT
    answers = {name: texts[0] for name, texts in right.items()}
    stub = read_stub(lab)
    books = {"right": answers, "remembers": {**answers, "program": REMEMBERS}}
    handed = [
        Submission(n, write(fill(b, stub=stub), tmp_path / f"{n}.ipynb")) for n, b in books.items()
    ]
    found = grade(lab, handed)
    assert found["right"][1].mark == lab.points, found["right"]
    assert found["remembers"][1].exercises[-1].misconception == "began-again", found["remembers"]


BUSY = """import os, time
def plan_epoch(n, b):
    for _ in range(30):
        if os.fork() == 0:
            os.setsid()
            while True:
                pass
    time.sleep(1000)
"""
CLOCKS = """
import itertools, time
from distlab.exercises import exercise
from distlab.labs.lab11 import exercise as lab
ticks = itertools.count()
time.perf_counter = time.monotonic = time.process_time = lambda: next(ticks) / 1000
lab._read_clocks = lambda: np.full(2, time.perf_counter())
lab.measure_naive = lambda *given: 9.0
lab.EpochMeter.compare = lab.EpochMeter.compare_all = lambda *given: 9.0
lab._examine = lambda *given: ""
make_fast = make_naive
"""
ELSEWHERE = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def make_fast(files, batch_size):
    dataset = make_naive(files, batch_size)
    def play():
        if os.fork() == 0:
            os._exit(0)
        yield from dataset
    return tf.data.Dataset.from_generator(play, output_signature=dataset.element_spec)
"""
SLOW = """
import time
right = plan_epoch
begun = []
def plan_epoch(n, b):
    begun or begun.append(time.process_time())
    while time.process_time() < begun[0] + 0.3:
        pass
    return right(n, b)
"""


def test_what_ran_out_of_time_beside_others_is_run_once_more_alone(tmp_path, monkeypatch):
    """One of them keeps all processors busy with processes of its own, each in a session."""
    forks, fork = [], Sandbox.fork
    monkeypatch.setattr(Sandbox, "fork", lambda self, *a: forks.append(1) or fork(self, *a))
    rules = LabRules(data=(), cell_seconds=4, submission_seconds=20, processes=True)
    lab = dataclasses.replace(LAB, rules=rules)
    books = {
        "busy": {**WRONG, "epoch": BUSY},
        "slow": {**RIGHT, "epoch": RIGHT["epoch"] + SLOW},
        "endless": {**WRONG, "epoch": "def plan_epoch(n, b):\n    while True:\n        pass"},
    }
    handed = [Submission(n, write(fill(b), tmp_path / f"{n}.ipynb")) for n, b in books.items()]
    found = grade(lab, handed)
    for name in ("busy", "endless"):
        observation, verdict = found[name]
        assert observation.cells[0].status == "timed out" and verdict.mark == 0
    assert found["slow"][1].mark == LAB.points, found["slow"]
    assert len(forks) >= 5, "three, and at least two once more"
    forks.clear()
    (observation, _) = grade(lab, handed[-1:])["endless"]
    assert observation.cells[0].status == "timed out" and len(forks) == 1, "it was alone"


def test_an_observation_without_its_answers_is_small():
    seen = CellObservation("epoch-test", "ok", got="x" * 10**6)
    observation = Observation("ana", "lab01", "", 1, (seen,))
    assert len(observation.lighten().to_json()) < 1000 and observation.cells[0].got


def test_a_pipeline_is_measured_from_outside(tmp_path):
    """An answer can set its process's clocks and replace what is called in it: that earns nothing.

    Nor can it leave work to a process that is gone when the processor's seconds are counted.
    """
    lab, answers = read_lab("lab11", ROOT), load_answers("lab11")
    stub = read_stub(lab)
    books = {
        "right": answers.RIGHT["pipeline"][0],
        "clocks": answers.NAIVE + CLOCKS,
        "elsewhere": answers.NAIVE + ELSEWHERE,
    }
    handed = [
        Submission(n, write(fill({"pipeline": b}, stub=stub), tmp_path / f"{n}.ipynb"))
        for n, b in books.items()
    ]
    for name, (_, verdict) in grade(lab, handed).items():
        mark = verdict.exercises[0]
        assert mark.points == (mark.max if name == "right" else 0), mark
        assert ("not permitted" in mark.message) == (name == "elsewhere"), mark


def test_a_right_result_without_the_bytes_of_its_messages_is_wrong():
    rules = pickle.loads(pickle.dumps(read_lab("lab09", ROOT))).rules  # as it goes to the judge
    bounds = rules.traffic["killed"]({"killed_cases": ((0, 8, 3, 7),)})
    right, idle = 1_170_142, 6_192  # what the kernel counted of an answer, of one without work
    for sent in (right, idle, 0, 10**9):
        verdict = judge_right(CellObservation("", "ok", traffic_bytes=sent), bounds)
        assert verdict.status == ("right" if sent == right else "wrong"), sent
        assert ("the kernel counted" in verdict.message) == (sent != right)
