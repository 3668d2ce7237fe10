"""Each explorable under the hand in Chromium; test_browser_models.py has what they compute."""

import json
import re
from dataclasses import replace

import nbformat
import numpy as np
import pytest
from lab_server import Lab
from nbformat.v4 import new_code_cell, new_notebook
from page_checks import find_with_axe, wait_for_colors, watch
from process_watch import wait_for
from test_explorer_predictions import make_explorer

from distlab.errors import CourseError
from distlab.exercises.predict import show_guess
from distlab.explorables import (
    Explorable,
    Slider,
    explore,
    guess_number,
    guess_word,
    memory_machine,
    schedule_toy,
)
from distlab.explorables.amdahl import amdahl_explorer
from distlab.explorables.batches import batch_explorer
from distlab.explorables.bundle import BROWSER, join_style, wrap_base, wrap_piece
from distlab.explorables.catalog import EXAMPLES
from distlab.explorables.checkpoint_interval import interval_explorer
from distlab.explorables.choosing import choosing_explorer
from distlab.explorables.cut_explorer import LARGEST, SMALLEST, cut_explorer
from distlab.explorables.engine_death import death_explorer
from distlab.explorables.explorable import MIME, write_fragment
from distlab.explorables.host_loop import host_loop_explorer
from distlab.explorables.one_model import one_model_explorer
from distlab.explorables.rates import rates_explorer
from distlab.explorables.ring import RingMessage, replay_ring
from distlab.explorables.run_log import run_explorer
from distlab.explorables.screenshots import write_page
from distlab.explorables.sharing import pace_explorer
from distlab.figures import bars, images
from distlab.figures.palette import BLACK, IDEAS, REPLICAS
from distlab.lessons.killed_run import KilledRun, StepLine
from utils.engines import RunReport
from utils.schedules import read_schedule
from utils.simulate.planner import Run, tabulate_layouts

# What a keyboard moves in each example: the control's name, and the keys.
MOVES = {
    "race": [("Ranks", "ArrowLeft"), ("Size of the vector", "End")],
    "ring": [("Time of the all-reduce", "End")],
    "schedule": [("Micro-batches", "ArrowLeft"), ("Follow micro-batch", "End")],
    "arrow": [("Replicas", "ArrowRight"), ("Steps", "End")],
    "memory": [("Parameters", "ArrowRight"), ("Data parallel", "ArrowLeft")],
    "conveyor": [
        ("Files read at once", "End"),
        ("Prefetch, batches", "End"),
        ("Time of the belt", "Home"),
    ],
    "sharding": [("Workers", "ArrowRight"), ("Files", "ArrowLeft"), ("Time of the epoch", "Home")],
    "step": [("Bucket", "End"), ("Workers", "ArrowRight"), ("Time of one step", "Home")],
    "values": [("First value", "ArrowRight"), ("Steps", "End"), ("Values", "ArrowLeft")],
    "staleness": [("Slow worker", "End"), ("Time of the race", "Home")],
    "floats": [("A number", "End"), ("Loss scale", "ArrowRight"), ("Replicas", "End")],
    "cluster": [("TF_CONFIG on node-a", "Backspace")],
    "guess": [("Idle time of four devices", "ArrowRight")],
}


def show_owners(replicas):
    owners = np.arange(20) * replicas // 20
    return images(np.zeros((20, 8, 8)), owners, title=f"Images of {replicas} replicas")


EXPLORERS = {
    "images": lambda: explore(show_owners, replicas=Slider("Replicas", 1, 8, 2)),
    "cut": batch_explorer,
    "spans": pace_explorer,
    "lines": lambda: amdahl_explorer(0.9, {"measured": {2: 1.7}}),
    "bars": make_explorer,
    "words": choosing_explorer,
}


@pytest.fixture(scope="module")
def blank(chromium):
    return chromium.new_page()


# ---- each piece under the hand


KINDS = ("error", "warning", "log", "info", "debug")  # a piece says nothing at all


@pytest.fixture
def open_piece(show_page, tmp_path):
    def open_piece(name: str, theme: str = "light", width: int = 1000, **options):
        """Return a page with the example, opened from its folder, and a list of what goes wrong."""
        path = write_page(EXAMPLES[name](), tmp_path / f"{name}-{theme}.html", theme)
        page = show_page(viewport={"width": width, "height": 900}, **options)
        wrong = watch(page, heard=KINDS)
        page.goto(path.as_uri())
        page.locator(".ex-stage").wait_for()
        return page, wrong

    return open_piece


@pytest.fixture
def open_html(show_page, tmp_path):
    """Return a function that opens a page with pieces, or with HTML."""

    def open_html(*parts, name: str = "page"):
        html = "".join(part if isinstance(part, str) else part.to_html() for part in parts)
        path = tmp_path / f"{name}.html"
        path.write_text(f"<!doctype html><meta charset=utf-8><body>{html}")
        return show_page(path)

    return open_html


def see(page) -> bytes:
    """Return the picture without its controls, when it has come to rest."""
    page.wait_for_timeout(450)
    hide = page.add_style_tag(content=".ex-controls, .ex-player { visibility: hidden }")
    picture = page.locator(".ex-stage").screenshot()
    hide.evaluate("(style) => style.remove()")
    return picture


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_move_changes_the_picture_by_keyboard_alone(open_piece, name):
    page, wrong = open_piece(name)
    page.evaluate("document.querySelectorAll('.ex-more').forEach((more) => (more.open = true))")
    for label, key in MOVES[name]:
        before = see(page)
        control = page.get_by_label(label, exact=True)
        said = read(control)
        reach(page, control)
        page.keyboard.press(key)
        assert see(page) != before, label
        assert read(control) != said
    assert wrong == []


def read(control) -> str:
    """Return what a slider says of its value, or the text of a field."""
    return control.evaluate("(node) => node.getAttribute('aria-valuetext') ?? node.value")


TRY = """async ([{data, options}, name, others]) => {
  const require = REQUIRE, { mount } = require("./core.js"), joined = require(`./${name}.js`);
  const host = document.createElement("div"), found = [];
  document.body.replaceChildren(host);
  const { stage, end } = mount(joined.piece, host, data, options);
  const frame = () => new Promise(requestAnimationFrame);
  const read = async () => {
    await frame(), await frame();
    return [".ex-tries p", ".ex-unseen"].map((name) => host.querySelector(name).textContent);
  };
  const place = (values) => (joined.placeValues ? joined.placeValues({ data }, values) : values);
  const asked = joined.listTries?.(data) ?? joined.TRIES ?? data.tries;
  for (const [k, { set: told, act: acted, answer }] of asked.entries()) {
    const one = ([name, value]) => [name, [value].flat()[0]];
    const set = place(told), act = place(Object.fromEntries(Object.entries(acted).map(one)));
    host.querySelectorAll(".ex-tries button")[k].click();
    const before = await read(), names = Object.keys(act);
    const same = Object.entries(set).every(([name, value]) => stage.options[name] === value);
    stage.change(act);
    const known = same && names.every((name) => name in stage.options);
    const each = { before, after: await read(), answer, known, others: [] };
    for (const other of others[k] ?? []) {
      host.querySelectorAll(".ex-tries button")[k].click();
      stage.change(other);
      each.others.push((await read())[0] === answer);
    }
    found.push(each);
  }
  end();
  return found;
}"""


def show_log():
    """Return lesson 22's explorer of a run of 100 steps.

    A step takes 0.5 s, and reports came every five steps. It starts in 4 s, saves every 20 steps,
    is killed after step 35, and restarts in 6 s.
    """
    steps = [StepLine(4 + 0.5 * n, 1, n, 0.5) for n in range(5, 36, 5)]
    steps += [StepLine(27.5 + 0.5 * (n - 20), 2, n, 0.5) for n in range(25, 101, 5)]
    report = RunReport(2, 1, 75.0)
    return run_explorer(KilledRun(1, 33, report, steps, resumed_from=20), 20, 0.2)


def show_cuts():
    """Return lesson 23's explorer."""
    run = Run(parameters=7e9, layers=32, hidden=4096, sequence=4096, vocabulary=50_000, tokens=1e12)
    runs = {"short": run, "long": replace(run, sequence=131_072, global_batch=32)}
    sizes = [2**power for power in range(SMALLEST, LARGEST + 1)]
    return cut_explorer(
        {name: tabulate_layouts(each, "H100", "8x400Gb/s", sizes) for name, each in runs.items()},
        capacity_gb=80,
        name="H100",
    )


TRIED = {  # of a question: what the piece said before and after the hand did it
    ("race", 0): ("100 MB: Ring", "1 MB: Recursive doubling"),
    ("race", 2): (
        "Ring 19.3 ms, Recursive doubling 40.1 ms, H",
        "Ring 19.3 ms, Hierarchical 21.1 ms",
    ),
    ("schedule", 0): ("GPipe: 42.9 %", "15.8 % of the time idle, a stage keeps at most 16"),
    ("schedule", 1): (
        "27.3 % of the time idle",
        "1F1B: 27.3 % of the time idle, a stage keeps at most 4",
    ),
    ("schedule", 2): ("1F1B: 27.3 %", "ZB-H1: 11.1 % of the time idle, a stage keeps at most 4 "),
    ("memory", 0): ("needs 130 GB", "weights 14 GB, gradients 14 GB, optimizer state 10.5 GB"),
    ("memory", 1): ("activations 18.2 GB", "activations 36.3 GB"),
    ("memory", 2): ("between replicas 24.5 GB", "between replicas 36.8 GB"),
    ("arrow", 0): ("× 1 that", "on 4 replicas, 16 examples: the step is × 1 that"),
    ("arrow", 1): ("× 1 that", "× 4 that of one device"),
    ("arrow", 2): ("× 1 that", "× 0.625 that of one device"),
    ("conveyor", 0): ("1,600 examples a second", "1,600 examples a second"),
    ("conveyor", 1): (
        "The bottleneck is the map",
        "starves 0 % of the time. The bottleneck is the acc",
    ),
    ("conveyor", 2): ("starves 0 %", "starves 20 %"),
    ("sharding", 0): ("32 are trained on once", "TensorFlow refuses FILE"),
    ("sharding", 1): ("32 are read", "128 are read"),
    ("sharding", 2): ("0 more than once, 0 never", "7 more than once, 8 never"),
    ("step", 0): ("4 buckets", "all-reduce takes 14.3 ms; the devices wait 14.3 ms for it"),
    ("step", 1): ("all-reduce takes 15.1 ms", "50 buckets whose all-reduce takes 28 ms"),
    ("staleness", 0): ("96 gradients used", "24 gradients used"),
    ("staleness", 1): (
        "24 gradients used",
        "75 gradients used, 0 thrown away, mean staleness 2.83",
    ),
    ("staleness", 2): ("24 gradients used", "72 gradients used, 5 thrown away, mean staleness 0"),
    ("floats", 0): ("1000 in float16", "70144 in bfloat16, infinity in float16"),
    ("floats", 1): ("in float16", "0 in float16"),
    ("floats", 2): ("1000 in float16", "3000 in float16"),
    ("floats", 3): ("98.6 % are below", "0 % beyond"),
    ("cluster", 0): (
        "both say that they are worker 0, so one would stop and the other would wait. together",
        "The cluster forms: worker 0 on node-a and worker 1",
    ),
    ("cluster", 1): (
        "The cluster forms",
        "node-a would wait, node-b would wait. together: worker:2",
    ),
    ("cluster", 2): (
        "The cluster forms",
        "node-a trains alone, without a word, node-b trains alone",
    ),
    ("cut", 0): ("It doesn't fit", "data 64, ZeRO 1, micro-batch 2"),
    ("cut", 1): ("It doesn't fit", "Bottleneck: "),
    ("cut", 2): ("9,039 hours, 12 % MFU", "2 % MFU. Bottleneck: bubble"),
    ("death", 0): ("so 10 steps are trained twice", "so 0 steps are trained twice"),
    ("death", 1): ("The launcher sees", "You start both again"),
    ("death", 2): ("resumes from step 40", "resumes from step 0, so 50 steps are trained twice"),
    ("log", 0): (
        "75 s, 13.5 s later than",
        "15 steps trained twice, 5 saves in 1 s. It ends after ",
    ),
    ("log", 1): ("15 steps trained twice", "0 steps trained twice, 20 saves in 4 s."),
    ("log", 2): ("15 steps trained twice", "87 steps trained twice, 0 saves in 0 s."),
    ("values", 0): ("the answer is 3.5", "the answer is 3.417"),
    ("values", 1): ("the answer is", "InvalidArgumentError"),
    ("values", 2): ("the answer is", "the answer is 28"),
    ("ring", 0): ("", ""),
    ("batch", 0): ("= 64 for each", "= 32 for each"),
    ("batch", 1): ("= 32 for each", "= 64 for each"),
    ("batch", 2): ("= 64 for each", "has nothing to do"),
    ("one model", 0): ("lesson 15: tensor 8: 16 GB", "lesson 15: tensor 8: 23 GB. 9.9 of 13.2 s"),
    ("pace", 0): ("24 with an all-reduce", "36 with an all-reduce"),
    ("pace", 1): ("48 with an all-reduce", "39 where nobody waits"),
    ("pace", 2): ("24 with an all-reduce", "48 with an all-reduce"),
    ("amdahl", 0): ("speed-up of 2.58", "speed-up of 5.93"),
    ("amdahl", 1): ("used for 100 %", "used for 12.5 %"),
    ("amdahl", 2): ("speed-up of 4.71", "speed-up of 9.66"),
    ("interval", 0): ("Least possible: every 4.17 min", "Least possible: every 40.8 min"),
    ("interval", 1): ("Least possible: every 4.17 min", "Least possible: every 2.08 min"),
    ("host", 0): ("for 40 % of it", "for 91 % of it"),
    ("host", 1): ("for 40 % of it", "for 77 % of it"),
    ("rates", 0): ("warm-up: 16.1, 16.8, 17.5 %", "scaled: 21.0, 27.8, 35.2 %"),
    ("rates", 1): ("the warm-up 18 steps", "the warm-up 8 steps"),
    ("rates", 2): ("An epoch is 9 steps", "An epoch is 312 steps"),
    ("predictions", 0): ("cat with 70 %, which is right", "wrong: it is owl"),
    ("predictions", 2): ("cat with 70 %", "with 33 %"),
    ("choosing", 0): ("Strategy: 1 billion parameters", "one device: 0.1 billion parameters"),
}
ALSO = {  # of a question: what answers it, too, and what doesn't
    ("race", 0): ([{"bytes": 1e5}, {"bandwidth": 1e12}], [{"bytes": 1e9}]),
    ("schedule", 0): ([{"stages": 3}, {"micros": 5}], [{"micros": 3}, {"stages": 5}]),
    ("schedule", 1): ([{"upper": "1f1b"}], [{"lower": "zb-h1"}]),
    ("conveyor", 1): ([{"calls": 2}, {"cache": "augmented"}], [{"cores": 8}, {"stepMs": 900}]),
    ("memory", 0): ([{"tensorLog": 3}, {"zero": 3}], [{"dataLog": 5}, {"capacity": 192}]),
    ("arrow", 2): ([{"examples": 15}], [{"replicas": 2}]),
    ("sharding", 0): ([{"files": 1}], [{"workers": 1}]),
    ("values", 0): ([{"owners": "00012323"}], [{"count": 6}, {"owners": "10102323"}]),
    ("floats", 3): ([], [{"scale": 1}, {"type": "bfloat16"}]),
}
ERRORS = {  # as lesson 17 measures them, in percent
    ("same rate", 32): [14.2, 14.8, 13.5],
    ("same rate", 1024): [25.0, 27.0, 25.3],
    ("same rate", 2048): [36.6, 36.9, 33.7],
    ("scaled", 32): [14.2, 14.8, 13.5],
    ("scaled", 1024): [35.2, 27.8, 21.0],
    ("scaled", 2048): [90.6, 85.5, 74.4],
    ("scaled, warm-up", 32): [14.2, 14.8, 13.5],
    ("scaled, warm-up", 1024): [16.8, 16.1, 17.5],
    ("scaled, warm-up", 2048): [90.0, 72.5, 90.0],
}
ASKING = {
    "cut": show_cuts,
    "death": death_explorer,
    "log": show_log,
    "batch": batch_explorer,
    "pace": pace_explorer,
    "amdahl": lambda: amdahl_explorer(0.9, {"AlexNet": {2: 1.89, 8: 5.97}, "yours": {2: 0.9}}),
    "interval": interval_explorer,
    "host": host_loop_explorer,
    "one model": lambda: one_model_explorer(15),
    "rates": lambda: rates_explorer(0.005, 32, examples=10_000, epochs=8, errors=ERRORS),
    "predictions": make_explorer,
    "choosing": choosing_explorer,
}


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in TRIED))
def test_a_question_is_answered_when_one_does_what_it_asks(blank, name):
    piece = (EXAMPLES | ASKING)[name]()
    piece._repr_mimebundle_()  # an explorer freezes its frames, as for a page
    script = TRY.replace("REQUIRE", f"{wrap_base()}({wrap_piece(piece.piece)})")
    others = {k: sum(both, []) for (own, k), both in ALSO.items() if own == name}
    given = [{"data": piece._page_data(), "options": dict(piece.options)}, piece.piece, others]
    for k, one in enumerate(blank.evaluate(script, given)):
        assert one["known"] and one["before"][0].endswith("Try it: the answer shows here.")
        assert one["after"][0] == one["answer"]
        before, after = TRIED.get((name, k), ("", ""))
        assert before in one["before"][1] and after in one["after"][1], one
        right, wrong = ALSO.get((name, k), ([], []))
        assert one["others"] == [True] * len(right) + [False] * len(wrong), (k, one["others"])


def reach(page, control) -> None:
    """Press Tab until the control has the focus."""
    page.evaluate("document.activeElement.blur()")
    for _ in range(60):
        page.keyboard.press("Tab")
        if control.evaluate("(node) => node === document.activeElement"):
            return
    raise AssertionError(f"{control} cannot be reached by Tab")


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_accessible_and_fits_in_both_themes(open_piece, name):
    for theme, width in (("light", 480), ("dark", 1600)):
        page, wrong = open_piece(name, theme, width)
        assert find_with_axe(page) == []
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{name} is {wide} pixels wide on a page of {width}"
        used = page.locator(".ex-stage").bounding_box()["width"]
        assert used > 0.93 * width
        pictures = page.locator("svg[role=img], canvas")
        for words in pictures.evaluate_all("(all) => all.map((n) => n.getAttribute('aria-label'))"):
            assert len(words) > 20
        assert wrong == []


def test_explorers_are_accessible_and_answer_where_no_kernel_runs(show_page, tmp_path):
    """One of each kind of chart, on one page."""
    pieces = [make() for make in EXPLORERS.values()]
    shown = "".join(
        f"<div>{piece._repr_mimebundle_() and piece.to_html()}</div>" for piece in pieces
    )
    for theme, width in (("light", 480), ("dark", 1600)):
        path = write_page(schedule_toy(), tmp_path / f"{theme}.html", theme)
        begin, _, rest = path.read_text().partition('<div id="ex-')
        path.write_text(f"{begin}{shown}</main></body></html>")
        page = show_page(viewport={"width": width, "height": 900})
        wrong = watch(page, heard=KINDS)
        page.goto(path.as_uri())
        stages = page.locator(".ex-stage")
        stages.nth(len(pieces) - 1).wait_for()
        for k in range(len(EXPLORERS)):
            before = stages.nth(k).inner_text()
            stages.nth(k).locator("input[type=range]").first.press("End")
            changed = "([node, before]) => node.innerText !== before"
            page.wait_for_function(changed, arg=[stages.nth(k).element_handle(), before])
        wait_for_colors(page)
        assert find_with_axe(page) == [] and wrong == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_play_moves_and_with_reduced_motion_it_steps(open_piece):
    for motion in ("no-preference", "reduce"):
        page, _ = open_piece("race", reduced_motion=motion)
        place = page.get_by_label("Time of the all-reduce", exact=True)
        place.evaluate("""(node) => {
          const look = () => { seen.add(node.value); requestAnimationFrame(look); };
          window.seen = new Set();
          look();
        }""")
        page.get_by_role("button", name="Play").click()
        if motion == "reduce":
            page.wait_for_function("seen.size === 2")
            page.wait_for_timeout(300)
            assert page.evaluate("seen.size") == 2, "one step for each press"
        else:
            page.wait_for_function("seen.size > 4")


def test_several_pieces_stand_on_one_page(open_html):
    own = read_schedule([[("F", 0), ("BW", 0)], [("F", 0), ("BW", 0)]], micro_batches=1)
    page = open_html(schedule_toy(own=own), schedule_toy("zb-h2", None), memory_machine())
    assert page.locator(".ex-stage").count() == 3
    assert page.locator(".ex-stage strong").first.inner_text() == "Your schedule"


def test_a_schedule_that_gets_stuck_is_drawn_up_to_there(open_html):
    own = read_schedule([[("F", 0), ("BW", 0), ("F", 1), ("BW", 1)], [("F", 1), ("F", 0)]], 2)
    page = open_html(schedule_toy(own=own, wrong=(0, 1, "forward 1 is due")))
    assert page.get_by_role("alert").first.inner_text() == "forward 1 is due"
    assert page.locator("rect[stroke-width='3.5']").count() == 2  # one for each stage that waits


def test_a_replay_of_a_ring_stops_at_the_wrong_message(open_html):
    sent = [RingMessage(0, 0, 1, 0, 1.0, True), RingMessage(0, 1, 0, 1, 20.0, True)]
    late = RingMessage(1, 0, 1, 1, 20.0, False)
    wrong = (1, 0, "rank 0 sent 20 in step 1; 22 was due")
    for stop in (wrong, None):
        page = open_html(replay_ring([[1.0, 2.0], [10.0, 20.0]], [*sent, late], wrong=stop))
        lines = page.locator(".ex-key").first.locator("li").all_inner_texts()
        if stop is None:
            assert lines == ["Every message is as it should be."]
        else:
            said = [
                "Rank 0 sent 20 in step 1; 22 was due.",
                "rank 0 → rank 1, chunk 1: 20.00 copied",
            ]
            assert lines == said and stop[2] in page.locator("canvas").get_attribute("aria-label")
            page.get_by_role("button", name="Back").click()
            page.wait_for_function("document.querySelector('output').textContent === 'step 0'")


def test_a_click_does_what_a_control_does(open_html):
    explorer = choosing_explorer()
    explorer._repr_mimebundle_()  # makes the frames of a page without a kernel
    page = open_html(explorer)
    page.locator("svg[role=img]").first.click(position={"x": 110, "y": 12})
    page.get_by_text("more devices: 100 billion parameters on 1 device", exact=True).wait_for()
    page = open_html(EXAMPLES["values"]())
    page.locator("[data-number='0']").click()
    said = page.locator(".ex-unseen")
    wait_for(lambda: "replica 0 1; replica 1 0, 2, 3; replica 2" in said.inner_text())
    page.locator(".ex-more summary").click()
    page.get_by_label("Move value 1 to the next replica").press("Enter")
    wait_for(lambda: "replica 0 1; replica 1 2, 3; replica 2 0, 4" in said.inner_text())


def test_a_color_follows_the_idea_and_not_the_words(open_html):
    def list_fills(first: str, second: str, idea: str = "") -> list[str]:
        def show(n):
            picture = bars({first: n, second: 1.0}, unit="s", title="Two")
            return picture.with_ideas({first: idea}) if idea else picture

        piece = explore(show, n=Slider("N", 1, 9, 3))
        piece._repr_mimebundle_()  # makes the frames of a page without a kernel
        parts = open_html(piece).locator(".ex-stage svg rect")
        parts.nth(1).wait_for()
        return [part.get_attribute("fill") for part in parts.all()]

    usual = list_fills("weights", "host")
    assert usual == list_fills("anything", "else")
    waits = list_fills("weights", "host", idea="wait")
    assert waits == list_fills("anything", "else", idea="wait") != usual
    with pytest.raises(CourseError, match="idea must be one of forward, .*, got 'no-such'"):
        bars({"one": 1.0}, unit="s", title="One").with_ideas({"one": "no-such"})


def test_a_piece_that_stands_twice_on_a_page_has_two_names(open_html):
    piece = EXAMPLES["values"]()
    parts = (piece.piece, piece.data, piece.options, "")
    page = open_html(*(write_fragment(*parts, place=f"cell {number}") for number in range(2)))
    page.locator(".ex-stage").nth(1).wait_for()
    first, second = (stage.get_attribute("aria-label") for stage in page.locator(".ex-stage").all())
    assert second == f"{first} (2)"


def test_the_cockpit_shows_a_pause_before_what_it_interrupts(open_html):
    """And keeps its width when JupyterLab hides it for a moment, as for another theme."""
    can = {"kill": False, "pause": False, "restart": False, "slow": None}
    lane = {
        "name": "worker 0",
        "state": "done",
        "words": "done",
        "facts": "",
        "bytes": "",
        "notes": "",
        "can": can,
        "pause": "pause",
        "lost": [],
        "flags": [],
        "marks": [],
        "spans": [[0, 8, "paused"], [0, 8, "compute"]],
    }
    words = dict.fromkeys(("status", "message", "lines", "log", "logWords"), "")
    data = words | {"finished": True, "lanes": [lane], "losses": [], "clock": 8}
    page = open_html(Explorable("cockpit", data | {"label": "Cockpit"}, {}, ""))
    look = """(canvas) => [canvas.width / canvas.clientWidth,
        ...canvas.getContext("2d").getImageData(9, 20, 1, 1).data]"""
    canvas = page.locator(".ck-row[role=group] canvas")
    before, red, _, blue, _ = canvas.evaluate(look)
    assert red > blue + 60  # amber, not the blue of computing
    page.evaluate("""async () => {
        const frame = () => new Promise((done) => requestAnimationFrame(done)), { body } = document;
        body.style.display = "none";
        document.documentElement.dataset.theme = "dark";
        await frame();
        await frame();
        body.style.display = "";
        await frame();
    }""")
    assert canvas.evaluate(look)[0] == pytest.approx(before, rel=0.02)


def test_in_jupyterlab_the_kernel_hears_what_the_hand_chose(show_page, tmp_path):
    cells = [
        "from distlab.explorables import schedule_toy\ntoy = schedule_toy()\ntoy",
        "print(toy.options['micros'], toy.options['follow'])",
        "toy.options = {**toy.options, 'stages': 2}",
        "from distlab.explorables.batches import batch_explorer\nbatch_explorer()",
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = new_notebook(
        cells=[new_code_cell(c) for c in cells], metadata={"kernelspec": kernel}
    )
    course, home = tmp_path / "course", tmp_path / "home"
    for folder in (course / "notebooks", course / "labs", home):
        folder.mkdir(parents=True)
    (course / "README.md").write_text("# The course\n")
    nbformat.write(notebook, course / "notebooks/01-toy.ipynb")
    with Lab(course, home) as running:
        page = show_page(viewport={"width": 1400, "height": 1000})
        page.goto(running.find_address("notebooks/01-toy.ipynb"))
        move_in_jupyterlab(page)
        page.close()


def move_in_jupyterlab(page) -> None:
    """Run the piece, move it by the keyboard, read its options, set one from Python.

    Then move an explorer, whose picture the kernel draws.
    """
    page.wait_for_selector("#jp-main-statusbar >> text=/Python 3.*Idle/")
    cells = [page.locator(".jp-Notebook .jp-CodeCell").nth(k) for k in range(4)]
    cells[0].locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    micros, follow = (
        page.get_by_label(n, exact=True) for n in ("Micro-batches", "Follow micro-batch")
    )
    micros.wait_for()
    micros.focus()
    page.keyboard.press("ArrowRight")
    page.locator(".ex-more summary").click()
    follow.focus()
    page.keyboard.press("End")
    assert page.locator(".jp-Notebook .jp-CodeCell").count() == 4  # Lab's own keys did nothing

    def run_second():
        cells[1].locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(400)
        return cells[1].get_by_text("9 15").count()

    wait_for(run_second)  # JupyterLab sends a move when the kernel has taken the one before
    cells[2].locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    page.locator(".ex-stage").get_by_text("stage 1").first.wait_for()
    page.locator(".ex-stage").get_by_text("stage 2").first.wait_for(state="detached")
    page.keyboard.press("Shift+Enter")
    page.get_by_label("Replicas per worker").press("ArrowRight")
    page.wait_for_selector("svg[aria-label*='divide by 20 replicas']")


def test_the_answer_slides_in_beside_a_word(open_html):
    piece = guess_word("Which one?", "ring", "tree")
    piece.show_answer("tree")
    page = open_html(piece)
    assert "measured: tree" in page.locator(".ex-stage").inner_text()
    page.get_by_label("tree").check()
    page.get_by_text("measured: tree, as you said").wait_for()


def test_a_page_without_a_kernel_shows_the_answer_when_asked(open_html):
    piece = guess_number("How long?", 0, 60, "min")
    piece.data = {**piece.data, "later": {"answer": 75.0, "how": "simulated"}}
    page = open_html(piece)
    assert "75" not in page.locator(".ex-stage").inner_text()
    page.get_by_role("button", name="Show the answer").click()
    page.get_by_text("simulated: 75 min").first.wait_for()
    assert page.get_by_role("button").count() == 0


def test_guesses_gather_in_a_strip_that_the_home_page_can_read(open_html):
    """What is moved after the answer is no guess any more."""
    pieces = [
        guess_number("How long?", 0, 60, "min"),
        guess_word("Which?", "ring", "tree"),
        guess_number("How often?", 0, 100),
    ]
    for piece, answer in zip(pieces, (75.0, "tree", 50.0)):
        piece.data = {**piece.data, "later": {"answer": answer, "how": "measured"}}
    page = open_html(*pieces, name="lesson")
    page.get_by_label("How long?", exact=True).press("End")
    page.get_by_label("ring", exact=True).check()
    show = page.get_by_role("button", name="Show the answer")
    show.first.click()
    page.get_by_text("measured: 75 min", exact=True).wait_for()
    assert not page.get_by_text("in this lesson").count(), "one guess makes no strip"
    show.first.click()
    page.get_by_text("Your 2 guesses in this lesson").wait_for()
    assert page.get_by_text(re.compile("^(Spot on|Near|Far off)")).count()
    show.first.click()
    page.get_by_label("How often?", exact=True).press("End")
    page.wait_for_timeout(200)
    kept = page.evaluate("JSON.parse(localStorage.getItem('distlab-guesses'))")
    assert {name: one["off"] for name, one in kept["lesson"].items()} == {
        "How long?": 0.25,
        "Which?": 1,
    }
    assert "75 min" in kept["lesson"]["How long?"]["words"]


# ---- without a browser


def test_a_guess_is_what_the_hand_has_chosen(capsys):
    card = guess_number("How long?", 0, 60, "min")
    show_guess(card, 75.0, "min")
    assert capsys.readouterr().out == "measured: 75.0 min\n" and card.value is None
    card.options = {"guess": 20}
    show_guess(card, 75.0, "min", how="simulated")
    assert capsys.readouterr().out == "you said 20, simulated: 75.0 min\n"
    assert (card.data["answer"], card.data["how"]) == (75.0, "simulated")
    card.show_answer("a word")
    assert card.data["answer"] == 75.0
    words = guess_word("How large?", "none", "about 1e-7")
    show_guess(words, np.float64(2.5e-7))  # a number, for a guess in words
    assert words.data["answer"] == "2.5e-07"
    assert capsys.readouterr().out == "measured: 2.5e-07\n"


def test_a_piece_says_what_it_is_where_scripts_do_not_run():
    piece = schedule_toy()
    bundle = piece._repr_mimebundle_()
    assert "<svg" in bundle["image/svg+xml"] and "<script" not in bundle["image/svg+xml"]
    assert bundle["text/plain"].startswith("Explorable schedule: gpipe: 4 stages")
    told = json.loads(bundle[MIME])
    assert Explorable(**told, still="").to_html() == Explorable(**told, still="").to_html()
    assert told["options"]["upper"] == "gpipe"


def test_a_fragment_fetches_nothing_and_cannot_end_its_script():
    html = Explorable("memory", {"label": "</script><b>", "presets": []}, {}, "").to_html()
    assert html.count("</script") == 3
    addresses = set(re.findall(r"https?://[^\s\"'`]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"^\s*(import|export)\b", html, re.M)


def test_a_file_that_cannot_be_required_is_named(blank):
    asks = "(require, module) => { module.exports = require('./%s.js'); }"
    files = f"{{ 'a.js': {asks % 'b'}, 'b.js': {asks % 'a'}, 'c.js': {asks % 'd'} }}"
    for first, said in (
        ("a", "./a.js must set module.exports"),
        ("c", "./d.js must be one of core"),
    ):
        with pytest.raises(Exception, match=said):
            blank.evaluate(f"{wrap_base()}({files})('./{first}.js')")


def test_the_browser_knows_how_many_colors_replicas_have():
    assert f"number % {len(REPLICAS)}}}" in (BROWSER / "core.js").read_text(encoding="utf-8")


def test_the_style_has_every_idea_in_both_themes():
    style = join_style("core")
    for name, shade in IDEAS.items():
        assert f"--ex-{name}: {shade.light};" in style and f"--ex-{name}: {shade.dark};" in style


def luminance(color: str) -> float:
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_what_is_written_on_a_color_can_be_read():
    pairs = [(s.light, s.ink) for s in IDEAS.values()] + [(s.dark, BLACK) for s in IDEAS.values()]
    for fill, ink in [*pairs, *((replica, BLACK) for replica in REPLICAS)]:
        low, high = sorted((luminance(fill), luminance(ink)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (fill, ink)
