"""Pipeline schedules as plain data: what each stage does, in which order. NumPy at most.

from . import check_schedule, make_schedule

    schedule = make_schedule("1f1b", stages=4, micro_batches=8)
    check_schedule(schedule)  # None: nothing wrong

`utils.simulate.pipeline` says how long a schedule takes.
"""

from .check import check_schedule
from .generate import (
    SCHEDULES,
    make_1f1b,
    make_gpipe,
    make_interleaved_1f1b,
    make_schedule,
    make_zb_h1,
    make_zb_h2,
)
from .operations import KINDS, Operation, Schedule, read_schedule
from .partition import partition_layers

__all__ = [
    "KINDS",
    "SCHEDULES",
    "Operation",
    "Schedule",
    "check_schedule",
    "make_1f1b",
    "make_gpipe",
    "make_interleaved_1f1b",
    "make_schedule",
    "make_zb_h1",
    "make_zb_h2",
    "partition_layers",
    "read_schedule",
]
