"""All-reduce, written to be read: naive, ring, recursive doubling, tree and hierarchical.

    from utils.collectives import ring_all_reduce
    result = ring_all_reduce([gradient_of_rank_0, gradient_of_rank_1, ...])
    result.vectors[0], result.messages_per_rank, result.bytes_per_rank, result.steps

All ranks live in one process; every message goes through a `Network`, which
records it. `ProcessRing` is the ring between real processes.
"""

import importlib
from typing import Any

_NAMES = {
    "buckets": "BucketedResult flatten_bucket make_buckets reduce_in_buckets restore_bucket",
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
