"""Kernels of a real `distlab lab` that are forked from its warm process, and what ends them."""

import json
import os
import sys
import sysconfig
from pathlib import Path

import psutil
import pytest
from lab_server import END_SECONDS, START_SECONDS, Lab
from process_watch import lives, wait_for

from distlab.cli.lab import find_kernel_processes
from distlab.keras_backend import pick_variables, read_variables
from distlab.kernel.warm_kernels import ROOT, WarmKernels

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forking is for Linux")

TELL = """
import os, sys, json
print(json.dumps([os.getpid(), "tensorflow" in sys.modules, "utils" in sys.modules, os.getcwd(),
    sys.argv[0].endswith("ipykernel_launcher.py"), os.environ["JPY_PARENT_PID"]]))
"""
WORK = """
import sys, os, atexit
os.write(2, b"to the terminal")
atexit.register(lambda: open("ended", "w").close())
import tensorflow as tf
from utils.devices import use_logical_devices
strategy = tf.distribute.MirroredStrategy(use_logical_devices(2))
print(strategy.num_replicas_in_sync, float(tf.add(1.0, 2.0)))
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A `distlab lab` whose kernels are warm."""
    folder, home = tmp_path_factory.mktemp("course"), tmp_path_factory.mktemp("home")
    for part in ("notebooks", "labs"):
        (folder / part).mkdir()
    (folder / "README.md").write_text("# The course\n")
    patient = "--KernelManager.shutdown_wait_time=120"  # or a busy kernel is killed at its exit
    started = Lab(folder, home, "--", patient, warm=True)
    started.folder = folder
    wait_for(lambda: tell_and_close(started)[1])  # on a busy machine the first ones are plain
    yield started
    started.process.kill()
    started.process.wait(END_SECONDS)
    wait_for(lambda: not find_kernel_processes(started.server.pid))


def open_kernel(running):
    """Return the id of a new kernel in the notebooks folder, and a way to talk to it."""
    made = running.ask("api/kernels", {"name": "python3", "path": "notebooks"})["id"]
    return made, running.talk(made)


def tell(talk):
    return json.loads(talk.run(TELL))


def tell_and_close(running):
    _, talk = open_kernel(running)
    told = tell(talk)
    talk.close()
    return told


def find_warm_process(running):
    return next(p for p in running.server.children() if p.name() == "distlab-warm")


def test_a_kernel_is_a_fork_that_behaves_as_a_fresh_one(running):
    made, talk = open_kernel(running)
    process, has_tensorflow, has_utils, folder, launched, parent = tell(talk)
    assert has_tensorflow and not has_utils, "TensorFlow is there, our own is read anew"
    assert Path(folder).name == "notebooks" and launched and int(parent) == running.server.pid
    assert psutil.Process(process).ppid() == find_warm_process(running).pid
    assert talk.run(WORK).strip().endswith("2 3.0")
    sleeping = talk.start("import time; print('begun', flush=True); time.sleep(100)")
    talk.wait_for_output(sleeping)  # a kernel says that it is busy before it can be interrupted
    running.ask(f"api/kernels/{made}/interrupt", {})
    assert talk.read(sleeping)[1] == "error"
    assert talk.run("print(strategy.num_replicas_in_sync)") == "2\n"
    running.ask(f"api/kernels/{made}/restart", {})
    talk.close()
    talk = running.talk(made)
    again, has_tensorflow, *_ = tell(talk)
    assert again != process and has_tensorflow and not lives(process)
    assert (Path(folder) / "ended").exists(), "what the first one had to do at its exit"
    talk.close()


def test_a_folder_with_packages_named_as_ours_gets_a_warm_kernel_that_imports_them(running):
    other = running.folder / "notebooks" / "utils.py"
    other.write_text("its = 'own'\n")
    _, talk = open_kernel(running)
    assert tell(talk)[1], "a fork"
    assert talk.run("import sys; sys.path.insert(0, ''); import utils; print(utils.its)") == "own\n"
    talk.close()
    other.unlink()


def test_a_notebook_that_names_a_keras_backend_starts_from_scratch_with_it(running):
    notebook = {"cells": [], "nbformat": 4, "nbformat_minor": 5}
    notebook["metadata"] = {"distlab": {"keras_backend": "jax"}}
    path = running.folder / "notebooks" / "24-jax.ipynb"
    path.write_text(json.dumps(notebook))
    named = {"path": "notebooks/24-jax.ipynb", "name": path.name, "type": "notebook"}
    made = running.ask("api/sessions", {**named, "kernel": {"name": "python3"}})["kernel"]["id"]
    for _ in range(2):
        talk = running.talk(made)
        assert not tell(talk)[1], "no TensorFlow yet"
        assert talk.run("import os; print(os.environ['KERAS_BACKEND'])") == "jax\n"
        running.ask(f"api/kernels/{made}/restart", {})
        talk.close()
    path.write_text(json.dumps({**notebook, "metadata": {"distlab": {"keras_backend": "$(x)"}}}))
    assert read_variables(path) == {} == read_variables(path.with_name("none.ipynb"))
    assert pick_variables(notebook["metadata"]) == {"KERAS_BACKEND": "jax"}


def test_without_its_warm_process_the_server_starts_plain_kernels(running):
    _, before = open_kernel(running)
    victim, warm = tell(before)[0], find_warm_process(running)
    warm.kill()
    wait_for(lambda: not lives(victim))
    before.close()
    made, talk = open_kernel(running)
    process, has_tensorflow, _, folder, launched, parent = tell(talk)
    assert not has_tensorflow and launched and int(parent) == running.server.pid
    assert psutil.Process(process).ppid() == running.server.pid
    talk.close()


@pytest.fixture(scope="module")
def kernels():
    """A warm process of this test's own, and what is killed with it in the end."""
    made = WarmKernels()
    assert made.wait_until_ready(START_SECONDS)
    yield made
    made.close()


def start_sleeping(kernels, folder):
    """Fork a kernel without a connection file: it makes its own, and waits."""
    words = [sys.executable, "-m", "ipykernel_launcher", "-f", str(folder / "kernel.json")]
    return kernels.start(words, {"cwd": str(folder), "env": dict(os.environ)})


def test_what_needs_a_fresh_python_is_not_forked(kernels, tmp_path, monkeypatch):
    words = [sys.executable, "-m", "ipykernel_launcher", "-f", "x"]
    settings = {"cwd": str(tmp_path), "env": dict(os.environ)}
    assert kernels.why_not(words, settings) == ""
    assert "another kind" in kernels.why_not(["/usr/bin/python3", *words[1:]], settings)
    assert "another kind" in kernels.why_not(["R", "--slave"], settings)
    assert "wants stdout" in kernels.why_not(words, settings | {"stdout": 1})
    other = settings["env"] | {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}
    assert "variables" in kernels.why_not(words, settings | {"env": other})
    packages = Path(sysconfig.get_path("purelib"))
    monkeypatch.setattr(kernels, "_installed_at", packages.stat().st_mtime_ns - 1)
    assert "installed since" in kernels.why_not(words, settings | {"cwd": str(ROOT)})


def test_kernels_end_with_the_warm_process(kernels, tmp_path):
    first, second = (start_sleeping(kernels, tmp_path) for _ in range(2))
    assert first.poll() is None and psutil.Process(first.pid).status() != psutil.STATUS_ZOMBIE
    first.kill()
    assert first.wait(120) == -9 and first.poll() == -9
    first.kill()  # again: nothing happens
    kernels.close()
    assert second.wait(120) == -9
    wait_for(lambda: not lives(second.pid) and not lives(kernels.pid))
    wait_for(lambda: kernels.trouble)
    with pytest.raises(RuntimeError, match="the warm process has ended"):
        start_sleeping(kernels, tmp_path)
