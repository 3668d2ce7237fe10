"""Lab 08, multi-worker training: answers are run by real worker processes."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.exercise import Exercise, each
from distlab.exercises.feeding import Feed, Share, ask, run_fed
from distlab.exercises.refusing import read_array, require_kind, require_value
from distlab.exercises.worker_runs import get_cluster, run_on
from distlab.labs import ANSWERS

ABSENT = ANSWERS

RATE = 0.5
NEXT_SUM = 3.0  # of the all-reduces after saving


def _make_strategy() -> Any:
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy()


# ---- exercise 1: who reads what


def try_shards(
    make_worker_dataset: Callable[..., Any], workers: int, examples: int, batch: int
) -> list[list[list[int]]] | str:
    """Return the ids that each worker read, [worker][step][id], or why there are none."""
    found = run_on(get_cluster(workers), _read_shard, make_worker_dataset, examples, batch)
    return next((one for one in found if isinstance(one, str)), found)


def _read_shard(make_worker_dataset: Any, examples: int, batch: int) -> list[list[int]] | str:
    strategy = _make_strategy()
    data = strategy.distribute_datasets_from_function(
        lambda context: require_value(
            make_worker_dataset(np.arange(examples), batch, context),
            "make_worker_dataset",
            "a tf.data.Dataset",
        )
    )
    parts = []
    for part in data:
        parts.append(np.asarray(strategy.experimental_local_results(part)[0]))
        if not parts[-1].ndim:
            return "single ids"
        if len(parts) > 2 * examples:  # steps, the same number on all workers
            return "it never ends"
    return [np.ravel(part).astype(int).tolist() for part in parts if len(part)]


SHARDS = Exercise(
    lab="lab08",
    name="shards",
    function="make_worker_dataset",
    examples=((2, 15, 4),),
    mistakes={
        "not-sharded": "every worker read all the examples: take a shard",
        "global-batch": "every worker read whole global batches: together they make steps that are "
        "too large",
        "always-the-first": "every worker took the same shard: the context knows which pipeline "
        "this is",
        "in-blocks": "each worker got a block of neighbors: shard deals out one by one",
        "batches-dealt": "whole batches were dealt out, not ids: shard first, then batch",
        "rest-dropped": "the last, smaller batch is missing: it is kept here, so no drop_remainder",
        "cut-to-fit": "the last ids are missing: the number of ids needn't be a multiple of the "
        "number of workers",
        "skipped-only": "worker i left out the first i ids and read all the others: keep every "
        "W-th",
        "not-batched": "the data set holds single ids: batch them",
        "endless": "the data set never ends: repeat() starts again, and you need one pass",
    },
    hint="which ids should worker 1 of 2 read, and how many at a time?",
    run=each(try_shards),
    travels=True,
)


# ---- exercise 2: the worker function


_place: list[Any] = []  # of this worker: where its examples come, its rank, how many there are


def read_step(seed: int, step: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the global batch of a step: images [batch, 784] and labels [batch].

    On worker i of W only rows i, i + W, … are there, as if the rest lay on the other
    machines: the other images are nan, and their labels 0.
    """
    if not _place:
        picks = np.random.default_rng([seed, step]).integers(0, 10_000, size=batch)
        return softmax.read_examples(picks)
    root, rank, workers = _place
    images, labels = np.full([batch, 784], np.nan), np.zeros(batch, int)
    share = ask(root, step)
    images[rank::workers], labels[rank::workers] = share["images"], share["labels"]
    return images, labels


def draw_share(seed: int, batch: int, workers: int, rank: int, step: int) -> Share:
    """Return the examples of a step that lie on worker `rank`: its images and labels."""
    images, labels = read_step(seed, step, batch)
    return {"images": images[rank::workers], "labels": labels[rank::workers]}


def derive_seed(seed: int) -> int:
    """Return the seed that workers get, for the first weights: it doesn't lead to the examples."""
    return int(np.random.default_rng([seed, 8]).integers(2**31))


def try_training(
    train_worker: Callable[..., Any], workers: int, seed: int, steps: int, batch: int
) -> list[np.ndarray]:
    """Return the weights [784, 10] that each worker ends with. None has another's examples."""
    with tempfile.TemporaryDirectory() as root:
        feed = Feed(Path(root), partial(draw_share, seed, batch, workers))
        what = (root, workers, derive_seed(seed), steps, batch)
        found, _ = run_fed(get_cluster(workers), feed, _train_here, train_worker, *what)
    return [np.asarray(weights) for weights in found]


def _train_here(train_worker: Any, root: str, workers: int, *given: int) -> list[Any]:
    _place[:] = [Path(root), json.loads(os.environ["TF_CONFIG"])["task"]["index"], workers]
    weights = train_worker(*given)
    return read_array(weights, "train_worker", "an array of weights").tolist()


TRAINING = Exercise(
    lab="lab08",
    name="training",
    function="train_worker",
    examples=((2, 11, 2, 16),),
    mistakes={
        "own-mean": "each worker took the mean over its own examples, and the sum of means is too "
        "large: divide by the global batch",
        "whole-batch": "nan: the whole batch was used, and only every W-th image of it is on "
        "this worker",
        "not-reduced": "the workers end with different weights: the gradients weren't summed",
        "uphill": "the weights went up the gradient: subtract rate x gradient",
        "one-batch-only": "every step used the batch of step 0",
        "not-divided": "the losses are added up and never divided: divide by the global batch",
        "one-step-short": "one step too few: take `steps` of them",
        "one-step-too-many": "one step too many: take `steps` of them",
        "next-step": "each step used the next one's batch: steps count from 0",
        "averaged-again": "too short: the losses are divided by the global batch already, so the "
        "workers' gradients are summed, not averaged",
    },
    hint="print the weights' sum on both workers after one step: are they equal, and finite?",
    tolerance=1e-5,
    run=each(try_training),
    travels=True,
    evidence="result",
)


# ---- exercise 3: saving


def try_saving(
    functions: tuple[Callable[..., Any], Callable[..., Any]], *counts: Sequence[float]
) -> dict[str, Any]:
    """Let each worker count and save. Return what was left, and the sums of later all-reduces.

    Worker k adds `counts[k]`, and gets no others. Each has its own parent folder, as if every
    machine had the shared disk in another place. So its files are distinguished from the others'.
    """
    root = Path(tempfile.mkdtemp())
    try:
        feed = Feed(root, lambda rank, step: {"counts": np.array(counts[rank])})
        sums, _ = run_fed(get_cluster(len(counts)), feed, _save, functions, str(root))
        return _describe_saving(root, len(counts)) | {"sums of the next all-reduces": sums}
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _save(functions: Any, root: str) -> list[float]:
    """Count and save on this worker; return the sums of the all-reduces that come next."""
    import tensorflow as tf

    make_counter, save_run = functions
    strategy = _make_strategy()
    index = strategy.cluster_resolver.task_id
    seen = require_kind(make_counter(strategy), "make_counter", "tf.Variable")
    for count in ask(Path(root), 0)["counts"]:
        strategy.run(lambda number: seen.assign_add(number), args=(tf.constant(float(count)),))
    shared = Path(root, f"machine-{index}", "shared")
    shared.mkdir(parents=True)
    save_run(strategy, tf.train.Checkpoint(seen=seen), str(shared))
    return _reduce_on(strategy, index)


def _reduce_on(strategy: Any, index: int) -> list[float]:
    """All-reduce a few numbers, as continued training does; return the sums.

    An all-reduce that one worker has done alone meets another's first one here: that gets a
    wrong sum, and does one more so that no worker is left waiting at the end.
    """
    import tensorflow as tf

    workers = strategy.num_replicas_in_sync
    sums: list[float] = []
    while len(sums) < min(3 + sum(x != NEXT_SUM for x in sums), 9):
        addend = tf.constant(NEXT_SUM / workers + index - (workers - 1) / 2)
        sums.append(float(strategy.reduce("SUM", addend, axis=None)))
    return sums


def _describe_saving(root: Path, workers: int) -> dict[str, Any]:
    import tensorflow as tf

    machines = [root / f"machine-{index}" for index in range(workers)]
    prefix = str(machines[0] / "shared" / "ckpt")
    found = tf.train.list_variables(prefix) if Path(f"{prefix}.index").exists() else []
    value = [tf.train.load_variable(prefix, name) for name, _ in found if "seen" in name]
    left = [len(list(machine.iterdir())) - (machine / "shared").exists() for machine in machines]
    inside = [p for p in (machines[0] / "shared").rglob("*") if p.is_dir()]
    return {
        "count in the shared checkpoint": float(value[0]) if value else None,
        "others that wrote into the shared folder": sum(
            any((machine / "shared").glob("**/*.index")) for machine in machines[1:]
        ),
        "folders or files left next to it": sum(left) + len(inside),
    }


SAVING = Exercise(
    lab="lab08",
    name="saving",
    function="make_counter and save_run",
    examples=(((10.0, 20.0), (5.0, 3.0, 4.0)),),
    mistakes={
        "chief-alone": "only worker 0 saved. Reading the counter is an all-reduce, and it met the "
        "next all-reduce of the others: both got a wrong sum. All workers have to save",
        "own-count": "the checkpoint holds worker 0's own count: make the variable in "
        "strategy.scope(), set synchronization so that its copies come together when it's read, "
        "and aggregation so that they are summed",
        "at-each-addition": "the copies came together at each addition, and the workers add "
        "different numbers of times: set synchronization so that they do when it's read",
        "averaged": "the checkpoint holds the mean of the workers' counts, not their sum",
        "counted-twice": "the counts were added up on the way and once more on reading",
        "all-in-one-place": "all workers wrote into the shared folder, where one overwrites the "
        "other: only worker 0 may",
        "chief-elsewhere": "worker 0's checkpoint isn't in the shared folder, as ckpt",
        "left-behind": "worker 1's files are still there: remove them once they are written",
    },
    hint="who has to call write, who may write into the shared folder, and what must be gone at "
    "the end?",
    run=each(try_saving),
    travels=True,
    evidence="outside",
)
