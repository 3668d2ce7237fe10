"""What a process says that it took, compared with what the kernel counts: a tripwire for clocks.

An exercise that is timed in the process of an answer rests on that process's clocks. They are
taken before the fork; whatever slows them down there does not slow down the kernel's.
"""

import time
from typing import Any

from distlab.grading.process_tree import measure_processor_seconds

SLACK_SECONDS, SLACK_SHARE = 1.0, 0.1  # a message takes its time on a busy machine
KINDS = ("the clock", "the clock of processor time")
_CLOCKS = (time.perf_counter, time.process_time)


def read_own() -> list[float]:
    """Return this process's seconds by its own clocks: by the clock, of the processors."""
    return [clock() for clock in _CLOCKS]


def read_kernels(process: int) -> list[float]:
    """Return the same of another process, as it is seen from here."""
    return [time.monotonic(), measure_processor_seconds([process], children=False)]


def find_forged(said: Any, before: list[float], after: list[float]) -> list[str]:
    """Return which clock of those that were `said` ran otherwise than the kernel's, and how."""
    found = []
    claims = said if isinstance(said, list) and len(said) == len(KINDS) else [None] * len(KINDS)
    for kind, claim, begun, ended in zip(KINDS, claims, before, after, strict=True):
        true = ended - begun
        known = isinstance(claim, float)
        if not (known and abs(claim - true) <= SLACK_SECONDS + SLACK_SHARE * true):
            shown = f"{claim:.1f}" if known else "no number of"
            found.append(f"{kind} ({shown} s, by the kernel {true:.1f} s)")
    return found
