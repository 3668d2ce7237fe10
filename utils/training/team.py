"""The workers that train one model together, seen from one of them."""

import tensorflow as tf


class Team:
    """How many workers there are, whether this one is the chief, and what they agree on.

    A run in one process is a team of one, and the coordinator of a parameter-server
    cluster is one too: alone it saves and reports. `agree`, `share` and `meet` are
    collective: every worker must call them, in the same order.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        self.workers, self.is_chief = 1, True
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = resolver.cluster_spec().as_dict()
        if isinstance(strategy, tf.distribute.ParameterServerStrategy):
            self.workers = len(jobs["worker"])
        elif isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and jobs:
            self.workers = len(jobs.get("chief", [])) + len(jobs.get("worker", []))
            leader = ("chief", 0) if "chief" in jobs else ("worker", 0)
            self.is_chief = (resolver.task_type, resolver.task_id) == leader
        mirrored = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        self.moves_together = mirrored and self.workers > 1

    @property
    def replicas_per_worker(self) -> int:
        if self.moves_together:
            return self._strategy.num_replicas_in_sync // self.workers
        return self._strategy.num_replicas_in_sync

    def agree(self, flag: bool) -> bool:
        """Return whether `flag` is true on any worker."""
        return self._add_up(float(flag)) > 0 if self.moves_together else flag

    def share(self, number: int) -> int:
        """Return the chief's `number` on every worker."""
        if not self.moves_together:
            return number
        total = self._add_up(float(number) if self.is_chief else 0.0)
        return round(total / self.replicas_per_worker)

    def meet(self) -> None:
        """Return once every worker has come here: one that ends early fails the others."""
        self.agree(False)

    def _add_up(self, value: float) -> float:
        """Return the sum of `value` over all replicas of all workers."""
        values = self._strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(value, tf.float64)
        )
        return float(self._strategy.reduce("SUM", values, axis=None))
