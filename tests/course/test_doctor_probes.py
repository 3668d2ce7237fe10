"""The doctor's probes, each in a world that is broken on purpose."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from process_watch import group_members, wait_for

from distlab.doctor import machine, processes, software, tools
from distlab.doctor.findings import Finding
from utils.data import bundled
from utils.data.catalog import DATA_SETS

WORKER = ["-c", "import time; time.sleep(60)"]


def find(findings, name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.name == name]
    return found


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A PATH with nothing but the programs that a test writes: programs(name, shell script)."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("BROWSER", raising=False)

    def write(name: str, script: str) -> Path:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
        return folder / name

    return write


# --- programs beside Python ----------------------------------------------------------------


def test_bubblewrap_that_hangs_is_ended_and_said_so(programs, tmp_path):
    if sys.platform != "linux":
        pytest.skip("bubblewrap is for Linux")
    assert tools.examine_bubblewrap().status == "missing"
    pid_file = tmp_path / "pid"
    programs("bwrap", f"echo $$ > {pid_file}; exec {shutil.which('sleep', path=os.defpath)} 60")
    found = tools.examine_bubblewrap(limit_seconds=2.0)
    assert found.status == "warning" and "no answer within 2 s" in found.value
    assert "refuses" in found.advice
    assert not group_members(int(pid_file.read_text()))


def test_bubblewrap_that_may_not_seal_names_the_setting(programs, tmp_path):
    if sys.platform != "linux":
        pytest.skip("bubblewrap is for Linux")
    programs("bwrap", "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1")
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel/apparmor_restrict_unprivileged_userns").write_text("1\n")
    found = tools.examine_bubblewrap(sysctl=tmp_path)
    assert found.status == "warning" and "uid map: Permission denied" in found.value
    assert "kernel.apparmor_restrict_unprivileged_userns=1" in found.advice
    assert "container" in tools.examine_bubblewrap(sysctl=tmp_path / "none").advice
    programs("bwrap", "exit 0")
    assert tools.examine_bubblewrap().status == "ok"


def test_java_of_every_kind(programs, monkeypatch, tmp_path):
    assert tools.examine_java().status == "missing"
    answers = {
        'openjdk version "17.0.15" 2025-04-15': ("ok", "17"),
        'java version "1.8.0_402"': ("warning", "8"),
        'openjdk version "21" 2023-09-19': ("warning", "21"),
    }
    for answer, expected in answers.items():
        programs("java", f"echo '{answer}' >&2")
        found = tools.examine_java()
        assert (found.status, found.value) == expected
    programs("java", "echo 'Unable to locate a Java Runtime.' >&2; exit 1")
    assert tools.examine_java().status == "missing"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert "JAVA_HOME" in tools.examine_java().value


def test_a_browser_is_found_or_the_way_without_one_is_told(programs, tmp_path):
    missing = tools.examine_browser(tmp_path)
    if sys.platform == "linux":
        assert missing.status == "missing" and "--no-browser" in missing.advice
    path = programs("firefox", "exit 0")
    assert tools.examine_browser(tmp_path) == Finding("browser", "ok", str(path))


def test_gpus_are_those_that_the_driver_lists(programs):
    assert tools.list_nvidia_gpus() == []
    programs("nvidia-smi", "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'")
    assert tools.list_nvidia_gpus() == ["NVIDIA H200"]
    programs("nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    assert tools.list_nvidia_gpus() == []


def test_damaged_bundled_data_are_a_problem_that_names_the_file(tmp_path):
    shutil.copytree(bundled.FOLDER, tmp_path / "bundled")
    assert all(f.status == "ok" for f in tools.examine_bundled_data(tmp_path / "bundled"))
    path = tmp_path / "bundled/mnist.npz"
    path.write_bytes(path.read_bytes()[:-100])
    found = tools.examine_bundled_data(tmp_path / "bundled")
    assert find(found, "Fashion-MNIST").status == "ok"
    assert find(found, "MNIST").status == "problem" and str(path) in find(found, "MNIST").advice


def test_full_data_that_are_damaged_are_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "DATA_SETS", {"mnist": DATA_SETS["mnist"]})
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    missing = find(tools.examine_full_data(), "full MNIST")
    assert missing.status == "missing" and "distlab data fetch mnist" in missing.advice
    folder = tmp_path / "mnist/3.0.1"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text("{")
    damaged = find(tools.examine_full_data(), "full MNIST")
    assert damaged.status == "warning" and "dataset_info.json" in damaged.advice
    assert "not checked" in find(tools.examine_full_data(check=False), "full MNIST").value


# --- the machine ---------------------------------------------------------------------------


def test_pythons_outside_the_supported_range_are_a_problem():
    assert machine.examine_python((3, 10, 9)).status == "problem"
    assert machine.examine_python((3, 14, 0)).status == "problem"
    for minor in (11, 12, 13):
        assert machine.examine_python((3, minor, 0)).status == "ok"


@pytest.mark.parametrize(
    "system, processor, release, status, words",
    [
        ("linux", "x86_64", "6.8.0-generic", "ok", "Linux"),
        ("linux", "x86_64", "5.15.153.1-microsoft-standard-WSL2", "ok", "WSL2"),
        ("linux", "x86_64", "4.4.0-19041-Microsoft", "problem", "WSL1"),
        ("darwin", "arm64", "24.1.0", "ok", "arm64"),
        ("darwin", "x86_64", "24.1.0", "problem", "Intel"),
        ("win32", "AMD64", "11", "problem", "WSL2"),
    ],
)
def test_systems(system, processor, release, status, words):
    found = machine.examine_system(system, processor, release)
    assert found.status == status and words in found.value + found.advice


def test_a_processor_without_avx_is_a_problem(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("model name\t: Old CPU\nflags\t\t: fpu sse sse2\n")
    found = machine.examine_processor(path)
    assert (found.status, found.value) == ("problem", "Old CPU") and "AVX" in found.advice
    path.write_text("model name\t: New CPU\nflags\t\t: fpu sse avx avx2\n")
    assert machine.examine_processor(path) == Finding("processor", "ok", "New CPU")
    assert machine.examine_processor(tmp_path / "none") == []


def make_group(root: Path, files: dict[str, str], groups: str) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    (root / "own").write_text(groups)
    return root / "own"


def test_limits_of_control_groups_count_upwards_in_v2(tmp_path):
    files = {
        "cpu.max": "max 100000",
        "batch/cpu.max": "50000 100000",
        "batch/job/cpu.max": "150000 100000",
        "batch/memory.max": str(2 * 2**30),
        "batch/job/memory.max": "max",
    }
    own = make_group(tmp_path, files, "0::/batch/job\n")
    assert machine.read_cpu_quota(tmp_path, own) == 0.5
    assert machine.read_memory_limit_bytes(tmp_path, own) == 2 * 2**30
    cores = machine.examine_cores(tmp_path, own)
    assert cores.status == "warning" and cores.value.startswith("1 usable of")
    memory = machine.examine_memory(tmp_path, own)
    assert memory.status == "warning" and memory.value.startswith("2.0 GiB")
    assert "limited by a control group" in memory.value


def test_limits_of_control_groups_in_v1_and_without_any(tmp_path):
    files = {
        "cpu,cpuacct/job/cpu.cfs_quota_us": "200000",
        "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
        "memory/job/memory.limit_in_bytes": str(2**63 - 4096),
        "memory/memory.limit_in_bytes": str(2**33),
    }
    own = make_group(tmp_path, files, "4:cpu,cpuacct:/job\n3:memory:/job\n")
    assert machine.read_cpu_quota(tmp_path, own) == 2.0
    assert machine.read_memory_limit_bytes(tmp_path, own) == 2**33
    assert machine.read_cpu_quota(tmp_path, tmp_path / "none") is None
    assert machine.read_memory_limit_bytes(tmp_path, tmp_path / "none") is None


def test_a_full_disk_is_a_problem_and_a_small_one_a_warning(monkeypatch, tmp_path):
    usage = shutil.disk_usage(tmp_path)
    for free, status in ((10 * 2**20, "problem"), (500 * 2**20, "warning"), (2**31, "ok")):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        assert machine.examine_disk(tmp_path).status == status


def test_text_that_is_not_utf8_is_a_warning():
    assert machine.examine_text(("utf-8", "ANSI_X3.4-1968", "UTF8")).status == "warning"
    assert machine.examine_text(("utf-8", "UTF-8", "utf8")).status == "ok"


# --- software ------------------------------------------------------------------------------


def test_drift_from_the_pins_is_named(tmp_path):
    path = tmp_path / "constraints.txt"
    path.write_text(
        "# a remark\nKeras==9.9.9\npsutil==0.1\nnot_there==1.0 ; python_version > '3'\n"
    )
    pins = software.read_pins(path)
    assert pins == {"keras": "9.9.9", "psutil": "0.1", "not-there": "1.0"}
    keras = find(software.examine_shown_packages(pins), "Keras")
    assert keras.status == "warning" and "tested with 9.9.9" in keras.advice
    others = software.examine_other_packages(pins, ["psutil"])
    assert others.status == "warning" and "psutil" in others.value and "(0.1)" in others.value
    pins["psutil"] = software.find_version("psutil")
    assert software.examine_other_packages(pins, ["psutil"]).status == "ok"


def test_what_is_required_and_missing_is_a_problem(monkeypatch):
    requirements = [
        "numpy",
        "no_such_thing>=1",
        'other_thing; extra == "lab"',
        'x; extra == "test"',
    ]
    found = software.examine_other_packages({}, requirements)
    assert found.status == "problem" and found.value == "missing: no_such_thing, other_thing"
    monkeypatch.setattr(software, "find_version", lambda name: None)
    assert all(f.status == "problem" for f in software.examine_shown_packages({}))


def test_pins_come_from_the_installed_course_where_there_is_no_constraints_file(tmp_path):
    assert software.read_pins(tmp_path / "none")["tensorflow"] == "2.21.0"


def test_two_tensorflows_are_a_warning(monkeypatch):
    versions = {"tensorflow": "2.21.0", "tf-nightly": "2.22"}
    monkeypatch.setattr(software, "find_version", versions.get)
    found = software.examine_other_packages({}, ["tensorflow"])
    assert found.status == "warning" and "tf-nightly" in found.value


def test_another_package_named_utils_is_a_problem(tmp_path, monkeypatch):
    assert software.examine_utils().status == "ok"
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils/__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = software.examine_utils()
    assert found.status == "problem" and str(tmp_path) in found.value
    assert "PYTHONPATH" in found.advice
    assert "with its own `utils`, copy the folder of ours into it as `dist_utils`" in found.advice


def test_variables_that_are_in_the_way():
    assert software.examine_variables({}) == [Finding("variables", "ok", "none in the way")]
    environment = {
        "TF_CONFIG": '{"cluster": {}}',
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "KERAS_BACKEND": "jax",
        "TF_USE_LEGACY_KERAS": "1",
        "PYTHONOPTIMIZE": "1",
        "TF_XLA_FLAGS": "--tf_xla_auto_jit=2",
    }
    found = software.examine_variables(environment)
    assert {finding.name for finding in found} == set(environment)
    assert find(found, "TF_CONFIG").status == "warning"
    assert "unset TF_CONFIG" in find(found, "TF_CONFIG").advice
    assert find(found, "KERAS_BACKEND").status == "problem"
    harmless = {"TF_ENABLE_ONEDNN_OPTS": "1", "KERAS_BACKEND": "tensorflow", "TF_CONFIG": ""}
    assert software.examine_variables(harmless)[0].status == "ok"


def test_hidden_gpus_and_proxies(programs):
    assert software.examine_variables({"CUDA_VISIBLE_DEVICES": "-1"})[0].status == "ok"
    programs("nvidia-smi", "exit 0")
    hidden = software.examine_variables({"CUDA_VISIBLE_DEVICES": "-1"})
    assert "sees no GPU" in hidden[0].advice
    proxy = software.examine_variables({"http_proxy": "proxy:3128"})
    assert proxy[0].name == "http_proxy" and "no_proxy" in proxy[0].advice
    spared = {"http_proxy": "proxy:3128", "no_proxy": "localhost, 127.0.0.1"}
    assert software.examine_variables(spared)[0].status == "ok"


# --- processes -----------------------------------------------------------------------------


def test_a_taken_port_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        found = processes.examine_ports(port)
        assert found.status == "ok" and f"{port} is taken" in found.value
        assert "next free port" in found.advice
    assert f"{port} is free" in processes.examine_ports(port).value


def test_no_loopback_is_a_problem(monkeypatch):
    def refuse(*_, **__):
        raise OSError("not permitted")

    monkeypatch.setattr(processes.socket, "create_connection", refuse)
    found = processes.examine_ports()
    assert found.status == "problem" and "not permitted" in found.value


def start_worker(**environment: str) -> subprocess.Popen:
    clean = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG", "JPY_PARENT_PID")}
    return subprocess.Popen([sys.executable, *WORKER], env={**clean, **environment})


def find_described(pid: int) -> Finding | None:
    found = processes.examine_workers()
    return found if f"pid {pid}," in found.value else None


@pytest.mark.cold_start  # a worker is found by what /proc shows of its start
def test_a_worker_is_found_and_is_not_called_left_over_while_its_owner_lives():
    worker = start_worker(TF_CONFIG='{"task": {"type": "worker", "index": 0}}')
    other = start_worker()
    try:
        found = wait_for(lambda: find_described(worker.pid))
        assert "min" in found.value and f"pid {other.pid}," not in found.value
        left = found.value.partition("running for another process")[0]
        assert f"pid {worker.pid}," not in left
    finally:
        for process in (worker, other):
            process.kill()
            process.wait()
    assert find_described(worker.pid) is None


def test_a_worker_whose_owner_is_gone_is_left_over(tmp_path):
    """As after a crashed kernel: the owner starts the worker, and dies before it."""
    config = json.dumps({"task": {"type": "worker", "index": 1}, "test": str(tmp_path)})
    code = (
        "import os, subprocess, sys\n"
        f"environment = dict(os.environ, TF_CONFIG={config!r})\n"
        f"worker = subprocess.Popen([sys.executable, *{WORKER!r}], env=environment, stdout=-3)\n"
        "print(worker.pid)"
    )
    owner = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=30, check=True
    )
    pid = int(owner.stdout)
    try:
        found = wait_for(lambda: find_described(pid))
        assert found.status == "warning" and str(pid) in found.advice
        assert "kill -9" in found.advice
    finally:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: find_described(pid) is None)


def test_a_kernel_whose_server_is_gone_is_left_over():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    kernel = start_worker(JPY_PARENT_PID=str(gone.pid))
    try:
        found = wait_for(lambda: find_described(kernel.pid))
        assert found.status == "warning" and str(kernel.pid) in found.advice
    finally:
        kernel.kill()
        kernel.wait()


def test_forking_is_called_safe_on_linux_only():
    assert processes.examine_fork("darwin").status == "missing"
    assert "spawned" in processes.examine_fork("darwin").advice
    if sys.platform == "linux":
        assert processes.examine_fork().status == "ok"
