"""Pipeline schedules as plain data: each stage's operations, in order. NumPy at most.

    from utils.schedules import check_schedule, make_schedule

    schedule = make_schedule("1f1b", stages=4, micro_batches=8)
    check_schedule(schedule)  # None: nothing wrong

`utils.simulate.pipeline` says how long a schedule takes.

- `check`: say what is wrong with a pipeline schedule, in one line
- `generate`: the known pipeline schedules: GPipe, 1F1B, interleaved 1F1B, zero-bubble ZB-H1 and
  ZB-H2
- `operations`: the parts of a pipeline schedule: operations, and one ordered list of them for each
  stage
- `partition`: cut a list of layers into pipeline stages by cost
- `replay`: play a schedule: when does each operation start and end, and which stages wait for
  ever?
"""

from .check import check_schedule as check_schedule
from .generate import SCHEDULES as SCHEDULES
from .generate import make_1f1b as make_1f1b
from .generate import make_gpipe as make_gpipe
from .generate import make_interleaved_1f1b as make_interleaved_1f1b
from .generate import make_schedule as make_schedule
from .generate import make_zb_h1 as make_zb_h1
from .generate import make_zb_h2 as make_zb_h2
from .operations import KINDS as KINDS
from .operations import Operation as Operation
from .operations import Schedule as Schedule
from .operations import read_schedule as read_schedule
from .partition import partition_layers as partition_layers
