"""Users' modules: loaded in a process of their own, beside a `utils` that isn't ours."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from child_programs import run_distlab, start_distlab
from process_watch import lives, wait_for

from distlab.cli import main

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = """
import sys
from utils.io import COUNT, __file__ as own_file

def double_all(numbers):
    return 2 * numbers

def double(number):
    return 2 * number

double.batch_form = double_all

def make_dataset():
    import tensorflow as tf
    import utils
    assert utils.__file__ is not None and own_file.startswith(utils.__path__[0])
    assert not hasattr(utils, "input_pipeline") and "distlab" not in sys.modules
    print("a word of the user's own")
    return tf.data.Dataset.range(COUNT).map(double).batch(10)

def make_model():
    import keras
    import utils
    layers = [keras.Input((COUNT,)), keras.layers.Dense(utils.WIDTH, dtype="float64")]
    return keras.Sequential(layers)

def leave():
    sys.exit(7)

def vanish():
    import os
    os._exit(3)

def sleep():
    import subprocess, time
    subprocess.Popen(["sleep", "300"])
    print("asleep", file=sys.stderr, flush=True)
    time.sleep(300)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of somebody who has a package `utils`, as many have."""
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "__init__.py").write_text("WIDTH = 3\n")
    (tmp_path / "utils" / "io.py").write_text("COUNT = 480\n")
    (tmp_path / "mypipe.py").write_text(PIPELINE)
    (tmp_path / "leaving.py").write_text("def stop():\n    raise SystemExit('enough')\n\nstop()\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tune_works_in_a_project_with_its_own_utils(project, capfd):
    options = ["--seconds", "1", "--step-ms", "2", "--json"]
    assert main(["tune-input", "mypipe:make_dataset", *options]) == 0
    printed = capfd.readouterr()
    found = json.loads(printed.out)  # what the user prints doesn't get in
    assert found["tuned"] > 0 and "double" in found["code"] and "dataset" in found["code"]
    assert found["step_seconds"] == 0.002
    assert "map double" in [cost["name"] for cost in found["costs"]]
    assert found["trials"] or found["notes"], "as far as a busy machine came"
    assert "a word of the user's own" in printed.err


def test_tpu_ready_works_in_a_project_with_its_own_utils(project, capfd):
    assert main(["tpu-ready", "mypipe:make_model", "--batch", "8", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["ready"] and found["compiled"] and found["batch_size"] == 8
    assert found["model"] == "sequential"
    assert {(f["kind"], f["problem"]) for f in found["findings"]} == {("float64", False)}


@pytest.mark.parametrize(
    "target, said",
    [
        pytest.param(  # with TensorFlow's own words at its import, which nobody should see
            "mypipe:leave",
            "leave() (mypipe.py, line 28) called sys.exit(7): return instead",
            marks=pytest.mark.cold_start,
        ),
        ("leaving:stop", "stop() (leaving.py, line 2) called sys.exit('enough'): return instead"),
        ("mypipe:vanish", "The process of mypipe:vanish ended with status 3 and gave no report"),
    ],
)
def test_a_module_that_ends_the_process_is_named(project, capfd, monkeypatch, target, said):
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    assert main(["tune-input", target]) == 2
    assert capfd.readouterr() == ("", f"distlab tune-input: {said}\n")


def test_python_m_distlab_finds_our_utils_and_not_the_projects(project):
    path = {"PYTHONPATH": str(ROOT)}
    done = run_distlab("tune-input", "leaving:stop", cwd=project, variables=path, status=2)
    assert "called sys.exit('enough')" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_of_the_child_is_left(project, number):
    path = {"PYTHONPATH": str(ROOT)}
    process = start_distlab(
        "tune-input", "mypipe:sleep", cwd=project, variables=path, start_new_session=True
    )
    while "asleep" not in (line := process.stderr.readline()):
        assert line, "it ended before it slept"
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 2
    os.kill(process.pid, number)
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert errors == ("distlab tune-input: interrupted\n" if number == signal.SIGINT else "")
    wait_for(lambda: not any(lives(process.pid) for process in family))
