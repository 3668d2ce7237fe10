"""The processes below one process, and the memory that they hold, read from /proc."""

import contextlib
import os
from collections import defaultdict
from pathlib import Path

FOLDER_PREFIX = "distlab-grade-"  # of the temporary folder of what isn't sealed
SHORTAGE = "the machine was short of memory while it ran"
FLOOR_SHARE, FLOOR_MIB = 0.04, 768  # of all memory that must stay available, at most


def is_memory_short() -> bool:
    """Return whether less memory is available than the machine needs to continue."""
    try:
        lines = Path("/proc/meminfo").read_text().split("\n")
    except OSError:
        return False
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line}
    floor = min(FLOOR_MIB, FLOOR_SHARE * found["MemTotal"])
    return found.get("MemAvailable", floor) < floor


def find_tree(root: int) -> list[int]:
    """Return `root` and every process below it."""
    below: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := _read_parent(name)):
            below[parent].append(int(name))
    found = [root]
    for process in found:
        found += below[process]
    return found


def find_children(process: int) -> list[int]:
    return [child for child in find_tree(process)[1:] if _read_parent(str(child)) == process]


def _read_parent(process: str) -> int:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def measure_memory_mib(processes: list[int], enough: int) -> float:
    """Return the memory of `processes` in MiB, counting shared memory once.

    The first of them holds what all share and nothing else. The exact sum waits
    for each process's memory lock, which one that forks without end hardly gives up:
    it is read only where the rough one is more than `enough`.
    """
    pages = [_read_resident_pages(process) for process in processes]
    own = pages[0] + sum(max(0, more - pages[0]) for more in pages[1:])
    rough = own * os.sysconf("SC_PAGE_SIZE") / 2**20
    if rough <= enough:
        return rough
    return sum(_read_proportional_mib(process) for process in processes)


def _read_resident_pages(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _read_proportional_mib(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().split("\n")
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    except (OSError, StopIteration, ValueError):
        return _read_resident_pages(process) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure_processor_seconds(processes: list[int], children: bool = True) -> float:
    """Return the processor seconds of `processes`, and of their `children` that have ended."""
    ticks, last = 0, 15 if children else 13
    for process in processes:
        with contextlib.suppress(OSError, IndexError, ValueError):
            text = Path(f"/proc/{process}/stat").read_text()
            ticks += sum(int(n) for n in text.rpartition(")")[2].split()[11:last])
    return ticks / os.sysconf("SC_CLK_TCK")


def send_signal(processes: list[int], number: int) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass
