"""Naive all-reduce: everything to rank 0, which adds it up and sends the sum back."""

from collections.abc import Sequence

import numpy as np

from .network import AllReduceResult, Network, Send, flatten_inputs, make_result, open_network


def naive_all_reduce(
    vectors: Sequence[np.ndarray], network: Network | None = None
) -> AllReduceResult:
    """Sum one array per rank at rank 0: 2(P-1) steps, since rank 0 has one port.

    Rank 0 sends P-1 whole vectors and receives as many; the others send one.
    `vectors[rank]` are arrays of one shape and dtype, of any length. Raises
    InputError for no rank or arrays that differ.
    """
    flat = flatten_inputs(vectors)
    network = open_network(len(flat), network)
    total = flat[0]
    for rank in range(1, len(flat)):
        (message,) = network.exchange([Send(rank, 0, flat[rank])], "gather")
        total = total + message.values
    flat[0] = total
    for rank in range(1, len(flat)):
        (message,) = network.exchange([Send(0, rank, total)], "broadcast")
        flat[rank] = message.values
    return make_result(flat, vectors[0], network)
