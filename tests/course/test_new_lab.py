"""A lab made by `distlab new lab` builds, keeps the style, checks and judges as it stands."""

import os
import shutil
from pathlib import Path

import notebook_style
import pytest
from child_programs import run_python

from distlab.authoring import new_lab
from utils.errors import DistributedError

ROOT = Path(__file__).parents[2]
ANSWERS = """
HEAD = "import numpy as np\\ndef first_share(k, workers, examples):\\n    return "
RIGHT = {"first": [HEAD + line for line in (
    "list(range(k, examples, workers))", "np.arange(examples)[k::workers]",
    "tuple(i for i in range(examples) if i % workers == k)", "np.arange(k, examples, workers)",
    "np.flatnonzero(np.arange(examples) % workers == k)", "[*range(examples)][k::workers]",
    "[k + i for i in range(0, examples - k, workers)]",
    "list(filter(lambda i: (i - k) % workers == 0, range(examples)))")]}
WRONG = {"first": {
    "": HEAD + "list(range(examples))",
    "(from one)": HEAD + "list(range(k + 1, examples, workers))",
    "(in blocks)": HEAD + "np.array_split(np.arange(examples), workers)[k]"}}
"""
TITLE = "gradient Clipping, by 2"


def call(course: Path, *command: str) -> str:
    path = f"{course}{os.pathsep}{course / 'tests'}"
    return run_python("-m", *command, cwd=course, variables={"PYTHONPATH": path}, status=0).stdout


def test_template_works_as_it_stands(tmp_path: Path) -> None:
    junk = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "distlab", tmp_path / "distlab", ignore=junk)
    for lab in (tmp_path / "distlab" / "labs").glob("lab??"):
        shutil.rmtree(lab)
    (tmp_path / "utils").symlink_to(ROOT / "utils")
    for folder in ("notebooks/src", "solutions/src", "labs", "tests/answers"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("lab_runner.py", "needs.py", "course/test_lab_answers.py"):
        shutil.copyfile(ROOT / "tests" / name, tmp_path / "tests" / Path(name).name)
    before = tmp_path / "solutions/src/lab97_before.py"
    before.touch()
    made = call(tmp_path, "distlab", "new", "lab", TITLE).split("\n")[:4]
    assert made[0] == "solutions/src/lab98_gradient_clipping_by_2.py"
    before.unlink()
    call(tmp_path, "distlab.grading.worked", "lab98")
    call(tmp_path, "distlab", "build")
    assert not [name for name in made if "@" in (tmp_path / name).read_text()]
    for folder, end in (("labs", ""), ("solutions", "-solution")):
        path = tmp_path / folder / f"lab98-gradient-clipping-by-2{end}.ipynb"
        assert notebook_style.check_file(path) == []
    head = notebook_style.read_notebook(path)["cells"][0]["source"]
    assert head.startswith("# Lab 98 · Gradient Clipping, by 2\n")
    own = [line for name in made for line in (tmp_path / name).read_text().splitlines()]
    assert len([line for line in own if line.strip() and line[:1] != "#"]) <= 36, "too much"
    (tmp_path / "tests/answers/lab98.py").write_text(ANSWERS)
    said = call(tmp_path, "pytest", "-p", "no:cacheprovider", "-q", "tests/test_lab_answers.py")
    assert said.count(".") >= 12, said


def test_nothing_is_written_over(tmp_path: Path) -> None:
    there = tmp_path / "distlab" / "labs" / "lab01" / "judge.py"
    there.parent.mkdir(parents=True)
    there.write_text("mine")
    with pytest.raises(DistributedError, match="distlab/labs/lab01/judge.py exists already"):
        new_lab.write_lab(tmp_path, "rings")
    with pytest.raises(DistributedError, match="title must be words"):
        new_lab.write_lab(tmp_path, "12 · ?")
    assert there.read_text() == "mine" and not (tmp_path / "solutions").exists()
