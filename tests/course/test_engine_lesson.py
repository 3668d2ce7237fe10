"""Lesson 19's companion: what is measured of a run, and what stands for a missing engine."""

import json
import os
from pathlib import Path

import pytest
from child_programs import start_python

from distlab.errors import CourseError
from distlab.lessons import engine_runs
from distlab.lessons.engine_pictures import draw_starts, draw_who_starts_whom
from distlab.lessons.engine_runs import (
    STORED,
    EngineRun,
    count_own_bytes,
    run_with_engine,
    watch,
    watch_engine,
)
from utils.errors import InputError

LESSON = Path(__file__).parents[2] / "notebooks" / "19-engines.ipynb"
PROGRAM = """
import json, os, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
begin = int(open("step").read()) if os.path.exists("step") else 0
print(f"worker {index} of 2 is process {os.getpid()}, from step {begin}", flush=True)
while index == 0 and not os.path.exists("there"):
    time.sleep(0.05)
open("there", "w").close()
for step in range(begin, 100, 20):
    if index == 0:
        open("part", "w").write(str(step))
        os.replace("part", "step")  # it may be ended at any time
        print(f"step {step + 20} loss {1 / (step + 1):.4f}", flush=True)
    time.sleep(600 if step == 60 and not begin else 0.3)  # until the kill
"""


@pytest.fixture
def missing(monkeypatch):
    """Every engine is missing here, as on a reader's laptop."""

    def find_none(name):
        raise InputError(f"engine {name}: the package {name} is missing")

    monkeypatch.setattr(engine_runs, "find_engine", find_none)
    monkeypatch.delenv("CI", raising=False)


def test_a_run_is_watched_disturbed_and_measured(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    lines = ["distlab run --workers 2 --max-restarts 1 train.py"]
    seen = watch("local", lines, folder=tmp_path, kill_after=40)
    assert seen.begun[0] == 0 and seen.begun[1] >= 20 and seen.status == 0
    assert 0 < seen.first_at < seen.killed_at < seen.again_at < seen.seconds
    assert seen.last_loss == pytest.approx(1 / 81, abs=1e-4)
    assert 5 * 2**20 < seen.own_bytes < 2**30  # the launcher and its keeper
    assert "local" in draw_starts({"local": seen}).alt


def test_a_run_that_fails_is_shown_and_nothing_is_left(tmp_path):
    (tmp_path / "train.py").write_text("raise SystemExit('no data')")
    with pytest.raises(CourseError, match="status 1; its last lines:\n(.*\n)*.*no data"):
        watch("local", ["distlab run train.py"], folder=tmp_path)
    (tmp_path / "train.py").write_text("import time; print('waits', flush=True); time.sleep(99)")
    with pytest.raises(CourseError, match="must end within 3 s"):
        watch("hand", ["python train.py"], folder=tmp_path, seconds=3)


def test_memory_is_that_of_all_but_the_workers():
    code = "import time; b = bytearray(40_000_000); print(1, flush=True); time.sleep(300)"
    running = [start_python("-c", code) for _ in "ab"]
    assert [process.stdout.read(1) for process in running] == ["1", "1"]
    numbers = [process.pid for process in running]
    assert count_own_bytes(numbers, []) > count_own_bytes(numbers, numbers[:1]) > 0


def test_a_missing_engine_is_replaced_by_a_dated_run_that_says_so(missing, capsys):
    for engine in ("ray", "spark", "slurm"):
        run = watch_engine(engine, "distlab run train.py", folder=".")
        assert run.begun[-1] >= 40 and run.again_seconds > 0 and run.own_bytes > 0
        run.show()
        printed = capsys.readouterr().out
        assert f"the package {engine} is missing" in printed and "a stored run: 20" in printed
        assert "isn't a run of your machine" in printed and "[worker 0] step 120" in printed
    for program in ("count_labels.py", "too_few_slots.py"):
        assert len(run_with_engine("spark", program)) >= 3
        assert "a stored run: 20" in capsys.readouterr().out


def test_continuous_integration_takes_no_stored_run(missing, monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(CourseError, match="runs every engine"):
        watch_engine("ray", "distlab run train.py", folder=".")


def test_what_is_stored_and_what_is_committed_ran(monkeypatch):
    """Every stored run names its day and machine; the committed lesson shows none of them."""
    stored = json.loads(STORED.read_text())
    assert set(stored) == {"ray", "spark", "slurm", "count_labels.py", "too_few_slots.py"}
    assert all(one["date"] > "2026" and "cores" in one["machine"] for one in stored.values())
    assert "/" + "home" not in STORED.read_text() and os.getcwd() not in STORED.read_text()
    outputs = [
        out for cell in json.loads(LESSON.read_text())["cells"] for out in cell.get("outputs", [])
    ]
    assert "a stored run" not in json.dumps(outputs)


def test_pictures_say_who_starts_whom():
    assert all(way in draw_who_starts_whom().alt for way in ("Ray", "Spark", "Slurm", "Kubernetes"))
    run = EngineRun("by hand", first_at=2.0, seconds=5.0)
    assert "by hand" in draw_starts({"by hand": run}).alt
