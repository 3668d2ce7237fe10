"""Measure processes: processor time, bytes written, and idle seconds."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

import psutil

IDLE_CPU_SECONDS, IDLE_BYTES = 0.1, 4096  # in WINDOW_SECONDS: less is no work
WINDOW_SECONDS, LOOK_SECONDS = 2.0, 5.0
WORKING = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)

Family = list[psutil.Process]


@dataclass(frozen=True)
class Work:
    """A task's work so far: processor time, bytes written, and whether it works right now.

    A process that waits for a processor or a disk works, too.
    """

    cpu_seconds: float
    written_bytes: int
    is_working: bool

    def is_more_than(self, before: "Work", windows: float = 1.0) -> bool:
        """Return whether the task has worked since `before`, `windows` windows ago."""
        used = abs(self.cpu_seconds - before.cpu_seconds)  # it falls when a child ends
        written = abs(self.written_bytes - before.written_bytes)
        cpu, size = IDLE_CPU_SECONDS * windows, IDLE_BYTES * windows
        return self.is_working or used > cpu or written > size


class IdleWatch:
    """Remembers since when processes, with all that they have started, have done nothing."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, Work]] = {}  # when a process was last measured
        self._since: dict[int, float] = {}
        self._looked = 0.0

    def find_idle_seconds(self, processes: Collection[int]) -> dict[int, float]:
        """Return for how long each has done nothing; measured every LOOK_SECONDS at most."""
        now = time.monotonic()
        if now - self._looked > LOOK_SECONDS:
            self._looked = now
            for process, family in find_families(processes).items():
                work = measure_work(family)
                since, before = self._seen.get(process, (now, work))
                windows = max(1.0, (now - since) / WINDOW_SECONDS)
                if work.is_more_than(before, windows):
                    self._since[process] = now
                self._seen[process] = now, work
        return {process: now - self._since.setdefault(process, now) for process in processes}


def find_families(processes: Collection[int]) -> dict[int, Family]:
    """Return each process with everything that it has started and that still runs."""
    children = defaultdict[int | None, Family](list)
    known = {}
    for each in psutil.process_iter(["ppid"]):
        children[each.info["ppid"]].append(each)
        known[each.pid] = each
    found = {}
    for process in processes:
        found[process] = family = [known[process]] if process in known else []
        for each in family:  # which grows
            family += children[each.pid]
    return found


def measure_work(family: Family) -> Work:
    """Return what these processes have done so far."""
    seconds, written, is_working = 0.0, 0, False
    for each in family:
        with contextlib.suppress(psutil.Error), each.oneshot():  # it may end meanwhile
            seconds += sum(each.cpu_times()[:4])  # its own, and its ended children's
            is_working |= each.status() in WORKING
            if hasattr(each, "io_counters"):  # not on macOS
                counters = each.io_counters()
                written += getattr(counters, "write_chars", 0) + counters.write_bytes
    return Work(seconds, written, is_working)
