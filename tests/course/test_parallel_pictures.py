"""The pictures of lessons 15 and 16: a split matrix, and the pipeline explorer."""

import pytest

from distlab.lessons.split_matrix import split_matrix
from distlab.widgets.pipeline_explorer import pipeline_explorer, show_schedule
from utils.errors import DistributedError


@pytest.mark.parametrize("split", ["columns", "rows", "both"])
@pytest.mark.parametrize("sizes", [[5, 5], [4, 3, 3], [1, 1, 1, 1, 1, 1]])
def test_a_split_matrix_says_who_holds_what(split, sizes):
    picture = split_matrix(split, sizes)
    collective = "all-gather" if split == "columns" else "all-reduce"
    assert collective in picture.alt and f"device 0 {sizes[0]}" in picture.alt
    assert f"{collective} →" in picture.svg and f">on device {len(sizes) - 1}<" in picture.svg
    assert picture.png().startswith(b"\x89PNG")


def test_a_split_matrix_draws_pieces_in_proportion():
    """Three quarters of the columns on device 0, of W (100 wide) as of y."""
    svg = split_matrix("columns", [3, 1]).svg
    assert svg.count("<path") >= 3 + 2 + 2 + 2  # key, W, y and the two whole ones
    alt = split_matrix("rows", [392, 392]).alt
    assert "device 0 392, device 1 392" in alt


@pytest.mark.parametrize(
    ("split", "sizes", "says"),
    [("diagonal", [1, 1], "choose columns, rows, both"), ("rows", [3], "give 2 to 6"),
     ("rows", [2, 0], "above 0"), ("both", [1] * 7, "give 2 to 6")],
)  # fmt: skip
def test_a_matrix_that_cannot_be_drawn_is_refused_in_one_line(split, sizes, says):
    with pytest.raises(DistributedError, match=says):
        split_matrix(split, sizes)


def test_the_explorer_tells_bubble_and_memory():
    picture = show_schedule("1f1b", 4, 8, 2, 2.0, 0.0)
    assert "idle for 27.3 % of a step of 33 forward passes" in picture.caption
    assert "at most 4, 3, 2, 1 of the 8 micro-batches" in picture.caption
    interleaved = show_schedule("interleaved-1f1b", 4, 8, 2, 2.0, 0.0).caption
    assert "idle for 15.8 %" in interleaved and "5.5, 4.5, 3.5, 2.5" in interleaved


def test_the_explorer_answers_its_controls_and_survives_sizes_that_cannot_be():
    explorer = pipeline_explorer()
    controls = explorer._controls
    controls["name"].value = "gpipe"
    assert "at most 8, 8, 8, 8 of the 8 micro-batches" in explorer.result
    controls["name"].value, controls["micro_batches"].value = "interleaved-1f1b", 7
    assert "multiple of 4" in explorer.result and 'role="alert"' in explorer.result
    controls["micro_batches"].value = 12
    assert "of the 12 micro-batches" in explorer.result
    still = explorer._repr_mimebundle_()
    assert "27.3 %" in still["text/html"] and still["image/png"]


def test_every_schedule_draws_at_the_ends_of_the_sliders():
    for name in ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-h2"):
        assert "stage 0" in show_schedule(name, 1, 1, 4, 3.0, 1.0).alt
    assert "stage 7: 192 spans" in show_schedule("interleaved-1f1b", 8, 24, 4, 3.0, 1.0).alt
