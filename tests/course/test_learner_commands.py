"""`distlab check`, `submit`, `reset`, and the progress file: a learner's work."""

import json
import os
import re
import shutil
import stat
import subprocess
import zipfile
from pathlib import Path

import nbformat
import pytest
from child_programs import run_distlab

from distlab import copies, progress

ROOT = Path(__file__).resolve().parents[2]
LAB = "lab01-batches-and-words"


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A course folder with lab 01 as it is given out."""
    (tmp_path / "labs").mkdir()
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "README.md").write_text("# The course\n\nWords.\n\n## Start\n\n[x](labs/x)\n")
    shutil.copy(ROOT / "labs" / f"{LAB}.ipynb", tmp_path / "labs")
    return tmp_path


def distlab(course: Path, *arguments: str, where: str = "") -> subprocess.CompletedProcess[str]:
    return run_distlab(*arguments, cwd=course / where, variables={"PYTHONPATH": str(ROOT)})


def write_answer(course: Path, exercise: str, text: str) -> None:
    path = course / "labs" / f"{LAB}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == exercise:
            cell.source = text
    nbformat.write(notebook, path)


RIGHT = "def plan_epoch(n, b):\n    return -(-n // b), n % b or b\n"
WRONG = "def replica_batch_sizes(n, w, r):\n    return [n // (w * r)] * (w * r)\n"


def test_check_says_right_wrong_and_not_written(course: Path) -> None:
    write_answer(course, "epoch", RIGHT)
    write_answer(course, "batches", WRONG)
    done = distlab(course, "check", "lab01", "--json")
    assert done.returncode == 1, done.stderr
    found = {e["id"]: e for e in json.loads(done.stdout)["exercises"]}
    assert found["epoch"]["passed"]
    assert "should give" in found["batches"]["said"]
    assert "rounding down" in found["batches"]["said"]
    assert found["scaling"]["said"] == "not written yet"
    assert progress.read(course).keys() == {"lab01"}
    assert progress.read(course)["lab01"].keys() == {"epoch"}
    plain = distlab(course, "check", "01", where="labs")
    assert re.search(
        r"^right +epoch: plan_epoch: \d worked examples are right$", plain.stdout, re.M
    )
    assert plain.stdout.count("not yet") == 3


def test_submit_packs_the_notebook_with_name_and_time(course: Path) -> None:
    (course / "labs" / "helpers.py").write_text(RIGHT)
    write_answer(course, "epoch", "from helpers import plan_epoch\nimport json, numpy as np\n")
    done = distlab(course, "submit", "lab01", "--name", "ada.l")
    assert done.returncode == 0, done.stderr
    assert "1 of 4 checks pass" in done.stdout
    assert done.stdout.count("left out") == 1
    assert "left out helpers.py: only the notebook is submitted. Put its" in done.stdout
    (packed,) = (course / "submissions").iterdir()
    with zipfile.ZipFile(packed) as archive:
        notebook, time = archive.namelist()
        assert notebook == f"ada.l/{LAB}/{LAB}.ipynb"
        assert time == f"ada.l/{LAB}/timestamp.txt"
        assert archive.read(notebook) == (course / "labs" / f"{LAB}.ipynb").read_bytes()
        stamp = archive.read(time).decode()
        assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\n", stamp)


def test_what_is_submitted_can_be_collected(course: Path) -> None:
    from distlab.grading.collect import collect
    from distlab.grading.naming import LabNames

    distlab(course, "submit", "lab01", "--name", "ada.l")
    (packed,) = (course / "submissions").iterdir()
    found = collect(packed, LabNames("lab01", LAB), course / "keep")
    assert [hand_in.student for hand_in in found.hand_ins] == ["ada.l"]
    assert found.hand_ins[0].timestamp is not None


def test_reset_keeps_a_copy(course: Path) -> None:
    original = (course / "labs" / f"{LAB}.ipynb").read_text()
    assert "Open it in JupyterLab first" in distlab(course, "reset", "lab01").stderr
    copy = copies.open_copy(course, f"{LAB}.ipynb")
    mine = original.replace("NotImplementedError", "ValueError")
    copy.write_text(mine)
    done = distlab(course, "reset", "lab01")
    assert done.returncode == 0, done.stderr
    assert copy.read_text() == original == (course / "labs" / f"{LAB}.ipynb").read_text()
    (kept,) = (course / "work" / "kept").iterdir()
    assert kept.read_text() == mine
    assert kept.name in done.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_pipe_keeps_nobody_waiting(course: Path) -> None:
    write_answer(course, "epoch", RIGHT)
    labs = course / "labs"
    for name in ("lab01-a.ipynb", "lab02-b.ipynb", "notes.pipe"):
        os.mkfifo(labs / name)
    done = distlab(course, "submit", "lab01", "--name", "ada.l")
    assert done.returncode == 0, done.stderr
    assert "1 of 4 checks pass" in done.stdout
    (labs / f"{LAB}.ipynb").unlink()
    os.mkfifo(labs / f"{LAB}.ipynb")
    for command in ("submit", "check", "reset"):
        done = distlab(course, command, "lab01")
        assert done.returncode == 2
        assert "must be a file, got a pipe or a folder" in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_file_that_is_no_lab_is_refused_in_one_line(course: Path) -> None:
    for name, text in (("a.ipynb", "{"), ("b.ipynb", '{"cells": []}')):
        (course / name).write_text(text)
        done = distlab(course, "check", name)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1


def test_endless_loop_is_interrupted_and_the_rest_is_checked(course, monkeypatch) -> None:
    from distlab.cli import lab_work as check

    write_answer(course, "epoch", "def plan_epoch(n, b):\n    while True:\n        pass\n")
    write_answer(course, "batches", WRONG)
    monkeypatch.setattr(check, "CELL_SECONDS", 3.0)
    found = {e["id"]: e for e in check.check_notebook(course / "labs" / f"{LAB}.ipynb")}
    assert "KeyboardInterrupt" in found["epoch"]["said"]
    assert "rounding down" in found["batches"]["said"]


def test_progress_counts_only_in_the_labs_folder(course: Path, monkeypatch) -> None:
    monkeypatch.chdir(course)
    assert not progress.record("lab01", "epoch")
    (course / "solutions").mkdir()
    monkeypatch.chdir(course / "solutions")
    assert not progress.record("lab01", "epoch")
    monkeypatch.chdir(course / "labs")
    assert progress.record("lab01", "epoch")
    first = progress.read(course)
    assert progress.record("lab01", "epoch")
    assert progress.read(course) == first


def test_damaged_progress_is_put_aside(course: Path, monkeypatch) -> None:
    monkeypatch.chdir(course / "labs")
    progress.record("lab01", "epoch")
    path = course / progress.FILE
    path.write_text("{half")
    assert progress.read(course) == {}
    assert path.with_name("progress.json.damaged").read_text() == "{half"
    assert progress.record("lab01", "scaling")
    assert list(progress.read(course)["lab01"]) == ["scaling"]


def test_a_folder_that_cannot_be_written_costs_nothing(course: Path, monkeypatch) -> None:
    monkeypatch.chdir(course / "labs")
    (course / ".distlab").write_text("a file where a folder should be")
    assert not progress.record("lab01", "epoch")
    assert stat.S_ISREG((course / ".distlab").stat().st_mode)
