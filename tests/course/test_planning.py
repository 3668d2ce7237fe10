"""Lesson 20's pictures and its explorer: every published table drawn, controls at their ends."""

import itertools
from dataclasses import replace

import pytest

from distlab.explorables.cut_explorer import WAYS, cut_explorer
from distlab.explorables.one_model import CHANGES, DEVICE_GB, cost_one_model, one_model_explorer
from distlab.lessons.published_runs import UNITS, describe_errors, draw_bars, draw_scatter
from utils.simulate.comparisons import COMPARISONS, Compared
from utils.simulate.planner import Run, tabulate_layouts


@pytest.mark.parametrize("name", COMPARISONS)
def test_every_comparison_is_a_picture_in_words_too(name):
    rows = COMPARISONS[name]()
    assert set(UNITS) == set(COMPARISONS)
    for draw in (draw_bars, draw_scatter):
        picture = draw(name, rows)
        assert "published" in picture.alt and "predicted" in picture.alt


def test_errors_that_are_promised_and_shown_are_told_apart():
    rows = [Compared("a", 2.0, 2.1, 0.1), Compared("b", 2.0, 3.0)]
    assert describe_errors(rows) == (
        "1 predictions, at most 5 % off. 1 shown only, at most 50 % off."
    )


def test_the_cut_explorer_shows_every_row_of_the_table():
    run = Run(parameters=7e9, layers=32, hidden=4096, sequence=131_072, global_batch=32)
    rows = tabulate_layouts(replace(run, tokens=1e12), "H100", "8x400Gb/s", (8, 64, 512))
    explorer = cut_explorer({"long": rows}, capacity_gb=80, name="H100")
    told = {(row["devices"], row["way"]): row for row in rows}
    for size, way in itertools.product((3, 6, 9), WAYS):
        explorer.move(size=size, way=way)
        row = told.get((2**size, way))
        if row is None:
            assert f"fewer sequences than {2**size} GPUs need" in explorer.result
        elif row["fits"]:
            memory, step = explorer.data["frame"]["parts"]
            assert dict(memory["groups"][0][1])["in all"] == pytest.approx(row["memory_gb"])
            assert dict(step["groups"][0][1])["whole step"] == pytest.approx(row["step_seconds"])
        else:
            assert "It doesn't fit" in explorer.result and row["memory_gb"] > 80
    assert len(explorer._freeze()["frames"]) == 7 * len(WAYS)


def test_the_one_model_does_what_its_lessons_say():
    costs = cost_one_model(23)
    assert list(cost_one_model(15)) == list(costs)[:2]
    costs = {name.split(":")[0].removeprefix("lesson "): cost for name, cost in costs.items()}
    held = {name: cost.memory.total / 1e9 for name, cost in costs.items()}
    step = {name: cost.step_seconds for name, cost in costs.items()}
    assert held["a copy on each"] > DEVICE_GB > held["20"] > 0.9 * DEVICE_GB
    assert held["15"] < held["16"] < DEVICE_GB / 2 and held["23"] < held["20"]
    assert held["18"] == pytest.approx(held["16"] / 2, rel=0.05)
    assert step["18"] == pytest.approx(step["16"] * 4 / 3, rel=0.05)
    assert step["23"] < step["20"] < step["16"] < step["15"]


@pytest.mark.parametrize("lesson", CHANGES)
def test_each_lesson_adds_its_row_to_the_one_model(lesson):
    explorer = one_model_explorer(lesson)
    rows = ["a copy on each", *(f"lesson {k}: {CHANGES[k][0]}" for k in CHANGES if k <= lesson)]
    memory, step = explorer.data["frame"]["parts"]
    assert [name for name, _ in memory["groups"][0][1]] == rows
    assert [name for name, _ in step["groups"][0][1]] == rows[1:]  # plain copies don't fit
    assert memory["bold"] == step["bold"] == rows[-1]
    longer = explorer.data["tries"][0]
    explorer.move(**longer["act"])
    fits = cost_one_model(lesson, sequence=2 ** longer["act"]["sequence"])[rows[-1]].fits
    assert fits == ("It doesn't fit" not in explorer.result) == (lesson in (15, 18))
