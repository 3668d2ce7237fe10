"""Starting a cluster: time to the first all-reduced step, warm against cold, in one run.

Cold: every worker is a fresh Python that imports TensorFlow. Warm: the workers are
forked from a process that has imported it. Both go from `cluster.run` to the result
of one all-reduce over all workers. What the warm process itself costs, once, is
shown too.
"""

import statistics
from contextlib import closing

from utils.cluster import LocalCluster
from utils.cluster.local_launcher import ColdLauncher
from utils.cluster.warm_launcher import WarmLauncher, can_fork
from utils.measure import Stopwatch

WORKERS = 4


def reduce_once() -> float:
    """Return the sum of one 1.0 from each worker."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    step = tf.function(lambda: strategy.reduce("SUM", strategy.run(lambda: 1.0), axis=None))
    return float(step())


def run(rounds: int) -> None:
    """Print the seconds of cold and warm starts of four workers, and their ratio."""
    print(f"\nStarting {WORKERS} workers, seconds to the first all-reduced step")
    if not can_fork():
        print("fork is not safe on this system: every start is a cold one")
        return
    with (
        closing(ColdLauncher()) as launcher,
        LocalCluster(WORKERS, devices="cpu", launcher=launcher) as cluster,
    ):
        cold = [time_run(cluster) for _ in range(max(2, rounds // 4))]
    with Stopwatch() as watch:
        launcher = WarmLauncher()
    with closing(launcher), LocalCluster(WORKERS, devices="cpu", launcher=launcher) as cluster:
        warm = [time_run(cluster) for _ in range(rounds)]
    ratio = statistics.median(cold) / statistics.median(warm)
    print(f"cold        {statistics.median(cold):>8.2f}")
    print(f"warm        {statistics.median(warm):>8.2f}   {ratio:.1f} times as fast")
    print(f"the warm process itself, once: {watch.seconds:.2f}", flush=True)


def time_run(cluster: LocalCluster) -> float:
    with Stopwatch() as watch:
        results = cluster.run(reduce_once, echo=False, timeout=120)
    assert results == [float(WORKERS)] * WORKERS
    return watch.seconds
