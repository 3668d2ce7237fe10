"""`distlab train` in a cluster, as a user of a shell meets it: real processes, real signals."""

import json
import os
import signal
import socket

import psutil
import pytest
from child_programs import events_of, start_distlab
from process_watch import wait_for

from distlab.cli import main
from utils.events import read_events
from utils.tf_config import build_cluster, build_tf_configs, pick_free_ports

SMALL = ["--max-examples", "500", "--model", "mlp", "--epochs", "2"]
CLEAN = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}


def start(*arguments, tf_config=None):
    environment = {**CLEAN, "TF_CONFIG": tf_config} if tf_config else CLEAN
    return start_distlab("train", *arguments, env=environment)


def end(process):
    """Return (status, standard output, standard error)."""
    output, errors = process.communicate(timeout=240)
    return process.returncode, output, errors


@pytest.fixture(scope="module")
def one_device():
    status, output, errors = end(start(*SMALL, "--strategy", "one-device", "--json"))
    assert status == 0, errors
    return json.loads(output)


def test_two_workers_of_two_replicas_give_the_report_of_one_machine(one_device):
    status, output, errors = end(
        start(
            *SMALL,
            *"--strategy multi-worker --workers 2 --replicas-per-worker 2 --json".split(),
        )
    )
    assert (status, errors) == (0, "")
    report = json.loads(output)
    assert list(report) == list(one_device)
    assert (report["workers"], report["replicas"]) == (2, 2)
    for name in ("loss", "accuracy"):
        assert report[name] == pytest.approx(one_device[name], abs=2e-3)
    assert report["test_loss"] == pytest.approx(one_device["test_loss"], abs=2e-3)


def test_machines_that_meet_give_the_report_of_one(one_device, tmp_path, monkeypatch):
    """The same line on two machines; the host prints the report, and both have the checkpoint."""
    monkeypatch.setitem(CLEAN, "DISTLAB_CODE", "test-code-2345")
    address = f"127.0.0.1:{pick_free_ports(1)[0]}"
    folders = [tmp_path / "host", tmp_path / "member"]
    machines = []
    for number, folder in enumerate(folders, start=1):
        folder.mkdir()
        monkeypatch.chdir(folder)
        meeting = f"--workers 1:2 --rendezvous {address} --checkpoint-dir kept".split()
        meeting += ["--advertise-address", f"127.0.0.{number}"]
        machines.append(start(*SMALL, *"--strategy multi-worker --json".split(), *meeting))
        if number == 1:
            assert "hosting at" in machines[0].stderr.readline()
    (status, output, errors), (other, nothing, said) = map(end, machines)
    assert status == other == 0, (errors, said)
    report = json.loads(output)
    assert report["workers"] == 2 and report["loss"] == pytest.approx(one_device["loss"], abs=2e-3)
    assert nothing == ""
    newest = [sorted(path.name for path in (folder / "kept").glob("train-*")) for folder in folders]
    assert newest[0] == newest[1] != []


def test_parameter_servers_with_events(tmp_path):
    status, output, errors = end(
        start(
            *SMALL,
            *"--strategy parameter-server --workers 2 --ps 1".split(),
            "--events",
            str(tmp_path / "e"),
            "--checkpoint-dir",
            str(tmp_path / "c"),
        )
    )
    assert status == 0 and errors.count("\n") == 1 and "worker 1 CPU:0" in errors
    assert "parameter-server, 2 workers of 1 replica, custom loop" in output
    kinds = [event["event"] for event in read_events(tmp_path / "e") if event["event"] != "step"]
    assert kinds == ["start"] + ["epoch", "checkpoint"] * 2 + ["end"]


def test_stopped_by_a_signal_all_save_together_and_nothing_is_left(tmp_path):
    """By Ctrl-C, then the resumed run by SIGTERM; a third one goes on from there."""
    arguments = "--max-examples 500 --model mlp --strategy multi-worker --workers 2".split()
    arguments += ["--checkpoint-dir", str(tmp_path / "c"), "--events", str(tmp_path / "e")]
    steps = [stop(arguments, tmp_path / "e", each) for each in (signal.SIGINT, signal.SIGTERM)]
    status, _, errors = end(start(*arguments, "--epochs", str(steps[-1]["epoch"] + 1)))
    assert status == 0, errors
    starts = events_of(tmp_path / "e", "start")
    assert [event["first_step"] for event in starts] == [0, *(event["step"] for event in steps)]


def stop(arguments, path, number):
    """Stop a run by a signal once it has trained an epoch; return its last step's event."""
    before = len(events_of(path, "epoch"))
    process = start(*arguments, "--epochs", "10000")
    wait_for(lambda: len(events_of(path, "epoch")) > before)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3, "a warm process and two workers"
    process.send_signal(number)
    status, _, errors = end(process)
    assert status == 128 + number
    *resumed, devices, stopped = errors.splitlines()
    assert "worker 1 CPU:0" in devices and "stopped in epoch" in stopped and "to resume" in stopped
    assert len(resumed) == (before > 0)
    assert psutil.wait_procs(family, timeout=120)[1] == []
    return events_of(path, "step")[-1]


def test_an_error_in_a_worker_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "c"
    status, output, errors = end(
        start(*SMALL, "--strategy", "multi-worker", "--checkpoint-dir", str(folder))
    )
    assert (status, output) == (2, "")
    assert errors.count("\n") == 1 and errors.startswith("distlab train: checkpoint"), errors


# ---- a cluster that stands: TF_CONFIG is set

ALONE = '{"cluster": {"worker": ["a:2222"]}, "task": {"type": "worker", "index": 0}}'


def configure(**tasks):
    ports = pick_free_ports(sum(tasks.values()))
    return build_tf_configs(build_cluster(**tasks, ports=ports))


def test_with_tf_config_it_runs_as_that_task(one_device):
    texts = configure(workers=2)
    tasks = [
        start(*SMALL, "--strategy", "multi-worker", "--json", tf_config=texts[name])
        for name in ("worker:0", "worker:1")
    ]
    (status, output, errors), (other, nothing, said) = [end(task) for task in tasks]
    assert (status, find_errors(errors)) == (0, []) and (other, nothing) == (0, "")
    assert "worker:1 is done; the chief has the report" in said
    assert json.loads(output)["loss"] == pytest.approx(one_device["loss"], abs=2e-3)


@pytest.mark.parametrize(
    "first, second, words",
    [
        (
            "--epochs 1 --learning-rate 0.001",
            "--epochs 2 --learning-rate 0.5",
            "started alike: epochs is 1 on worker 0, 2 on worker 1; "
            "learning rate is 0.001 on worker 0, 0.5 on worker 1. Start",
        ),
        ("--replicas 1", "--replicas 2", "replicas, and all must have equally many"),
    ],
)
def test_workers_that_were_started_differently_say_so_and_end(first, second, words):
    texts = configure(workers=2)
    tasks = [
        start(*SMALL, "--strategy", "multi-worker", *options.split(), tf_config=text)
        for text, options in zip(texts.values(), (first, second))
    ]
    ends = [end(task) for task in tasks]
    for status, output, errors in ends:
        assert (status, output) == (2, ""), errors
        assert len(find_errors(errors)) == 1 and words in errors, errors


def find_errors(said):
    """Return the lines without those on peers that aren't there yet: on a busy machine."""
    return [line for line in said.splitlines() if ": waiting for worker:" not in line]


def test_a_task_that_waits_for_its_peer_names_it_and_ends_at_the_signal():
    texts = configure(workers=2)
    process = start(*SMALL, "--strategy", "multi-worker", tf_config=texts["worker:1"])
    host, port = json.loads(texts["worker:1"])["cluster"]["worker"][1].split(":")

    def listens():
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    wait_for(listens)
    leader = json.loads(texts["worker:1"])["cluster"]["worker"][0]
    said = f"distlab train: waiting for worker:0 at {leader}, which doesn't answer\n"
    assert process.stderr.readline() == said
    process.send_signal(signal.SIGINT)
    assert end(process)[0] == -signal.SIGINT


@pytest.mark.parametrize(
    "text, arguments, words",
    [
        (ALONE.replace('"index": 0', '"index": 3'), [], "index"),
        (ALONE[:12], [], "TF_CONFIG"),
        (ALONE.replace('"type": "worker"', '"type": "evaluator"'), [], "evaluator"),
        (ALONE, ["--workers", "2"], "Leave workers and ps out"),
    ],
)
def test_a_tf_config_that_cannot_be_is_one_line(capsys, monkeypatch, text, arguments, words):
    monkeypatch.setenv("TF_CONFIG", text)
    assert main(["train", "--strategy", "multi-worker", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and words in said, said
