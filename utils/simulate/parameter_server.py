"""Workers and parameter servers on a clock: steps/s, and how stale the updates are.

Worker w computes a gradient in `step_seconds[w]`, times a random factor of mean 1 if there is
`jitter`; the servers write it in `server_seconds`, one gradient after the other. An update is stale
by the number of other workers' updates between its read of the parameters and its own write. Four
ways to train:

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
concentrates it on its own updates. In "backup" a late worker finishes its step, and its
gradient is dropped when it arrives; `synchronous_rate` follows the other convention: all
N begin each round together.

Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012; Ho et al., "More
Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS
2013; Chen et al., "Revisiting Distributed Synchronous SGD", arXiv:1604.00981.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..checks import check_choice, check_count, check_number
from ..errors import InputError

MODES = ("asynchronous", "bounded", "synchronous", "backup")
DISTRIBUTIONS = ("gamma", "lognormal")
MAX_WORKERS, MAX_UPDATES = 100_000, 10_000_000
BLOCK = 4096  # random factors drawn at once
MAX_DRAWS = 4_000_000  # of `synchronous_rate`; a million at once are in memory
Span = tuple[str, float, float, str, str]  # lane, start, end, label, kind: a row of a timeline


@dataclass(frozen=True)
class Cluster:
    """The workers' mean step times in seconds, and what the servers take for one gradient.

    `jitter` is the coefficient of variation of a step's time (0: none) under the
    `distribution`: "gamma", which is exponential at 1, or "lognormal". Raises InputError
    for times that can't be.
    """

    step_seconds: Sequence[float]
    server_seconds: float = 0.0
    jitter: float = 0.0
    distribution: str = "gamma"

    def __post_init__(self) -> None:
        times = tuple(self.step_seconds)
        if not times or not all(math.isfinite(t) and t > 0 for t in times):
            raise InputError(
                f"Step times must be at least one number of seconds above 0, got {times[:5]}."
            )
        check_count("workers", len(times), 1, MAX_WORKERS)
        check_choice("distribution", self.distribution, DISTRIBUTIONS)
        check_number("server_seconds", self.server_seconds, least=0)
        check_number("jitter", self.jitter, least=0)

    @property
    def workers(self) -> int:
        return len(self.step_seconds)

    def draw_factors(self, random: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        """Return random factors of mean 1, float64 [size]."""
        if self.jitter == 0:
            return np.ones(size)
        if self.distribution == "lognormal":
            sigma = math.sqrt(math.log1p(self.jitter**2))
            return random.lognormal(-(sigma**2) / 2, sigma, size)
        shape = 1 / self.jitter**2  # of a gamma distribution with this coefficient of variation
        return random.gamma(shape, 1 / shape, size)


def make_cluster(
    workers: int,
    step_seconds: float,
    distribution: str = "constant",
    *,
    sigma: float = 0.5,
    slow_factor: float = 1.0,
) -> Cluster:
    """Return `workers` with one mean step time, worker 0 slower by `slow_factor`.

    `distribution` is "constant", "exponential" or "lognormal", whose logarithm has the
    standard deviation `sigma`. Raises InputError for numbers that can't be.
    """
    check_count("workers", workers, 1, MAX_WORKERS)
    check_number("step seconds", step_seconds, above=0)
    check_number("slow worker", slow_factor, above=0)
    check_number("sigma", sigma, least=0)
    check_choice("distribution", distribution, ("constant", "exponential", "lognormal"))
    if sigma > 5:
        raise InputError(
            f"sigma must be at most 5, got {sigma:g}. At 5 a mean hardly says anything."
        )
    spreads = {"constant": 0.0, "exponential": 1.0, "lognormal": math.sqrt(math.expm1(sigma**2))}
    times = [step_seconds * slow_factor] + [step_seconds] * (workers - 1)
    kind = "lognormal" if distribution == "lognormal" else "gamma"
    return Cluster(times, jitter=spreads[distribution], distribution=kind)


def share_servers(
    cluster: Cluster, payload_bytes: float, servers: int, bandwidth_bytes_per_second: float
) -> Cluster:
    """Return `cluster` with the time that its parameters take over the servers' links.

    The model's bytes are split evenly over `servers` machines (Li et al. 2014, "Scaling
    Distributed Machine Learning with the Parameter Server", section 3). A worker pulls all of
    them over its own link before a step and pushes as many after it. For each gradient, every
    server sends and receives its share, both at once: that is the servers' time for one gradient.
    """
    check_number("parameter bytes", payload_bytes, above=0)
    check_count("servers", servers)
    own = payload_bytes / check_number("bandwidth", bandwidth_bytes_per_second, above=0)
    steps = tuple(step + 2 * own for step in cluster.step_seconds)
    return replace(
        cluster, step_seconds=steps, server_seconds=cluster.server_seconds + own / servers
    )


def find_round_transfer(
    payload_bytes: float,
    workers: int,
    servers: int,
    bandwidth_bytes_per_second: float,
    backward_seconds: float = 0.0,
) -> float:
    """Return the seconds that pulls and pushes add to a round of `workers` in step.

    All of them pull at once, so the busier of a worker's link and a server's link decides:
    payload / B * max(1, workers / servers). Pushes take as long; they leave while the backward
    pass runs, so only what outlasts `backward_seconds` counts.
    """
    check_count("servers", servers)
    one_way = payload_bytes / bandwidth_bytes_per_second * max(1.0, workers / servers)
    return one_way + max(0.0, one_way - backward_seconds)


@dataclass
class Simulation:
    """The result of a run: `staleness` of each update, gradients by worker, and every step.

    `workers_of`, `begun` and `ended` hold one value for each step, `late` those whose
    gradient was dropped. `seconds` is when the last update was written.
    """

    mode: str
    workers: int
    seconds: float = 0.0
    staleness: list[int] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)
    workers_of: list[int] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    late: set[int] = field(default_factory=set)

    def add_step(self, worker: int, began: float, ended: float, late: bool = False) -> None:
        """Note one step of `worker`, with `late` one whose gradient no update uses."""
        if late:
            self.late.add(len(self.workers_of))
        self.workers_of.append(worker)
        self.begun.append(began)
        self.ended.append(ended)

    @property
    def spans(self) -> list[Span]:
        """All steps as rows of a timeline."""
        rows = zip(self.workers_of, self.begun, self.ended, strict=True)
        return [
            (f"worker {w}", a, b, "", "too late: dropped" if i in self.late else "computes")
            for i, (w, a, b) in enumerate(rows)
        ]

    @property
    def updates_per_second(self) -> float:
        return len(self.staleness) / self.seconds

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
    if mode == "asynchronous":
        return _run_free(cluster, updates, draw)
    if mode == "bounded":
        return _run_bounded(cluster, updates, bound, draw)
    return _run_rounds(cluster, updates, backup, draw)


def _check(mode: str, cluster: Cluster, updates: int, backup: int, bound: int) -> None:
    check_choice("mode", mode, MODES)
    if not 1 <= updates <= MAX_UPDATES:
        raise InputError(f"updates must be from 1 to {MAX_UPDATES:,}, got {updates}.")
    if not (1 if mode == "backup" else 0) <= backup < (cluster.workers if mode == "backup" else 1):
        raise InputError(
            f"backup must be from 1 to one less than the {cluster.workers} workers in mode "
            f"backup and 0 in the others, got {backup} in mode {mode}."
        )
    if bound < 0 or (bound and mode != "bounded"):
        raise InputError(
            f"bound must be at least 0, and is for mode bounded, got {bound} in mode {mode}."
        )


class _Steps:
    """Draws how long each step of each worker takes, a block of factors at a time."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._random = cluster, np.random.default_rng(seed)
        self._factors: list[float] = []

    def __call__(self, worker: int) -> float:
        if not self._factors:
            self._factors = self._cluster.draw_factors(self._random, BLOCK)[::-1].tolist()
        return self._cluster.step_seconds[worker] * self._factors.pop()


def _run_free(cluster: Cluster, updates: int, draw: _Steps) -> Simulation:
    """Each worker continues without waiting."""
    told, server = Simulation("asynchronous", cluster.workers), cluster.server_seconds
    running = [(draw(worker), worker, 0.0, 0) for worker in range(cluster.workers)]
    heapq.heapify(running)  # ends, worker, began, version read
    now = 0.0
    for written in range(updates):
        ended, worker, began, version = running[0]
        told.add_step(worker, began, ended)
        told.staleness.append(written - version)
        now = (ended if ended > now else now) + server
        heapq.heapreplace(running, (now + draw(worker), worker, now, written + 1))
    told.seconds, told.gradients = (
        now,
        np.bincount(told.workers_of, minlength=told.workers).tolist(),
    )
    return told


def _run_bounded(cluster: Cluster, updates: int, bound: int, draw: _Steps) -> Simulation:
    """The same; a worker waits while it is more than `bound` steps ahead of the slowest."""
    told, gate = Simulation("bounded", cluster.workers), _Gate(cluster.workers, bound)
    running: list[tuple[float, int, float, int]] = []  # ends, worker, began, version read
    freed: Iterable[int] = range(cluster.workers)
    now = 0.0
    for written in range(updates):
        for worker in freed:
            heapq.heappush(running, (now + draw(worker), worker, now, written))
        ended, worker, began, version = heapq.heappop(running)
        told.add_step(worker, began, ended)
        told.staleness.append(written - version)
        now = max(ended, now) + cluster.server_seconds
        freed = gate.finish(worker)
    told.seconds, told.gradients = now, gate.done
    return told


class _Gate:
    """Which workers may begin their next step: at most `bound` ahead of the slowest."""

    def __init__(self, workers: int, bound: int) -> None:
        self.done = [0] * workers  # steps by worker
        self._bound, self._slowest, self._waiting = bound, 0, set()
        self._workers_at = Counter({0: workers})

    def finish(self, worker: int) -> Iterable[int]:
        """Count a step of `worker`; return who may begin now."""
        self.done[worker] += 1
        self._workers_at[self.done[worker] - 1] -= 1
        self._workers_at[self.done[worker]] += 1
        self._waiting.add(worker)
        if self._workers_at[self._slowest]:  # no other worker's limit has moved
            if self.done[worker] - self._slowest > self._bound:
                return ()
            self._waiting.discard(worker)
            return (worker,)
        while not self._workers_at[self._slowest]:
            self._slowest += 1
        freed = [w for w in sorted(self._waiting) if self.done[w] - self._slowest <= self._bound]
        self._waiting.difference_update(freed)
        return freed


def synchronous_rate(cluster: Cluster, updates: int, *, backup: int = 0, seed: int = 0) -> float:
    """Return gradients used per second where all N workers begin each round together.

    A round ends with the fastest N - `backup` of them, whose gradients it uses; at least
    `updates` gradients, or four million draws. Raises InputError for a `backup` that leaves
    no worker.
    """
    check_count("updates", updates, 1, MAX_UPDATES)
    check_count("backup workers", backup, 0, cluster.workers - 1)
    wanted, random = cluster.workers - backup, np.random.default_rng(seed)
    rounds = min(-(-updates // wanted), max(100, MAX_DRAWS // cluster.workers))
    means, seconds = np.array(cluster.step_seconds), 0.0
    at_once = max(1, 1_000_000 // cluster.workers)
    for first in range(0, rounds, at_once):
        size = (min(at_once, rounds - first), cluster.workers)
        times = means * cluster.draw_factors(random, size)  # [round, worker]
        seconds += float(np.partition(times, wanted - 1, axis=1)[:, wanted - 1].sum())
    return rounds * wanted / (seconds + rounds * wanted * cluster.server_seconds)


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
            told.add_step(worker, began, ended, late)
            if late:
                now = max(now, ended)
                idle.add(worker)
            else:
                taken.append(worker)
                told.gradients[worker] += 1
        told.seconds = ended + wanted * cluster.server_seconds
        told.staleness.append(0)
        idle = set(taken)
    return told
