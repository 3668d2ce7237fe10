"""`distlab lab`: a real server, its settings, its end, and the course home in a real browser."""

import contextlib
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from lab_server import END_SECONDS, Lab
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from process_watch import lives, wait_for

from distlab.cli import lab, make_parser
from distlab.home.server import trust_notebooks
from utils.errors import DistributedError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course folder with a home page and notebooks."""
    folder = tmp_path_factory.mktemp("course")
    (folder / "notebooks").mkdir()
    (folder / "labs").mkdir()
    (folder / "README.md").write_text("# The course\n\n[First](notebooks/01-first.ipynb)\n")
    cells = [new_markdown_cell("# First"), new_code_cell("a = 1")]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    for name in ("notebooks/01-first", "notebooks/10-tenth", "labs/lab01-first"):
        nbformat.write(notebook, folder / f"{name}.ipynb")
    return folder


@contextlib.contextmanager
def start(course, home):
    """Start `distlab lab`; whatever happens, end it and everything under it."""
    made = Lab(course, home)
    try:
        yield made
    finally:
        for process in [made.server, *lab.find_kernel_processes(made.server.pid), made.process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        made.process.wait(END_SECONDS)


@pytest.fixture(scope="module")
def running(course, tmp_path_factory):
    """A server for two tests; the second ends it."""
    with start(course, tmp_path_factory.mktemp("home")) as made:
        yield made


def wait_until_gone(*processes: psutil.Process) -> None:
    wait_for(lambda: not any(lives(process.pid) for process in processes))


def test_the_home_page_its_settings_and_sigterm(course, tmp_path):
    with start(course, tmp_path) as running:
        assert running.url.endswith("/lab")
        assert "jupyter-config-data" in running.ask("lab")
        settings = {s["id"]: s for s in running.ask("lab/api/settings")["settings"]}
        manager = settings["@jupyterlab/docmanager-extension:plugin"]["schema"]["properties"]
        assert manager["defaultViewers"]["default"] == {"markdown": "Markdown Preview"}
        news = settings["@jupyterlab/apputils-extension:notification"]["schema"]["properties"]
        assert news["fetchNews"]["default"] == "false"
        assert news["checkForUpdates"]["default"] is False
        assert {
            c.laddr.ip for c in running.server.net_connections("tcp") if c.status == "LISTEN"
        } == {"127.0.0.1"}
        kernels = running.start_kernel()
        assert running.end(signal.SIGTERM) == 0
        wait_until_gone(running.server, *kernels)
    written = {p.name for p in (tmp_path / ".jupyter").rglob("*") if p.is_file()}
    assert written <= {"migrated"}, "the reader's own Jupyter configuration was written to"


def test_a_lesson_that_was_only_looked_at_does_not_ask_to_be_saved(running, course, show_page):
    lesson = course / "notebooks" / "07-what-a-step-sends.ipynb"
    shutil.copyfile(ROOT / "notebooks" / lesson.name, lesson)
    page = show_page(viewport={"width": 1400, "height": 1000})
    page.goto(running.find_address(f"notebooks/{lesson.name}"))
    page.wait_for_selector("#jp-main-statusbar >> text=/Python 3.*Idle/")
    page.wait_for_timeout(2_000)  # the kernel's own words come after it is idle
    changed = page.locator(".lm-TabBar-tab.jp-mod-dirty:has-text('07-what')")
    assert changed.count() == 0
    page.locator(".jp-Notebook .jp-CodeCell .cm-content >> visible=true").first.click()
    page.keyboard.type("# ")
    changed.wait_for()
    page.keyboard.press("Control+s")
    changed.wait_for(state="detached")
    page.close()
    assert lesson.read_bytes() == (ROOT / "notebooks" / lesson.name).read_bytes()
    copy = course / "work" / lesson.name
    saved, given = (json.loads(p.read_text()) for p in (copy, lesson))
    saved["metadata"].pop("widgets", None)  # which JupyterLab keeps for widgets that have run
    assert saved["metadata"] == given["metadata"]
    differ = [k for k, (a, b) in enumerate(zip(saved["cells"], given["cells"])) if a != b]
    lesson.unlink()
    copy.unlink()
    assert len(differ) == 1 and len(saved["cells"]) == len(given["cells"])


def test_one_ctrl_c_ends_server_and_kernels(running):
    kernels = running.start_kernel()
    assert running.end(signal.SIGINT) == 0
    wait_until_gone(running.server, *kernels)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
@pytest.mark.parametrize("victim", ["server", "distlab"])
def test_a_killed_half_takes_the_other_and_the_kernels_with_it(course, tmp_path, victim):
    with start(course, tmp_path) as running:
        kernels = running.start_kernel()
        (running.server if victim == "server" else running.process).kill()
        status = running.process.wait(END_SECONDS)
        assert status != 0
        wait_until_gone(running.server, *kernels)


def test_the_course_folder_is_found_from_below(course, tmp_path, monkeypatch):
    monkeypatch.chdir(course / "notebooks")
    assert lab.find_course_folder() == course
    monkeypatch.setattr(lab, "__file__", str(tmp_path / "a" / "b" / "lab.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DistributedError, match="no course here"):
        lab.find_course_folder()


def test_a_notebook_is_found_by_the_start_of_its_name(course):
    assert lab.find_page(course, None) == ""
    assert lab.find_page(course, "01") == "notebooks/01-first.ipynb"
    for name in ("lab01", "lab1"):
        assert lab.find_page(course, name) == "labs/lab01-first.ipynb"
    assert lab.find_page(course, "10-tenth.ipynb") == "notebooks/10-tenth.ipynb"
    for name, says in (("1x", "fits no notebook"), ("", "fits several notebooks")):
        with pytest.raises(DistributedError, match=f"01-first.*{says}"):
            lab.find_page(course, name)
    with pytest.raises(DistributedError, match=r"fits no notebook. Did you mean 'lab01'\?$"):
        lab.find_page(course, "lap01")


def test_options_reach_jupyter_lab(course):
    words = ["lab", "--port", "9000", "--notebook", "01"]
    arguments = make_parser().parse_args([*words, "--", "--ServerApp.shutdown_no_activity=9"])
    command = lab.make_command(course, "notebooks/01-first.ipynb", arguments)
    assert "--ServerApp.port=9000" in command
    assert "--LabApp.default_url=/lab/tree/notebooks/01-first.ipynb" in command
    assert not [word for word in lab.make_command(course, "", arguments) if "default_url" in word]
    assert command[-1] == "--ServerApp.shutdown_no_activity=9"


def test_the_readers_own_configuration_comes_after_ours(course, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "theirs")
    paths = lab.make_environment(course)["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert paths == [str(lab.CONFIG_FOLDER), "theirs"]


def test_executed_notebooks_are_trusted_and_labs_are_not(tmp_path, monkeypatch):
    from nbformat.sign import NotebookNotary

    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    signed = {}
    for part in ("notebooks", "labs"):
        (tmp_path / part).mkdir()
        notebook = new_notebook(cells=[new_markdown_cell(part)])
        nbformat.write(notebook, tmp_path / part / "a.ipynb")
    (tmp_path / "notebooks" / "broken.ipynb").write_text("{")
    trust_notebooks(tmp_path)
    for part in ("notebooks", "labs"):
        notebook = nbformat.read(tmp_path / part / "a.ipynb", as_version=4)
        signed[part] = NotebookNotary().check_signature(notebook)
    assert signed == {"notebooks": True, "labs": False}
