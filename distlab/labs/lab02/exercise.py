"""Lab 02, strategy API: answers are run on real replicas."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from distlab.exercises.exercise import Exercise, each
from distlab.exercises.refusing import (
    own_frames,
    read_array,
    read_number,
    refuse,
    require_kind,
    require_value,
)

Parts = Sequence[Sequence[float]]


@cache
def make_mirrored(replicas: int) -> Any:
    """Return a MirroredStrategy with so many replicas on logical CPU devices, made once."""
    from utils.devices import use_logical_devices
    from utils.strategies import make_strategy

    use_logical_devices(4)
    return make_strategy("mirrored", replicas)


def spread(strategy: Any, parts: Parts) -> Any:
    """Return per-replica values: replica k holds `parts[k]` as a float64 tensor."""
    import tensorflow as tf

    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(parts[context.replica_id_in_sync_group], tf.float64)
    )


def read_copies(strategy: Any, value: Any) -> list[list[float]]:
    """Return what each replica's copy of `value` holds, one list of numbers a copy."""
    copies = strategy.experimental_local_results(value)
    return [np.asarray(copy, dtype=float).ravel().tolist() for copy in copies]


def try_variable(make_variable: Callable[..., Any], start: float, numbers: Sequence[float]) -> Any:
    """Make the variable for as many replicas as `numbers`, let replica k add `numbers[k]`.

    Returns what each copy of it then holds, [copy].
    """
    import tensorflow as tf

    strategy = make_mirrored(len(numbers))
    variable = make_variable(strategy, start)
    require_kind(variable, "make_variable", "tf.Variable")
    kind, shape = tf.as_dtype(variable.dtype).name, list(variable.shape)
    if kind != "float64" or shape:
        made = f"{kind}, shape {shape}"
        raise refuse(f"make_variable made a variable of {made}: a float64 scalar is wanted")
    addends = spread(strategy, [[x] for x in numbers])
    with own_frames():
        strategy.run(lambda addend: variable.assign_add(addend[0]), args=(addends,))
    return [copy[0] for copy in read_copies(strategy, variable)]


VARIABLE = Exercise(
    lab="lab02",
    name="variable",
    function="make_variable",
    examples=((10.0, (1.0, 2.0, 6.0)), (0.0, (4.0, 8.0))),
    mistakes={
        "outside-scope": "one plain variable, made outside strategy.scope(): there is one copy for "
        "all replicas",
        "summed": "aggregation SUM adds up what the replicas add: take their mean",
        "first-only": "aggregation ONLY_FIRST_REPLICA ignores what the other replicas add",
        "copies-differ": "each copy took its own replica's number, so that the copies differ: an "
        "aggregation brings them together, at every assignment (synchronization ON_WRITE)",
    },
    hint="one copy for each replica, made in the scope, with an aggregation",
    tolerance=1e-6,
    run=each(try_variable),
)


def try_mean(global_mean: Callable[..., Any], parts: Parts) -> float:
    """Return `global_mean` of per-replica values `parts` as a number."""
    strategy = make_mirrored(len(parts))
    with own_frames():
        return read_number(global_mean(strategy, spread(strategy, parts)), "global_mean")


MEAN = Exercise(
    lab="lab02",
    name="mean",
    function="global_mean",
    examples=((((1.0, 2.0, 3.0), (10.0,)),), (((2.0, 4.0), (6.0, 8.0, 10.0), (0.0,)),)),
    mistakes={
        "mean-of-means": "a mean of the replicas' means: the replica with one example counts as "
        "much as the one with three",
        "sum-of-means": "the replicas' means are added up: reduce sums and counts, and divide once",
        "first-only": "this is replica 0's own mean: nothing was reduced",
        "divided-by-replicas": "the sum is divided by the number of replicas, not of examples",
    },
    hint="which two numbers do you need of every replica, so that one division gives the mean?",
    tolerance=1e-6,
    run=each(try_mean),
)


def try_collect(collect: Callable[..., Any], parts: Sequence[Parts]) -> np.ndarray:
    """Return `collect` of per-replica rows as an array; part k is [rows of replica k, 2]."""
    strategy = make_mirrored(len(parts))
    with own_frames():
        rows = collect(strategy, spread(strategy, parts))
        return read_array(rows, "collect", "one tensor or array")


COLLECT = Exercise(
    lab="lab02",
    name="collect",
    function="collect",
    examples=(((((1.0, 2.0), (3.0, 4.0)), ((5.0, 6.0), (7.0, 8.0))),),),
    mistakes={
        "summed": "reduce adds the replicas' rows up: gather puts them one after the other",
        "first-only": "only replica 0's rows are here",
        "wrong-axis": "rows are put side by side: examples lie along axis 0",
        "stacked": "a new axis was made, one entry a replica: the rows belong one after the other",
    },
    hint="all rows of replica 0, then all of replica 1, and so on: [rows, 2]",
    tolerance=1e-6,
    run=each(try_collect),
)


def try_deal(deal_out: Callable[..., Any], replicas: int, examples: int) -> dict[str, Any]:
    """Return the ids that `deal_out` gives each replica, as a function there sees them."""
    import tensorflow as tf

    strategy = make_mirrored(replicas)
    with own_frames():
        ids = require_value(deal_out(strategy, examples), "deal_out", "a per-replica value")
    if isinstance(ids, list | tuple):
        raise refuse(
            "deal_out returned a list: every replica would get all of it. A per-replica value is "
            "wanted, which experimental_distribute_values_from_function makes"
        )
    seen = strategy.run(tf.identity, args=(ids,))
    kinds = {copy.dtype.is_integer for copy in strategy.experimental_local_results(seen)}
    return {"whole numbers": kinds == {True}, "ids": read_copies(strategy, seen)}


DEAL = Exercise(
    lab="lab02",
    name="deal",
    function="deal_out",
    examples=((3, 8), (2, 4)),
    mistakes={
        "in-blocks": "each replica got a block of neighbors: deal them out one by one, like cards",
        "all-to-all": "every replica got all the ids: use the replica's own number",
        "counted-from-one": "replica numbers begin at 0, and so do ids",
        "floats": "the right ids, but as floating-point numbers: return integers",
        "all-the-first": "every replica got replica 0's ids: the function's context tells which "
        "one it is",
        "rest-dropped": "the ids left over are dealt out too: the first replicas get one more",
    },
    hint="write down what each of 3 replicas gets of the ids 0 to 7, and compare with the example",
    tolerance=1e-6,
    run=each(try_deal),
)
