"""Split a global batch over replicas as TensorFlow does."""

from ..checks import check_count


def split_batch(examples: int, replicas: int) -> list[int]:
    """Return how many of a batch's `examples` each of `replicas` gets.

    That is how `strategy.experimental_distribute_dataset` and `fit` split data in memory, and
    files under the sharding policy DATA: each share is examples / replicas rounded up, until
    none are left. Under the policies FILE and OFF, TensorFlow splits differently. Raises
    InputError for fewer than 0 examples or 1 replica.

        >>> split_batch(10, replicas=4), split_batch(6, replicas=4)
        ([3, 3, 3, 1], [2, 2, 2, 0])
    """
    share = -(-check_count("examples", examples, 0) // check_count("replicas", replicas))
    return [min(share, max(examples - k * share, 0)) for k in range(replicas)]
