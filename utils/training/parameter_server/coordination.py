"""The strategy and its coordinator, from TF_CONFIG; how variables are cut into pieces.

Follows TensorFlow's tutorial on parameter server training
(https://www.tensorflow.org/tutorials/distribute/parameter_server_training).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import InputError
from ...strategies import make_strategy

if TYPE_CHECKING:
    import tensorflow as tf

MIN_SHARD_BYTES = 256 << 10  # cutting a smaller variable costs messages and saves little


@dataclass(frozen=True)
class Coordination:
    """A parameter-server strategy, its coordinator, and the number of workers."""

    strategy: tf.distribute.ParameterServerStrategy
    coordinator: tf.distribute.coordinator.ClusterCoordinator
    workers: int


def connect(min_shard_bytes: int = MIN_SHARD_BYTES) -> Coordination:
    """Connect this process, the coordinator, to the workers and servers of TF_CONFIG.

    Variables of more than `min_shard_bytes` are cut along their first axis, one piece for
    each server at most. TensorFlow rounds up: one of 1.5 times that size becomes two pieces.
    `min_shard_bytes=0` leaves all variables in one piece. Raises InputError if TF_CONFIG lists
    no parameter servers, or makes this process one of the tasks that serve.
    """
    _check_configuration()
    import tensorflow as tf

    jobs = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec().as_dict()
    partitioner = make_partitioner(len(jobs["ps"]), min_shard_bytes)
    strategy = make_strategy("parameter-server", partitioner=partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    return Coordination(strategy, coordinator, len(jobs["worker"]))


def find_worker() -> tf.Tensor:
    """Return the index of the worker that runs this closure, a scalar int64."""
    import tensorflow as tf

    index = tf.distribute.coordinator.experimental_get_current_worker_index()
    return tf.cast(index, tf.int64)


def _check_configuration() -> None:
    try:
        config = json.loads(os.environ.get("TF_CONFIG", "{}"))
        jobs, task = config.get("cluster", {}), config.get("task", {}).get("type")
    except (ValueError, AttributeError):
        raise InputError("TF_CONFIG must be one JSON object.") from None
    if not (jobs.get("ps") and jobs.get("worker")):
        raise InputError(
            "TF_CONFIG must have parameter servers, got none. Run this on "
            "LocalCluster(workers=2, ps=2)."
        )
    if task in ("ps", "worker"):
        raise InputError(f"connect must run in the coordinator, got a {task} task, which serves.")


def make_partitioner(
    servers: int, min_shard_bytes: int
) -> tf.distribute.experimental.partitioners.Partitioner | None:
    """Return the partitioner of `connect`, or None where nothing is to be cut.

    Raises InputError for a negative size.
    """
    import tensorflow as tf

    if min_shard_bytes < 0:
        raise InputError(
            "min_shard_bytes must be at least 0 (0 keeps variables in one piece), got "
            f"{min_shard_bytes}."
        )
    if min_shard_bytes == 0 or servers < 2:
        return None
    return tf.distribute.experimental.partitioners.MinSizePartitioner(
        min_shard_bytes=min_shard_bytes, max_shards=servers
    )
