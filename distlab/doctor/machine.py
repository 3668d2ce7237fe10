"""Probes of the machine itself: Python, system, cores, memory, disk.

A container's limits are read from its control group, version 2, as the kernel documents it
(https://docs.kernel.org/admin-guide/cgroup-v2.html): a container sees its own group as the root.
"""

import math
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

import psutil

from distlab.doctor.findings import Finding
from utils.measure import format_bytes

ROOT = Path("/sys/fs/cgroup")


def read_cpu_quota(root: Path = ROOT) -> float | None:
    """Return how many processors' time this container may use (1.5, say), None for no limit."""
    quota, _, period = _read(root / "cpu.max").partition(" ")
    return int(quota) / int(period or 100_000) if quota.isdigit() else None


def read_memory_limit_bytes(root: Path = ROOT) -> int | None:
    """Return the most memory this container may hold, in bytes; None for no limit."""
    limit = _read(root / "memory.max")
    return int(limit) if limit.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
TRIED_SYSTEM = ("linux", "x86_64")  # the table of docs/install.md; all three Pythons ran there
NOT_RUN = "not run there yet with this version: docs/install.md lists what we have tried"
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
        advice = "native Windows isn't supported: install WSL2 (`wsl --install`) and work there"
        return Finding("system", "problem", value, advice)
    if system == "darwin" and processor == "x86_64":
        advice = "TensorFlow has had no build for Intel Macs since 2.17; on Apple silicon, use an "
        return Finding("system", "problem", value, advice + "arm64 Python, not one under Rosetta")
    if "microsoft" in release.lower():
        return _examine_wsl(release)
    if system not in ("linux", "darwin"):
        return Finding("system", "warning", value, "the course is for Linux and macOS only")
    return Finding("system", "ok", value, "" if (system, processor) == TRIED_SYSTEM else NOT_RUN)


def _examine_wsl(release: str) -> Finding:
    if "microsoft-standard" not in release and "WSL2" not in release:
        advice = "WSL1 has no Linux kernel: convert it with `wsl --set-version <name> 2`"
        return Finding("system", "problem", f"WSL1, {release}", advice)
    if __file__.startswith("/mnt/"):
        advice = "the course is on a Windows disk, which is slow: copy it into the Linux home"
        return Finding("system", "warning", f"WSL2, {release}", advice)
    return Finding("system", "ok", f"WSL2, {release}", NOT_RUN)


def examine_cores(root: Path = ROOT) -> Finding:
    """How many cores may this process use: its affinity and its container's quota."""
    everything = os.cpu_count() or 1
    affinity = getattr(os, "sched_getaffinity", lambda pid: range(everything))
    allowed, quota = len(affinity(0)), read_cpu_quota(root)
    usable = min(allowed, math.ceil(quota)) if quota else allowed
    value = f"{usable} usable of {everything}"
    value += f" (quota {quota:.3g})" if quota and quota < allowed else ""
    if usable < 2:
        advice = "everything runs; with two cores, replicas and workers would run side by side"
        return Finding("cores", "warning", value, advice)
    return Finding("cores", "ok", value)


def examine_memory(root: Path = ROOT) -> Finding:
    """Report the memory, total and free, under the container's limit."""
    memory = psutil.virtual_memory()
    limit = read_memory_limit_bytes(root)
    total = memory.total if limit is None else min(memory.total, limit)
    available = min(memory.available, total)
    value = f"{format_bytes(total)}, {format_bytes(available)} available"
    value += " (limited by a control group)" if total < memory.total else ""
    if total < LITTLE_MEMORY_BYTES:
        advice = (
            "lessons that start several processes (08 to 11 most of all) need 4 GiB: keep one open"
        )
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
        advice = f"{closed[0]} isn't writable: copy the course to your own folder"
        return Finding("disk", "warning", value, advice)
    if free[place] < LITTLE_DISK_BYTES:
        advice = "checkpoints, exports and the full data sets need about 1 GiB"
        return Finding("disk", "warning", value, advice)
    return Finding("disk", "ok", value)
