"""Opening a notebook: how often an immediate Shift+Enter runs the first cell, and how soon.

A lesson is opened in Chromium in `distlab lab`, as a click on its tile opens it, and its first cell
gets Shift+Enter as soon as it can be clicked, mostly before the kernel is there. Each open has a
new kernel. `--rounds 50` opens it fifty times. Needs playwright and chromium.
"""

import contextlib
import statistics
import tempfile
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from distlab.explorables.screenshots import find_chromium
from tests.lab_server import BROWSER_FLAGS, Lab
from utils.measure import Stopwatch

WAIT_MS = 60_000
_IDLE = "#jp-main-statusbar >> text=/Python 3.*Idle/"
_END = "async () => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()"


def run(rounds: int) -> None:
    """Print how many of `rounds` opens had an output, and the seconds that it took."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("\nNotebook opens: not measured, playwright is not installed")
        return
    print("\nOpening a notebook, with Shift+Enter in its first cell at once")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        place = write_lesson(Path(folder))
        words = ("--", "--LabApp.expose_app_in_browser=True")
        with Lab(Path(folder), Path(folder), *words, warm=True) as lab:
            browser = playwright.chromium.launch(
                executable_path=find_chromium(), args=BROWSER_FLAGS
            )
            times = [open_once(browser, f"{lab.find_address(place)}&reset") for _ in range(rounds)]
            browser.close()
    found = [seconds for seconds, _ in times if seconds is not None]
    early = sum(early for _, early in times)
    print(
        f"{len(found)} of {rounds} opens had an output; in {early} the keys came before the kernel"
    )
    if found:
        print(f"seconds from the keys to the output: median {statistics.median(found):.2f}")


def write_lesson(course: Path) -> str:
    """Write a course of one lesson and return the lesson's place in it."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [new_markdown_cell("# Go"), new_code_cell("print('out' + 'put')")]
    (course / "README.md").write_text("# The course\n")
    for name in ("notebooks", "labs"):
        (course / name).mkdir()
    nbformat.write(
        new_notebook(cells=cells, metadata={"kernelspec": kernel}), course / "notebooks/00-go.ipynb"
    )
    return "notebooks/00-go.ipynb"


def open_once(browser, url: str) -> tuple[float | None, bool]:
    """Return the seconds from the keys to the output, or None, and if no kernel was there yet."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(url)
    cell = page.locator(".jp-Notebook .jp-CodeCell .cm-content").first
    cell.click()
    early = page.locator(_IDLE).count() == 0
    page.keyboard.press("Shift+Enter")
    seconds = None
    try:
        with Stopwatch() as watch:
            page.locator(".jp-OutputArea-output >> text=output").wait_for(timeout=WAIT_MS)
        seconds = watch.seconds
    except Exception as error:  # playwright's, which isn't installed everywhere
        print(f"no output: {str(error).splitlines()[0]}")
    with contextlib.suppress(Exception):
        page.evaluate(_END)
    page.close()
    return seconds, early
