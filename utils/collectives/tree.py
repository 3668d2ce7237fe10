"""A binomial tree: an all-reduce as a reduction to rank 0 and a broadcast back, both by halves.

The reduce and the broadcast of Thakur, Rabenseifner and Gropp 2005, "Optimization of
collective communication operations in MPICH", sections 4.2 and 4.4, for short vectors. NCCL's
trees are others: two binary ones at once, through which the vector flows in pieces.
"""

from collections.abc import Sequence

import numpy as np

from .network import AllReduceResult, Network, Send, flatten_inputs, make_result, open_network


def tree_all_reduce(
    vectors: Sequence[np.ndarray], network: Network | None = None
) -> AllReduceResult:
    """Sum one array per rank: up a binomial tree to rank 0, and down again.

    Takes 2 ceil(log2(P)) steps, each with the whole vector. Only half of the ranks that are
    left send in each, and rank 0 sends most: ceil(log2(P)) messages. `vectors[rank]` are
    arrays of one shape and dtype, of any length. Raises InputError for no rank or arrays
    that differ.
    """
    flat = flatten_inputs(vectors)
    network = open_network(len(flat), network)
    distances = list_distances(len(flat))
    for distance in distances:
        up = [
            Send(rank + distance, rank, flat[rank + distance])
            for rank in list_parents(len(flat), distance)
        ]
        for message in network.exchange(up, "reduce"):
            flat[message.destination] = flat[message.destination] + message.values
    for distance in reversed(distances):
        down = [
            Send(rank, rank + distance, flat[rank]) for rank in list_parents(len(flat), distance)
        ]
        for message in network.exchange(down, "broadcast"):
            flat[message.destination] = message.values
    return make_result(flat, vectors[0], network)


def list_distances(ranks: int) -> list[int]:
    """Return how far parent and child stand apart in each step up: 1, 2, 4, ... below `ranks`."""
    return [1 << bit for bit in range((ranks - 1).bit_length())]


def list_parents(ranks: int, distance: int) -> range:
    """Return the ranks that have a child at `distance`: every second one of those left."""
    return range(0, ranks - distance, 2 * distance)
