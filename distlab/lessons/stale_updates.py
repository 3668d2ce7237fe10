"""Asynchronous updates that measure how stale they are, and bound or damp their staleness.

Before a closure reads the parameters it looks how many updates are finished, and it draws
a ticket when its gradient is ready. The difference is the number of updates that it may
have missed. A ticket is drawn before anything is written, so an update that is too stale
can be dropped, and one that is stale can be made smaller, exactly when it matters. An
update that has its ticket and isn't or half written counts as missed: who took it for
seen would divide by too little, and diverge.

Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
Server", NIPS 2013; Zhang et al., "Staleness-aware Async-SGD", arXiv:1511.05950.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from distlab.errors import CourseError
from distlab.lessons.slow_workers import check_delays, sleep_in_graph
from distlab.lessons.update_records import Update
from utils.training.parameter_server.coordination import Coordination, find_worker
from utils.training.parameter_server.loop import AsynchronousLoop, ExampleLoss

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

NO_BOUND = 1 << 40


class Tickets:
    """Numbers given out one by one, each to one caller only: 0, 1, 2, …

    The op `ResourceCountUpTo` adds 1 at the server and returns the number that was there.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        import tensorflow as tf

        with strategy.scope():
            self.variable = tf.Variable(0, dtype=tf.int64, trainable=False, name="tickets")
            self.finished = tf.Variable(0, dtype=tf.int64, trainable=False, name="finished")

    def look(self) -> tf.Tensor:
        """Return how many are done with, a scalar int64; for use in a closure."""
        return self.finished.read_value()

    def finish(self) -> tf.Operation:
        """Say that what was to be done with a ticket is done; for use in a closure."""
        return self.finished.assign_add(1, read_value=False)

    def draw(self) -> tf.Tensor:
        """Take the next number, a scalar int64; for use in a closure."""
        import tensorflow as tf

        return tf.raw_ops.ResourceCountUpTo(
            resource=self.variable.handle, limit=tf.int64.max, T=tf.int64
        )


class StalenessLoop(AsynchronousLoop):
    """An AsynchronousLoop whose `run` returns an Update of each closure, in ticket order.

    `delays` slows each worker by its seconds per step. `max_staleness` drops staler updates before
    they are written. `staleness_scaling` divides a gradient by 1 + staleness (no help to Adam,
    which takes no notice of a gradient's size).
    """

    def __init__(
        self,
        coordination: Coordination,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        example_loss: ExampleLoss,
        make_batches: Callable[[], tf.data.Dataset],
        *,
        delays: Sequence[float] | None = None,
        max_staleness: int | None = None,
        staleness_scaling: bool = False,
    ) -> None:
        if max_staleness is not None and max_staleness < 0:
            raise CourseError(f"max_staleness must be at least 0, or None, got {max_staleness}.")
        self.delays = check_delays(delays, coordination.workers)
        self.max_staleness = NO_BOUND if max_staleness is None else max_staleness
        self.staleness_scaling, self.tickets = staleness_scaling, Tickets(coordination.strategy)
        super().__init__(coordination, model, optimizer, example_loss, make_batches)

    @property
    def counts(self) -> dict[str, tf.Variable]:
        """The counters that a checkpoint must hold, by name."""
        return {
            **super().counts,
            "tickets": self.tickets.variable,
            "finished": self.tickets.finished,
        }

    def fetch(self, remotes: Sequence[Any]) -> list[Update]:
        """Wait for scheduled closures and return their records, in ticket order."""
        rows = self.coordination.coordinator.fetch(list(remotes))
        updates = [
            Update(int(w), int(v), int(t), bool(kept), float(loss), float(began), float(ended))
            for w, v, t, kept, loss, began, ended in rows
        ]
        return sorted(updates, key=lambda update: update.ticket)

    def take_step(self, batch: Any) -> tuple[tf.Tensor, ...]:
        """Look, read, compute, draw, write: the order is held by control dependencies."""
        import tensorflow as tf

        worker = find_worker()
        with tf.control_dependencies(tf.nest.flatten(batch)):
            began, version = tf.timestamp(), self.tickets.look()
        with tf.control_dependencies([began, version]):
            loss, gradients = self.compute(batch)
        with tf.control_dependencies([loss, *(_values(g) for g in gradients)]):
            waited = sleep_in_graph(tf.gather(tf.constant(self.delays), worker))
        with tf.control_dependencies([waited]):
            ticket = self.tickets.draw()
        staleness = ticket - version
        if self.staleness_scaling:
            gradients = [_scale(g, 1 / (1 + staleness)) for g in gradients]
        kept = staleness <= self.max_staleness
        done = tf.cond(kept, lambda: self.write(gradients), lambda: tf.constant(False))
        with tf.control_dependencies([done]):
            finished = self.tickets.finish()
        with tf.control_dependencies([finished]):
            ended = tf.timestamp()
        return worker, version, ticket, done, loss, began, ended


def open_windows(closures: int, delays: Sequence[float]) -> list[Update]:
    """Run closures that look, sleep `delays[worker]` seconds and draw; nothing is computed.

    Runs in the coordinator; returns an Update of each closure, in ticket order. What was
    seen is the number of tickets drawn, so the mean staleness is at most workers - 1.
    """
    import tensorflow as tf

    from utils.training.parameter_server.coordination import connect

    coordination = connect()
    tickets = Tickets(coordination.strategy)

    @tf.function
    def closure() -> tuple[tf.Tensor, ...]:
        worker, began, seen = find_worker(), tf.timestamp(), tickets.variable.read_value()
        with tf.control_dependencies([began, seen]):  # look first
            waited = sleep_in_graph(tf.gather(tf.constant(delays), worker))
        with tf.control_dependencies([waited]):
            ticket = tickets.draw()
        with tf.control_dependencies([ticket]):
            return worker, seen, ticket, began, tf.timestamp()

    promises = [coordination.coordinator.schedule(closure) for _ in range(closures)]
    rows = coordination.coordinator.fetch(promises)
    updates = [Update(*map(int, row[:3]), True, 0.0, *map(float, row[3:])) for row in rows]
    return sorted(updates, key=lambda update: update.ticket)


def descend_squares(
    features: Any, targets: Any, runs: Sequence[tuple[float, int, dict[str, Any]]]
) -> list[tuple[list[Update], Any]]:
    """Fit `targets` [example, 10] from `features` [example, pixel] by least squares, 40 steps.

    Runs in the coordinator. For each run (rate, closures in flight, options of the loop) it
    returns the updates and the weights [pixel, 10], which begin at 0.
    """
    import keras
    import tensorflow as tf

    from utils.training.parameter_server.coordination import connect
    from utils.training.parameter_server.variables import read_weights

    def make_batches() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors((features, targets)).repeat()

    coordination, found = connect(), []
    for rate, in_flight, options in runs:
        layer = keras.layers.Dense(10, use_bias=False, kernel_initializer="zeros")
        with coordination.strategy.scope():
            model = keras.Sequential([keras.Input((features.shape[1],)), layer])
            sgd = keras.optimizers.SGD(rate)
        parts = (coordination, model, sgd, _find_squares, make_batches)
        updates = StalenessLoop(*parts, **options).run(40, max_in_flight=in_flight)
        found.append((updates, read_weights(model.variables)[0]))
    return found


def _find_squares(targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Return half the squared error of each example, [example]."""
    import tensorflow as tf

    return tf.reduce_sum((outputs - targets) ** 2, axis=-1) / 2


def _values(gradient: Any) -> tf.Tensor:
    return gradient.values if hasattr(gradient, "indices") else gradient


def _scale(gradient: Any, factor: tf.Tensor) -> Any:
    """Return a dense or a sparse gradient (IndexedSlices) times `factor`."""
    import tensorflow as tf

    factor = tf.cast(factor, gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor
