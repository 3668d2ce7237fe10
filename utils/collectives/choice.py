"""An all-reduce by its name."""

from collections.abc import Sequence

import numpy as np

from ..checks import check_choice
from ..errors import InputError
from .hierarchical import hierarchical_all_reduce
from .naive import naive_all_reduce
from .network import AllReduceResult, Network
from .recursive_doubling import recursive_doubling_all_reduce
from .ring import ring_all_reduce
from .tree import tree_all_reduce

FLAT = {
    "naive": naive_all_reduce,
    "ring": ring_all_reduce,
    "recursive-doubling": recursive_doubling_all_reduce,
    "tree": tree_all_reduce,
}
ALGORITHMS = (*FLAT, "hierarchical")


def all_reduce(
    vectors: Sequence[np.ndarray],
    algorithm: str = "ring",
    ranks_per_node: int | None = None,
    network: Network | None = None,
) -> AllReduceResult:
    """Sum one array per rank with `algorithm`, one of `ALGORITHMS`; return sums and messages.

    `vectors[rank]` are arrays of one shape and dtype. `ranks_per_node` is for "hierarchical", which
    needs it. `network` counts the messages; None makes a new one. Raises InputError for an unknown
    algorithm, for "hierarchical" without `ranks_per_node`, and as the algorithm itself does.

        >>> all_reduce([np.ones(4), np.ones(4)], "tree").vectors[1].tolist()
        [2.0, 2.0, 2.0, 2.0]
    """
    if algorithm in FLAT:
        return FLAT[algorithm](vectors, network)
    check_choice("algorithm", algorithm, ALGORITHMS)
    if ranks_per_node is None:
        raise InputError("ranks_per_node must be given for 'hierarchical': the ranks in a node.")
    return hierarchical_all_reduce(vectors, ranks_per_node, network)
