"""The fork server of this machine's tasks: `python -m …cluster.task_server MODULES DESCRIPTOR`.

Started by `warm_launcher.WarmLauncher`; MODULES are imported in addition to TensorFlow.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from ..processes.fork_server import ForkLoop, serve
from ..processes.lifetime import adopt_orphans, name_process
from ..processes.preload import import_modules, import_tensorflow
from ..processes.private_network import enter_if_wanted
from ..processes.registry import MARK_VARIABLE, parse_mark, remove_folder, remove_orphaned_folders
from .launcher import TaskOrder
from .task import TaskEnds, enter_task


class TaskLoop(ForkLoop):
    """Forks tasks: a request is an order, its descriptors are `TaskEnds`."""

    def check(self) -> str:
        if why := enter_if_wanted():  # now, as it takes a process with one thread
            print(f"Other users can reach the ports of this cluster: {why}", file=sys.stderr)
        return ""

    def prepare(self) -> Mapping[str, Any]:
        name_process("distlab-warm")
        adopt_orphans()
        import_tensorflow()
        import_modules([name for name in sys.argv[1].split(",") if name])
        remove_orphaned_folders()
        return {}

    def run(self, request: Any, body: bytes, descriptors: Sequence[int]) -> int:
        return enter_task(TaskOrder(**request), TaskEnds(*descriptors))

    def sweep(self) -> None:
        if not self.children:  # an orphan doesn't say whose it was
            _end_children()

    def clear_up(self) -> None:
        _end_children()
        remove_folder(parse_mark(os.environ[MARK_VARIABLE]).folder)


def _end_children() -> None:
    """Kill every child of this process, and what they leave behind in turn."""
    while children := psutil.Process().children():
        for child in children:
            child.kill()
        for child in children:
            child.wait()


def main() -> None:
    serve(TaskLoop())
