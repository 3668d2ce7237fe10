"""Right answers in damaged notebooks keep the marks that can be justified; what was done is said.

All damaged notebooks are graded in one run.
"""

import copy
import gzip
import json

import pytest
from grading_notebooks import LAB, RIGHT, fill, make_code, read_stub, write

from distlab.grading.alignment import drop_hidden
from distlab.grading.executor import observe
from distlab.grading.judge_process import JudgeProcess
from distlab.grading.notebook_file import Unreadable, read_notebook
from distlab.grading.observation import Submission

IDS = [e.id for e in LAB.exercises]


def find(notebook, name):
    cells = notebook["cells"]
    return next(
        k for k, c in enumerate(cells) if c["metadata"].get("nbgrader", {}).get("grade_id") == name
    )


def strip_metadata(notebook):
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        cell.pop("id", None)
    return notebook


def split(notebook, name, line, keep_metadata=True):
    k = find(notebook, name)
    cell = notebook["cells"][k]
    lines = cell["source"].strip("\n").split("\n")
    second = copy.deepcopy(cell) if keep_metadata else make_code("")
    cell["source"], second["source"] = "\n".join(lines[:line]), "\n".join(lines[line:])
    notebook["cells"].insert(k + 1, second)
    return notebook


def merge(notebook, first, second):
    a, b = find(notebook, first), find(notebook, second)
    notebook["cells"][a]["source"] += "\n" + notebook["cells"][b]["source"]
    del notebook["cells"][b]
    return notebook


def turn_to(notebook, name, kind):
    cell = notebook["cells"][find(notebook, name)]
    cell["cell_type"] = kind
    cell.pop("outputs", None)
    cell.pop("execution_count", None)
    return notebook


def duplicate(notebook, name, text=None):
    k = find(notebook, name)
    other = copy.deepcopy(notebook["cells"][k])
    other["source"] = text or other["source"]
    notebook["cells"].insert(k + 1, other)
    return notebook


def delete(notebook, *names):
    for name in names:
        del notebook["cells"][find(notebook, name)]
    return notebook


def delete_given(notebook):
    notebook["cells"] = [
        c for c in notebook["cells"] if "import numpy as np\n\nfrom" not in "".join(c["source"])
    ]
    return notebook


def reverse(notebook):
    notebook["cells"].reverse()
    return notebook


def move_to_end(notebook, name):
    cells = notebook["cells"]
    cells.append(cells.pop(find(notebook, name)))
    return notebook


def fill_outputs(notebook):
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["execution_count"] = 7
            cell["outputs"] = [{"output_type": "stream", "name": "stderr", "text": ["x" * 300_000]}]
    return notebook


def make_old(notebook):
    """Format 3: worksheets, `input`, no ids, headings of their own."""
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cells.append(
                {
                    "cell_type": "code",
                    "input": cell["source"].splitlines(True),
                    "language": "python",
                    "outputs": [],
                    "prompt_number": 1,
                }
            )
        else:
            cells.append({"cell_type": "markdown", "source": cell["source"]})
    cells.append({"cell_type": "heading", "level": 1, "source": "The end"})
    return {
        "worksheets": [{"cells": cells}],
        "nbformat": 3,
        "nbformat_minor": 0,
        "metadata": {"name": ""},
    }


def change(notebook, **metadata):
    notebook["metadata"].update(metadata)
    return notebook


def edit(notebook, name, old, new):
    cell = notebook["cells"][find(notebook, name)]
    source = "".join(cell["source"])
    assert old in source
    cell["source"] = source.replace(old, new)
    return notebook


def above(notebook, text, name="epoch"):
    """Put `text` at the head of an answer's cell, as a student would."""
    cell = notebook["cells"][find(notebook, name)]
    cell["source"] = text + "\n" + "".join(cell["source"])
    return notebook


HEADS = {  # lines that run, or don't, in the student's own Jupyter, and that no answer needs
    "a magic": "%matplotlib inline",
    "a magic as nbconvert writes it": "get_ipython().run_line_magic('matplotlib', 'inline')",
    "pip by magic": "%pip install seaborn",
    "pip in a shell": "!pip install -q seaborn",
    "a shell command": "!ls -l | head",
    "a shell command by hand": "get_ipython().system('ls')",
    "a list of files": "files = !ls\nprint(files)",
    "time": "%%time",
    "capture": "%%capture",
    "a package that is not here": "import seaborn as sns\nsns.set_theme()",
    "a module of the student's own": "from my_helpers import *",
    "a file of the student's own": "import json\nsettings = json.load(open('settings.json'))",
    "Colab": "from google.colab import drive\ndrive.mount('/content/drive')",
    "a question": "input('your name? ')",
    "help": "plan_epoch?",
}


def add_cells(notebook):
    for k in (0, 3, 7, len(notebook["cells"])):
        notebook["cells"].insert(k, make_code(f"x{k} = plan_epoch(66, {k + 8}) if {k} > 6 else 1"))
    notebook["cells"].insert(2, make_code("1 / 0"))
    notebook["cells"].insert(5, make_code("this is no Python"))
    notebook["cells"].insert(5, make_code("raise SystemExit"))
    notebook["cells"].insert(6, make_code("!echo shell; ls\n%time pass"))
    notebook["cells"].insert(6, make_code('%%bash\necho "if [ 1 ]; then"'))
    warn = "import sys, warnings\nwarnings.warn('a warning')\nprint('red', file=sys.stderr)"
    notebook["cells"].insert(6, make_code(warn))
    return notebook


STUBS = {
    c["metadata"]["nbgrader"]["grade_id"]: "".join(c["source"])
    for c in read_stub()["cells"]
    if c["metadata"].get("nbgrader", {}).get("solution")
}
# name: (damage, a word of what is said, None where there is nothing to say)
DAMAGE = {
    "nothing": (lambda n: n, None),
    "a check duplicated": (lambda n: duplicate(n, "epoch-test"), None),
    "an answer duplicated": (lambda n: duplicate(n, "epoch"), None),
    "the empty answer cell after it": (lambda n: duplicate(n, "epoch", STUBS["epoch"]), None),
    "a check deleted": (lambda n: delete(n, "epoch-test"), "put back"),
    "all checks deleted": (lambda n: delete(n, *(f"{i}-test" for i in IDS)), "put back"),
    "the imports deleted": (delete_given, None),
    "an answer split": (lambda n: split(n, "parallelism", 3), "joined"),
    "an answer split, and no id": (lambda n: split(n, "scaling", 3, False), "joined"),
    "an answer in three": (lambda n: split(split(n, "scaling", 2), "scaling", 1), "joined"),
    "a check split": (lambda n: split(n, "scaling-test", 6), None),
    "a check split, and no id": (lambda n: split(n, "batches-test", 4, False), None),
    "answer and check merged": (lambda n: merge(n, "epoch", "epoch-test"), "taken apart"),
    "two answers merged": (lambda n: merge(n, "epoch", "batches"), None),
    "everything merged": (
        lambda n: merge(
            merge(merge(n, "epoch", "epoch-test"), "epoch", "batches"), "epoch", "batches-test"
        ),
        "taken apart",
    ),
    "reversed": (reverse, "run after it"),
    "an answer moved to the end": (lambda n: move_to_end(n, "epoch"), "run after it"),
    "an answer turned to markdown": (lambda n: turn_to(n, "epoch", "markdown"), "run as code"),
    "an answer turned to raw": (lambda n: turn_to(n, "scaling", "raw"), "run as code"),
    "a check turned to markdown": (lambda n: turn_to(n, "epoch-test", "markdown"), "put back"),
    "metadata and ids lost": (strip_metadata, None),
    "metadata lost, and merged": (
        lambda n: strip_metadata(merge(n, "epoch", "epoch-test")),
        "taken apart",
    ),
    "metadata lost, and reversed": (lambda n: reverse(strip_metadata(n)), "run after it"),
    "extra cells": (add_cells, None),
    "another kernel": (
        lambda n: change(n, kernelspec={"name": "ir", "language": "R"}),
        "written for a kernel of 'R'",
    ),
    "metadata that is none": (lambda n: {**n, "metadata": None}, None),
    "outputs full": (fill_outputs, None),
    "format 3": (make_old, "old notebook"),
    "format 4.0": (lambda n: {**strip_metadata(n), "nbformat_minor": 0}, None),
    "a check's text changed": (
        lambda n: edit(n, "epoch-test", "got_epochs = ", "got_epochs = [(3, 2)] or "),
        "changed",
    ),
    "a name of the lab's overwritten": (
        lambda n: {
            **n,
            "cells": [*n["cells"][:6], make_code("np = lab01 = SEED = None"), *n["cells"][6:]],
        },
        None,
    ),
}
DAMAGE |= {
    f"{name} above an answer": (lambda n, text=text: above(n, text), None)
    for name, text in HEADS.items()
}
TEXTS = {
    "Windows line ends": (lambda t: t.replace("\\n", "\\r\\n"), None),
    "old Mac line ends": (lambda t: t.replace("\\n", "\\r"), None),
    "a file of Windows": (
        lambda t: json.dumps(json.loads(t), indent=1).replace("\n", "\r\n"),
        None,
    ),
    "a byte order mark": (lambda t: "\ufeff" + t, "byte order mark"),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    handed = []
    for k, (name, (damage, _)) in enumerate(DAMAGE.items()):
        path = write(damage(fill(RIGHT)), folder / f"{k}.ipynb")
        handed.append(Submission(name, path))
    for k, (name, (damage, _)) in enumerate(TEXTS.items()):
        path = folder / f"text{k}.ipynb"
        path.write_bytes(damage(json.dumps(fill(RIGHT))).encode())
        handed.append(Submission(name, path))
    lost = delete(fill(RIGHT), "batches")
    handed.append(Submission("an answer deleted", write(lost, folder / "lost.ipynb")))
    both = delete(fill(RIGHT), "scaling", "scaling-test")
    handed.append(Submission("an exercise deleted", write(both, folder / "both.ipynb")))
    handed.append(Submission("untouched", write(read_stub(), folder / "untouched.ipynb")))
    utf16 = folder / "utf16.ipynb"
    utf16.write_bytes(json.dumps(fill(RIGHT)).encode("utf-16"))
    handed.append(Submission("UTF-16", utf16))
    with JudgeProcess(LAB) as bench:
        return {o.student: (o, bench.judge(o)) for o in observe(LAB, handed, lambda s: 99)}


@pytest.mark.parametrize("name", [*DAMAGE, *TEXTS])
def test_the_marks_stay_and_what_was_done_is_said(graded, name):
    observation, verdict = graded[name]
    assert verdict.mark == verdict.max == LAB.points, (verdict, observation.cells)
    said = {**DAMAGE, **TEXTS}[name][1]
    notes = " / ".join(observation.notes)
    assert said in notes if said else notes == "", notes
    assert not verdict.for_human


def test_hidden_tests_are_left_out_and_many_beginnings_take_no_time():
    hidden = "### BEGIN HIDDEN TESTS\nassert False\n### END HIDDEN TESTS"
    assert drop_hidden(f"a = 1\n{hidden}\nb = 2\n{hidden}") == "a = 1\nb = 2\n"
    begun = "### BEGIN HIDDEN TESTS\n" * 20_000
    assert drop_hidden(begun) == begun


def test_an_answer_that_is_not_there_is_said_and_costs_nobody_else(graded):
    for name, exercise in (("an answer deleted", "batches"), ("an exercise deleted", "scaling")):
        verdict = graded[name][1]
        marks = {e.id: e for e in verdict.exercises}
        assert marks[exercise].points == 0 and marks[exercise].status == "wrong"
        assert "no cell of the notebook defines" in marks[exercise].message
        assert verdict.mark == LAB.points - marks[exercise].max
        assert any(exercise in note for note in verdict.notes)


def test_the_untouched_lab_has_no_marks_and_says_why(graded):
    verdict = graded["untouched"][1]
    assert verdict.mark == 0 and not verdict.for_human and verdict.notes == ()
    assert {e.message for e in verdict.exercises} == {"this exercise is not written yet"}


def test_another_encoding_is_read(graded):
    assert graded["UTF-16"][1].mark == LAB.points


def test_warnings_on_stderr_cost_nothing_and_extra_cells_stop_nothing(graded):
    observation = graded["extra cells"][0]
    assert all(cell.status == "ok" for cell in observation.cells)


@pytest.mark.parametrize(
    "encode",
    [
        lambda t: t.encode("utf-16-le"),
        lambda t: t.encode("utf-16-be"),
        lambda t: t.encode("utf-32"),
        lambda t: t.encode("utf-32-le"),
        lambda t: t.encode() + b"\0" * 700,
        lambda t: b"\xef\xbb\xbf" + t.encode(),
    ],
)
def test_a_file_in_another_encoding_is_read_and_said(encode):
    text = json.dumps(
        fill({"epoch": "# ein Schlüssel, ключ\n" + RIGHT["epoch"]}), ensure_ascii=False
    )
    found = read_notebook(encode(text))
    plain = read_notebook(text.encode())
    assert found.cells == plain.cells and plain.notes == () and len(found.notes) == 1
    with pytest.raises(Unreadable):
        read_notebook(encode(text)[:700])


@pytest.mark.parametrize(
    "damage",
    [
        gzip.compress,
        lambda t: b"version https://git-lfs.github.com/spec/v1\nsize 9\n",
        lambda t: b"<!DOCTYPE html><title>Sign in</title>",
        lambda t: b"// mine\n" + t,
        lambda t: t[:-900],
        lambda t: t + t,
        lambda t: t + b",",
        lambda t: b"",
    ],
)
def test_what_may_be_no_notebook_waits_for_a_human_with_a_reason(damage):
    with pytest.raises(Unreadable, match="isn't JSON, so it isn't a notebook|is empty"):
        read_notebook(damage(json.dumps(fill(RIGHT)).encode()))
