"""The asynchronous loop: closures scheduled on whatever worker is free, and joined.

Each closure reads the parameters, computes a gradient, and writes it, while others do
the same. How stale its gradient is, it measures itself: it looks at the ticket counter
before it reads the parameters, and draws a ticket when its gradient is ready. The
difference is the number of updates that others began to write in between.

A ticket is drawn before anything is written, so an update that is too stale can be
dropped, and one that is stale can be made smaller, exactly when it matters. Two
writes to different variables are not one act: a reader may still meet an update
that has its ticket and is half written.

Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
Server", NIPS 2013; Zhang et al., "Staleness-aware Async-SGD", arXiv:1511.05950.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from .coordination import Coordination
from .counting import ExactCounter, Tickets, count_exactly
from .delays import check_delays, find_worker, sleep_in_graph
from .placement import list_pieces
from .records import Update

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

BatchLoss = Callable[..., "tf.Tensor"]
NO_BOUND = 1 << 40


class AsynchronousLoop:
    """Trains `model` with closures that measure the staleness of their updates.

    Model and optimizer are made in the strategy's scope; the optimizer is built here,
    on the pieces of the variables, and counts exactly. `batch_loss(model, *batch)`
    returns a scalar; `make_batches()` returns the `tf.data.Dataset` that each worker
    makes for itself.

    `delays` slows each worker by so many seconds a step. `most_stale` drops updates of
    greater staleness before they are written. `damp` divides a gradient by
    1 + staleness (no help to Adam, which takes no notice of a gradient's size).
    """

    def __init__(
        self,
        coordination: Coordination,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        batch_loss: BatchLoss,
        make_batches: Callable[[], tf.data.Dataset],
        *,
        delays: Sequence[float] | None = None,
        most_stale: int | None = None,
        damp: bool = False,
    ) -> None:
        if most_stale is not None and most_stale < 0:
            raise InputError(f"most_stale {most_stale}: give 0 or more, or None for no bound")
        self.coordination, self.model, self.optimizer = coordination, model, optimizer
        self.batch_loss, self.damp = batch_loss, damp
        self.most_stale = NO_BOUND if most_stale is None else most_stale
        self.delays = check_delays(delays, coordination.workers)
        strategy = coordination.strategy
        self.pieces = list_pieces(model.trainable_variables)
        with strategy.scope():
            optimizer.build(self.pieces)
        count_exactly(optimizer)
        self.tickets, self.written = Tickets(strategy), ExactCounter(strategy, "written")
        batches = coordination.coordinator.create_per_worker_dataset(make_batches)
        self._iterator = iter(batches)
        self._closure = self._compile()

    def schedule(self, steps: int) -> list[tf.distribute.coordinator.RemoteValue]:
        """Hand `steps` closures to the coordinator and return at once with their results-to-be."""
        coordinator = self.coordination.coordinator
        return [coordinator.schedule(self._closure, args=(self._iterator,)) for _ in range(steps)]

    def run(self, steps: int, most_in_flight: int | None = None) -> list[Update]:
        """Schedule `steps` closures, join them, and return their updates in ticket order.

        With `most_in_flight`, at most so many are under way at once (1: one after
        the other, nothing is ever stale). A closure whose worker dies is run again
        by another: none is lost, and its update may have been written twice.
        Raises TensorFlow's UnavailableError when a parameter server dies.
        """
        if steps < 1 or (most_in_flight is not None and most_in_flight < 1):
            raise InputError(f"{steps} steps, {most_in_flight} in flight: give 1 or more")
        remotes: list[Any] = []
        for start in range(0, steps, most_in_flight or steps):
            remotes += self.schedule(min(most_in_flight or steps, steps - start))
            self.coordination.coordinator.join()
        return self.fetch(remotes)

    def fetch(self, remotes: Sequence[Any]) -> list[Update]:
        """Wait for scheduled closures and return what they did, in ticket order."""
        rows = self.coordination.coordinator.fetch(list(remotes))
        updates = [
            Update(int(w), int(v), int(t), bool(kept), float(loss), float(began), float(ended))
            for w, v, t, kept, loss, began, ended in rows
        ]
        return sorted(updates, key=lambda update: update.ticket)

    def _compile(self) -> Callable[..., Any]:
        import tensorflow as tf

        return tf.function(lambda iterator: self._step(find_worker(), next(iterator)))

    def _step(self, worker: tf.Tensor, batch: Any) -> tuple[tf.Tensor, ...]:
        """Look, read, compute, draw, write: the order is held by control dependencies."""
        import tensorflow as tf

        with tf.control_dependencies(tf.nest.flatten(batch)):
            began, version = tf.timestamp(), self.tickets.look()
        with tf.control_dependencies([began, version]):
            loss, gradients = self._compute(batch)
        with tf.control_dependencies([loss, *(_values(g) for g in gradients)]):
            waited = sleep_in_graph(tf.gather(tf.constant(self.delays), worker))
        with tf.control_dependencies([waited]):
            ticket = self.tickets.draw()
        staleness = ticket - version
        if self.damp:
            gradients = [_scale(g, 1 / (1 + staleness)) for g in gradients]
        kept = staleness <= self.most_stale
        done = tf.cond(kept, lambda: self._write(gradients), lambda: tf.constant(False))
        with tf.control_dependencies([done]):
            ended = tf.timestamp()
        return worker, version, ticket, done, loss, began, ended

    def _compute(self, batch: Any) -> tuple[tf.Tensor, list[Any]]:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = self.batch_loss(self.model, *batch)
        return loss, tape.gradient(loss, self.pieces)

    def _write(self, gradients: list[Any]) -> tf.Tensor:
        """Apply the gradients; Keras's optimizer wants to be inside `strategy.run`.

        There it reduces over the one replica, and asks on which device each gradient
        is: a tensor from outside the branch has none, its identity has.
        """
        import tensorflow as tf

        def write(gradients: list[Any]) -> None:
            placed = tf.nest.map_structure(tf.identity, gradients, expand_composites=True)
            self.optimizer.apply_gradients(zip(placed, self.pieces))

        self.coordination.strategy.run(write, args=(gradients,))
        self.written.add()
        return tf.constant(True)


def _values(gradient: Any) -> tf.Tensor:
    return gradient.values if hasattr(gradient, "indices") else gradient


def _scale(gradient: Any, factor: tf.Tensor) -> Any:
    """Return a dense or a sparse gradient (IndexedSlices) times `factor`."""
    import tensorflow as tf

    factor = tf.cast(factor, gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor
