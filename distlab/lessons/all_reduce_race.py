"""All-reduce on the workers of a cluster: TensorFlow's collective, and our ring next to it.

    with LocalCluster(workers=2) as cluster:
        results = cluster.run(time_both, addresses, sizes)    # of each worker

Every function here that takes `addresses` runs in a worker, which finds its rank in
TF_CONFIG; `draw_times` draws what comes back. API:
`tf.distribute.experimental.CommunicationOptions`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from distlab import figures
from distlab.errors import CourseError
from distlab.figures.canvas import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from utils.collectives import ProcessRing
from utils.strategies import make_strategy

if TYPE_CHECKING:
    import tensorflow as tf

LIMIT_SECONDS = 60.0
Reduce = Callable[[np.ndarray], np.ndarray]
Seconds = dict[int, list[float]]  # payload bytes -> seconds of each round
COLORS = {  # one for each thing in all of the lesson's pictures of times
    "ours": BLUE,
    "TensorFlow": VERMILION,
    "ring": GREEN,
    "naive": PURPLE,
    "recursive-doubling": ORANGE,
    "published": SKY,
}


def make_reduce(strategy: tf.distribute.Strategy, length: int) -> Reduce:
    """Return the all-reduce of float32 vectors of `length` over the workers, compiled.

    For workers of one replica each. It takes a NumPy array and returns the sum as one.
    """
    import tensorflow as tf

    def reduce_replica(mine: tf.Tensor) -> tf.Tensor:
        placed = tf.identity(mine)  # a function's argument has no device yet
        return tf.distribute.get_replica_context().all_reduce("SUM", placed)

    @tf.function(input_signature=[tf.TensorSpec([length], tf.float32)])
    def step(vector: tf.Tensor) -> tf.Tensor:
        return strategy.run(reduce_replica, args=(vector,))

    return lambda vector: step(tf.constant(vector)).numpy()


def time_both(
    addresses: Sequence[str], sizes: Sequence[int], rounds: int = 7
) -> tuple[Seconds, Seconds]:
    """Run in each worker: seconds of our ring, and of TensorFlow's RING, on the same vectors.

    `addresses` are those of `ProcessRing`, one for each worker; `sizes` are bytes,
    multiples of 4. The two take turns, each call behind a barrier. The sums of both are
    compared first, which also traces TensorFlow's. Raises CourseError where they differ.
    """
    strategy = make_strategy("multi-worker", all_reduce="ring")
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    ours: Seconds = {size: [] for size in sizes}
    theirs: Seconds = {size: [] for size in sizes}
    with ProcessRing(addresses, rank, LIMIT_SECONDS) as ring:
        for size in sizes:
            vector = np.random.default_rng(rank).normal(size=size // 4).astype("float32")
            reduce = make_reduce(strategy, size // 4)
            if not np.allclose(reduce(vector), ring.all_reduce(vector), atol=1e-5):
                raise CourseError(f"{size} bytes: the ring's sum is not TensorFlow's")
            for _ in range(rounds):
                ours[size].append(_time_one(ring, ring.all_reduce, vector))
                theirs[size].append(_time_one(ring, reduce, vector))
    return ours, theirs


def reduce_both(
    addresses: Sequence[str], vectors: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Run in each worker: the sum of the workers' `vectors` by our ring, and by TensorFlow's."""
    strategy = make_strategy("multi-worker", all_reduce="ring")
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    mine = vectors[rank]
    with ProcessRing(addresses, rank, LIMIT_SECONDS) as ring:
        return ring.all_reduce(mine), make_reduce(strategy, len(mine))(mine)


def draw_times(
    series: dict[str, tuple[Sequence[float], Sequence[float]]], title: str
) -> figures.Picture:
    """Draw seconds against payload bytes, both axes logarithmic.

    `series` is name -> (payload bytes, seconds). What stands before a comma in a name is
    one of COLORS, so that a measured line and its prediction have one color.
    """
    return figures.lines(
        series,
        x_label="payload",
        y_label="time of one all-reduce",
        title=title,
        log_x=True,
        log_y=True,
        x_unit="B",
        y_unit="s",
        colors={name: COLORS[name.split(",")[0]] for name in series},
    )


def draw_costs(
    costs: dict[str, tuple[int, int, int]], between: dict[str, int], vector_bytes: int
) -> figures.Picture:
    """Draw a table of algorithms with the fewest of each column marked.

    `costs` is name -> (steps, messages, bytes), the last two of the rank that sends most;
    `between` the bytes from machine to machine. Bytes are drawn in vectors.
    """
    rows = np.array(
        [
            [steps, messages, sent / vector_bytes, between[name] / vector_bytes]
            for name, (steps, messages, sent) in costs.items()
        ]
    )
    fewest = rows <= 1.0001 * rows.min(axis=0)  # chunks of one vector may differ by an element
    return figures.matrix(
        rows,
        list(costs),
        ["steps", "messages*", "vectors sent*", "vectors between machines"],
        title="Four ranks on two machines (* by the rank that sends most); tinted: the fewest",
        format="{:.4g}",
        marked={(int(i), int(j)) for i, j in zip(*np.nonzero(fewest), strict=True)},
    )


def _time_one(ring: ProcessRing, reduce: Reduce, vector: np.ndarray) -> float:
    """Wait for all ranks, then return the seconds of one all-reduce."""
    ring.all_reduce(np.zeros(ring.ranks, "float32"))
    begun = time.perf_counter()
    reduce(vector)
    return time.perf_counter() - begun
