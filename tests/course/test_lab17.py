"""Lab 17: its references against Keras's own layout map, and a machine without JAX."""

import importlib.util
from itertools import product

import pytest

from distlab.errors import CourseError
from distlab.labs.lab17 import compiled_step
from distlab.labs.lab17 import exercise as lab17
from distlab.labs.lab17.judge import expect_gather, expect_read

pytestmark = pytest.mark.slow(30)


def test_parts_and_stray_keys_are_those_that_keras_makes():
    for seed, (batch, model) in ((11, (2, 4)), (12, (4, 2))):
        layouts, shapes = lab17.draw_layouts(seed, batch, model)
        sizes = dict(lab17.SIZES, heads=8, hidden=shapes["down/bias"][0])
        sizes |= {"inner": shapes["up/bias"][0], "vocabulary": shapes["logits/kernel"][1]}
        mesh = {"batch": batch, "model": model}
        step = compiled_step.compile_step(sizes, mesh, layouts)
        wanted = expect_read(seed, batch, model)
        assert dict(step.shards) == wanted["parts"], step.error
        assert sorted(step.stray) == wanted["keys"]


def test_a_pattern_that_never_ends_is_refused_and_the_next_layouts_are_compiled(monkeypatch):
    mesh = {"batch": 2, "model": 4}
    assert not compiled_step.compile_step(lab17.SIZES, mesh, {"up/kernel": (None, "model")}).error
    process = compiled_step.start()
    with monkeypatch.context() as patch:
        patch.setattr(compiled_step, "MAX_SECONDS", 2)
        step = compiled_step.compile_step(
            lab17.SIZES, mesh, {"(([a-z/_0-9.]*)*)*!": (None, "model")}
        )
    assert step.error.startswith("TimeoutError: compiling the step took too much")
    assert not compiled_step.compile_step(lab17.SIZES, mesh, {"up/bias": ("model",)}).error
    assert compiled_step.start() is process
    process.kill()
    assert not compiled_step.compile_step(lab17.SIZES, mesh, {"up/bias": ("model",)}).error


def test_no_layout_that_fits_is_both_smaller_and_cheaper_than_the_limits():
    """Every greedy choice costs at least the least, and some cost more."""
    for seed, share, devices in product(range(30), (0.3, 0.5), (4, 8)):
        ways = ("right", "smallest-first", "largest-first", "everything")
        least, *others = (expect_gather(seed, devices, share, way)["gathered"] for way in ways)
        assert all(least <= other for other in others) and least < others[-1]


def test_without_jax_a_check_says_in_one_line_how_to_get_it(monkeypatch):
    there = importlib.util.find_spec
    compiled_step.start.cache_clear()
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "jax" else there(name)
    )
    with pytest.raises(CourseError, match="^This lab needs JAX: pip install [^\n]*$"):
        lab17.CUT.check(lambda shapes, mesh, memory: {})
    compiled_step.start.cache_clear()
