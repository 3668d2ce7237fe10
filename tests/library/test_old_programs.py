"""Programs of other versions and launchers: what `diagnose` says of them, and `--keras`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from process_watch import start_process

from distlab.cli.run import write_legacy_command
from utils.errors import InputError
from utils.keras_multi_worker import KERAS_CHOICES, STARTUP, make_keras_variables
from utils.tf_config import diagnose
from utils.tf_config.symptoms import PACKAGES


def test_a_missing_module_is_named_by_its_package():
    assert (
        "pip install opencv-python" in diagnose("ModuleNotFoundError: No module named 'cv2'").cure
    )
    assert (
        "pip install left_pad." in diagnose("ModuleNotFoundError: No module named 'left_pad'").cure
    )
    assert len(PACKAGES) >= 50


def test_an_error_of_the_user_is_left_alone():
    assert diagnose("KeyError: 'label_column'") is None
    assert diagnose("AttributeError: 'Trainer' object has no attribute 'lr_decay'") is None


# --- which Keras --------------------------------------------------------------------------

PROGRAM = """
import json, os, sys
import numpy as np, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
inputs = np.random.default_rng(0).normal(size=(32, 5)).astype("float32")
labels = (np.arange(32) % 3).astype("int64")
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(8).with_options(options)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((5,)), tf.keras.layers.Dense(3)])
    model.set_weights([np.linspace(-1, 1, 15).reshape(5, 3), np.zeros(3)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.1), loss)
model.fit(data, epochs=2, verbose=0)
weights = np.concatenate([weight.ravel() for weight in model.get_weights()]).tolist()
print(json.dumps({"keras": tf.keras.Model.__module__.split(".")[0], "weights": weights}))
"""


def train_by_hand():
    """Return the weights of the program's training: softmax regression, written out."""
    inputs, labels = np.random.default_rng(0).normal(size=(32, 5)), np.arange(32) % 3
    kernel, bias = np.linspace(-1, 1, 15).reshape(5, 3), np.zeros(3)
    for start in [0, 8, 16, 24] * 2:  # two epochs
        batch, wanted = inputs[start : start + 8], np.eye(3)[labels[start : start + 8]]
        powers = np.exp(batch @ kernel + bias)
        errors = powers / powers.sum(axis=1, keepdims=True) - wanted  # [8, 3]
        kernel, bias = kernel - 0.1 * batch.T @ errors / 8, bias - 0.1 * errors.mean(axis=0)
    return np.concatenate([kernel.ravel(), bias])


def start(folder, keras):
    words = ["run", "--keras", keras, "--workers", "2", "--logs", f"{keras}-2"]
    return start_process(
        [sys.executable, "-m", "distlab", *words, "program.py"],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize(
    "words, own, told",
    [
        ("run train.py", 1, "train.py"),
        ("run --keras=patched -m train --lr 1", 3, "-m train --lr 1"),
        (
            "run --workers 2 --keras patched --gpus 1 train.py --keras mine",
            3,
            "--workers 2 --gpus 1 train.py --keras mine",
        ),
    ],
)
def test_the_line_to_type_keeps_all_but_the_choice_of_keras(words, own, told):
    line = write_legacy_command(words.split(), own)
    assert line == f"distlab run --keras legacy {told}"


@pytest.mark.long
def test_fit_across_workers_trains_with_keras_2_and_with_keras_3_patched(write_warm):
    """The choice of patched Keras sets PYTHONPATH, so its programs start from scratch."""
    folder = Path(write_warm(PROGRAM)[1]).parent
    running = {keras: start(folder, keras) for keras in KERAS_CHOICES}
    ended = {
        each: (*process.communicate(timeout=500), process.returncode)
        for each, process in running.items()
    }
    _, errors, status = ended.pop("installed")
    assert status == 1 and "Attempt to convert a value (PerReplica" in errors
    hint = "try it: distlab run --keras legacy --workers 2 --logs installed-2 program.py"
    assert errors.count(hint) == 1

    module = {"legacy": "tf_keras", "patched": "keras"}
    for keras, (output, errors, status) in ended.items():
        assert status == 0, errors
        found = [line.partition("] ")[2] for line in output.splitlines() if '"weights"' in line]
        assert len(found) == 2 and "try it" not in errors
        assert output.count("patched: reduce_per_replica") == (2 if keras == "patched" else 0)
        for report in map(json.loads, found):
            assert report["keras"] == module[keras]
            np.testing.assert_allclose(report["weights"], train_by_hand(), atol=1e-5)


def test_the_environment_of_each_choice(monkeypatch):
    assert make_keras_variables("installed") == {}
    assert make_keras_variables("legacy") == {"TF_USE_LEGACY_KERAS": "1"}
    path = make_keras_variables("patched", "mine")["PYTHONPATH"]
    assert path == f"{STARTUP}{os.pathsep}mine" and (STARTUP / "sitecustomize.py").is_file()
    assert KERAS_CHOICES == ("installed", "legacy", "patched")
    monkeypatch.setattr("utils.keras_multi_worker.find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install tf_keras"):
        make_keras_variables("legacy")


@pytest.mark.cold_start
def test_the_start_up_hook_leaves_other_programs_alone(tmp_path):
    """Another sitecustomize still runs, and nothing is imported that the program doesn't."""
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.hidden = 7")
    variables = make_keras_variables("patched", str(tmp_path))
    code = "import sys; print(hidden, {'keras', 'tensorflow'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("7 set()\n", "")
