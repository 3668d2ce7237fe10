"""Pictures: words computed from the data, clean SVG for both themes, the same bytes twice."""

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from child_programs import run_python

from distlab import figures
from distlab.explorables.amdahl import amdahl_speed_up, draw_amdahl
from distlab.explorables.predictions import draw_prediction
from distlab.figures.canvas import COLORS
from distlab.figures.picture import embed_image, stack
from distlab.lessons.split_matrix import split_matrix

SVG = "{http://www.w3.org/2000/svg}"


def draw_images():
    pixels = np.arange(6 * 28 * 28, dtype=np.uint8).reshape(6, 28, 28)
    return figures.images(pixels, ["Bag"] * 6, columns=3, title="Six")


def draw_with_plt():
    """A plot as a reader makes it: black, white and colored parts, clipped by its limits."""
    from matplotlib.figure import Figure

    axes = Figure(figsize=(7.2, 4)).add_subplot()
    axes.plot([1, 2, 3], [0.9, 0.5, 0.4], label="loss", marker="o")
    axes.plot([1, 2, 3], [0.8, 0.7, 0.2], color="black")
    axes.set(xlim=(1, 2.5), title="Loss & epochs", xlabel="epoch")
    axes.legend()
    return figures.from_figure(axes.figure, alt="Loss falls from 0.9 to 0.4 in three epochs.")


PICTURES = {
    "lines": lambda: figures.lines(
        {"loss": ([1, 2, 3], [0.95, 0.6, 0.41]), "<other> & co": ([1, 2, 3], [0.9, 0.5, 0.4])},
        x_label="epoch",
        y_label="loss",
        title="Training loss",
        marks={"half": 2.0},
    ),
    "log lines": lambda: figures.lines(
        {"ring": ([2, 4, 8], [1, 1.5, 1.75])},
        x_label="devices",
        y_label="bytes",
        title="Bytes",
        log_x=True,
        log_y=True,
    ),
    "bars": lambda: figures.bars(
        {"sum": 64.0, "mean": 4.0},
        unit="×",
        title="Update",
        reference=("one device", 1.0),
        highlight="sum",
        log=True,
    ),
    "grouped bars": lambda: figures.grouped_bars(
        {"1 replica": {"fit": 7000, "loop": 10000}, "2 replicas": {"fit": 4500}},
        unit="images/s",
        title="Throughput",
    ),
    "images": draw_images,
    "batch split": lambda: figures.batch_split(1024, 4, 4),
    "uneven split": lambda: figures.batch_split(66, 1, 4),
    "many workers": lambda: figures.batch_split(4096, 16, 8),
    "mirrored": lambda: figures.mirrored_devices(8),
    "central": lambda: figures.central_storage_devices(2),
    "servers": lambda: figures.parameter_server_devices(3, 2),
    "timeline": lambda: figures.timeline(
        [("stage 0", 0, 1, "F0", "forward"), ("stage 1", 1, 3, "B0", "backward")],
        title="Two stages",
        unit="ticks",
    ),
    "amdahl": lambda: draw_amdahl(0.9, 64, {"measured": {2: 1.7, 4: 2.9}}),
    "shares": lambda: figures.shares({"w0": [[0, 1], [1, 2]], "w1": [[3]]}, 6, title="Who"),
    "split matrix": lambda: split_matrix("both", [3, 2]),
    "prediction": lambda: draw_prediction(
        np.eye(8), 1, ["Bag", "Coat"], np.array([0.9, 0.1]), title="One image"
    ),
    "plt": draw_with_plt,
    "matrix": lambda: figures.matrix([[1, -2], [3, 4]], ["r0", "r1"], ["a", "b"], title="Grid"),
}


@pytest.fixture(scope="module")
def pictures():
    return {name: make() for name, make in PICTURES.items()}


def texts(picture):
    return ["".join(t.itertext()) for t in ElementTree.fromstring(picture.svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", PICTURES)
def test_svg_is_clean(pictures, name):
    svg, alt = pictures[name].svg, pictures[name].alt
    root = ElementTree.fromstring(svg)  # raises unless it is well-formed XML
    assert root.tag == f"{SVG}svg"
    assert (root.get("role"), root.get("aria-label")) == ("img", alt)
    assert len(alt) > 20
    assert "max-width:720px" in root.get("style")
    width, height = (float(number) for number in root.get("viewBox").split()[2:])
    assert float(root.get("height")) / float(root.get("width")) == pytest.approx(height / width)
    assert "<style" not in svg, "a style element would reach the whole page"
    assert "<metadata" not in svg and "\n\n" not in svg
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", svg)]
    assert sizes and min(sizes) * 720 / width >= 12
    assert name == "plt" or "clip-path" not in svg


@pytest.mark.parametrize("name", PICTURES)
def test_ink_follows_the_theme(pictures, name):
    svg = pictures[name].svg
    assert "var(--jp-content-font-color1, #222)" in svg
    for text in re.findall(r"<text[^>]*>", svg):
        assert "font-family" not in text, "the font is inherited"
        assert name == "plt" or "fill: var(--jp-content-font-color1" in text, text
    assert name != "plt" or '<g style="fill: var(--jp-content-font-color1' in svg
    assert not re.search(r"(fill|stroke): ?(#000000|#ffffff|black|white|#212224|#fcfdfe)", svg)


@pytest.mark.parametrize("name", PICTURES)
def test_equal_records_give_equal_bytes(pictures, name):
    again = PICTURES[name]()
    assert again.svg == pictures[name].svg
    assert again == pictures[name]
    assert again.png() == pictures[name].png()


def test_two_pictures_in_a_page_share_no_id(pictures):
    seen = {}
    for name, picture in pictures.items():
        for found in set(re.findall(r' id="([^"]+)"', picture.svg)):
            assert found not in seen, f"{name} and {seen.get(found)} both have {found}"
            seen[found] = name
    assert seen, "some picture should have markers, or this test shows nothing"
    for picture in pictures.values():
        ids = set(re.findall(r' id="([^"]+)"', picture.svg))
        assert set(re.findall(r'href="#([^"]+)"', picture.svg)) <= ids


def test_png_is_opaque_white(pictures):
    import io

    from PIL import Image

    image = Image.open(io.BytesIO(pictures["lines"].png())).convert("RGBA")
    assert image.size[0] == 1440
    assert image.getpixel((2, 400)) == (255, 255, 255, 255)


def test_words_are_computed_from_the_data(pictures):
    assert "loss falls from 0.95 to 0.41" in pictures["lines"].alt
    assert "epoch goes from 1 to 3" in pictures["lines"].alt
    assert "sum: ×64" in pictures["bars"].alt
    assert "2 replicas: fit 4,500 images/s" in pictures["grouped bars"].alt
    assert "6 images of 28 by 28 pixels" in pictures["images"].alt
    assert "stage 1: 1 span, 2 ticks" in pictures["timeline"].alt
    assert "speed-up of 8.77 instead of 64; the limit is 10" in pictures["amdahl"].alt
    assert "measured: 1.7 on 2, 2.9 on 4" in pictures["amdahl"].alt
    assert "r1: a 3, b 4" in pictures["matrix"].alt
    for name, words in (("mirrored", "8 replicas"), ("servers", "3 workers and 2 parameter")):
        assert words in pictures[name].alt


def test_losses_that_are_not_finite_are_named():
    picture = figures.lines(
        {"loss": ([1, 2, 3], [1.0, np.inf, np.nan]), "none": ([1], [np.nan])},
        x_label="step",
        y_label="loss",
        title="Diverging",
    )
    assert "not finite at 2" in picture.alt and "none is never a finite number" in picture.alt


def test_a_peak_between_the_ends_is_told():
    rates = {"warm-up": ([0, 1, 2, 3], [0.1, 0.8, 0.4, 0.0]), "noise": ([0, 3, 6], [1, 0.99, 5])}
    alt = figures.lines(rates, x_label="step", y_label="rate", title="Rates").alt
    assert "warm-up rises from 0.1 to 0.8 at 1, then falls to 0" in alt
    assert "noise rises from 1 to 5" in alt


def test_axes_of_bytes_and_seconds_have_ticks_in_their_units():
    sizes = [2.0**power for power in range(3, 31)]
    picture = figures.lines(
        {"ring": (sizes, [1e-5 + size / 1e9 for size in sizes])},
        x_label="payload",
        y_label="time",
        title="T",
        log_x=True,
        log_y=True,
        x_unit="B",
        y_unit="s",
    )
    written = set(texts(picture))
    assert len({text for text in written if text.endswith(("B", "KiB", "MiB", "GiB"))}) > 3
    assert {"10 µs", "1 ms", "1 s"} <= written
    assert "ring rises from 10 µs to 1.07 s, as payload goes from 8 B to 1 GiB" in picture.alt


def test_lines_of_one_color_differ_in_their_dashes():
    line = ([1, 2], [1, 2])
    colors = {"ours": COLORS[0], "theirs": COLORS[1], "ours, predicted": COLORS[0]}
    picture = figures.lines(
        dict.fromkeys(colors, line), x_label="x", y_label="y", title="T", colors=colors
    )
    assert set(re.findall(r"stroke: (#\w+); stroke-width: 2.2", picture.svg)) == {
        color.lower() for color in colors.values()
    }
    dashed = re.findall(
        r"stroke-dasharray: [^;]+; stroke-dashoffset: 0; stroke: (#\w+)", picture.svg
    )
    assert COLORS[0].lower() in dashed and COLORS[1].lower() not in dashed


def test_only_marked_cells_are_tinted():
    picture = figures.matrix([[1, 9], [2, 8]], "ab", "xy", title="T", marked={(0, 0), (1, 1)})
    assert "a: x 1 (marked), y 9; b: x 2, y 8 (marked)" in picture.alt
    assert picture.svg.count("fill: none; stroke: #0072b2") == 2


def test_values_are_written_into_the_picture(pictures):
    assert {"loss", "<other> & co", "epoch", "half"} <= set(texts(pictures["lines"]))
    assert {"×64", "×4", "one device"} <= set(texts(pictures["bars"]))
    says_log = "logarithmic scale: equal lengths are equal factors"
    assert says_log in texts(pictures["bars"]) and "logarithmic" in pictures["bars"].alt
    assert says_log not in texts(figures.bars({"a": 1.0}, unit="s", title="T"))
    assert {"1", "-2", "3", "4"} <= set(texts(pictures["matrix"]))
    assert texts(pictures["images"]).count("Bag") == 6
    assert pictures["images"].svg.count("<image ") == 6


def test_lengths_follow_the_values():
    picture = figures.bars({"one": 10.0, "two": 5.0}, unit="s", title="T")
    paths = re.findall(r'<path d="([^"]+)" style="fill: #0072b2', picture.svg)
    widths = []
    for path in paths:
        xs = [float(x) for x in re.findall(r"[ML] ([\d.]+) ", path)]
        widths.append(max(xs) - min(xs))
    assert len(widths) == 2
    assert widths[0] == pytest.approx(2 * widths[1], rel=1e-3)


def test_batches_are_cut_as_tensorflow_cuts_them(pictures):
    assert figures.split_evenly(1024, 4) == [256] * 4
    assert figures.split_evenly(66, 4) == [17, 17, 16, 16]
    assert figures.split_evenly(2, 4) == [1, 1, 0, 0]
    assert texts(pictures["batch split"]).count("256") == 4
    assert texts(pictures["batch split"]).count("64") == 16
    assert "17, 17, 17, 15" in pictures["uneven split"].alt
    assert texts(pictures["uneven split"]).count("17") == 3
    assert texts(figures.batch_split(34, 2, 2)).count("18") == 1
    assert "(9, 9, 9, 7)" in figures.batch_split(34, 2, 2).alt
    pieces = [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 0]]  # TensorFlow's, policy DATA
    assert figures.batch_split(10, 4, 4).chart["pieces"] == pieces
    empty = figures.batch_split(2, 1, 4)
    assert "1, 1, 0, 0" in empty.alt and "stroke-dasharray" in empty.svg


def test_many_workers_are_abridged(pictures):
    words = texts(pictures["many workers"])
    assert "worker 5" in words and "…" in words and "worker 15" in words
    assert "worker 6" not in words


def test_amdahl_follows_the_formula():
    assert amdahl_speed_up(0.9, 64) == pytest.approx(8.767, abs=1e-3)
    assert amdahl_speed_up(1.0, 7) == pytest.approx(7)
    assert amdahl_speed_up(0.0, 7) == 1
    assert "there is no limit" in draw_amdahl(1.0, 8).alt
    assert "limit: 10" in texts(draw_amdahl(0.9, 64))


def test_show_makes_one_output(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append((data, raw)))
    picture = figures.mirrored_devices(1)
    figures.show(picture)
    ((data, raw),) = shown
    assert raw and data == {"image/svg+xml": picture.svg, "text/plain": f"Figure: {picture.alt}"}
    import matplotlib.pyplot  # noqa: F401 - show then closes a plot, but no picture

    figures.show(picture, caption="Some words.")
    assert "Some words." in shown[1][0]["image/svg+xml"]


def test_a_caption_makes_room_below_the_picture_and_pictures_stack(pictures):
    plain, long = pictures["lines"], "It reads as one. " * 20
    with_words = ElementTree.fromstring(replace(plain, caption=long).image)
    lines = [t for t in with_words.iter(f"{SVG}text") if "It reads" in (t.text or "")]
    height = float(ElementTree.fromstring(plain.svg).get("height"))
    places = [float(line.get("y")) for line in lines]
    assert len(lines) > 3 and height < places[0] and places == sorted(places)
    assert places[-1] < float(with_words.get("height"))
    both = ElementTree.fromstring(stack([plain, pictures["images"]]).svg)
    inner = both.findall(f"{SVG}svg")
    assert [float(each.get("y")) for each in inner] == [0, height]
    assert float(both.get("height")) == height + float(inner[1].get("height"))
    assert pictures["images"].alt in both.get("aria-label")


def test_a_picture_with_a_style_sheet_stays_an_image():
    styled = '<svg role="img" aria-label="A &lt; B"><style>p { color: red }</style></svg>'
    html = embed_image(styled)
    assert html.startswith('<img alt="A &lt; B" src="data:image/svg+xml;base64,')
    assert embed_image("<svg/>").count("<svg/>") == 1


def test_the_reader_keeps_matplotlib_as_it_was():
    import matplotlib

    with matplotlib.rc_context({"font.size": 31, "lines.linewidth": 9}):
        before = dict(matplotlib.rcParams)
        drawn = draw_amdahl(0.5, 8)
        assert dict(matplotlib.rcParams) == before
    assert drawn.svg == draw_amdahl(0.5, 8).svg, "the reader's settings reached the picture"


def test_import_is_lazy():
    code = "import sys, distlab.figures; print('matplotlib' in sys.modules)"
    assert run_python("-c", code, status=0).stdout == "False\n"


def test_captions_of_two_lines_make_room_and_read_as_one():
    pixels = np.zeros((2, 28, 28), np.uint8)
    one = figures.images(pixels, ["Bag", "Coat"], title="Two")
    two = figures.images(pixels, ["Bag:\nsays Coat", "Coat"], title="Two")
    heights = [float(re.search(r'viewBox="0 0 \S+ ([\d.]+)"', p.svg)[1]) for p in (one, two)]
    assert heights[1] == pytest.approx(heights[0] + 15)
    assert "Bag: says Coat, Coat." in two.alt


def test_a_plot_of_the_reader_follows_the_theme_and_keeps_its_colors(pictures):
    svg = pictures["plt"].svg
    assert "clip-path" in svg, "what lies outside the limits would be drawn"
    assert "#1f77b4" in svg and svg.count("stroke: var(--jp-content-font-color1, #222)") > 4
    assert "fill: var(--jp-layout-color0, #fff)" in svg, "the legend's paper"
    assert svg.index("<rect") < svg.index("<path"), "no paper under the picture"
    assert {"Loss & epochs", "epoch", "loss"} <= set(texts(pictures["plt"]))


def test_show_takes_a_plot_once_and_leaves_it_as_it_was(monkeypatch):
    import matplotlib
    import matplotlib.pyplot as plt

    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    figure, axes = plt.subplots()
    axes.text(0.5, 0.5, "white on dark", color="white")
    before, settings = figure.get_facecolor(), dict(matplotlib.rcParams)
    figures.show(figure, alt="Some words.", caption="Below <it>")
    assert figure.number not in plt.get_fignums(), "the notebook would show it a second time"
    figures.show(figure, alt="Some words.", caption="Below <it>")
    assert shown[0] == shown[1] and shown[0]["text/plain"] == "Figure: Some words."
    image = ElementTree.fromstring(shown[0]["image/svg+xml"])
    assert image.get("aria-label") == "Some words." and "#ffffff" in shown[0]["image/svg+xml"]
    assert "Below <it>" in ["".join(text.itertext()) for text in image.iter(f"{SVG}text")]
    assert (figure.get_facecolor(), dict(matplotlib.rcParams)) == (before, settings)


def test_a_logarithmic_axis_has_three_ticks_or_more():
    def ticks(low, high):
        svg = figures.lines(
            {"error": ([1, 2], [low, high])}, x_label="x", y_label="y", title="t", log_y=True
        ).svg
        return re.findall(r">([\d,.]+)</text>", svg.replace("\n", ""))[2:]

    assert ticks(14.1, 84) == ["20", "30", "50", "70"]
    assert ticks(0.4, 3) == ["0.5", "1", "2"]
    assert ticks(1, 10_000) == ["1", "10", "100", "1,000", "10,000"]


def test_ranges_are_drawn_as_bars_and_said():
    words = {"x_label": "batch", "y_label": "error", "title": "Errors"}
    series = {"theirs": ([1, 2], [0, 0]), "ours": ([1, 2, 4], [1, 2, 8])}
    plain = figures.lines(series, **words)
    ranged = figures.lines(series, ranges={"ours": ([0.5, 1, 6], [2, 3, 9])}, **words)
    assert "Bars show the range of ours, at the last point from 6 to 9." in ranged.alt
    tags = [re.findall(r"<(?:path|use)", picture.svg) for picture in (plain, ranged)]
    assert len(tags[1]) >= len(tags[0]) + 3 * 2


def test_a_wide_head_of_a_column_takes_two_lines():
    def list_texts(last):
        heads = ["steps", "messages*", "vectors sent*", last]
        svg = figures.matrix([[1, 2, 3, 4]], ["recursive-doubling"], heads, title="t").svg
        return re.findall(r">([a-z* ]+)</text>", svg.replace("\n", ""))

    assert list_texts("vectors between machines")[-3:-1] == ["machines", "vectors between"]
    assert "received" in list_texts("received")


def test_spans_of_whole_numbers_are_counted_in_whole_numbers():
    def ticks(*ends):
        rows = [("replica 0", start, stop, "", "held") for start, stop in pairwise((0, *ends))]
        svg = figures.timeline(rows, title="t", axis="", unit="numbers").svg
        return re.findall(r">([\d.]+)</text>", svg.replace("\n", ""))

    assert ticks(1, 2) == ["0", "1", "2"]
    assert ticks(0.5, 2) == ["0", "0.5", "1", "1.5", "2"]


def test_kinds_of_one_color_are_shades_and_a_long_key_takes_several_rows():
    def draw(kinds):
        rows = [("stage 0", k, k + 1, "7", kind) for k, kind in enumerate(kinds)]
        return figures.timeline(rows, title="Stages").svg

    svg = draw(["forward, chunk 0", "backward, chunk 1", "forward, chunk 1", "backward, chunk 0"])
    fills = re.findall(r"fill: (#\w+); fill-opacity: ([\d.]+)", svg)
    assert len(set(fills)) == 4 and len({color for color, _ in fills}) == 2
    assert svg.count(">7<") == 4
    plain = re.findall(
        r"fill: (#\w+); fill-opacity: ([\d.]+)", draw(["kept", "trained, then lost"])
    )
    assert {strength for _, strength in plain} == {"0.38"}
    heights = [
        float(
            draw([f"backward, chunk {k}" for k in range(n)])
            .split('viewBox="0 0 ')[1]
            .split()[1][:-1]
        )
        for n in (2, 12)
    ]
    assert heights[1] > heights[0] + 20


def test_stacked_bars_say_every_part():
    rows = {"all": {"weights": 15.0, "state": 90.0}, "cut": {"weights": 15.0, "state": 1.5}}
    picture = figures.stacked_bars(rows, unit="GB", title="Memory", reference=("limit: 80", 80.0))
    assert picture.alt == (
        "Memory. all: weights 15 GB, state 90 GB; cut: weights 15 GB, state 1.5 GB. "
        "A line marks limit: 80 at 80 GB."
    )
    assert ">105 GB<" in picture.svg and ">16.5 GB<" in picture.svg and ">limit: 80<" in picture.svg
