"""Lesson 21's advice: each kind of job gets its strategy, and the explorer answers at its ends."""

import pytest

from distlab.explorables.choosing import DATA, PLACES, advise, choosing_explorer
from distlab.lessons.what_works import try_all

STEADY = (PLACES[1], "files on disk", 200)


@pytest.mark.parametrize("job, strategy, reason", [
    ((1e6, 1e6, 8, *STEADY), "one device", "nothing to set up"),
    ((1e9, 1e9, 8, PLACES[0], "files on disk", 200), "MirroredStrategy", "one machine"),
    ((1e9, 1e9, 64, *STEADY), "MultiWorkerMirroredStrategy", "synchronous steps"),
    ((1e9, 1e9, 64, PLACES[2], "files on disk", 200), "MultiWorkerMirroredStrategy", "servers'"),
    ((1e9, 1e9, 4096, PLACES[2], "files on disk", 1), "ParameterServerStrategy", "come and go"),
    ((1e11, 1e9, 1024, *STEADY), "not TensorFlow", "has to be cut"),
    ((1e12, 1e9, 8, *STEADY), "not TensorFlow", "more than all devices hold"),
    ((1e9, 1e9, 1, *STEADY), "one device", "or to fail"),
])  # fmt: skip
def test_each_kind_of_job_gets_its_strategy(job, strategy, reason):
    advice = advise(*job)
    assert advice.strategy == strategy
    assert any(reason in said for said in advice.reasons), advice.reasons
    if strategy == "not TensorFlow":
        assert advice.row is advice.alone is None  # nothing of a run that can't exist
    else:
        assert advice.row.devices == job[2] and advice.alone.devices == 1


def test_the_bottleneck_is_among_the_reasons():
    assert any("network is the bottleneck" in said for said in
               advise(1e9, 1e9, 1024, PLACES[2], "files on disk", 200).reasons)  # fmt: skip
    assert any("input is the bottleneck" in said for said in
               advise(1e7, 1e10, 64, PLACES[1], "needs much preparation", 200).reasons)  # fmt: skip


def test_the_explorer_answers_at_every_end():
    explorer = choosing_explorer()
    assert "MultiWorkerMirroredStrategy" in explorer.result
    for size, devices, place, data, days in (
        (6, 0, PLACES[0], "fits in memory", 1000), (12, 12, PLACES[2], list(DATA)[-1], 1),
        (9, 12, PLACES[1], "files on disk", 1),
    ):  # fmt: skip
        explorer.move(
            parameters=size, devices=devices, place=place, data=data, mtbf_days=days
        )  # fmt: skip
        assert "plan" in explorer.result.lower() and "Error" not in explorer.result, explorer.result


def test_a_combination_that_has_no_way_is_told_in_words():
    works, refused = try_all([("one-device", "custom", "float32"),
                              ("parameter-server", "fit", "float32")])  # fmt: skip
    assert works.works and works.loss > 0 and works.variables_bytes == 4 * 101_770
    assert not refused.works and "Keras 3 has none" in refused.why
