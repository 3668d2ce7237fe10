"""Every notebook and lab in real JupyterLab: kernel restarted, all cells run, outputs looked at.

Long, so all run under `make test-all`; else one lab stands for all.
"""

import json
import shutil
from pathlib import Path

import pytest
from lab_server import Lab
from needs import EVERYTHING
from page_checks import find_with_axe, move, wait_for_colors, watch

ROOT = Path(__file__).parents[2]
FOLDERS = ("notebooks", "labs", "examples", "utils", "distlab")
EVERY = [*sorted(ROOT.glob("notebooks/[0-9]*.ipynb")), *sorted(ROOT.glob("labs/lab*.ipynb"))]
CHOSEN = EVERY if EVERYTHING else [path for path in EVERY if path.stem.startswith("lab01")]
RUN_ALL = """async () => {
  const app = window.jupyterapp;
  const panel = app.shell.currentWidget;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.restart();
  await app.commands.execute("notebook:run-all-cells");  // back at the first error, meant or not
  await panel.sessionContext.session.kernel.requestExecute({ code: "", silent: true }).done;
  return panel.content.model.cells.length;
}"""
# of each code cell: its tags, and the names of its errors
READ_CELLS = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
  .filter((cell) => cell.type === "code").map((cell) => ({
    id: cell.id, tags: cell.getMetadata("tags") ?? [], source: cell.sharedModel.getSource(),
    graded: cell.getMetadata("nbgrader")?.grade ?? false, ran: cell.executionCount !== null,
    errors: cell.outputs.toJSON().filter((out) => out.ename).map((out) => out.ename),
  }))"""
READ_PAGE = """() => {
  const all = (what) => [...document.querySelectorAll(`.jp-OutputArea-output ${what}`)];
  const count = (nodes, wrong) => nodes.filter(wrong).length;
  const widgets = document.querySelectorAll("[data-mime-type$='jupyter.widget-view+json']");
  return {
    wordless: count(all("img"), (n) => !n.alt),
    nameless: count(all(":is(input, select, button)"),
      (n) => n.checkVisibility() && !n.labels?.length && !n.ariaLabel && !n.title
        && !n.textContent.trim()),
    empty: count([...widgets], (n) => n.offsetHeight < 10 || !n.innerText.trim()),
    broken: /Error displaying widget|Loading widget/.test(document.body.innerText),
    failed: all("[role=alert] > strong").map((n) => n.parentElement.innerText),
  };
}"""
FINE = {"wordless": 0, "nameless": 0, "empty": 0, "broken": False, "failed": []}
THEMES = ("JupyterLab Light", "JupyterLab Dark")
# our own: what cells put out, but for a traceback in JupyterLab's colors, and what we write
OURS = {
    "include": [[".jp-OutputArea-output"], [".jp-MarkdownOutput"]],
    "exclude": [["[data-mime-type='application/vnd.jupyter.stderr']"], [".ansi-red-fg"]],
}
LABS_OWN = ("Could not restore the debugger state",)  # says JupyterLab after a quick restart
ALL_CELLS = {"windowingMode": "none"}  # or the page would hold only those in sight


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
    settings = home / ".jupyter/lab/user-settings/@jupyterlab/notebook-extension"
    settings.mkdir(parents=True)
    (settings / "tracker.jupyterlab-settings").write_text(json.dumps(ALL_CELLS))
    with Lab(course, home, "--", "--LabApp.expose_app_in_browser=True", warm=True) as running:
        yield running


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", CHOSEN, ids=lambda path: path.stem)
def test_a_notebook_runs_whole(lab, show_page, course, path):
    page = show_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(1_500_000)
    wrong = watch(page, lab.port, heard=("error",))  # JupyterLab itself warns
    place = path.relative_to(ROOT).as_posix()
    page.goto(f"{lab.find_address(place)}&reset")
    page.wait_for_selector("#jp-main-statusbar >> text=/Python 3.*Idle/", timeout=120_000)
    assert page.evaluate(RUN_ALL) == len(json.loads(path.read_text())["cells"])
    if path.stem.startswith("lab"):  # a stub stops a run of all cells: the rest one by one
        run_the_rest(page)
    for cell in page.evaluate(READ_CELLS):
        may_fail = cell["graded"] or "raises-exception" in cell["tags"]
        assert cell["ran"] or not cell["source"].strip(), cell["id"]
        assert not cell["errors"] or may_fail, (cell["id"], cell["errors"])
    for theme in THEMES:
        change_theme(page, theme)
        assert find_with_axe(page, path.stem, theme, context=OURS) == []
    for stage in page.locator(".jp-OutputArea-output .ex-stage").all():
        move(stage, path.stem)
    page.wait_for_selector("#jp-main-statusbar >> text=/Python 3.*Idle/", timeout=120_000)
    assert page.evaluate(READ_PAGE) == FINE
    assert [each for each in wrong if not each.startswith(LABS_OWN)] == []
    shut_down(page)


def change_theme(page, theme: str) -> None:
    change = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
    page.evaluate(change, theme)
    page.wait_for_function("(it) => document.body.dataset.jpThemeName === it", arg=theme)
    wait_for_colors(page)


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
