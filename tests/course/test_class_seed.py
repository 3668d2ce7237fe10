"""A class seed: last year's answers fail, the class's own pass, and nothing else changes."""

import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from lab_runner import LABS
from needs import need_sandbox

from distlab.authoring import sources
from distlab.class_seed import ClassNumber, use_class_seed
from distlab.cli import main
from distlab.exercises.exercise import list_exercises
from distlab.grading.release import make_release

ROOT = Path(__file__).resolve().parents[2]
WORD = "autumn26"
NUMBERS = {  # lab -> the exercise whose number a class draws
    "lab04": "program",
    "lab13": "program",
    "lab16": "layout",
}
pytestmark = pytest.mark.slow(30)


def read(lab: str, word: str) -> Any:
    (target,) = [t for t in LABS if t.slug.startswith(lab)]
    with use_class_seed(word):
        return sources.read_source(target)


def list_numbers(lab: str) -> dict[str, ClassNumber]:
    known = list_exercises(importlib.import_module(f"distlab.labs.{lab}.exercise"))
    return {name: exercise.number for name, exercise in known.items() if exercise.number}


def run_cells(notebook: Any, exercise: str, answers: Any) -> None:
    """Run a notebook as Jupyter does up to the checks of `exercise`, with the cells of `answers`.

    Other exercises' checks are left out.
    """
    space: dict[str, Any] = {"__name__": "__main__"}
    for cell, answer in zip(notebook.cells, answers.cells, strict=True):
        role = cell.metadata.get("nbgrader", {})
        graded = role.get("grade") and role["grade_id"].startswith(f"{exercise}-")
        if cell.cell_type != "code" or role.get("grade") and not graded:
            continue
        exec(compile(answer.source if role.get("solution") else cell.source, "cell", "exec"), space)
        if graded:
            return
    raise AssertionError(f"{exercise} has no check")


def test_the_labs_that_draw_a_number_are_listed() -> None:
    found = {t.slug[:5]: list(list_numbers(t.slug[:5])) for t in LABS}
    assert {lab: names for lab, names in found.items() if names} == {
        lab: [name] for lab, name in NUMBERS.items()
    }


@pytest.mark.parametrize("lab", NUMBERS)
def test_last_years_answer_fails_by_its_number_even_under_the_new_names(lab: str) -> None:
    number = list_numbers(lab)[NUMBERS[lab]]
    ours = read(lab, WORD)
    with number.fix(number.values[0]):  # a student who has adapted the names, and nothing else
        usual = read(lab, WORD)
    with use_class_seed(WORD):
        run_cells(ours, NUMBERS[lab], ours)
        with pytest.raises(AssertionError):
            run_cells(ours, NUMBERS[lab], usual)


@pytest.mark.parametrize("target", LABS, ids=lambda target: target.slug[:5])
def test_every_function_that_a_learner_writes_bears_the_class_seed(target: sources.Target) -> None:
    usual, ours, again = (read(target.slug, word) for word in ("", WORD, "spring27"))
    shown = [cell for cell in ours.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    names = [n for c in shown for n in re.findall(r"^def (\w+)", c.source, re.MULTILINE)]
    asked = [c.source for c in ours.cells if c.metadata.get("nbgrader", {}).get("grade")]
    assert all(f"_{WORD}" in text or "_py, " in text for text in asked)
    assert [n for n in names if n.endswith(f"_{WORD}")]
    drawn = [
        re.findall(r"^SEED = (\d+)$", "\n".join(c.source for c in n.cells), re.MULTILINE)
        for n in (usual, ours, again)
    ]
    assert drawn[0] == ["2026"] and len({*map(tuple, drawn)}) == 3
    texts = "\n".join(c.source for c in ours.cells if c.cell_type == "markdown")
    for name in names:
        if name.endswith(f"_{WORD}"):  # the contract has it
            assert f"`{name}(" in texts, name


def test_a_number_without_its_phrase_in_the_source_is_refused() -> None:
    number = ClassNumber("rate", (1, 2), ("rate {}.",))
    with use_class_seed(WORD):
        assert number.replace("a rate 1.") == "a rate 2."
        with pytest.raises(Exception, match=r"rate: the lab's source doesn't have 'rate 1\.'"):
            number.replace("a rate of 1.")


# ---- a release, graded


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A release of two labs, as a class seed draws them."""
    folder = tmp_path_factory.mktemp("class") / "out"
    with use_class_seed(WORD):
        return make_release(ROOT, folder, ["lab01", "lab16"])


def test_the_students_tree_carries_the_word_and_no_answer(release: Any) -> None:
    assert (release.students / "distlab" / "class_seed.txt").read_text() == f"{WORD}\n"
    assert (
        f"os.environ['DISTLAB_CLASS_SEED'] = '{WORD}'"
        in (release.nbgrader / "nbgrader_config.py").read_text()
    )
    (path,) = (release.students / "labs").glob("lab16*")
    texts = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    assert not [t for t in texts if "HIDDEN TESTS" in t or "* width * L" in t]


def write_answers(lab: str, folder: Path, word: str) -> None:
    """Write a submission of `lab`, as the class `word` solved it."""
    notebook = read(lab, word)
    folder.mkdir(parents=True)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = sources.replace_regions(cell.source, "HIDDEN TESTS", "")
    (target,) = [t for t in LABS if t.slug.startswith(lab)]
    nbformat.write(notebook, folder / f"{target.slug}.ipynb")


@pytest.mark.parametrize("lab", ["lab01", "lab16"])
def test_distlab_grade_knows_the_class_and_remembers_it(
    lab: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    need_sandbox()
    monkeypatch.chdir(ROOT)
    write_answers(lab, tmp_path / "in" / "honest", WORD)
    write_answers(lab, tmp_path / "in" / "pasted", "")
    write_answers(lab, tmp_path / "in" / "earlier", "spring26")
    report = ["--output", str(tmp_path / "out")]

    def grade(*more: str) -> dict[str, float]:
        assert main(["grade", lab, *more, *report, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        return {s["student"]: s["mark"] / s["max"] for s in found["submissions"]}

    expected = {"honest": 1, "pasted": 0, "earlier": 0}
    assert grade(str(tmp_path / "in"), "--class-seed", WORD) == expected
    assert grade() == expected  # the word is remembered
    shutil.rmtree(tmp_path / "in" / "earlier")
    assert grade("--class-seed", "none") == {"honest": 0, "pasted": 1}
