"""Synchronous rounds on parameter servers: wait for every worker, or leave the slow ones out.

Each round takes `wanted` gradients of the same parameters, averages them in the
coordinator and makes one update. With `backup` workers besides, wanted + backup
closures are under way; the round ends with the first `wanted`, and what arrives later
belongs to a round that is over and is thrown away.

Chen, Pan, Monga, Bengio and Jozefowicz, "Revisiting Distributed Synchronous SGD",
arXiv:1604.00981.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from distlab.errors import CourseError
from distlab.lessons.slow_workers import check_delays, sleep_in_graph
from distlab.lessons.update_records import Round
from utils.training.parameter_server.coordination import Coordination, find_worker
from utils.training.parameter_server.counting import use_atomic_step_counter
from utils.training.parameter_server.loop import ExampleLoss
from utils.training.parameter_server.variables import list_pieces

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

ROUND_SECONDS = 60.0


class SynchronousRounds:
    """Trains `model` in rounds of `wanted` gradients, with `backup` more under way.

    `wanted=None` waits for all workers but the backups. The other arguments are those
    of `StalenessLoop`. For models whose gradients are dense and small: they
    travel through the coordinator. Raises CourseError for more gradients than workers.
    """

    def __init__(
        self,
        coordination: Coordination,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        example_loss: ExampleLoss,
        make_batches: Callable[[], tf.data.Dataset],
        *,
        wanted: int | None = None,
        backup: int = 0,
        delays: Sequence[float] | None = None,
    ) -> None:
        wanted = coordination.workers - backup if wanted is None else wanted
        if wanted < 1 or backup < 0 or wanted + backup > coordination.workers:
            raise CourseError(
                f"{wanted} gradients and {backup} backups on {coordination.workers} workers: "
                "each closure under way needs a worker of its own"
            )
        self.coordination, self.model, self.optimizer = coordination, model, optimizer
        self.wanted, self.backup, self.example_loss = wanted, backup, example_loss
        self.delays = check_delays(delays, coordination.workers)
        self.pieces = list_pieces(model.trainable_variables)
        with coordination.strategy.scope():
            optimizer.build(self.pieces)
        use_atomic_step_counter(optimizer)
        batches = coordination.coordinator.create_per_worker_dataset(make_batches)
        self._iterator = iter(batches)
        self._compute, self._apply = self._compile_compute(), self._compile_apply()

    def run(self, rounds: int) -> list[Round]:
        """Make `rounds` updates and return what each took and left out.

        Raises CourseError if a round is not done within a minute.
        """
        records: list[Round] = []
        under_way: dict[Future, int] = {}
        with ThreadPoolExecutor(self.wanted + self.backup) as waiters:
            for number in range(rounds):
                begun = time.perf_counter()
                taken, late = self._collect(number, under_way, waiters)
                self._update([gradients for _, _, gradients in taken])
                loss = sum(float(loss) for _, loss, _ in taken) / len(taken)
                workers = tuple(sorted(int(worker) for worker, _, _ in taken))
                records.append(Round(number, workers, late, loss, time.perf_counter() - begun))
        return records

    def _collect(
        self, number: int, under_way: dict[Future, int], waiters: ThreadPoolExecutor
    ) -> tuple[list[tuple], int]:
        """Fill up the closures under way; return the round's first `wanted`, and the late ones."""
        taken: list[tuple] = []
        late = 0
        while len(taken) < self.wanted:
            while len(under_way) < self.wanted + self.backup - len(taken):
                remote = self.coordination.coordinator.schedule(
                    self._compute, args=(self._iterator,)
                )
                under_way[waiters.submit(remote.fetch)] = number
            done, _ = wait(under_way, ROUND_SECONDS, FIRST_COMPLETED)
            if not done:
                raise CourseError(f"round {number}: no gradient in {ROUND_SECONDS:.0f} s")
            for future in done:
                if under_way[future] < number:
                    late += 1
                elif len(taken) < self.wanted:
                    taken.append(future.result())
                else:
                    continue  # one more of this round: late in the next
                del under_way[future]
        return taken, late

    def _update(self, gradients: list[Sequence[Any]]) -> None:
        import numpy as np

        self._apply([np.mean(same, axis=0) for same in zip(*gradients)])

    def _compile_compute(self) -> Callable[..., Any]:
        import tensorflow as tf

        from utils.training.step import find_gradients

        @tf.function
        def compute(iterator: Any) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
            worker, batch = find_worker(), next(iterator)
            loss, found, _ = find_gradients(self.model, self.example_loss, batch, self.pieces)
            gradients = [tf.convert_to_tensor(gradient) for gradient in found]
            with tf.control_dependencies([loss, *gradients]):
                waited = sleep_in_graph(tf.gather(tf.constant(self.delays), worker))
            with tf.control_dependencies([waited]):
                return tf.identity(worker), loss, [tf.identity(g) for g in gradients]

        return compute

    def _compile_apply(self) -> Callable[..., None]:
        import tensorflow as tf

        strategy = self.coordination.strategy
        specs = [tf.TensorSpec(piece.shape, piece.dtype) for piece in self.pieces]

        def write(gradients: list[tf.Tensor]) -> None:
            placed = [tf.identity(gradient) for gradient in gradients]
            self.optimizer.apply_gradients(zip(placed, self.pieces))

        @tf.function(input_signature=[specs])
        def apply(gradients: list[tf.Tensor]) -> None:
            strategy.run(write, args=(gradients,))

        return apply
