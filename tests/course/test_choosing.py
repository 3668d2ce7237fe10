"""Lesson 21's advice: each kind of job gets its strategy, and the tree lights its path."""

import re
from dataclasses import replace

import pytest

from distlab.explorables.choosing import (
    HERE,
    OTHERWISE,
    QUESTIONS,
    SPARE,
    STEADY,
    TrainingJob,
    advise,
    choosing_explorer,
    draw_tree,
)
from distlab.lessons.what_works import try_all


@pytest.mark.parametrize(
    "job, strategy, found",
    [
        (TrainingJob(1e12, 1e9, 8), "more devices", "16,000 GB, all devices hold 640"),
        (TrainingJob(1e11, 1e9, 1024), "not TensorFlow", "1,600 GB, one device holds 80"),
        (TrainingJob(1e9, 1e7, 8, HERE, runs=8), "distlab run --independent", "8 runs: "),
        (TrainingJob(1e9, 1e7, 8, SPARE, runs=40), "distlab run --independent", "40 runs: "),
        (TrainingJob(1e6, 1e6, 8), "one device", "One device takes 0."),
        (TrainingJob(1e9, 1e9, 1), "one device", "One device takes 6,"),
        (TrainingJob(1e9, 1e9, 8, HERE), "MirroredStrategy", "8 devices: one machine"),
        (TrainingJob(1e9, 1e7, 8, HERE, runs=9), "MirroredStrategy", "8 devices: one machine"),
        (TrainingJob(1e9, 1e9, 4096, SPARE), "ParameterServerStrategy", "Parameter servers take "),
        (TrainingJob(1e9, 1e9, 64), "MultiWorkerMirroredStrategy", ""),
        (TrainingJob(1e9, 1e9, 64, SPARE), "MultiWorkerMirroredStrategy", ""),
    ],
)
def test_each_kind_of_job_gets_its_strategy(job, strategy, found):
    advice = advise(job)
    assert advice.strategy == strategy and advice.reasons
    assert advice.path[-1][0].startswith(found) or found in advice.path[-1][0]
    assert [yes for _, yes in advice.path] == [False] * (len(advice.path) - 1) + [True]
    if strategy in ("not TensorFlow", "more devices"):
        assert advice.row is advice.alone is advice.hours is None  # a run that can't exist
    else:
        assert advice.row.devices == job.devices and advice.alone.devices == 1


def test_hours_are_those_of_the_advice():
    job = TrainingJob(1e9, 1e7, 8, HERE)
    one = advise(job)
    assert one.hours == one.row.hours < one.alone.hours
    assert advise(replace(job, runs=9)).hours == pytest.approx(9 * one.row.hours)
    apart = advise(replace(job, runs=40))
    assert apart.hours == pytest.approx(5 * one.alone.hours)
    assert apart.hours < 40 * one.row.hours
    assert advise(TrainingJob(1e6, 1e6, 8)).hours == advise(TrainingJob(1e6, 1e6, 1)).hours


def test_what_else_the_plan_says_is_among_the_reasons():
    slow = advise(TrainingJob(1e9, 1e9, 64, SPARE))
    assert any("network is the bottleneck" in said for said in slow.reasons)
    fed = advise(TrainingJob(1e7, 1e10, 64, STEADY, "needs much preparation"))
    assert any("input is the bottleneck" in said for said in fed.reasons)
    assert any("64 devices" in said for said in slow.reasons)  # the numbers are filled in


@pytest.mark.parametrize("asked", range(1, len(QUESTIONS) + 2))
def test_the_tree_is_drawn_from_the_questions_and_lights_one_path(asked):
    drawn = re.sub("</?(?:wbr|span)[^>]*>", "", draw_tree(asked))  # where a line may break
    given = [question.advice for question in (*QUESTIONS, OTHERWISE)]
    for question in QUESTIONS:
        assert question.text in drawn and question.limit in drawn
    assert all(advice in drawn for advice in given)
    lit = re.findall(r"<strong>(.*?)</strong>", drawn)
    assert [words for words in lit if words in given] == [given[asked - 1]]
    assert len(lit) == min(asked, len(QUESTIONS)) + 1


def test_the_explorer_answers_at_every_end():
    explorer = choosing_explorer()
    assert "MultiWorkerMirroredStrategy" in explorer.result
    for size, devices, place, runs in ((6, 0, HERE, 0), (12, 12, SPARE, 7), (9, 12, STEADY, 3)):
        explorer.move(parameters=size, devices=devices, place=place, runs=runs)
        assert "plan" in explorer.result.lower() and "Error" not in explorer.result


def test_every_advice_is_reached_in_a_page_without_a_kernel():
    explorer = choosing_explorer()
    explorer._repr_mimebundle_()  # as when it is shown
    texts = " ".join(explorer.data["frozen"]["texts"])
    for question in (*QUESTIONS, OTHERWISE):
        assert f"<p><strong>{question.advice}</strong></p>" in texts


def test_a_combination_that_has_no_way_is_told_in_words():
    works, refused = try_all(
        [("one-device", "custom", "float32"), ("parameter-server", "fit", "float32")]
    )
    assert works.works and works.loss > 0 and works.variables_bytes == 4 * 101_770
    assert not refused.works and "Keras 3 has no fit" in refused.why
