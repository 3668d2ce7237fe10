"""The workers that train one model together, seen from one of them.

The rule for who is chief (who saves, reports and exports) stands here once: the task
"chief 0", or "worker 0" where no chief is listed. It is TensorFlow's rule too
(https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras).
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import RunError, shorten


class WorkerGroup:
    """The group of workers: their number, whether this one is the chief, and their barriers and
    messages.

    A run in one process is a group of one, and so is the coordinator of a parameter-server
    cluster: alone it saves and reports. `any`, `broadcast`, `gather` and `barrier` are
    collective: every worker must call them, in the same order.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.strategy = strategy
        self.workers, self.index, self.is_chief = 1, 0, True
        self.names: tuple[str, ...] = ("this process",)
        resolver = strategy.cluster_resolver
        jobs = resolver.cluster_spec().as_dict() if resolver is not None else {}
        mirrored = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        if isinstance(strategy, tf.distribute.ParameterServerStrategy):
            self.workers = strategy._num_workers
        elif mirrored and jobs:
            tasks = [(job, i) for job in ("chief", "worker") for i in range(len(jobs.get(job, [])))]
            self.workers, self.names = len(tasks), tuple(f"{job} {i}" for job, i in tasks)
            self.index = tasks.index((resolver.task_type, resolver.task_id))
            self.is_chief = self.index == 0
        self.in_lockstep = mirrored and self.workers > 1

    @property
    def name(self) -> str:
        """This worker's name in messages, "worker 1" for example."""
        return self.names[self.index]

    @property
    def replicas_per_worker(self) -> int:
        if self.in_lockstep:
            return self.strategy.num_replicas_in_sync // self.workers
        return self.strategy.num_replicas_in_sync

    def any(self, flag: bool) -> bool:
        """Return whether `flag` is true on any worker."""
        return bool(self._add_up(np.array([float(flag)]))[0] > 0) if self.in_lockstep else flag

    def broadcast(self, value: Any) -> Any:
        """Return the chief's `value`, anything that JSON can hold, on every worker."""
        return self.gather(value if self.is_chief else None)[0]

    def gather(self, value: Any) -> list[Any]:
        """Return every worker's `value`, anything that JSON can hold, the chief's first."""
        if not self.in_lockstep:
            return [value]
        text = json.dumps(value).encode()
        lengths = self._add_up(np.eye(self.workers)[self.index] * len(text)).astype(int)
        rows = np.zeros((self.workers, lengths.max()))
        rows[self.index, : len(text)] = list(text)
        texts = self._add_up(rows).astype(np.uint8)
        return [json.loads(row[:length].tobytes()) for row, length in zip(texts, lengths)]

    def barrier(self) -> None:
        """Return once every worker has come here: one that ends early fails the others."""
        self.any(False)

    def compare(self, facts: Mapping[str, Any]) -> None:
        """Raise RunError on every worker, naming what differs and where, unless all `facts` agree.

        `facts` are names with values that JSON can hold. A name that some worker lacks differs too.
        """
        try:
            everyone = self.gather({name: shorten(str(value)) for name, value in facts.items()})
        except tf.errors.OpError as error:
            raise RunError(
                f"The workers can't compare how they were started. {self.name} has "
                f"{self.replicas_per_worker} replicas, and all must have equally many: "
                f"{str(error).strip().splitlines()[0][-160:]}"
            ) from None
        differing = []
        for name in sorted({name for one in everyone for name in one}):
            values = [one.get(name, "missing") for one in everyone]
            if len(set(values)) > 1:
                pairs = (f"{value} on {who}" for value, who in zip(values, self.names))
                differing.append(f"{name.replace('_', ' ')} is {', '.join(pairs)}")
        if differing:
            self.barrier()
            raise RunError(
                f"The workers weren't started alike: {'; '.join(differing)}. Start them all "
                "with the same settings, versions and data."
            )

    def _add_up(self, values: np.ndarray) -> np.ndarray:
        """Return the sum over all workers of float64 `values`, which have one shape on all."""
        zeros = np.zeros_like(values)
        per_replica = self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(
                zeros if context.replica_id_in_sync_group % self.replicas_per_worker else values,
                tf.float64,
            )
        )
        return self.strategy.reduce("SUM", per_replica, axis=None).numpy()
