"""Gradient bucketing: many small arrays travel as a few large ones.

A network pays its latency once per message, and a model has hundreds of small
gradients. PyTorch's DistributedDataParallel calls the packages buckets (Li et
al. 2020), Horovod's are fused tensors, TensorFlow's are set by `bytes_per_pack`
of `tf.distribute.experimental.CommunicationOptions`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..checks import check_count
from ..errors import InputError
from .network import AllReduceResult
from .ring import ring_all_reduce

Reduce = Callable[[Sequence[np.ndarray]], AllReduceResult]


@dataclass(frozen=True)
class BucketedResult:
    """`arrays[rank][i]` is the sum of array i as that rank holds it.

    `buckets` lists the indices of the arrays in each bucket, `reductions` what
    the all-reduce of each bucket did (its messages, bytes and steps).
    """

    arrays: list[list[np.ndarray]]
    buckets: list[list[int]]
    reductions: list[AllReduceResult]

    @property
    def messages_per_rank(self) -> list[int]:
        sent = [result.messages_per_rank for result in self.reductions]
        return [sum(counts[rank] for counts in sent) for rank in range(len(self.arrays))]

    @property
    def bytes_per_rank(self) -> list[int]:
        sent = [result.bytes_per_rank for result in self.reductions]
        return [sum(counts[rank] for counts in sent) for rank in range(len(self.arrays))]


def make_buckets(arrays: Sequence[np.ndarray], bucket_bytes: int) -> list[list[int]]:
    """Return the indices of `arrays` in buckets of at most `bucket_bytes`, in their order.

    An array is never cut: one that is larger than a bucket stands alone in its
    own. A bucket holds arrays of one dtype. Raises InputError for a bucket of
    less than one byte.
    """
    check_count("bucket bytes", bucket_bytes)
    buckets: list[list[int]] = []
    filled = 0
    for index, array in enumerate(arrays):
        fits = bool(buckets) and filled + array.nbytes <= bucket_bytes
        if fits and arrays[buckets[-1][0]].dtype == array.dtype:
            buckets[-1].append(index)
            filled += array.nbytes
        else:
            buckets.append([index])
            filled = array.nbytes
    return buckets


def flatten_bucket(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Lay arrays of one dtype end to end in one 1-D array."""
    return np.concatenate([np.ravel(array) for array in arrays])


def restore_bucket(flat: np.ndarray, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Cut a 1-D array into pieces of the shapes of `like`: `flatten_bucket` undone."""
    ends = np.cumsum([array.size for array in like])
    pieces = np.split(flat, ends[:-1])
    return [piece.reshape(array.shape) for piece, array in zip(pieces, like, strict=True)]


def reduce_in_buckets(
    gradients: Sequence[Sequence[np.ndarray]],
    bucket_bytes: int,
    reduce: Reduce = ring_all_reduce,
) -> BucketedResult:
    """Sum every array over the ranks, bucket by bucket: flatten, reduce, restore.

    `gradients[rank][i]` is array i of that rank; array i has one shape and dtype
    on all ranks. Equal to reducing each array separately, up to rounding (other
    places of cutting, so another order of adding). Raises InputError for no
    rank, and for ranks whose lists differ.
    """
    ranks = [[np.asarray(array) for array in arrays] for arrays in gradients]
    _check_same_arrays(ranks)
    buckets = make_buckets(ranks[0], bucket_bytes)
    summed: list[list[np.ndarray]] = [list(arrays) for arrays in ranks]
    reductions = []
    for bucket in buckets:
        result = reduce([flatten_bucket([arrays[i] for i in bucket]) for arrays in ranks])
        reductions.append(result)
        for rank, flat in enumerate(result.vectors):
            pieces = restore_bucket(flat, [ranks[0][i] for i in bucket])
            for i, piece in zip(bucket, pieces, strict=True):
                summed[rank][i] = piece
    return BucketedResult(summed, buckets, reductions)


def _check_same_arrays(ranks: Sequence[Sequence[np.ndarray]]) -> None:
    if not ranks:
        raise InputError("gradients must hold a list of arrays for each rank, got 0 ranks.")
    first = [(array.shape, array.dtype) for array in ranks[0]]
    for rank, arrays in enumerate(ranks):
        if [(array.shape, array.dtype) for array in arrays] != first:
            raise InputError(
                f"Rank {rank}'s arrays differ from rank 0's. All ranks must reduce the same "
                "shapes and dtypes in the same order."
            )
