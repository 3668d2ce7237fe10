"""Lab 08, multi-worker training: answers are run by real worker processes."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.exercise import Exercise, each
from distlab.exercises.refusing import read_array, refuse_task, require_value

RATE = 0.5
RUN_SECONDS = 80.0


@cache
def get_cluster(workers: int) -> Any:
    """Return the LocalCluster of so many workers that all exercises share; it ends with Python."""
    from utils.cluster import LocalCluster

    return LocalCluster(workers=workers, devices="cpu", launcher=_get_launcher())


@cache
def _get_launcher() -> Any:
    from utils.cluster import make_launcher

    return make_launcher()


def run_on(workers: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run `function` on every worker and return the results in rank order.

    Raises AssertionError with the learner's own error in its first line.
    """
    from utils.cluster.failures import ClusterError

    try:
        return get_cluster(workers).run(function, *arguments, timeout=RUN_SECONDS, echo=False)
    except ClusterError as error:
        raise refuse_task(error) from None


def _make_strategy() -> Any:
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy()


# ---- exercise 1: who reads what


def try_shards(
    make_worker_dataset: Callable[..., Any], workers: int, examples: int, batch: int
) -> list[list[list[int]]] | str:
    """Return the ids that each worker read, [worker][step][id], or why there are none."""
    found = run_on(workers, _read_shard, make_worker_dataset, examples, batch)
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
        "rest-dropped": "the last, smaller batch is missing: it is kept here, so no drop_remainder",
        "cut-to-fit": "the last ids are missing: there need not be a multiple of the workers",
        "not-batched": "the data set holds single ids: batch them",
        "endless": "the data set never ends: repeat() starts again, and one pass is asked for",
    },
    hint="which ids should worker 1 of 2 read, and how many at a time?",
    shows_case=False,
    run=each(try_shards),
)


# ---- exercise 2: the worker function


def read_step(seed: int, step: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the global batch of a step: images [batch, 784] and labels [batch].

    On worker i of W only rows i, i + W, … are there, as if the rest lay on the other
    machines: the other images are nan, and their labels 0.
    """
    picks = np.random.default_rng([seed, step]).integers(0, 10_000, size=batch)
    images, labels = softmax.read_examples(picks)
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    if config:
        workers = len(config["cluster"]["worker"])
        absent = np.arange(batch) % workers != config["task"]["index"]
        images[absent], labels[absent] = np.nan, 0
    return images, labels


def try_training(
    train_worker: Callable[..., Any], workers: int, seed: int, steps: int, batch: int
) -> list[np.ndarray]:
    """Return the weights [784, 10] that each worker ends with."""
    return run_on(workers, _train_here, train_worker, seed, steps, batch)


def _train_here(train_worker: Any, seed: int, steps: int, batch: int) -> np.ndarray:
    return read_array(train_worker(seed, steps, batch), "train_worker", "an array of weights")


TRAINING = Exercise(
    lab="lab08",
    name="training",
    function="train_worker",
    examples=((2, 11, 2, 16),),
    mistakes={
        "own-mean": "each worker took the mean over its own examples, and the sum of means is too "
        "large: divide by the global batch",
        "whole-batch": "nan: the whole batch was used, and only every W-th image of it lies on "
        "this worker",
        "not-reduced": "the workers end with different weights: the gradients were not summed",
        "one-batch-only": "every step used the batch of step 0",
        "averaged-again": "too short: the losses are divided by the global batch already, so the "
        "workers' gradients are summed, not averaged",
    },
    hint="print the weights' sum on both workers after one step: are they equal, and finite?",
    tolerance=1e-5,
    shows_case=False,
    run=each(try_training),
)


# ---- exercise 3: saving


def try_saving(
    functions: tuple[Callable[..., Any], Callable[..., Any]], workers: int, value: float
) -> dict[str, Any]:
    """Let all workers save a checkpoint; return where each wrote and what was left."""
    root = Path(tempfile.mkdtemp())
    try:
        (root / "shared").mkdir()
        chosen, left = zip(*run_on(workers, _save, functions, str(root), value))
        return _describe_saving(root, chosen, left[0])
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _save(functions: Any, root: str, value: float) -> tuple[str, int]:
    """Return this worker's folder, and how many checkpoints of others it found at its turn.

    Worker 0 cleans up last: what the others left is seen before it could remove it.
    """
    import tensorflow as tf

    choose_folder, clean_up = functions
    strategy = _make_strategy()
    index = strategy.cluster_resolver.task_id
    total = tf.Variable(value + index)
    shared = str(Path(root) / "shared")
    chosen = require_value(choose_folder(shared, index), "choose_folder", "a folder's path")
    folder = str(chosen)
    _stay_inside(root, folder)
    order = range(strategy.num_replicas_in_sync)
    for turn in order:  # one after the other: no torn files
        if turn == index:
            tf.train.Checkpoint(total=total).write(str(Path(folder) / "ckpt"))
        strategy.reduce("SUM", tf.constant(1.0), axis=None)
    left = 0
    for turn in reversed(order):
        if turn == index:
            mine = (Path(shared).resolve(), Path(folder).resolve())
            left = sum(p.parent not in mine for p in Path(root).resolve().rglob("ckpt.index"))
            clean_up(shared, chosen, index)
        strategy.reduce("SUM", tf.constant(1.0), axis=None)
    return folder, left


def _stay_inside(root: str, folder: str) -> None:
    place = Path(folder).resolve()
    if not place.is_relative_to(Path(root).resolve()):
        raise ValueError(f"{folder} is not inside the parent folder of the shared one")


def _describe_saving(root: Path, chosen: Sequence[str], left: int) -> dict[str, Any]:
    """`left`: how many checkpoints of others worker 0 found before it cleaned up."""
    import tensorflow as tf

    shared = root.resolve() / "shared"
    places = [Path(folder).resolve() for folder in chosen]
    others = places[1:]
    prefix = str(shared / "ckpt")
    found = tf.train.list_variables(prefix) if (shared / "ckpt.index").exists() else []
    value = [tf.train.load_variable(prefix, name) for name, _ in found if "total" in name]
    return {
        "worker 0 wrote into the shared folder": places[0] == shared,
        "workers that wrote there": sum(place == shared for place in places),
        "folders of the others": len(set(others)),
        "folders inside the shared one": sum(shared in place.parents for place in places),
        "folders left over": max(left, sum(place.exists() for place in set(others) - {shared})),
        "value in the shared checkpoint": float(value[0]) if value else None,
    }


SAVING = Exercise(
    lab="lab08",
    name="saving",
    function="choose_folder and clean_up",
    examples=((3, 7.0),),
    mistakes={
        "all-in-one-place": "all workers wrote to the same files: one overwrites the other",
        "chief-elsewhere": "worker 0 is the chief: its checkpoint belongs in the shared folder",
        "others-share": "the other workers wrote to the same files: each needs a folder of its own",
        "inside-shared": "the others wrote into folders inside the shared one: put them next to it",
        "shared-removed": "the shared checkpoint is gone: worker 0 has nothing to clean up",
        "left-behind": "the others' folders are still there: remove them when all have written",
    },
    hint="who may write into the shared folder, and which folders must be gone at the end?",
    shows_case=False,
    run=each(try_saving),
)
