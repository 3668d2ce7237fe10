"""A network of its own for what TensorFlow starts: real namespaces, as root and as anyone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distlab.doctor.processes import examine_network
from utils.processes import private_network
from utils.processes.private_network import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="Linux's namespaces")]
NETWORK = "/proc/self/ns/net"
TELL = f"import os; print(os.readlink({NETWORK!r}))"
ENTER = """
import json, os, socket, subprocess, sys
from utils.processes import private_network
private_network.enter_if_wanted()
assert socket.getaddrinfo("127.0.0.1", 80, socket.AF_INET, flags=socket.AI_ADDRCONFIG)  # Slurm's
child = subprocess.run([sys.executable, "-c", "import os; print(os.readlink('/proc/self/ns/net'))"],
                       capture_output=True, text=True).stdout.strip()
rights = open("/proc/self/status").read().split("CapEff:")[1].split()[0]
print(json.dumps([os.readlink("/proc/self/ns/net"), child, os.getuid(), rights,
                  open("/proc/net/dev").read().count(":"), private_network.is_private_wanted()]))
"""
CLUSTER = """
import os
from utils.cluster import LocalCluster
def tell():
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    total = strategy.reduce("sum", strategy.run(lambda: tf.constant(1.0)), axis=None)
    return os.readlink("/proc/self/ns/net"), float(total)
if __name__ == "__main__":
    with LocalCluster(workers=2, devices="cpu") as cluster:
        print(cluster.run(tell))
"""


@pytest.fixture
def allowed(monkeypatch):
    """Skip where the system forbids it; the variable asks for it."""
    if why := private_network.find_obstacle():
        pytest.skip(f"needs network namespaces: {why}")
    monkeypatch.setenv(VARIABLE, "private")
    return os.readlink(NETWORK)


def run(*words, **options):
    return subprocess.run(
        [*words], capture_output=True, text=True, timeout=280, cwd=ROOT, **options
    )


def test_what_enters_is_alone_with_its_children_and_as_weak_as_before(allowed):
    before = open("/proc/self/status").read().split("CapEff:")[1].split()[0]
    done = run(sys.executable, "-c", ENTER)
    own, child, user, rights, devices, wanted = json.loads(done.stdout)
    assert own == child != allowed and (user, rights) == (os.getuid(), before)
    assert devices == 1 and not wanted, "loopback alone, and it is entered once"


def test_tasks_of_a_cluster_and_of_distlab_run_share_one_that_nobody_else_sees(allowed, tmp_path):
    program = tmp_path / "cluster.py"
    program.write_text(CLUSTER)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = run(sys.executable, str(program), env=environment)
    (first, total), (second, _) = eval(done.stdout)
    assert first == second != allowed and total == 2.0
    told = tmp_path / "tell.py"
    told.write_text(TELL)
    words = (sys.executable, "-m", "distlab", "run", "--logs", str(tmp_path / "logs"), str(told))
    lines = [line for line in run(*words, env=environment).stdout.splitlines() if "net:" in line]
    networks = {line.split("] ")[1] for line in lines}
    assert len(lines) == 2 and len(networks) == 1 and networks != {allowed}
    done = run(*words, env=environment | {VARIABLE: "shared"})
    assert done.stdout.count(allowed) == 2


def test_where_the_system_forbids_it_that_is_said_and_all_goes_on(monkeypatch, capsys):
    def refuse(name, *arguments):
        raise PermissionError(1, f"{name}: Operation not permitted")

    monkeypatch.setenv(VARIABLE, "private")
    monkeypatch.setattr(private_network, "call", refuse)
    before = os.readlink(NETWORK)
    assert "unshare: Operation not permitted" in private_network.enter_if_wanted()
    assert os.readlink(NETWORK) == before and private_network.is_private_wanted()


def test_the_doctor_says_who_reaches_the_ports(monkeypatch):
    def look(why, others, **environment):
        monkeypatch.setattr("distlab.doctor.processes._find_obstacle", lambda: why)
        monkeypatch.setattr("distlab.doctor.processes._sees_other_users", lambda: others)
        return examine_network(environment)

    alone = look("", True)
    assert alone.status == "ok" and "DISTLAB_NETWORK=private closes them" in alone.advice
    on_hub = look("", True, JUPYTERHUB_USER="ana")
    assert on_hub.status == "warning" and "can read and write your files" in on_hub.advice
    assert look("", False, JUPYTERHUB_USER="ana").status == "ok"
    refused = look("forbidden", True, **{VARIABLE: "private"})
    assert refused.status == "warning" and "forbidden" in refused.value
    private = look("", True, **{VARIABLE: "private"})
    assert private.status == "ok" and "only you" in private.value


def test_the_doctor_tries_it_for_real(allowed):
    assert examine_network().value.startswith("private")
