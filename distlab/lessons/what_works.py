"""Find what works by running it: each combination trains in its own processes."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from utils.cluster import LocalCluster, make_launcher
from utils.errors import first_line
from utils.strategies import find_strategy

SETTINGS = {"epochs": 2, "max_examples": 256, "global_batch_size": 64, "model": "mlp"}
RUN_SECONDS = 240.0
MAX_WHY = 400


@dataclass(frozen=True)
class Tried:
    """One combination: whether it trained, what it took, or `why` not, in one line."""

    strategy: str
    loop: str
    dtype: str
    works: bool
    why: str = ""
    loss: float = 0.0
    images_per_second: float = 0.0
    memory_bytes: int = 0
    seconds: float = 0.0
    variables_bytes: int = 0


def train_once(strategy: str, loop: str, dtype: str) -> dict[str, Any]:
    """Train in a task; return the report's numbers. Runs in a process of a cluster."""
    from utils.measure import peak_memory_bytes
    from utils.training import TrainConfig, train

    config = TrainConfig(strategy=strategy, loop=loop, dtype=dtype, **SETTINGS)
    report = train(config)
    return {
        "loss": report.loss[-1],
        "images_per_second": report.images_per_second or 0.0,
        "memory_bytes": peak_memory_bytes(),
        "variables_bytes": sum(weight.nbytes for weight in report.weights),
    }


def try_all(rows: Iterable[Sequence[str]]) -> list[Tried]:
    """Return what became of each (strategy, loop, dtype), one after the other."""
    launcher = make_launcher()
    try:
        return [_try_one(launcher, *row) for row in rows]
    finally:
        launcher.close()


def _try_one(launcher: Any, strategy: str, loop: str, dtype: str) -> Tried:
    record = find_strategy(strategy)
    tasks = {"workers": 2, "ps": 1} if record.is_coordinated else {"workers": 1}
    if record.in_lockstep:
        tasks = {"workers": 2}
    begun = time.perf_counter()
    try:
        with LocalCluster(**tasks, launcher=launcher) as cluster:
            found = cluster.run(train_once, strategy, loop, dtype, echo=False, timeout=RUN_SECONDS)
    except Exception as error:  # whatever TensorFlow raises is the answer here
        return Tried(strategy, loop, dtype, False, first_line(error, MAX_WHY))
    found = found[0] if isinstance(found, list) else found
    return Tried(strategy, loop, dtype, True, seconds=time.perf_counter() - begun, **found)
