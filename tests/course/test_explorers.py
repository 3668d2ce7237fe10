"""Controls and explorers: what they call, what they show, what stands in for them."""

import itertools
import json

import numpy as np

from distlab import figures
from distlab.explorables import Choice, Slider, explore
from distlab.explorables.amdahl import amdahl_explorer
from distlab.explorables.batches import batch_explorer
from distlab.explorables.rates import WAYS, rates_explorer
from utils.errors import DistributedError


def draw_bar(number, word):
    return figures.bars({word: number}, unit="s", title="One bar")


def make_explorer(render=draw_bar):
    return explore(render, number=Slider("Number", 1, 9, 3), word=Choice("Word", ["a", "b"], "a"))


def test_render_is_called_with_the_values():
    calls = []
    explorer = make_explorer(lambda **values: calls.append(values) or f"<p>{values}</p>")
    assert calls == [{"number": 3, "word": "a"}]
    explorer.move(number=5)
    explorer.move(word="b")
    assert calls[1:] == [{"number": 5, "word": "a"}, {"number": 5, "word": "b"}]
    assert isinstance(calls[1]["number"], int)
    assert explorer.values == {"number": 5, "word": "b"} and "'number': 5" in explorer.result


def test_a_move_paints_nothing_in_the_kernel():
    explorer = make_explorer()
    explorer.move(number=4)
    (part,) = explorer.data["frame"]["parts"]
    assert part["kind"] == "bars" and part["groups"] == [["", [["a", 4.0]]]]
    assert "<svg" not in explorer.result and part["alt"] == "One bar. a: 4 s."


def thaw(frozen, number):
    """What the browser does, in Python."""
    place, *own = frozen["frames"][number]
    shape, leaves = (iter([frozen["shapes"][place][name]]) for name in ("shape", "leaves"))
    leaves, own = iter(next(leaves)), iter(own)

    def build(part):
        if isinstance(part, list):
            return [build(each) for each in part]
        if part != 0:
            return {key: build(part[key]) for key in sorted(part)}
        leaf = next(leaves)
        leaf = next(own) if leaf is None else leaf
        return frozen["texts"][leaf[0]] if isinstance(leaf, list) else leaf

    return build(next(shape))


def test_frozen_frames_are_what_the_kernel_would_show():
    explorer = amdahl_explorer(0.9)
    explorer._repr_mimebundle_()
    frozen = explorer.data["frozen"]
    grids = frozen["grids"]
    places = list(itertools.product(*grids.values()))
    assert 100 < len(places) == len(frozen["frames"]) <= 500
    assert len(json.dumps(frozen)) < 200_000
    for number in (0, 57, len(places) - 1):
        explorer.move(**dict(zip(grids, places[number], strict=True)))
        (told,), (part,) = thaw(frozen, number)["parts"], explorer.data["frame"]["parts"]
        assert told["caption"] == part["caption"] and told["alt"] == part["alt"]
        for mine, own in zip(told["lines"], part["lines"], strict=True):
            assert mine[0] == own[0]
            np.testing.assert_allclose(mine[1:], own[1:], rtol=1e-3)


def test_pictures_without_a_chart_are_frozen_at_fewer_places():
    def show(n):
        return figures.matrix([[n]], ["row"], ["column"], title="A number")

    explorer = explore(show, n=Slider("N", 0, 100, 5))
    explorer._repr_mimebundle_()
    grid = explorer.data["frozen"]["grids"]["n"]
    assert 5 in grid and len(grid) <= 13
    assert "<svg" in thaw(explorer.data["frozen"], len(grid) - 1)["parts"][0]["html"]


def test_a_still_picture_stands_in():
    explorer = make_explorer()
    bundle = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == "Explorer: One bar. a: 3 s."
    assert 'aria-label="One bar. a: 3 s."' in bundle["image/svg+xml"] and "text/html" not in bundle


def test_the_still_picture_is_the_same_every_time():
    first, second = make_explorer(), make_explorer()
    first.move(number=8)
    for key in ("text/plain", "image/svg+xml"):
        assert first._repr_mimebundle_()[key] == second._repr_mimebundle_()[key]


def test_an_error_is_shown_in_its_place_and_passes():
    explorer = explore(lambda n: f"<p>{6 / n:.0f}</p>", n=Slider("N", 0, 3, 3))
    explorer.move(n=0)
    assert "ZeroDivisionError" in explorer.result and "alert" in explorer.result
    explorer.move(n=2)
    assert "<p>3</p>" in explorer.result and "Error" not in explorer.result


def test_the_text_of_an_error_is_no_html():
    def fail(n):
        raise DistributedError("<b>bold</b>\nsecond line")

    result = explore(fail, n=Slider("N", 0, 3, 3)).result
    assert "&lt;b&gt;bold" in result and "second line" not in result


def test_a_slider_knows_whole_numbers():
    assert Slider("N", 0, 10, 5).list_grid(100) == list(range(11))
    part = Slider("Share", 0, 1, 0.5, 0.05, "of all")
    assert part.read(1) == 1.0 and isinstance(part.read(1), float)
    assert part.list_grid(3) == [0.0, 0.5, 1.0]
    assert Slider("N", 1, 10_000, 7).list_grid(5) == [1, 7, 10, 100, 1000, 10_000]
    assert Slider("N", 1, 64, 9, grid=(1, 2, 63)).list_grid(2) == [1, 2, 9, 63]


def test_batch_explorer_starts_with_the_course_example_and_follows():
    explorer = batch_explorer()
    assert "256 examples for each worker" in explorer.result and "= 64 for each" in explorer.result
    explorer.move(workers=1, global_batch_size=66)
    assert "rounded up to 17, and 15 left for one replica" in explorer.result
    explorer.move(global_batch_size=3)
    assert "1 of the 4 replicas has nothing to do" in explorer.result
    explorer.move(global_batch_size=2)
    assert "2 of the 4 replicas have nothing to do" in explorer.result
    explorer.move(replicas_per_worker=1)
    assert "2 / 1 = 2 for each replica" in explorer.result


def test_amdahl_explorer_keeps_the_measured_points():
    explorer = amdahl_explorer(0.9, {"measured": {2: 1.7}})
    assert "speed-up of 8.77" in explorer.result and "measured: 1.7" in explorer.result
    explorer.move(parallel_percent=50, most_devices=4)
    assert "4 devices give a speed-up of 1.6" in explorer.result
    assert "measured: 1.7" in explorer.result and "limit: 2" in explorer.result
    explorer.move(parallel_percent=100)
    assert "limit" not in explorer.result


def test_amdahl_asks_about_dots_of_several_devices_only():
    explorer = amdahl_explorer(0.9, {"a": {1: 1.0}, "b": {}, "c": {2: 1.5}})
    asked = [each["ask"] for each in explorer.data["tries"]]
    assert asked[0].startswith("c: ") and not any(ask.startswith(("a", "b")) for ask in asked)


def test_rates_of_a_batch_that_no_run_had_are_shown_without_errors():
    errors = {(way, batch): [20.0] for way in WAYS for batch in (32, 128, 512)}
    explorer = rates_explorer(0.005, 32, examples=10_000, epochs=8, errors=errors)
    explorer.move(power=6)
    assert "No run had batch 64." in explorer.result
    explorer.move(power=7, warm_up_epochs=1)
    assert "No run had a warm-up of 1 epoch. 0 and 2 were measured." in explorer.result
