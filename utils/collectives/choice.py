"""An all-reduce by its name."""

from collections.abc import Sequence

import numpy as np

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
    """Sum one array per rank by one of `ALGORITHMS`.

    `ranks_per_node` belongs to hierarchical, which needs it; the others do not
    look at it. Raises InputError for another name, for hierarchical without
    it, and for what the algorithm itself refuses.
    """
    if algorithm in FLAT:
        return FLAT[algorithm](vectors, network)
    if algorithm != "hierarchical":
        raise InputError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}.")
    if ranks_per_node is None:
        raise InputError("hierarchical needs ranks_per_node, the number of ranks in a node.")
    return hierarchical_all_reduce(vectors, ranks_per_node, network)
