"""All-reduce, written to be read: naive, ring, tree and hierarchical, in NumPy.

from . import ring_all_reduce

    result = ring_all_reduce([gradient_of_rank_0, gradient_of_rank_1, ...])
    result.vectors[0], result.messages_per_rank, result.bytes_per_rank, result.steps

All ranks live in one process; every message goes through a `Network`, which
records it. `ProcessRing` is the ring between real processes.
"""

from .buckets import (
    BucketedResult,
    flatten_bucket,
    make_buckets,
    reduce_in_buckets,
    restore_bucket,
)
from .choice import ALGORITHMS, all_reduce
from .fit import AlphaBeta, fit_alpha_beta
from .hierarchical import (
    check_ranks_per_node,
    group_into_nodes,
    hierarchical_all_reduce,
)
from .moments import Moment, list_ring_moments
from .naive import naive_all_reduce
from .network import (
    Message,
    Network,
    Send,
    count_bytes,
    count_messages,
    count_serial_bytes,
)
from .processes import ProcessRing
from .result import AllReduceResult
from .ring import (
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    split_into_chunks,
)
from .tree import largest_power_of_two, tree_all_reduce

__all__ = [
    "ALGORITHMS",
    "AllReduceResult",
    "AlphaBeta",
    "BucketedResult",
    "Message",
    "Moment",
    "Network",
    "ProcessRing",
    "Send",
    "all_reduce",
    "check_ranks_per_node",
    "count_bytes",
    "count_messages",
    "count_serial_bytes",
    "fit_alpha_beta",
    "flatten_bucket",
    "group_into_nodes",
    "hierarchical_all_reduce",
    "largest_power_of_two",
    "list_ring_moments",
    "make_buckets",
    "naive_all_reduce",
    "reduce_in_buckets",
    "restore_bucket",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "split_into_chunks",
    "tree_all_reduce",
]
