"""`distlab tpu-ready`: what would stop a model on a TPU, found in models that do each of it."""

import functools
import importlib
from pathlib import Path

import pytest

from distlab.cli import main
from utils.errors import DistributedError
from utils.training.tpu_ready import examine_function
from utils.training.tpu_ready.report import ADVICE, FIXES

MODELS_FILE = Path(__file__).parents[1] / "tpu_models.py"  # imports TensorFlow
LINES = MODELS_FILE.read_text().split("\n")


def line_of(finding):
    """Return the line of code that the finding's source names."""
    name, number = finding.source.split(":")
    assert name == "tpu_models.py"
    return LINES[int(number) - 1]


def examine(name):
    return examine_function(getattr(importlib.import_module("tpu_models"), name), 8)


def examine_layer(layer, batch_size=8):
    make_named = importlib.import_module("tpu_models").make_named
    return examine_function(make_named(layer), batch_size)


@pytest.mark.parametrize(
    "layer, kind, what, code, compiled",
    [
        ("ThroughNumpy", "host callback", "PyFunc", "tf.numpy_function", False),
        ("ThroughPython", "host callback", "EagerPyFunc", "tf.py_function", False),
        ("Prints", "host callback", "PrintV2", "tf.print", False),
        ("Masks", "data-dependent shape", "boolean_mask", "tf.boolean_mask", True),
        ("Uniques", "data-dependent shape", "tf.unique", "tf.unique", True),
        ("Histogram", "unsupported op", "HistogramFixedWidth", "histogram_fixed_width", False),
        ("Strings", "string tensor", "AsString", "as_string", False),
        ("Loops", "loop of unknown length", "maximum number", "tf.while_loop", False),
        ("RandomShift", "Python side effect", "frozen", "random.random()", True),
        ("Branches", "not traceable", "as a Python", "if tf.reduce_mean", False),
    ],
)
def test_each_violation_is_found_with_its_layer_and_line(tf, layer, kind, what, code, compiled):
    report = examine_layer(layer)
    assert not report.ready and report.compiled is compiled
    assert {finding.kind for finding in report.problems} == {kind}
    finding = next(f for f in report.problems if what in f.what)
    assert code in line_of(finding)
    layer_name = "" if layer == "Branches" else layer.lower()
    assert finding.layer.rstrip("_0123456789").replace("_", "") == layer_name
    assert str(finding) in str(report) and finding.fix in str(report)


def test_side_effects_of_python_are_found_each(tf, capsys):
    report = examine_layer("Counts")
    assert {finding.kind for finding in report.findings} == {"Python side effect"}
    printed, attribute, module = report.findings
    assert 'print("called")' in line_of(printed)
    assert "'times'" in attribute.what and attribute.layer.startswith("counts")
    assert "'calls' of module tpu_models" in module.what
    assert "called" not in capsys.readouterr().out.split("\n"), "the examined model stays silent"


def test_float64_and_odd_batches_are_advice(tf):
    report = examine_layer("Doubles", 12)
    assert report.ready and report.compiled
    assert [finding.kind for finding in report.findings] == ["batch size", "float64"]
    assert "tf.float64" in line_of(report.findings[1])
    assert set(ADVICE) < set(FIXES)


@pytest.mark.parametrize("name", ["make_plain", "make_two_ends", "make_subclassed"])
def test_models_without_violations_are_ready(tf, name):
    report = examine(name)
    assert report.findings == () and report.compiled and report.ready
    assert report.step_seconds > 0 and report.ops > 50
    assert "Nothing found" in str(report)
    assert bool(report.loss_note) == (name == "make_subclassed")


def test_the_courses_own_models_are_ready(tf):
    """In the types of a TPU, which cast; fewer layers of each kind: XLA compiles every one."""
    from utils.models import MODELS, build_transformer, build_unet

    few = {
        "transformer": functools.partial(build_transformer, blocks=1),
        "unet": functools.partial(build_unet, widths=(8, 16)),
    }
    for build in (MODELS | few).values():
        assert examine_function(lambda build=build: build(dtype="mixed_bfloat16"), 8).findings == ()


def test_an_unknown_length_is_found_and_compiled_for_one(tf):
    report = examine("make_unknown_length")
    assert [finding.kind for finding in report.findings] == ["dynamic shape"]
    assert "'words'" in report.findings[0].what and "(batch, None, 4)" in report.findings[0].what
    assert report.compiled


def test_a_string_that_goes_in_is_found(tf):
    report = examine("make_string_input")
    assert {finding.kind for finding in report.problems} == {"string tensor"}
    assert "input" in report.problems[0].what and not report.compiled and not report.ready


def test_a_training_step_of_its_own_is_the_one_examined(tf):
    report = examine("make_own_step")
    assert "numpy()" in line_of(report.problems[0])


@pytest.mark.parametrize(
    "name, words",
    [
        ("make_nothing", "must return a keras.Model, got int"),
        ("make_error", "RuntimeError: no such file"),
        ("make_unbuilt", "doesn't know its inputs"),
    ],
)
def test_functions_that_give_no_model_are_refused(tf, name, words):
    with pytest.raises(DistributedError, match=words) as refused:
        examine(name)
    assert "\n" not in str(refused.value)


def test_the_command_says_what_it_found_and_exits_so(tf, capsys, monkeypatch):
    monkeypatch.chdir(MODELS_FILE.parent)
    assert main(["tpu-ready", "tpu_models:make_histogram", "--batch", "8"]) == 1
    said = capsys.readouterr().out
    assert "problem  unsupported op: HistogramFixedWidth in layer 'histogram" in said
