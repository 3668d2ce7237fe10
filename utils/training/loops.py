"""The two loops, custom and Keras's `fit`: each trains what is left of an epoch.

A loop asks the run how many steps it may take, takes them, and tells it; the run reports,
saves and stops (`training.progress`). Both take the step of `training.step`.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ..keras_multi_worker import patch_keras_fit
from .input_feed import InputFeed
from .progress import RunProgress
from .state import TrainState, batch_dtype
from .step import (
    ReplicaStep,
    compile_closure,
    compile_steps,
    make_keras_loss,
    make_test_replica,
    make_train_replica,
)

# Steps in one call of `fit`'s compiled function. With several workers it must be 1: Keras asks
# "is there another batch?" around each step, and a collective inside such a branch stops with
# "You must feed a value for placeholder tensor" (Keras 3.15.1).
STEPS_PER_EXECUTION = 16
Coordinator = tf.distribute.coordinator.ClusterCoordinator
EpochLoop = Callable[[Any], None]


def make_custom_loop(state: TrainState, run: RunProgress, feed: InputFeed) -> EpochLoop:
    """Return the custom loop: several steps at a time, then a look at the run."""
    begin, take_steps = compile_passes(run, state.strategy, make_train_replica(state, feed.prepare))

    def train_epoch(batches: Any) -> None:
        iterator = begin(batches)
        while run.position.step < run.steps_per_epoch:
            steps = run.next_steps()
            take_steps(iterator, steps)
            run.advance(steps, state.read_metrics)

    return train_epoch


def compile_passes(
    run: RunProgress, strategy: tf.distribute.Strategy, replica_step: ReplicaStep
) -> tuple[Callable[[Any], Any], Callable[[Any, int], None]]:
    """Return how a pass over global batches begins, and how a number of its steps is taken.

    Usually several steps run inside one compiled function, on all replicas at once. With
    parameter servers each batch goes as a step to any free worker. They don't wait for each
    other: a step reads the parameters, computes a gradient and applies it at once, so that a
    gradient may be older than the parameters that it changes
    (`tf.distribute.ParameterServerStrategy`). A pass is every global batch once, whichever
    worker took it; the coordinator reads the data.
    """
    if run.record.is_coordinated:
        coordinator, closure = Coordinator(strategy), compile_closure(strategy, replica_step)

        def send_steps(iterator: Any, steps: int) -> None:
            for _ in range(steps):
                coordinator.schedule(closure, args=next(iterator))
            coordinator.join()

        return iter, send_steps
    run_steps = compile_steps(strategy, replica_step)
    return (
        lambda batches: iter(distribute(strategy, batches)),
        lambda iterator, steps: run_steps(iterator, tf.constant(steps)),
    )


def make_fit_loop(state: TrainState, run: RunProgress, feed: InputFeed) -> EpochLoop:
    """Return Keras's own loop on the same weighted batches, exact for uneven ends.

    Plain `fit` fails or drifts where a batch doesn't divide by the replicas. The model is
    compiled without XLA, which makes small CNNs slower on CPUs.
    """
    for what in patch_keras_fit() if run.group.in_lockstep else ():
        run.report("patched", what=what)
    one_by_one = run.config.checkpoint_every or run.group.in_lockstep  # see STEPS_PER_EXECUTION
    with state.strategy.scope():
        state.model.compile(
            optimizer=state.optimizer,
            loss=make_keras_loss(state, batch_dtype(run.config.dtype)),
            weighted_metrics=list(state.metrics.values()),
            steps_per_execution=1 if one_by_one else STEPS_PER_EXECUTION,
            jit_compile=False,
        )
    if feed.prepare is not None:
        train_step = state.model.train_step
        state.model.train_step = lambda batch: train_step(feed.prepare(*batch))

    def train_epoch(batches: Any) -> None:
        left = run.steps_per_epoch - run.position.step
        if isinstance(batches, tf.data.Dataset) and not one_by_one:
            batches = batches.take(left)  # or the last call takes all its steps
        reporter = _Reporter(state, run)
        state.model.fit(
            batches, steps_per_epoch=left, verbose=0, shuffle=False, callbacks=[reporter]
        )

    return train_epoch


# each returns a function of batches that trains what is left of an epoch
LOOP_MAKERS = {"custom": make_custom_loop, "fit": make_fit_loop}


class _Reporter(keras.callbacks.Callback):
    """Tells `run` after every call of `fit`'s compiled steps."""

    def __init__(self, state: TrainState, run: RunProgress) -> None:
        super().__init__()
        self.state, self.run, self.done = state, run, 0
        self.steps = run.steps_per_epoch - run.position.step

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Count up to batch `batch`, from 0; Keras counts a last, shorter call as a whole one."""
        before, self.done = self.done, min(batch + 1, self.steps)
        self.run.advance(self.done - before, self.state.read_metrics)


def evaluate(state: TrainState, run: RunProgress, feed: InputFeed) -> dict[str, float]:
    """Return the means over all real examples of `feed`, with the training's strategy."""
    with state.strategy.scope():
        extra = feed.make_test_metric()
    state.reset_metrics()
    metrics = [*state.metrics.values(), *filter(None, [extra])]
    replica_step = make_test_replica(state.model, metrics)
    begin, take_steps = compile_passes(run, state.strategy, replica_step)
    take_steps(begin(feed.batches(0)), feed.steps_per_epoch)
    return state.read_metrics()[0] | (extra.score() if extra else {})


def distribute(strategy: tf.distribute.Strategy, batches: Any) -> Any:
    """Return global batches cut over the replicas. Data that is already cut stays unchanged."""
    if isinstance(batches, tf.data.Dataset):
        return strategy.experimental_distribute_dataset(batches)
    return batches
