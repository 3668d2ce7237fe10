"""Recursive doubling: an all-reduce of few steps, with the whole vector in each.

Follows the recursive doubling of Thakur, Rabenseifner and Gropp 2005,
"Optimization of collective communication operations in MPICH", section 4.5: the
best choice for short vectors, where latency is all that counts.
"""

from collections.abc import Sequence

import numpy as np

from .network import AllReduceResult, Network, Send, flatten_inputs, make_result, open_network


def recursive_doubling_all_reduce(
    vectors: Sequence[np.ndarray], network: Network | None = None
) -> AllReduceResult:
    """Sum one array per rank; partners at distance 1, 2, 4, ... swap their whole sums.

    A power of two takes log2(P) steps and as many messages per rank. Other
    counts first fold: with Q the largest power of two below P, rank Q+i hands
    its vector to rank i, and gets the sum back at the end (two more steps, one
    more message). `vectors[rank]` are arrays of one shape and dtype, of any
    length. Raises InputError for no rank or arrays that differ.
    """
    flat = flatten_inputs(vectors)
    network = open_network(len(flat), network)
    core = largest_power_of_two(len(flat))
    extra = range(core, len(flat))
    fold = [Send(rank, rank - core, flat[rank]) for rank in extra]
    for message in network.exchange(fold, "fold"):
        flat[message.destination] = flat[message.destination] + message.values
    _double(flat, core, network)
    unfold = [Send(rank - core, rank, flat[rank - core]) for rank in extra]
    for message in network.exchange(unfold, "unfold"):
        flat[message.destination] = message.values
    return make_result(flat, vectors[0], network)


def _double(flat: list[np.ndarray], core: int, network: Network) -> None:
    """Reduce among ranks 0 to core-1: in each step everyone swaps with one partner."""
    distance = 1
    while distance < core:
        swaps = [Send(rank, rank ^ distance, flat[rank]) for rank in range(core)]
        for message in network.exchange(swaps, "swap"):
            flat[message.destination] = flat[message.destination] + message.values
        distance *= 2


def largest_power_of_two(ranks: int) -> int:
    """Return the largest power of two that isn't above `ranks` (1 or more)."""
    return 1 << (ranks.bit_length() - 1)
