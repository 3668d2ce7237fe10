"""The cockpit's buttons in real JupyterLab, pressed while a cell is running."""

import nbformat
from lab_server import Lab
from nbformat.v4 import new_code_cell, new_notebook
from page_checks import find_with_axe

NOTEBOOK = "notebooks/01-cockpit.ipynb"
START = """from utils.cluster import LocalCluster
from distlab.explorables import cockpit

def count(end):
    import itertools, json, os, pathlib, time
    from utils.events import report
    begun = pathlib.Path(f"{end}-{json.loads(os.environ['TF_CONFIG'])['task']['index']}")
    while begun.exists() and not pathlib.Path(end).exists():  # the second start
        time.sleep(0.1)
    begun.touch()
    for step in itertools.count():
        time.sleep(0.1)
        report("step", step=step, loss=1 / (1 + step))
        if pathlib.Path(end).exists():
            return "counted"

cluster = LocalCluster(workers=2)
job = cluster.start(count, END_FILE, restarts=1)
cockpit(job)"""
WAIT = """print("ended:", job.wait(timeout=300), "attempt", job.attempt)
cluster.close()"""


def test_a_worker_is_killed_by_a_click_while_a_cell_waits_for_the_job(show_page, tmp_path):
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    course, home, end_file = tmp_path / "course", tmp_path / "home", tmp_path / "end"
    start = START.replace("END_FILE", repr(str(end_file)))
    cells = [new_code_cell(start), new_code_cell(WAIT)]
    for folder in (course / "notebooks", course / "labs", home):
        folder.mkdir(parents=True)
    (course / "README.md").write_text("# The course\n")
    notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, course / NOTEBOOK)
    with Lab(course, home) as running:
        page = show_page(viewport={"width": 1400, "height": 1000})
        page.goto(running.find_address(NOTEBOOK))
        said = kill_while_waiting(page, end_file)
        page.close()
    assert said == "ended: ['counted', 'counted'] attempt 2"


def kill_while_waiting(page, end_file) -> str:
    """Run both cells, kill worker 1 while the second waits; return what that one prints.

    The workers count until `end_file` is there, however long the page takes. When they start
    again they wait for it, so that the row of the killed one stays as it is.
    """
    page.wait_for_selector("#jp-main-statusbar >> text=/Python 3.*Idle/")
    first, second = (page.locator(".jp-Notebook .jp-CodeCell").nth(k) for k in (0, 1))
    first.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")
    first.get_by_text("step 3").first.wait_for()
    assert second.locator(".jp-InputPrompt").inner_text() == "[*]:"
    assert find_with_axe(page, context={"include": [".ck"]}) == []
    slow = first.get_by_role("slider", name="Slow down worker 0")
    slow.press("ArrowRight")
    assert slow.get_attribute("aria-valuetext") == "+50 ms a step"
    first.get_by_role("button", name="Kill worker 1").press("Enter")
    first.get_by_text("worker 1 was killed").wait_for()
    assert first.locator('[data-state="killed"]').get_attribute("aria-label") == "worker 1"
    assert second.locator(".jp-InputPrompt").inner_text() == "[*]:"
    end_file.touch()
    output = second.locator(".jp-OutputArea-output")
    output.wait_for()
    return output.inner_text().strip()
