"""Every lab's checks and judges, against the right and wrong answers of tests/answers."""

import importlib
import os

import numpy as np
import pytest
from lab_runner import LABS, draw_cases, get_lab, list_unseen, load_answers
from needs import EVERYTHING

from distlab.authoring import sources
from distlab.exercises.exercise import Exercise, list_exercises
from distlab.grading.judging import WrongAnswer, list_judges

NAMES = [target.slug.split("-")[0] for target in LABS]
SEED = int(os.environ.get("DISTLAB_SEED", "2027"))  # any number will do


def list_answers(kind: str) -> list[tuple[str, str, str, str]]:
    found = []
    for name in NAMES:
        for exercise, answers in getattr(load_answers(name), kind, {}).items():
            pairs = list(answers.items() if isinstance(answers, dict) else enumerate(answers))
            pairs = pairs[: find_most(name, exercise)]
            found += [(name, exercise, str(label), text) for label, text in pairs]
    return found


def find_most(name: str, exercise: str) -> int | None:
    """Return how many answers are tried: None for all, fewer where each takes half a minute."""
    return None if EVERYTHING else getattr(load_answers(name), "DEAR", {}).get(exercise)


def name_mistake(why: str) -> str:
    """Return the mistake of a wrong answer's label: "in-blocks (with NumPy)" is "in-blocks"."""
    return why.partition("(")[0].strip()


def label(value: str) -> str:
    return value if len(value) < 40 and "\n" not in value else ""


@pytest.mark.parametrize("name", NAMES)
def test_every_exercise_has_enough_right_and_wrong_answers(name: str) -> None:
    answers = load_answers(name)
    module = importlib.import_module(f"distlab.labs.{name}.exercise")
    if not hasattr(answers, "RIGHT"):  # as `distlab new lab` begins
        assert not [one for one in list_exercises(module).values() if one.mistakes]
        return
    for exercise in get_lab(name).exercises:
        right, wrong = set(answers.RIGHT[exercise]), set(answers.WRONG[exercise].values())
        assert len(right) >= 8, f"{exercise}: {8 - len(right)} more right answers, please"
        assert len(wrong) >= 3, f"{exercise}: {3 - len(wrong)} more wrong answers, please"


@pytest.mark.parametrize(("name", "exercise", "style", "answer"), list_answers("RIGHT"), ids=label)
def test_right_answer_passes_check_and_judge(name, exercise, style, answer) -> None:
    print("seed", SEED)
    lab = get_lab(name)
    outcome = (lab.try_once if int(style) else lab.try_answer)(exercise, answer, SEED)
    assert outcome.visible is None, str(outcome.visible)
    assert outcome.judged is None, str(outcome.judged)


@pytest.mark.parametrize(("name", "exercise", "why", "answer"), list_answers("WRONG"), ids=label)
def test_wrong_answer_is_refused_by_its_own_message(name, exercise, why, answer) -> None:
    print("seed", SEED)
    outcome = get_lab(name).try_once(exercise, answer, SEED)
    assert isinstance(outcome.visible, AssertionError), repr(outcome.visible)
    assert isinstance(outcome.judged, WrongAnswer), repr(outcome.judged)
    assert outcome.judged.misconception == name_mistake(why), str(outcome.judged)
    said = outcome.judged.why
    assert said
    for message in (str(outcome.judged), str(outcome.visible)):
        assert message.endswith(said), "check and judge should name the same misconception"


@pytest.mark.parametrize(("name", "exercise", "said", "answer"), list_answers("REFUSED"), ids=label)
def test_answer_that_stops_is_refused_in_the_learners_words(name, exercise, said, answer) -> None:
    """An answer that TensorFlow, the course or Python stops: a sentence, and no mark."""
    outcome = get_lab(name).try_once(exercise, answer, SEED)
    assert isinstance(outcome.visible, AssertionError), repr(outcome.visible)
    assert said in str(outcome.visible)
    assert outcome.judged is not None


@pytest.mark.parametrize("target", LABS, ids=NAMES)
def test_no_seed_draws_what_the_visible_check_shows(target) -> None:
    """Whoever writes down the answers of the worked examples would be right with that seed."""
    name = target.slug.split("-")[0]
    module = importlib.import_module(f"distlab.labs.{name}.exercise")
    examples = [_list_plain(e.examples) for e in vars(module).values() if isinstance(e, Exercise)]
    cells = [c.source for c in sources.read_source(target).cells if "### BEGIN INPUTS" in c.source]
    assert examples and cells
    for seed in range(100):
        for cell in cells:
            drawn = _list_plain(draw_cases(cell, seed))
            assert not any(all(case in shown for case in drawn) for shown in examples), (seed, cell)


@pytest.mark.parametrize("name", NAMES)
def test_drawn_cases_tell_every_mistake_from_the_right_answer(name: str) -> None:
    """The judge sees through each mistake, also where answers run on the examples alone."""
    for exercise, judge in list_judges(name).items():
        assert list_unseen(judge, get_lab(name).parts[exercise], SEED) == [], exercise


def _list_plain(cases) -> list[str]:
    return [repr(_to_plain(case)) for case in cases]


def _to_plain(value):
    if isinstance(value, np.ndarray | np.generic):
        return _to_plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    return float(value) if isinstance(value, int | float) else value


@pytest.mark.parametrize("name", NAMES)
def test_messages_of_one_exercise_all_differ(name: str) -> None:
    for exercise, wrong in load_answers(name).WRONG.items():
        lab = get_lab(name)
        wrong = dict(list(wrong.items())[: find_most(name, exercise)])
        outcomes = {w: lab.try_once(exercise, text, SEED) for w, text in wrong.items()}
        said = {outcome.judged.why for outcome in outcomes.values()}
        assert len(said) >= len({name_mistake(why) for why in wrong})
