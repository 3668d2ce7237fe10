"""What only a machine with GPUs can show. `make gpu-check` runs these tests, too."""

import json
import subprocess
import sys

import pytest

from utils.cluster import LocalCluster

pytestmark = pytest.mark.gpu
TRAIN = [sys.executable, "-m", "distlab", "train", "--model", "mlp", "--max-examples", "256"]
SET_UP = """
import tensorflow as tf
from utils.devices import use_logical_devices
use_logical_devices(2)
print(tf.config.list_logical_devices("GPU"), tf.constant(1.0).device.rpartition("/")[2])
"""


def run_train(*words):
    command = [*TRAIN, "--epochs", "1", "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_mirrored_takes_all_gpus_and_cpus_only_on_request(real_gpus):
    number = 1 if real_gpus[0].startswith("MIG") else len(real_gpus)
    on_gpus = run_train("--strategy", "mirrored", "--dtype", "float64", "--optimizer", "sgd")
    assert on_gpus["devices"] == [f"GPU:{index}" for index in range(number)]
    assert all("NVIDIA" in kind or "Tesla" in kind for kind in on_gpus["device_kinds"])
    assert on_gpus["all_reduce"] == ("nccl" if number > 1 else None)
    words = ["--strategy", "mirrored", "--device", "cpu", "--dtype", "float64"]
    on_cpus = run_train(*words, "--optimizer", "sgd")
    assert (on_cpus["devices"], on_cpus["unused_gpus"]) == (["CPU:0", "CPU:1"], number)
    assert on_cpus["loss"] == pytest.approx(on_gpus["loss"], rel=1e-9)


def test_more_replicas_than_gpus_are_refused(real_gpus):
    words = ["--strategy", "mirrored", "--replicas", str(len(real_gpus) + 1)]
    done = subprocess.run([*TRAIN, *words], capture_output=True, text=True, timeout=200)
    assert done.returncode == 2 and "--device cpu" in done.stderr and len(real_gpus) < 16


def compute():
    """Run in a worker: compute on its GPU; return what it sees."""
    import os

    import tensorflow as tf

    product = tf.matmul(tf.ones([64, 64]), tf.ones([64, 64]))
    return os.environ["CUDA_VISIBLE_DEVICES"], product.device.rpartition(":GPU:")[2]


def test_a_forked_worker_computes_on_its_own_gpu(real_gpus, launcher):
    """The warm process has imported TensorFlow; it must not have started CUDA."""
    with LocalCluster(len(real_gpus), 0, 1, launcher=launcher) as cluster:
        found = cluster.run(compute, echo=False, timeout=120)
    assert found == [(name, "0") for name in real_gpus]


def test_a_notebook_keeps_off_them(real_gpus):
    done = subprocess.run([sys.executable, "-c", SET_UP], capture_output=True, text=True)
    *said, seen = done.stdout.splitlines()
    assert seen == "[] device:CPU:0" and len(said) == 1 and "don't see the" in said[0]
