"""Engines' clusters that are there already: joined, left as they were, a node lost, GPUs."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import psutil
import pytest
from needs import need_engine
from process_watch import lives, start_process, wait_for

from utils.engines import spark_driver
from utils.engines.driver import Wanted
from utils.engines.options import read_options, to_ray_options
from utils.engines.ray_driver import STORE_BYTES, VARIABLES, hide_slow_import
from utils.engines.slurm_local import LocalSlurm
from utils.engines.spark_driver import make_home
from utils.processes.registry import MARK_VARIABLE, end_cluster, find_clusters, make_mark
from utils.tf_config import pick_free_ports

pytestmark = pytest.mark.timeout(600)  # an engine's start takes long where others compute
ENGINES, SECONDS = ("ray", "spark", "slurm"), 280.0
JAVA = "org.apache.spark.deploy"
DAEMONS = {"gcs_server", "raylet", "slurmctld", "slurmd"}
DAEMONS |= {f"{JAVA}.master.Master", f"{JAVA}.worker.Worker"}
PROGRAM = """
import json, os, signal, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index, restart = config["task"]["index"], int(os.environ["DISTLAB_RESTART"])
print("job", os.environ.get("SLURM_JOB_NAME"), os.environ.get("SLURM_CPUS_PER_TASK"))
print("restart", restart, "task", index, "GPUs", repr(os.environ.get("CUDA_VISIBLE_DEVICES")))
open(f"part-{index}", "w").write(str(os.getpid()))
os.rename(f"part-{index}", f"here-{restart}-{index}")
while not os.path.exists("here-0-0"):  # or it is ended before its first line
    time.sleep(0.05)
if sys.argv[1] == "wait" and restart == 0:
    time.sleep(300)
if index == 1 and not restart:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0 if restart else 100)
"""


def run_distlab(*words, folder, status=0):
    """Run the command in `folder` and return what it prints, and says."""
    done = subprocess.run(
        [sys.executable, "-m", "distlab", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


@contextlib.contextmanager
def marked():
    """Let what is started carry a mark, by which all of it is ended."""
    mark = make_mark()
    before, os.environ[MARK_VARIABLE] = os.environ.get(MARK_VARIABLE), mark.value
    try:
        yield Path(mark.folder)
    finally:
        os.environ.pop(MARK_VARIABLE)
        if before:
            os.environ[MARK_VARIABLE] = before
        end_cluster(mark.identity)
        shutil.rmtree(mark.folder, ignore_errors=True)


def start_by_hand(folder, *words, ready, **variables):
    """Start one of an engine's own programs; return what it wrote once it holds `ready`."""
    log = folder / f"{len(list(folder.glob('*.said')))}.said"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [str(word) for word in words],
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **variables},
            start_new_session=True,
        )
    wait_for(lambda: re.search(ready, log.read_text()) or process.poll(), SECONDS)
    assert not process.poll(), log.read_text()
    return log.read_text()


@contextlib.contextmanager
def open_ray(folder):
    port = pick_free_ports(1)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # or Ray misses its two GPUs
        hide_slow_import(str(folder))
        start_by_hand(
            folder,
            Path(sys.executable).with_name("ray"),
            "start",
            "--head",
            "--block",
            "--port",
            port,
            "--node-ip-address",
            "127.0.0.1",
            "--num-cpus",
            2,
            "--num-gpus",
            2,
            "--include-dashboard",
            "false",
            "--temp-dir",
            folder / "ray",
            "--object-store-memory",
            STORE_BYTES,
            ready="Ray runtime started",
            **VARIABLES,
        )
    yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def open_spark(folder):
    with make_home(str(folder)):
        home = os.environ.pop("SPARK_HOME")
        del os.environ["SPARK_LOCAL_IP"]
    command, port = f"{home}/bin/spark-class", pick_free_ports(1)[0]
    variables = {
        "SPARK_HOME": home,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    start_by_hand(
        folder,
        command,
        f"{JAVA}.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--webui-port",
        0,
        ready="I have been elected leader",
        **variables,
    )
    start_by_hand(
        folder,
        command,
        f"{JAVA}.worker.Worker",
        "--host",
        "127.0.0.1",
        "--cores",
        2,
        "--memory",
        "1g",
        "--webui-port",
        0,
        f"spark://127.0.0.1:{port}",
        ready="Successfully registered",
        **variables,
    )
    yield f"spark://127.0.0.1:{port}"


@contextlib.contextmanager
def open_slurm(folder):
    cluster = LocalSlurm(str(folder), 2)
    os.environ["SLURM_CONF"] = str(cluster.configuration)
    try:
        cluster.start()
        yield "local"
    finally:
        cluster.stop()
        del os.environ["SLURM_CONF"]


@pytest.fixture(scope="module")
def clusters():
    """Give a function from an engine's name to the address of its cluster, started once."""
    opens = {"ray": open_ray, "spark": open_spark, "slurm": open_slurm}
    opened = {}
    with contextlib.ExitStack() as stack:

        def find(name):
            if name not in opened:
                need_engine(name)
                folder = stack.enter_context(marked())
                opened[name] = stack.enter_context(opens[name](folder)), folder
            return opened[name]

        yield find


def run(name, address, *words, folder, status=0):
    words = ["run", "--json", "--engine", name, "--engine-address", address, *words]
    report, said = run_distlab(*map(str, words), folder=folder, status=status)
    return json.loads(report), said


def list_members(folder):
    """Return the daemons of a cluster that was started by hand; others come and go."""
    [found] = [c for c in find_clusters() if c.mark.folder == str(folder)]
    return {process.pid for process in found.processes if is_daemon(process)}


def is_daemon(process):
    with contextlib.suppress(psutil.Error):
        return bool({process.name(), *process.cmdline()} & DAEMONS)
    return False


@pytest.mark.parametrize("name", ENGINES)
def test_a_cluster_that_is_there_is_joined_and_left_as_it_was(clusters, name, tmp_path):
    """A killed task starts again there; what the run started has gone when it ends."""
    address, folder = clusters(name)
    (tmp_path / "program.py").write_text(PROGRAM)
    before = list_members(folder)
    gpus = ["--gpus", 1] if name == "ray" else []
    asked = {
        "ray": "num_cpus=1",
        "slurm": "--job-name=mine --time=5 --cpus-per-task=1",
        "spark": "spark.a=b",
    }[name]
    words = ["--max-restarts", 1, "--logs", "logs", *gpus, f"--engine-options={asked}"]
    words += ["--port-range", "1025:65000", "program.py", "go"]
    report, said = run(name, address, *words, folder=tmp_path)
    assert (report["restarts"], report["cause"]) == (1, None)
    assert "worker 1 was ended by SIGKILL; all tasks start again" in said
    if gpus:  # each has one of the two, which Ray has given it
        given = {
            re.search(
                "GPUs '(.*)'",
                Path(tmp_path, "logs", f"attempt-1/worker-{i}/stdout.log").read_text(),
            )[1]
            for i in range(2)
        }
        assert given == {"0", "1"}
    if name == "slurm":
        assert "job mine 1\n" in Path(tmp_path, "logs", "attempt-1/worker-0/stdout.log").read_text()
    tasks = [int(path.read_text()) for path in tmp_path.glob("here-*")]
    assert len(tasks) == 4 and len(before) >= 2
    wait_for(lambda: not any(map(lives, tasks)))
    assert before <= list_members(folder)


def test_a_run_goes_on_when_a_node_of_slurm_is_lost(clusters, tmp_path):
    """`slurmd` is killed: its node is down within seconds, and the job runs on what is left."""
    address, folder = clusters("slurm")
    (tmp_path / "program.py").write_text(PROGRAM)
    words = f"run --engine slurm --engine-address {address} --max-restarts 2 program.py wait"
    command = [sys.executable, "-m", "distlab", *words.split()]
    running = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        places = [tmp_path / f"here-0-{index}" for index in range(2)]
        wait_for(lambda: all(path.exists() for path in places), SECONDS)
        os.kill(int((folder / "slurmd-n2.pid").read_text()), signal.SIGKILL)
        said = running.communicate(timeout=SECONDS)[0]
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0, said
    assert "all tasks start again" in said
    asked = subprocess.run(["sinfo", "-hN", "-o", "%N %T"], capture_output=True, text=True)
    assert re.search(r"n2 down", asked.stdout), asked.stdout


@pytest.fixture
def short_folder():
    """A folder whose name leaves room for the sockets in it: a path has 107 letters at most."""
    with tempfile.TemporaryDirectory(prefix="dl-") as folder:
        yield folder


@pytest.mark.parametrize(
    ("name", "number"),
    [("ray", signal.SIGINT), ("spark", signal.SIGTERM), ("slurm", signal.SIGINT)],
)
def test_a_signal_while_an_engine_starts_leaves_nothing(name, number, tmp_path, short_folder):
    need_engine(name)
    (tmp_path / "program.py").write_text(PROGRAM)
    running = subprocess.Popen(
        [sys.executable, "-m", "distlab", "run", "--engine", name, "program.py", "wait"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, "TMPDIR": short_folder},
    )
    ours = lambda: [c for c in find_clusters() if short_folder in c.mark.folder]  # noqa: E731
    try:
        wait_for(lambda: any(len(c.processes) > 1 for c in ours()), SECONDS)
        running.send_signal(number)
        said = running.communicate(timeout=SECONDS)[0].decode()
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 128 + number, said
    wait_for(lambda: not ours())
    tasks = [int(path.read_text()) for path in tmp_path.glob("here-*")]  # of a quick engine
    wait_for(lambda: not any(map(lives, tasks)))


@pytest.mark.parametrize("name", ENGINES)
def test_a_cluster_that_is_not_there_is_named_in_one_line(name, tmp_path):
    need_engine(name)
    (tmp_path / "program.py").write_text(PROGRAM)
    port = pick_free_ports(1)[0]
    address = {"ray": f"127.0.0.1:{port}", "spark": f"spark://127.0.0.1:{port}", "slurm": "none"}
    words = ["run", "--engine", name, "--engine-address", address[name], "program.py", "go"]
    _, said = run_distlab(*words, folder=tmp_path, status=2)
    last = said.strip().splitlines()[-1]
    assert last.startswith(f"distlab run: Engine {name}: "), said


def test_who_answers_and_is_no_ray_is_left_at_once(tmp_path):
    """Ray's own client would try for minutes, and hear no signal."""
    need_engine("ray")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        words = ["run", "--engine", "ray", "--engine-address", address, "true"]
        running = start_process(
            [sys.executable, "-m", "distlab", *words], cwd=tmp_path, stderr=subprocess.PIPE
        )
        silent.settimeout(SECONDS)
        silent.accept()[0].close()  # the driver looks whether somebody listens
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=120)[1].decode()
    assert running.returncode == 130, said


def test_what_an_engines_client_may_take_is_limited():
    program = (
        "import threading, time\nfrom utils.engines.driver import limit\n"
        "with limit(30, threading.Event(), 'never'): pass\n"
        "with limit(0.2, threading.Event(), 'nobody answers'): time.sleep(300)\n"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "distlab: nobody answers\n"), done.stderr


def test_sparks_reason_is_told_and_not_what_was_called():
    words = "An error occurred while calling z:x.collect.\n: x.SparkException: no masters\n\tat y"
    context, failures = Mock(), []
    context.parallelize.return_value.barrier.side_effect = RuntimeError(words)
    spark_driver._run_stage(context, Wanted(1, ""), failures)
    assert failures == ["Spark gave up the job: x.SparkException: no masters"]


def train(*words, folder):
    words = ["train", "--json", "--max-examples", "256", "--epochs", "2", "--model", "mlp", *words]
    return json.loads(run_distlab(*words, folder=folder)[0])


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The report of the same training on one device, without an engine."""
    return train("--strategy", "one-device", folder=tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("name", ENGINES)
def test_distlab_train_has_the_losses_of_one_process_on_every_engine(
    clusters, alone, name, tmp_path
):
    address, _ = clusters(name)
    words = ["--engine", name, "--engine-address", address, "--strategy", "multi-worker"]
    there = train(*words, "--workers", "2", folder=tmp_path)
    assert there["workers"] == 2 and len(there["loss"]) == 2
    np.testing.assert_allclose(there["loss"], alone["loss"], rtol=0, atol=2e-3)


def test_rays_words_become_resources_of_each_task():
    told = to_ray_options(read_options("ray", "num_cpus=2 memory=1e9 spot=0.5", False))
    assert told == {"num_cpus": 2.0, "memory": 1e9, "resources": {"spot": 0.5}}
    words = ["--account=x", "--comment=a b"]
    assert read_options("slurm", "--account=x '--comment=a b'", True) == words


def test_machines_of_a_slurm_allocation_meet_in_it(clusters, tmp_path):
    """`srun distlab run --rendezvous` starts one launcher a task; the first one there hosts."""
    _, folder = clusters("slurm")
    (tmp_path / "program.py").write_text("print('ran')")
    port = pick_free_ports(1)[0]
    meet = ["--rendezvous", f"127.0.0.1:{port}", "--workers", "2", "--logs", "logs", "program.py"]
    words = ["srun", "--ntasks=2", sys.executable, "-m", "distlab", "run", *meet]
    settings = {"SLURM_CONF": str(folder / "slurm.conf"), "DISTLAB_CODE": "only-for-this-test"}
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert {"[worker 0] ran", "[worker 1] ran"} == set(done.stdout.splitlines())
    assert (tmp_path / "logs" / "attempt-1/worker-1/stdout.log").read_text() == "ran\n"


def test_ray_in_its_own_words_does_the_same(clusters, tmp_path):
    """The program that lesson 19 shows and doesn't run."""
    address, _ = clusters("ray")
    lesson = Path(__file__).parents[2] / "notebooks" / "src" / "19_engines.py"
    _, _, text = lesson.read_text().partition("# %%writefile runs/lesson19/with_ray.py\n")
    (tmp_path / "with_ray.py").write_text(text.partition("\n# %%")[0])
    (tmp_path / "show.py").write_text(
        f"import os\nopen(f'{tmp_path}/shown-{{os.getpid()}}', 'w').write(os.environ['TF_CONFIG'])"
    )
    done = subprocess.run(
        [sys.executable, "with_ray.py", str(tmp_path / "show.py")],
        cwd=tmp_path,
        text=True,
        env={**os.environ, "RAY_ADDRESS": address},
        capture_output=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0 and done.stdout.endswith("[0, 0]\n"), done.stdout + done.stderr
    configs = [json.loads(path.read_text()) for path in tmp_path.glob("shown-*")]
    assert sorted(config["task"]["index"] for config in configs) == [0, 1]
    assert configs[0]["cluster"] == configs[1]["cluster"]
    assert len(set(configs[0]["cluster"]["worker"])) == 2
