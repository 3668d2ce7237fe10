"""LocalCluster with real processes: results, output, events, failures, restarts, nothing left."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from process_watch import Held, lives, start_process, wait_for

from utils.cluster import ClusterError, LocalCluster
from utils.cluster.local_launcher import ColdLauncher
from utils.errors import DistributedError


def add_up():
    """One all-reduce over all workers; returns this worker's index and the sum."""
    import tensorflow as tf

    from utils.events import report

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    ones = tf.function(lambda: strategy.run(lambda: tf.constant(1.0)))
    total = float(strategy.reduce("SUM", ones(), axis=None))
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    print(f"worker {index} has {total}")
    report("step", step=1, loss=total)
    return index, total


def report_for_ever():
    from utils.events import report

    while True:
        report("step")
        time.sleep(0.02)


def reduce_for_ever():
    import tensorflow as tf

    from utils.events import report

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    step = tf.function(lambda: strategy.reduce("SUM", strategy.run(lambda: 1.0), axis=None))
    while True:
        step()
        report("step")
        time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(workers=3) as cluster:
        yield cluster


def wait_for_event(job):
    return next(iter(job.events()))


def test_results_come_in_rank_order_with_named_lines_and_events(cluster, capsys):
    assert cluster.run(add_up, timeout=120) == [(0, 3.0), (1, 3.0), (2, 3.0)]
    shown = capsys.readouterr().out
    assert all(f"[worker {i}] worker {i} has 3.0" in shown for i in range(3))
    job = cluster.start(add_up)
    events = list(job.events())
    assert sorted(e["task"] for e in events) == ["worker 0", "worker 1", "worker 2"]
    assert all(e["loss"] == 3.0 and e["attempt"] == 1 for e in events)
    assert len(job.wait(120)) == 3 and job.logs("worker", 1) == ["worker 1 has 3.0"]


def test_each_task_is_a_process_with_its_own_port_and_group(cluster):
    def describe(greeting, **settings):
        return os.getpid(), os.getpgid(0), os.environ["TF_CONFIG"], greeting, settings

    results = cluster.run(describe, "hello", echo=False, epochs=2)
    assert len({r[0] for r in results}) == 3 and all(r[0] == r[1] for r in results)
    specs = [json.loads(r[2])["cluster"] for r in results]
    assert specs[0] == specs[1] == specs[2] and len(set(specs[0]["worker"])) == 3
    assert all(address.startswith("127.0.0.1:") for address in specs[0]["worker"])
    assert results[0][3:] == ("hello", {"epochs": 2})


def test_each_task_finds_the_clusters_environment_in_its_own(cluster):
    with LocalCluster(2, launcher=cluster.launcher, environment={"PLACE": "here"}) as other:
        found = other.run(lambda: (os.environ["PLACE"], "TF_CONFIG" in os.environ), echo=False)
    assert found == [("here", True)] * 2 and "PLACE" not in os.environ


def test_an_exception_names_the_worker_that_raised_it(cluster):
    def fail():
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
            raise ValueError("no such column: price")
        step = tf.function(lambda: strategy.reduce("SUM", strategy.run(lambda: 1.0), axis=None))
        return float(step())

    with pytest.raises(ClusterError, match="worker 1: ValueError: no such column") as failed:
        cluster.run(fail, echo=False, timeout=120)
    assert failed.value.task == "worker 1" and "Traceback" in failed.value.details


def test_of_several_root_errors_the_first_is_named(cluster):
    def fail():
        import tensorflow as tf

        raise tf.errors.InternalError(
            None, None, "2 root error(s) found.\n  (0) INTERNAL: first cause\n  (1) CANCELLED: x"
        )

    with pytest.raises(ClusterError, match=r"worker \d: InternalError: \(0\) INTERNAL: first"):
        cluster.run(fail, echo=False, timeout=120)


def test_of_a_value_over_many_lines_the_message_keeps_its_end(cluster):
    def fail():
        raise ValueError("cannot convert (PerReplica:{\n  0: 1.0\n  1: 2.0\n}) to a Tensor.")

    with pytest.raises(ClusterError, match=r"convert \(PerReplica:\{ … \}\) to a Tensor"):
        cluster.run(fail, echo=False, timeout=120)


def test_a_killed_worker_is_named(cluster):
    job = cluster.start(reduce_for_ever)
    wait_for_event(job)
    job.kill("worker", 2)
    with pytest.raises(ClusterError, match="worker 2: was ended by SIGKILL"):
        job.wait(120)


def test_of_two_that_fail_the_one_that_was_killed_is_named_however_late_its_end_is_told(
    cluster, monkeypatch
):
    """The warm process is stopped, so nobody tells that worker 2 has ended before the others."""
    monkeypatch.setattr("utils.cluster.supervisor.PEER_SECONDS", 0.0)
    monkeypatch.setattr("utils.cluster.supervisor.LOST_SECONDS", 300.0)
    server = cluster.launcher.server.process.pid
    job = cluster.start(reduce_for_ever)
    wait_for_event(job)
    os.kill(server, signal.SIGSTOP)
    try:
        os.kill(job.tasks[2].process, signal.SIGKILL)
        wait_for(lambda: any(task.state == "failed" for task in job.tasks))
        time.sleep(0.5)  # for a supervisor that would name one of them
    finally:
        os.kill(server, signal.SIGCONT)
    with pytest.raises(ClusterError, match="worker 2: was ended by SIGKILL"):
        job.wait(120)


def test_a_frozen_worker_is_named_when_time_is_up_and_can_go_on(cluster):
    job = cluster.start(report_for_ever)
    wait_for_event(job)
    first = psutil.Process(job.tasks[0].process)
    job.pause("worker", 0)
    wait_for(lambda: first.status() == psutil.STATUS_STOPPED)
    stopped_at = time.time()
    wait_for(lambda: sum(event["time"] > stopped_at for event in job.history()) > 5)
    resumed_at = time.time()
    job.resume("worker", 0)

    def own_times():
        return [event["time"] for event in job.history() if event["task"] == "worker 0"]

    wait_for(lambda: max(own_times(), default=0) > resumed_at)
    assert not [at for at in own_times() if stopped_at < at < resumed_at], "the others went on"
    job.pause("worker", 0)
    wait_for(lambda: first.status() == psutil.STATUS_STOPPED)
    with pytest.raises(ClusterError, match=r"worker 0: is frozen.*job.resume\('worker', 0\)"):
        job.wait(1)
    assert job.finished and not any(lives(task.process) for task in job.tasks)


def test_a_task_that_waits_for_ever_is_ended_in_time(cluster):
    def wait_for_a_peer():
        import tensorflow as tf

        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
            time.sleep(600)  # worker 0 never starts its server
        tf.distribute.MultiWorkerMirroredStrategy()

    with pytest.raises(ClusterError, match="was not done after 3 s"):
        cluster.run(wait_for_a_peer, timeout=3, echo=False)


def test_the_whole_group_restarts_and_goes_on(cluster, tmp_path):
    def count(folder):
        import tensorflow as tf

        from utils.events import report

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        place = os.path.join(folder, "steps")  # written by the chief, read by all
        done = int(open(place).read()) if os.path.exists(place) else 0
        step = tf.function(lambda: strategy.reduce("SUM", strategy.run(lambda: 1.0), axis=None))
        for number in range(done, 12):
            step()
            if index == 0:
                with open(place + ".part", "w") as file:
                    file.write(str(number + 1))
                os.replace(place + ".part", place)
            report("step", step=number + 1)
            time.sleep(600 if number == 8 and not done else 0.05)  # until the kill
        return done

    job = cluster.start(count, str(tmp_path), restarts=2)
    for event in job.events():
        if event["event"] == "step" and event["step"] == 5 and event["attempt"] == 1:
            job.kill("worker", 1)
            break
    resumed_at = job.wait(120)
    assert len(set(resumed_at)) == 1 and resumed_at[0] >= 4
    restarts = [e for e in job.events() if e["event"] == "restart"]
    assert [e["task"] for e in restarts] == ["worker 1"] and job.attempt == 2


def test_a_cluster_may_say_how_often_its_jobs_restart(tmp_path):
    def die_once(path):
        import os
        import pathlib

        if not pathlib.Path(path, "died").exists():
            pathlib.Path(path, "died").touch()
            os.kill(os.getpid(), 9)
        return "back"

    with LocalCluster(workers=1, restarts=1) as cluster:
        assert cluster.run(die_once, str(tmp_path), echo=False) == ["back"]
        (tmp_path / "died").unlink()
        with pytest.raises(ClusterError, match="worker 0"):
            cluster.run(die_once, str(tmp_path), echo=False, restarts=0)
    with pytest.raises(DistributedError, match="mesos"):
        LocalCluster(engine="mesos").run(die_once, str(tmp_path))


def test_parameter_servers_run_the_function_on_the_coordinator(tmp_path):
    def coordinate(go):
        import tensorflow as tf

        from utils.events import report

        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            variable = tf.Variable(0.0)

        @tf.function
        def add():
            variable.assign_add(1.0)

        for number in range(60):
            coordinator.schedule(add)
            if number % 20 == 19:
                report("step", step=number + 1)
                coordinator.join()
            while number == 30 and not go.exists():  # until a worker starts again
                time.sleep(0.05)
        return float(variable.numpy()), variable.device

    with LocalCluster(workers=2, ps=1) as cluster:
        job = cluster.start(coordinate, tmp_path / "go")
        wait_for_event(job)
        job.restart("worker", 1)
        (tmp_path / "go").touch()
        count, device = job.wait(120)
    assert count >= 60 and "/job:ps" in device


@pytest.mark.parametrize("accident", ["garbled", "crash"])
def test_an_accident_between_tasks_is_tried_again(tmp_path, accident):
    """What TensorFlow 2.21 does now and then with parameter servers isn't the program's fault."""

    def work(folder):
        import tensorflow as tf

        if not os.path.exists(f"{folder}/seen"):
            open(f"{folder}/seen", "w").close()
            if accident == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            raise tf.errors.InternalError(None, None, "INTERNAL: Unable to parse request")
        return "done"

    with LocalCluster(workers=1, ps=1) as cluster:
        job = cluster.start(work, str(tmp_path))
        assert job.wait(120) == "done"
        assert [event["event"] for event in job.events()] == ["restart"]


def test_what_cannot_be_sent_or_made_is_said(cluster):
    import threading

    lock = threading.Lock()
    with pytest.raises(DistributedError, match="can't be sent to another process"):
        cluster.start(lambda: lock.acquire())
    job = cluster.start(add_up)
    with pytest.raises(DistributedError, match="must be one of worker 0, worker 1, worker 2"):
        job.kill("ps", 0)
    with pytest.raises(ClusterError, match="can't restart alone"):
        job.restart("worker", 0)
    job.wait(120)
    with pytest.raises(ClusterError, match="its job has ended"):
        job.restart("worker", 0)


def test_fresh_processes_where_fork_is_not_safe(monkeypatch):
    monkeypatch.setattr("utils.cluster.warm_launcher.can_fork", lambda: False)
    with LocalCluster(workers=2) as cluster:
        assert isinstance(cluster.launcher, ColdLauncher)
        assert "from scratch" in cluster.launcher.description
        assert cluster.run(add_up, echo=False, timeout=120) == [(0, 2.0), (1, 2.0)]


def test_jobs_leak_no_descriptor_and_no_thread(cluster):
    cluster.run(os.getpid, echo=False)
    held = Held()
    for _ in range(20):
        cluster.run(os.getpid, echo=False)
    held.assert_nothing_stays()


OWNER = """
    import sys, time
    from utils.cluster import LocalCluster

    def work(folder):
        import os, subprocess, time
        child = subprocess.Popen(["sleep", "300"])
        with open(f"{folder}/{os.getpid()}-{child.pid}", "w") as file:
            file.write(os.environ["TMPDIR"])
        time.sleep(300)

    cluster = LocalCluster(workers=2)
    job = cluster.start(work, sys.argv[1])
    time.sleep(300)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_its_owner(tmp_path, number):
    """Killed or interrupted, it leaves no task, no child of a task and no warm process."""
    owner = start_process(
        [sys.executable, "-c", textwrap.dedent(OWNER), str(tmp_path)],
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: sum(p.stat().st_size > 0 for p in tmp_path.iterdir()) == 2)
    processes = {int(pid) for p in tmp_path.iterdir() for pid in p.name.split("-")}
    assert len(processes) == 4
    [folder] = {Path(p.read_text()) for p in tmp_path.iterdir()}
    assert folder.is_dir()
    processes |= {child.pid for child in psutil.Process(owner.pid).children(recursive=True)}
    owner.send_signal(number)
    owner.wait(120)
    wait_for(lambda: not any(map(lives, processes)))
    wait_for(lambda: not folder.exists())
