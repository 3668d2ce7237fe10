"""Sources to notebooks: regions, generation, execution, staleness."""

import argparse
import json
import os
import re
from pathlib import Path

import psutil
import pytest
from process_watch import wait_for

from distlab.authoring import build, outputs, sources
from distlab.cli import build as build_command
from utils.errors import DistributedError

LESSON = """# %% [markdown]
# # Tiny

# %%
import os, sys
print("a", flush=True)
print("b", flush=True)
os.path.basename(os.getcwd()), "PYTEST_CURRENT_TEST" in os.environ, "TF_CONFIG" in os.environ

# %% tags=["raises-exception"]
import json
json.loads("{")
"""
LAB = """# %% nbgrader={"grade_id": "double", "solution": true}
def double(x):
    if x:
        ### BEGIN SOLUTION
        return x + x
        ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "double-test", "points": 2}
### BEGIN INPUTS
x = 3
### END INPUTS
got_double = double(x)
### BEGIN HIDDEN TESTS
assert got_double == 6, "secret"
### END HIDDEN TESTS
"""


@pytest.fixture
def course(tmp_path: Path) -> Path:
    for folder in ("notebooks/src", "solutions/src", "labs"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def distlab_build(course: Path, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    build_command.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["build", "--root", str(course), *arguments])
    return parsed.run(parsed)


def write_lesson(course: Path, name: str, text: str) -> Path:
    (course / "notebooks" / "src" / f"{name}.py").write_text(text)
    return course / "notebooks" / f"{name.replace('_', '-')}.ipynb"


def test_regions_are_replaced_at_their_indentation() -> None:
    text = "def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION\nf()"
    assert sources.replace_regions(text, "SOLUTION", "# yours\npass") == (
        "def f():\n    # yours\n    pass\nf()"
    )
    assert sources.replace_regions(text, "SOLUTION", "") == "def f():\nf()"
    assert sources.replace_regions(text, "HIDDEN TESTS", "") == text
    assert sources.region_text(text, "SOLUTION") == "    return 1"


def test_build_makes_an_executed_notebook_and_only_when_needed(
    course: Path, capsys, monkeypatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    monkeypatch.setenv("TF_CONFIG", "{}")
    path = write_lesson(course, "00_tiny", LESSON)
    assert distlab_build(course, "--check") == 1
    printed = capsys.readouterr().out
    assert "notebooks/00-tiny.ipynb is missing" in printed and "0 of 1 up to date" in printed
    assert distlab_build(course) == 0
    text = path.read_text()
    notebook = json.loads(text)
    ids = [c["id"] for c in notebook["cells"]]
    assert len(set(ids)) == 3 and all(re.fullmatch("00-tiny-[0-9a-f]{6}", i) for i in ids)
    shown = notebook["cells"][1]["outputs"]
    assert [o["output_type"] for o in shown] == ["stream", "execute_result"]
    assert shown[0]["text"] == ["a\n", "b\n"]
    assert shown[1]["data"]["text/plain"] == ["('notebooks', True, False)"]
    error = notebook["cells"][2]["outputs"][0]
    assert error["ename"] == "JSONDecodeError"
    assert "\x1b" not in str(error)
    assert any(line.startswith("File python/json/") for line in error["traceback"])
    assert "version" not in notebook["metadata"]["language_info"]
    assert text.endswith("}\n")

    before = path.stat().st_mtime_ns
    assert distlab_build(course) == 0
    assert path.stat().st_mtime_ns == before
    assert distlab_build(course, "--check") == 0
    assert distlab_build(course, "--force", "00") == 0
    assert path.stat().st_mtime_ns != before
    assert path.read_text() == text, "two runs of one source differ"


def read_cells(path: Path) -> list[dict]:
    return json.loads(path.read_text())["cells"]


STAMPED = """# %% [markdown]
# # Tiny
#
# Once upon a time.

# %%
import time
time.time_ns()
"""


def test_words_change_without_a_run_and_nothing_else_does(course: Path, capsys) -> None:
    path = write_lesson(course, "00_tiny", STAMPED)
    assert distlab_build(course) == 0
    before = path.read_text()
    write_lesson(course, "00_tiny", STAMPED.replace("upon a time.", "more,\n# with feeling."))
    assert distlab_build(course, "--check") == 1
    assert "cell 0: source differ" in capsys.readouterr().out
    assert distlab_build(course) == 0
    assert re.search(r"00-tiny  \d\.\d s  built, outputs kept", capsys.readouterr().out)
    after = path.read_text()
    assert read_cells(path)[1] == json.loads(before)["cells"][1], "code and outputs as they were"
    assert "".join(read_cells(path)[0]["source"]) == "# Tiny\n\nOnce more,\nwith feeling."
    assert distlab_build(course, "--check") == 0
    write_lesson(course, "00_tiny", STAMPED)
    assert distlab_build(course) == 0 and path.read_text() == before != after
    write_lesson(course, "00_tiny", STAMPED.replace("time_ns()", "time_ns() + 1"))
    assert distlab_build(course, "--check") == 1
    assert "its code has changed since it ran" in capsys.readouterr().out
    assert distlab_build(course, "--keep-outputs") == 0
    assert read_cells(path)[1]["outputs"] == json.loads(before)["cells"][1]["outputs"]
    write_lesson(course, "00_tiny", STAMPED + "\n# %%\nnew = 1\n")
    assert distlab_build(course, "--keep-outputs") == 1
    assert "has no outputs for the new cell" in capsys.readouterr().out
    write_lesson(
        course, "00_tiny", STAMPED.replace("# %%\n", "# %%\nimport time\nfirst = 1\n\n# %%\n", 1)
    )
    assert distlab_build(course) == 0
    [stamp] = read_cells(path)[2]["outputs"]
    write_lesson(course, "00_tiny", STAMPED + "\n# %%\nimport time\nfirst = 1\n")
    assert distlab_build(course, "--keep-outputs") == 0, "with its cells in another order"
    moved = [{**stamp, "execution_count": 1}]
    assert [cell.get("outputs") for cell in read_cells(path)] == [None, moved, []]
    write_lesson(course, "00_tiny", STAMPED)
    assert distlab_build(course, "--keep-outputs") == 0, "without the other cell"
    assert [c.get("execution_count") for c in read_cells(path)] == [None, 1]
    assert distlab_build(course, "--force") == 0
    assert read_cells(path)[1]["outputs"] != json.loads(before)["cells"][1]["outputs"]


def test_a_head_that_names_jax_is_kept_and_starts_the_kernel_with_it(course: Path) -> None:
    head = '# %% [markdown] keras_backend="jax"\n# # On JAX\n\n'
    path = write_lesson(course, "24_on_jax", head + '# %%\nimport os\nos.environ["KERAS_BACKEND"]')
    assert distlab_build(course, "24") == 0
    notebook = json.loads(path.read_text())
    assert notebook["metadata"]["distlab"]["keras_backend"] == "jax"
    assert notebook["cells"][0]["metadata"] == {}
    assert "".join(notebook["cells"][1]["outputs"][0]["data"]["text/plain"]) == "'jax'"


def test_tag_that_lets_a_cell_raise_makes_it_run(course: Path) -> None:
    cell = '# %% tags=["nbval-ignore-output"]\nimport time\ntime.time_ns()\n'
    path = write_lesson(course, "00_tiny", cell)
    assert distlab_build(course) == 0
    (before,) = read_cells(path)
    write_lesson(course, "00_tiny", cell.replace(' tags=["nbval-ignore-output"]', ""))
    assert distlab_build(course) == 0
    (kept,) = read_cells(path)
    assert kept["outputs"] == before["outputs"] and kept["metadata"] == {}
    write_lesson(course, "00_tiny", cell.replace("nbval-ignore-output", "raises-exception"))
    assert distlab_build(course) == 0
    assert read_cells(path)[0]["outputs"] != before["outputs"]


def test_cell_that_is_put_between_leaves_the_others_ids(course: Path) -> None:
    cells = [f"# %%\nx = {k}\n" for k in range(3)] + ["# %%\nx = 1\n"]
    path = write_lesson(course, "00_tiny", "\n".join(cells))
    assert distlab_build(course) == 0
    before = [cell["id"] for cell in read_cells(path)]
    assert before[3] == before[1] + "-2", "the second cell that begins alike"
    write_lesson(course, "00_tiny", "\n".join([*cells[:2], "# %%\ny = 4\n", *cells[2:]]))
    assert distlab_build(course) == 0
    after = [cell["id"] for cell in read_cells(path)]
    assert [i for i in after if i in before] == before and len(set(after)) == 5


def test_change_of_an_imported_module_makes_no_notebook_stale(course: Path, capsys) -> None:
    (course / "utils").mkdir()
    (course / "utils" / "depth.py").write_text("DEPTH = 3\n")
    cell = "# %%\nimport sys\nsys.path[:0] = ['..']\nfrom utils.depth import DEPTH\nDEPTH\n"
    path = write_lesson(course, "00_tiny", cell)
    assert distlab_build(course) == 0
    before = path.read_text()
    (course / "utils" / "depth.py").write_text("DEPTH = 2 + 2\n")  # Python compares sizes
    assert distlab_build(course, "--check") == 0 and distlab_build(course) == 0
    assert path.read_text() == before, "nbval finds what has changed"
    assert distlab_build(course, "--force") == 0
    assert read_cells(path)[0]["outputs"][0]["data"]["text/plain"] == ["4"]


def test_check_finds_what_was_edited_by_hand(course: Path, capsys) -> None:
    path = write_lesson(course, "00_tiny", "# %%\nprint(1)\n\n# %%\nprint(2)\n")
    assert distlab_build(course) == 0
    good = json.loads(path.read_text())
    edits = {
        "cell 1: source differ": lambda nb: nb["cells"][1].update(source=["print(3)"]),
        "cell 0: id differ": lambda nb: nb["cells"][0].update(id="other"),
        "cell 0: metadata differ": lambda nb: nb["cells"][0].update(metadata={"tags": ["x"]}),
        "cell 1: has not run": lambda nb: nb["cells"][1].update(execution_count=None),
        "1 cells, the source has 2": lambda nb: nb["cells"].pop(),
        "its code has changed since it ran": lambda nb: nb["metadata"].pop("distlab"),
        "notebook metadata differ": lambda nb: nb["metadata"].update(extra=1),
        "cannot be read": None,
    }
    for said, edit in edits.items():
        notebook = json.loads(json.dumps(good))
        if edit:
            edit(notebook)
        path.write_text(json.dumps(notebook) if edit else "{")
        assert distlab_build(course, "--check") == 1
        assert said in capsys.readouterr().out
    (course / "notebooks" / "src" / "00_tiny.py").rename(course / "notebooks/src/00_other.py")
    assert distlab_build(course, "--check") == 1
    printed = capsys.readouterr().out
    assert "00-tiny.ipynb: its source is gone" in printed
    assert "00-other.ipynb is missing" in printed


def test_failures_name_the_cell_and_leave_the_old_notebook(course: Path, capsys) -> None:
    sleeper = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', "
    sleeper += f"'import time; time.sleep(600)', {str(course)!r}], start_new_session=True)\n"
    wrong = {
        "01_raises": ("# %%\nx = 1\n\n# %%\n1 / 0\n", "cell 1 (1 / 0): ZeroDivisionError"),
        "02_noisy": (
            "# %%\nimport sys\nsys.stderr.write('hm')\n",
            "cell 0 must not write to standard",
        ),
        "03_slow": (f"# %% seconds=8\n{sleeper}import time\ntime.sleep(600)\n", "more than 8 s"),
        "04_dies": ("# %%\nimport os\nos._exit(3)\n", "the kernel died"),
        "05_marker": ("# %%\n### BEGIN SOLUTION\n", "05_marker.py:2: SOLUTION must end"),
    }
    paths = {name: write_lesson(course, name, text) for name, (text, _) in wrong.items()}
    for path in paths.values():
        path.write_text("old")
    targets = sources.find_targets(course)
    results = {result.slug: result.error for result in build.build_all(targets, course)}
    for name, (_, said) in wrong.items():
        assert said in results[paths[name].stem]
        assert paths[name].read_text() == "old"
    assert sorted(p.name for p in (course / "notebooks").iterdir()) == sorted(
        ["src", *(p.name for p in paths.values())]
    )
    wait_for(lambda: not [p for p in psutil.process_iter() if str(course) in _command_line(p)])
    (course / "notebooks" / "src" / "05_marker.py").unlink()
    assert distlab_build(course, "01") == 1
    assert "01-raises  " in capsys.readouterr().out


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_whole_notebook_has_a_time_limit(course: Path, monkeypatch) -> None:
    monkeypatch.setattr(build, "CELL_SHARE", 300)  # far from a cell's own limit
    write_lesson(course, "00_long", "# %%\nimport time\ntime.sleep(600)\n")
    (result,) = build.build_all(sources.find_targets(course), course, seconds=3.0)
    assert "the notebook took more than 3 s" in result.error


def test_a_cell_may_ask_for_more_time_than_the_whole_notebook_has(course: Path) -> None:
    longer = "# %% seconds=200\nimport time\ntime.sleep(0.2)\n\n" * 6
    write_lesson(course, "00_long", longer)
    (result,) = build.build_all(sources.find_targets(course), course, seconds=1.0)
    assert result.error == ""


def test_leaving_early_kills_what_runs(course: Path) -> None:
    write_lesson(course, "00_quick", "# %%\nx = 1\n")
    write_lesson(course, "01_slow", "# %%\nwhile True: pass\n")
    results = build.build_all(sources.find_targets(course), course, seconds=60)
    assert next(results).slug == "00-quick"
    results.close()
    own = psutil.Process()
    wait_for(lambda: not [p for p in own.children(True) if "ipykernel" in str(_command_line(p))])


DAEMON = """# %%
import os, signal, subprocess, sys
from utils.processes.keeper import keep_marked
from utils.processes.registry import MARK_VARIABLE

signal.signal(signal.SIGINT, signal.SIG_IGN)  # it does not tidy up before it is killed
with keep_marked() as mark:
    daemon = "import os, sys, time; os.fork() and os._exit(0); os.setsid(); time.sleep(600)"
    marked = os.environ | {MARK_VARIABLE: mark.value}
    subprocess.run([sys.executable, "-c", daemon, "left-by-a-lesson"], env=marked)
    while True:
        pass
"""


def test_a_daemon_of_a_killed_notebook_is_ended_by_its_keeper(course: Path) -> None:
    write_lesson(course, "00_daemon", DAEMON)
    (result,) = build.build_all(sources.find_targets(course), course, seconds=8.0)
    assert "took more than" in result.error
    wait_for(lambda: not any("left-by-a-lesson" in _command_line(p) for p in psutil.process_iter()))


def test_lab_holds_no_solution_and_no_hidden_test(course: Path) -> None:
    (course / "solutions" / "src" / "lab01_double.py").write_text(LAB)
    assert distlab_build(course, "lab01") == 0
    text = (course / "labs" / "lab01-double.ipynb").read_text()
    assert "secret" not in text
    assert "x + x" not in text
    lab = json.loads(text)
    stub = "".join(lab["cells"][0]["source"])
    assert '\n        raise NotImplementedError("' in stub
    assert "### BEGIN INPUTS" in "".join(lab["cells"][1]["source"])
    assert lab["cells"][1]["metadata"]["nbgrader"] == {
        "grade": True,
        "grade_id": "double-test",
        "locked": True,
        "points": 2,
        "schema_version": 3,
        "solution": False,
        "task": False,
    }
    assert all(c["outputs"] == [] and c["execution_count"] is None for c in lab["cells"])
    solution = json.loads((course / "solutions" / "lab01-double-solution.ipynb").read_text())
    assert solution["cells"][1]["execution_count"] == 2
    (course / "labs" / "lab01-double.ipynb").write_text(text.replace("x = 3", "x = 4"))
    assert distlab_build(course, "--check") == 1
    assert distlab_build(course) == 0
    assert (course / "labs" / "lab01-double.ipynb").read_text() == text


def test_names_choose_targets(course: Path) -> None:
    write_lesson(course, "03_mirrored_keras", "# %%\n")
    write_lesson(course, "04_loop", "# %%\n")
    targets = sources.find_targets(course)
    for name in ("03", "03-mirrored-keras", "mirrored_keras", "03_mirrored_keras.py"):
        assert [t.slug for t in sources.choose_targets(targets, [name])] == ["03-mirrored-keras"]
    assert sources.choose_targets(targets, []) == targets
    with pytest.raises(DistributedError, match="one of 03, 04, or a slug, got '05'"):
        sources.choose_targets(targets, ["05"])
    write_lesson(course, "3_Bad", "# %%\n")
    with pytest.raises(DistributedError, match="3_Bad.py"):
        sources.find_targets(course)


def test_machine_paths_get_short_names(tmp_path: Path) -> None:
    names = outputs.path_names(tmp_path)
    library = os.path.dirname(os.path.dirname(pytest.__file__))
    text = f"\x1b[31m{library}/keras/x.py\x1b[0m {tmp_path}/utils/a.py {tmp_path}x"
    assert (
        outputs.shorten_paths(text, names)
        == f"site-packages/keras/x.py course/utils/a.py {tmp_path}x"
    )
