"""A piece's state in the address of a page, and a piece alone on the screen."""

import pytest
from page_checks import find_with_axe

from distlab.explorables.catalog import EXAMPLES
from distlab.explorables.screenshots import write_page

SLIDER = ".ex-slider input:visible"
SMALLEST = """() => Math.min(...[...document.querySelectorAll(".ex-slide *")]
    .filter((node) => node.checkVisibility() && !node.closest(".ex-unseen"))
    .filter((node) => [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim()))
    .map((node) => parseFloat(getComputedStyle(node).fontSize) * node.currentCSSZoom))"""

SEEN = """() => {
    const boxes = [...document.querySelectorAll(".ex-slide .ex-stage :is(svg, canvas)")]
        .map((node) => node.getBoundingClientRect()).filter((box) => box.height > 1);
    const top = Math.min(...boxes.map((box) => box.top));
    const bottom = Math.max(...boxes.map((box) => box.bottom));
    return (Math.min(bottom, innerHeight) - Math.max(top, 0)) / (bottom - top);
}"""
DRAWN = """() => new Promise(
    (done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"""


@pytest.fixture
def page(show_page, tmp_path):
    """A page with the pipeline, once more the pipeline, and the ring."""
    path = write_page(EXAMPLES["schedule"](), tmp_path / "page.html")
    more = [EXAMPLES[name]() for name in ("schedule", "ring")]
    more[0].data = {**more[0].data, "label": "Another"}
    html = "".join(piece.to_html() for piece in more)
    path.write_text(path.read_text().replace("</main>", f"{html}</main>"))
    page = show_page(viewport={"width": 1000, "height": 800})
    page.address, page.wrong = path.as_uri(), []
    page.on("pageerror", lambda error: page.wrong.append(error))
    yield page
    assert page.wrong == []


def test_a_copied_link_opens_the_piece_in_the_same_state(page):
    page.goto(page.address)
    second = page.locator(".ex").nth(1)
    slider = second.locator(SLIDER).first
    before = slider.input_value()
    slider.press("ArrowRight")
    second.get_by_role("button", name="Copy link").press("Enter")
    page.locator(".ex-share [role=status]", has_text="opied").or_(
        page.get_by_text("The link is in the address bar.")
    ).wait_for()
    link = page.url
    assert "#ex:schedule-2:" in link
    page.goto("about:blank")
    page.goto(link)
    assert page.locator(".ex").first.locator(SLIDER).first.input_value() == before
    assert slider.input_value() == str(int(before) + 1)
    option, value = link.partition("#ex:schedule-2:")[2].split("=")
    for broken in (f"{option}=1e9", f"{option}=%22x%22", f"{option}=[", "nosuch=1", "%", ""):
        page.goto("about:blank")
        page.goto(f"{page.address}#ex:schedule-2:{broken}")
        assert slider.input_value() == before, broken


def test_a_slide_is_one_piece_that_the_back_row_reads_and_keys_turn(page):
    page.goto(f"{page.address}?slide#ex:ring:")
    shown = page.locator(".ex-slide")
    assert shown.count() == 1 and shown.get_attribute("id").startswith("ex-ring-")
    for width in (1024, 1920):
        page.set_viewport_size({"width": width, "height": 1080})
        page.wait_for_function("document.querySelector('.ex-slide').clientWidth > 300")
        box = shown.bounding_box()
        assert box["x"] == 0 and abs(box["width"] - width) < 2
        assert find_with_axe(page, "slide", width) == []
    clock = shown.locator(".ex-player input")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("node => node.value > 0", arg=clock.element_handle())
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("node => Number(node.value) === 0", arg=clock.element_handle())
    page.keyboard.press("PageUp")
    page.wait_for_function("document.querySelector('.ex-slide').id.startsWith('ex-schedule')")
    assert "?slide#ex:schedule-2:" in page.url and shown.count() == 1
    page.keyboard.press("Escape")
    assert shown.count() == 0 and "?slide" not in page.url
    for stage in page.locator(".ex-stage").all():  # all parts are back where they were
        kinds = [str(part.get_attribute("class")) for part in stage.locator("> *").all()]
        assert kinds[-1] == "ex-share" and "ex-player" in kinds


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "guess"])
def test_a_slide_shows_the_whole_picture_beside_its_controls(show_page, tmp_path, name):
    path, page = write_page(EXAMPLES[name](), tmp_path / "page.html"), show_page()
    for width, height in ((1920, 1080), (1024, 768)):
        page.set_viewport_size({"width": width, "height": height})
        page.goto("about:blank")
        page.goto(f"{path.as_uri()}?slide")
        page.locator(".ex-slide").wait_for()
        page.evaluate(DRAWN)
        assert page.evaluate(SEEN) >= 0.8, width
        assert page.evaluate(SMALLEST) >= 28 * width / 1920, "as large on the wall"
        stage, hand = (page.locator(part).bounding_box() for part in (".ex-stage", ".ex-hand"))
        assert hand["x"] + hand["width"] <= stage["x"] + 1 and hand["width"] < 0.3 * width


def test_a_slide_without_a_name_is_the_first_piece_that_can_be_shared(show_page, tmp_path):
    """A guess is one's own, and a piece may fail."""
    path = write_page(EXAMPLES["guess"](), tmp_path / "page.html")
    broken = EXAMPLES["memory"]()
    broken.data = {}
    html, more = path.read_text(), broken.to_html() + EXAMPLES["ring"]().to_html()
    path.write_text(html.replace("</main>", f"{more}</main>"))
    page = show_page()
    wrong = []
    page.on("pageerror", lambda error: wrong.append(error))
    page.goto(f"{path.as_uri()}?slide")
    page.locator(".ex-slide").wait_for()
    assert page.locator(".ex-slide").get_attribute("id").startswith("ex-ring-")
    assert len(wrong) == 1  # and is in the browser's console
