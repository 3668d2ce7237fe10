"""Labs whose answers run in workers: no cell of the learner's runs in the process that watches."""

import dataclasses
import os
import pickle
import re
from multiprocessing.connection import Client
from types import SimpleNamespace

import pytest
from grading_attacks import WATCHERS
from grading_notebooks import ROOT, fill, read_stub, write
from lab_runner import load_answers

from distlab.exercises.feeding import DOOR, Feed, ask
from distlab.exercises.traveling import TravelingAnswer, pack_answers
from distlab.exercises.worker_runs import loads_plain
from distlab.grading.executor import observe
from distlab.grading.judge_process import JudgeProcess
from distlab.grading.labs import read_lab
from distlab.grading.observation import Submission
from distlab.labs.lab09.exercise import NEWEST

# its functions use what other cells define; some cells fail, one never ends
HELPERS = (
    "import threading\nlock = threading.Lock()\nrate = 1 / 0",
    "name = input('who? ')\n%matplotlib inline\n!pip install seaborn\ncount = 0",
    "while True:\n    count += 1",
    "OWN = {'rows': slice}\ndef own_rows(rank, size):\n    return OWN['rows'](rank, None, size)",
)
TRAIN = """
def train_worker(seed, steps, batch):
    from distlab.exercises import softmax
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    own = own_rows(strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync)
    weights = softmax.draw_weights(seed)
    for number in range(steps):
        images, labels = (part[own] for part in lab08.read_step(seed, number, batch))
        part = images.T @ softmax.slopes(images @ weights, labels) / batch
        total = strategy.reduce("SUM", tf.constant(part), axis=None)
        weights = weights - lab08.RATE * total.numpy()
    return weights
"""
PROBE = """
def train_worker(seed, steps, batch):
    import os, sys
    absent = ("utils.training.", "utils.parallel.", "utils.simulate.", "distlab.lessons.")
    there = [name for name in sys.modules if name.startswith(absent)]
    try:
        import utils.training.loops
        there.append("the loops")
    except ImportError:
        pass
    process = os.getppid()  # the server that forks workers, and then the process that watches it
    lines = open(f"/proc/{process}/status").read().split("\\n")
    process = next(int(line.split()[1]) for line in lines if line.startswith("PPid:"))
    try:
        open(f"/proc/{process}/mem", "rb")
        there.append("its memory")
    except PermissionError:
        there.append("no memory")
    raise ValueError(f"found {there}")
"""
ODD = {
    "shards": "raise OSError('no such disk')\ndef another():\n    pass",
    "training": PROBE,
    "saving": "def make_counter(strategy):\n    return lock\ndef save_run(*given):\n    pass",
}
GONE = """
class Gone:
    def __reduce__(self):
        import os
        os._exit(3)
train = Gone()
"""
WORDS = """
whole = newest_whole
def newest_whole(folder):
    return np.str_(whole(folder))
"""
ASKS = """
train_on = train
def train(state, run, *numbers):
    from distlab.exercises.feeding import ask
    for step in (-1, 10**9):
        try:
            ask(run._root, step)
        except AssertionError as error:
            print(error)
    train_on(state, run, *numbers)
"""
GREEDY = """
class Greedy:
    def __reduce__(self):
        block = []
        while True:
            block.append(b"x" * 2**24)
train = Greedy()
"""


def hand_in(folder, lab_name: str) -> list[Submission]:
    answers, stub = load_answers(lab_name), read_stub(read_lab(lab_name, ROOT))
    right = {e: a[0] for e, a in answers.RIGHT.items()}
    wrong = {e: next(iter(a.values())) for e, a in answers.WRONG.items()}
    books = {}
    if lab_name == "lab08":
        books["unusual"] = fill({**right, "training": TRAIN}, HELPERS, stub=stub)
        books["odd"] = fill(ODD, HELPERS[:1], stub=stub)
    if lab_name == "lab09":
        books["gone"] = fill({"killed": GONE, "newest": right["newest"] + WORDS}, stub=stub)
        books["greedy"] = fill({"killed": GREEDY, "newest": right["newest"]}, stub=stub)
        books["asks"] = fill({"killed": right["killed"] + ASKS}, stub=stub)
    for name, (lab, attacked, text) in WATCHERS.items():
        if lab == lab_name and re.search("^def (train|train_worker|save_run)[(]", text, re.M):
            books[name] = fill({**wrong, attacked[0]: text}, stub=stub)
        elif lab == lab_name:
            books[name] = fill(wrong, (text,), stub=stub)
    return [
        Submission(name, write(book, folder / f"{lab_name}-{k}.ipynb"))
        for k, (name, book) in enumerate(books.items())
    ]


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> dict:
    folder, found = tmp_path_factory.mktemp("workers"), {}
    for name in ("lab08", "lab09", "lab10"):
        lab = read_lab(name, ROOT)
        lab = dataclasses.replace(lab, rules=dataclasses.replace(lab.rules, own_seconds=2))
        with JudgeProcess(lab) as judges:
            for seen in observe(lab, hand_in(folder, name), lambda s: 7):
                found[seen.student] = (seen, judges.judge(seen))
    return found


def test_helpers_travel_to_the_workers_and_what_fails_or_never_ends_costs_its_time(graded):
    seen, verdict = graded["unusual"]
    assert verdict.mark == verdict.max, (verdict, seen.cells)
    assert any("cell 3 was cut off after 2 s" in said for said in seen.cells[0].failed)


def test_a_missing_function_is_said_as_in_any_lab(graded):
    seen, _ = graded["odd"]
    assert seen.cells[0].status == "raised"
    assert "name 'make_worker_dataset' is not defined (cell" in seen.cells[0].error
    assert "raised OSError: no such disk)" in seen.cells[0].error


def test_what_holds_an_answer_is_not_in_a_worker_and_the_watching_process_is_out_of_reach(graded):
    seen, _ = graded["odd"]
    assert "worker" in seen.cells[1].error and "found ['no memory']" in seen.cells[1].error


def test_a_function_that_cannot_be_sent_says_so(graded):
    seen, _ = graded["odd"]
    assert "can't be sent to another process" in seen.cells[2].error


@pytest.mark.parametrize("name", WATCHERS)
def test_an_attack_on_what_watches_the_workers_earns_nothing(graded, name):
    seen, verdict = graded[name]
    assert verdict.mark == 0, (verdict, seen.cells)
    assert len(seen.cells) == len(verdict.exercises)


def test_a_process_that_ends_while_it_packs_says_how_and_the_next_answer_counts(graded):
    seen, verdict = graded["gone"]
    assert (seen.cells[0].status, seen.cells[0].error) == ("killed", "the process ended (status 3)")
    assert verdict.exercises[1].status == "right", "it returned NumPy's words"


def test_a_function_that_takes_too_much_memory_while_it_is_packed_says_so(graded):
    seen, verdict = graded["greedy"]
    assert seen.cells[0].status == "killed" and "MiB of memory" in seen.cells[0].error, seen.cells
    assert verdict.exercises[1].status == "right"


def test_a_worker_that_asks_for_other_steps_gets_nothing_and_continues(graded):
    seen, verdict = graded["asks"]
    assert verdict.exercises[0].status == "right", (verdict, seen.cells)


def make_job(process: int, kind: str = "worker") -> SimpleNamespace:
    stopped, task = [], SimpleNamespace(process=process, job=kind, index=0)
    return SimpleNamespace(tasks=[task], stopped=stopped, stop=lambda: stopped.append(True))


def test_a_fault_of_the_feed_stops_the_job_and_is_raised(tmp_path):
    job = make_job(os.getpid())
    with pytest.raises(FileNotFoundError):
        with Feed(tmp_path, lambda rank, step: open(tmp_path / "absent")).feeding(job):
            with Client(str(tmp_path / DOOR)) as end, pytest.raises(EOFError):
                end.send_bytes(b"0")
                end.recv_bytes()
    assert len(job.stopped) == 2, "by its fault, and at the end"


@pytest.mark.parametrize(
    ("kind", "step"), [("chief", 0), ("worker", -1), ("worker", 2**20), ("worker", 10**30)]
)
def test_who_is_no_worker_or_asks_for_no_step_gets_no_share(tmp_path, kind, step):
    given = []
    with Feed(tmp_path, lambda *asked: given.append(asked)).feeding(make_job(os.getpid(), kind)):
        with pytest.raises(AssertionError, match="Only a worker has examples"):
            ask(tmp_path, step)
    assert not given


def test_a_process_that_is_not_of_the_job_is_hung_up_on(tmp_path):
    with Feed(tmp_path, lambda rank, step: {}).feeding(make_job(os.getppid())):
        with Client(str(tmp_path / DOOR)) as end, pytest.raises((EOFError, ConnectionError)):
            end.recv_bytes()


@pytest.mark.parametrize("sent", [print, 5, [], ("result",), ("error", 1, ""), ("results", 1)])
def test_what_is_not_a_plain_result_is_an_error(sent):
    kind, words, _ = loads_plain(pickle.dumps(sent))
    assert kind == "error" and ("plain data" if sent is print else "something else") in words


@pytest.mark.parametrize("sent", [("result", {1: [2.5]}), ("error", "a", "b")])
def test_a_plain_result_is_unpacked(sent):
    assert loads_plain(pickle.dumps(sent)) == sent
    assert loads_plain(b"rubbish")[0] == "error"


class Marked:
    """A function that writes the number of each process that unpacks it."""

    def __init__(self, path) -> None:
        self._path = str(path)

    def __reduce__(self):
        note = f"open({self._path!r}, 'a').write(str(__import__('os').getpid()))"
        return eval, (f"({note}, lambda: __import__('numpy').str_('ckpt-4'))[1]",)


def test_a_traveling_answer_is_unpacked_in_a_worker_only(tmp_path):
    path = tmp_path / "processes"
    answer = TravelingAnswer("newest_whole", pack_answers([Marked(path)]), 0)
    assert not path.exists()
    assert type(answer()) is str
    assert path.read_text() not in ("", str(os.getpid()))


def test_a_function_that_cannot_be_sent_fails_its_visible_check():
    lock = __import__("threading").Lock()
    with pytest.raises(AssertionError, match="can't be sent to another process"):
        NEWEST.check(lambda folder: lock)
