"""Training on parameter servers: the coordinator sends each batch as a step to any free worker.

Workers do not wait for each other: each step reads the parameters, computes a
gradient and applies it at once, so that a gradient may be older than the parameters
that it changes (`tf.distribute.ParameterServerStrategy`). An epoch here is every
global batch once, whichever worker took it. The coordinator reads the data; `parameter_server`
gives each worker a pipeline of its own.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .custom_loop import (
    make_test_replica,
    make_train_replica,
    read_metrics,
    reset_metrics,
)
from .parts import Parts
from .progress import Run
from .sharding import Feed

Coordinator = tf.distribute.coordinator.ClusterCoordinator


def coordinated_epoch(parts: Parts, run: Run, feed: Feed) -> Callable[[tf.data.Dataset], None]:
    """Return a function that trains on what is left of an epoch's batches."""
    coordinator = Coordinator(parts.strategy)
    step = compile_closure(
        parts.strategy, make_train_replica(parts, run.config.dtype, feed.prepare)
    )

    def train_epoch(batches: tf.data.Dataset) -> None:
        iterator = iter(batches)
        while run.position.step < run.plan.steps_per_epoch:
            steps = run.next_steps()
            schedule(coordinator, step, iterator, steps)
            run.advance(steps, lambda: read_metrics(parts))

    return train_epoch


def coordinated_evaluate(parts: Parts, batches: tf.data.Dataset) -> tuple[float, float]:
    """Return loss and accuracy over all real examples of `batches`, computed by the workers."""
    reset_metrics(parts)
    step = compile_closure(parts.strategy, make_test_replica(parts))
    schedule(Coordinator(parts.strategy), step, iter(batches), int(batches.cardinality()))
    return read_metrics(parts)


def schedule(coordinator: Any, step: Callable[..., None], iterator: Any, steps: int) -> None:
    """Send the next `steps` batches to whichever workers are free, and wait until all are done."""
    for _ in range(steps):
        coordinator.schedule(step, args=next(iterator))
    coordinator.join()


def compile_closure(
    strategy: tf.distribute.Strategy, replica_step: Callable[..., None]
) -> Callable[..., None]:
    """Return `replica_step` as a function that the coordinator can send to a worker."""

    @tf.function(reduce_retracing=True)
    def step(images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> None:
        strategy.run(replica_step, args=(images, labels, weights))

    return step
