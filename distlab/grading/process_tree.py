"""The processes below one process, and the memory that they hold."""

import contextlib
import os

import psutil

FOLDER_PREFIX = "distlab-grade-"  # of the temporary folder of what isn't sealed
SHORTAGE = "the machine was short of memory while it ran"
FLOOR_SHARE, FLOOR_MIB = 0.04, 768  # of all memory that must stay available, at most


def is_memory_short() -> bool:
    """Return whether less memory is available than the machine needs to continue."""
    memory = psutil.virtual_memory()
    return memory.available < min(FLOOR_MIB * 2**20, FLOOR_SHARE * memory.total)


def find_tree(root: int, recursive: bool = True) -> list[int]:
    """Return `root` and every process below it, or its children only."""
    with contextlib.suppress(psutil.Error):
        return [root, *(p.pid for p in psutil.Process(root).children(recursive))]
    return [root]


def measure_memory_mib(processes: list[int], enough: int) -> float:
    """Return the memory of `processes` in MiB, counting shared memory once.

    The first of them holds what all share and nothing else. The exact sum waits
    for each process's memory lock, which one that forks without end hardly gives up:
    it is read only where the rough one is more than `enough`.
    """
    resident = [_measure_bytes(process) for process in processes]
    rough = resident[0] + sum(max(0, more - resident[0]) for more in resident[1:])
    if rough > enough * 2**20:
        rough = sum(_measure_bytes(process, exact=True) for process in processes)
    return rough / 2**20


def _measure_bytes(process: int, exact: bool = False) -> int:
    """Return the resident memory of a process, or its `exact` share; 0 once it has ended."""
    found = None
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(process).memory_info().rss
        found = psutil.Process(process).memory_full_info().pss if exact else found
    return found or 0


def measure_processor_seconds(processes: list[int]) -> float:
    """Return the processor seconds of `processes`, and of their children that have ended."""
    seconds = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            seconds += sum(psutil.Process(process).cpu_times()[:4])
    return seconds


def send_signal(processes: list[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
