"""Bytes that cross the loopback device while something runs: what a cluster here really sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil

from distlab.errors import CourseError

LOOPBACK = ("lo", "lo0")


def read_loopback_bytes() -> int:
    """Return the bytes sent over loopback so far, by every program of this machine.

    Raises CourseError where the system doesn't count them.
    """
    counters = psutil.net_io_counters(pernic=True)
    for name in LOOPBACK:
        if name in counters:
            return counters[name].bytes_sent
    raise CourseError("This system doesn't count its loopback device's bytes.")


def measure_traffic(call: Callable[[], Any], steps: int) -> float:
    """Call `call`, which takes `steps` steps, and return the bytes sent for each of them.

    Counts headers and acknowledgments, so it is a little more than the payload, and what
    other programs send over loopback meanwhile: of five calls the smallest count is
    returned.
    """
    counts = []
    for _ in range(5):
        before = read_loopback_bytes()
        call()
        counts.append(read_loopback_bytes() - before)
    return min(counts) / steps
