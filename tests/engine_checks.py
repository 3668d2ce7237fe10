"""What holds on every engine, tried on a real cluster of two nodes: the file of each has its tests.

A file makes one launcher for all of them, as its cluster takes long to start.
"""

import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile

import numpy as np
import psutil
import pytest
from process_watch import wait_for

from utils.cluster import LocalCluster
from utils.engines import RunSettings, make_launcher
from utils.engines.catalogue import find_engine
from utils.engines.engine_run import EngineRun
from utils.errors import InputError

SECONDS = 280.0
EXACT = {"strategy": "multi-worker", "dtype": "float64", "optimizer": "sgd", "model": "mlp",
         "epochs": 2, "global_batch_size": 64, "limit": 202}  # fmt: skip


@contextlib.contextmanager
def open_engine(name):
    """Give a launcher of the engine; without the engine, skip on laptops and fail in CI."""
    try:
        find_engine(name)
    except InputError as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
    with contextlib.closing(make_launcher(name)) as launcher:
        yield launcher


def train_here(config, folder=None):
    """In a task: train; with `folder`, worker 0 waits to be disturbed at step 4, the first time."""
    import os
    import time

    import psutil

    from utils.events import report
    from utils.training import train
    from utils.training.config import TrainConfig

    agent = psutil.Process(os.getppid())
    report("there", agent=agent.pid, starter=agent.ppid())

    def wait_at_step_4(event):
        if event["event"] == "restore":
            report("restore", epoch=event.get("epoch"))
        if folder and event["event"] == "step" and event["step"] == 4:
            waited = os.path.join(folder, "waited")
            if '"index": 0' in os.environ["TF_CONFIG"] and not os.path.exists(waited):
                open(waited, "w").close()
                report("waiting")
                time.sleep(300)

    trained = train(TrainConfig(**config), on_event=wait_at_step_4)
    return trained.weights, trained.losses if hasattr(trained, "losses") else None


def train_alone():
    """Return the weights of the same training on one device, in a process of this machine."""
    with LocalCluster(1) as cluster:
        [(weights, _)] = cluster.run(train_here, {**EXACT, "strategy": "one-device"}, echo=False)
    return weights


def check_same_weights(launcher, alone):
    with LocalCluster(2, launcher=launcher) as cluster:
        results = cluster.run(train_here, EXACT, echo=False, timeout=SECONDS)
    for weights, _ in results:
        for ours, theirs in zip(weights, alone, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)


def check_restart(launcher, alone, disturb):
    """`disturb(there)` kills something of worker 1, of which `there` tells the processes."""
    with tempfile.TemporaryDirectory() as folder, LocalCluster(2, launcher=launcher) as cluster:
        config = {**EXACT, "checkpoint": folder, "checkpoint_every": 1}
        job = cluster.start(train_here, config, folder, restarts=1)
        there = {}
        for event in job.events():
            if event["event"] == "there":
                there[event["task"]] = event
            if event["event"] == "waiting":
                disturb(there["worker 1"])
                break
        results = job.wait(SECONDS)
        history = job.history()
    assert job.attempt == 2 and [e["event"] for e in history].count("there") == 4
    assert any(e["event"] == "restore" for e in history), "it went on from its checkpoint"
    again = [e for e in history if e["event"] == "there" and e["attempt"] == 2]
    assert {e["agent"] for e in again}.isdisjoint({e["agent"] for e in there.values()})
    for weights, _ in results:
        for ours, theirs in zip(weights, alone, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)


PROGRAM = """
import json, os, signal, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index, restart = config["task"]["index"], int(os.environ["DISTLAB_RESTART"])
print("restart", restart, "task", index, "of", len(set(config["cluster"]["worker"])), sys.argv[1:])
if sys.argv[1] == "stay":
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    with open(f"part-{index}", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.rename(f"part-{index}", f"ready-{index}")
    time.sleep(300)
if index == 1 and not restart:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0 if restart else 100)
"""


def check_program(launcher, folder, monkeypatch):
    """A program's run: place, arguments, folder; a killed task, a restart, the report."""
    monkeypatch.chdir(folder)
    (folder / "program.py").write_text(PROGRAM)
    said, shown = [], []
    command = [sys.executable, "program.py", "go", "--epochs", "3"]
    settings = RunSettings(workers=2, restarts=1, logs=str(folder / "logs"))
    run = EngineRun(command, settings, launcher, lambda *both: shown.append(both), said.append)
    report = run.run()
    assert (report.status, report.cause, report.restarts) == (0, None, 1)
    assert [(t.task, t.status) for t in report.tasks] == [("worker 0", 0), ("worker 1", 0)]
    assert any("worker 1 was ended by SIGKILL; all tasks start again" in text for text in said)
    for index in range(2):
        line = f"restart 1 task {index} of 2 ['go', '--epochs', '3']"
        assert (f"worker {index}", line) in shown
        assert line in (folder / "logs" / f"worker-{index}.log").read_text()


def check_killed_launcher(name, folder):
    """Nothing outlives `distlab run --engine` that is killed: no task, no daemon, no folder."""
    (folder / "program.py").write_text(PROGRAM)
    before = set(glob.glob(os.path.join(tempfile.gettempdir(), "distlab-*")))
    running = subprocess.Popen(
        [sys.executable, "-m", "distlab", "run", "--engine", name, "program.py", "stay"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    names = [folder / "ready-0", folder / "ready-1"]
    try:
        wait_for(lambda: running.poll() is not None or all(p.exists() for p in names), SECONDS)
        assert running.poll() is None, running.stdout.read().decode()
        tasks = [int(number) for path in names for number in path.read_text().split()]
        below = psutil.Process(running.pid).children(recursive=True)
    finally:
        running.kill()
        running.communicate(timeout=60)
    wait_for(lambda: not [p for p in tasks if _lives(p)])
    wait_for(lambda: not [p for p in below if _lives(p.pid)])
    new = lambda: set(glob.glob(os.path.join(tempfile.gettempdir(), "distlab-*"))) - before  # noqa: E731
    wait_for(lambda: not new())


def _lives(process):
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def kill(process):
    os.kill(process, signal.SIGKILL)


def run_distlab(*words, folder, status=0):
    """Run the command in `folder` and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "distlab", *words], cwd=folder, capture_output=True, text=True,
        timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


def train_json(*words, folder):
    return json.loads(run_distlab("train", "--json", *words, folder=folder)[0])
