"""The ring, moment by moment: the record, its picture, and the stepper that leads through it."""

import base64
import re

import numpy as np
import pytest
import traitlets

from distlab.widgets.ring_stepper import RingStepper, ring_moment, ring_stepper
from utils.collectives import list_ring_moments, ring_all_reduce
from utils.errors import DistributedError


def make_vectors(ranks=4, length=10, scale=1.0):
    rng = np.random.default_rng([ranks, length])
    return [rng.normal(scale=scale, size=length) for _ in range(ranks)]


@pytest.mark.parametrize(("ranks", "length"), [(2, 1), (3, 7), (4, 10), (5, 3)])
def test_moments_follow_the_rings_own_messages(ranks, length):
    vectors = make_vectors(ranks, length)
    moments = list_ring_moments(vectors)
    assert [m.step for m in moments] == list(range(2 * (ranks - 1) + 1))
    for before, after in zip(moments, moments[1:]):
        assert before.leaving == after.arrived and len(after.arrived) == ranks
    for moment in moments:
        for rank in range(ranks):
            for chunk in range(ranks):
                whose = sorted(moment.parts[rank][chunk])
                own = [np.array_split(vectors[r], ranks)[chunk] for r in whose]
                np.testing.assert_allclose(moment.values[rank][chunk], np.sum(own, axis=0))
    middle, end = moments[ranks - 1], moments[-1]
    assert [c for r in range(ranks) for c in range(ranks) if middle.is_whole(r, c)] == [
        (r + 1) % ranks for r in range(ranks)
    ]
    for held, total in zip(end.values, ring_all_reduce(vectors).vectors):
        np.testing.assert_array_equal(np.concatenate(held), total)
    assert end.leaving == () and moments[0].phase == ""


def test_one_rank_and_arrays_that_differ_are_refused():
    with pytest.raises(DistributedError, match="1 rank sends nothing"):
        list_ring_moments([np.ones(3)])
    with pytest.raises(DistributedError, match="rank 1 holds"):
        list_ring_moments([np.ones(3), np.ones(4)])
    with pytest.raises(DistributedError, match="7 ranks side by side"):
        ring_stepper(make_vectors(7))


def test_the_picture_says_what_travels():
    moments = list_ring_moments([np.array([1.0, 2.0]), np.array([10.0, 20.0])])
    first, half, end = (ring_moment(moment) for moment in moments)
    assert "Next travel: chunk 0 from rank 0 to 1, chunk 1 from rank 1 to 0." in first.alt
    assert "Whole sums: rank 0 chunk 1, rank 1 chunk 0." in half.alt
    assert end.alt.endswith("Every rank has the whole sum of every chunk.")
    assert all(text in half.svg for text in ("22.00", "11.00", "whole sum", "of 0", "of 1"))
    assert first.png().startswith(b"\x89PNG")


def test_every_frame_shows_the_numbers_of_its_moment():
    vectors = make_vectors()
    stepper, moments = ring_stepper(vectors), list_ring_moments(vectors)
    assert len(stepper.frames) == 7 and stepper.place == 0
    for frame, moment in zip(stepper.frames, moments):
        for rank, row in enumerate(frame["cells"]):
            for chunk, cell in enumerate(row):
                shown = [float(text.replace("\u2212", "-")) for text in cell["lines"]]
                np.testing.assert_allclose(shown, moment.values[rank][chunk], atol=0.0051)
                assert cell["whole"] == (cell["parts"] == "whole sum")
        assert sum(cell["leaves"] for row in frame["cells"] for cell in row) == len(
            frame["leaving"]
        )
        entering = [k for k, cell in enumerate(frame["cells"][0]) if cell["enters"]]
        assert entering == [m["chunk"] for m in frame["leaving"] if m["to"] == 0]
        assert len(frame["done"]) == len(moment.arrived)
        assert len({(m["from"], m["to"]) for m in frame["leaving"]}) in (0, 4)
    assert "first half is over" in stepper.frames[3]["words"]
    assert "every rank has every sum" in stepper.frames[6]["words"]


def test_what_is_added_is_the_sum_that_is_written():
    stepper = ring_stepper([np.array([1.0, 2.0]), np.array([10.0, -20.0])])
    assert stepper.frames[1]["done"] == [
        "rank 0 \u2192 rank 1, chunk 0: 10.00 + 1.00 = 11.00",
        "rank 1 \u2192 rank 0, chunk 1: 2.00 \u2212 20.00 = \u221218.00",
    ]
    assert stepper.frames[2]["done"][0].endswith("chunk 1: \u221218.00 copied")


def test_small_numbers_long_chunks_and_empty_ones_are_readable():
    small = ring_stepper(make_vectors(2, 40, scale=3e-4))
    assert re.fullmatch(r"numbers in units of 1e-(03|06), rounded", small.unit)
    lines = small.frames[0]["cells"][0][0]["lines"]
    assert len(lines) == 3 and lines[-1] == "\u2026 18 more"
    assert all(abs(float(text.replace("\u2212", "-"))) < 1000 for text in lines[:2])
    empty = ring_stepper([np.array([1.0]), np.array([2.0]), np.array([4.0])])
    assert empty.frames[0]["cells"][0][2]["lines"] == ["(empty)"]
    assert "chunk 1: empty" in empty.frames[1]["done"][1]
    assert ring_stepper([np.zeros(3), np.zeros(3)]).unit == "numbers are rounded"


def test_the_place_stays_on_the_ring():
    stepper = ring_stepper(make_vectors())
    stepper.place = 6
    with pytest.raises(traitlets.TraitError, match="choose 0 to 6"):
        stepper.place = 7
    assert stepper.place == 6


def test_a_still_picture_stands_in_where_widgets_cannot_run():
    first, second = ring_stepper(make_vectors()), ring_stepper(make_vectors())
    second.place = 4
    bundles = [stepper._repr_mimebundle_() for stepper in (first, second)]
    assert "application/vnd.jupyter.widget-view+json" in bundles[0]
    for key in ("text/plain", "text/html", "image/png"):
        assert bundles[0][key] == bundles[1][key]
    assert 'role="img"' in bundles[0]["text/html"]
    assert base64.b64decode(bundles[0]["image/png"]).startswith(b"\x89PNG")


def test_the_browsers_side_has_names_keys_and_a_way_without_motion():
    script = RingStepper._esm
    for needed in (
        'setAttribute("role", "group")', '"aria-label"', 'setAttribute("aria-live", "polite")',
        "ArrowRight", "ArrowLeft", "Home", "End", "prefers-reduced-motion: reduce",
        "data-lm-suppress-shortcuts", 'th.scope = "col"', 'th.scope = "row"',
    ):  # fmt: skip
        assert needed in script, needed
