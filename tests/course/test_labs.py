"""Every lab and its solution: stock nbgrader, the generated files, what a lab must not show."""

import json
import shutil
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from child_programs import run_child
from lab_runner import LABS, get_lab
from notebook_style import check_graded_cell

from distlab.authoring import sources
from distlab.authoring.build import find_stale
from distlab.exercises.predict import show_guess
from distlab.labs.lab01 import exercise as lab01

NONSENSE = ["None", "'?'", "7", "[]", "{}", "[[1], [2, 3]]", "float('nan')", "np.zeros((2, 2))"]
FUNCTIONS = {
    "epoch": "plan_epoch",
    "batches": "replica_batch_sizes",
    "parallelism": "choose_parallelism",
    "scaling": "choose_replicas",
}


@pytest.mark.parametrize("exercise", FUNCTIONS)
def test_nonsense_is_refused_in_words(exercise: str) -> None:
    lab = get_lab("lab01")
    for nonsense in NONSENSE:
        text = f"import numpy as np\ndef {FUNCTIONS[exercise]}(*case):\n    return {nonsense}\n"
        outcome = lab.try_answer(exercise, text, seed=7)
        for said in (outcome.visible, outcome.judged):
            assert isinstance(said, AssertionError)
            assert "should give" in str(said)


@pytest.mark.parametrize("exercise", FUNCTIONS)
def test_an_answer_that_raises_gets_no_mark(exercise: str) -> None:
    text = f"def {FUNCTIONS[exercise]}(*case):\n    raise KeyError(case)\n"
    outcome = get_lab("lab01").try_answer(exercise, text, seed=7)
    assert isinstance(outcome.visible, KeyError)
    assert outcome.judged is not None


@pytest.mark.parametrize("target", LABS, ids=lambda t: t.slug)
def test_graded_cells_have_their_four_parts(target: sources.Target) -> None:
    for cell in get_lab(target.slug.split("-")[0]).graded.values():
        assert list(check_graded_cell(cell.source)) == []


def test_check_says_the_number_given_and_the_number_wanted() -> None:
    with pytest.raises(AssertionError) as caught:
        lab01.EPOCH.check(
            lambda examples, batch: (np.int64(examples // batch), examples % batch or batch)
        )
    assert str(caught.value).startswith("plan_epoch(66, 32) gave [2, 2], should give [3, 2]: steps")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((None, 4.0, "x"), "measured: 4.0 times"),
        ((2, 4.0, "×"), "you said 2, measured: 4.0 times"),
        (("  ", 3), "measured: 3"),
        (("ring", "tree"), "you said ring, measured: tree"),
        ((1, np.float32(0.125), "%"), "you said 1, measured: 0.125%"),
        ((900, 12345.6, "images/s"), "you said 900, measured: 12,346 images/s"),
        ((None, 1628320, " bytes"), "measured: 1,628,320 bytes"),
        ((True, np.bool_(False)), "you said True, measured: False"),
        ((None, 2.5, "$"), "measured: $2.5"),
    ],
)
def test_show_guess_prints_one_stable_line(arguments: tuple, said: str, capsys) -> None:
    show_guess(*arguments)
    assert capsys.readouterr().out == said + "\n"


@pytest.mark.parametrize("target", LABS, ids=lambda t: t.slug)
def test_committed_lab_and_solution_are_what_the_source_generates(target: sources.Target) -> None:
    assert find_stale(target) == []


@pytest.mark.parametrize("target", LABS, ids=lambda t: t.slug)
def test_lab_gives_nothing_away(target: sources.Target) -> None:
    lab = target.lab.read_text(encoding="utf-8")
    cells = json.loads(lab)["cells"]
    shown = "\n".join("".join(c["source"]) for c in cells)
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    assert "HIDDEN TESTS" not in shown
    assert "SOLUTION" not in shown
    for cell in sources.read_source(target).cells:
        for name in ("SOLUTION", "HIDDEN TESTS") if cell.cell_type == "code" else ():
            secret = sources.region_text(cell.source, name).split("\n")
            lines = [line.strip() for line in secret if len(line.strip()) > 12]
            assert not set(lines) & {line.strip() for line in code.split("\n")}
            given = [line for line in lines if line in shown]  # a hint may name a call or two
            assert len(given) <= max(2, len(lines) // 3), given


@pytest.mark.parametrize("target", LABS, ids=lambda t: t.slug)
def test_only_code_that_is_no_check_can_be_edited_and_no_exercise_deleted(target) -> None:
    for cell in json.loads(target.lab.read_text(encoding="utf-8"))["cells"]:
        role, metadata = cell["metadata"].get("nbgrader", {}), cell["metadata"]
        fixed = cell["cell_type"] == "markdown" or bool(role.get("grade"))
        assert metadata.get("editable", True) is not fixed
        assert metadata.get("deletable", True) is not (fixed or bool(role.get("solution")))


@pytest.mark.parametrize("target", LABS, ids=lambda t: t.slug)
def test_every_check_cell_of_a_lab_as_given_out_says_that_nothing_is_written(target) -> None:
    lab = get_lab(target.slug.split("-")[0])
    raised = lab.try_stubs(sources.make_lab(sources.read_source(target)))
    assert list(raised) == list(lab.graded)
    assert not [said for said in raised.values() if "NotImplementedError" not in said]


def test_stock_nbgrader_validates_a_lab_and_its_solution(tmp_path: Path) -> None:
    """Of one lab, as learners may do it; test_nbgrader_stock autogrades others, too."""
    target = LABS[0]
    paths = [shutil.copy(path, tmp_path) for path in (target.lab, target.notebook)]
    nbgrader = Path(sys.executable).parent / "nbgrader"
    done = run_child(nbgrader, "validate", "--Execute.timeout=180", *paths, cwd=tmp_path)
    cells = len(get_lab(target.slug.split("-")[0]).graded)
    failed, passed = done.stdout.split("Success! Your notebook passes all the tests.")
    assert f"VALIDATION FAILED ON {cells} CELL(S)" in failed and "NotImplementedError" in failed
    assert not passed.strip()


@pytest.mark.parametrize("target", LABS, ids=lambda t: t.slug)
def test_stock_nbgrader_reads_the_metadata(target: sources.Target) -> None:
    validators = pytest.importorskip("nbgrader.nbgraderformat.v3")
    for path in (target.lab, target.notebook):
        validators.MetadataValidatorV3().validate_nb(nbformat.read(path, as_version=4))
