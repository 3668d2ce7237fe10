"""How TensorFlow splits a global batch over replicas."""

from ..checks import check_count


def split_batch(examples: int, replicas: int) -> list[int]:
    """Return how many of a batch's examples each replica gets.

    As `strategy.experimental_distribute_dataset` and `fit` do it for data in memory and under the
    sharding policy DATA: every share is examples / replicas rounded up, until none are left.
    10 over 4 replicas is [3, 3, 3, 1], and 6 over 4 is [2, 2, 2, 0]. Under the policies FILE and
    OFF, TensorFlow splits differently. Raises InputError for fewer than 0 examples or 1 replica.
    """
    share = -(-check_count("examples", examples, 0) // check_count("replicas", replicas))
    return [min(share, max(examples - k * share, 0)) for k in range(replicas)]
