"""Mistakes of starting JAX processes, made for real by `jax_mistakes.py`, and their diagnosis."""

import subprocess
import sys
from pathlib import Path

import pytest

from utils.tf_config import diagnose

PROGRAM = Path(__file__).parents[1] / "jax_mistakes.py"
pytestmark = pytest.mark.slow(30)

# log -> (what diagnose calls it, words of the cause, words of the cure)
EXPECTED = {
    "missing-peer.0": ("missing-peer", "waited in vain", "start every process"),
    "missing-coordinator.0": ("missing-peer", "waited in vain", "the coordinator's address"),
    "wrong-index.0": ("wrong-index", "process 2 is out of range for 2", "count from 0"),
    "duplicate-index.0": ("duplicate-index", "they are process 1", "its own number"),
    "late.0": ("late-strategy", "had used a device", "keras.distribution.initialize() first"),
    "bare.0": ("no-task", "which one this is", "distlab run"),
    "killed.0": ("dead-peer", "process 1 died or froze", "in its own log"),
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    subprocess.run([sys.executable, PROGRAM, folder], check=True, timeout=200)
    return folder


@pytest.mark.parametrize("name", EXPECTED)
def test_a_mistake_with_jax_is_named(logs, name):
    found = diagnose((logs / f"{name}.log").read_text())
    called, cause, cure = EXPECTED[name]
    assert found is not None and found.name == called
    assert cause in found.cause and cure in found.cure and "{" not in f"{found}"


def test_a_collective_that_nobody_else_comes_to_is_a_dead_peer():
    said = "UNKNOWN: Gloo context initialization failed: DEADLINE_EXCEEDED: GetKeyValue() timed out"
    assert diagnose(f"jax.errors.JaxRuntimeError: {said} with key: cpu:gloo/0").name == "dead-peer"
