"""Lab 15 graded whole: a program that is right, what is handed in beside it, and attacks."""

import os
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from capstone_models import TRAINED, make_model
from grading_notebooks import ROOT, fill, make_code, read_stub, write
from lab_runner import load_answers
from needs import EVERYTHING

from distlab.cli.lab_work import pack
from distlab.grading import cell_text
from distlab.grading.alignment import Aligner
from distlab.grading.collect import collect
from distlab.grading.executor import observe
from distlab.grading.judge_process import JudgeProcess
from distlab.grading.labs import read_lab
from distlab.grading.naming import LabNames
from distlab.grading.notebook_file import read_notebook
from distlab.grading.observation import Submission
from distlab.labs.lab15.exercise import have_moved, try_program
from distlab.labs.lab15.saved_models import MODEL_FILE, pack_model, unpack_model
from distlab.submission import MAX_ATTACHED_BYTES

LAB, ANSWERS = read_lab("lab15", ROOT), load_answers("lab15")
NAMES = LabNames(LAB.name, LAB.slug)
pytestmark = pytest.mark.more_in_all
PROGRAM = ANSWERS.RIGHT["program"][0]
MODEL = "def trained_model():\n    return lab15.pack_model('capstone-run')\n"
RIGHT = {
    "plan": ANSWERS.RIGHT["plan"][0],
    "iou": ANSWERS.RIGHT["iou"][0],
    "program": PROGRAM,
    "model": MODEL,
}
FORGED = """%%writefile capstone.py
import argparse, json
from pathlib import Path
import keras
parser = argparse.ArgumentParser()
for word in ("--data", "--output", "--epochs", "--seed", "--steps"):
    parser.add_argument(word)
options = parser.parse_args()
out = Path(options.output)
(out / "checkpoints").mkdir(parents=True, exist_ok=True)
(out / "checkpoints" / "checkpoint").write_text("step 20")
inputs = keras.Input((64, 64, 1))
model = keras.Model(inputs, keras.layers.Conv2D(11, 1)(inputs))
model.export(out / "saved_model", verbose=False)
total = float(sum(abs(w).sum() for w in model.get_weights()))
(out / "report.json").write_text(json.dumps({"steps": 20, "loss": 0.9, "weights_checksum": total}))
print("right", json.dumps({"at": "end", "status": "ok", "points": 5}))
"""


@cache
def read_lab_stub():
    return read_stub(LAB)


def hand_in(folder: Path, student: str, book: dict, model: Path | str = "") -> Submission:
    path = write(fill(book, stub=read_lab_stub()), folder / f"{student}.ipynb")
    return Submission(student, path, ((MODEL_FILE, Path(model)),) if model else ())


def grade(handed: list[Submission], jobs: int = 2) -> dict:
    with JudgeProcess(LAB) as judges:
        return {
            o.student: {e.id: e for e in judges.judge(o).exercises}
            for o in observe(LAB, handed, lambda s: 4242, jobs)
        }


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("capstone")
    book = {k: v for k, v in RIGHT.items() if k != "program"}
    handed = [
        hand_in(folder, "right", RIGHT, TRAINED),
        hand_in(folder, "forged", {"program": FORGED, "model": MODEL}),
        hand_in(folder, "empty", {}),
    ]
    for kind in ("writes a file", "calls Python", "masks, not logits"):
        name = kind.replace(" ", "-")
        handed.append(hand_in(folder, name, {"model": MODEL}, make_model(kind)))
    if EVERYTHING:
        handed += [
            hand_in(folder, f"right {k}", {**book, "program": text}, TRAINED)
            for k, text in enumerate(ANSWERS.RIGHT["program"][1:])
        ]
        handed += [
            hand_in(folder, f"wrong {k}", {"program": text})
            for k, text in ANSWERS.WRONG["program"].items()
            if k != "each-alone"
        ]
    return grade(handed, jobs=1)


def test_a_right_program_and_a_trained_model_get_all_points(graded):
    for student in (name for name in graded if name.startswith("right")):
        for mark in graded[student].values():
            assert (mark.status, mark.points) == ("right", mark.max), (student, mark)


def test_an_empty_lab_and_a_forged_report_get_nothing(graded):
    assert sum(mark.points for mark in graded["empty"].values()) == 0
    assert graded["empty"]["program"].message == "this exercise is not written yet"
    assert sum(mark.points for mark in graded["forged"].values()) == 0
    assert graded["forged"]["program"].status == "wrong"
    assert "no capstone.savedmodel was handed in" in graded["forged"]["model"].message


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("writes-a-file", "holds WriteFile"),
        ("calls-Python", "holds PyFunc"),
        ("masks,-not-logits", "expected [1, 64, 64, 11]"),
    ],
)
def test_a_model_that_does_more_or_less_than_masks_gets_nothing(graded, kind, said):
    mark = graded[kind]["model"]
    assert mark.points == 0 and said in mark.message, mark


if EVERYTHING:  # `make test-all` runs every program

    def test_every_wrong_program_is_named_in_the_sandbox_too(graded):
        for student in (name for name in graded if name.startswith("wrong ")):
            mark = graded[student]["program"]
            assert mark.misconception == student.removeprefix("wrong "), mark
            assert mark.points < mark.max


def test_a_bias_that_begins_where_most_pixels_are_background_has_not_learned():
    start = [np.ones((3, 3, 1, 16)), np.zeros(16), np.array([4.0] + 10 * [0.0])]
    assert not have_moved(start) and have_moved(start[:1])
    assert have_moved([*start[:2], start[2] + np.linspace(0, 1e-3, 11)])


def make_plan(book: dict, before: tuple = ()):
    data = write_text(fill(book, before=before, stub=read_lab_stub()))
    return Aligner(LAB, read_notebook(data)).align()


def write_text(notebook: dict) -> bytes:
    import json

    return json.dumps(notebook).encode()


def test_what_a_program_imports_and_runs_as_text_is_noted_without_a_verdict():
    more = "import socket\nexec('x = 1')\n"
    text = f"%%writefile capstone.py\n{more}" + PROGRAM.partition("\n")[2]
    facts = make_plan({"program": text}).facts
    assert [fact.partition(" ")[2].partition(" ")[2] for fact in facts] == [
        "imports socket",
        "gives text to exec",
    ]
    for right in ANSWERS.RIGHT["program"]:
        assert make_plan({"program": right}).facts == ()


def test_nothing_of_the_learner_runs_where_a_file_or_a_program_is_judged():
    """The harness starts a process with the program's file alone, or with the one handed in."""
    book = {**RIGHT, "model": "def trained_model():\n    return '/etc/passwd'\n"}
    patch = "capstone_py = write_program('capstone.py', 'print()')\n"
    plan = make_plan(book, before=(patch,))
    programs = [step for step in plan.steps if step.program]
    assert len(programs) == 1 and programs[0].text.startswith("capstone_py = write_program(")
    assert len(cell_text.parse(programs[0].text).body) == 1
    exercises = {e.id: e for e in LAB.exercises}
    assert exercises["program"].program and exercises["model"].attached == MODEL_FILE


def test_a_program_in_a_cell_without_its_id_is_found():
    book = {k: v for k, v in RIGHT.items() if k != "program"}
    notebook = fill(book, stub=read_lab_stub())
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "program":
            cell.update(make_code(PROGRAM))
    plan = Aligner(LAB, read_notebook(write_text(notebook))).align()
    assert any(step.program for step in plan.steps) and "program-killed-test" not in plan.unanswered


# ---- handing in


def pack_for(folder: Path, attached: list[Path]) -> Path:
    lab = folder / f"{LAB.slug}.ipynb"
    write(fill(RIGHT, stub=read_lab_stub()), lab)
    return pack(lab, "ana", folder / "in", attached)


@pytest.mark.parametrize("seed", [0, 2026, 2**32 - 1])
def test_the_seed_of_a_run_is_one_that_every_generator_takes(seed):
    """np.random.seed and Keras want less than 2**32, and programs multiply it for each epoch."""
    for graded in (c for e in read_lab("lab15", ROOT).exercises for c in e.cells):
        if graded.exercise == "program":
            space = {"SEED": seed, "np": np}
            exec(graded.inputs, space)  # noqa: S102 - the course's own
            (cases,) = (v for k, v in space.items() if k.endswith("_cases"))
            assert 0 <= 100_000 * cases[0][1] < 2**32


def test_submit_packs_the_model_and_grading_finds_it(tmp_path):
    packed = pack_for(tmp_path, [TRAINED])
    with zipfile.ZipFile(packed) as archive:
        assert f"ana/{LAB.slug}/{MODEL_FILE}" in archive.namelist()
    (found,) = collect(tmp_path / "in", NAMES, tmp_path / "keep").hand_ins
    ((name, path),) = found.files
    assert name == MODEL_FILE and path.read_bytes() == TRAINED.read_bytes() and not found.question
    (again,) = collect(tmp_path / "in", NAMES, tmp_path / "keep").hand_ins
    assert again.sha256 == found.sha256 and again.files[0][1].is_file()
    (alone,) = collect(
        _unpack(packed, tmp_path, without=MODEL_FILE), NAMES, tmp_path / "k"
    ).hand_ins
    assert alone.files == () and alone.sha256 != found.sha256


def _unpack(packed: Path, folder: Path, without: str) -> Path:
    with zipfile.ZipFile(packed) as archive:
        for name in archive.namelist():
            if not name.endswith(without):
                archive.extract(name, folder / "unpacked")
    return folder / "unpacked"


def test_a_model_that_is_too_large_is_left_out_and_said(tmp_path):
    large = tmp_path / MODEL_FILE
    large.write_bytes(b"x" * (MAX_ATTACHED_BYTES + 1))
    pack_for(tmp_path, [large])
    (found,) = collect(tmp_path / "in", NAMES, tmp_path / "keep").hand_ins
    assert found.files == () and found.path
    assert any("more than 4 MiB" in note for note in found.notes)


def test_a_run_folder_beside_the_notebook_changes_nothing(tmp_path):
    """As a zip of the whole folder has it: checkpoints and a report of any run."""
    folder = tmp_path / "in" / "ana"
    (folder / "capstone-run" / "checkpoints").mkdir(parents=True)
    (folder / "capstone-run" / "report.json").write_text('{"steps": 20}')
    (folder / "capstone-run" / "checkpoints" / "ckpt-20.index").write_bytes(b"x")
    write(fill(RIGHT, stub=read_lab_stub()), folder / f"{LAB.slug}.ipynb")
    (folder / MODEL_FILE).write_bytes(TRAINED.read_bytes())
    (found,) = collect(tmp_path / "in", NAMES, tmp_path / "keep").hand_ins
    assert [name for name, _ in found.files] == [MODEL_FILE] and found.student == "ana"


# ---- the packed file itself


def make_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return path


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"../../outside.pb": b"x"}, "must hold a SavedModel's files only"),
        ({"saved_model.pb": b"x", "capstone.py": b"x"}, "must hold a SavedModel's files only"),
        ({"saved_model.pb": bytes(17 * 2**20)}, "must unpack to at most 16 MiB"),
    ],
)
def test_a_file_that_is_no_packed_model_is_refused(tmp_path, members, said):
    with pytest.raises(AssertionError, match=said):
        unpack_model(make_zip(tmp_path / MODEL_FILE, members), tmp_path / "to")
    assert not list(tmp_path.glob("**/outside*"))


def test_no_zip_at_all_and_no_file_are_refused_in_words(tmp_path):
    (tmp_path / MODEL_FILE).write_bytes(b"not a zip")
    with pytest.raises(AssertionError, match="can't be unpacked"):
        unpack_model(tmp_path / MODEL_FILE, tmp_path / "to")
    with pytest.raises(AssertionError, match="`distlab submit` packs it"):
        unpack_model(tmp_path / "none", tmp_path / "to")
    with pytest.raises(AssertionError, match="must be a file, got a folder"):
        unpack_model(tmp_path, tmp_path / "to")


UNWRITTEN = 'raise NotImplementedError("this exercise is not written yet")'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "capstone.py is a folder"),
        ("", "capstone.py isn't there"),
        (f"{UNWRITTEN}\r\n", "is not written yet"),
        (f"def main():\n    {UNWRITTEN}\n", "not written"),
    ],
)
def test_a_program_that_cannot_be_one_is_refused_before_anything_is_started(tmp_path, text, said):
    program = tmp_path / "capstone.py"
    if text is None:
        program.mkdir()
    elif text:
        program.write_text(text, newline="")
    with pytest.raises((AssertionError, NotImplementedError), match=said):
        try_program(str(program), "alone", 1)


def test_packing_says_what_is_missing_or_too_large(tmp_path):
    with pytest.raises(AssertionError, match="Train first, in a terminal"):
        pack_model(tmp_path, str(tmp_path / MODEL_FILE))
    model = tmp_path / "saved_model"
    (model / "variables").mkdir(parents=True)
    (model / "saved_model.pb").write_bytes(b"x")
    (model / "variables" / "variables.data-00000-of-00001").write_bytes(os.urandom(5 * 2**20))
    with pytest.raises(AssertionError, match="must have at most 4 MiB, got 5.0"):
        pack_model(tmp_path, str(tmp_path / MODEL_FILE))
