"""All-reduce between processes: our ring over sockets against TensorFlow's RING, same payloads.

Every worker of a cluster on loopback sums float32 vectors with `ProcessRing` and with the
collective of MultiWorkerMirroredStrategy, in turn, behind a barrier; array in, sum out. A
round's time is that of the slowest worker. TensorFlow's tracing is not counted.
"""

import statistics

from distlab.lessons.all_reduce_race import Seconds, time_both
from utils.cluster import LocalCluster
from utils.measure import format_bytes
from utils.tf_config import pick_free_ports

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
