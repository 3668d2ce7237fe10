"""Workers and parameter servers on a clock: steps a second, and how stale the updates are.

Worker w computes a gradient in `step_seconds[w]`, times a random factor of mean 1
where there is `jitter`; the servers write it in `server_seconds`, one gradient after
the other. Four ways to train:

| mode | when a worker may begin its next step | an update is |
|---|---|---|
| asynchronous | at once | one gradient |
| bounded | at most `bound` steps ahead of the slowest worker | one gradient |
| synchronous | when all have finished the round | the mean of N gradients |
| backup | when N - `backup` have finished; later ones are dropped | the mean of N - b |

What it should come to, with step times t_w and no jitter: synchronous 1 / max t_w
rounds a second, asynchronous the sum of 1 / t_w gradients a second or 1 /
server_seconds, whichever is less. The mean staleness of asynchronous training is
N - 1 at most, and close to it while all are busy, whatever the speeds: a slow worker
concentrates it on its own updates.

Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012; Ho et al., "More
Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS
2013; Chen et al., "Revisiting Distributed Synchronous SGD", arXiv:1604.00981.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..errors import InputError

MODES = ("asynchronous", "bounded", "synchronous", "backup")
MAX_UPDATES = 1_000_000
Span = tuple[str, float, float, str, str]  # lane, start, end, label, kind: a row of a timeline


@dataclass(frozen=True)
class Cluster:
    """The workers' mean step times in seconds, and what the servers take for one gradient.

    `jitter` is the coefficient of variation of a step's time (gamma distributed; 0
    none, 1 exponential). Raises InputError for times that cannot be.
    """

    step_seconds: Sequence[float]
    server_seconds: float = 0.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        times = tuple(self.step_seconds)
        if not times or not all(math.isfinite(t) and t > 0 for t in times):
            raise InputError(f"step times {times}: give one or more, in seconds, above 0")
        for name in ("server_seconds", "jitter"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name} {value}: give 0 or more")

    @property
    def workers(self) -> int:
        return len(self.step_seconds)


@dataclass
class Simulation:
    """What happened: `staleness` of each update, gradients by worker, the spans of all steps.

    `seconds` is when the last update was written. `dropped` counts gradients that no
    update used.
    """

    mode: str
    workers: int
    seconds: float = 0.0
    staleness: list[int] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)
    dropped: int = 0
    spans: list[Span] = field(default_factory=list)

    @property
    def updates_per_second(self) -> float:
        return len(self.staleness) / self.seconds

    @property
    def gradients_per_second(self) -> float:
        """Gradients that went into updates: with equal batches, images a second over the batch."""
        return sum(self.gradients) / self.seconds

    @property
    def mean_staleness(self) -> float:
        return float(np.mean(self.staleness))


def simulate_parameter_server(
    mode: str,
    cluster: Cluster,
    updates: int,
    *,
    backup: int = 0,
    bound: int = 0,
    seed: int = 0,
) -> Simulation:
    """Return what `updates` updates in one of MODES take.

    Raises InputError for an unknown mode, fewer than one update, `backup` that
    leaves no worker, a negative `bound`, and either where the mode has none.
    """
    _check(mode, cluster, updates, backup, bound)
    draw = _Steps(cluster, seed)
    if mode in ("asynchronous", "bounded"):
        return _run_free(cluster, updates, bound if mode == "bounded" else None, draw)
    return _run_rounds(cluster, updates, backup, draw)


def _check(mode: str, cluster: Cluster, updates: int, backup: int, bound: int) -> None:
    if mode not in MODES:
        raise InputError(f"no mode {mode!r}: there are {', '.join(MODES)}")
    if not 1 <= updates <= MAX_UPDATES:
        raise InputError(f"{updates} updates: give 1 to {MAX_UPDATES:,}")
    if not (1 if mode == "backup" else 0) <= backup < (cluster.workers if mode == "backup" else 1):
        raise InputError(
            f"backup {backup} in mode {mode} with {cluster.workers} workers: the mode backup takes "
            "1 or more and leaves a worker, the others 0"
        )
    if bound < 0 or (bound and mode != "bounded"):
        raise InputError(f"bound {bound} in mode {mode}: the mode bounded takes 0 or more")


class _Steps:
    """Draws how long each step of each worker takes."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._random = cluster, np.random.default_rng(seed)

    def __call__(self, worker: int) -> float:
        mean, jitter = self._cluster.step_seconds[worker], self._cluster.jitter
        if jitter == 0:
            return mean
        shape = 1 / jitter**2  # of a gamma distribution with this coefficient of variation
        return mean * float(self._random.gamma(shape, 1 / shape))


def _run_free(cluster: Cluster, updates: int, bound: int | None, draw: _Steps) -> Simulation:
    """Each worker goes on by itself; with `bound`, it waits while it is too far ahead."""
    told = Simulation("asynchronous" if bound is None else "bounded", cluster.workers)
    told.gradients = [0] * cluster.workers
    clock = [0] * cluster.workers  # steps done
    running: list[tuple[float, int, float, int]] = []  # ends, worker, began, version read
    waiting = set(range(cluster.workers))
    server_free = 0.0
    while True:
        now, slowest = told.seconds, min(clock)
        for worker in sorted(waiting):
            if bound is None or clock[worker] - slowest <= bound:
                waiting.discard(worker)
                heapq.heappush(running, (now + draw(worker), worker, now, len(told.staleness)))
        ended, worker, began, version = heapq.heappop(running)
        told.spans.append((f"worker {worker}", began, ended, "", "computes"))
        server_free = max(ended, server_free) + cluster.server_seconds
        told.seconds = server_free
        told.staleness.append(len(told.staleness) - version)
        told.gradients[worker] += 1
        clock[worker] += 1
        waiting.add(worker)
        if len(told.staleness) == updates:
            return told


def _run_rounds(cluster: Cluster, updates: int, backup: int, draw: _Steps) -> Simulation:
    """Rounds that end with the first N - backup gradients of the round's parameters."""
    told = Simulation("backup" if backup else "synchronous", cluster.workers)
    told.gradients = [0] * cluster.workers
    wanted, idle = cluster.workers - backup, set(range(cluster.workers))
    running: list[tuple[float, int, float, int]] = []  # ends, worker, began, round
    for number in range(updates):
        now, taken, ended = told.seconds, [], told.seconds
        while len(taken) < wanted:
            for worker in sorted(idle):
                heapq.heappush(running, (now + draw(worker), worker, now, number))
            idle.clear()
            ended, worker, began, of_round = heapq.heappop(running)
            late = of_round < number
            kind = "too late: dropped" if late else "computes"
            told.spans.append((f"worker {worker}", began, ended, "", kind))
            if late:
                told.dropped, now = told.dropped + 1, max(now, ended)
                idle.add(worker)
            else:
                taken.append(worker)
                told.gradients[worker] += 1
        told.seconds = ended + wanted * cluster.server_seconds
        told.staleness.append(0)
        idle = set(taken)
    return told
