"""Lab 09, fault tolerance: real workers, a real SIGKILL, real damaged checkpoints."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.exercise import Exercise, each
from distlab.labs.lab08.exercise import RATE, RUN_SECONDS, get_cluster, read_step
from distlab.exercises.refusing import refuse_task
from utils.events import Event, report

BATCH = 16
WORKERS = 2


# ---- exercise 1: a run that is killed


class Run:
    """What a learner's `train` gets besides its state: folders, and the step itself.

    `shared_folder` holds the checkpoints that count; `write_folder` is where this worker
    writes its own: the shared one on worker 0, another one elsewhere.
    """

    def __init__(self, strategy: Any, state: Any, root: Path, seed: int, die_at: int) -> None:
        self.rank = strategy.cluster_resolver.task_id
        self.shared_folder = str(root / "shared")
        self.write_folder = self.shared_folder if self.rank == 0 else str(root / f"w{self.rank}")
        self._strategy, self._state, self._root = strategy, state, root
        self._seed, self._die_at = seed, die_at

    def take_step(self) -> None:
        """Train on the batch of step number `state.step`, and add 1 to `state.step`."""
        import tensorflow as tf

        step = int(self._state.step)
        if self.rank == 0:
            report("exercise step", step=step)  # to the parent, who keeps the record
        elif step == self._die_at and not (self._root / "died").exists():
            (self._root / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        images, labels = read_step(self._seed, step, BATCH)
        own = slice(self.rank, None, WORKERS)
        slopes = softmax.slopes(images[own] @ self._state.weights.numpy(), labels[own])
        part = tf.constant(images[own].T @ slopes / BATCH)
        gradient = self._strategy.reduce(tf.distribute.ReduceOp.SUM, part, axis=None)
        self._state.weights.assign_sub(RATE * gradient)
        self._state.step.assign_add(1)


def try_killed_run(
    train: Callable[..., Any], seed: int, total: int, every: int, die_at: int
) -> dict[str, Any]:
    """Run `train` on two workers, of which one is killed once in step `die_at`.

    The group starts again by itself. Returns the steps that worker 0 took, in order, how often
    the group started again, whether worker 1 saved the same weights into its own folder as
    worker 0, and the weights [784, 10] at the end.
    """
    root = Path(tempfile.mkdtemp())
    try:
        (root / "shared").mkdir()
        found, events = _run_killed(train, root, (seed, total, every, die_at))
        steps = [int(event["step"]) for event in events if event["event"] == "exercise step"]
        return {
            "steps taken": steps,
            "restarts": sum(event["event"] == "restart" for event in events),
            "worker 1 saved too": _hold_the_same(root / "shared", root / "w1"),
            "weights": np.asarray(found[0]),
        }
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _hold_the_same(shared: Path, own: Path) -> bool:
    """Return whether some checkpoint of each folder holds the same weights [784, 10], trained."""
    kept = _read_weights(shared)
    return any(bool(np.any(w)) and np.allclose(w, k) for w in _read_weights(own) for k in kept)


def _read_weights(folder: Path) -> list[np.ndarray]:
    """Return the weights [784, 10] of every checkpoint below a folder that can be read."""
    import tensorflow as tf

    found = []
    for index in folder.glob("**/*.index"):
        try:
            reader = tf.train.load_checkpoint(str(index.with_suffix("")))
            shapes = reader.get_variable_to_shape_map()
            found += [reader.get_tensor(n) for n, shape in shapes.items() if shape == [784, 10]]
        except (tf.errors.OpError, ValueError, RuntimeError):
            continue
    return found


def _run_killed(
    train: Callable[..., Any], root: Path, case: tuple[int, ...]
) -> tuple[list[Any], list[Event]]:
    """Return the workers' results, and the parent's record of what they reported."""
    from utils.cluster.failures import ClusterError

    job = get_cluster(WORKERS).start(_train_worker, train, str(root), *case, restarts=2)
    try:
        return job.wait(RUN_SECONDS), job.history()
    except ClusterError as error:
        raise refuse_task(error) from None
    finally:
        job.stop()


def _train_worker(
    train: Any, root: str, seed: int, total: int, every: int, die_at: int
) -> np.ndarray:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    weights = tf.Variable(softmax.draw_weights(seed))
    step = tf.Variable(0, dtype=tf.int64)
    state = tf.train.Checkpoint(weights=weights, step=step)
    train(state, Run(strategy, state, Path(root), seed, die_at), total, every)
    return weights.numpy()


KILLED = Exercise(
    lab="lab09",
    name="killed",
    function="train",
    examples=((21, 7, 3, 5),),
    mistakes={
        "began-anew": "after the kill the run began at step 0 again: restore before the loop, and "
        "save within it",
        "counted-anew": "after the kill it took all steps once more on top of the restored ones: "
        "go on until state.step reaches the total",
        "chief-only": "worker 1 saved nothing into its own write_folder: every worker saves, each "
        "into its own",
        "position-lost": "the weights were restored and the step was not, so that it began at "
        "step 0 with trained weights: state holds both, save state itself",
        "saved-every-step": "it saved after every step: only every so many were asked for",
    },
    hint="what does the second attempt find, where does it begin, and where should it end?",
    tolerance=1e-5,
    shows_case=False,
    run=each(try_killed_run),
)


# ---- exercise 2: a checkpoint that was cut off


def try_newest(newest_whole: Callable[..., Any], seed: int, steps: Sequence[int], cut: str) -> str:
    """Write real checkpoints, damage the newest ("data", "index" or "" for none), ask for one."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        for step in steps:
            rng = np.random.default_rng([seed, step])
            low = 2048 if step == max(steps) else 0
            sizes = 4096 + rng.integers(low, 4096, size=2)  # so that the files' sizes say nothing,
            first, last = (tf.Variable(rng.normal(size=size)) for size in sizes)
            tf.train.Checkpoint(first=first, last=last).write(f"{folder}/ckpt-{step}")
        damaged = f"{folder}/ckpt-{max(steps)}"
        if cut == "index":
            os.unlink(damaged + ".index")
        if cut == "data":
            data = f"{damaged}.data-00000-of-00001"  # all of the first, not of the last:
            missing = 8 * int(rng.integers(64, sizes.sum() - 2 * 4096))  # as long as a whole one
            os.truncate(data, os.path.getsize(data) - missing)
        for path in Path(folder).glob("ckpt-*"):  # nor their times: the newest has the oldest
            seconds = 10**9 - int(path.name.split("-")[1].split(".")[0])
            os.utime(path, (seconds, seconds))
        return Path(str(newest_whole(folder))).name


NEWEST = Exercise(
    lab="lab09",
    name="newest",
    function="newest_whole",
    examples=((1, (2, 4, 6), "data"), (2, (3, 5, 7), "index"), (3, (8, 9, 10, 11), "data")),
    mistakes={
        "newest-by-name": "the newest is cut off: it has to be read before it is believed",
        "index-only": "an index file, or the first values, say nothing of the rest: read all",
        "oldest": "that one is whole, but one of a higher step is whole too (a file's time says "
        "nothing of its step)",
        "sorted-as-text": "sorted as text, 9 comes after 10: compare the numbers",
    },
    hint="which of the files in the folder can you trust before you have read all of them?",
    shows_case=False,
    run=each(try_newest),
)


# ---- exercises 3 and 4: the interval


INTERVAL = Exercise(
    lab="lab09",
    name="interval",
    function="best_interval",
    examples=((10.0, 7200.0), (60.0, 86400.0)),
    mistakes={
        "two-forgotten": "the 2 is missing: on average half an interval is lost, not a whole one",
        "halved": "the 2 belongs in the numerator",
        "outside": "the 2 stands under the root: outside, it makes the interval 1.4 times too long",
        "no-root": "the square root is missing: this is in seconds squared",
    },
    hint="compare with the example: what is missing, and are these seconds?",
    by_hand=("utils.simulate",),
)
LOSS = Exercise(
    lab="lab09",
    name="loss",
    function="lost_share",
    examples=((300.0, 10.0, 7200.0), (3600.0, 60.0, 86400.0)),
    mistakes={
        "whole-interval": "a failure comes anywhere in the interval: half of it is lost on average",
        "percent": "a share is asked for: 0.1 is a tenth, not 10",
        "failures-ignored": "only the writing was counted, not the work done twice",
        "checkpoints-ignored": "only the work done twice was counted, not the writing",
    },
    hint="write the two losses down one at a time: what is lost in each interval, and what in each "
    "failure?",
    by_hand=("utils.simulate",),
)
