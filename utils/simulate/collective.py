"""Simulate an all-reduce on links that you describe: a model with inputs, not a table.

A message of n bytes takes latency + n / bandwidth. A rank sends one and receives
one at a time. A step ends with its slowest message. Adding up costs nothing, and
ranks of a node that talk to other nodes at once don't slow each other down.
The algorithms come from `utils.collectives`. Their recorded messages give
the same counts and the same seconds (a test compares them). With P ranks, N
bytes, and Q the largest power of two in P:

| algorithm | messages one after the other | bytes one after the other |
|---|---|---|
| naive | 2(P-1) | 2(P-1) N |
| ring | 2(P-1) | 2(P-1)/P N |
| recursive-doubling | log2 Q, and 2 more where Q < P | as many times N |
| tree | 2 ceil(log2 P) | as many times N |
| hierarchical, K nodes of R | 2(R-1) in nodes, 2(K-1) between | 2(R-1) N, 2(K-1)/K N |

How near it comes: with latency and bandwidth taken from two points (8 B and
1 GiB) of nccl-tests on 2 x 8 A100 (`published/nccl_allreduce_p4de.csv`) it is
within 8 % at 8 KiB and less, within 8 % at 256 MiB and more, and up to
52 % too low in between: one latency and one bandwidth say no more. Bus bandwidth
over 5 to 8 H200s, from the bandwidth of 4 (`published/h200_ring_busbw.csv`),
is within 0.8 % for vectors so long that latency doesn't count (tried with 16 GiB
and 5 us a message: the published figures give neither).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..checks import check_choice, check_count
from ..collectives import (
    ALGORITHMS,
    AlphaBeta,
    check_ranks_per_node,
    fit_alpha_beta,
    largest_power_of_two,
    list_distances,
    list_parents,
)
from ..errors import InputError

MAX_BYTES = 1e21


@dataclass(frozen=True)
class Link:
    """A link: a message pays `latency_seconds`, and its bytes over `bandwidth_bytes_per_second`.

    Raises InputError for a negative latency, a bandwidth of 0 or less, and numbers that aren't
    finite.

        >>> Link(latency_seconds=1e-5, bandwidth_bytes_per_second=1e10).latency_seconds
        1e-05
    """

    latency_seconds: float
    bandwidth_bytes_per_second: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency_seconds) and self.latency_seconds >= 0):
            raise InputError(f"latency must be at least 0 seconds, got {self.latency_seconds:g}.")
        bandwidth = self.bandwidth_bytes_per_second
        if not (math.isfinite(bandwidth) and bandwidth > 0):
            raise InputError(f"bandwidth must be above 0 bytes/s and finite, got {bandwidth:g}.")

    def seconds(self, payload_bytes: float) -> float:
        """Return the time of one message."""
        return self.latency_seconds + payload_bytes / self.bandwidth_bytes_per_second


@dataclass(frozen=True)
class Nodes:
    """Ranks that share machines: 0 to R-1 the first node, ..., the last may hold fewer.

    `link` joins ranks of one node. Raises InputError for fewer than one rank per node.
    """

    ranks_per_node: int
    link: Link

    def __post_init__(self) -> None:
        check_count("ranks per node", self.ranks_per_node)


@dataclass(frozen=True)
class AllReduceCost:
    """Seconds of one all-reduce, and what the busiest rank sends.

    `messages_per_rank` and `bytes_per_rank` are the largest over the ranks. The
    bytes are a fraction where the vector doesn't divide by the ranks.
    `bus_bandwidth_bytes_per_second` is nccl-tests' bus bandwidth: algorithm bandwidth
    (bytes / seconds) times 2(P-1)/P, which shows a perfect ring its links' bandwidth
    whatever P is. It is 0 if nothing is sent.
    See https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md.
    """

    seconds: float
    messages_per_rank: int
    bytes_per_rank: float
    bus_bandwidth_bytes_per_second: float


def simulate_all_reduce(
    algorithm: str, ranks: int, payload_bytes: float, link: Link, nodes: Nodes | None = None
) -> AllReduceCost:
    """Return what summing `payload_bytes` over `ranks` costs with `algorithm`, one of ALGORITHMS.

    `link` joins any two ranks; with `nodes`, ranks of different nodes only. A flat algorithm on
    nodes pays each step its slowest link; hierarchical needs `nodes`. One rank costs nothing.
    Returns seconds, steps and bytes. Raises InputError for an unknown algorithm, fewer than one
    rank, negative bytes, more ranks per node than ranks, and hierarchical without nodes.

        >>> link = Link(latency_seconds=1e-5, bandwidth_bytes_per_second=1e10)
        >>> round(simulate_all_reduce("ring", ranks=8, payload_bytes=1e8, link=link).seconds, 4)
        0.0176
    """
    _check(algorithm, ranks, payload_bytes, nodes)
    place = _Place(ranks, payload_bytes, link, nodes)
    seconds, messages, sent = _COSTS[algorithm](place)
    whole = int(sent) if float(sent).is_integer() else sent
    return AllReduceCost(
        seconds, messages, whole, compute_bus_bandwidth(ranks, payload_bytes, seconds)
    )


def compute_bus_bandwidth(ranks: int, payload_bytes: float, seconds: float) -> float:
    """Return bytes per second: payload_bytes / seconds * 2(ranks-1)/ranks; 0 if no time passes."""
    return payload_bytes / seconds * 2 * (ranks - 1) / ranks if seconds > 0 else 0.0


def fit_link(
    algorithm: str,
    ranks: int,
    payload_bytes: Sequence[float],
    seconds: Sequence[float],
    *,
    relative: bool = False,
) -> tuple[Link, AlphaBeta]:
    """Return the link on which `algorithm` would take `seconds` for `payload_bytes`, and the fit.

    `seconds` and `payload_bytes` are equally long and were measured with `ranks`. Least squares
    over all points (`relative` as in `fit_alpha_beta`); two points are met exactly. For flat
    algorithms on equal links. Raises InputError for hierarchical, fewer than two ranks, and
    points that can't be fitted.

        >>> link, _ = fit_link("ring", 4, [1e6, 1e8], [0.001, 0.0505])
        >>> f"{link.bandwidth_bytes_per_second:.0e}"
        '3e+09'
    """
    if algorithm == "hierarchical" or ranks < 2:
        raise InputError(
            f"{algorithm} over {ranks} rank{'s' * (ranks != 1)} says nothing about a single "
            "link. Fit naive, ring, recursive-doubling or tree over at least 2 ranks."
        )
    one_second, nothing = Link(1.0, 1e30), Link(0.0, 1.0)  # count messages, and bytes
    messages = simulate_all_reduce(algorithm, ranks, 0, one_second).seconds
    carried = [simulate_all_reduce(algorithm, ranks, n, nothing).seconds for n in payload_bytes]
    fit = fit_alpha_beta([messages] * len(carried), carried, seconds, relative=relative)
    return Link(fit.latency_seconds, fit.bandwidth_bytes_per_second), fit


def _check(algorithm: str, ranks: int, payload_bytes: float, nodes: Nodes | None) -> None:
    check_choice("algorithm", algorithm, ALGORITHMS)
    if ranks < 1:
        raise InputError(f"ranks must be at least 1, got {ranks}.")
    if not 0 <= payload_bytes <= MAX_BYTES:
        raise InputError(f"payload_bytes must be from 0 to {MAX_BYTES:g}, got {payload_bytes}.")
    if nodes is not None:
        check_ranks_per_node(ranks, nodes.ranks_per_node)
    elif algorithm == "hierarchical":
        raise InputError(
            "nodes must be given for 'hierarchical': the number of ranks in a node, and the "
            "latency and bandwidth inside it."
        )


@dataclass(frozen=True)
class _Place:
    """The setting of an all-reduce: the inputs of `simulate_all_reduce`."""

    ranks: int
    payload_bytes: float
    link: Link
    nodes: Nodes | None

    @property
    def ranks_per_node(self) -> int:
        return self.nodes.ranks_per_node if self.nodes else 1

    @property
    def node_count(self) -> int:
        return -(-self.ranks // self.ranks_per_node)

    def slowest_seconds(self, inside: bool, between: bool, payload_bytes: float) -> float:
        """Return the time of a step whose messages stay inside nodes, go between them, or both."""
        used = ([self.nodes.link] if inside and self.nodes else []) + [self.link] * between
        return max((link.seconds(payload_bytes) for link in used), default=0.0)


def _cost_naive(place: _Place) -> tuple[float, int, float]:
    near, far = place.ranks_per_node - 1, place.ranks - place.ranks_per_node
    size = place.payload_bytes
    one_way = near * place.slowest_seconds(True, False, size)
    one_way += far * place.slowest_seconds(False, True, size)
    return 2 * one_way, place.ranks - 1, (place.ranks - 1) * size


def _cost_ring(place: _Place) -> tuple[float, int, float]:
    steps, size = 2 * (place.ranks - 1), place.payload_bytes
    inside, between = place.ranks_per_node > 1, place.node_count > 1
    seconds = steps * place.slowest_seconds(inside, between, size / place.ranks)
    return seconds, steps, steps * size / place.ranks


def _cost_recursive_doubling(place: _Place) -> tuple[float, int, float]:
    """Partners stand 1, 2, 4, ... apart: those nearer than R can meet in a node.

    Some pair still crosses, unless the nodes begin at multiples of the pairs' blocks.
    """
    core, size, per_node = (
        largest_power_of_two(place.ranks),
        place.payload_bytes,
        place.ranks_per_node,
    )
    swaps, seconds = core.bit_length() - 1, 0.0
    for distance in (1 << bit for bit in range(swaps)):
        crossing = per_node < core and per_node % (2 * distance) != 0
        seconds += place.slowest_seconds(distance < per_node, crossing, size)
    folds = core < place.ranks
    if folds:
        seconds += 2 * place.slowest_seconds(core < per_node, place.node_count > 1, size)
    return seconds, swaps + folds, (swaps + folds) * size


def _cost_tree(place: _Place) -> tuple[float, int, float]:
    """Parent and child stand 1, 2, 4, ... apart, the parent at a multiple of twice that."""
    distances, one_way = list_distances(place.ranks), 0.0
    for distance in distances:
        inside = distance < place.ranks_per_node  # as parent 0 and its child
        crossing = _crosses_nodes(place.ranks, place.ranks_per_node, distance)
        one_way += place.slowest_seconds(inside, crossing, place.payload_bytes)
    return 2 * one_way, len(distances), len(distances) * place.payload_bytes


def _crosses_nodes(ranks: int, per_node: int, distance: int) -> bool:
    """Say whether some parent and its child at `distance` sit in different nodes.

    Looks at where nodes begin, since only a few are needed, and not at the parents: a billion
    ranks have half a billion.
    """
    parents = list_parents(ranks, distance)
    begins = range(per_node, ranks, per_node)[: 2 * distance]
    return any(
        0 < begin % parents.step <= distance and begin - begin % parents.step in parents
        for begin in begins
    )


def _cost_hierarchical(place: _Place) -> tuple[float, int, float]:
    members, size = place.ranks_per_node - 1, place.payload_bytes
    ring = _Place(place.node_count, size, place.link, None)
    ring_seconds, ring_messages, ring_bytes = _cost_ring(ring)
    seconds = 2 * members * place.slowest_seconds(True, False, size) + ring_seconds
    return seconds, members + ring_messages, members * size + ring_bytes


_COSTS = {
    "naive": _cost_naive,
    "ring": _cost_ring,
    "recursive-doubling": _cost_recursive_doubling,
    "tree": _cost_tree,
    "hierarchical": _cost_hierarchical,
}
