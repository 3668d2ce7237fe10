"""Real workers for a learner's function: the labs' clusters, and results that are plain data.

In the workers the learner's code runs, and it may send what it likes in place of a result. A pickle
could run code in this process, which starts, kills and counts them. So a result is numbers, words,
bytes, and lists, tuples or dictionaries of these: anything else isn't unpacked.
"""

import io
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

from distlab.exercises.refusing import refuse_task

RUN_SECONDS = 80.0


class PlainUnpickler(pickle.Unpickler):
    """Unpacks plain data only: no class or function is looked up, so none can be called."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it holds {module}.{name}")


def loads_plain(body: bytes) -> tuple[Any, ...]:
    """Return a task's result, or an error in its place if it isn't a result of plain data."""
    try:
        found = PlainUnpickler(io.BytesIO(body)).load()
    except Exception as error:
        return "error", f"its result must be plain data ({error})", ""
    match found:
        case ("result", _) | ("error", str(), str()):
            return found
    return "error", "it sent something else in place of its result", ""


@cache
def _get_launcher() -> Any:
    from utils.cluster import make_launcher
    from utils.processes.preload import TRAINING_MODULES

    return make_launcher((*TRAINING_MODULES, "distlab.exercises.drawn_batches"))


@cache
def get_cluster(workers: int, ps: int = 0) -> Any:
    """Return the LocalCluster that all exercises share; it ends with Python."""
    from utils.cluster import LocalCluster

    how = {"devices": "cpu", "launcher": _get_launcher(), "loads": loads_plain}
    return LocalCluster(workers=workers, ps=ps, **how)


def run_on(
    cluster: Any, function: Callable[..., Any], *arguments: Any, seconds: float = RUN_SECONDS
) -> Any:
    """Run `function` on a cluster and return what `LocalCluster.run` does.

    Raises AssertionError with the learner's own error in its first line.
    """
    from utils.cluster.failures import ClusterError

    try:
        return cluster.run(function, *arguments, timeout=seconds, echo=False)
    except ClusterError as error:
        raise refuse_task(error) from None
