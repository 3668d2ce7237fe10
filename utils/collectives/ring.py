"""Ring all-reduce: reduce-scatter, then all-gather, each rank talking to its two neighbors.

Each rank sends 2(P-1) messages and 2(P-1)/P of the vector's bytes: nearly twice
the vector, however many ranks there are, which is the least that any all-reduce
can do (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for
clusters of workstations").
"""

from collections.abc import Sequence

import numpy as np

from .network import AllReduceResult, Network, Send, flatten_inputs, make_result, open_network

Chunks = list[list[np.ndarray]]  # chunks[position on the ring][chunk index]


def ring_all_reduce(
    vectors: Sequence[np.ndarray], network: Network | None = None
) -> AllReduceResult:
    """Sum one array per rank over a ring. Return sums, the same on every rank bit for bit.

    `vectors[rank]` are arrays of one shape and dtype, of any length, even shorter than the number
    of ranks. `network` counts the messages; None makes a new one. Raises InputError for no rank and
    for arrays that differ. Follows Patarasuk and Yuan 2009.

        >>> ring_all_reduce([np.ones(4), np.ones(4)]).bytes_per_rank
        [32, 32]
    """
    flat = flatten_inputs(vectors)
    network = open_network(len(flat), network)
    chunks = [split_into_chunks(vector, len(flat)) for vector in flat]
    ring_reduce_scatter(chunks, network)
    ring_all_gather(chunks, network)
    return make_result([np.concatenate(row) for row in chunks], vectors[0], network)


def split_into_chunks(vector: np.ndarray, count: int) -> list[np.ndarray]:
    """Cut a 1-D array into `count` pieces that differ by one element at most.

    The longer ones come first. With fewer elements than pieces the last ones are empty.
    """
    return np.array_split(vector, count)


def ring_reduce_scatter(
    chunks: Chunks, network: Network, members: Sequence[int] | None = None
) -> None:
    """First half: after P-1 steps position p holds the whole sum of chunk (p+1) mod P.

    In every step each position sends one chunk to the next one, which adds it
    to its own. `chunks[p]` holds the P chunks of position p, replaced in place;
    `members[p]` is the rank that stands there (default: rank p).
    """
    ranks = len(chunks)
    members = range(ranks) if members is None else members
    for step in range(ranks - 1):
        sends = []
        for position in range(ranks):
            chunk = (position - step) % ranks
            neighbor = members[(position + 1) % ranks]
            sends.append(Send(members[position], neighbor, chunks[position][chunk], chunk))
        arrived = network.exchange(sends, "reduce-scatter")
        for position, message in enumerate(arrived):
            mine = chunks[(position + 1) % ranks]
            mine[message.chunk] = mine[message.chunk] + message.values


def ring_all_gather(chunks: Chunks, network: Network, members: Sequence[int] | None = None) -> None:
    """Second half: the finished chunks go once round. After P-1 steps everyone has all of them.

    Begins where `ring_reduce_scatter` ends and takes the same arguments. The
    receiver replaces its chunk by the one that arrives.
    """
    ranks = len(chunks)
    members = range(ranks) if members is None else members
    for step in range(ranks - 1):
        sends = []
        for position in range(ranks):
            chunk = (position + 1 - step) % ranks
            neighbor = members[(position + 1) % ranks]
            sends.append(Send(members[position], neighbor, chunks[position][chunk], chunk))
        arrived = network.exchange(sends, "all-gather")
        for position, message in enumerate(arrived):
            mine = chunks[(position + 1) % ranks]
            mine[message.chunk] = message.values
