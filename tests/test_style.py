"""The rules of `notebook_style`, on every committed notebook and on some made wrong on purpose."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import notebook_style
import pytest

from distlab.authoring import sources
from distlab.authoring.build import find_stale
from utils.errors import DistributedError

ROOT = Path(__file__).parents[1]
COMMITTED = [p for d in ("notebooks", "labs", "solutions") for p in (ROOT / d).glob("*.ipynb")]
LESSONS = [t for t in sources.find_targets(ROOT) if t.lab is None]
Notebook = dict[str, Any]

FIRST = """# Loss scaling

What each way to scale a loss does to the weights.

**Time:** 40 minutes · **Prerequisites:** nothing · **Hardware:** two CPU cores

## Objectives

- Compute the loss of one replica.
- Measure the ratio of two updates.
- Repair a loop."""
SET_UP = """from utils.environment import quiet_tensorflow, set_seeds
with quiet_tensorflow():
    import tensorflow as tf
from utils.devices import use_logical_devices
set_seeds(0)
devices = use_logical_devices(4)"""
LAST = """## Cheat sheet

```python
loss = 1
```

## Further reading

- [Custom training](https://example.org)

## The lab

You practice this in lab 99."""


def markdown(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def code(source: str, *outputs: Any, tags: tuple[str, ...] = ()) -> dict[str, Any]:
    cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": list(outputs)}
    return cell | {"metadata": {"tags": list(tags)} if tags else {}, "execution_count": None}


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def display(**data: str) -> dict[str, Any]:
    mimes = {"html": "text/html", "png": "image/png", "plain": "text/plain"}
    mimes["view"] = notebook_style.WIDGET_VIEW
    return {"output_type": "display_data", "data": {mimes[k]: v for k, v in data.items()}}


def good_lesson() -> Notebook:
    predict = [markdown("**Predict.** How much?"), code("my_guess = guess_number('Bytes', 0, 9)")]
    cells = [markdown(FIRST), code(SET_UP), code("import numpy as np")]
    cells += [*predict, code("show_guess(my_guess, 4)")] * 2
    cells += [markdown("Text."), code("x = 1"), code("assert x == 1")] * 4
    cells += [markdown("## The mistake: no scaling"), code("1 / 0", tags=("raises-exception",))]
    cells += [markdown("## What it costs"), code("print(4)", stream("4\n")), markdown(LAST)]
    cells = [copy.deepcopy(cell) for cell in cells]
    for count, cell in enumerate((c for c in cells if c["cell_type"] == "code"), start=1):
        cell["execution_count"] = count
    return {"cells": cells}


def check(notebook: Notebook) -> list[str]:
    return [
        *notebook_style.check_lesson(notebook),
        *notebook_style.check_prose(notebook, ROOT / "notebooks"),
        *notebook_style.check_code(notebook),
        *notebook_style.check_outputs(notebook),
        *notebook_style.check_lab_links(notebook, ROOT),
    ]


def test_good_lesson_passes() -> None:
    assert check(good_lesson()) == []


def replace(cell: int, old: str, new: str) -> Callable[[Notebook], None]:
    def change(notebook: Notebook) -> None:
        assert old in notebook["cells"][cell]["source"]
        source = notebook["cells"][cell]["source"]
        notebook["cells"][cell]["source"] = source.replace(old, new)

    return change


def delete(start: int, stop: int | None = None) -> Callable[[Notebook], None]:
    return lambda nb: nb["cells"].__delitem__(slice(start, stop or start + 1))


def add(source: str, *outputs: Any, tags: tuple[str, ...] = ()) -> Callable[[Notebook], None]:
    """Put a code cell that ran with these outputs before the last one."""

    def change(notebook: Notebook) -> None:
        cell = code(source, *outputs, tags=tags)
        cell["execution_count"] = notebook["cells"][-2]["execution_count"] + 1
        notebook["cells"].insert(len(notebook["cells"]) - 1, cell)

    return change


BROKEN = [
    (replace(10, "x = 1", "x = 1\n" * 31), "more than 30 lines"),
    (replace(10, "x = 1", "%%writefile a.py\n" + "x = 1\n" * 41), "more than 40 lines"),
    (replace(0, "# Loss scaling", "Loss"), "begin with a markdown cell"),
    (replace(0, "What each way to scale a loss does to the weights.", ""), "that says why"),
    (replace(0, "**Time:** 40 minutes", "40 minutes"), "write **Time:**"),
    (replace(0, "**Prerequisites:** ", ""), "write **Prerequisites:**"),
    (replace(0, "two CPU cores", "needs a GPU"), "needs a GPU"),
    (replace(0, "- Repair a loop.", ""), "2 objectives"),
    (replace(0, "Repair", "`x`: repair"), "2 objectives"),
    (replace(0, "## Objectives", "## Goals"), "no section `## Objectives`"),
    (replace(1, "set_seeds(0)", ""), "the set-up cell has no set_seeds("),
    (replace(10, "x = 1", "import os"), "import it in one of the first two code cells"),
    (replace(2, "import", "from utils import data\nimport"), "where they are first used"),
    (replace(3, "**Predict.** ", ""), "1 **Predict.** cells"),
    (replace(4, "my_guess = guess_number", "my_guess = None"), "after **Predict.** a code cell"),
    (replace(5, "show_guess(my_guess, 4)", "pass"), "2 **Predict.** cells (at least 2) and 1"),
    (replace(21, "## The mistake", "## An error"), "no section `## The mistake`"),
    (delete(22), "`## The mistake` holds no code cell"),
    (delete(24), "`## What it costs` holds no code cell"),
    (replace(25, "loss = 1", "loss = 1\n" * 11), "cheat sheet is one"),
    (replace(25, "[Custom training]", "[https://example.org]"), "by their names"),
    (replace(25, "lab 99", "a lab"), "names its lab"),
    (replace(25, "lab 99", "lab 01"), "link to ../labs/lab01-"),
    (replace(25, "https://example.org", "missing.ipynb"), "link to missing.ipynb"),
    (replace(25, "## Cheat sheet", "#### Cheat sheet"), "skips a level"),
    (replace(9, "Text.", "# Again"), "a second h1"),
    (replace(9, "Text.", "![](../README.md)"), "a picture without alt text"),
    (replace(9, "Text.", "<img src='../LICENSE'>"), "has no alt text"),
    (lambda nb: nb["cells"].insert(3, nb["cells"].pop(23)), "sections in another order"),
    (lambda nb: [c.update(source="x") for c in nb["cells"][9:]], "nothing is asserted"),
    (replace(10, "x = 1", "%%bash --bg\nls"), "%%bash --bg"),
    (replace(10, "x = 1", "time.sleep(1)"), "sleep("),
    (add("x", tags=("nbval-skip",)), "nbval-skip"),
    (add("x", tags=("nbval-ignore-output",)), "without an assertion"),
    (lambda nb: nb["cells"][10].update(execution_count=None), "execution count is not"),
    (add("x", stream("hm", "stderr")), "standard error"),
    (add("x", stream("see /home/ann/x.py")), "an absolute path: '/home/ann/x.py'"),
    (add("x", display(html="<b>/tmp/a</b>")), "an absolute path: '/tmp/a'"),
    (add("x", stream("<f at 0x7f0012345678>")), "an object's address"),
    (add("x", stream("1/4\r2/4")), "a progress bar"),
    (add("x", stream("157/157 ━━━━━━━━━ 1s 2ms/step")), "a progress bar"),
    (add("x", stream("40%|####     | 2/5")), "a progress bar"),
    (add("x", stream("2026-01-01 10:00:00.1: I tensorflow/core/x.cc:1")), "a log line"),
    (add("x", stream("WARNING:tensorflow:slow")), "a log line"),
    (add("x", stream("\x1b[31mred")), "a color code"),
    (add("x", {"output_type": "error", "ename": "E", "traceback": []}), "an error, E, without"),
    (add("x", display(png="aa", plain="<Figure>")), "image/png alone"),
    (add("x", display(html="<img src='data:x'>")), "has no alt text"),
    (add("x", display(html="<img alt='' src='data:x'>")), "has no alt text"),
    (add("x", display(html="<svg width='3'>")), "aria-label"),
    (add("x", display(view="v", plain="IntSlider()")), "view is stored"),
]


def test_each_breach_is_named() -> None:
    for change, said in BROKEN:
        notebook = good_lesson()
        change(notebook)
        assert [line for line in check(notebook) if said in line], said


@pytest.mark.parametrize(
    "change",
    [
        add("x", display(html="<img alt='four lines' src='data:image/png;base64,/tmp/ab+c='>")),
        add("x", display(png="aa", html="<img alt='four lines' src='x'>")),
        add("x", display(html='<svg role="img" aria-label="a ring">')),
        add("x", display(html="<img alt='a' src='x'>"), tags=("nbval-ignore-output",)),
        add("y = 1\nassert y", stream("0.1 s"), tags=("nbval-ignore-output",)),
        add("x", stream("/job:worker/replica:0/task:1 and https://a.org/home/x, 3/4 done")),
        add("x", stream("[CPU:0, CPU:1]\n7 it, 2 s")),
        add("%%writefile a.py\nimport os", stream("Writing a.py"), tags=("nbval-ignore-output",)),
    ],
)
def test_what_is_allowed_passes(change: Callable[[Notebook], None]) -> None:
    notebook = good_lesson()
    change(notebook)
    assert check(notebook) == []


def solution_parts() -> tuple[Notebook, Notebook]:
    (target,) = sources.choose_targets(sources.find_targets(ROOT), ["lab01"])
    return notebook_style.read_notebook(target.lab), notebook_style.read_notebook(target.notebook)


def edit(old: str, new: str) -> Callable[[Notebook], None]:
    def change(notebook: Notebook) -> None:
        cell = next(c for c in notebook["cells"] if old in c["source"])
        cell["source"] = cell["source"].replace(old, new)

    return change


BROKEN_LABS = [
    (edit("# Lab 01", "# 01"), "`# Lab NN …`"),
    (edit("SEED = 2026", "seed = 1"), "0 cells `SEED"),
    (edit("## Exercise 2", "## Exercise 3"), "exercises numbered [1, 3, 3, 4]"),
    (edit("**2 points · easy · 5 minutes**", ""), "exercise 1: no line **N points"),
    (edit("**Contract.**", ""), "exercise 1: no **Contract.**"),
    (edit("**Example.**", ""), "exercise 1: no **Example.**"),
    (edit("<summary>Hint 2</summary>", ""), "exercise 1: no <details> 'Hint 2'"),
    (edit("**3 points · ", "**4 points · "), "give 3 points, its heading says 4"),
    (edit("**Points:** 10", "**Points:** 11"), "11 points, and the exercises have 10"),
    (edit("**Time:** 35 minutes", "**Time:** 25 minutes"), "25 minutes, and the exercises take 35"),
    (edit("raise NotImplementedError", "pass #"), "the stub does not raise"),
    (lambda nb: nb["cells"][1].update(execution_count=1), "a lab carries no outputs"),
    (edit("SEED = 2026", "SEED = 2026\n### BEGIN HIDDEN TESTS"), "only the solution may hold"),
]


def test_each_breach_of_a_lab_is_named() -> None:
    for change, said in BROKEN_LABS:
        lab, _ = solution_parts()
        assert list(notebook_style.check_lab(lab)) == []
        change(lab)
        assert [line for line in notebook_style.check_lab(lab) if said in line], said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("### BEGIN INPUTS\n", "", None),
        ("### BEGIN INPUTS\n", "### BEGIN INPUTS\nlab01\n", "the inputs use lab01"),
        ("### BEGIN INPUTS\n", "### BEGIN INPUTS\nshare = 1\n", "the inputs set share"),
        ("### END HIDDEN", "plan_epoch\n### END HIDDEN", "the hidden tests use plan_epoch"),
        ("got_epochs = ", "given = ", "nothing is assigned to a got_"),
    ],
)
def test_graded_cell_has_its_parts(old: str, new: str, said: str | None) -> None:
    _, solution = solution_parts()
    source = next(c["source"] for c in solution["cells"] if "got_epochs" in c["source"])
    assert list(notebook_style.check_graded_cell(source)) == []
    changed = source.replace(old, new)
    if said is None:
        with pytest.raises(DistributedError, match="END INPUTS without its BEGIN"):
            list(notebook_style.check_graded_cell(changed))
    else:
        assert [line for line in notebook_style.check_graded_cell(changed) if said in line]


@pytest.mark.parametrize("path", COMMITTED, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_committed_notebook_keeps_the_style(path: Path) -> None:
    assert notebook_style.check_file(path) == []


@pytest.mark.parametrize("target", LESSONS, ids=lambda t: t.slug)
def test_committed_lesson_is_what_its_source_generates(target: sources.Target) -> None:
    assert find_stale(target) == []


@pytest.mark.parametrize("target", LESSONS[3:], ids=lambda target: target.source.stem)
def test_a_lesson_says_what_to_look_at_on_a_real_gpu(target: sources.Target) -> None:
    assert "\n# ## On a real GPU\n" in target.source.read_text(encoding="utf-8")


def test_no_notebook_without_a_source() -> None:
    assert sources.find_orphans(ROOT) == []


@pytest.mark.parametrize("target", sources.find_targets(ROOT), ids=lambda t: t.source.name)
def test_what_starts_tensorflow_stays_on_the_cpu_of_a_machine_with_gpus(
    target: sources.Target,
) -> None:
    """`use_logical_devices` hides GPUs: numbers and clusters are then the same everywhere."""
    text = target.source.read_text()
    if "\nimport tensorflow" in text or "    import tensorflow" in text:
        assert "use_logical_devices(" in text
