"""Asking the tasks of this machine to end: how long each may take, and when waiting is in vain.

A task gets its grace if it uses it. One that doesn't handle the signal can't save anything. One
that handles it may still be stuck: TensorFlow itself catches SIGTERM in every multi-worker task,
and such a task waits in a collective for a peer that has died, or is asked to end as well.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from .work import Family, find_families, measure_work

DEAF_SECONDS = 1.0  # for a task that doesn't handle the signal
IDLE_SECONDS = 2.0  # a task that does no work for so long counts as stuck
LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class Notice:
    """A request to end: the action that asks (see `LaunchedTasks.act`), and the grace."""

    action: str
    seconds: float


class GraceWatch:
    """Watches processes that were asked to end, and kills each when its time is over.

    All that are left are killed sooner, once none of them does anything: one that waits while
    another saves may be needed by that.
    Make it before signal `number` is sent. `ends` has an event for each process, which is set
    once that has ended.
    """

    def __init__(self, notice: Notice, number: int, ends: Mapping[int, Event]) -> None:
        self._ends = dict(ends)
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
            self._look(left)
            for process in self._find_over(left, time.monotonic() - begun):
                kill(process)
                del left[process]

    def _look(self, processes: Collection[int]) -> None:
        """Count looks at which a process hasn't worked: seconds would count our own sleep."""
        for process, family in find_families(processes).items():
            work = measure_work(family)
            self._idle_looks[process] += 1
            if work.is_more_than(self._work[process]):
                self._work[process], self._idle_looks[process] = work, 0

    def _find_over(self, processes: Collection[int], seconds: float) -> list[int]:
        idle = [self._idle_looks[process] * LOOK_SECONDS for process in processes]
        if min(idle, default=0.0) > IDLE_SECONDS:
            return list(processes)
        return [process for process in processes if seconds > self._seconds[process]]


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
