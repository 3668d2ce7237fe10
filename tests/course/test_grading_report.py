"""The pages of grading: what they say, and that nothing which a student wrote acts in them."""

import csv
import io
import json
import re
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from grading_notebooks import ANSWERS, fill, make_verdict, write
from page_checks import find_with_axe

from distlab.grading.collect import HandIn
from distlab.grading.labs import read_lab
from distlab.grading.observation import CellObservation, Observation
from distlab.grading.policy import Policy, parse_penalty
from distlab.grading.report.answers import read_answers
from distlab.grading.report.classroom import make_bins
from distlab.grading.report.course import find_percent, write_course
from distlab.grading.report.pages import make_csv, write_report
from distlab.grading.report.similar import find_groups, list_tokens
from distlab.grading.report.tasks import read_tasks
from distlab.grading.report.text import to_cell
from distlab.grading.report.wording import page_name
from distlab.grading.results import ClassResult, finish
from distlab.grading.roster import Roster, Student
from distlab.grading.text import clean, clean_line

ROOT = Path(__file__).resolve().parents[2]
DUE = datetime(2026, 11, 20, 12)
ATTACKS = [
    "<script>window.owned = 1</script>",
    "<img src=x onerror='window.owned = 1'>",
    "</pre></section><svg onload='window.owned=1'>",
    "\" autofocus onfocus='window.owned = 1' x=\"",
    "javascript:window.owned=1",
    "{{ 7 * 191 }}{% for x in y %}",
    "</title><script>window.owned=1</script>",
    "<iframe src='file:///etc/hosts'></iframe><link rel=stylesheet href='http://127.0.0.1:9/x.css'>",
    "<style>body{display:none}</style>",
    "<!-- ",
    "]]>",
    "&lt;script&gt;",
]
EVIL = "\n".join(ATTACKS) + "\x1b]0;title\x07\x1b[31mred\x1b[0m\x00\x08\u202eevil"
BOS_ANSWER = '''
def plan_epoch(examples, batch):
    """Written by bo."""
    steps = examples // batch  # bo thinks that this is it
    return [steps, batch]
'''


@pytest.fixture(scope="module")
def lab():
    return read_lab("lab01", ROOT)


def make_result(lab, student, said=None, folder=None, answers=None, evil="", policy=None, **seen):
    """`said`: exercise -> (points, misconception, message, status); full marks where left out."""
    path = write(fill(answers), folder / f"{len(student)}.ipynb") if answers else None
    cells = tuple(
        CellObservation(k, "ok", trace=evil, output=evil, errors=evil) for k in lab.graded
    )
    observation = Observation(student, lab.name, "0", 1, cells, (evil,) * bool(evil), **seen)
    notes = (evil,) * bool(evil)
    return finish(
        HandIn(student, path, "0", DUE, notes),
        make_verdict(lab, student, said),
        observation,
        policy or Policy(),
        {},
    )


@pytest.fixture(scope="module")
def report(lab, tmp_path_factory):
    """The pages of a class with one right, one mistaken, one hostile and one unreadable hand-in."""
    folder = tmp_path_factory.mktemp("report")
    sentence = "plan_epoch(66, 32) gave [2, 2], should give [3, 2]: rounded down"
    policy = Policy(datetime(2026, 11, 19, 12), parse_penalty("1/day"))
    table = {"caption": "Where", "columns": ["a", "b"], "names": ["row 0"]}
    table |= {"rows": [["1", "2"]], "marked": [[0, 1]]}
    evil_table = {"caption": EVIL, "columns": [EVIL], "names": [EVIL], "rows": [[EVIL]]}
    evil_table["marked"] = [[0, 0]]
    said = {
        "bo": {
            "epoch": (0, "rounded-down", sentence, "wrong"),
            "scaling": (0, "", "no", "wrong", table),
        },
        EVIL: {e.id: (0, EVIL, EVIL, "wrong", evil_table) for e in lab.exercises},
        "cy": {e.id: (0, "", "not JSON", "for a human") for e in lab.exercises},
        "di": {"epoch": (0, "rounded-down", sentence, "wrong")},
    }
    evil_answers = {"epoch": "def plan_epoch(n, b):\n    return '" + EVIL.replace("\n", " ") + "'"}
    results = [
        make_result(lab, "ana"),
        make_result(lab, "bo", said["bo"], folder, {"epoch": BOS_ANSWER}, policy=policy),
        make_result(lab, EVIL, said[EVIL], folder, evil_answers, EVIL),
        make_result(lab, "cy", said["cy"], problem="not JSON"),
        make_result(lab, "di", said["di"], sealed=False),
    ]
    found = ClassResult(lab, tuple(results), policy, (EVIL,), (EVIL, "eli"))
    write_report(found, folder / "out")
    return found, folder / "out"


def list_pages(report):
    return [
        report[1] / "class.html",
        report[1] / "room.html",
        *sorted((report[1] / "feedback").iterdir()),
    ]


def test_nothing_that_a_student_wrote_runs_loads_or_hides_anything(report, show_page):
    page, asked, said = show_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("console", lambda message: said.append(message.text))
    for path in list_pages(report):
        asked.clear()
        page.goto(path.as_uri())
        assert page.evaluate("window.owned") is None and said == []
        assert asked == [path.as_uri()]  # the page, and nothing else
        scripts = page.locator("script").count()
        assert scripts == (path.name == "room.html"), "only the one that its policy names"
        hostile = "iframe, img, svg, link, object, [onerror], [onload], [onfocus]"
        assert page.locator(hostile).count() == 0
        assert page.locator("body").is_visible()


def test_hostile_text_is_shown_as_it_was_written(report, show_page):
    page = show_page(report[1] / "feedback" / page_name(EVIL))
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    text = page.locator("main").inner_text()
    for attack in ATTACKS:
        assert attack in text
    assert "\x1b" not in text and "\u202e" not in text and "\\x202eevil" in text
    assert "1337" not in text  # the template language isn't the students'


def test_a_policy_in_every_page_forbids_scripts_and_loads(report):
    for path in list_pages(report):
        text = path.read_text()
        assert "default-src 'none'; style-src 'unsafe-inline'" in text.partition("<title>")[0]
        assert "http://" not in text.replace("http://127.0.0.1:9/x.css", "")


CONTRAST = """() => {
  const light = c => { const [r, g, b] = c.map(v => { v /= 255;
    return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const read = text => text.match(/[\\d.]+/g).map(Number);
  const behind = e => { for (; e; e = e.parentElement) {
    const c = read(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c.slice(0, 3) } return [255, 255, 255] };
  let worst = 21;
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [light(read(getComputedStyle(e).color).slice(0, 3)), light(behind(e))];
    worst = Math.min(worst, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return worst }"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_read_in_both_themes_and_on_a_phone(report, show_page, scheme):
    page = show_page(color_scheme=scheme, viewport={"width": 360, "height": 700})
    for path in list_pages(report):
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.evaluate(CONTRAST) >= 4.5, path
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    page.emulate_media(media="print", color_scheme="light")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"


def test_pages_have_headings_languages_and_named_sections(report, show_page):
    page = show_page()
    for path in list_pages(report):
        page.goto(path.as_uri())
        assert page.locator("html").get_attribute("lang") == "en" and page.title()
        assert page.locator("h1:visible").count() == 1 and page.locator("main").count() == 1
        for section in page.locator("section").all():
            name = section.get_attribute("aria-labelledby")
            assert page.locator(f"[id='{name}']").count() == 1
        assert page.locator("th:not([scope])").count() == page.locator("dl th, details th").count()


def test_a_students_page_says_what_was_asked_given_and_wanted(report, show_page, lab):
    page = show_page(report[1] / "feedback" / page_name("bo"))
    epoch = page.locator("section.exercise").first
    values = [e.inner_text() for e in epoch.locator("dd").all()]
    assert values == ["plan_epoch(66, 32)", "[2, 2]", "[3, 2]", "rounded down (rounded-down)"]
    assert "Contract." in epoch.inner_text() and epoch.locator("summary").count() == 5
    assert "4 of 10 points" in page.locator("header").inner_text()  # 5, a day late
    assert "1 day late: 1 point off" in page.locator("header").inner_text()
    assert page.locator("section.right").count() == 2
    moment = page.locator("table.moment")
    assert moment.locator("caption").inner_text() == "Where"
    assert moment.locator("mark").all_inner_texts() == ["2"]
    page.goto((report[1] / "feedback" / page_name("cy")).as_uri())
    header = page.locator("header").inner_text()
    assert "No mark yet, of 10 points" in header and "not JSON. A teacher will look" in header
    assert "0 of" not in header and "so far" not in header


def test_no_page_shows_hidden_tests_the_reference_or_another_student(report, lab):
    tasks = read_tasks(lab)
    for path in sorted((report[1] / "feedback").iterdir()):
        text = path.read_text()
        assert "distlab.grading" not in text and "judges" not in text and "HIDDEN" not in text
        assert all(task.reference not in text for task in tasks.values())
        names = {"ana", "bo", "cy", "di"} - {path.name.rpartition("-")[0]}
        assert not any(f">{name}<" in text for name in names)
    assert "default_rng" not in text


def test_the_class_page_counts_what_it_should(report, show_page):
    page = show_page(report[1] / "class.html")
    head = page.locator("header").inner_text()
    assert "5 graded, 2 not yet" in head and "1 of these were run without the sandbox" in head
    assert "5.5 of 10 points on average, median 6" in head  # 10, 4, 0, 8; one waits
    rows = {}
    for name in ("marks", "exercises", "misconceptions", "all"):
        table = page.locator(f"section[aria-labelledby={name}] tbody tr").all()
        rows[name] = [[c.inner_text() for c in r.locator("th, td").all()] for r in table]
    assert [int(row[1]) for row in rows["marks"]] == [1, 0, 0, 0, 1, 0, 0, 0, 1, 1]
    assert rows["exercises"][0][:4] == ["1: an epoch in steps", "1 of 4", "0.5", "2"]
    first = rows["misconceptions"][0]
    assert first[0] == "2" and first[1].startswith("rounded-down\n") and first[3] == "bo, di"
    assert len(rows["all"]) == 5 and rows["all"][1][5:7] == ["−1", "4"]
    assert "cy: not JSON" in page.locator("section[aria-labelledby=human]").inner_text()
    links = page.locator("a").all()
    hrefs = [a.get_attribute("href").partition("#")[0] for a in links]
    assert [href for href in hrefs if not (report[1] / href).is_file()] == []
    assert any(href.endswith(".ipynb") for href in hrefs)  # the lesson


def test_the_room_gets_a_slide_for_each_misconception_and_a_key_shows_why(report, show_page):
    page = show_page(report[1] / "room.html", viewport={"width": 1024, "height": 768})
    text = page.locator(".slides").text_content()
    assert "lesson 01" in text and "points" not in text and "2 students" not in text
    assert not re.search(r"\b(ana|bo|cy|di|eli)\b", text)
    page.keyboard.press("ArrowRight")
    slide = page.locator(".slide:not([hidden])")
    assert page.locator(".place").inner_text() == f"2 / {page.locator('.slide').count()}"
    assert slide.locator("mark").all_inner_texts()[0].strip() == "steps = examples // batch"
    assert slide.locator("summary").inner_text() == "What does plan_epoch(66, 32) give?"
    answer = slide.get_by_text("It gives [2, 2]. It should give [3, 2].")
    assert not answer.is_visible()
    page.keyboard.press(" ")
    assert answer.is_visible() and page.locator(".place").inner_text().startswith("2 /")
    for width in (1024, 1920):
        page.set_viewport_size({"width": width, "height": 768})
        smallest = page.evaluate("""() => Math.min(...[...document.querySelectorAll("body *")]
            .filter((node) => node.checkVisibility() && node.innerText?.trim())
            .map((node) => parseFloat(getComputedStyle(node).fontSize)))""")
        assert smallest >= 36 - 0.01
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert find_with_axe(page, "light", width) == []
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Home")
    assert page.locator(".place").inner_text().startswith("1 /")


def test_page_names_are_safe_and_differ(report):
    names = ["Ana", "ana", "../../x", "a/b", "a\\b", "", ".", "é", "x" * 300, EVIL]
    found = [page_name(name) for name in names]
    assert len({name.lower() for name in found}) == len(names)
    assert all(
        len(n) < 100
        and set(n) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        and n[0] not in ".-"
        or n.startswith("student")
        for n in found
    )


def test_the_table_of_marks_holds_no_formula(report, lab):
    found, _ = report
    for text in ("=1+1", "+x", "-x", "@x", " =x", "＝1+1", "＋1"):
        assert to_cell(text).startswith("'")
    rows = list(csv.reader(io.StringIO(make_csv(found))))
    assert len(rows) == 8 and {len(row) for row in rows} == {len(rows[0])}
    assert ",".join(rows[1]) == "ana,ana,2026-11-20 12:00:00,,2,3,2,3,0,10,10,,no,yes,"
    (cy,) = (row for row in rows if row[0] == "cy")  # it waits: blank, and not 0
    assert cy[4:8] == [""] * 4 and cy[9] == "" and cy[12] == "yes"
    assert rows[-1][0] == "eli" and set(rows[-1][2:-1]) == {""}


def test_clean_text():
    assert clean("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07 a\rb\r\nc\td") == (
        "b\nc\td"
    )
    assert clean("\u202ec\u200b\x08<b>") == "\\x202ec\\x200b\\x08<b>"
    assert clean("a\x00b\x9b31mc") == "a\\x00bc" and clean_line("a\n b\t c") == "a b c"
    long = clean("x" * 100_000, 100)
    assert long.startswith("x" * 100) and "more characters" in long and len(long) < 200
    assert clean("\x1b]" + "x" * 50_000) == "" and clean("\ud800") == "\\xd800"


COURSE = {
    "ana": {"lab01": (10, 10), "lab02": (5, 20)},
    "bo": {"lab02": (20, 20)},
    "=cy": {},
    "di": {"lab01": (5, 10), "lab02": (None, 20)},
}


def test_course_table_weighs_labs_and_leaves_out_what_waits(tmp_path):
    weights = {"lab01": 1.0, "lab02": 3.0}
    assert find_percent(COURSE, "ana", weights) == pytest.approx(43.75)
    assert find_percent(COURSE, "bo", weights) == 75 and find_percent(COURSE, "=cy", weights) == 0
    assert find_percent(COURSE, "di", weights) == 50
    roster = Roster({"eve": Student("eve", "Eve Else")})
    policies = {lab: Policy(weight=weight) for lab, weight in weights.items()}
    write_course(tmp_path, COURSE, policies, roster)
    lines = (tmp_path / "course.csv").read_text().splitlines()
    assert lines[0] == "student,name,lab01,lab02,percent,waiting"
    assert lines[1:] == [
        "'=cy,'=cy,,,0.0,",
        "ana,ana,10,5,43.8,",
        "bo,bo,,20,75.0,",
        "di,di,5,,50.0,lab02",
        "eve,Eve Else,,,0.0,",
    ]


def test_the_page_over_all_labs_tells_who_falls_behind_and_how_each_week_went(tmp_path, show_page):
    roster = Roster({"eve": Student("eve", "Eve <b>Else</b>")})
    zone = ZoneInfo("Europe/Prague")
    policies = {
        "lab01": Policy(datetime(2026, 11, 27, 12), zone=zone),
        "lab02": Policy(datetime(2026, 11, 20, 12), zone=zone),
    }
    write_course(tmp_path, COURSE, policies, roster)
    page = show_page(tmp_path / "course.html")
    behind = page.locator("section[aria-labelledby=behind] li").all_inner_texts()
    assert behind == [
        "=cy: lab02 not handed in, lab01 not handed in",
        "Eve <b>Else</b>: lab02 not handed in, lab01 not handed in",
    ]
    table = page.locator("section[aria-labelledby=weeks] tbody tr").all()
    rows = [[c.inner_text() for c in row.locator("th, td").all()] for row in table]
    assert rows[0][:6] == ["lab02", "week 47: 2026-11-20 13:00 CET", "3 of 5", "1", "1", "62"]
    assert rows[1][:6] == ["lab01", "week 48: 2026-11-27 13:00 CET", "2 of 5", "", "", "75"]
    page.set_viewport_size({"width": 360, "height": 700})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST) >= 4.5
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_table_of_the_term_is_sorted_and_filtered_in_the_page(tmp_path, show_page):
    course = {f"s{n:03}": {"lab01": (n % 11, 10), "lab02": (5, 10)} for n in range(120)}
    course["s007"]["lab01"] = (None, 10)
    course["s008"]["lab02"] = (2, 10)
    del course["s009"]["lab02"]
    (tmp_path / "lab02").mkdir()
    (tmp_path / "lab02" / "marks.csv").write_text(
        "student,late_penalty,set_by_hand\ns008,-3,\ns010,0,epoch\n"
    )
    roster = Roster({"s008": Student("s008", EVIL)})
    write_course(tmp_path, course, {}, roster)
    page = show_page(tmp_path / "course.html")

    def rows():
        return [
            row.locator("th, td").all_inner_texts()
            for row in page.locator("#term tbody tr:visible").all()
        ]

    assert len(rows()) == 120 and page.inner_text("#shown") == "120 of 120"
    for chosen, student, place, text in (
        ("waits", "s007", 1, "waits"),
        ("missing", "s009", 2, "–"),
        ("by-hand", "s010", 2, "50 by hand"),
    ):
        page.select_option("#state", chosen)
        (row,) = rows()
        assert row[0] == student and " ".join(row[place].split()) == text
    page.select_option("#state", "late")
    (row,) = rows()
    assert "<script>" in row[0] and " ".join(row[2].split()) == "20 late"
    page.select_option("#state", "")
    page.fill("#name", "S01")
    assert [row[0] for row in rows()] == [f"s01{n}" for n in range(10)]
    page.click("#term th:nth-child(2) button")
    marks = [int(row[1]) for row in rows()]
    assert marks == sorted(marks) and len(set(marks)) > 5
    page.click("#term th:nth-child(2) button")
    assert [int(row[1]) for row in rows()] == marks[::-1]
    assert page.locator("#term th:nth-child(2)").get_attribute("aria-sort") == "descending"
    assert page.evaluate("window.owned") is None
    page.emulate_media(media="print")
    assert not page.locator(".tools").is_visible()
    for scheme in ("light", "dark"):
        page.emulate_media(media="screen", color_scheme=scheme)
        assert page.evaluate(CONTRAST) >= 4.5


def test_bins():
    assert [b["count"] for b in make_bins([0, 0.99, 1, 10, 9.5], 10)] == [2, 1, *[0] * 7, 2]
    assert sum(b["count"] for b in make_bins([0.1 * 3, 0, 1], 1)) == 3
    assert [b["count"] for b in make_bins([0], 0)][0] == 1


# answers and their likeness

SPLIT = '''
def replica_batch_sizes(batch_size, workers, replicas_per_worker):
    """Split the batch."""
    sizes = []
    replicas = workers * replicas_per_worker
    base = batch_size // replicas
    for index in range(replicas):
        extra = 1 if index < batch_size % replicas else 0  # the rest
        sizes.append(base + extra)
    return sizes
'''
COPIED = """
def replica_batch_sizes(n: int, w: int, r: int) -> list[int]:
    # all my own work
    out = [ ]
    total = w*r
    each = n//total
    for i in range(total):
        more = (1 if i < n % total else 0)
        out.append( each+more )

    return out
"""
OTHER = """
def replica_batch_sizes(batch_size, workers, replicas_per_worker):
    import numpy as np
    edges = np.linspace(0, batch_size, workers * replicas_per_worker + 1).round()
    left = [int(b - a) for a, b in zip(edges[:-1], edges[1:])]
    left.sort(reverse=True)
    return tuple(left)
"""


def test_copies_are_found_whatever_was_renamed_and_others_are_not():
    texts = {"ana": SPLIT, "bo": COPIED, "cy": OTHER, "di": "def f(): return 1"}
    answers = {student: {"batches": text} for student, text in texts.items()}
    (group,) = find_groups(answers, {"batches": ("", "")})
    assert group.students == ("ana", "bo") and group.exercises == (("batches", 1.0),)
    assert find_groups(answers, {"batches": ("", SPLIT)}) == []  # the reference is nobody's copy
    many = {f"s{k:02}": {"batches": SPLIT} for k in range(9)}
    assert find_groups(many, {"batches": ("", "")}) == []  # a common way to write it
    (group,) = find_groups(dict(list(many.items())[:4]), {"batches": ("", "")})
    assert group.students == ("s00", "s01", "s02", "s03")  # one row, and not six pairs


def test_answers_that_do_not_parse_are_compared_too():
    broken = SPLIT.replace("return sizes", "return sizes)")
    answers = {"ana": {"b": broken}, "bo": {"b": broken + "# mine"}}
    assert len(find_groups(answers, {"b": ()})) == 1
    assert (
        list_tokens("x = '" + "(" * 10)
        and list_tokens("-" * 100_000)
        and list_tokens("\x00") is not None
    )


def test_annotations_do_not_count():
    assert list_tokens("class A:\n    x: int") != list_tokens("class A:\n    pass")
    plain = (
        "def f(a, *b):\n    c = [d := a for _ in b]\n    async def g(e): return e\n    return c, g"
    )
    noted = """def f(a: int, *b: int) -> tuple:
    c: list[int] = [d := a for _ in b]
    async def g(e: str) -> str: return e
    return c, g"""
    assert list_tokens(plain) == list_tokens(noted)


def test_right_answers_of_different_styles_are_not_alike():
    for exercise, texts in ANSWERS.RIGHT.items():
        answers = {f"s{k}": {exercise: text} for k, text in enumerate(texts)}
        assert find_groups(answers, {exercise: ()}) == [], exercise


def test_answers_are_found_in_a_damaged_notebook(lab, tmp_path):
    path = write(fill({"epoch": "def plan_epoch(a, b): return 7"}), tmp_path / "a.ipynb")
    assert read_answers(path, lab)["epoch"] == "def plan_epoch(a, b): return 7"
    data = json.loads(path.read_text())
    for cell in data["cells"]:
        cell["metadata"] = {}
    path.write_text(json.dumps(data))
    assert read_answers(path, lab)["epoch"] == "def plan_epoch(a, b): return 7"
    for text in ("[]", "{", "[" * 100_000, '{"cells": [3]}', '{"cells": [{"cell_type": "code"}]}'):
        path.write_text(text)
        assert read_answers(path, lab) == {}
    (tmp_path / "link").symlink_to(path)
    assert read_answers(tmp_path / "link", lab) == read_answers(None, lab) == {}


def test_tasks_are_read_from_the_labs_source(lab):
    tasks = read_tasks(lab)
    assert list(tasks) == [e.id for e in lab.exercises]
    for task in tasks.values():
        assert "<strong>Contract.</strong>" in task.asked and "Example" in task.asked
        assert [title for title, _ in task.hints] == ["Hint 1", "Hint 2", "Worked idea"]
        assert all("<details" not in text for text in (task.asked, *dict(task.hints).values()))
