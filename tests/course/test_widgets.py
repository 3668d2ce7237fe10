"""Controls and explorers: what they call, what they show, what stands in for them."""

import base64

import ipywidgets
import pytest

from distlab import figures
from distlab.widgets import Choice, Slider, explore
from distlab.widgets.amdahl import amdahl_explorer
from distlab.widgets.batches import batch_explorer
from utils.errors import DistributedError


def draw_bar(number, word):
    return figures.bars({word: number}, unit="s", title="One bar")


def make_explorer(render=draw_bar):
    return explore(render, number=Slider("Number", 1, 9, 3), word=Choice("Word", ["a", "b"], "a"))


def test_render_is_called_with_the_values():
    calls = []
    explorer = make_explorer(lambda **values: calls.append(values) or f"<p>{values}</p>")
    assert calls == [{"number": 3, "word": "a"}]
    number, word, view = explorer.children
    number.value = 5
    word.value = "b"
    assert calls[1:] == [{"number": 5, "word": "a"}, {"number": 5, "word": "b"}]
    assert isinstance(calls[1]["number"], int)
    assert explorer.values == {"number": 5, "word": "b"}
    assert "&#x27;number&#x27;" not in view.value and "'number': 5" in explorer.result


def test_a_change_is_one_change_of_one_widget():
    explorer = make_explorer()
    view = explorer.children[-1]
    assert isinstance(view, ipywidgets.HTML)
    changes = []
    view.observe(changes.append)
    explorer.children[0].value = 4
    assert [change["name"] for change in changes] == ["value"]
    assert "4 s" in changes[0]["new"] and "<svg" in changes[0]["new"]


def test_a_still_picture_stands_in():
    explorer = make_explorer()
    bundle = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == "Explorer: One bar. a: 3 s."
    assert (
        "<figure" in bundle["text/html"] and 'aria-label="One bar. a: 3 s."' in bundle["text/html"]
    )
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")


def test_the_still_picture_is_the_same_every_time():
    first, second = make_explorer(), make_explorer()
    first.children[0].value = 8
    for key in ("text/plain", "text/html", "image/png"):
        assert first._repr_mimebundle_()[key] == second._repr_mimebundle_()[key]


def test_an_error_is_shown_in_its_place_and_passes():
    explorer = explore(lambda n: f"<p>{6 / n:.0f}</p>", n=Slider("N", 0, 3, 3))
    explorer.children[0].value = 0
    assert "ZeroDivisionError" in explorer.result and 'role="alert"' in explorer.result
    explorer.children[0].value = 2
    assert "<p>3</p>" in explorer.result and "Error" not in explorer.result


def test_the_text_of_an_error_is_no_html():
    def fail(n):
        raise DistributedError("<b>bold</b>\nsecond line")

    result = explore(fail, n=Slider("N", 0, 3, 3)).result
    assert "&lt;b&gt;bold" in result and "second line" not in result


def test_a_slider_knows_whole_numbers():
    assert isinstance(Slider("N", 0, 10, 5).current, int)
    part = Slider("Share", 0, 1, 0.5, 0.05, "of all")
    assert part.current == 0.5 and part.unit == "of all"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Slider("N", 5, 5, 5),
        lambda: Slider("N", 0, 5, 6),
        lambda: Slider("N", 0, 5, 1, step=0),
        lambda: Choice("C", [], "a"),
        lambda: Choice("C", ["a"], "b"),
    ],
)
def test_impossible_controls_are_refused(make):
    with pytest.raises(DistributedError, match="slider 'N'|choice 'C'"):
        make()


def test_a_choice_takes_only_its_options():
    choice = Choice("C", ["a", "b"], "a")
    with pytest.raises(Exception, match="not one of the options"):
        choice.value = "z"
    assert choice.current == "a"


def test_batch_explorer_starts_with_the_course_example_and_follows():
    explorer = batch_explorer()
    assert "256 examples for each worker" in explorer.result and "= 64 for each" in explorer.result
    workers, replicas, batch, _ = explorer.children
    workers.value = 1
    batch.value = 66
    assert "a replica gets 17 or 16" in explorer.result
    batch.value = 2
    assert "2 of the 4 replicas have nothing to do" in explorer.result
    replicas.value = 1
    assert "2 / 1 = 2 for each replica" in explorer.result


def test_amdahl_explorer_keeps_the_measured_points():
    explorer = amdahl_explorer(0.9, {2: 1.7})
    assert "speed-up of 8.77" in explorer.result and "Measured: 1.7 on 2" in explorer.result
    explorer.children[0].value = 50
    explorer.children[1].value = 4
    assert "4 devices give a speed-up of 1.6" in explorer.result
    assert "Measured: 1.7 on 2" in explorer.result
    explorer.children[0].value = 100
    assert "there is no limit" in explorer.result
