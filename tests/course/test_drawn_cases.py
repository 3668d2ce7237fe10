"""What judges draw can't be known by heart, and shows every mistake: labs 02, 09, 17, 18."""

import importlib

import pytest
from lab_runner import draw_cases, get_lab, list_unseen

from distlab.grading.judging import list_judges


@pytest.mark.parametrize("name, exercise", [("lab09", "newest"), ("lab17", "cut")])
def test_a_case_is_not_known_by_its_place_or_its_steps(name: str, exercise: str) -> None:
    """What decides, the last item, has several values wherever the rest looks the same."""
    (cell,) = get_lab(name).parts[exercise]
    seen: dict[tuple, set] = {}
    for seed in range(100):
        for place, (_, *known, decides) in enumerate(draw_cases(cell, seed)):
            first = known[0][0] if name == "lab09" else tuple(known)
            for looks in (("place", place), ("rest", first)):
                seen.setdefault(looks, set()).add(decides)
    assert len(seen) >= 4 and all(len(values) > 1 for values in seen.values()), seen


def test_no_drawn_model_of_lab_02_has_the_weight_of_an_example() -> None:
    shown = {
        case[2] for case in importlib.import_module("distlab.labs.lab02.exercise").PREDICT.examples
    }
    (cell,) = get_lab("lab02").parts["predict"]
    assert not any(case[2] in shown for seed in range(100) for case in draw_cases(cell, seed))


def test_every_mistake_with_lab_18_shows_in_what_any_seed_draws() -> None:
    judge, cells = list_judges("lab18")["halve"], get_lab("lab18").parts["halve"]
    for seed in range(64):
        assert list_unseen(judge, cells, seed) == [], seed
