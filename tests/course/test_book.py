"""The book: every page whole and light, and in Chromium quiet, readable and alive.

A few pages stand for all; under `make test-all` it is every page.
"""

import json
import re
import zipfile
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urldefrag, urlparse

import pytest
from needs import EVERYTHING, need_packages
from page_checks import find_with_axe, move, walk_by_keyboard, watch

from distlab.book.errors import KINDS, OLD_PROGRAMS, say_pattern
from distlab.book.glossary import find_uses, read_words
from distlab.book.notebooks import find_imports, make_page
from distlab.book.site import build_book, check_folder, write_zip
from distlab.errors import CourseError
from distlab.explorables.explorable import MIME
from distlab.labs.lab07.failing_logs import LOGS, fill_in
from utils.tf_config import diagnose

ROOT = Path(__file__).parents[2]
MAX_BYTES = 500_000
MAX_ERRORS_PX = 20_000  # the height of the page of errors on a phone; unfolded it has 55,000
SOME = (
    "index notebooks/05-loss-scaling labs/lab07-cluster-doctor reference/glossary "
    "reference/errors reference/cards api/tf_config"
).split()
EVERY = EVERYTHING
LOOKS = [(width, theme) for width in (1280, 390) for theme in ("light", "dark")]
OUTSIDE = ("http:", "https:", "//", "ws:")


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The book, built once; skips without its builder."""
    need_packages("the book's builder", "myst_nb", "furo", "latex2mathml")
    folder = tmp_path_factory.mktemp("book")
    return build_book(ROOT, folder / "book", folder / "work")


class Page(HTMLParser):
    """What a page's text has: ids, links, what it loads, pictures without words."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.wordless: list[str] = []

    def handle_starttag(self, tag: str, attributes: list) -> None:
        has = dict(attributes)
        self.ids += [has["id"]] if has.get("id") else []
        self.links += [has["href"]] if tag == "a" and has.get("href") else []
        if tag in ("script", "img", "iframe", "source") and has.get("src"):
            self.loads.append(has["src"])
        if tag == "link" and "stylesheet" in has.get("rel", ""):
            self.loads.append(has["href"])
        if tag == "img" and not has.get("alt"):
            self.wordless.append(has.get("src", "img"))


@cache
def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def list_pages(book) -> list[Path]:
    return sorted(book.folder.rglob("*.html"))


# ---- every page, as text


def test_it_is_built_without_a_warning_and_has_every_notebook(book):
    assert book.warnings == ()
    for place in ("notebooks/[0-9]*.ipynb", "labs/lab*.ipynb"):
        for path in ROOT.glob(place):
            page = book.folder / path.relative_to(ROOT).with_suffix(".html")
            assert page.is_file(), page


def test_no_page_is_heavy_loads_from_outside_or_has_a_picture_without_words(book):
    for path in list_pages(book):
        page = read(path)
        assert path.stat().st_size < MAX_BYTES, path
        assert [each for each in page.loads if each.startswith(OUTSIDE)] == [], path
        here = [each.partition("?")[0] for each in page.loads if not each.startswith("data:")]
        assert [each for each in here if not (path.parent / unquote(each)).is_file()] == [], path
        assert page.wordless == [], path
        assert len(page.ids) == len(set(page.ids)), path


def test_every_link_is_alive(book):
    dead = []
    for path in list_pages(book):
        for link in read(path).links:
            if urlparse(link).scheme or not link:
                continue
            place, anchor = urldefrag(unquote(link))
            there = (path.parent / place).resolve() if place else path
            if not there.is_file():
                dead.append((path.name, link))
            elif anchor and there.suffix == ".html" and anchor not in read(there).ids:
                dead.append((path.name, link))
    assert dead == []


def test_every_stored_explorable_is_live(book):
    for path in ROOT.glob("notebooks/*.ipynb"):
        outputs = [
            out for cell in json.loads(path.read_text())["cells"] for out in cell.get("outputs", [])
        ]
        stored = sum(MIME in out.get("data", {}) for out in outputs)
        page = (book.folder / "notebooks" / f"{path.stem}.html").read_text()
        assert len(re.findall(r"\.mountOnPage\(piece, host", page)) == stored, path.name


def test_it_can_be_packed_and_harms_no_other_folder(book, tmp_path):
    write_zip(book.folder, tmp_path / "out" / "book.zip")
    with zipfile.ZipFile(tmp_path / "out" / "book.zip") as packed:
        assert {"index.html", "searchindex.js"} <= set(packed.namelist())
        assert not [name for name in packed.namelist() if name.startswith(("/", ".."))]
    check_folder(book.folder)
    with pytest.raises(CourseError, match="isn't a book"):
        check_folder(tmp_path)


def test_solutions_are_not_in_it(book):
    for path in (book.folder / "labs").glob("*.html"):
        assert "NotImplementedError" in path.read_text(), path.name
    assert not list(book.folder.rglob("*solution*"))


# ---- the pages to look things up in


def test_a_guess_in_the_book_keeps_its_answer_until_it_is_asked_for():
    """Each guess of the course has what its lesson measured; the piece shows it on demand."""
    later = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        page = make_page(path, ROOT)
        asked = len(re.findall(r"= guess_(?:number|word)\(", path.read_text(encoding="utf-8")))
        later[path.stem] = re.findall(r'later\\": ?(\{.*?\})', page)
        assert len(later[path.stem]) == asked, path.stem
    names = [json.loads(each.replace('\\"', '"')) for each in later["07-what-a-step-sends"]]
    assert names == [{"answer": 8.0, "how": "measured"}]


def test_words_are_found_once_in_the_longest_form_and_capitals_count():
    seen: set[str] = set()
    text = "Parameter servers hold it; a worker asks a parameter server. TPUstrategy, TPUStrategy."
    found = [(text[begin:end], word.name) for begin, end, word in find_uses(text, seen)]
    assert found == [
        ("Parameter servers", "parameter server"),
        ("worker", "worker"),
        ("TPUStrategy", "TPUStrategy"),
    ]
    assert find_uses("workers", seen) == []
    text = (ROOT / "distlab/book/glossary.md").read_text()
    assert len(read_words()) == text.count("\n: "), "an entry that cannot be read"


def test_a_message_in_words_is_what_its_pattern_means():
    for symptoms in (*KINDS.values(), OLD_PROGRAMS):
        for symptom in symptoms:
            said = list(say_pattern(symptom.pattern.pattern))
            assert said and all(len(each) > 5 for each in said), symptom.name
            for each in said:
                assert "…" in each or symptom.pattern.search(each), each


# ---- in the browser


@pytest.fixture
def open_page(show_page, book):
    wrong = []

    def open_page(name: str, width: int = 1280, theme: str = "light"):
        """Return a page of the book, opened from its folder; at the end nothing may be wrong."""
        page = show_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        wrong.append((name, watch(page)))
        page.goto((book.folder / f"{name}.html").as_uri())
        page.wait_for_load_state()
        return page

    yield open_page
    faults = [(name, said) for name, said in wrong if said]
    assert not faults, faults


@pytest.mark.more_in_all
@pytest.mark.timeout(7200)  # axe reads a long page for seconds, four times
def test_pages_are_quiet_fit_and_can_be_used_by_everyone(open_page, book):
    """At two widths, in both themes; axe reads every look of every page, or one look of a few.

    In the dark theme it reads contrast alone: nothing else differs. All faults are listed.
    """
    names = [p.relative_to(book.folder).with_suffix("").as_posix() for p in list_pages(book)]
    faults = []
    for number, name in enumerate(names if EVERY else SOME):
        page = open_page(name)
        for place, (width, theme) in enumerate(LOOKS):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            page.wait_for_function(
                "(it) => document.documentElement.dataset.theme === it", arg=theme
            )
            wide = page.evaluate("document.documentElement.scrollWidth")
            faults += [f"{name} is {wide} pixels wide on a page of {width}"] if wide > width else []
            if EVERY or place == number % len(LOOKS):
                rules = ["color-contrast"] if EVERY and theme == "dark" else None
                faults += find_with_axe(page, name, width, theme, rules=rules)
        page.close()
    assert faults == [], "\n".join(faults)


def list_live_pages() -> list[str]:
    texts = {path.stem: path.read_text() for path in sorted(ROOT.glob("notebooks/*.ipynb"))}
    return [name for name, text in texts.items() if MIME in text]


@pytest.mark.more_in_all
def test_every_explorable_changes_when_it_is_moved(open_page, book):
    page = open_page("index")  # one for all: a new one takes a second
    for name in list_live_pages():
        page.goto((book.folder / "notebooks" / f"{name}.html").as_uri())
        stages = page.locator(".ex-stage")
        count = stages.count()
        for k in range(count) if EVERY else {0, count - 1}:
            move(stages.nth(k), name)
        assert stages.count(), name


PASTED = {  # what people paste or type, and words of the cure that must be among the three shown
    "UNAVAILABLE: Task /job:worker/replica:0/task:1 heartbeat timeout. This indicates that the "
    "remote task has failed, got preempted, or crashed unexpectedly.": "in its own log",
    "heartbeat timeout": "in its own log",
    "ResourceExhaustedError: OOM when allocating tensor": "batch size per replica",
    "CUDA_ERROR_OUT_OF_MEMORY: out of memory": "nvidia-smi",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0": "start fewer workers",
    "failed to connect to all addresses; Connection refused": "in the other tasks",
    "OSError: [Errno 98] Address already in use": "its own free port",
    "it hangs": "start that task",
    "loss is nan": "lower the learning rate",
    "Colective ops must be configurd": "before any op, variable or dataset",
    "RuntimeError: NCCL unhandled system error": "NCCL_DEBUG=INFO",
    "ValueError: Attempt to convert a value (PerReplica:{": "--keras patched",
    "AttributeError: module 'tensorflow' has no attribute 'Session'": "modernize",
}


REFUSED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:12345: "
PASTED_FIRST = {  # what people paste, how many entries fit, and words of the first
    "OOM when allocating tensor with shape[256,128] and type float by allocator GPU_0_bfc": (
        "One entry fits",
        "batch size per replica",
    ),
    f"{REFUSED}Failed to connect to remote host: Connection refused": (
        "One entry fits",
        "cannot be reached",
    ),
    "UnavailableError: Task /job:worker/replica:0/task:1 heartbeat timeout. This indicates that "
    "the remote task has failed, got preempted, or crashed unexpectedly.": (
        "2 entries fit",
        "died or froze",
    ),
    "OOM when allocating tensor": ("One entry fits", "batch size per replica"),
    "Connection refused": ("One entry fits", "cannot be reached"),
    "heartbeat timeout": ("One entry fits", "died or froze"),
    "the loss rises": ("No entry fits exactly", ""),
}


def test_commands_and_names_stand_as_one_types_them(open_page):
    said = open_page("reference/errors").locator("article").text_content()
    assert "--keras legacy" in said and "Fix: strategy.run" in said
    assert not re.search("[–—](?=[a-z])", said)


def test_what_people_paste_finds_its_cure_among_the_nearest(open_page):
    page = open_page("reference/errors")
    field, shown = page.get_by_label("Your message or log"), page.locator("#book-nearest")
    for message, cure in PASTED.items():
        field.fill(message)
        said = shown.inner_text().lower()
        assert cure.lower() in said, (message, said)
        assert shown.locator(".book-error").count() >= 3, message
    for message, (found, first) in PASTED_FIRST.items():
        field.fill(message)
        assert page.locator("#book-found").inner_text().startswith(found), message
        assert first in shown.locator(".book-error").first.inner_text(), message
    field.fill("zzzz")
    assert shown.locator(".book-error").count() == 3


def test_a_pasted_log_finds_the_cause_that_diagnose_names(open_page):
    page = open_page("reference/errors")
    field = page.get_by_label("Your message or log")
    entries = page.locator("#book-nearest .book-error")
    for name in ("taken-port", "wrong-index", "not-json", "late-strategy"):
        log = fill_in(LOGS[name], 0)
        field.fill(log)
        cure = diagnose(log).cure.split("`")[0].strip()
        assert 0 < entries.count() < 5
        assert cure[1:40] in entries.first.inner_text(), name
    field.fill("")
    assert entries.count() == 0


def test_a_labs_messages_are_folded_until_they_are_looked_for(open_page):
    """By hand and keyboard, by the page's own field, by an address and by the book's search."""
    page = open_page("reference/errors", width=390)
    labs = len(list((ROOT / "labs").glob("lab*.ipynb"))) + 3  # and errors, lost tasks, old programs
    folds, unfolded = page.locator("details.book-fold"), page.locator("details.book-fold[open]")
    assert folds.count() == labs and unfolded.count() == 0
    assert page.evaluate("document.documentElement.scrollHeight") < MAX_ERRORS_PX
    folds.nth(1).locator("summary").press("Enter")
    field = page.get_by_label("Your message or log")
    hidden = page.locator("#lab-05 .book-error", has_text="errors are added up and never divided")
    assert not hidden.is_visible()
    field.fill("added up and never divided")
    page.locator("#book-nearest", has_text="added up and never divided").wait_for()
    field.fill("")
    assert unfolded.count() == 1 and not hidden.is_visible(), "as the hand had left it"
    page.evaluate("location.hash = 'lab-05'")
    hidden.wait_for(state="visible")
    assert unfolded.count() == 2
    page.goto(page.url.partition("#")[0] + "?highlight=never+divided")
    hidden.wait_for(state="visible")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert unfolded.count() == labs
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert unfolded.count() < labs


WALKS = (  # pages, widths and themes that show every kind of control once
    ("index", 1280, "dark"),
    ("notebooks/06-all-reduce", 1280, "light"),
    ("notebooks/05-loss-scaling", 390, "dark"),
    ("reference/errors", 390, "light"),
)


@pytest.mark.parametrize(("name", "width", "theme"), WALKS)
def test_the_keyboard_reaches_everything_and_shows_where_it_is(open_page, name, width, theme):
    page = open_page(name, width, theme)
    assert walk_by_keyboard(page) == []


def test_the_drawers_of_a_narrow_page_open_by_keyboard(open_page):
    page = open_page("notebooks/05-loss-scaling", width=390)
    for words, drawer in (
        ("site navigation", ".sidebar-drawer"),
        ("table of contents", ".toc-drawer"),
    ):
        links = page.locator(f"{drawer} a:visible")
        button = page.get_by_role("button", name=f"Toggle {words} sidebar")
        assert links.count() == 0
        button.press("Enter")
        assert links.first.evaluate("(it) => it === document.activeElement"), drawer
        page.keyboard.press("Escape")
        assert links.count() == 0 and button.evaluate("(it) => it === document.activeElement")


SEARCHED = {  # the first result of each; the misspelled one is read as it was meant
    "bubble": "16 · Pipeline parallelism",
    "all-reduce": "06 · All-reduce",
    "ZeRO": "15 · Model parallelism",
    "sharding polcy": "13 · Distributed input",
}


def test_search_finds_the_lesson_from_a_folder(open_page, book):
    page = open_page("index")
    for words, title in SEARCHED.items():
        page.goto((book.folder / "search.html").as_uri() + f"?q={quote(words)}")
        first = page.locator("#search-results li a").first
        first.wait_for()
        assert first.inner_text() == title, words


def test_imports_at_the_head_of_a_cell_are_found_to_be_folded():
    head = "import os\nfrom a.b import (\n    c,\n)\n\nwith quiet():\n    import keras\n"
    assert find_imports(f"{head}x = 1\nimport y") == (7, ["os", "a.b", "keras"])
    assert find_imports("%%writefile a.py\nimport os") == (0, [])


def test_folded_imports_open_by_hand_and_on_paper(open_page):
    page = open_page("notebooks/07-what-a-step-sends")
    fold = page.locator("details.hide", has_text="imports: os, re, collections")
    line = fold.get_by_text("from collections import Counter")
    assert not line.is_visible()
    fold.locator("summary").press("Enter")
    line.wait_for(state="visible")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.hide:not([open])").count() == 0


def test_on_paper_it_is_light_whole_and_without_controls(open_page):
    page = open_page("notebooks/05-loss-scaling", theme="dark")
    dark = page.evaluate("document.documentElement.dataset.theme")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    for look in (".sidebar-drawer", ".ex button", ".ex input[type=range]"):
        assert page.locator(look).count(), look
        assert not page.locator(f"{look}:visible").count(), look
    assert page.evaluate("document.documentElement.dataset.theme") == "light" != dark
    clipped = """[...document.querySelectorAll("article pre")].filter((pre) =>
      getComputedStyle(pre).overflowX !== "visible").length"""
    assert page.evaluate(clipped) == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    page.wait_for_function("(it) => document.documentElement.dataset.theme === it", arg=dark)


def test_canvases_are_printed_as_the_light_theme_draws_them(open_page):
    """A canvas keeps its colors until it is drawn again: on paper it must not be dark."""
    drawn = "[...document.querySelectorAll('.ex canvas')].map((each) => each.toDataURL()).join()"
    printed = {}
    for theme in ("light", "dark"):
        page = open_page("notebooks/06-all-reduce", theme=theme)
        page.emulate_media(reduced_motion="reduce", color_scheme=theme)
        page.evaluate(
            "matchMedia('print').addEventListener('change', ({ matches }) => "
            f"{{ if (matches) window.printed = {drawn}; }})"
        )
        page.pdf()
        printed[theme], shown = page.evaluate("window.printed"), page.evaluate(drawn)
        assert len(printed[theme]) > 10_000 and printed[theme] != shown
        page.close()
    assert printed["dark"] == printed["light"]
