"""All-reduce, written to be read: naive, ring, recursive doubling, tree and hierarchical.

    from utils.collectives import ring_all_reduce
    result = ring_all_reduce([gradient_of_rank_0, gradient_of_rank_1, ...])
    result.vectors[0], result.messages_per_rank, result.bytes_per_rank, result.steps

All ranks live in one process; every message goes through a `Network`, which
records it. `ProcessRing` is the ring between real processes.
"""

from .buckets import BucketedResult as BucketedResult
from .buckets import flatten_bucket as flatten_bucket
from .buckets import make_buckets as make_buckets
from .buckets import reduce_in_buckets as reduce_in_buckets
from .buckets import restore_bucket as restore_bucket
from .choice import ALGORITHMS as ALGORITHMS
from .choice import all_reduce as all_reduce
from .fit import AlphaBeta as AlphaBeta
from .fit import fit_alpha_beta as fit_alpha_beta
from .hierarchical import check_ranks_per_node as check_ranks_per_node
from .hierarchical import group_into_nodes as group_into_nodes
from .hierarchical import hierarchical_all_reduce as hierarchical_all_reduce
from .naive import naive_all_reduce as naive_all_reduce
from .network import AllReduceResult as AllReduceResult
from .network import Message as Message
from .network import Network as Network
from .network import Send as Send
from .network import count_bytes as count_bytes
from .network import count_messages as count_messages
from .processes import ProcessRing as ProcessRing
from .recursive_doubling import largest_power_of_two as largest_power_of_two
from .recursive_doubling import recursive_doubling_all_reduce as recursive_doubling_all_reduce
from .replica_values import combine_values as combine_values
from .ring import ring_all_gather as ring_all_gather
from .ring import ring_all_reduce as ring_all_reduce
from .ring import ring_reduce_scatter as ring_reduce_scatter
from .ring import split_into_chunks as split_into_chunks
from .tree import list_distances as list_distances
from .tree import list_parents as list_parents
from .tree import tree_all_reduce as tree_all_reduce
