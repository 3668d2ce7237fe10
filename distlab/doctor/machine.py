"""Probes of the machine itself: Python, system, processor, cores, memory, disk, text.

What a container or a batch system allows is read from Linux control groups, v1 and v2, as
the kernel documents them (admin-guide/cgroup-v2 and cgroup-v1). A limit holds for a group
and all groups below it, so every group upwards is read.
"""

import math
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from distlab.doctor.findings import Finding
from utils.measure import format_bytes

ROOT = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
NO_LIMIT = 2**60  # v1 writes "no limit" as a number near 2**63


def read_cpu_quota(root: Path = ROOT, own_groups: Path = OWN_GROUPS) -> float | None:
    """Return how many processors' time this process may use (1.5, say), None for no limit."""
    quotas = []
    for text in _read_upwards(root, own_groups, "", "cpu.max"):
        quota, _, period = text.partition(" ")
        if quota != "max":
            quotas.append(int(quota) / int(period or 100_000))
    for group in _groups_upwards(root, own_groups, "cpu"):
        quota, period = (_read(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota and period and int(quota) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def read_memory_limit_bytes(root: Path = ROOT, own_groups: Path = OWN_GROUPS) -> int | None:
    """Return the most memory this process and its group may hold, in bytes; None for no limit."""
    texts = [*_read_upwards(root, own_groups, "", "memory.max")]
    texts += _read_upwards(root, own_groups, "memory", "memory.limit_in_bytes")
    limits = [int(text) for text in texts if text != "max"]
    return min((limit for limit in limits if limit < NO_LIMIT), default=None)


def _read_upwards(root: Path, own_groups: Path, controller: str, name: str) -> Iterator[str]:
    for group in _groups_upwards(root, own_groups, controller):
        text = _read(group / name)
        if text:
            yield text


def _groups_upwards(root: Path, own_groups: Path, controller: str) -> Iterator[Path]:
    """Yield the folder of this process's group and of those above it ("" is v2's hierarchy)."""
    for line in (_read(own_groups) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            mount = root / controllers if controller else root
            mount = mount if mount.is_dir() else root / controller
            group = mount / path.lstrip("/")
            while True:
                yield group
                if group == mount:
                    break
                group = group.parent


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
LITTLE_MEMORY_BYTES, LITTLE_FREE_MEMORY_BYTES = 4 * 2**30, 3 * 2**29
LITTLE_DISK_BYTES, NO_DISK_BYTES = 2**30, 50 * 2**20


def examine_python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Finding:
    """Is this a Python that the course supports, and not run in a way that skips its checks?"""
    value = ".".join(map(str, version))
    value += ", virtual environment" if sys.prefix != sys.base_prefix else ""
    if not OLDEST_PYTHON <= version[:2] <= NEWEST_PYTHON:
        return Finding("Python", "problem", value, "the course needs Python 3.11, 3.12 or 3.13")
    return Finding("Python", "ok", value)


def examine_system(
    system: str = sys.platform,
    processor: str = platform.machine(),
    release: str = platform.release(),
) -> Finding:
    """Is this a system that the course runs on: Linux, WSL2, macOS on Apple silicon?"""
    value = f"{platform.system()} {release}, {processor}"
    if system == "win32":
        advice = "native Windows is not supported: install WSL2 (`wsl --install`) and work there"
        return Finding("system", "problem", value, advice)
    if system == "darwin" and processor == "x86_64":
        advice = "TensorFlow has had no build for Intel Macs since 2.17; on Apple silicon, use an "
        return Finding("system", "problem", value, advice + "arm64 Python, not one under Rosetta")
    if "microsoft" in release.lower():
        return _examine_wsl(release)
    if system not in ("linux", "darwin"):
        return Finding("system", "warning", value, "the course was tried on Linux and macOS only")
    return Finding("system", "ok", value)


def _examine_wsl(release: str) -> Finding:
    if "microsoft-standard" not in release and "WSL2" not in release:
        advice = "WSL1 has no Linux kernel: convert it with `wsl --set-version <name> 2`"
        return Finding("system", "problem", f"WSL1, {release}", advice)
    if __file__.startswith("/mnt/"):
        advice = "the course lies on a Windows disk, which is slow: copy it into the Linux home"
        return Finding("system", "warning", f"WSL2, {release}", advice)
    return Finding("system", "ok", f"WSL2, {release}")


def examine_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Finding | list[Finding]:
    """Does an x86 processor have AVX, which TensorFlow's packages are built for?"""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:  # macOS: no such file, no such question
        return []
    described: dict[str, str] = {}
    for line in lines:
        key, _, text = line.partition(":")
        described.setdefault(key.strip(), text.strip())
    model, flags = described.get("model name", platform.machine()), described.get("flags")
    if flags is not None and "avx" not in flags.split():
        advice = "TensorFlow's packages need AVX: this processor, or virtual machine, has none"
        return Finding("processor", "problem", model, advice)
    return Finding("processor", "ok", model)


def examine_cores(root: Path = ROOT, own_groups: Path = OWN_GROUPS) -> Finding:
    """How many cores may this process use: its affinity and its container's quota."""
    everything = os.cpu_count() or 1
    affinity = getattr(os, "sched_getaffinity", lambda pid: range(everything))
    allowed, quota = len(affinity(0)), read_cpu_quota(root, own_groups)
    usable = min(allowed, math.ceil(quota)) if quota else allowed
    value = f"{usable} usable of {everything}"
    value += f" (quota {quota:.3g})" if quota and quota < allowed else ""
    if usable < 2:
        advice = "everything runs; with two cores, replicas and workers would run side by side"
        return Finding("cores", "warning", value, advice)
    return Finding("cores", "ok", value)


def examine_memory(root: Path = ROOT, own_groups: Path = OWN_GROUPS) -> Finding:
    """How much memory is there, and free, under the container's limit?"""
    memory = psutil.virtual_memory()
    limit = read_memory_limit_bytes(root, own_groups)
    total = memory.total if limit is None else min(memory.total, limit)
    available = min(memory.available, total)
    value = f"{format_bytes(total)}, {format_bytes(available)} available"
    value += " (limited by a control group)" if total < memory.total else ""
    if total < LITTLE_MEMORY_BYTES:
        advice = "lessons with several worker processes (08 to 11) want 4 GiB: run one at a time"
        return Finding("memory", "warning", value, advice)
    if available < LITTLE_FREE_MEMORY_BYTES:
        return Finding("memory", "warning", value, "shut down other kernels and programs first")
    return Finding("memory", "ok", value)


def examine_disk(folder: Path | None = None) -> Finding:
    """Is there room to save in the course's folder and in the folder for temporary files?"""
    places = {folder or Path.cwd(), Path(tempfile.gettempdir())}
    free = {place: shutil.disk_usage(place).free for place in places}
    place = min(free, key=free.__getitem__)
    value = f"{format_bytes(free[place])} free in {place}"
    if free[place] < NO_DISK_BYTES:
        return Finding("disk", "problem", value, "nothing can be saved: make room there")
    closed = [str(place) for place in places if not os.access(place, os.W_OK)]
    if closed:
        advice = f"{closed[0]} cannot be written: copy the course to a folder of your own"
        return Finding("disk", "warning", value, advice)
    if free[place] < LITTLE_DISK_BYTES:
        advice = "checkpoints, exports and the full data sets want about 1 GiB"
        return Finding("disk", "warning", value, advice)
    return Finding("disk", "ok", value)


def examine_text(encodings: tuple[str, ...] | None = None) -> Finding:
    """Does text go in and out as UTF-8, as the notebooks are written?"""
    import locale

    used = encodings or (
        sys.getfilesystemencoding(),
        locale.getpreferredencoding(False),
        getattr(sys.__stdout__, "encoding", None) or "utf-8",
    )
    strange = [name for name in used if name.lower().replace("-", "").replace("_", "") != "utf8"]
    if strange:
        advice = "names and symbols may fail to print: `export LANG=C.UTF-8` (or PYTHONUTF8=1)"
        return Finding("text", "warning", strange[0], advice)
    return Finding("text", "ok", "UTF-8")
