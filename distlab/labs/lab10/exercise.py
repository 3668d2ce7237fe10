"""Lab 10, parameter servers: training that loses a server and a worker; staleness and its bound."""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises.closure_events import draw_events
from distlab.exercises.comparing import show
from distlab.exercises.exercise import Exercise, each
from distlab.exercises.feeding import Feed, Share
from distlab.exercises.refusing import read_array, refuse, refuse_task
from distlab.exercises.saves import Saves
from distlab.exercises.worker_runs import get_cluster, run_on
from utils.cluster.warm_launcher import can_fork

# of the library: what holds an answer to one of these exercises; answers don't have it
ABSENT = (
    "utils.simulate",
    "utils.calibrate",
    "utils.parallel",
    "utils.training.loops",
    "utils.training.step",
)

WORKERS, SERVERS = 2, 3
RUN_SECONDS = 90.0


# ---- exercise 1: training that survives


FEATURES, BATCH, SAVES_BEFORE, SAVES_AFTER = 8, 16, 6, 2


def draw_truth(seed: int) -> np.ndarray:
    """Return the weights [8] that made the examples."""
    rng = np.random.default_rng(seed)
    return np.round(rng.uniform(1, 3, size=FEATURES) * rng.choice([-1, 1], size=FEATURES), 3)


def find_sizes(done: int) -> np.ndarray:
    """Return each feature's standard deviation in the run that begins after `done` updates.

    In the second run it is 0 for half of them: their weights are in the first one's checkpoint
    alone. 1.5 is enough for weights that lose every other update to the other worker's.
    """
    return np.where(np.arange(FEATURES) < FEATURES // (2 if done else 1), 1.5, 0).astype(np.float32)


def draw_batch(seed: int, done: int, rank: int, step: int) -> Share:
    """Return a worker's batch in the run that begins after `done` updates, without noise.

    Features float32 [16, 8] and their targets [16].
    """
    features = np.random.default_rng([seed, done, rank, step]).normal(size=(BATCH, FEATURES))
    features *= find_sizes(done)
    targets = features @ draw_truth(seed)
    return {"features": features.astype(np.float32), "targets": targets.astype(np.float32)}


def make_batches(root: str, truth: Sequence[float], done: int) -> Any:
    """Return an endless data set of features [16, 8] and targets [16].

    Workers ask for each batch, unless they were given the `truth`.
    """
    import tensorflow as tf

    from distlab.exercises.drawn_batches import make_drawn_batches

    if not truth:
        return make_drawn_batches(root, BATCH, FEATURES)
    sizes = find_sizes(done)
    data = tf.data.Dataset.counter().map(lambda _: sizes * tf.random.normal([BATCH, FEATURES]))
    return data.map(lambda features: (features, tf.linalg.matvec(features, truth)))


class DrawnFeed(Feed):
    """Counts the batches that workers have drawn in a run that begins after `done` updates.

    `is_enough` says whether each update of the checkpoints had its batch, when they came. Workers
    that aren't forked from a warm process can't ask, and are believed.
    """

    def __init__(self, folder: Path, seed: int, done: int) -> None:
        super().__init__(Path(tempfile.mkdtemp(dir=folder.parent)), partial(draw_batch, seed, done))
        self._done, self._drawn, self.is_enough = done, 0 if can_fork() else math.inf, True
        self.saves = Saves(folder)
        truth = () if can_fork() else tuple(draw_truth(seed))
        self.what = str(self.root), truth, done, str(folder)

    def answer(self, job: Any, rank: int, step: int) -> Share | None:
        self._drawn += 1
        return super().answer(job, rank, step)

    def look(self) -> int:
        """Return the updates of the newest checkpoint that was written in this run, or 0."""
        newest = max(self.saves.look(), default=0)
        self.is_enough &= newest - self._done <= self._drawn
        return newest


def try_train(train: Callable[..., Any], seed: int, every: int) -> dict[str, Any]:
    """Run `train` twice: until a parameter server is killed, then on a new cluster to its end.

    In the second run a worker is killed. Returns the steps of the checkpoints that each wrote,
    whether there was a batch for each update, how many steps the second was to reach, and its
    weights.
    """
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root, "checkpoints")
        folder.mkdir()
        first, wanted = DrawnFeed(folder, seed, 0), SAVES_BEFORE * every
        _kill_when(train, first, 1_000_000, every, wanted, "ps", 0)
        done, before = first.look(), first.saves.look()
        if done < wanted:
            raise refuse(
                f"After {RUN_SECONDS:.0f} s there was no checkpoint of step {wanted} in folder. "
                "Save after every `every` steps, with the number of steps in the files' names."
            )
        later, steps = DrawnFeed(folder, seed, done), done + SAVES_AFTER * every
        weights = _kill_when(train, later, steps, every, 1, "worker", 1, last=True)
        later.look()
        return {
            "before": before,
            "after": later.saves.look(),
            "batches": first.is_enough and later.is_enough,
            "steps": steps,
            "weights": weights,
        }


def _kill_when(
    train: Any,
    feed: DrawnFeed,
    steps: int,
    every: int,
    wanted: int,
    kind: str,
    index: int,
    last: bool = False,
) -> list[float] | None:
    """Train, and kill a task once a checkpoint of step `wanted` or later is there.

    Returns the job's result, if it is the `last`.
    """
    from utils.cluster.failures import ClusterError

    job = get_cluster(WORKERS, SERVERS).start(_train_here, train, *feed.what, steps, every)
    deadline, killed = time.monotonic() + RUN_SECONDS, False
    try:
        with feed.feeding(job):
            while not (job.finished or killed) and time.monotonic() < deadline:
                time.sleep(0.005)  # from one save to the next it may be 50 ms
                if feed.look() >= wanted:
                    job.kill(kind, index)
                    killed = True
            if not (last or job.finished or killed):
                return None
            return job.wait(max(deadline - time.monotonic(), 20))
    except ClusterError as error:
        if killed and not last:  # the run ends with its server
            return None
        raise refuse_task(error) from None


def _train_here(
    train: Any, root: str, truth: Sequence[float], done: int, *given: Any
) -> list[float]:
    import tensorflow as tf

    from utils.training.parameter_server.coordination import connect

    found = connect(min_shard_bytes=0)
    # AutoGraph would take longer to read what makes the data set than the workers to train
    make = tf.autograph.experimental.do_not_convert(partial(make_batches, root, truth, done))
    weights = train(found.strategy, found.coordinator, make, *given)
    array = read_array(weights, "train", "an array of weights")
    if array.shape != (FEATURES,):
        raise refuse(f"train must return the weights [{FEATURES}], got {list(array.shape)}.")
    if not np.isfinite(array).all():
        raise refuse(
            "The weights that train returned aren't finite: the updates grew without bound. Each "
            f"one subtracts 0.02 times the gradient of the mean of the {BATCH} squared errors."
        )
    return array.tolist()


def describe_training(found: Any, seed: int, every: int) -> dict[str, Any]:
    """Return what the files of two runs say, and the weights at the end."""
    before, after = found["before"], found["after"]
    return {
        "a batch for each update": found["batches"],
        "checkpoints at multiples of every": not any(step % every for step in (*before, *after)),
        # the last one may be half written when the server dies, and is written again then
        "resumed from a checkpoint": bool(after) and min(after) >= max(before),
        "ended at": _compare_steps(max(after, default=0), found["steps"]),
        "weights": found["weights"],
    }


def _compare_steps(last: int, wanted: int) -> str:
    if last == wanted:
        return "the number of steps"
    return "fewer" if last < wanted else "more"


TRAIN = Exercise(
    lab="lab10",
    name="train",
    function="train",
    examples=((11, 20),),
    mistakes={
        "began-anew": "after the server was lost, the run began at step 0 again: restore the "
        "newest checkpoint, weights and step, before anything is scheduled",
        "counted-anew": "it took more than `steps` steps: the restored ones count, too",
        "too-few-steps": "it stopped before `steps`: train on until that many steps are done, and "
        "save after the last ones too",
        "other-steps": "a checkpoint comes after every `every` steps, and its files' names have "
        "the number of steps done",
        "too-few-batches": "a checkpoint's name says more updates than the workers have drawn "
        "batches: one closure is one update and takes the next batch on its worker, and a save has "
        "to wait for all of them (join)",
        "nothing-trained": "the weights are still zeros: is the update applied to the variables on "
        "the servers, in the closures?",
        "weights-forgotten": "these aren't the true weights: checkpoint them along with the step, "
        "and take the gradient of the mean of the 16 squares, at learning rate 0.02",
    },
    hint="which steps do the files in folder name, and what does a second call do first?",
    tolerance=0.05,
    run=each(try_train),
    read=describe_training,
    travels=True,
)


# ---- exercise 2: the servers of a table's pieces


def try_partitioner(make_partitioner: Callable[..., Any], rows: int) -> dict[str, Any]:
    """Make a table of `rows` rows under the partitioner; return [rows, server] of each piece.

    And into how many pieces the partitioners for 2 and for 5 servers would cut it.
    """
    cluster = get_cluster(WORKERS, SERVERS)
    return run_on(cluster, _place, make_partitioner, rows, seconds=RUN_SECONDS)


def _count_pieces(partitioner: Any, rows: int) -> int:
    import tensorflow as tf

    if partitioner is None:
        return 1
    if not callable(partitioner) or isinstance(partitioner, type):
        raise refuse(
            "make_partitioner must return a partitioner made for that many servers, which is "
            f"called with a shape and a dtype, got {show(partitioner)}."
        )
    cuts = partitioner(shape=tf.TensorShape([rows, 4]), dtype=tf.float32)
    if not isinstance(cuts, list | tuple) or len(cuts) != 2:
        raise refuse(
            "The partitioner must return the number of pieces along each axis, such as [3, 1] for "
            f"a table in three pieces of rows, got {show(cuts)}."
        )
    return int(cuts[0])


def _place(make_partitioner: Callable[..., Any], rows: int) -> dict[str, Any]:
    """On the coordinator: cut the table, and say where its pieces are."""
    import tensorflow as tf

    from utils.training.parameter_server.variables import describe_pieces

    counts = [_count_pieces(make_partitioner(n), rows) for n in (2, 5)]
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver(),
        variable_partitioner=make_partitioner(SERVERS),
    )
    with strategy.scope():
        table = tf.Variable(tf.zeros([rows, 4]), name="table")
    return {
        "rows and server of each piece": [[p.rows, p.server] for p in describe_pieces([table])],
        "pieces for 2 and 5 servers": counts,
    }


PARTITIONER = Exercise(
    lab="lab10",
    name="partitioner",
    function="make_partitioner",
    examples=((10,),),
    mistakes={
        "not-cut": "the table wasn't cut, so all of it is on server 0. A partitioner that goes by "
        "bytes leaves a table this small whole",
        "twice-as-many": "there are twice as many pieces as servers",
        "one-too-few": "one server holds nothing: as many pieces as servers",
        "fixed-number": "three pieces for any number of servers: use the argument",
    },
    hint="as many pieces as servers, of rows, as equal as can be",
    run=each(try_partitioner),
    travels=True,
)


# ---- exercises 3 and 4: staleness, and a bound


def try_staleness(measure_staleness: Callable[..., Any], *case: int) -> Any:
    """Return what `measure_staleness` says of the events that `draw_events(*case)` gives."""
    return measure_staleness(draw_events(*case))


STALENESS = Exercise(
    lab="lab10",
    name="staleness",
    function="measure_staleness",
    examples=((1, 2, 4), (2, 2, 3)),
    mistakes={
        "itself-counted": "an update doesn't make itself stale: only the others' count",
        "reads-counted": "reading changes nothing: count what was applied",
        "since-the-start": "only what was applied after this closure had read counts",
        "everything-counted": "a read of another closure makes nothing stale: of what lies between "
        "this closure's read and its apply, count the applies",
        "version-read": "these are the updates before its read: count the ones after it",
        "still-open": "these are the closures at work at its read. Count the updates applied since "
        "then, by closures that began later too",
        "as-applied": "the list is in the order that the updates were applied: it goes by the "
        "closures' numbers, 0 first",
    },
    hint="take closure 0 of the example: which updates came after its read and before its apply?",
    run=each(try_staleness),
    plain=True,
)
BOUND = Exercise(
    lab="lab10",
    name="bound",
    function="run_bounded",
    examples=(
        (((1.0, 1.0, 1.0, 1.0), (3.0, 3.0, 3.0, 3.0)), 1),
        (((1.0, 1.0, 1.0, 1.0), (3.0, 3.0, 3.0, 3.0)), 0),
        (((2.0, 1.0, 1.0, 6.0, 1.0), (1.0, 5.0, 1.0, 1.0, 1.0), (2.5, 2.5, 2.5, 2.5, 2.5)), 2),
        (((1.0, 1.0, 6.0, 1.0), (4.0, 3.0, 1.0, 4.0), (2.5, 2.0, 1.5, 3.0)), 0),
    ),
    mistakes={
        "never-waited": "a worker that is more than `bound` steps ahead of the slowest waits (if "
        "you compare with the fastest one, nobody ever does)",
        "one-less": "exactly `bound` steps ahead is still allowed",
        "one-more": "a worker that is already more than `bound` steps ahead may not begin another",
        "barrier": "this is a barrier after every `bound` + 1 steps. A worker waits only while "
        "it's more than `bound` steps ahead of the slowest",
        "always-synchronous": "this is bound 0: a worker may be up to `bound` steps ahead",
        "not-delayed": "a step that had to wait also ends later, and delays the worker's next ones",
        "last-wait": "only the last wait is there: add up what each worker waits",
        "neighbor": "all workers count: the slowest may be any of them",
        "end-without-waiting": "that is the busiest worker's work: the last one to end waited, too",
        "end-of-the-first": "the run ends when the last worker has done its last step",
        "busy-as-waiting": "waiting is the time when a worker may not begin its next step. It "
        "includes neither its work nor what comes after its last step",
    },
    hint="when may worker w begin step k? It has done its step before, and all have done k - bound",
    tolerance=1e-6,
)
