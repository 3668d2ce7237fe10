"""Lab 10, parameter servers: real coordinators, workers and servers; staleness of made-up runs."""

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from distlab.exercises.closure_events import draw_events
from distlab.exercises.comparing import show
from distlab.exercises.exercise import Exercise, each
from distlab.exercises.refusing import read_number, refuse, refuse_task

WORKERS, SERVERS = 2, 3
RUN_SECONDS = 90.0
TENSORFLOWS_THREADS = "WorkerClosureProcessingLoop"


@cache
def get_cluster() -> Any:
    """Return the LocalCluster of two workers and three servers that the exercises share."""
    from utils.cluster import LocalCluster

    return LocalCluster(workers=WORKERS, ps=SERVERS)


def run_on_coordinator(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run `function` on the coordinator; AssertionError with what went wrong there."""
    from utils.cluster.failures import ClusterError

    try:
        return get_cluster().run(function, *arguments, timeout=RUN_SECONDS, echo=False)
    except ClusterError as error:
        raise refuse_task(error) from None


# ---- exercise 1: closures


class Coordinator:
    """A `ClusterCoordinator` that counts what is asked of it: schedule, join, fetch, done."""

    def __init__(self, coordinator: Any, closure: Any) -> None:
        self._coordinator, self._closure = coordinator, closure
        self._scheduled = self._joined = self._before_join = 0
        self._before_first_look: int | None = None  # closures scheduled by then

    def schedule(self, function: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Hand one call to a worker; return its result-to-be at once."""
        if function is not self._closure:
            raise refuse(
                "schedule the closure itself, as it was given: coordinator.schedule(closure)"
            )
        self._scheduled += 1
        result = self._coordinator.schedule(function, args=args, kwargs=kwargs)
        for name in ("fetch", "get"):
            setattr(result, name, self._note_fetch(getattr(result, name)))
        return result

    def _note_fetch(self, fetch: Callable[[], Any]) -> Callable[[], Any]:
        def noting() -> Any:
            # TensorFlow's own threads fetch each result as soon as it is there
            if not threading.current_thread().name.startswith(TENSORFLOWS_THREADS):
                self._note_look()
            return fetch()

        return noting

    def _note_look(self) -> None:
        if self._before_first_look is None:
            self._before_first_look = self._scheduled

    def join(self) -> None:
        """Wait until all that was scheduled is done."""
        self._joined, self._before_join = self._joined + 1, self._scheduled
        self._coordinator.join()

    def fetch(self, value: Any) -> Any:
        """Return the values of results."""
        return self._note_fetch(lambda: self._coordinator.fetch(value))()

    def done(self) -> bool:
        """Return whether nothing is under way."""
        self._note_look()
        return self._coordinator.done()


def try_closures(run_closures: Callable[..., Any], seed: int, count: int) -> dict[str, Any]:
    """Let `run_closures` run on a real coordinator; return what it asked for, and its sum."""
    return run_on_coordinator(_coordinate, run_closures, seed, count)


def _coordinate(run_closures: Callable[..., Any], seed: int, count: int) -> dict[str, Any]:
    import tensorflow as tf

    from distlab.lessons.stale_updates import Tickets
    from utils.training.parameter_server.coordination import connect

    coordination = connect(min_shard_bytes=0)
    tickets = Tickets(coordination.strategy)
    values = tf.constant(draw_values(seed, 4 * count + 4))
    closure = tf.function(lambda: tf.gather(values, tickets.draw()))
    coordinator = Coordinator(coordination.coordinator, closure)
    total = run_closures(coordinator, closure, count)
    return {
        "scheduled": coordinator._scheduled,
        "joined": coordinator._joined * (coordinator._before_join == coordinator._scheduled),
        "scheduled before the first fetch": coordinator._before_first_look,
        "closures run": int(tickets.variable.numpy()),
        "sum": read_number(total, "run_closures"),
    }


def draw_values(seed: int, count: int) -> np.ndarray:
    """Return what the closures return, in the order in which they are run."""
    return np.round(np.random.default_rng(seed).uniform(1, 9, size=count), 3)


CLOSURES = Exercise(
    lab="lab10",
    name="closures",
    function="run_closures",
    examples=((1, 6),),
    mistakes={
        "ran-here": "the closure was called here, on the coordinator: schedule hands it to a "
        "worker",
        "one-too-few": "one closure too few was scheduled",
        "fetched-in-loop": "each result was fetched before the next closure was scheduled, so that "
        "the workers took turns: schedule all, then join, then fetch",
        "joined-each-time": "it waited after each closure, so that the workers took turns: "
        "schedule all, then join once",
        "never-joined": "it never waited for all to be done: join once, after the last",
        "averaged": "return the sum of the results, not their mean",
    },
    hint="what are the other workers doing while your loop stands at this line?",
    shows_case=False,
    run=each(try_closures),
)


# ---- exercise 2: where a table lies


def try_partitioner(make_partitioner: Callable[..., Any], rows: int) -> dict[str, Any]:
    """Make a table of so many rows under the partitioner; return [rows, server] of each piece.

    And into how many pieces the partitioners for 2 and for 5 servers would cut it.
    """
    counts = [_count_pieces(make_partitioner(n), rows) for n in (2, 5)]
    return {
        "rows and server of each piece": run_on_coordinator(_place, make_partitioner, rows),
        "pieces for 2 and 5 servers": counts,
    }


def _count_pieces(partitioner: Any, rows: int) -> int:
    import tensorflow as tf

    if partitioner is None:
        return 1
    cuts = partitioner(shape=tf.TensorShape([rows, 4]), dtype=tf.float32)
    if not isinstance(cuts, list | tuple) or len(cuts) != 2:
        raise refuse(
            "a partitioner returns how many pieces there are along each axis, as [3, 1] for a "
            f"table in three pieces of rows; this one returned {show(cuts)}"
        )
    return int(cuts[0])


def _place(make_partitioner: Callable[..., Any], rows: int) -> list[list[int]]:
    import tensorflow as tf

    from utils.training.parameter_server.variables import describe_pieces

    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver(),
        variable_partitioner=make_partitioner(SERVERS),
    )
    with strategy.scope():
        table = tf.Variable(tf.zeros([rows, 4]), name="table")
    return [[piece.rows, piece.server] for piece in describe_pieces([table])]


PARTITIONER = Exercise(
    lab="lab10",
    name="partitioner",
    function="make_partitioner",
    examples=((10,),),
    mistakes={
        "not-cut": "the table was not cut: all of it lies on server 0",
        "twice-as-many": "there are twice as many pieces as servers",
        "one-too-few": "one server holds nothing: as many pieces as servers",
        "fixed-number": "three pieces for any number of servers: use the argument",
    },
    hint="as many pieces as servers, of rows, as equal as can be",
    shows_case=False,
    run=each(try_partitioner),
)


# ---- exercises 3 and 4: staleness


def try_staleness(measure_staleness: Callable[..., Any], *case: int) -> Any:
    """Return what `measure_staleness` says of the events that `draw_events(*case)` gives."""
    return measure_staleness(draw_events(*case))


STALENESS = Exercise(
    lab="lab10",
    name="staleness",
    function="measure_staleness",
    examples=((1, 2, 3), (2, 2, 3)),
    mistakes={
        "itself-counted": "an update is not stale by itself: only the others' count",
        "reads-counted": "reading changes nothing: count what was applied",
        "since-the-start": "only what was applied after this closure had read counts",
        "everything-counted": "a read of another closure makes nothing stale: of what lies between "
        "this closure's read and its apply, count the applies",
        "as-applied": "the list is in the order in which the updates were applied: it goes by the "
        "closures' numbers, 0 first",
    },
    hint="take closure 0 of the example: which updates came after its read and before its apply?",
    shows_case=False,
    run=each(try_staleness),
    plain=True,
)
START = Exercise(
    lab="lab10",
    name="start",
    function="may_start",
    examples=(
        (3, (3, 1, 2), 2),
        (4, (4, 1, 2), 2),
        (2, (2, 7, 5), 1),
        (5, (5, 3, 5), 2),
        (4, (4, 2, 9), 1),
        (9, (9, 0, 0), 2),
        (0, (0, 6, 6), 1),
        (2, (2, 1, 5), 2),
    ),
    mistakes={
        "behind-the-fastest": "the fastest worker must wait for the slowest, not the other way "
        "round: compare with the smallest clock",
        "never-equal": "exactly `bound` steps ahead is still allowed",
        "mean": "the slowest worker decides, not the mean",
        "spread": "that is how far the fastest is ahead: the worker that asks may be another one",
        "always": "a worker that is too far ahead of the slowest waits",
        "never": "a worker that is not too far ahead of the slowest may go on",
        "only-the-slowest": "not only the slowest may start: up to the bound, others may run ahead",
    },
    hint="say in words who has to wait for whom, then compare two clocks",
)
