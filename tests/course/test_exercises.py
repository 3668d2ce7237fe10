"""The exercises' own parts: what visible checks compare with, what is said, what is released."""

import contextlib
import functools
import importlib
import importlib.util
import json
import re
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from lab_runner import LABS, get_lab

from distlab.errors import CourseError
from distlab.exercises import worked
from distlab.exercises.comparing import (
    AnyOf,
    Anything,
    find_wrong,
    make_digest,
    same,
    show,
)
from distlab.exercises.exercise import (
    RIGHT,
    Exercise,
    contrast,
    each,
    list_exercises,
    tell_difference,
)
from distlab.exercises.refusing import require_list
from distlab.exercises.slips import SHAPE, TURNED, explain_choice, explain_numbers, explain_slip
from distlab.grading.encoding import Opaque
from distlab.grading.judging import list_judges
from distlab.grading.worked import work_out_examples
from distlab.labs.lab07 import exercise as lab07
from utils.collectives import ring_all_reduce

ROOT = Path(__file__).parents[2]
NAMES = [target.slug.split("-")[0] for target in LABS]


def read_exercises(lab: str) -> dict[str, Exercise]:
    return list_exercises(importlib.import_module(f"distlab.labs.{lab}.exercise"))


@pytest.mark.parametrize(
    "got, right, said, marked",
    [
        ([1, 2, 3], [1, 2, 4], "gave [1, 2, 3], should give [1, 2, 4]", None),
        ([1, 2, 3, 5], [1, 2, 4, 5], "gave 3 at [2], should give 4", [0, 2]),
        (
            {"a": 1, "b": np.eye(20)},
            {"a": 1, "b": np.eye(20)[::-1]},
            "1 at ['b'][0, 0], sh",
            [0, 0],
        ),
        ([np.zeros(4), np.ones(2)], [np.zeros(4), np.ones(3)], "[1, 1] at [1], should", None),
        (np.zeros((30, 4)), np.eye(30)[:, :4], "gave 0 at [0, 0], should give 1", [0, 0]),
        (np.ones(50), np.r_[np.ones(45), 2, 1, 1, 1, 1], "gave 1 at [45], should give 2", [0, 7]),
        ([1, 2, 3, 4 + 1e-4], [1, 2, 3, 4], "gave 4 at [3], should give 4", [0, 3]),
        (list(range(20)), [1], "gave an array of shape [20] beginning 0, 1, 2, should", None),
    ],
)
def test_a_message_names_the_first_difference_in_three_numbers_at_most(got, right, said, marked):
    assert said in contrast(got, right)
    table = tell_difference(got, right)
    assert (table and table.marked[0]) == marked
    assert table is None or max(len(table.rows), len(table.columns)) <= 12


@pytest.mark.parametrize("lab", NAMES)
def test_every_exercise_has_its_judge_and_its_graded_cell(lab: str) -> None:
    exercises = read_exercises(lab)
    judges = list_judges(lab)
    assert list(exercises) == list(judges) == get_lab(lab).exercises
    for name, exercise in exercises.items():
        assert judges[name].exercise is exercise and exercise.lab == lab
        assert f"{lab}.{_find_variable(lab, exercise)}.check(" in get_lab(lab).graded[name].source


def _find_variable(lab: str, exercise: Exercise) -> str:
    module = importlib.import_module(f"distlab.labs.{lab}.exercise")
    return next(name for name, value in vars(module).items() if value is exercise)


compute_worked = functools.cache(work_out_examples)


@pytest.mark.parametrize("lab", NAMES)
def test_worked_answers_are_what_the_reference_computes(lab: str, tmp_path, monkeypatch) -> None:
    kept = worked.read_worked(lab)
    computed = compute_worked(lab)
    assert {e: list(ways) for e, ways in kept.items()} == {
        e: list(ways) for e, ways in computed.items()
    }
    for exercise, ways in computed.items():
        for way, answers in ways.items():
            assert find_wrong(list(answers), kept[exercise][way], 1e-8) is None, (exercise, way)
    monkeypatch.setattr(worked, "FOLDER", tmp_path)
    (tmp_path / lab).mkdir()
    written = json.loads(worked.write_worked(lab, computed).read_text())
    assert written.keys() == kept.keys()
    worked.read_worked.cache_clear()


@pytest.mark.parametrize("lab", NAMES)
def test_examples_tell_the_mistakes_from_the_right_answer(lab: str) -> None:
    for name, judge in list_judges(lab).items():
        kept, found = worked.read_worked(lab)[name], compute_worked(lab)[name]
        assert set(found) == {RIGHT, *judge.exercise.mistakes}
        for way, answers in found.items():
            fault = find_wrong(list(answers), kept[RIGHT], judge.exercise.tolerance)
            assert (fault is None) == (way == RIGHT), way


def test_no_reference_is_among_the_exercises() -> None:
    shown = [p for room in ("exercises", "labs") for p in (ROOT / "distlab" / room).rglob("*.py")]
    for path in (p for p in shown if p.name != "judge.py"):
        text = path.read_text()
        assert not re.search(r"\bexpect_\w+\(|\bway: str|^from distlab.grading", text, re.M), path


def test_every_network_of_lab13_fails_where_it_should_and_elsewhere_by_its_trap() -> None:
    from distlab.labs.lab13.failing_networks import _read_seeds, draw_network
    from distlab.labs.lab13.judge import find_overflow

    for key, seeds in _read_seeds().items():
        where, layer, trap = [*key.split(), ""][:3]
        right = (where, None if where == "none" else int(layer))
        for number in range(len(seeds)):
            network = draw_network(number, where, int(layer), trap)
            assert find_overflow(*network) == right, key
            assert not trap or find_overflow(*network, way=trap) != right, key


def test_an_exercise_without_worked_answers_says_how_to_get_them() -> None:
    made = Exercise("lab90", "share", "read_share", ((1,),), {}, "count")
    with pytest.raises(CourseError, match="python -m distlab.grading.worked lab90"):
        made.check(lambda k: k)


def test_runs_go_over_the_cases_one_by_one() -> None:
    twice = Exercise("l", "e", "f", (), {}, "", run=each(lambda answer, a, b: [answer(a), b]))
    assert twice.observe(abs, [(-1, 2), (3, 4)]) == [[1, 2], [3, 4]]
    assert Exercise("l", "e", "f", (), {}, "").observe(max, [(1, 2), (4, 3)]) == [2, 4]


def test_a_fault_names_case_answer_and_mistake() -> None:
    exercise = Exercise("l", "e", "double", (), {"same": "unchanged"}, "add it to itself")
    ways = {"right": [2, 8], "same": [1, 4]}
    assert exercise.find_fault([(1,), (4,)], [2, np.int64(8)], ways.__getitem__) is None
    fault = exercise.find_fault([(1,), (4,)], [1, 4], ways.__getitem__)
    assert (fault.message, fault.mistake) == ("double(1) gave 1, should give 2: unchanged", "same")
    fault = exercise.find_fault([(1,), (4,)], [2, 7], ways.__getitem__)
    assert fault.message == "double(4) gave 7, should give 8: add it to itself"
    assert (fault.mistake, fault.why) == ("", "add it to itself")
    fault = exercise.find_fault([(1,), (4,)], [4, 16], ways.__getitem__)
    assert fault.mistake == "" and fault.why.startswith("this is 2 times the expected value")
    for few in ([2], None, "ab", 7):
        fault = exercise.find_fault([(1,), (4,)], few, ways.__getitem__)
        assert fault.message.startswith("double did not answer each of 2 cases")


def test_a_fault_speaks_of_arguments_only_where_the_learner_sees_them() -> None:
    for shown, why in (
        (True, "the difference is argument 2: is it counted twice?"),
        (False, "add"),
    ):
        exercise = Exercise("l", "e", "add", (), {}, "add", shows_case=shown)
        right = {"right": [7, 7, 7]}.__getitem__
        fault = exercise.find_fault([(2, 3), (2, 5), (2, 6)], [10, 12, 13], right)
        assert fault.why == why


def test_parts_in_another_order_are_named_if_all_wrong_answers_have_them_so() -> None:
    exercise = Exercise("l", "e", "sort", (), {}, "sort them")
    ways = {"right": [[1, 2, 3], [2, 5, 7]]}
    for first, given, why in (
        ([3, 2, 1], [5, 2, 7], "sort them"),
        ([3, 2, 1], [7, 5, 2], "these are the right values in"),
        ([2, 1, 3], [5, 2, 9], "sort them"),
        ([2, 1, 3], [5, 2, 7], "these are the right numbers in"),
    ):
        fault = exercise.find_fault([(), ()], [first, given], ways.__getitem__)
        assert fault.why.startswith(why)


def test_a_digest_stands_for_its_array() -> None:
    array = np.random.default_rng(1).normal(size=(784, 10))
    digest = make_digest(array)
    assert same(array, digest, 1e-9) and same(array.tolist(), digest, 1e-9)
    assert same(array * (1 + 1e-7), digest, 1e-5)
    one = array.copy()
    one[300, 4] += 0.05
    noise = np.random.default_rng(2).normal(size=array.shape) * 1e-3
    others = (one, array + noise, array.T, array[:-1], array * 2, -array, None, "x", 0 * array)
    assert not any(same(other, digest, 1e-5) for other in others)
    assert show(digest) == show(array)
    assert show(np.zeros((2**40, 0))) == "an array of shape [1099511627776, 0]"
    empty = make_digest(np.full((9, 9), np.nan))
    assert same(np.full((9, 9), np.nan), empty) and not same(np.zeros((9, 9)), empty)


@pytest.mark.parametrize("lab", NAMES)
def test_what_is_to_be_written_by_hand_exists(lab: str) -> None:
    for exercise in read_exercises(lab).values():
        assert all(importlib.util.find_spec(module) for module in exercise.by_hand), exercise.name


@pytest.mark.parametrize("lab", NAMES)
def test_a_case_that_holds_the_right_word_never_enters_the_answers_process(lab: str) -> None:
    for exercise in read_exercises(lab).values():
        right = worked.read_worked(lab)[exercise.name][RIGHT]
        held = [w for w, case in zip(right, exercise.examples) if isinstance(w, str) and w in case]
        assert not held or exercise.plain, f"{lab}, {exercise.name}: say plain=True"


def test_a_call_of_what_is_to_be_written_is_noticed() -> None:
    made = Exercise("l", "e", "cut", (), {}, "", by_hand=("utils.collectives",))
    for answer in (ring_all_reduce, lambda vectors: list(map(ring_all_reduce, [vectors]))):
        with pytest.raises(AssertionError, match=r"^cut calls utils.collectives.ring.ring_all_re"):
            made.observe(answer, [([np.zeros(2)],)])
    assert made.observe(lambda a: a, [(3,)]) == [3]
    assert sys.getprofile() is None


def test_any_of_several_answers_agrees() -> None:
    words = AnyOf(("model", "sharded data"))
    assert same("Model", words) and same("sharded data", words) and same(words, words)
    assert not same("data", words) and not same(np.zeros(3), words) and not same(words, "model")
    assert show(words) == "'model' or 'sharded data'"


def test_a_slip_of_form_is_named() -> None:
    assert explain_slip(k for k in "ab").startswith("this is a generator object")
    assert explain_slip((map(int, "12"), [1])).startswith("this is a map object")
    assert explain_slip(Opaque("zip")).startswith("this is a zip object")
    assert not same(np.array([3 + 1j, 4]), [3, 4]) and not same(3 + 0j, 3)
    assert "print() shows" in explain_slip(None, 3) and explain_slip(None, None) == ""
    assert explain_slip("0.5", 0.5).startswith("this is a string")
    assert explain_slip([0.5], 0.5).endswith("return the number itself")
    assert explain_slip([2, 1], [1, 2]).endswith("another order")
    assert explain_slip([0.3001, 0.1], [0.3, 0.1]) == ""  # in order, and a little off
    wide, tall = np.zeros((2, 30)), make_digest(np.zeros((30, 2)))
    assert explain_slip(wide, tall) == TURNED
    assert explain_slip({"kernels": [1.0, wide]}, {"kernels": [1.0, tall]}) == TURNED
    assert (
        explain_slip({"sent": 3}, {"sent": [1, 2]})
        == "this is one number, and several are expected"
    )
    assert explain_slip({0: 1, 1: 2}, [1, 2]).startswith("this is a dictionary")
    assert explain_slip((3, 4), {"a": 3, "b": 4}) == "return a dictionary with 'a', 'b'"
    assert explain_slip({"a": 3}, {"a": 3, "b": 4}) == "return a dictionary with 'b'"
    assert explain_slip({"a": 4}, {"a": 3, "b": 4}) == explain_slip({"c": 4}, {"a": 3}) == ""
    assert explain_slip({"c": 3}, {"a": 3}) == "the key must be 'a', not 'c'"
    assert explain_slip({"a": 3, "c": 1}, {"a": 3}) == "'c' doesn't belong in the dictionary"
    assert explain_slip([[1, 2], [3, 4]], [[1, 3], [2, 4]]) == TURNED
    assert explain_slip(["word", 1.0], [1.0, "word"]).endswith("another order")
    assert (
        explain_slip([wide, [1.0]], np.zeros(61))
        == "these are several arrays, and one is expected: join them"
    )
    assert explain_slip([[[1], [1, 2]], [3, 4]], np.zeros(2)).startswith("these are several")
    assert explain_slip(np.zeros(3), [np.zeros(1), np.zeros(2)]) == SHAPE
    assert (
        explain_slip([1, (2, 3)]) == explain_slip("map", "zip") == explain_slip([1, 2], [1]) == ""
    )
    assert explain_slip({"a": 4, "b": 3}, {"a": 3, "b": 4}).endswith("another order")
    assert explain_slip("ckpt-4.index", "ckpt-4").endswith("something after it: leave that out")
    assert explain_slip("/tmp/a.npy", "a.npy").endswith("something before it: leave that out")
    assert explain_slip("a", "a") == explain_slip("a", "b") == explain_slip("a", "") == ""
    assert explain_slip("norm./bias", "as") == explain_slip("ab", "abc") == ""
    assert explain_slip(4, "ckpt-4") == "this is only a part of the expected string"
    assert explain_slip("a", "a:22") == "the string ends too early: ':22' is missing"


@pytest.mark.parametrize(
    ("given", "right", "said"),
    [
        ([1, 2], [1, 2, 3], "the last entries are missing"),
        ([[2], [3]], [[1, 1], [2], [3]], "the first entries are missing"),
        ([1, 2, 3, 4], [1, 2, 3], "after the right entries come others"),
        ([3, 3, 3], [1, 2, 3], "every entry is the last one"),
        ([0, 0, 0], [1, 0, 0], ""),
        ({"a": [2]}, {"a": [[1], [2, 2]]}, SHAPE),
        (3, [3, 3], "this is one number, and several are expected"),
        ([4, 5], [1, 2, 3], "there are too few entries"),
        ([2, 2], [[1], [2, 2]], "this is the last entry alone"),
        (["a", "c"], ["a", "b", "c"], "'b' is missing from the list"),
        (["a", "b", "d"], ["a", "b"], "'d' doesn't belong in the list"),
        (["b", "a"], ["a", "b"], "these are the right values in another order"),
        (["b", "a", "c"], ["a", "b", "c"], "these are the right entries in another order"),
        ("a,b", ["a", "b"], "this is one string, and a list of strings is expected"),
    ],
)
def test_entries_that_a_list_lacks_or_has_too_many_are_named(given, right, said) -> None:
    found = explain_slip(given, right)
    assert found.startswith(said) and bool(found) == bool(said)


@pytest.mark.parametrize(
    ("given", "right", "said"),
    [
        ("aaa", "abc", "it's the same in every case"),
        ("bac", "abc", "'a' and 'b' are exchanged"),
        ("aaac", "abdc", "'a' comes out in place of 'b', and of 'd'"),
        ("bcdb", "aadb", "'a' is taken for 'b' and for 'c'"),
        ("bac", "bbc", ""),  # one wrong answer shows nothing
        ("cab", "abc", ""),
        (([1, 0], [2, 0]), ([1, 3], [2, 4]), "it's the same in every case"),
        (([1, 0], [2, 0]), ([1, 3], [2, 3]), ""),
    ],
)
def test_words_that_are_mixed_up_are_named(given, right, said) -> None:
    wrong = [k for k, pair in enumerate(zip(given, right)) if pair[0] != pair[1]]
    if isinstance(given, tuple):
        given, right = ([{"a": a, "b": b} for a, b in column] for column in (given, right))
    found = explain_choice(given, right, wrong)
    assert found.startswith(said) and bool(found) == bool(said)


@pytest.mark.parametrize(
    ("given", "right", "cases", "said"),
    [
        ([50.0], [0.5], [()], "this is a percentage"),
        ([{"kept": [1, 3]}], [{"kept": [0, 2]}], [()], "each number is one too large"),
        ([[0, 3]], [[1, 4]], [()], "each number is one too small"),
        ([{"s": 2.0}], [{"s": 120.0}], [()], "this is 0.01667 times"),
        ([9.0, 16.0], [3.0, 4.0], [(), ()], "this is the square of"),
        ([2.0, 3.0], [4.0, 9.0], [(), ()], "this is the square root"),
        ([0.25, 0.5], [4, 2], [(), ()], "it's upside down"),
        ([-4, 2], [4, -2], [(), ()], "the sign is wrong"),
        ([0.25, 0.4], [0.75, 0.6], [(), ()], "this is 1 minus"),
        ([2, 3], [2.5, 3.25], [(), ()], "it's rounded down"),
        ([3, 4], [2.75, 3.75], [(), ()], "it's rounded, "),
        ([2.5, 3.25], [3, 4], [(), ()], "a whole number is expected"),
        ([2.5, 3.25], [3.0, 4.0], [(), ()], ""),  # seconds that happen to be whole
        ([[2.5, [1]], [3.25, [1]]], [[3, [1]], [4, [1]]], [(), ()], "a whole number"),
        ([0, 0], [0.25, 0.75], [(), ()], ""),  # zeros have many causes
        ([6], [5], [([5, 6],)], ""),
        ([4, 8], [3, 6], [(1,), (2,)], ""),  # small numbers differ by one another
        (
            [6.0, 12.0],
            [2.0, 3.0],
            [((1, 2, 3),), ((1, 2, [3, 6]),)],
            "this is the expected value times how many numbers were given",
        ),
        ([20, 21.0], [5, 7.0], [("a", 4), ("b", 3)], "this is the expected value times argument 2"),
        ([5, 7.0], [20, 21.0], [("a", 4), ("b", 3)], "this is the expected value over argument 2"),
        (
            [9, 8.5, 3],
            [5, 5.5, 1],
            [("a", 4), ("b", 3), ("c", 2)],
            "the difference is argument 2: is it counted twice?",
        ),
        (
            [5, 5.5, 1],
            [9, 8.5, 3],
            [("a", 4), ("b", 3), ("c", 2)],
            "the difference is argument 2: is it left out?",
        ),
        ([1, 2], [15, 60], [([6, 15],), ([2, 6, 60],)], "this is a position in a list"),
        ([{"a": 1.0, "b": 4}], [{"a": 1.0, "b": 2}], [()], ""),  # one number could be anything
        ([20_000_005, 30_000_005], [20_000_000, 30_000_000], [(), ()], ""),
        ([120.0, 91], [2.0, 1.5], [(), ()], ""),
        ([0.5], [0.0], [()], ""),
        (["a", 2], ["b", 1], [(), ()], ""),
        ([2, [1]], [1, [1, 2]], [(), ()], ""),
        ([float("nan")] * 2, [1.0, 2.0], [(), ()], ""),
        ([2, 5], [1, 1], [(), ()], ""),
    ],
)
def test_what_wrong_numbers_have_in_common_is_named(given, right, cases, said) -> None:
    found = explain_numbers(given, right, cases)
    assert found.startswith(said) if said else found == ""


@pytest.mark.parametrize("found", [("b", "a"), frozenset("ab"), np.array(["a", "b"])])
def test_what_can_be_a_list_is_one(found) -> None:
    assert sorted(require_list(found, "read", "a list")) == ["a", "b"]


@pytest.mark.parametrize("found", [iter("ab"), "ab", np.array("ab"), {"a": "b"}, 3.0])
def test_what_cannot_be_a_list_is_refused(found) -> None:
    with pytest.raises(AssertionError, match="must be a list, got"):
        require_list(found, "read", "a list")


def test_none_is_a_slip_only_where_it_is_never_right() -> None:
    exercise = Exercise("l", "e", "plan", (), {}, "count")
    fault = exercise.find_fault([(1,), (2,)], [3, None], {"right": [3, 4]}.__getitem__)
    assert "returned nothing (None)" in fault.why
    fault = exercise.find_fault([(1,), (2,)], [None, 4], {"right": [3, None]}.__getitem__)
    assert fault.why == "count"


def test_a_mistake_made_in_some_cases_only_is_named_too() -> None:
    exercise = Exercise("l", "e", "f", (), {"doubled": "twice", "negated": "minus"}, "count")
    ways = {"right": [1, 2, 3], "doubled": [2, 4, 6], "negated": [-1, -2, -3]}
    for got, name in (([1, 4, 3], "doubled"), ([1, -2, -3], "negated"), ([2, -2, 3], "")):
        fault = exercise.find_fault([(1,), (2,), (3,)], got, ways.__getitem__)
        assert fault.mistake == name, got


def test_logs_of_a_cluster_tell_who_is_to_blame_and_hide_nothing() -> None:
    for name in lab07.CAUSES:
        for blamed in lab07.list_blamed(name):
            logs = lab07.make_logs(name, blamed, seed=3)
            assert len(logs) == 3 and "<" not in re.sub(r"<(module|lambda)>", "", "".join(logs))
            assert (logs[blamed] == "") == (name == "missing-peer"), (name, blamed)
            assert all(log for worker, log in enumerate(logs) if worker != blamed)


def test_a_fault_in_words_is_said_in_words() -> None:
    exercise = Exercise("l", "e", "order", (), {}, "count")
    fault = exercise.find_fault(
        [(1,)], [{"fault": "B0 before F0"}], {"right": [{"n": 1}]}.__getitem__
    )
    assert fault.message == "order(1) went wrong: B0 before F0: count"


OVER = threading.Event()  # or a thread that wasn't stopped would slow down all later tests


def run_endlessly(*case):
    while not OVER.is_set():
        with contextlib.suppress(Exception):
            sum(range(100))


def run_until_told(*case):
    with contextlib.suppress(SystemExit):
        run_endlessly()


def run_in_threads(*case):
    threads = [threading.Thread(target=run_until_told) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run_in_a_late_thread(*case):
    """Be stopped while a thread is being started, as on a busy machine."""

    class LateThread(threading.Thread):
        def _bootstrap(self):
            time.sleep(1)
            super()._bootstrap()

    LateThread(target=run_until_told).start()


@pytest.mark.parametrize("answer", [run_endlessly, run_in_threads, run_in_a_late_thread])
def test_an_answer_that_never_ends_is_stopped(answer, request) -> None:
    exercise, running = Exercise("l", "e", "f", (), {}, "", seconds=0.2), set(threading.enumerate())
    before = signal.getsignal(signal.SIGALRM)
    request.addfinalizer(OVER.set)
    OVER.clear()
    with pytest.raises(AssertionError, match=r"^f was stopped after [\d.]+ seconds.*never ends"):
        exercise.observe(answer, [(1,)])
    assert replace(exercise, seconds=600).observe(max, [(1, 2)]) == [2]
    assert signal.getsignal(signal.SIGALRM) is before
    for thread in set(threading.enumerate()) - running:
        thread.join(90)
        assert not thread.is_alive()


@pytest.mark.parametrize(("share", "limits"), [(0.5, 2), (0.25, 4), (0.15, 6), (0.05, 1), (1.0, 1)])
def test_an_answer_that_others_slow_down_gets_its_time(monkeypatch, share, limits) -> None:
    """It gets as many limits as its `share` of a processor takes; with 0.05 it waits."""
    asked = []

    def process_time():
        asked.append(0.2 * share * len(asked))
        return asked[-1]

    def end_at(limit):
        while len(asked) <= limit:  # the first is asked at the start
            time.sleep(0.01)
        return limit

    clock = SimpleNamespace(process_time=process_time, monotonic=time.monotonic)
    monkeypatch.setattr("distlab.exercises.watching.time", clock)
    exercise = Exercise("l", "e", "f", (), {}, "", seconds=0.2)
    assert exercise.observe(end_at, [(limits - 1,)]) == [limits - 1]
    asked.clear()
    with pytest.raises(AssertionError, match=f"^f was stopped after {0.2 * limits:g} seconds"):
        exercise.observe(end_at, [(1000,)])
    assert len(asked) == limits + 1


@pytest.mark.parametrize("lab", NAMES)
def test_a_cell_says_after_how_many_seconds_its_answer_is_stopped(lab: str) -> None:
    for name, exercise in read_exercises(lab).items():
        said = re.findall(r"# stops after (\d+) s$", get_lab(lab).graded[name].source, re.M)
        assert said == ([] if exercise.seconds is None else [f"{exercise.seconds:g}"]), name


def test_anything_agrees_and_nan_only_with_nan() -> None:
    assert same({"a": 1, "b": object()}, {"a": 1, "b": Anything()})
    assert not same({"a": 2, "b": 1}, {"a": 1, "b": Anything()})
    assert same(float("nan"), np.nan) and not same(float("nan"), 0.0) and not same(0.0, np.nan)
