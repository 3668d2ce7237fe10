"""Lab 02, strategy API: answers are run on real replicas."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from distlab.exercises.comparing import show
from distlab.exercises.exercise import Exercise, each
from distlab.exercises.refusing import (
    read_array,
    refuse,
    require_kind,
    require_value,
)
from distlab.labs import ANSWERS

ABSENT = ANSWERS
make_exercise = partial(Exercise, lab="lab02", tolerance=1e-6, seconds=60)

Parts = Sequence[Sequence[float]]


@cache
def make_mirrored(replicas: int) -> Any:
    """Return a MirroredStrategy with `replicas` replicas on logical CPU devices, made once."""
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
        raise refuse(f"make_variable made a variable of {made}, not a float64 scalar")
    addends = spread(strategy, [[x] for x in numbers])
    strategy.run(lambda addend: variable.assign_add(addend[0]), args=(addends,))
    return [copy[0] for copy in read_copies(strategy, variable)]


VARIABLE = make_exercise(
    name="variable",
    function="make_variable",
    examples=((10.0, (1.0, 2.0, 6.0)), (0.0, (4.0, 8.0))),
    mistakes={
        "outside-scope": "one plain variable, made outside strategy.scope(): there is one copy for "
        "all replicas",
        "summed": "aggregation SUM adds up what the replicas add: take their mean",
        "first-only": "aggregation ONLY_FIRST_REPLICA ignores what the other replicas add",
        "start-ignored": "the variable begins at 0: begin at `start`",
        "copies-differ": "each copy took its own replica's number, so that the copies differ: an "
        "aggregation brings them together, at every assignment (synchronization ON_WRITE)",
    },
    hint="one copy for each replica, made in the scope, with an aggregation",
    run=each(try_variable),
    shows_case=True,
)


def read_pair(found: Any, function: str, wanted: str) -> list[float]:
    """Return the two numbers that `function` returned: tensors, variables, an array or floats."""
    import tensorflow as tf

    require_value(found, function, wanted)
    parts = list(found) if isinstance(found, list | tuple) else [found]
    plain = [x.read_value() if isinstance(x, tf.Variable) else x for x in parts]
    arrays = [read_array(x, function, wanted).ravel() for x in plain]
    numbers = np.concatenate(arrays) if arrays else np.zeros(0)
    if len(numbers) != 2:
        raise refuse(f"{function} returned {show(found)}, not {wanted}")
    return numbers.tolist()


def try_moments(global_moments: Callable[..., Any], parts: Parts) -> dict[str, float]:
    """Return `global_moments` of per-replica values `parts`: mean and standard deviation."""
    strategy = make_mirrored(len(parts))
    found = global_moments(strategy, spread(strategy, parts))
    mean, deviation = read_pair(found, "global_moments", "two numbers, mean and deviation")
    return {"mean": mean, "standard deviation": deviation}


MOMENTS = make_exercise(
    name="moments",
    function="global_moments",
    examples=((((1.0, 2.0, 3.0), (10.0,)),), (((2.0, 4.0), (6.0, 8.0, 10.0), (0.0,)),)),
    mistakes={
        "mean-of-means": "that mean is a mean of the replicas' means: the replica with one number "
        "counts as much as the one with three",
        "sum-of-means": "the replicas' means are added up: reduce sums and counts, and divide once",
        "first-only": "these are replica 0's own numbers: nothing was reduced",
        "divided-by-replicas": "the sum is divided by the number of replicas, not of numbers",
        "mean-of-deviations": "the mean is right, the deviation is a mean of the replicas' own: it "
        "misses how far their means are apart",
        "around-own-mean": "the mean is right, but each replica took its distances from its own "
        "mean. They count from the mean of all",
        "variance": "the mean is right, and that is the variance: the deviation is its square root",
        "around-zero": "the mean is right, and that is the root of the mean square: the distances "
        "count from the mean, not from 0",
        "root-of-the-sum": "the mean is right, and the root was taken before the division: divide "
        "the sum of squared distances by the count first",
        "distances-not-squared": "the mean is right, and that is the mean distance: square the "
        "distances, average, then take the root",
        "mean-not-squared": "the mean is right. What is taken from the mean of squares is the mean "
        "squared, not the mean",
        "one-less": "that is the deviation of a sample, divided by one less than the count. The "
        "contract divides by the count",
    },
    hint="which sums do you need of every replica, so that a few divisions at the end give both?",
    run=each(try_moments),
    shows_case=True,
    evidence="result",
)


def try_predict(
    predict_in_order: Callable[..., Any], replicas: int, rows: Any, weight: float
) -> np.ndarray:
    """Return what `predict_in_order` makes of rows [n, 2], with a model that says where it ran.

    For a row (a, b) it gives (a + weight · b, the number of the replica).
    """
    import tensorflow as tf

    strategy = make_mirrored(replicas)

    def predict(given: Any) -> Any:
        given = tf.convert_to_tensor(given, tf.float64)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        where = tf.fill([tf.shape(given)[0]], tf.cast(replica, tf.float64))
        return tf.stack([given[:, 0] + weight * given[:, 1], where], axis=1)

    found = predict_in_order(strategy, predict, np.asarray(rows))
    return read_array(found, "predict_in_order", "one array or tensor")


PREDICT = make_exercise(
    name="predict",
    function="predict_in_order",
    examples=(
        (2, ((1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (7.0, 8.0), (9.0, 0.0)), 2.0),
        (3, tuple((float(k), 1.0) for k in range(7)), 0.5),
    ),
    mistakes={
        "replica-by-replica": "these are all of replica 0's predictions, then all of replica 1's: "
        "put them back in the order of the rows",
        "in-blocks": "each replica got a block of neighbors: deal the rows out one by one",
        "on-one-replica": "every prediction was made on replica 0: let each replica work on its "
        "own rows, with strategy.run",
        "all-to-all": "every replica got all the rows, so each row was predicted several times",
        "rest-dropped": "the last rows are missing: when they don't divide evenly, the first "
        "replicas get one more",
        "summed": "reduce adds the replicas' predictions up: experimental_local_results gives each "
        "replica's own",
        "counted-from-one": "replicas count from 0: replica 0 gets row 0",
        "averaged": "reduce makes a mean of the replicas' predictions: experimental_local_results "
        "gives each replica's own",
    },
    hint="write down which rows each of 3 replicas gets of 7, and where each of its predictions "
    "belongs in the result",
    run=each(try_predict),
    evidence="result",
)


def try_meter(make_meter: Callable[..., Any], *calls: Parts) -> list[list[float]]:
    """Return what `read` says before any call of `add` on all replicas, and after each."""
    strategy = make_mirrored(len(calls[0]))
    made = require_value(make_meter(strategy), "make_meter", "two functions")
    if not isinstance(made, list | tuple) or len(made) != 2 or not all(map(callable, made)):
        raise refuse(f"make_meter returned {show(made)}, not two functions, add and read")
    add, read = made
    found = []
    for parts in (None, *calls):
        if parts is not None:
            strategy.run(add, args=(spread(strategy, parts),))
        found.append(read_pair(read(), "read", "two numbers, count and mean"))
    return found


METER = make_exercise(
    name="meter",
    function="make_meter",
    examples=(
        (((1.0, 2.0, 3.0), (10.0,)), ((5.0,), (7.0, 9.0))),
        (((2.0,), (4.0,), (6.0, 8.0, 10.0)), ((1.0,), (1.0,), (1.0,))),
    ),
    mistakes={
        "empty": "before anything was added, count and mean are 0: that division by 0 gives nan",
        "first-only": "these are replica 0's own count and mean: the other replicas' copies have "
        "to be added up on reading",
        "averaged": "the count is a mean over the replicas: both variables need aggregation SUM",
        "reduced-twice": "everything is counted once for each replica: either all-reduce in add, "
        "or let the variables add up, not both",
        "mean-of-means": "that mean averages means: keep a sum and a count, and divide on reading",
        "summed": "this is the sum of all numbers: divide it by their count on reading",
        "sum-reduced-twice": "the count is right, the sum is there once for each replica: either "
        "all-reduce in add, or let the variables add up, not both",
        "sum-of-last": "the count is right, the sum is the last call's: add to it with assign_add",
        "count-of-last": "the sum is right, the count is the last call's: add to it with "
        "assign_add",
        "batches-counted": "each call counts as one number: count the numbers of its share",
        "last-only": "these are count and mean of the last call: add to what was there, and don't "
        "set the meter back on reading",
    },
    hint="two variables that every replica adds to, a sum and a count: who adds the copies up, and "
    "when?",
    run=each(try_meter),
    evidence="result",
)
