"""Find which replica or worker receives which examples, by their ids.

Datasets here end in the example's id, like `ladder`'s, or are ids alone.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..checks import check_choice
from ..errors import InputError, first_line

Views = dict[str, list[list[int]]]  # who -> the ids of each step
MAX_RUNS = 6  # of printed numbers
POLICIES = ("FILE", "DATA", "OFF", "AUTO", "HINT")


@dataclass(frozen=True)
class Cover:
    """The coverage of the examples: how many came once, which never, which more than once."""

    once: int
    lost: tuple[int, ...]
    doubled: tuple[int, ...]

    def __str__(self) -> str:
        parts = [f"{self.once} once"]
        parts += [f"lost: {format_ids(self.lost)}"] if self.lost else ["none lost"]
        parts += (
            [f"more than once: {format_ids(self.doubled)}"] if self.doubled else ["none doubled"]
        )
        return ", ".join(parts)


def check_cover(views: Mapping[str, Iterable[Iterable[int]]], expected: Iterable[int]) -> Cover:
    """Compare the ids in all of `views` together with `expected`; return what is lost or doubled.

    `views` holds batches of ids for each reader, as `auto_shard` returns them. Raises
    InputError for ids that aren't in `expected`.

        >>> check_cover({"worker 0": [[0, 1]], "worker 1": [[1]]}, range(3)).lost
        (2,)
    """
    seen = Counter(number for steps in views.values() for step in steps for number in step)
    wanted = set(expected)
    if strange := set(seen) - wanted:
        raise InputError(f"The ids must all be in `expected`, got also {format_ids(strange)}.")
    return Cover(
        once=sum(1 for number in wanted if seen[number] == 1),
        lost=tuple(sorted(wanted - set(seen))),
        doubled=tuple(sorted(number for number, times in seen.items() if times > 1)),
    )


def ids_per_replica(strategy: Any, distributed: Any, steps: int | None = None) -> Views:
    """Return what each local replica receives in each step of a distributed dataset.

    A replica without data in a step has an empty list. With `steps`, it takes at most that many.
    """
    views: Views = {}
    for number, batch in enumerate(distributed):
        if number == steps:
            break
        parts = strategy.experimental_local_results(last_part(batch))
        for replica, part in enumerate(parts):
            ids = np.atleast_1d(part.numpy()).tolist()
            views.setdefault(f"replica {replica}", []).append(ids)
    return views


def last_part(batch: Any) -> Any:
    """Return the ids of a batch: the last of a tuple, or the batch itself."""
    return batch[-1] if isinstance(batch, tuple) else batch


def auto_shard(dataset: Any, workers: int, policy: str) -> Views:
    """Return the ids of each batch of `dataset` that each of `workers` reads under `policy`.

    Does in one process what every worker does to its own copy of the dataset
    (`tf.data.experimental.AutoShardPolicy`): "AUTO", "FILE", "DATA", "OFF" or "HINT". The batch
    size doesn't change. Raises InputError for an unknown policy, and with TensorFlow's first
    line if the policy can't be followed (FILE with fewer files than workers).

        views = auto_shard(tf.data.Dataset.range(8).batch(4), workers=2, policy="DATA")
    """
    import tensorflow as tf
    from tensorflow.python.data.experimental.ops import distribute

    check_choice("policy", policy, POLICIES)
    dataset = dataset.with_options(sharding_options(policy))
    views: Views = {}
    for worker in range(workers):
        try:
            shard = distribute._AutoShardDataset(dataset, workers, worker)
            parts = [last_part(batch).numpy() for batch in shard]
        except (tf.errors.OpError, ValueError) as error:
            raise InputError(f"Policy {policy} failed: {_first_sentence(error)}") from None
        views[f"worker {worker}"] = [np.atleast_1d(part).tolist() for part in parts]
    return views


def shard_examples(
    files: Sequence[Sequence[int]],
    workers: int,
    policy: str,
    batch: int,
    orders: Sequence[Sequence[int]] = (),
) -> Views:
    """Return the ids of each batch that each worker trains on, by counting, without TensorFlow.

    `files` holds the ids of each file and `batch` is a worker's batch size. `policy` is "FILE",
    "DATA" or "OFF", as in `auto_shard`, or "LATE", a mistake: each of `workers` shuffles
    all (`orders` [worker, example]) and keeps every `workers`-th. Raises InputError for another
    policy, and for FILE with fewer files than workers.

        views = shard_examples([[0, 1, 2, 3], [4, 5, 6, 7]], workers=2, policy="FILE", batch=2)
    """
    check_choice("policy", policy, ("FILE", "DATA", "OFF", "LATE"))
    if policy == "FILE" and len(files) < workers:
        raise InputError(
            f"Policy FILE needs at least one file per worker, got {len(files)} files for "
            f"{workers} workers."
        )
    everything = [number for file in files for number in file]
    views: Views = {}
    for worker in range(workers):
        mine = everything
        if policy == "FILE":
            mine = [number for file in files[worker::workers] for number in file]
        elif policy == "LATE":
            mine = list(orders[worker][worker::workers])
        batches = [mine[k : k + batch] for k in range(0, len(mine), batch)]
        views[f"worker {worker}"] = batches[worker::workers] if policy == "DATA" else batches
    return views


def _first_sentence(error: Exception) -> str:
    """Return the first sentence of TensorFlow's error, without the operation's name."""
    return re.sub(r"^\{\{.*?\}\} ", "", first_line(error, 1000)).split(". ")[0]


def sharding_options(policy: str) -> Any:
    """Return `tf.data.Options` with an auto-shard policy, and without the tuning thread."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = getattr(
        tf.data.experimental.AutoShardPolicy, policy
    )
    return options


def format_ids(ids: Iterable[int]) -> str:
    """Return ids in short: "0–15, 32–47", "0, 2, 4 … 62 (every 2nd)", "none"."""
    numbers = sorted(set(ids))
    if not numbers:
        return "none"
    steps = {b - a for a, b in pairwise(numbers)}
    if len(numbers) > 3 and len(steps) == 1 and (step := steps.pop()) > 1:
        return f"{numbers[0]}, {numbers[1]}, {numbers[2]} … {numbers[-1]} (steps of {step})"
    breaks = [i for i, (a, b) in enumerate(pairwise(numbers), 1) if b != a + 1]
    runs = [numbers[a:b] for a, b in pairwise([0, *breaks, len(numbers)])]
    words = [f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    if len(words) > MAX_RUNS:
        words = [*words[: MAX_RUNS - 1], "…", words[-1]]
    return ", ".join(words)


def all_ids(steps: Iterable[Iterable[int]]) -> set[int]:
    """Return the set of ids of one view."""
    return {number for step in steps for number in step}
