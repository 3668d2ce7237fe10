"""Who starts the tasks of a cluster that a command trains on: this machine, or an engine."""

import argparse
import sys
from dataclasses import dataclass
from typing import Any

from distlab.errors import CourseError
from utils.checks import check_count

ENGINES = ("ray", "spark", "slurm")  # named here: commands start without importing them
MAX_RESTARTS = 1000


@dataclass(frozen=True)
class Starting:
    """Who starts a cluster's tasks, where, and how often again."""

    engine: str | None = None
    address: str | None = None
    restarts: int = 0

    def make_launcher(self) -> Any:
        """Return the engine's launcher, None for tasks of this machine."""
        if self.engine is None:
            return None
        from utils.engines import make_launcher

        return make_launcher(self.engine, self.address, lambda text: print(
            f"distlab train: {text}", file=sys.stderr))  # fmt: skip


def check_starting(arguments: argparse.Namespace, has_tasks: bool) -> Starting:
    """Return who starts the tasks; raise CourseError for options that do not fit."""
    given = {"engine": arguments.engine, "engine-address": arguments.engine_address,
             "restarts": arguments.restarts}  # fmt: skip
    for name, value in given.items():
        if value is not None and not has_tasks:
            raise CourseError(
                f"{name} {value}: no tasks are started here; choose strategy multi-worker or "
                "parameter-server, with TF_CONFIG not set"
            )
    if arguments.engine_address and not arguments.engine:
        raise CourseError(f"engine-address {arguments.engine_address}: name its --engine, too")
    restarts = check_count("restarts", arguments.restarts or 0, 0, MAX_RESTARTS)
    return Starting(arguments.engine, arguments.engine_address, restarts)
