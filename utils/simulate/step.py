"""One data-parallel training step: compute, all-reduce that overlaps it, and the slowest worker.

The forward pass takes F seconds and the backward pass B. Gradients become ready evenly
over B and go, in that order, into buckets of K bytes, the last one smaller. Each bucket
is all-reduced by a ring as soon as it is full, on a link that carries one at a time. The
update of the variables follows the later of compute and the last bucket, and ends the step.
Without overlap the first bucket leaves after the whole backward pass. With stragglers all
of a step's compute is longer by the expected largest of P lognormal factors (`stragglers`):
a bucket needs all workers.

After Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel
Training" (arXiv:2006.15704): buckets and their overlap. NumPy at most.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..checks import check_count, check_number
from ..errors import InputError
from .collective import Link, Nodes, simulate_all_reduce
from .measured import MeasuredAllReduce
from .stragglers import expect_slowest

BUCKET_BYTES = 25 * 2**20  # PyTorch's usual size
MAX_BUCKETS = 100_000
Row = tuple[str, float, float, str, str]  # lane, start, end, label, kind


@dataclass(frozen=True)
class StepWork:
    """A device's work in a step: seconds of both passes and the update, gradient bytes.

    `forward_seconds`, `backward_seconds` and `update_seconds` are for one device; `gradient_bytes`
    are all-reduced. Raises InputError for numbers out of range.

        >>> StepWork(forward_seconds=0.01, backward_seconds=0.02, gradient_bytes=1e8).update_seconds
        0.0
    """

    forward_seconds: float
    backward_seconds: float
    gradient_bytes: float
    update_seconds: float = 0.0

    def __post_init__(self) -> None:
        check_number("forward seconds", self.forward_seconds, least=0)
        check_number("backward seconds", self.backward_seconds, least=0)
        check_number("gradient bytes", self.gradient_bytes, least=0)
        check_number("update seconds", self.update_seconds, least=0)
        if self.compute_seconds <= 0:
            raise InputError("Forward and backward seconds must not both be 0.")

    @property
    def compute_seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds


@dataclass(frozen=True)
class Network:
    """The `link` between any two devices, or between nodes if `nodes` joins the devices of one.

    With a `measured` table, all-reduces take its times instead.

        >>> Network(Link(latency_seconds=1e-5, bandwidth_bytes_per_second=1e10)).nodes
    """

    link: Link
    nodes: Nodes | None = None
    measured: MeasuredAllReduce | None = None

    def ring_seconds(self, devices: int, payload_bytes: float) -> float:
        """Return an all-reduce over `devices`; fewer than a node holds are one node."""
        nodes = self.nodes
        is_inside = nodes is not None and devices <= nodes.ranks_per_node
        if self.measured is not None and devices > 1 and not is_inside:
            return self.measured.find_seconds(payload_bytes, devices)
        if nodes is not None and nodes.ranks_per_node > devices:
            nodes = Nodes(devices, nodes.link)
        return simulate_all_reduce("ring", devices, payload_bytes, self.link, nodes).seconds


@dataclass(frozen=True, eq=False)
class StepRun:
    """A step as it went: when each bucket was ready, left and arrived, [bucket] seconds.

    `compute_seconds` holds the slowest worker's; `efficiency` is one device's step over
    this one, which is throughput over (devices x one device's throughput).
    """

    work: StepWork
    devices: int
    compute_seconds: float
    ready: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @property
    def reduced_seconds(self) -> float:
        """When the update can begin: all is computed, and the last bucket has arrived."""
        return max(self.compute_seconds, float(self.ends[-1]) if len(self.ends) else 0.0)

    @property
    def step_seconds(self) -> float:
        return self.reduced_seconds + self.work.update_seconds

    @property
    def communication_seconds(self) -> float:
        return float((self.ends - self.starts).sum())

    @property
    def exposed_communication_seconds(self) -> float:
        return self.reduced_seconds - self.compute_seconds

    @property
    def straggler_seconds(self) -> float:
        """The seconds that waiting for the slowest worker adds to the compute."""
        return self.compute_seconds - self.work.compute_seconds

    @property
    def efficiency(self) -> float:
        return (self.work.compute_seconds + self.work.update_seconds) / self.step_seconds

    def rows(self) -> list[Row]:
        """Return the rows of a timeline: one device's compute and its network."""
        slower = self.compute_seconds / self.work.compute_seconds
        forward = self.work.forward_seconds * slower
        rows = [("compute", 0.0, forward, "F", "forward")] if forward else []
        if self.work.backward_seconds:
            rows.append(("compute", forward, self.compute_seconds, "B", "backward"))
        moves = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        buckets = [
            ("network", a, b, str(i), "bucket") for i, (a, b) in enumerate(moves, 1) if b > a
        ]
        if self.work.update_seconds:
            buckets.append(("compute", self.reduced_seconds, self.step_seconds, "U", "update"))
        return rows + buckets


def simulate_step(
    work: StepWork,
    devices: int,
    network: Network,
    *,
    bucket_bytes: float = BUCKET_BYTES,
    overlap: bool = True,
    straggler_sigma: float = 0.0,
) -> StepRun:
    """Return one step of `devices` data-parallel devices, each with `work`, over `network`.

    Gradients are reduced in buckets of `bucket_bytes`, during the backward pass with `overlap`.
    `straggler_sigma` is the spread of the logarithm of step times. Times are in seconds. Raises
    InputError for fewer than one device, buckets of 0 bytes or more than 100,000 of them, and a
    negative sigma.

        >>> network = Network(Link(latency_seconds=1e-5, bandwidth_bytes_per_second=1e10))
        >>> run = simulate_step(StepWork(0.01, 0.02, 1e8), devices=1, network=network)
        >>> round(run.step_seconds, 3)
        0.03
    """
    check_count("devices", devices)
    sizes = split_buckets(work.gradient_bytes, bucket_bytes)
    slower = expect_slowest(devices, straggler_sigma)
    compute, backward = work.compute_seconds * slower, work.backward_seconds * slower
    done = np.cumsum(sizes) / work.gradient_bytes if work.gradient_bytes else np.zeros(0)
    ready = compute - backward * (1 - done) if overlap else np.full(len(sizes), compute)
    costs = {size: network.ring_seconds(devices, size) for size in set(sizes.tolist())}
    seconds = np.array([costs[size] for size in sizes.tolist()])
    starts, ends = _queue(ready, seconds)
    return StepRun(work, devices, compute, ready, starts, ends)


def split_buckets(gradient_bytes: float, bucket_bytes: float) -> np.ndarray:
    """Return the sizes of the buckets, float64 [bucket], the last one smaller; none for 0 bytes."""
    check_number("bucket bytes", bucket_bytes, above=0)
    number = math.ceil(gradient_bytes / bucket_bytes)
    if number > MAX_BUCKETS:
        raise InputError(
            f"bucket_bytes must make at most {MAX_BUCKETS:,} buckets, got {bucket_bytes:g}, which "
            f"makes {number:,}. Use at least {gradient_bytes / MAX_BUCKETS:,.0f} bytes."
        )
    sizes = np.full(number, float(bucket_bytes))
    if number:
        sizes[-1] = gradient_bytes - bucket_bytes * (number - 1)
    return sizes


def _queue(ready: np.ndarray, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return when each job starts and ends on a line that takes one at a time, in order."""
    before = np.concatenate([[0.0], np.cumsum(seconds)])  # the work before each job
    slack = np.maximum.accumulate(ready - before[:-1]) if len(ready) else ready
    return slack + before[:-1], slack + before[1:]
