"""The home page: what it says of a course, and how it goes along with a learner in JupyterLab."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from lab_server import Lab
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from page_checks import watch

from distlab import progress
from distlab.cli.lab import CONFIG_FOLDER
from distlab.figures.palette import IDEAS
from distlab.home.course import find_next, read_course
from distlab.home.page import make_page
from distlab.home.pictures import read_picture
from utils.files import write_atomically

ROOT = Path(__file__).parents[2]
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
MARK = {"locked": False, "schema_version": 3, "task": False}


def write(path, title, cells, **metadata):
    head = new_markdown_cell(
        f"# {title}\n\nWhy.\n\n**Time:** 20 minutes · **Prerequisites:** nothing"
    )
    head.metadata.update(metadata)
    notebook = new_notebook(cells=[head, *cells], metadata={"kernelspec": KERNEL})
    nbformat.write(notebook, path)


def make_exercise(name):
    solved = new_code_cell(
        "pass", metadata={"nbgrader": MARK | {"grade_id": name, "solution": True, "grade": False}}
    )
    return [new_markdown_cell("## Exercise 1: one"), solved]


@pytest.fixture
def course(tmp_path):
    """Two lessons of two cells, a lab of two exercises, and a lab that no lesson names."""
    folder = tmp_path / "course"
    for part in ("notebooks", "labs"):
        (folder / part).mkdir(parents=True)
    (folder / "README.md").write_text("# The course <b>\n")
    link = new_markdown_cell("[lab](../labs/lab01-words.ipynb)")
    for number in ("00", "01"):
        cells = [
            new_code_cell("a = 1", id=f"{number}-a"),
            new_code_cell("a / 0", id=f"{number}-b"),
            new_code_cell("", id=f"{number}-c"),
            link,
        ]
        write(folder / "notebooks" / f"{number}-go.ipynb", f"Go {number}", cells, shows="`a` & b")
    exercises = [*make_exercise("one"), *make_exercise("two")]
    write(folder / "labs" / "lab01-words.ipynb", "Lab 01 · Words", exercises)
    write(folder / "labs" / "lab90-own.ipynb", "Lab 90 · Own", make_exercise("own"))
    (folder / "notebooks" / "02-broken.ipynb").write_text("{")
    return folder


def test_a_course_is_read_from_its_notebooks(course):
    first, second, own = read_course(course)
    assert (first.head.title, first.head.minutes, first.head.shows) == ("Go 00", 20, "`a` & b")
    assert first.head.steps == ("00-a", "00-b"), "a cell without code is nothing to run"
    assert first.labs == () and [lab.head.title for lab in second.labs] == ["Words"]
    assert second.labs[0].head.steps == ("one", "two") and own.head.name == "lab90"


def test_a_folder_without_the_course_is_named(course, tmp_path):
    assert f"got <code>{course / 'labs'}</code>" in make_page(course / "labs")
    assert "Everything is done" not in make_page(tmp_path / "nowhere")


def test_what_to_go_on_with(course, monkeypatch):
    assert find_next(read_course(course)).head.name == "00"
    times = iter(f"2026-01-01T00:00:{k:02}" for k in range(60))
    monkeypatch.setattr(progress, "_tell_time", lambda: next(times))
    progress.record_cells(course, "01-go", ["01-a"])
    assert find_next(read_course(course)).head.name == "01", "what was touched last"
    progress.record_cells(course, "01-go", ["01-b", "not-there"])
    assert [item.share for item in read_course(course)] == [0, 1, 0]
    assert find_next(read_course(course)).head.name == "lab01", "what comes after it"
    monkeypatch.chdir(course / "labs")
    for lab, exercise in (("lab01", "one"), ("lab01", "two"), ("lab90", "own")):
        assert progress.record(lab, exercise)
    assert find_next(read_course(course)) is None
    assert "Everything is done" in make_page(course)


def test_the_page_says_how_far_one_is(course):
    page = make_page(course)
    assert "The course &lt;b&gt;" in page and "<code>a</code> &amp; b" in page
    assert "Begin here:" in page and page.count(">start here<") == 1
    progress.record_cells(course, "00-go", ["00-a"])
    page = make_page(course)
    assert "1 of 2 cells run" in page and page.count(">continue here<") == 1
    assert "0 of 2 exercises passed" in page and "Go on with" in page
    names = re.findall(r' id="([^"]+)"', page)
    assert len(names) == len(set(names))
    for named in re.findall(r'aria-labelledby="([^"]+)"', page):
        assert set(named.split()) <= set(names)


def test_every_lesson_has_a_picture_of_its_own():
    lessons = sorted(p.name[:2] for p in (ROOT / "notebooks").glob("[0-9][0-9]-*.ipynb"))
    drawn = [read_picture(lesson) for lesson in lessons]
    assert len(set(drawn)) == len(drawn) and read_picture("99") not in drawn
    for svg in drawn:
        assert re.search(r'role="img" aria-label="[^"]{20,}"', svg)
        for side, limit in (("x", 240), ("y", 120)):
            places = re.findall(rf' c?{side}="([\d.]+)"', svg)
            assert all(float(place) <= limit for place in places)


def test_the_colors_are_those_of_the_whole_course():
    css = (CONFIG_FOLDER / "labextensions/distlab-home/static/home.css").read_text()
    for number, idea in enumerate(("forward", "backward", "all-reduce", "variables", "data"), 1):
        light, dark, _ = (color.lower() for color in IDEAS[idea])
        assert re.findall(rf"--dl-{number}: (#\w+)", css) == [light, dark]
        assert set(re.findall(rf": {light}' i\] {{ \w+: (#\w+)", css)) == {dark}


def test_a_damaged_file_of_lessons_is_put_aside(course):
    progress.record_cells(course, "00-go", ["00-a"])
    (course / progress.LESSONS_FILE).write_text("[1]")
    assert progress.read_lessons(course) == {}
    assert (course / ".distlab" / "lessons.json.damaged").read_text() == "[1]"


def test_home_in_jupyterlab(course, tmp_path, show_page):
    """It opens first, opens notebooks in tabs, fills as cells run and checks pass, by itself."""
    (tmp_path / "home").mkdir()
    with Lab(course, tmp_path / "home") as running:
        page = show_page(viewport={"width": 1400, "height": 900})
        trouble = watch(page, running.port, heard=("error",))
        page.goto(f"{running.url}?token={running.token}")
        given = (course / "notebooks" / "00-go.ipynb").read_bytes()
        use_home(page, course)
        start_over(page, course, given)
        look_at_narrow_widths(page)
        assert page.locator(".jp-toast, .Toastify__toast").count() == 0
        ran = json.loads((course / progress.LESSONS_FILE).read_text())
        assert {lesson: set(cells) for lesson, cells in ran.items()} == {"00-go": {"00-a"}}, (
            "a cell that failed has not run"
        )
        press_at_once(page, running, course)
        page.close()
        refused(running)
    # says JupyterLab if a notebook closes before its debugger
    assert [said for said in trouble if "Canceled future for debug_request" not in said] == []


def use_home(page, course):
    home = page.locator("#distlab-home")
    home.get_by_role("heading", name="The course <b>").wait_for()
    files = page.locator(".jp-DirListing-itemText")
    assert not files.first.is_visible(), "the file browser is closed at the start"
    page.keyboard.press("Control+b")
    files.first.wait_for()
    listed = files.all_inner_texts()
    assert "notebooks" in listed and "labs" in listed
    tile = home.get_by_role("link", name=re.compile("00 Go 00.*not begun"))
    tile.focus()
    page.keyboard.press("Enter")
    page.locator(".jp-Notebook .jp-CodeCell .cm-content >> visible=true").first.click()
    page.keyboard.press("Shift+Enter")  # the kernel may not be there yet: the cells wait for it
    page.keyboard.press("Shift+Enter")
    page.get_by_text("[1]:", exact=True).wait_for()
    page.locator(".jp-OutputArea-output >> text=ZeroDivisionError").first.wait_for()
    told = {"00-go": {"How long?": {"off": 0.05, "words": ""}, "Which?": {"off": 1, "words": ""}}}
    page.evaluate("told => localStorage.setItem('distlab-guesses', JSON.stringify(told))", told)
    page.get_by_role("button", name="Course home").click()
    home.get_by_text("Your 2 guesses, 1 of them close").wait_for()
    tile = home.get_by_role("link", name=re.compile("00 Go 00.*1 of 2 cells run"))
    tile.wait_for()
    assert home.get_by_text("continue here").count() == 1
    write_atomically(  # the server may read it at any moment
        course / progress.FILE, json.dumps({"lab01": {"two": "2999-01-01T00:00:00"}})
    )
    passed = re.compile("Lab 01 Words.*1 of 2 exercises passed")
    home.get_by_role("link", name=passed).wait_for()
    assert home.get_by_role("link", name="Go on with Lab 01 Words").count() == 1


def start_over(page, course, given):
    """The copy is what the learner works in, says when it's older, and gives way when asked to."""
    original, copy = (course / folder / "00-go.ipynb" for folder in ("notebooks", "work"))
    assert original.read_bytes() == given
    page.locator(".lm-TabBar-tab:has-text('00-go.ipynb')").click()
    page.keyboard.press("Control+s")
    page.locator(".lm-TabBar-tab.jp-mod-dirty").wait_for(state="detached")
    assert "ZeroDivisionError" in copy.read_text() and original.read_bytes() == given
    original.write_text(given.decode().replace("a = 1", "a = 2"))
    page.get_by_role("button", name="Course home").click()
    page.locator("#distlab-home >> text=newer version").wait_for()
    page.locator(".lm-TabBar-tab:has-text('00-go.ipynb')").click()
    page.get_by_role("button", name="Newer version here: start over").click()
    page.locator(".jp-Dialog button:has-text('Start over')").click()
    page.locator(".jp-Notebook .cm-content >> text=a = 2").wait_for()
    assert copy.read_bytes() == original.read_bytes()
    (kept,) = (course / "work" / "kept").iterdir()
    assert "ZeroDivisionError" in kept.read_text()
    page.get_by_role("link", name="lab", exact=True).first.click()
    page.locator(".lm-TabBar-tab:has-text('lab01-words.ipynb')").wait_for()
    page.locator("#jp-main-statusbar >> text=/Python 3.*Idle/").wait_for()
    assert (course / "work" / "lab01-words.ipynb").is_file()
    page.get_by_role("button", name="Course home").click()


def look_at_narrow_widths(page):
    """Nothing is wider than the tab, with the file browser shut."""
    page.keyboard.press("Control+b")
    for width in (1600, 800, 480):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(
            """(width) => {
              const home = document.querySelector("#distlab-home");
              return innerWidth === width && home.scrollWidth <= home.clientWidth;
            }""",
            arg=width,
        )


def press_at_once(page, running, course):
    """Three opens, and keys as soon as there is a cell: each has its output, with a new kernel."""
    for number in ("03", "04", "05"):
        path = f"notebooks/{number}-go.ipynb"
        write(course / path, f"Go {number}", [new_code_cell("print('out' + 'put')")])
        page.goto(f"{running.find_address(path)}&reset")
        page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
        page.keyboard.press("Shift+Enter")
        page.locator(".jp-OutputArea-output >> text=output").wait_for()


def refused(running):
    """The server takes down nothing but cells of lessons."""
    import urllib.error

    for asked in (
        {"path": "notebooks/../labs/lab01-words.ipynb", "cells": ["x"]},
        {"path": "notebooks/09-none.ipynb", "cells": ["x"]},
    ):
        running.ask("distlab/ran", asked)
    for asked in (
        [],
        {"path": "notebooks/00-go.ipynb", "cells": [1]},
        {"path": "notebooks/00-go.ipynb", "cells": ["x" * 65]},
    ):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            running.ask("distlab/ran", asked)
