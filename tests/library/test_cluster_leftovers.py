"""Nothing stays behind, nothing hangs: real kernels, real clusters, killed in every way."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from jupyter_client import KernelManager
from process_watch import Held, lives, start_process, wait_for

from distlab.cli import processes as command
from utils.cluster import ClusterError, LocalCluster
from utils.cluster.warm_launcher import WarmLauncher
from utils.errors import DistributedError
from utils.processes import registry
from utils.processes.keeper import keep_marked

LEFT_SECONDS = 90.0  # it takes less than one where nothing else runs
cold = pytest.mark.cold_start  # what a kernel starts, and what is found by what /proc shows

# what a learner's notebook holds; each task makes a child, a temporary file, and its port
NOTEBOOK = """
import os, time
from utils.cluster import LocalCluster

def work(folder, tasks=2):
    import json, os, subprocess, tempfile, time
    import tensorflow as tf
    from utils.events import report
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    step = tf.function(lambda: strategy.reduce("SUM", strategy.run(lambda: 1.0), axis=None))
    assert float(step()) == 2.0
    child = subprocess.Popen(["sleep", "300"])
    open(tempfile.mkstemp()[1], "w").close()
    config = json.loads(os.environ["TF_CONFIG"])
    port = config["cluster"]["worker"][config["task"]["index"]].split(":")[1]
    with open(f"{folder}/{os.getpid()}-{child.pid}-{port}", "w") as file:
        file.write(os.environ["TMPDIR"])
    while True:
        step()
        report("step")
        time.sleep(0.05)

def wait_for_files(folder, number):
    end = time.time() + 120
    while time.time() < end and sum(1 for n in os.scandir(folder) if n.stat().st_size) < number:
        time.sleep(0.05)

def wait_until_seen(folder):
    while not os.path.exists(f"{folder}.seen"):
        time.sleep(0.05)
"""


class Kernel:
    """A real ipykernel with a folder of its own for temporary files."""

    def __init__(self, folder):
        self.temporary, self.told = folder / "tmp", folder / "told"
        self.temporary.mkdir(parents=True)
        self.told.mkdir()
        self.manager = KernelManager()
        root = str(Path(__file__).resolve().parents[2])
        self.manager.start_kernel(
            env={**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": root}, cwd=root
        )
        self.client = self.manager.blocking_client()
        self.client.start_channels()

    @property
    def process(self):
        return self.manager.provisioner.process.pid

    def open_notebook(self):
        self.client.wait_for_ready(timeout=120)
        assert self.run(NOTEBOOK + f"FOLDER = {str(self.told)!r}")["status"] == "ok"

    def run(self, code):
        return self.answer(self.begin(code))

    def begin(self, code):
        return self.client.execute(textwrap.dedent(code), stop_on_error=False)

    def answer(self, message):
        """Return the content of the reply to one request."""
        while True:
            reply = self.client.get_shell_msg(timeout=120)
            if reply["parent_header"].get("msg_id") == message:
                return reply["content"]

    def wait_until_started(self, tasks=2):
        """Return processes and ports of the cluster, once all tasks have told theirs."""
        wait_for(lambda: sum(p.stat().st_size > 0 for p in self.told.iterdir()) == tasks)
        told = [[int(n) for n in path.name.split("-")] for path in self.told.iterdir()]
        folders = {Path(path.read_text()) for path in self.told.iterdir()}
        processes = {n for row in told for n in row[:2]}
        assert all(lives(process) for process in processes)
        assert all(folder.is_relative_to(self.temporary) for folder in folders)
        children = psutil.Process(self.process).children(recursive=True)
        return processes | {child.pid for child in children}, [row[2] for row in told]

    @property
    def seen(self):
        return self.told.with_suffix(".seen")

    def forget(self):
        self.seen.unlink(missing_ok=True)
        for path in self.told.iterdir():
            path.unlink()

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def is_free(port):
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def assert_nothing_is_left(processes, ports, folder):
    """Soon no process lives, every port is free, no temporary file is there."""
    end = time.monotonic() + LEFT_SECONDS
    while time.monotonic() < end:
        left = [p for p in processes if lives(p)], [p for p in ports if not is_free(p)]
        files = [path.name for path in folder.glob("*")]
        if not any((*left, files)):
            return
        time.sleep(0.05)
    raise AssertionError(f"left after {LEFT_SECONDS} s: {left}, {files}")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The same notebook open twice."""
    both = [Kernel(tmp_path_factory.mktemp(name)) for name in ("first", "second")]
    try:
        for kernel in both:
            kernel.open_notebook()
        yield both
    finally:
        for kernel in both:
            kernel.close()


@pytest.fixture(scope="module")
def warm():
    with closing(WarmLauncher()) as launcher:
        yield launcher


@pytest.fixture
def launcher(warm):
    """A warm process that several clusters share; each test leaves its folder empty."""
    yield warm
    assert os.listdir(warm.folder) == [registry.MARK_FILE]


@cold
def test_the_same_notebook_twice_with_two_clusters_each_leaves_nothing(kernels):
    """Their tasks work at once. One cell ends as it should, the other with an exception."""
    code = """
        with LocalCluster(workers=2) as cluster:
            with LocalCluster(workers=2, launcher=cluster.launcher) as other:
                jobs = [each.start(work, FOLDER) for each in (cluster, other)]
                wait_for_files(FOLDER, 4)
                assert not any(job.finished for job in jobs)
                wait_until_seen(FOLDER)
                {end}
    """
    ends = "pass", "raise RuntimeError('a mistake in the cell')"
    asked = [kernel.begin(code.format(end=end)) for kernel, end in zip(kernels, ends)]
    seen = [kernel.wait_until_started(4) for kernel in kernels]
    assert not seen[0][0] & seen[1][0] and len({*seen[0][1], *seen[1][1]}) == 8
    for kernel in kernels:
        kernel.seen.touch()
    replies = [kernel.answer(message) for kernel, message in zip(kernels, asked)]
    assert replies[0]["status"] == "ok" and replies[1]["evalue"] == "a mistake in the cell"
    for kernel, (processes, ports) in zip(kernels, seen):
        assert_nothing_is_left(processes, ports, kernel.temporary)
        kernel.forget()


NOTE = "note_wait()"  # writes the file that says: the cell waits
WATCH = """
import sys, threading, traceback

def note_wait():
    open(f"{FOLDER}.waits", "w").close()

def watch():
    stack = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident])
    waits = {frame.name for frame in stack} & {"wait_until_finished", "follow_events"}
    note_wait() if waits else threading.Timer(0.01, watch).start()
"""
WAITS = {  # how a cell can wait for a job -> the name of the error that the interrupt leaves
    "cluster.run(work, FOLDER)": "JobInterrupted",
    "cluster.start(work, FOLDER).wait()": "JobInterrupted",
    "list(cluster.start(work, FOLDER).events())": "JobInterrupted",
    f"for _ in cluster.start(work, FOLDER).events(): {NOTE}, time.sleep(600)": "KeyboardInterrupt",
}


@cold
def test_an_interrupt_of_the_kernel_leaves_nothing_and_neither_does_its_restart(kernels):
    """However a cell waits for a job, its tasks end with the cell, and one line says so."""
    kernel = kernels[0]
    assert kernel.run("cluster = LocalCluster(workers=2); cluster.launcher")["status"] == "ok"
    assert kernel.run(WATCH)["status"] == "ok"
    waits = kernel.told.with_suffix(".waits")
    warm = {p.pid for p in psutil.Process(kernel.process).children(recursive=True)}
    for code, name in WAITS.items():
        message = kernel.begin(code if NOTE in code else f"watch(); {code}")
        processes, ports = kernel.wait_until_started()
        wait_for(waits.exists)
        waits.unlink()
        kernel.manager.interrupt_kernel()
        reply = kernel.answer(message)
        assert reply["ename"] == name, code
        if name == "JobInterrupted":
            assert reply["traceback"] == ["interrupted: the job was stopped, 2 tasks ended"]
        assert_nothing_is_left(processes - warm, ports, kernel.told.parent / "none")
        kernel.forget()
    assert kernel.run("job = cluster.start(work, FOLDER)")["status"] == "ok"
    processes, ports = kernel.wait_until_started()
    assert warm < processes
    kernel.manager.restart_kernel()
    assert_nothing_is_left(processes, ports, kernel.temporary)


@cold
def test_sigkill_of_the_kernel_leaves_nothing(kernels):
    """Killed twice: with a cluster that works, and while its warm process still imports."""
    kernel = kernels[1]
    start = "cluster = LocalCluster(workers=2); job = cluster.start(work, FOLDER)"
    assert kernel.run(start)["status"] == "ok"
    processes, ports = kernel.wait_until_started()
    known = {p.pid for p in psutil.Process(kernel.process).children(recursive=True)}
    kernel.begin("late = LocalCluster(workers=2); late.run(int)")
    fresh = wait_for(
        lambda: {p.pid for p in psutil.Process(kernel.process).children(recursive=True)} - known
    )
    wait_for(lambda: len(list(kernel.temporary.iterdir())) == 2)
    os.kill(kernel.process, signal.SIGKILL)
    assert_nothing_is_left(processes | fresh, ports, kernel.temporary)


# What a crashed owner leaves when even its warm process couldn't clear up.

OWNER = """
    import sys, time
    from utils.cluster import LocalCluster

    def work(folder):
        import os, subprocess, time
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        with open(f"{folder}/{os.getpid()}-{child.pid}", "w") as file:
            file.write("started")
        time.sleep(300)

    job = LocalCluster(workers=2).start(work, sys.argv[1])
    time.sleep(300)
"""


def run_command(*arguments, folder):
    done = subprocess.run(
        [sys.executable, "-m", "distlab", "processes", *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def start_owner(folder, told):
    owner = start_process(
        [sys.executable, "-c", textwrap.dedent(OWNER), str(told)],
        env={**os.environ, "TMPDIR": str(folder)},
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: sum(p.stat().st_size > 0 for p in told.iterdir()) == 2)
    return owner, {int(n) for p in told.iterdir() for n in p.name.split("-")}


def find_record(owner, folder):
    _, output, _ = run_command("list", "--json", folder=folder)
    return next((c for c in json.loads(output)["clusters"] if c["owner"] == owner.pid), None)


@cold
def test_list_and_stop_find_and_end_what_a_dead_owner_left(tmp_path):
    folder, told = tmp_path / "tmp", tmp_path / "told"
    folder.mkdir(), told.mkdir()
    stranger = subprocess.Popen(["sleep", "300"], env={**os.environ, "DISTLAB_CLUSTER": "x:1:2"})
    owner, processes = start_owner(folder, told)
    try:
        record = find_record(owner, folder)
        names = [process["name"] for process in record["processes"]]
        assert record["owner_lives"] and {"distlab-warm", "worker 0", "worker 1"} <= set(names)
        assert processes < {p["process"] for p in record["processes"]}
        assert record["id"] not in [c.mark.identity for c in command._choose(None, False)]
        assert record["id"] in [c.mark.identity for c in command._choose(None, True)]

        warm = next(p["process"] for p in record["processes"] if p["name"] == "distlab-warm")
        os.kill(warm, signal.SIGSTOP)  # so that it can't see that its owner dies
        owner.kill()
        owner.wait()
        record = find_record(owner, folder)
        assert not record["owner_lives"] and os.listdir(folder)
        shown = run_command("list", folder=folder)[1]
        assert f"{record['id']}: left by process {owner.pid}, which has gone" in shown
        assert record["id"] in [c.mark.identity for c in command._choose(None, False)]

        status, output, _ = run_command("stop", record["id"], folder=folder)
        assert status == 0 and output == f"{record['id']}: ended, 5 processes\n"
        assert_nothing_is_left({*processes, warm}, [], folder)
        assert find_record(owner, folder) is None and lives(stranger.pid)
        status, _, error = run_command("stop", record["id"], folder=folder)
        assert status == 2
        assert error.startswith(f"distlab processes stop: There is no cluster {record['id']}. ")
    finally:
        for process in [owner.pid, stranger.pid, *processes]:
            if lives(process):
                os.kill(process, signal.SIGKILL)
        owner.wait(), stranger.wait()


def test_a_process_without_an_environment_has_the_mark_of_its_starter():
    """Ray's agents write their titles over theirs; any other that never had it is left alone."""
    mark = registry.make_mark()
    script = 'env -i sleep 300 & env -i PATH="$PATH" sleep 300 & echo $!; wait'
    environment = {**os.environ, registry.MARK_VARIABLE: mark.value}
    with subprocess.Popen(
        ["bash", "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    ) as shell:
        stranger = psutil.Process(int(shell.stdout.readline()))
        try:
            wait_for(lambda: len(psutil.Process(shell.pid).children()) == 2)
            [wiped] = [p for p in psutil.Process(shell.pid).children() if p != stranger]
            wait_for(lambda: wiped.name() == stranger.name() == "sleep" and stranger.environ())
            assert registry.end_cluster(mark.identity) == 2 and not lives(wiped.pid)
            assert lives(stranger.pid)
        finally:
            stranger.kill()


def test_only_a_folder_with_its_own_mark_is_a_clusters(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mark = registry.make_mark()
    assert registry.parse_mark(mark.value).identity == mark.identity and mark.owner_lives
    copied, other = tmp_path / "distlab-copy", tmp_path / "distlab-other"
    copied.mkdir(), other.mkdir()
    (copied / registry.MARK_FILE).write_text(mark.value)
    (tmp_path / "distlab-link").symlink_to(mark.folder)
    for folder in (copied, other, tmp_path / "distlab-link", tmp_path):
        registry.remove_folder(str(folder))
        assert folder.exists()
    found = [c for c in registry.find_clusters() if c.mark.folder.startswith(str(tmp_path))]
    assert [c.mark.identity for c in found] == [mark.identity] and found[0].processes == []
    assert registry.end_cluster(mark.identity) == 0 and not Path(mark.folder).exists()
    earlier = replace(mark, owner_started=mark.owner_started - 100)
    assert not earlier.owner_lives, "the number has gone to another process since"
    assert replace(earlier, namespace="4").owner_lives, "who knows? it is in another container"
    wrong = ("a:b:c:d:e", "a1:1:2.0:4:/etc", "a1:1:2.0:4:distlab-x", "../:1:2.0:4:/distlab-x")
    for text in ("", "x", *wrong):
        assert registry.parse_mark(text) is None


def test_the_next_cluster_removes_what_was_killed_at_one_blow(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    living, dead, hidden = (registry.make_mark() for _ in range(3))
    gone = replace(dead, owner_started=dead.owner_started - 100)
    elsewhere = replace(hidden, owner_started=0.0, namespace="4")
    for mark in (gone, elsewhere):
        Path(mark.folder, registry.MARK_FILE).write_text(mark.value)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the keeper of the next one looks there
    with keep_marked():
        wait_for(lambda: not Path(dead.folder).exists())
    assert {Path(mark.folder).exists() for mark in (living, hidden)} == {True}


def test_the_end_of_the_warm_process_is_said_and_clears_up():
    with LocalCluster(workers=2) as cluster:
        job = cluster.start(start_child)
        children = [next(iter(job.events()))["child"]]
        launcher = cluster.launcher
        folder = Path(launcher.folder)
        os.kill(launcher.server.process.pid, signal.SIGKILL)
        with pytest.raises(ClusterError, match="worker [01]: was ended by SIGKILL"):
            job.wait(120)
        wait_for(lambda: not launcher.alive)
        with pytest.raises(
            DistributedError, match="worker 0 was not started: the warm process has en"
        ):
            LocalCluster(workers=1, launcher=launcher).start(int)
        with pytest.raises(DistributedError, match="worker 0 was not started"):
            LocalCluster(workers=1, launcher=launcher).start(int)
    started = [*children, *(task.process for task in job.tasks)]
    wait_for(lambda: not any(lives(process) for process in started))
    assert not folder.exists()


def start_child():
    import subprocess
    import time

    from utils.events import report

    report("child", child=subprocess.Popen(["sleep", "300"]).pid)
    time.sleep(300)


def test_fifty_clusters_leak_no_descriptor_thread_or_file(launcher):
    with LocalCluster(workers=2, launcher=launcher) as cluster:
        assert len(set(cluster.run(os.getpid, echo=False))) == 2
    held = Held()
    for _ in range(50):
        with LocalCluster(workers=1, launcher=launcher) as cluster:
            cluster.run(os.getpid, echo=False)
    held.assert_nothing_stays()
    assert os.listdir(launcher.folder) == [registry.MARK_FILE]


# Nothing hangs.


def make_strategy_and_step():
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    step = tf.function(lambda: strategy.reduce("SUM", strategy.run(lambda: 1.0), axis=None))
    return float(step())


def test_a_task_that_is_never_started_is_named(launcher, monkeypatch):
    cluster = LocalCluster(workers=2, launcher=launcher)
    os.kill(launcher.server.process.pid, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("utils.cluster.warm_launcher.FORK_SECONDS", 1.0)
            with pytest.raises(
                DistributedError, match="worker 0 was not started: .* hasn't answer"
            ):
                cluster.start(time.sleep, 300)
    finally:
        os.kill(launcher.server.process.pid, signal.SIGCONT)
    assert len(set(cluster.run(os.getpid, echo=False, timeout=120))) == 2
    wait_for(lambda: not psutil.Process(launcher.server.process.pid).children())


@pytest.mark.parametrize(
    "end, words",
    [
        (lambda: os._exit(3), "worker 1: exited with status 3 before it returned a result"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "worker 1: was ended by SIGKILL"),
    ],
)
def test_a_task_that_dies_while_others_wait_for_it_is_named(launcher, end, words):
    def work(end):
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
            time.sleep(0.3)
            end()
        return make_strategy_and_step()

    with pytest.raises(ClusterError, match=words) as failed:
        LocalCluster(workers=2, launcher=launcher).run(work, end, echo=False, timeout=120)
    assert failed.value.task == "worker 1" and failed.value.cure


def test_who_waits_for_whom_is_said(launcher):
    def wait_in_vain():
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
            time.sleep(600)
        return make_strategy_and_step()

    job = LocalCluster(workers=2, launcher=launcher).start(wait_in_vain)
    wait_for(lambda: job.tasks[1].listens)
    with pytest.raises(ClusterError, match="opened its port, .* and worker 1 waits for it") as late:
        job.wait(0.1)
    assert late.value.task == "worker 0"


def take_own_port(folder, times):
    """Lose the port to another program, the first `times` times."""
    config = json.loads(os.environ["TF_CONFIG"])
    index = config["task"]["index"]
    host, port = config["cluster"]["worker"][index].split(":")
    if index == 1 and len(os.listdir(folder)) < times:
        tempfile.mkstemp(dir=folder)  # one for each attempt: two may get the same port
        other = socket.create_server((host, int(port)))
        other.listen()
    return make_strategy_and_step()


def test_a_lost_port_is_tried_again_and_in_the_end_named(launcher, tmp_path):
    once, always = tmp_path / "once", tmp_path / "always"
    once.mkdir(), always.mkdir()
    cluster = LocalCluster(workers=2, launcher=launcher)
    assert cluster.run(take_own_port, str(once), 1, echo=False, timeout=120) == [2.0, 2.0]
    assert len(os.listdir(once)) == 1
    with pytest.raises(ClusterError, match="worker 1: .*port") as failed:
        cluster.run(take_own_port, str(always), 99, echo=False, timeout=120)
    assert "taken" in str(failed.value) and len(os.listdir(always)) == 4


def test_a_killed_task_leaves_no_file_of_tensorflow(launcher):
    def trace_and_wait():
        import tensorflow as tf

        from utils.events import report

        @tf.function
        def add(x):
            if x > 0:
                x += 1
            return x

        add(tf.constant(1))
        report("traced", files=os.listdir(tempfile.gettempdir()))
        time.sleep(300)

    job = LocalCluster(workers=1, launcher=launcher).start(trace_and_wait)
    assert "__autograph" in str(next(iter(job.events()))["files"])
    job.kill("worker", 0)
    with pytest.raises(ClusterError, match="SIGKILL"):
        job.wait(120)
    assert os.listdir(launcher.folder) == [registry.MARK_FILE]
