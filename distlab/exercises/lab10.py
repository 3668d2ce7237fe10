"""Lab 10, parameter servers: real coordinators, workers and servers; staleness counted by hand."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from distlab.exercises.checking import make_check, read_number, refuse_task

WORKERS, SERVERS = 2, 3
RUN_SECONDS = 90.0
Event = tuple[str, int]  # ("read" or "apply", number of the closure)


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

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self.scheduled = self.joined = 0

    def schedule(self, function: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Hand one call to a worker; return its result-to-be at once."""
        self.scheduled += 1
        return self._coordinator.schedule(function, args=args, kwargs=kwargs)

    def join(self) -> None:
        """Wait until all that was scheduled is done."""
        self.joined += 1
        self._coordinator.join()

    def fetch(self, value: Any) -> Any:
        """Return the values of results."""
        return self._coordinator.fetch(value)

    def done(self) -> bool:
        """Return whether nothing is under way."""
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
    coordinator = Coordinator(coordination.coordinator)
    total = run_closures(coordinator, closure, count)
    return {
        "scheduled": coordinator.scheduled,
        "joined": coordinator.joined,
        "sum": read_number(total, "run_closures"),
    }


def draw_values(seed: int, count: int) -> np.ndarray:
    """Return what the closures return, in the order in which they are run."""
    return np.round(np.random.default_rng(seed).uniform(1, 9, size=count), 3)


def expect_closures(seed: int, count: int, way: str = "right") -> dict[str, Any]:
    """Return what `try_closures` should find, or finds for the mistake `way`."""
    values = draw_values(seed, 4 * count + 4)
    scheduled = {"ran-here": 0, "one-too-few": count - 1}.get(way, count)
    ran = count - 1 if way == "one-too-few" else count
    joined = {"joined-each-time": count, "never-joined": 0, "ran-here": 0}.get(way, 1)
    total = values[:ran].sum() / (ran if way == "averaged" else 1)
    return {"scheduled": scheduled, "joined": joined, "sum": float(total)}


# ---- exercise 2: where a table lies


def try_partitioner(make_partitioner: Callable[..., Any], rows: int) -> list[list[int]]:
    """Make a table of so many rows under the partitioner; return [rows, server] of each piece."""
    return run_on_coordinator(_place, make_partitioner, rows)


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


def expect_partitioner(rows: int, way: str = "right") -> list[list[int]]:
    """Return what `try_partitioner` should find, or finds for the mistake `way`."""
    pieces = {"not-cut": 1, "twice-as-many": 2 * SERVERS, "one-too-few": SERVERS - 1}
    count = pieces.get(way, SERVERS)
    sizes = [rows // count + (k < rows % count) for k in range(count)]
    return [[size, k % SERVERS] for k, size in enumerate(sizes)]


# ---- exercises 3 and 4: staleness


def draw_events(seed: int, workers: int, updates: int) -> list[Event]:
    """Return what closures did, in order: each reads, and applies its update later."""
    rng = np.random.default_rng(seed)
    events: list[Event] = []
    under_way: list[int] = []
    started = 0
    while started < updates or under_way:
        may_start = started < updates and len(under_way) < workers
        if may_start and (not under_way or rng.random() < 0.6):
            events.append(("read", started))
            under_way.append(started)
            started += 1
        else:
            done = under_way.pop(int(rng.integers(len(under_way))))
            events.append(("apply", done))
    return events


def expect_staleness(events: Sequence[Event], way: str = "right") -> list[int]:
    """Return the staleness of each update, by closure, or what a mistake gives."""
    position = {event: k for k, event in enumerate(events)}
    closures = sorted(number for kind, number in events if kind == "apply")
    kind = "read" if way == "reads-counted" else "apply"
    found = []
    for number in closures:
        first, last = position["read", number], position["apply", number]
        between = [what for what, _ in events[first + 1 : last] if what == kind]
        before = [what for what, _ in events[:last] if what == "apply"]
        count = len(before) if way == "since-the-start" else len(between)
        found.append(count + (way == "itself-counted"))
    return found


def expect_start(own: int, clocks: Sequence[int], bound: int, way: str = "right") -> bool:
    """Return whether a worker may begin its next step, or what a mistake says."""
    if way == "behind-the-fastest":
        return max(clocks) - own <= bound
    if way == "never-equal":
        return own - min(clocks) < bound
    if way == "mean":
        return own - sum(clocks) / len(clocks) <= bound
    return own - min(clocks) <= bound


def _tuples(events: Sequence[Sequence[Any]]) -> tuple[Event, ...]:
    return tuple((str(kind), int(number)) for kind, number in events)


_EVENTS = (
    _tuples([("read", 0), ("read", 1), ("apply", 1), ("read", 2), ("apply", 2), ("apply", 0)]),
    _tuples([("read", 0), ("apply", 0), ("read", 1), ("read", 2), ("apply", 1), ("apply", 2)]),
)
_STARTS = (
    (3, (3, 1, 2), 2), (4, (4, 1, 2), 2), (2, (2, 7, 5), 1), (5, (5, 3, 5), 2), (4, (4, 2, 9), 1),
)  # fmt: skip
CLOSURES = make_check(
    ("lab10", "closures", "run_closures"),
    ((1, 6),),
    expect_closures,
    {
        "ran-here": "the closure was called here, on the coordinator: schedule hands it to a "
        "worker",
        "one-too-few": "one closure too few was scheduled",
        "joined-each-time": "it waited after each closure, so that the workers took turns: "
        "schedule all, then join once",
        "never-joined": "it never waited for all to be done: join once, after the last",
        "averaged": "the sum of the results is wanted, not their mean",
    },
    hint="schedule all, join once, fetch the results and add them up",
)
PARTITIONER = make_check(
    ("lab10", "partitioner", "make_partitioner"),
    ((10,),),
    expect_partitioner,
    {
        "not-cut": "the table was not cut: all of it lies on server 0",
        "twice-as-many": "there are twice as many pieces as servers",
        "one-too-few": "one server holds nothing: as many pieces as servers",
    },
    hint="as many pieces as servers, of rows, as equal as can be",
)
STALENESS = make_check(
    ("lab10", "staleness", "measure_staleness"),
    tuple((events,) for events in _EVENTS),
    expect_staleness,
    {
        "itself-counted": "an update is not stale by itself: only the others' count",
        "reads-counted": "reading changes nothing: count what was applied",
        "since-the-start": "only what was applied after this closure had read counts",
    },
    hint="for each closure: the updates applied between its read and its own apply",
)
START = make_check(
    ("lab10", "start", "may_start"),
    _STARTS,
    expect_start,
    {
        "behind-the-fastest": "the fastest worker must wait for the slowest, not the other way "
        "round: compare with the smallest clock",
        "never-equal": "exactly `bound` steps ahead is still allowed",
        "mean": "the slowest worker decides, not the mean",
    },
    hint="own clock minus the smallest clock, at most the bound",
)


def check_closures(run_closures: Callable[..., Any]) -> None:
    """Try `run_closures` on a real coordinator; AssertionError names the mistake."""
    CLOSURES.verify([try_closures(run_closures, *example) for example in CLOSURES.examples])


def check_partitioner(make_partitioner: Callable[..., Any]) -> None:
    """Try `make_partitioner` with three real servers."""
    examples = PARTITIONER.examples
    PARTITIONER.verify([try_partitioner(make_partitioner, *example) for example in examples])


def check_staleness(answers: Sequence[Any]) -> None:
    """Compare `measure_staleness` of each of `STALENESS.examples`."""
    STALENESS.verify(answers)


def check_start(answers: Sequence[Any]) -> None:
    """Compare `may_start` of each of `START.examples`."""
    START.verify(answers)
