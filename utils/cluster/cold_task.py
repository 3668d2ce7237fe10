"""A task in a fresh process; its arguments are DESCRIPTORS and ORDER.

Started by `local_launcher.ColdLauncher`.
"""

import json
import os
import selectors
import signal
import sys
import threading

from ..processes.registry import MARK_VARIABLE, parse_mark, remove_folder
from .launcher import TaskOrder
from .task import TaskEnds, enter_task


def main() -> None:
    ends = TaskEnds(*map(int, sys.argv[1].split(",")))
    done = threading.Event()
    watch = threading.Thread(target=_end_with_parent, args=[ends.result, done], daemon=True)
    watch.start()
    status = enter_task(TaskOrder(**json.loads(sys.argv[2])), ends, done.set)
    _clear_up_orphans()
    os._exit(status)


def _end_with_parent(result: int, done: threading.Event) -> None:
    """End this task's group when the parent hangs up, unless it may leave by itself."""
    with selectors.DefaultSelector() as selector:
        selector.register(result, selectors.EVENT_READ)  # says something only at the end
        selector.select()
    _clear_up_orphans()
    if not done.is_set():
        os.killpg(os.getpgid(0), signal.SIGKILL)


def _clear_up_orphans() -> None:
    """If the parent was killed: remove the cluster's folder, and end this task's group."""
    mark = parse_mark(os.environ.get(MARK_VARIABLE, ""))
    if mark is not None and not mark.owner_lives:
        remove_folder(mark.folder)
        os.killpg(os.getpgid(0), signal.SIGKILL)
