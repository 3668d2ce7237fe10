"""All-reduce between processes: our ring over sockets against TensorFlow's RING, same payloads.

Every worker of a cluster on loopback sums float32 vectors with `ProcessRing` and with the
collective of MultiWorkerMirroredStrategy, in turn, behind a barrier; array in, sum out. A
round's time is that of the slowest worker. TensorFlow's tracing isn't counted.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from utils.cluster import LocalCluster
from utils.collectives import ProcessRing
from utils.measure import format_bytes
from utils.strategies import make_strategy
from utils.tf_config import pick_free_ports

Reduce = Callable[[np.ndarray], np.ndarray]
Seconds = dict[int, list[float]]  # payload bytes -> seconds of each round
LIMIT_SECONDS = 60.0
SIZES = tuple(1024 * 4**power for power in range(8))  # 1 KiB to 16 MiB


def run(rounds: int) -> None:
    """Print the median milliseconds of both for 2 and 4 workers, and their ratio."""
    print("\nAll-reduce between processes, float32, median milliseconds of", rounds, "rounds")
    print(f"{'workers':<10}{'payload':>12}{'ours':>12}{'TensorFlow':>12}   TensorFlow / ours")
    for workers in (2, 4):
        addresses = [f"127.0.0.1:{port}" for port in pick_free_ports(workers)]
        with LocalCluster(workers, devices="cpu") as cluster:
            results = cluster.run(time_both, addresses, SIZES, rounds, echo=False, timeout=600)
        for size in SIZES:
            ours, theirs = (find_median([r[way] for r in results], size) for way in (0, 1))
            numbers = f"{1e3 * ours:>12.2f}{1e3 * theirs:>12.2f}{theirs / ours:>12.2f}x"
            print(f"{workers:<10}{format_bytes(size):>12}{numbers}", flush=True)


def find_median(workers: list[Seconds], size: int) -> float:
    """Return the median over rounds of the slowest worker's seconds."""
    return statistics.median(max(row) for row in zip(*(w[size] for w in workers), strict=True))


def make_reduce(strategy: Any, length: int) -> Reduce:
    """Return the all-reduce of float32 vectors of `length` over the workers, compiled.

    For workers of one replica each. It takes a NumPy array and returns the sum as one.
    """
    import tensorflow as tf

    def reduce_replica(mine: Any) -> Any:
        placed = tf.identity(mine)  # a function's argument has no device yet
        return tf.distribute.get_replica_context().all_reduce("SUM", placed)

    @tf.function(input_signature=[tf.TensorSpec([length], tf.float32)])
    def step(vector: Any) -> Any:
        return strategy.run(reduce_replica, args=(vector,))

    return lambda vector: step(tf.constant(vector)).numpy()


def time_both(
    addresses: Sequence[str], sizes: Sequence[int], rounds: int = 7
) -> tuple[Seconds, Seconds]:
    """Run in each worker: seconds of our ring, and of TensorFlow's RING, on the same vectors.

    `addresses` are those of `ProcessRing`, one for each worker; `sizes` are bytes,
    multiples of 4. The two take turns, each call behind a barrier. The sums of both are
    compared first, which also traces TensorFlow's. Raises ValueError if they differ.
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
                raise ValueError(f"{size} bytes: the ring's sum is not TensorFlow's")
            for _ in range(rounds):
                ours[size].append(_time_one(ring, ring.all_reduce, vector))
                theirs[size].append(_time_one(ring, reduce, vector))
    return ours, theirs


def _time_one(ring: ProcessRing, reduce: Reduce, vector: np.ndarray) -> float:
    """Wait for all ranks, then return the seconds of one all-reduce."""
    ring.all_reduce(np.zeros(ring.ranks, "float32"))
    begun = time.perf_counter()
    reduce(vector)
    return time.perf_counter() - begun
