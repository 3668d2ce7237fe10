"""A rendezvous of four machines with addresses and links of their own: network namespaces.

Needs root and `ip`; skipped without, except in CI.
"""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from machines import WAITS_FOR_ALL, Launcher, Namespaces
from needs import need_namespaces
from process_watch import lives, wait_for

ROOT = Path(__file__).resolve().parents[2]
PORT = 2950
PROGRAM = """
import json, os, signal, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index, workers = config["task"]["index"], config["cluster"]["worker"]
restart, folder = int(os.environ["DISTLAB_RESTART"]), os.environ["DISTLAB_CHECKPOINT_DIR"]
kept = [name for name in os.listdir(folder) if name.startswith("step-")]
print("attempt", restart, "of", len(workers), "from", *sorted(kept), flush=True)
read = [f"../read-{k}-{workers[0]}" for k in range(len(workers))]  # of this attempt
open(read[index], "w").close()
if index == 0:
    while not all(map(os.path.exists, read)):
        time.sleep(0.05)  # what is saved next may be on the other machines at once
    open(os.path.join(folder, f"step-{len(kept)}"), "wb").write(os.urandom(200_000))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(f"running-{index}-{restart}", "w").write(str(os.getpid()))
if restart == 0 or "--stay" in sys.argv:
    time.sleep(300)
"""


need_namespaces()


@pytest.fixture
def machines(tmp_path):
    """Start launchers on four machines, each with a folder of its own; nothing of them is left."""
    networks, started = Namespaces(4, slow="20mbit"), []

    class Machines:
        network = networks

        def folder(self, number):
            return tmp_path / f"machine-{number}"

        def start(self, number, *words, host=0, **settings):
            home = self.folder(number)
            home.mkdir(exist_ok=True)
            (home / "program.py").write_text(PROGRAM)
            meet = ["--rendezvous", f"{networks.address(host)}:{PORT}", "--trust-network"]
            inside = networks.inside(number)
            launcher = Launcher(
                *meet, "--logs", "logs", *words, inside=inside, cwd=home, **settings
            )
            started.append(launcher)
            if number == host:
                launcher.wait_for("hosting at")
            return launcher

        def start_all(self, *words, order=(0, 1, 2, 3)):
            patient = {"program": ["-c", WAITS_FOR_ALL]} if len(order) == 4 else {}
            launchers = {order[0]: self.start(order[0], *words, host=order[0], **patient)}
            for number in order[1:]:
                launchers[number] = self.start(number, *words, host=order[0])
                launchers[order[0]].wait_for(f"({networks.address(number)}) has joined")
            return launchers

        def find_processes(self, restart, numbers=(0, 1, 2, 3)):
            """Return the process of the task on each machine, once all are there."""

            def look():
                found = {}
                for number in numbers:
                    for path in self.folder(number).glob(f"running-*-{restart}"):
                        found[number] = int(path.read_text() or 0)
                return len(found) == len(numbers) and all(found.values()) and found

            return wait_for(look)

    yield Machines()
    for launcher in started:
        launcher.close()
    networks.close()


def read_copies(machines, name, numbers=(0, 1, 2, 3)):
    paths = [machines.folder(number) / "kept" / name for number in numbers]
    return {path.read_bytes() if path.is_file() else None for path in paths}


def test_kills_of_a_worker_a_launcher_and_the_host(machines):
    """One run of four machines survives the first two, and ends everywhere at the third."""
    networks = machines.network
    words = ["--workers", "3:4", "--max-restarts", 3, "--checkpoint-dir", "kept", "program.py"]
    words += ["--stay"]
    launchers = machines.start_all(*words)
    processes = machines.find_processes(0)
    assert "without a password" in launchers[0].lines[0]
    wait_for(lambda: None not in read_copies(machines, "step-0"))
    assert len(read_copies(machines, "step-0")) == 1
    os.kill(processes[2], 9)  # a worker: all start again
    launchers[0].wait_for("worker 2 was ended by SIGKILL; all tasks start again, restart 1 of 3")
    again = machines.find_processes(1)
    assert not any(map(lives, processes.values()))
    wait_for(lambda: None not in read_copies(machines, "step-1"))
    launchers[3].kill()  # a launcher: its machine is lost, and the others go on
    launchers[0].wait_for("is lost with its machine")
    third = machines.find_processes(2, (0, 1, 2))
    wait_for(lambda: not any(map(lives, again.values())))
    paths = sorted((machines.folder(1) / "logs").glob("attempt-*/worker-1/stdout.log"))
    assert [path.read_text().strip() for path in paths] == [
        "attempt 0 of 4 from",
        "attempt 1 of 4 from step-0",
        "attempt 2 of 3 from step-0 step-1",
    ]
    wait_for(lambda: None not in read_copies(machines, "step-2", (0, 1, 2)))
    launchers[0].kill()  # the host: all end, and say how to go on
    for number in (1, 2):
        said = launchers[number].wait_for("should host")
        assert f"({networks.address(1)}) should host" in said
        launchers[number].process.send_signal(2)
        assert launchers[number].end()[0] == 130
    wait_for(lambda: not any(map(lives, third.values())))
    shutil.rmtree(machines.folder(0))  # and its disk with it: the next host goes on from a copy
    for path in machines.folder(1).glob("running-*"):
        path.unlink()
    launcher = machines.start_all(*words, order=(1, 2, 0))[1]
    launcher.wait_for("attempt 0 of 3 from step-0 step-1 step-2")
    launcher.process.send_signal(15)
    launcher.process.send_signal(15)
    assert launcher.end()[0] == 143


def test_a_pulled_cable_and_a_pair_that_is_kept_apart(machines):
    """A blocked pair is named before anything starts; a machine without a word is lost in time.

    Once its cable is back, so is the machine, by itself.
    """
    networks = machines.network
    networks.block(2, 1)
    words = ["--workers", 4, "--checkpoint-dir", "kept", "program.py"]
    launchers = machines.start_all(*words)
    for launcher in launchers.values():
        status, _, said = launcher.end()
        assert status == 2 and f"({networks.address(2)})" in said
        assert f"({networks.address(1)})" in said and "Likely cause" in said
    subprocess.run(
        ["ip", "-n", networks.name(2), "route", "del", "blackhole", networks.address(1)], check=True
    )
    launchers = machines.start_all("--max-restarts", 1, "--heartbeat-timeout", 8, *words)
    processes = machines.find_processes(0)
    networks.unplug(3)
    launchers[0].wait_for("worker 3 is lost with its machine, which has said nothing for 8 s")
    launchers[3].wait_for("calling the host again")
    networks.unplug(3, "up")
    ends = [launchers[number].end() for number in range(4)]
    assert [status for status, _, _ in ends] == [0, 0, 0, 0]
    assert ends[0][1] == ends[3][1] and ends[0][1]["restarts"] == 1
    wait_for(lambda: not any(map(lives, processes.values())))


def test_a_real_training_program_over_four_machines(machines):
    """TensorFlow's own all-reduce over the slow links; every machine ends with the same loss."""
    example = ROOT / "examples" / "multi_worker_custom_loop.py"
    words = ["--workers", 2, example, "--epochs", 1, "--max-examples", 256]
    launchers = machines.start_all(*words, order=(0, 1))
    ends = {number: launcher.end(300) for number, launcher in launchers.items()}
    assert [ends[number][0] for number in (0, 1)] == [0, 0], ends[0][2]
    logs = [machines.folder(n) / "logs" / f"attempt-1/worker-{n}/stdout.log" for n in (0, 1)]
    results = [log.read_text().splitlines()[-1] for log in logs]
    assert results[0] == results[1] and '"loss"' in results[0]
    assert ends[0][1]["tasks"][1]["status"] == 0


def test_keras_on_jax_over_two_machines(machines, tmp_path, monkeypatch):
    """JAX's own collectives between machines; both end with the same report."""
    machines.network.map_host_name()
    with np.load(ROOT / "utils" / "data" / "bundled" / "fashion_mnist.npz") as full:
        np.savez(tmp_path / "few.npz", **{name: full[name][:160] for name in full})
    monkeypatch.setenv("FASHION_MNIST", str(tmp_path / "few.npz"))
    words = ["--workers", 2, ROOT / "examples" / "keras_jax.py", "--cpu-devices", 2, "--sharded"]
    words += ["--epochs", 1, "--checkpoint", tmp_path / "seen-by-all.npz"]
    launchers = machines.start_all(*words, order=(0, 1))
    ends = {number: launcher.end(300) for number, launcher in launchers.items()}
    assert [ends[number][0] for number in (0, 1)] == [0, 0], ends[0][2]
    logs = [machines.folder(n) / "logs" / f"attempt-1/worker-{n}/stdout.log" for n in (0, 1)]
    results = [log.read_text().splitlines() for log in logs]
    assert any(line.startswith("4 devices, ") for line in results[0])
    assert results[0][-1] == results[1][-1] and '"accuracy"' in results[0][-1]
