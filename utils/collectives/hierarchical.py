"""Hierarchical all-reduce: inside each node first, then a ring over the nodes' leaders."""

from collections.abc import Sequence

import numpy as np

from ..checks import check_count
from .network import AllReduceResult, Network, Send, flatten_inputs, make_result, open_network
from .ring import ring_all_gather, ring_reduce_scatter, split_into_chunks


def hierarchical_all_reduce(
    vectors: Sequence[np.ndarray], ranks_per_node: int, network: Network | None = None
) -> AllReduceResult:
    """Sum one array per rank so that only one rank of each node talks to other nodes.

    Ranks 0 to R-1 are the first node, the next R the second, ...; the last may
    hold fewer. The lowest rank leads: it takes the whole vectors of its node one
    by one, joins the ring of leaders, and sends the sum to each of its node.
    With R ranks in each of K nodes that is 2(R-1) + 2(K-1) steps. `vectors[rank]`
    are arrays of one shape and dtype, of any length. Raises InputError for no
    rank, arrays that differ, and nodes that can't be.
    """
    flat = flatten_inputs(vectors)
    network = open_network(len(flat), network)
    nodes = group_into_nodes(len(flat), ranks_per_node)
    leaders = [node[0] for node in nodes]
    for member in range(1, ranks_per_node):
        sends = [Send(n[member], n[0], flat[n[member]]) for n in nodes if member < len(n)]
        for message in network.exchange(sends, "reduce in node"):
            flat[message.destination] = flat[message.destination] + message.values
    chunks = [split_into_chunks(flat[leader], len(nodes)) for leader in leaders]
    ring_reduce_scatter(chunks, network, leaders)
    ring_all_gather(chunks, network, leaders)
    for leader, row in zip(leaders, chunks, strict=True):
        flat[leader] = np.concatenate(row)
    for member in range(1, ranks_per_node):
        sends = [Send(n[0], n[member], flat[n[0]]) for n in nodes if member < len(n)]
        for message in network.exchange(sends, "broadcast in node"):
            flat[message.destination] = message.values
    return make_result(flat, vectors[0], network)


def group_into_nodes(ranks: int, ranks_per_node: int) -> list[range]:
    """Return the ranks of each node: `group_into_nodes(5, 2)` is 0-1, 2-3 and 4 alone.

    Raises InputError for fewer than one rank per node, or more than there are ranks.
    """
    check_ranks_per_node(ranks, ranks_per_node)
    starts = range(0, ranks, ranks_per_node)
    return [range(start, min(start + ranks_per_node, ranks)) for start in starts]


def check_ranks_per_node(ranks: int, ranks_per_node: int) -> None:
    """Raise InputError unless a node of `ranks_per_node` can be filled from `ranks`."""
    check_count("ranks per node", ranks_per_node, 1, ranks)
