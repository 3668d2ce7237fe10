"""Lab 09, fault tolerance: real workers, a real SIGKILL, real damaged checkpoints."""

import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.comparing import same
from distlab.exercises.exercise import Exercise, each
from distlab.exercises.feeding import Feed, Share, ask, run_fed
from distlab.exercises.refusing import refuse
from distlab.exercises.worker_runs import get_cluster
from distlab.labs import ANSWERS
from distlab.labs.lab08.exercise import RATE, draw_share

ABSENT = ANSWERS

BATCH = 16
WORKERS = 2


# ---- exercise 1: a killed run


class ResumableRun:
    """The argument of a learner's `train` besides its state: folders, and the step itself.

    `shared_folder` holds the checkpoints that count; `write_folder` is where this worker
    writes its own: the shared one on worker 0, another one elsewhere.
    """

    def __init__(self, strategy: Any, state: Any, root: Path) -> None:
        self.rank = strategy.cluster_resolver.task_id
        self.shared_folder = str(root / "shared")
        self.write_folder = self.shared_folder if self.rank == 0 else str(root / f"w{self.rank}")
        self._strategy, self._state, self._root = strategy, state, root

    def take_step(self) -> None:
        """Train on the batch of step number `state.step`, and add 1 to `state.step`."""
        import tensorflow as tf

        step = int(self._state.step)
        self._compare_steps(step)
        share = ask(self._root, step)
        images, labels = share["images"], share["labels"]
        slopes = softmax.slopes(images @ self._state.weights.numpy(), labels)
        part = tf.constant(images.T @ slopes / BATCH)
        gradient = self._strategy.reduce(tf.distribute.ReduceOp.SUM, part, axis=None)
        self._state.weights.assign_sub(RATE * gradient)
        self._state.step.assign_add(1)

    def _compare_steps(self, step: int) -> None:
        import tensorflow as tf

        total = self._strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(step), axis=None)
        if int(total) != WORKERS * step:
            raise AssertionError(
                f"All workers must resume at the same step, but worker {self.rank} is at step "
                f"{step} and the other one isn't. After a restart, restore on all of them from "
                "run.shared_folder, since a lost machine's own folder is gone."
            )


class KillingFeed(Feed):
    """Gives each worker its examples of a step when it asks for them, and kills worker 1 once.

    So this process knows which steps were taken: without asking, no worker has anything to train
    on. `steps` are those of worker 0, in order. Worker 1 is killed in step `die_at`, for which it
    gets nothing, once worker 0 has begun it, too. Its files go with it.
    """

    def __init__(self, root: Path, seed: int, die_at: int) -> None:
        super().__init__(root, partial(draw_share, seed, BATCH, WORKERS))
        self._die_at, self._dying = die_at, set[int]()
        self.steps: list[int] = []
        self.killed_in = 0  # the attempt

    def answer(self, job: Any, rank: int, step: int) -> Share | None:
        if rank == 0:
            self.steps.append(step)
        dies = step == self._die_at and not self.killed_in
        if dies:
            self._dying.add(rank)
        if len(self._dying) == WORKERS and not self.killed_in:
            self._kill(job)
        return None if dies and rank else super().answer(job, rank, step)

    def _kill(self, job: Any) -> None:
        self.killed_in = job.attempt
        if (self.root / "w1").exists():  # it starts on another machine, perhaps at once
            (self.root / "w1").rename(self.root / "w1-lost")
        job.kill("worker", 1)


def try_killed_run(
    train: Callable[..., Any], seed: int, total: int, every: int, die_at: int
) -> dict[str, Any]:
    """Run `train` on two workers, and kill one of them once, in step `die_at`.

    The group starts again, and worker 1 without the files of its lost machine. Returns the steps
    that worker 0 took, in order, how often the group started again, whether worker 1 saved the
    same weights into its own folder as worker 0, and the weights [784, 10] at the end.
    """
    root = Path(tempfile.mkdtemp())
    try:
        (root / "shared").mkdir()
        feed = KillingFeed(root, seed, die_at)
        what = (train, str(root), softmax.draw_weights(seed), total, every)
        found, attempts = run_fed(get_cluster(WORKERS), feed, _train_worker, *what, restarts=2)
        return {
            "steps taken": feed.steps,
            "restarts": attempts - feed.killed_in if feed.killed_in else 0,
            "worker 1 saved too": _hold_the_same(root / "shared", root),
            "weights": np.asarray(found[0]),
        }
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _hold_the_same(shared: Path, root: Path) -> bool:
    """Return whether worker 1 saved weights [784, 10], trained, that a shared checkpoint holds."""
    kept, own = _read_weights(shared, "**"), _read_weights(root, "w1*/**")
    return any(bool(np.any(w)) and np.allclose(w, k) for w in own for k in kept)


def _read_weights(folder: Path, below: str) -> list[np.ndarray]:
    """Return the weights [784, 10] of every checkpoint below a folder that can be read."""
    import tensorflow as tf

    found = []
    for index in folder.glob(f"{below}/*.index"):
        try:
            reader = tf.train.load_checkpoint(str(index.with_suffix("")))
            shapes = reader.get_variable_to_shape_map()
            found += [reader.get_tensor(n) for n, shape in shapes.items() if shape == [784, 10]]
        except (tf.errors.OpError, ValueError, RuntimeError):
            continue
    return found


def _train_worker(
    train: Any, root: str, first: np.ndarray, total: int, every: int
) -> list[list[float]]:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    weights = tf.Variable(first)
    state = tf.train.Checkpoint(weights=weights, step=tf.Variable(0, dtype=tf.int64))
    train(state, ResumableRun(strategy, state, Path(root)), total, every)
    return weights.numpy().tolist()


KILLED = Exercise(
    lab="lab09",
    name="killed",
    function="train",
    examples=((21, 7, 3, 5),),
    mistakes={
        "began-anew": "the second attempt began at step 0: restore before the loop, save within it",
        "counted-anew": "after the kill it took all steps once more on top of the restored "
        "ones: continue until state.step reaches the total",
        "chief-only": "every worker saves into its own write_folder: worker 1 saved nothing",
        "position-lost": "the weights were restored and the step wasn't, so that it began at "
        "step 0 with trained weights: state holds both, save state itself",
        "saved-every-step": "it saved after every step: save after every `every` steps",
    },
    hint="what does the second attempt find, where does it begin, and where should it end?",
    tolerance=1e-5,
    run=each(try_killed_run),
    travels=True,
    evidence="outside",
)


# ---- exercise 2: a checkpoint that was cut off


def try_newest(newest_whole: Callable[..., Any], seed: int, steps: Sequence[int], cut: str) -> str:
    """Write real checkpoints, damage the newest as `cut` says, and ask for one.

    "data": the data file is cut off; "block": some bytes in its first half are wrong; "index": the
    index file is missing; "": nothing is damaged.
    """
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        for step in steps:
            rng = np.random.default_rng([seed, step])
            low = 2048 if step == max(steps) else 0
            sizes = 4096 + rng.integers(low, 4096, size=2)  # so that the files' sizes say nothing,
            # any 8 bytes are such a number, so damage doesn't look like it
            first, last = (tf.Variable(rng.integers(-(2**63), 2**63, n, int)) for n in sizes)
            tf.train.Checkpoint(first=first, last=last).write(f"{folder}/ckpt-{step}")
        damaged = f"{folder}/ckpt-{max(steps)}"
        if cut == "index":
            os.unlink(damaged + ".index")
        if cut == "data":
            data = f"{damaged}.data-00000-of-00001"  # all of the first, not of the last:
            missing = 8 * int(rng.integers(64, sizes.sum() - 2 * 4096))  # as long as a whole one
            os.truncate(data, os.path.getsize(data) - missing)
        if cut == "block":
            with open(f"{damaged}.data-00000-of-00001", "r+b") as file:
                file.seek(8 * int(rng.integers(64, 4000)))
                file.write(rng.bytes(64))
        for path in Path(folder).glob("ckpt-*"):  # nor their times: the newest has the oldest
            seconds = 10**9 - int(path.name.split("-")[1].split(".")[0])
            os.utime(path, (seconds, seconds))
        with _reading(cut):
            found = Path(str(newest_whole(folder)))
        if found.parent != Path(folder) and found.name.startswith("ckpt-"):
            raise refuse(f"newest_whole must return the path folder/{found.name}, with its folder.")
        return found.name


@contextmanager
def _reading(cut: str) -> Iterator[None]:
    """Explain an error with which TensorFlow's reader stops an answer at a damaged data file."""
    import tensorflow as tf

    try:
        yield
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lost = cut not in ("data", "block") or isinstance(error, tf.errors.NotFoundError)
        if lost or "tensorflow" not in Path(frames[-1].filename).parts:
            raise
        kind = type(error).__name__
        raise refuse(
            f"Reading a damaged file stopped with {kind}, and newest_whole with it. Damage shows "
            "as errors of several kinds: catch Exception, and try the next lower step."
        ) from None


NEWEST = Exercise(
    lab="lab09",
    name="newest",
    function="newest_whole",
    examples=(
        (1, (2, 4, 6), "data"),
        (2, (3, 5, 7), "index"),
        (3, (8, 9, 10, 11), ""),
        (4, (1, 2, 3), "block"),
    ),
    mistakes={
        "newest-by-name": "the newest is damaged: read it before you believe it",
        "index-only": "an index file, or a file's size, says nothing about the values: read them",
        "first-values": "the first values are there, and later ones are cut off: read all of them",
        "last-values": "the last values are there, and a block before them is damaged: read all",
        "oldest": "that one is whole, but one of a higher step is whole too (a file's time says "
        "nothing of its step)",
        "never-the-newest": "here the newest is intact: leave it out only if it can't be read",
        "sorted-as-text": "sorted as text, 9 comes after 10: compare the numbers",
    },
    hint="which of the files in the folder can you trust before you have read all of them?",
    run=each(try_newest),
    travels=True,
    evidence="result",
)


# ---- exercise 3: the interval


def explain_choice(case: Sequence[Any], got: Any, right: Any) -> str:
    """Return what is wrong with a choice that doesn't follow from the right seconds, else ""."""
    if not same(got.get("seconds"), right["seconds"]):
        return ""
    return "the seconds are right: the best candidate is the one with the fewest of them"


_TIMES = (40, 10.0, 12.0, 45.0)  # steps; seconds of a step, of a save and of a restart
_CALM, _STORM = (233.0, 705.5), (61.0, 190.5, 213.0, 402.25, 660.5)
INTERVAL = Exercise(
    lab="lab09",
    name="interval",
    function="choose_every",
    examples=(
        ((3, 5, 20), ((), _CALM, _STORM), *_TIMES),
        ((5,), ((), (57.5,), (57.5, 80.0)), *_TIMES),
        ((1, 4, 8, 40), (_STORM,), *_TIMES),
    ),
    mistakes={
        "save-free": "saving takes time too, after every interval",
        "restart-free": "after a failure the restart takes time, before anything is done again",
        "unfinished-save": "a failure during a save spoils that checkpoint: the one before counts",
        "nothing-lost": "after a failure, what was done since the last checkpoint is done again",
        "all-lost": "after a failure the run resumes from its last checkpoint, not from the start",
        "restart-added": "a failure during a restart makes it begin anew at once, not later",
        "histories-emptied": "the first candidate used up the failures: copy each history",
        "place": "this is the candidate's place in the list: return the candidate",
        "restart-safe": "a failure can come during a restart too, and then the restart begins anew",
        "saved-at-the-end": "the run is finished with its last step: nothing is saved after it",
        "failures-added": "failures come at times on the clock: one that comes after the run has "
        "ended costs nothing, and one that comes early in an interval costs little",
        "summed": "these are the seconds of all histories together: divide by their number",
        "worst-case": "these are the seconds of the worst history: take the mean over all of them",
        "median": "take the mean over the histories, not the median",
    },
    hint="replay one run with a clock: what is under way, when will it end, and does a failure "
    "come before that?",
    explain=explain_choice,
    shows_case=False,
    by_hand=("utils.simulate",),
)
