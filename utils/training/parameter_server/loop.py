"""The asynchronous loop: closures scheduled on whatever worker is free, and joined.

Each closure reads the parameters, computes a gradient and applies it, while others do the same: no
worker waits, and a gradient may be older than the parameters that it changes.

Follows TensorFlow's tutorial on parameter server training
(https://www.tensorflow.org/tutorials/distribute/parameter_server_training). The
differences are the pieces of sharded variables, which Keras 3 can't differentiate
itself, and a step counter that loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...checks import check_count
from .coordination import Coordination, find_worker
from .counting import ExactCounter, use_atomic_step_counter
from .variables import list_pieces

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

ExampleLoss = Callable[[Any, Any], "tf.Tensor"]  # labels, outputs -> [batch]


@dataclass(frozen=True)
class ClosureResult:
    """The result of one closure: the worker that ran it, and its batch's loss."""

    worker: int
    loss: float


class AsynchronousLoop:
    """Trains `model` with closures, each a step on a batch of the worker that runs it.

    Model and optimizer are made in the strategy's scope. The optimizer is built here,
    on the pieces of the variables, and counts exactly. `example_loss(labels, outputs)`
    returns one number per example, [batch], whose mean is the loss; `make_batches()` returns
    the `tf.data.Dataset` of (features, labels) that each worker makes for itself. `written`
    counts the updates that reached the servers.
    """

    def __init__(
        self,
        coordination: Coordination,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        example_loss: ExampleLoss,
        make_batches: Callable[[], tf.data.Dataset],
    ) -> None:
        import tensorflow as tf

        self.coordination, self.model, self.optimizer = coordination, model, optimizer
        self.example_loss = example_loss
        self.pieces = list_pieces(model.trainable_variables)
        with coordination.strategy.scope():
            optimizer.build(self.pieces)
        use_atomic_step_counter(optimizer)
        self.written = ExactCounter(coordination.strategy, "written")
        batches = coordination.coordinator.create_per_worker_dataset(make_batches)
        self._iterator = iter(batches)
        self._closure = tf.function(lambda iterator: self.take_step(next(iterator)))

    @property
    def counts(self) -> dict[str, tf.Variable]:
        """The counters that a checkpoint must hold, by name."""
        return {"written": self.written.variable}

    def schedule(self, steps: int) -> list[tf.distribute.coordinator.RemoteValue]:
        """Queue `steps` closures and return at once with their results-to-be."""
        coordinator = self.coordination.coordinator
        return [coordinator.schedule(self._closure, args=(self._iterator,)) for _ in range(steps)]

    def run(self, steps: int, max_in_flight: int | None = None) -> list[Any]:
        """Schedule `steps` closures, join them, and return what `fetch` makes of their results.

        With `max_in_flight`, at most that many are under way at once (1: one after
        the other, no gradient is ever late). A closure whose worker dies is run again
        by another: none is lost, and its update may have been written twice.
        Raises TensorFlow's UnavailableError when a parameter server dies.
        """
        check_count("steps", steps)
        at_once = steps if max_in_flight is None else check_count("max_in_flight", max_in_flight)
        remotes: list[Any] = []
        for start in range(0, steps, at_once):
            remotes += self.schedule(min(at_once, steps - start))
            self.coordination.coordinator.join()
        return self.fetch(remotes)

    def fetch(self, remotes: Sequence[Any]) -> list[Any]:
        """Wait for scheduled closures and return a ClosureResult of each, in their order."""
        rows = self.coordination.coordinator.fetch(list(remotes))
        return [ClosureResult(int(worker), float(loss)) for worker, loss in rows]

    def take_step(self, batch: Any) -> tuple[tf.Tensor, ...]:
        """Run in a closure: compute, apply, and return what `fetch` reads."""
        import tensorflow as tf

        loss, gradients = self.compute(batch)
        with tf.control_dependencies([self.write(gradients)]):
            return find_worker(), tf.identity(loss)

    def compute(self, batch: Any) -> tuple[tf.Tensor, list[Any]]:
        """Return the batch's loss, and its gradient for each of `pieces`."""
        from ..step import find_gradients

        return find_gradients(self.model, self.example_loss, batch, self.pieces)[:2]

    def write(self, gradients: list[Any]) -> tf.Tensor:
        """Apply the gradients; Keras's optimizer must be inside `strategy.run`.

        There it reduces over the one replica, and asks on which device each gradient
        is: a tensor from outside a branch has none, its identity has.
        """
        import tensorflow as tf

        def write(gradients: list[Any]) -> None:
            placed = tf.nest.map_structure(tf.identity, gradients, expand_composites=True)
            self.optimizer.apply_gradients(zip(placed, self.pieces))

        self.coordination.strategy.run(write, args=(gradients,))
        self.written.add()
        return tf.constant(True)
