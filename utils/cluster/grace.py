"""Asking the tasks of this machine to end: how long each may take, and when waiting is in vain.

A task gets its grace if it uses it. One that doesn't handle the signal can't save anything. One
that handles it may still be stuck: TensorFlow itself catches SIGTERM in every multi-worker task,
and such a task waits in a collective for a peer that has died.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import psutil

DEAF_SECONDS = 1.0  # for a task that doesn't handle the signal
IDLE_SECONDS = 2.0  # without work, after which a task is taken to be stuck
IDLE_CPU_SECONDS, IDLE_BYTES = 0.1, 4096  # in that time: less is no work
LOOK_SECONDS = 0.25
WORKING = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)

Family = list[psutil.Process]


@dataclass(frozen=True)
class Notice:
    """A request to end: the action that asks (see `LaunchedTasks.act`), and the grace.

    With `ends_idle`, a task that does nothing is killed before `seconds` are over.
    """

    action: str
    seconds: float
    ends_idle: bool = False


@dataclass(frozen=True)
class Work:
    """What a task has done so far: processor time, bytes written, and whether it works right now.

    A process that waits for a processor or a disk works, too.
    """

    cpu_seconds: float
    written_bytes: int
    is_working: bool

    def is_more_than(self, before: "Work") -> bool:
        """Return whether the task has worked since `before`."""
        used = abs(self.cpu_seconds - before.cpu_seconds)  # it falls when a child ends
        written = abs(self.written_bytes - before.written_bytes)
        return self.is_working or used > IDLE_CPU_SECONDS or written > IDLE_BYTES


class GraceWatch:
    """Watches processes that are asked to end; kills each when its time is over.

    Make it before signal `number` is sent. `ends` has an event for each process, which is set
    once that has ended.
    """

    def __init__(self, notice: Notice, number: int, ends: Mapping[int, Event]) -> None:
        self._ends, self._ends_idle = dict(ends), notice.ends_idle
        families = find_families(ends)
        self._seconds = {
            process: notice.seconds if handles(family, number) else DEAF_SECONDS
            for process, family in families.items()
        }
        self._work = {process: measure_work(family) for process, family in families.items()}
        self._idle_looks = dict.fromkeys(ends, 0)

    def run(self, kill: Callable[[int], None]) -> None:
        """Watch until all have ended or been killed."""
        begun, left = time.monotonic(), self._ends
        while left:
            time.sleep(LOOK_SECONDS)
            left = {process: ended for process, ended in left.items() if not ended.is_set()}
            if self._ends_idle:
                self._look(left)
            for process in self._find_over(left, time.monotonic() - begun):
                kill(process)
                del left[process]

    def _look(self, processes: Collection[int]) -> None:
        """Count looks at which a process has not worked: seconds would count our own sleep."""
        for process, family in find_families(processes).items():
            work = measure_work(family)
            self._idle_looks[process] += 1
            if work.is_more_than(self._work[process]):
                self._work[process], self._idle_looks[process] = work, 0

    def _find_over(self, processes: Collection[int], seconds: float) -> list[int]:
        return [
            process
            for process in processes
            if seconds > self._seconds[process]
            or self._idle_looks[process] * LOOK_SECONDS > IDLE_SECONDS
        ]


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


def handles(family: Family, number: int) -> bool:
    """Return whether one of these processes has a handler for a signal (SigCgt of proc(5)).

    True if this system doesn't say.
    """
    if not Path("/proc/self/status").exists():
        return True
    return any(_catches(each.pid, number) for each in family)


def _catches(process: int, number: int) -> bool:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return False
    masks = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


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
