"""Every notebook and lab in real JupyterLab: kernel restarted, all cells run, outputs looked at.

Long, so all run with DISTLAB_TEST_BROWSER=1 (`make test-browser`); else one lab stands for all.
"""

import json
import os
import shutil
from pathlib import Path

import pytest
from lab_server import END_SECONDS, Lab

ROOT = Path(__file__).parents[2]
FOLDERS = ("notebooks", "labs", "examples", "utils", "distlab")
EVERY = [*sorted(ROOT.glob("notebooks/[0-9]*.ipynb")), *sorted(ROOT.glob("labs/lab*.ipynb"))]
CHOSEN = EVERY if os.environ.get("DISTLAB_TEST_BROWSER") == "1" else \
    [path for path in EVERY if path.stem.startswith("lab01")]  # fmt: skip
RUN_ALL = """async () => {
  const app = window.jupyterapp;
  const panel = app.shell.currentWidget;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.restart();
  await app.commands.execute("notebook:run-all-cells");
  return panel.content.model.cells.length;
}"""
# of each code cell: its tags, and the names of its errors
READ_CELLS = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
  .filter((cell) => cell.type === "code").map((cell) => ({
    id: cell.id, tags: cell.getMetadata("tags") ?? [], source: cell.sharedModel.getSource(),
    graded: cell.getMetadata("nbgrader")?.grade ?? false, ran: cell.executionCount !== null,
    errors: cell.outputs.toJSON().filter((out) => out.ename).map((out) => out.ename),
  }))"""
READ_PAGE = """() => ({
  wordless: [...document.querySelectorAll(".jp-OutputArea-output img:not([alt])")].length,
  nameless: [...document.querySelectorAll(".jp-OutputArea-output :is(input, button)")].filter(
    (n) => !n.labels?.length && !n.ariaLabel && !n.title && !n.textContent.trim()).length,
  broken: document.body.innerText.includes("Error displaying widget"),
})"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of what learners have: nothing that a run writes stays in the project."""
    folder = tmp_path_factory.mktemp("course") / "course"
    folder.mkdir()
    for name in FOLDERS:
        junk = shutil.ignore_patterns("__pycache__", "src", "kept")
        shutil.copytree(ROOT / name, folder / name, ignore=junk)
    shutil.copy(ROOT / "README.md", folder / "README.md")
    return folder


@pytest.fixture(scope="module")
def lab(course, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    running = Lab(course, home, "--LabApp.expose_app_in_browser=True", warm=True)
    yield running
    running.process.terminate()
    running.process.wait(END_SECONDS)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", CHOSEN, ids=lambda path: path.stem)
def test_a_notebook_runs_whole(lab, chromium, course, path):
    wrong: list[str] = []
    page = chromium.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(1_500_000)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if is_outside(asked.url) else None)
    place = path.relative_to(ROOT).as_posix()
    page.goto(f"http://127.0.0.1:{lab.port}/lab/tree/{place}?token={lab.token}&reset")
    page.wait_for_selector("#jp-main-statusbar >> text=/Python 3.*Idle/", timeout=120_000)
    assert page.evaluate(RUN_ALL) == len(json.loads(path.read_text())["cells"])
    if path.stem.startswith("lab"):  # a stub stops a run of all cells: the rest one by one
        run_the_rest(page)
    for cell in page.evaluate(READ_CELLS):
        may_fail = cell["graded"] or "raises-exception" in cell["tags"]
        assert cell["ran"] or not cell["source"].strip(), cell["id"]
        assert not cell["errors"] or may_fail, (cell["id"], cell["errors"])
    assert page.evaluate(READ_PAGE) == {"wordless": 0, "nameless": 0, "broken": False}
    assert wrong == []
    shut_down(page)


def is_outside(url: str) -> bool:
    return url.startswith(("http:", "https:")) and "//127.0.0.1:" not in url


def run_the_rest(page) -> None:
    page.evaluate("""async () => {
      const app = window.jupyterapp, notebook = app.shell.currentWidget.content;
      const cells = [...notebook.model.cells];
      for (let k = 0; k < cells.length; k++) {
        if (cells[k].type !== "code" || cells[k].executionCount !== null) continue;
        notebook.activeCellIndex = k;
        notebook.deselectAll();
        await app.commands.execute("notebook:run-cell");
      }
    }""")


def shut_down(page) -> None:
    """End the kernel, so that one TensorFlow at a time is in memory; nothing is saved."""
    page.evaluate("async () => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.close()
