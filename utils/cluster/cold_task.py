"""A task in a fresh process; its arguments are DESCRIPTORS and ORDER.

Started by `local_launcher.ColdLauncher`, whose keeper ends it if that is killed.
"""

import json
import os
import sys

from .launcher import TaskOrder
from .task import TaskEnds, enter_task


def main() -> None:
    ends = TaskEnds(*map(int, sys.argv[1].split(",")))
    os._exit(enter_task(TaskOrder(**json.loads(sys.argv[2])), ends))
