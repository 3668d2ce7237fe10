"""The capstone's companions: the logbook, a run that loses a worker, masks in color, the page."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from distlab.errors import CourseError
from distlab.explorables.run_log import RunLog, run_explorer
from distlab.lessons.capstone import FULL, REDUCED, choose_sizes, write_report
from distlab.lessons.killed_run import KilledRun, run_and_kill
from distlab.lessons.logbook import Logbook
from distlab.lessons.mask_pictures import PALETTE, color, draw_key, draw_predictions, list_names
from utils.data import load_scenes
from utils.data.masks import count_pixels, score_masks

PROGRAM = """import json, os, pathlib, time
place, worker = pathlib.Path("saved"), json.loads(os.environ["TF_CONFIG"])["task"]["index"]
began = pathlib.Path("began")  # of worker 1, which waits at the first start until it's killed
if worker == 1 and not began.exists():
    began.touch()
    time.sleep(600)
while not began.exists():
    time.sleep(0.01)
first = int(place.read_text()) if place.exists() else 0
if first:
    print(f"resumed from step {first}", flush=True)
for step in range(first + 1, 13):
    time.sleep(600 if step == 11 and not first else 0.03)  # until the kill
    if worker == 0:
        print(f"step {step} of 12: loss {1 / step:.4f}", flush=True)
        if step % 4 == 0:
            pathlib.Path("part").write_text(str(step))
            os.replace("part", place)  # it may be ended at any time
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "train.py").write_text(PROGRAM)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return run_and_kill([sys.executable, "train.py"], kill_after=6)


def test_a_worker_is_killed_on_the_way_and_the_run_ends_well(killed):
    assert killed.report.status == 0 and killed.report.restarts == 1
    first, second = ([s for s in killed.steps if s.attempt == k] for k in (1, 2))
    assert first[0].step == 1 and first[-1].step >= 6
    assert second[0].step in (5, 9) and second[-1].step == 12
    assert killed.resumed_from == second[0].step - 1
    assert killed.lost_steps == first[-1].step - killed.resumed_from
    assert killed.restart_seconds > 0 and killed.step_seconds > 0
    assert any("worker 1 was killed" in text or "SIGKILL" in text for text in killed.said)
    spans = RunLog(killed, 4, 0.01).list_measured()
    assert all(begun <= ended for _, begun, ended, *_ in spans)
    shown = run_explorer(killed, 4, 0.01)
    shown.move(saves="never", dies=9)
    assert "from the checkpoint of step" in shown.result and "9 steps trained twice" in shown.result
    alt = killed.picture().alt
    assert "first start" in alt and "second start" in alt


def test_a_run_that_fails_or_is_not_killed_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CourseError, match="The run failed: worker"):
        run_and_kill([sys.executable, "-c", "raise SystemExit(3)"], kill_after=1)
    with pytest.raises(CourseError, match="must be killed"):
        _ = KilledRun(1, 5).restart_seconds


def test_the_logbook_wants_a_decision_before_a_measurement(capsys):
    book = Logbook()
    with pytest.raises(CourseError, match="precision: nothing was decided"):
        book.measure("precision", "2.0 times")
    book.decide("precision", "float32", "no bfloat16 here")
    book.measure("precision", "2.0 times")
    assert capsys.readouterr().out.endswith("decided: float32; measured: 2.0 times\n")
    assert str(book).endswith("| precision | float32 | no bfloat16 here | 2.0 times |")
    book.decide("precision", "bfloat16", "a new processor")
    assert len(book.entries) == 1 and not book.entries[0].measured


def test_masks_have_a_color_for_each_class():
    assert len({tuple(c) for c in PALETTE.tolist()}) == 11
    mask = np.arange(11).reshape(1, 11)
    np.testing.assert_array_equal(color(mask)[0], PALETTE)
    assert "Ankle boot" in draw_key().alt
    images, masks = (np.stack(part) for part in zip(*load_scenes(train=2).train))
    picture = draw_predictions(images, masks, masks, "Two")
    assert "100 %" in picture.alt and list_names(masks[0]).split("\n")[0] in picture.alt
    assert picture.alt.startswith("Two. Each scene")
    assert list_names(np.zeros((64, 64), int)) == "nothing"


def test_the_page_says_what_was_run(killed, tmp_path):
    masks = np.stack([mask for _, mask in load_scenes(train=4).train])
    book = Logbook()
    book.decide("input", "prefetch", "two cores")
    bill = SimpleNamespace(
        step_seconds=0.1, efficiency=0.9, bottleneck="network", hours=3.0, cost=480.0
    )
    score = score_masks(count_pixels(masks, masks))
    page = write_report(tmp_path / "new" / "report.md", book, killed, 0.05, score, {"64": bill})
    assert (tmp_path / "new" / "report.md").read_text() == page
    for words in (
        "12 steps of 32",
        "Worker 1 was killed after step 6",
        "foreground 1.000",
        "| 64 | 0.1 | 90% | network | 3.00 | 480.00 |",
        "| input | prefetch |",
    ):
        assert words in page


def test_the_reduced_form_is_chosen_by_the_environment(monkeypatch):
    monkeypatch.setenv("DISTLAB_REDUCED", "1")
    assert choose_sizes() is REDUCED and REDUCED.steps == 80
    monkeypatch.setenv("DISTLAB_REDUCED", "")
    assert choose_sizes() is FULL and FULL.steps == 1496
    right = score_masks(np.eye(11))
    assert FULL.are_reached(right) and not FULL.are_reached(replace(right, garments=0.49))
    assert not FULL.are_reached(replace(right, foreground=0.94))
    assert FULL.least_foreground == 0.95 and FULL.least_garments == 0.5
    untrained = np.zeros((11, 11))
    untrained[:, 0] = 1  # everything is taken for background
    assert not REDUCED.are_reached(score_masks(untrained)) and REDUCED.are_reached(right)
