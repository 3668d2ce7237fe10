"""Ray, Spark and Slurm, each on a real cluster of two nodes: the same must hold on all three.

One process keeps the launcher of an engine for all of its tests (`engine_host`), as a cluster
takes long to start; the last test kills it.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import test_launchers as launchers
from engine_host import EngineHost
from needs import need_engine
from process_watch import lives, wait_for

from utils.cluster import LocalCluster
from utils.engines import RunSettings
from utils.engines.engine_launcher import make_launcher
from utils.engines.programs import ProgramRun, share_cores
from utils.processes.registry import find_clusters

pytestmark = pytest.mark.timeout(900)  # an engine's start takes minutes where others compute
SECONDS = 280.0
EXACT = {
    "strategy": "multi-worker",
    "dtype": "float64",
    "optimizer": "sgd",
    "model": "mlp",
    "epochs": 2,
    "global_batch_size": 64,
    "max_examples": 202,
}
KILLED = {"ray": "starter", "spark": "starter", "slurm": "agent"}  # of worker 1


@pytest.fixture(scope="module", params=list(KILLED))
def engine(request):
    """The name of an engine; skips without it."""
    need_engine(request.param)
    return request.param


@pytest.fixture(scope="module")
def host(engine):
    host = EngineHost(engine)
    yield host
    host.close()


def test_lines_and_events_come_in_order_then_the_result_then_the_end(host, tmp_path):
    host.run(check_lines, tmp_path)


def check_lines(launcher, folder):
    for tried in (launchers.Tried(launcher), launchers.Tried(launcher, folder)):
        launchers.test_lines_and_events_come_in_order_then_the_result_then_the_end(tried)


def test_programs_fail_leave_listen_and_are_killed_as_with_every_launcher(host, tmp_path):
    host.run(check_programs, tmp_path)


def check_programs(launcher, folder):
    tried = launchers.Tried(launcher, folder)
    launchers.test_an_error_is_a_result_and_a_status_that_is_not_zero(tried)
    launchers.test_a_task_that_leaves_has_its_last_words_its_status_and_no_result(tried)
    launchers.test_a_task_is_seen_to_listen_at_its_own_address_and_to_do_nothing_else(tried)
    launchers.test_a_killed_task_ends_with_what_it_started_and_the_other_goes_on(tried)


# ---- a worker is killed


@pytest.fixture(scope="module")
def alone():
    """The weights of the same training on one device, in a process of this machine."""
    with LocalCluster(1) as cluster:
        config = {**EXACT, "strategy": "one-device"}
        [weights] = cluster.run(train_here, config, echo=False)
    return weights


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

    return train(TrainConfig(**config), on_event=wait_at_step_4).weights


def test_a_killed_worker_starts_again_goes_on_and_ends_with_the_weights_of_one_process(
    host, engine, alone, tmp_path
):
    host.run(check_restart, alone, str(tmp_path), KILLED[engine])


def check_restart(launcher, alone, folder, victim):
    """Kill `victim`, a process of worker 1, in the middle of the training."""
    with LocalCluster(2, launcher=launcher) as cluster:
        config = {**EXACT, "checkpoint_dir": folder, "checkpoint_every": 1}
        job = cluster.start(train_here, config, folder, restarts=1)
        there, waits = {}, False
        for event in job.events():
            if event["event"] == "there":
                there[event["task"]] = event
            waits |= event["event"] == "waiting"
            if waits and len(there) == 2:
                os.kill(there["worker 1"][victim], signal.SIGKILL)
                break
        results = job.wait(SECONDS)
        history = job.history()
    assert job.attempt == 2 and [e["event"] for e in history].count("there") == 4
    assert any(e["event"] == "restore" for e in history), "it went on from its checkpoint"
    again = [e for e in history if e["event"] == "there" and e["attempt"] == 2]
    assert {e["agent"] for e in again}.isdisjoint({e["agent"] for e in there.values()})
    for weights in results:
        for ours, theirs in zip(weights, alone, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)


# ---- programs


PROGRAM = """
import json, os, signal, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index, restart = config["task"]["index"], int(os.environ["DISTLAB_RESTART"])
rank = os.environ["KERAS_DISTRIBUTION_PROCESS_ID"]
print("restart", restart, "task", rank, "of", len(set(config["cluster"]["worker"])), sys.argv[1:])
print("local", *(os.environ.get(n) for n in ("DISTLAB_LOCAL_RANK", "TF_NUM_INTRAOP_THREADS")))
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


def test_a_program_runs_starts_again_and_is_reported(host, tmp_path):
    host.run(check_program, tmp_path)


def check_program(launcher, folder):
    """Place, arguments, folder; a killed task, a restart, the report."""
    said, shown = [], []
    report = run_program(launcher, folder, ["go", "--epochs", "3"], shown, said)
    assert (report.status, report.cause, report.restarts) == (0, None, 1)
    assert [(t.task, t.status) for t in report.tasks] == [("worker 0", 0), ("worker 1", 0)]
    assert any("worker 1 was ended by SIGKILL; all tasks start again" in text for text in said)
    for index in range(2):
        line = f"restart 1 task {index} of 2 ['go', '--epochs', '3']"
        assert (f"worker {index}", line) in shown
        assert line in (folder / "logs" / f"attempt-2/worker-{index}/stdout.log").read_text()
        name = "TF_NUM_INTRAOP_THREADS"  # both nodes are this machine
        share = os.environ.get(name) or share_cores(2)[name]
        assert (f"worker {index}", f"local {index} {share}") in shown


def run_program(launcher, folder, words, shown, said, text=PROGRAM):
    os.chdir(folder)
    (folder / "program.py").write_text(text)
    settings = RunSettings(workers=2, max_restarts=1, logs=str(folder / "logs"))
    command = [sys.executable, "program.py", *words]
    run = ProgramRun(command, settings, launcher, lambda *both: shown.append(both), said.append)
    return run.run()


ON_JAX = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import jax, keras, numpy as np
from jax.experimental import multihost_utils
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
keras.distribution.initialize()  # nothing but the variables of the run
rank = jax.process_index()
found = multihost_utils.process_allgather(np.array([10 + rank])).tolist()
# in one piece, on a line of its own: Gloo writes to standard output as well
os.write(1, f"\\n{rank} {jax.device_count()} {found}\\n".encode())
"""


def test_processes_of_keras_on_jax_meet_and_gather(host, tmp_path):
    host.run(check_jax, tmp_path)


def check_jax(launcher, folder):
    shown, said = [], []
    report = run_program(launcher, folder, [], shown, said, ON_JAX)
    assert (report.status, report.restarts) == (0, 0), shown
    for rank in range(2):
        assert (f"worker {rank}", f"{rank} 4 [[10], [11]]") in shown


def test_independent_tasks_start_again_alone(host, tmp_path):
    host.run(check_independent, tmp_path)


ALONE = """
import os, sys
index, restart = os.environ["DISTLAB_TASK_INDEX"], os.environ["DISTLAB_RESTART"]
print("task", index, "of", os.environ["DISTLAB_TASK_COUNT"], restart, "TF_CONFIG" in os.environ)
if index == "1":
    os.kill(os.getppid() if restart == "0" else os.getpid(), 9)  # its agent, then itself
"""


def check_independent(launcher, folder):
    """A lost agent and two kills of one task of two; the other one runs once."""
    launcher = make_launcher(launcher.engine.name, launcher.address, print, SECONDS, apart=True)
    os.chdir(folder)
    (folder / "alone.py").write_text(ALONE)
    settings = RunSettings(2, max_restarts=2, independent=True, logs=str(folder / "logs"))
    command, shown, said = [sys.executable, "alone.py"], [], []
    with contextlib.closing(launcher):
        show = lambda *both: shown.append(both)  # noqa: E731
        report = ProgramRun(command, settings, launcher, show, said.append).run()
    assert [line for task, line in shown if task == "worker 0"] == ["task 0 of 2 0 False"], shown
    assert ("worker 1", "task 1 of 2 2 False") in shown
    assert (report.failed, report.restarts) == (1, 2)
    assert [task.status for task in report.tasks] == [0, 137] and "worker 1" in report.cause


def test_nothing_outlives_a_launcher_that_is_killed(host, tmp_path):
    """No task, no daemon, no folder."""
    host.start(run_program, tmp_path, ["stay"], [], [])
    check_kill(host.process, tmp_path)


def test_nothing_outlives_the_command_that_is_killed(tmp_path):
    """`distlab run --engine`; Slurm's cluster is the one that starts fast."""
    need_engine("slurm")
    (tmp_path / "program.py").write_text(PROGRAM)
    running = subprocess.Popen(
        [sys.executable, "-m", "distlab", "run", "--engine", "slurm", "program.py", "stay"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    check_kill(psutil.Process(running.pid), tmp_path)
    running.wait(120)


def check_kill(launcher, folder):
    """Kill the process of a launcher once two tasks are there, and see everything go."""
    names = [folder / "ready-0", folder / "ready-1"]
    try:
        wait_for(lambda: not lives(launcher.pid) or all(p.exists() for p in names), SECONDS)
        assert lives(launcher.pid)
        tasks = [int(number) for path in names for number in path.read_text().split()]
        below = [p.pid for p in psutil.Process(launcher.pid).children(recursive=True)]
        agents = [psutil.Process(task).ppid() for task in tasks[::2]]
        folders = list_folders({launcher.pid, *below, *agents})
    finally:
        launcher.kill()
    assert folders, "of the engine's driver"
    wait_for(lambda: not [p for p in (*tasks, *below, *agents) if lives(p)])
    wait_for(lambda: not [folder for folder in folders if folder.exists()])


def list_folders(owners):
    """Return the temporary folders of clusters that one of `owners`, process numbers, has made."""
    return [Path(found.mark.folder) for found in find_clusters() if found.mark.owner in owners]
