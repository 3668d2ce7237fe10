"""The doctor's probes, each in a world that is broken on purpose."""

import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from process_watch import group_members, wait_for

from distlab.doctor import machine, processes, report, software, tools
from distlab.doctor.examination import look_for_gpus
from distlab.doctor.findings import Finding
from utils.data import bundled
from utils.data.catalog import DATA_SETS
from utils.processes.registry import ClusterMark, FoundCluster


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


def test_the_course_does_without_jax_and_says_what_is_missing(monkeypatch):
    assert find(software.examine_shown_packages(), "JAX").status == "ok"
    there = software.find_version
    monkeypatch.setattr(software, "find_version", lambda n: None if n == "jax" else there(n))
    found = find(software.examine_shown_packages(), "JAX")
    assert found.status == "missing" and "pip install -c constraints.txt jax" in found.advice
    (lacking,) = report.describe_works([found])["without"]
    assert lacking == {"what": report.WITHOUT["JAX"], "why": "JAX: not installed"}


# --- programs beside Python ----------------------------------------------------------------


def test_bubblewrap_that_hangs_is_ended_and_said_so(programs, tmp_path):
    if sys.platform != "linux":
        pytest.skip("bubblewrap is for Linux")
    assert tools.examine_bubblewrap().status == "missing"
    pid_file = tmp_path / "pid"
    programs("bwrap", f"echo $$ > {pid_file}; exec {shutil.which('sleep', path=os.defpath)} 600")
    for limit_seconds in (1.0, 10.0, 120.0):  # a busy machine may kill it before it has begun
        found = tools.examine_bubblewrap(limit_seconds)
        assert found.status == "warning" and f"no answer within {limit_seconds:g} s" in found.value
        assert "refuses" in found.advice
        if begun := pid_file.read_text().strip() if pid_file.exists() else "":
            break
    assert begun
    wait_for(lambda: not group_members(int(begun)))


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


def test_gpus_are_those_that_the_driver_lists(programs, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [found.status for found in look_for_gpus()] == ["missing", "ok"]
    programs("nvidia-smi", "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'")
    gpu, uses = look_for_gpus()
    assert gpu.value == "1 x NVIDIA H200, TensorFlow not asked"
    assert "mirrored, central-storage" in uses.value and "GPU:0" in uses.value
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    (wrong,) = look_for_gpus()
    assert wrong.status == "warning" and "names 3, which isn't on this machine" in wrong.advice
    programs("nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    assert look_for_gpus()[0].status == "missing"


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


def test_clusters_whose_owner_is_gone_are_named_with_the_command_that_ends_them(monkeypatch):
    gone = ClusterMark("abc", 4711, 0.0, "", "/tmp/abc")
    monkeypatch.setattr(ClusterMark, "owner_lives", property(lambda mark: mark.identity != "abc"))
    here = replace(gone, identity="def")
    for marks, each, status in (([here], [7], "ok"), ([gone], [], "ok"), ([gone], [7], "warning")):
        found = [FoundCluster(mark, each) for mark in marks]
        monkeypatch.setattr(processes, "find_clusters", lambda found=found: found)
        assert processes.examine_workers().status == status
    left = processes.examine_workers()
    assert left.value == "abc" and "`distlab processes stop`" in left.advice


# --- the machine ---------------------------------------------------------------------------


def test_pythons_outside_the_supported_range_are_a_problem():
    assert machine.examine_python((3, 10, 9)).status == "problem"
    assert machine.examine_python((3, 14, 0)).status == "problem"
    for minor in (11, 12, 13):
        assert machine.examine_python((3, minor, 0)).status == "ok"


def test_doctor_and_the_install_page_say_the_same_of_what_was_tried():
    page = (Path(__file__).parents[2] / "docs" / "install.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `[^|]+ \| ([^|]+) \|$", page, re.M)
    rows += re.findall(r"^\| ([^|]+) \| ([^|]+) \| by hand[^|]+ \| ([^|]+) \|$", page, re.M)
    tried = [where for where, date, result in rows if re.match(r"[\d,]+ passed", result)]
    assert tried == [f"Linux x86-64, Python 3.{n}, no GPU" for n in (11, 12, 13)] and len(rows) >= 8
    assert all((date == "–") == (result == "not run") for _, date, result in rows)
    assert {result for where, _, result in rows if where not in tried} == {"not run"}
    assert machine.examine_system("linux", "x86_64", "6.1").advice == ""
    assert {machine.examine_python((3, n, 9)).advice for n in (11, 12, 13)} == {""}
    untried = [("darwin", "arm64", "24"), ("linux", "aarch64", "6.1")]
    found = [machine.examine_system(*each) for each in untried]
    assert {one.advice for one in found} == {machine.NOT_RUN}


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


def test_limits_of_a_container_count(tmp_path):
    assert machine.read_cpu_quota(tmp_path) is None
    assert machine.read_memory_limit_bytes(tmp_path) is None
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.read_cpu_quota(tmp_path) is None
    assert machine.read_memory_limit_bytes(tmp_path) is None
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text(f"{2 * 2**30}\n")
    assert machine.read_cpu_quota(tmp_path) == 0.5
    cores = machine.examine_cores(tmp_path)
    assert cores.status == "warning" and cores.value.startswith("1 usable of")
    memory = machine.examine_memory(tmp_path)
    assert memory.status == "warning" and memory.value.startswith("2.0 GiB")
    assert "limited by a control group" in memory.value


def test_a_full_disk_is_a_problem_and_a_small_one_a_warning(monkeypatch, tmp_path):
    usage = shutil.disk_usage(tmp_path)
    for free, status in ((10 * 2**20, "problem"), (500 * 2**20, "warning"), (2**31, "ok")):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        assert machine.examine_disk(tmp_path).status == status
