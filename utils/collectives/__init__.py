"""All-reduce, written to be read: naive, ring, recursive doubling, tree and hierarchical.

    from utils.collectives import ring_all_reduce
    result = ring_all_reduce([gradient_of_rank_0, gradient_of_rank_1, ...])
    result.vectors[0], result.messages_per_rank, result.bytes_per_rank, result.steps

All ranks live in one process; every message goes through a `Network`, which
records it. `ProcessRing` is the ring between real processes.

- `choice`: an all-reduce by its name
- `fit`: the alpha-beta model of a network, fitted to timings
- `hierarchical`: hierarchical all-reduce: inside each node first, then a ring over the nodes'
  leaders
- `naive`: naive all-reduce: everything to rank 0, which adds it up and sends the sum back
- `network`: the network of the all-reduce algorithms: it carries arrays between ranks and counts
- `processes`: the ring between processes: each rank holds one socket to the next rank and one from
  the last
- `recursive_doubling`: recursive doubling: an all-reduce of few steps, with the whole vector in
  each
- `replica_values`: what becomes of one value per replica: `reduce`, `gather` and `all_reduce` in
  NumPy
- `ring`: ring all-reduce: reduce-scatter, then all-gather, each rank talking to its two neighbors
- `tree`: a binomial tree: an all-reduce as a reduction to rank 0 and a broadcast back, both by
  halves
"""

from ..lazy import import_lazily

_NAMES = {
    "choice": "ALGORITHMS all_reduce",
    "fit": "AlphaBeta fit_alpha_beta",
    "hierarchical": "check_ranks_per_node group_into_nodes hierarchical_all_reduce",
    "naive": "naive_all_reduce",
    "network": "AllReduceResult Message Network Send count_bytes count_messages",
    "processes": "ProcessRing",
    "recursive_doubling": "largest_power_of_two recursive_doubling_all_reduce",
    "replica_values": "combine_values",
    "ring": "ring_all_gather ring_all_reduce ring_reduce_scatter split_into_chunks",
    "tree": "list_distances list_parents tree_all_reduce",
}  # loaded with the first use of a name: who wants the network only gets no more
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOMES)
__getattr__ = import_lazily(__name__, _HOMES)
