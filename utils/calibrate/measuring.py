"""Run a calibration's workers: time a model's step, and all-reduces between them.

Functions here run in the tasks of a `LocalCluster`. A time is taken between barriers, over
several steps inside one compiled loop, and repeated in rounds. The lower quartile of the
rounds is kept, which other programs on the machine disturb least. Iterators and tracing
come before the first round.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..errors import InputError
from ..input_pipeline.sharding import sharding_options
from ..strategies import make_strategy
from ..training.step import compile_steps, find_gradients

ROUNDS, ROUND_SECONDS = 15, 0.08
MAX_STEPS = 200
STORED_BATCHES = 4
SHORT_NUMBERS = 4096  # of float32: 16 KiB
IDLE_OPERATIONS = set(
    (
        "Const Identity IdentityN NoOp Placeholder ReadVariableOp Reshape Shape StridedSlice Pack "
        "ExpandDims Squeeze StopGradient"
    ).split()
)
HEAVY_OPERATIONS = tuple("MatMul Conv Pool Sum Mean Max Softmax Gather Scatter Einsum".split())
Builder = Callable[[], Any]
Seconds = tuple[float, float]  # of the clock, of this process's processors


def measure_costs(build: Builder, batch: int) -> dict[str, Any]:
    """Return what one of two workers measures of the model: plain numbers, by name.

    First worker 0 computes alone, while the other waits; then both compute, each its own
    model; then they all-reduce; then they train one model together.
    """
    strategy, rank = make_strategy("multi-worker", 1), find_rank()
    barrier = make_barrier(strategy)
    state = _Local(build, batch)
    steps = state.find_steps()
    alone, both = [], []
    for _ in range(ROUNDS):
        barrier()
        if rank == 0:
            alone.append(time_run(state.run, steps))
        barrier()
        both.append(time_run(state.run, steps))
    found = {"alone": keep(alone or both), "both": keep(both), "spread": find_spread(both)}
    sizes = [variable.shape for variable in state.model.trainable_variables]
    for name, shapes in (("launch", [[1]]), ("short", [[SHORT_NUMBERS]]), ("reduce", sizes)):
        found[name] = time_all_reduce(strategy, barrier, shapes)
    found["pair"] = time_training(strategy, barrier, build, batch)
    return {**found, **(state.measure_alone() if rank == 0 else {}), "parameters": state.count()}


def measure_training(build: Builder, batch: int) -> Seconds:
    """Return the seconds of a step of workers that train one model, `batch` each."""
    strategy = make_strategy("multi-worker", 1)
    return time_training(strategy, make_barrier(strategy), build, batch)


def time_training(
    strategy: tf.distribute.Strategy, barrier: Callable[[], None], build: Builder, batch: int
) -> Seconds:
    """Return the seconds of a step under `strategy`, `batch` examples for each worker."""
    workers = strategy.num_replicas_in_sync
    with strategy.scope():
        model, optimizer = make_model(build)
    replica_step = make_replica_step(model, optimizer)
    batches = make_batches(model, batch * workers)
    iterator = iter(strategy.experimental_distribute_dataset(batches))
    train = compile_steps(strategy, replica_step)

    def run(steps: int) -> None:
        train(iterator, tf.constant(steps))

    run(2)
    return _time_rounds(strategy, barrier, run)


class _Local:
    """A model that one process trains for itself."""

    def __init__(self, build: Builder, batch: int) -> None:
        self.batch = batch
        self.model, self.optimizer = make_model(build)
        self.batches = make_batches(self.model, batch)
        self._iterator = iter(self.batches)
        replica_step = make_replica_step(self.model, self.optimizer)
        self._train = compile_steps(tf.distribute.get_strategy(), replica_step)

    def run(self, steps: int) -> None:
        self._train(self._iterator, tf.constant(steps))

    def find_steps(self) -> int:
        self.run(2)
        return find_steps(self.run)

    def count(self) -> int:
        return sum(int(np.prod(v.shape)) for v in self.model.trainable_variables)

    def measure_alone(self) -> dict[str, float]:
        """Return forward, fixed, input, checkpoint and call seconds, FLOPs and operations."""
        batch = next(self._iterator)
        quarter = tf.nest.map_structure(lambda t: t[: max(1, self.batch // 4)], batch)
        forward = tf.function(lambda b: self.model(b[0], training=True))
        one_step = tf.function(make_replica_step(self.model, self.optimizer))
        full, small = (time_calls(lambda b=b: one_step(*b)) for b in (batch, quarter))
        share = max(1, self.batch // 4) / self.batch
        slope = (full - small) / (1 - share) if share < 1 else full
        return {
            "forward_share": min(0.9, time_calls(lambda: forward(batch)) / full),
            "fixed_share": min(1.0, max(0.0, 1 - slope / full)),
            "input_seconds": time_calls(lambda: next(self._iterator)),
            "checkpoint_seconds": self._time_checkpoint(),
            "flops": 3.0 * count_flops(forward, batch) / self.batch,
            **count_operations(one_step.get_concrete_function(*batch).graph),
            "call_seconds": time_calls(tf.function(lambda: None)),
            "activation_bytes": float(self._count_activations()),
        }

    def _time_checkpoint(self) -> float:
        checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer)
        with tempfile.TemporaryDirectory() as folder:
            return time_calls(lambda: checkpoint.write(str(Path(folder) / "state")))

    def _count_activations(self) -> int:
        """Return the bytes that the layers of the model give for a batch."""
        layers = [layer for layer in self.model.layers if layer._inbound_nodes]
        outputs = [t for layer in layers for t in tf.nest.flatten(layer.output)]
        shapes = [[self.batch if s is None else s for s in tensor.shape] for tensor in outputs]
        return sum(4 * int(np.prod(shape)) for shape in shapes)


def make_model(build: Builder) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """Return the model that `build` gives and an Adam for it, with all variables made.

    Raises InputError if it isn't a built `keras.Model`.
    """
    model = build()
    if not isinstance(model, keras.Model) or not model.built or not model.inputs:
        raise InputError(
            "The function must return a built keras.Model. Begin the model with a "
            "keras.Input, or use a functional model."
        )
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    return model, optimizer


def make_replica_step(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Callable:
    """Return the step of one replica: features and labels in, the loss out."""
    variables = model.trainable_variables

    def step(features: Any, labels: tf.Tensor) -> tf.Tensor:
        loss, gradients, _ = find_gradients(model, example_loss, (features, labels), variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    return step


def example_loss(labels: tf.Tensor, outputs: Any) -> tf.Tensor:
    """Return cross-entropy on logits, [batch]; over all outputs of an example, their mean."""
    logits = tf.cast(tf.nest.flatten(outputs)[0], tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(tf.reshape(losses, [tf.shape(losses)[0], -1]), axis=1)


def make_batches(model: keras.Model, batch: int) -> tf.data.Dataset:
    """Return endless batches of random (features, labels) that fit the model, [batch, ...]."""
    random, size = np.random.default_rng(0), batch * STORED_BATCHES

    def fill(spec: Any) -> np.ndarray:
        shape = [size, *(8 if side is None else side for side in spec.shape[1:])]
        if "int" in str(spec.dtype):
            return random.integers(0, 8, shape).astype(str(spec.dtype))
        return random.random(shape, np.float32)

    features = [fill(spec) for spec in model.inputs]
    features, output = features[0] if len(features) == 1 else tuple(features), model.outputs[0]
    inner = [8 if side is None else side for side in output.shape[1:-1]]
    labels = random.integers(0, output.shape[-1], [size, *inner])
    batches = tf.data.Dataset.from_tensor_slices((features, labels))
    repeated = batches.batch(batch, drop_remainder=True).cache().repeat()
    return repeated.with_options(sharding_options("OFF"))


def make_barrier(strategy: tf.distribute.Strategy) -> Callable[[], None]:
    """Return a function that waits until all workers have called it."""
    one = tf.ones([1])
    reduce = _compile_all_reduce(strategy)
    return lambda: reduce([one], tf.constant(1))


def time_all_reduce(
    strategy: tf.distribute.Strategy, barrier: Callable[[], None], shapes: Iterable[Any]
) -> Seconds:
    """Return the seconds of an all-reduce of float32 tensors of `shapes`, all at once."""
    tensors = [tf.ones(shape) for shape in shapes]
    reduce = _compile_all_reduce(strategy)

    def run(steps: int) -> None:
        reduce(tensors, tf.constant(steps))

    run(1)
    return _time_rounds(strategy, barrier, run)


def _time_rounds(
    strategy: tf.distribute.Strategy, barrier: Callable[[], None], run: Callable[[int], None]
) -> Seconds:
    """Return the seconds of a step of `run(steps)`, which has run before, between barriers."""
    barrier()
    steps, rounds = share_number(strategy, find_steps(run)), []
    for _ in range(ROUNDS):
        barrier()
        rounds.append(time_run(run, steps))
    return keep(rounds)


def _compile_all_reduce(strategy: tf.distribute.Strategy) -> Callable:
    def reduce_replica(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        placed = [tf.identity(tensor) for tensor in tensors]  # arguments have no device yet
        return tf.distribute.get_replica_context().all_reduce("SUM", placed)

    @tf.function
    def run(tensors: list[tf.Tensor], steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            strategy.run(reduce_replica, args=(tensors,))

    return run


def share_number(strategy: tf.distribute.Strategy, number: int) -> int:
    """Return the mean of the workers' numbers, the same for each of them."""

    @tf.function
    def share(mine: tf.Tensor) -> tf.Tensor:
        return strategy.run(
            lambda x: tf.distribute.get_replica_context().all_reduce("MEAN", tf.identity(x)),
            (mine,),
        )

    return max(1, round(float(share(tf.constant(float(number))))))


def find_steps(run: Callable[[int], None]) -> int:
    """Return how many steps fill a round. For a collective, all workers call it together."""
    seconds = time_run(run, 4)[0]
    return int(min(MAX_STEPS, max(1, ROUND_SECONDS / max(seconds, 1e-6))))


def time_run(run: Callable[[int], None], steps: int) -> Seconds:
    """Return the seconds of one step, by the clock and of processors."""
    begun, worked = time.perf_counter(), time.process_time()
    run(steps)
    return (time.perf_counter() - begun) / steps, (time.process_time() - worked) / steps


def time_calls(call: Callable[[], Any]) -> float:
    """Return the lower quartile of the seconds of a call; the first isn't counted."""
    call()
    return keep([time_run(lambda _: call(), 1) for _ in range(ROUNDS)])[0]


def keep(rounds: list[Seconds]) -> Seconds:
    """Return the lower quartile of the rounds' seconds, of the clock and of processors."""
    low = np.quantile(np.array(rounds), 0.25, axis=0)
    return float(low[0]), float(low[1])


def find_spread(rounds: list[Seconds]) -> float:
    """Return the middle half of the rounds' seconds, relative to their lower quartile."""
    low, high = np.quantile([seconds for seconds, _ in rounds], (0.25, 0.75))
    return float(high / low - 1)


def find_rank() -> int:
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def count_operations(graph: tf.Graph) -> dict[str, int]:
    """Return how many operations on tensors a traced step runs, and how many XLA can't fuse away.

    Constants, reads, shapes and operations whose results are all scalars aren't counted: they
    launch nothing on a device. XLA fuses elementwise operations; products, convolutions, poolings,
    reductions and their gradients stay separate launches.
    """
    counts = {"operations": 0, "compiled_operations": 0}
    for operation in graph.get_operations():
        runs = operation.type not in IDLE_OPERATIONS and not operation.type.startswith("_")
        sized = [out for out in operation.outputs if out.shape.rank is None or out.shape.rank > 0]
        if runs and sized:
            counts["operations"] += 1
            heavy = any(word in operation.type for word in HEAVY_OPERATIONS)
            counts["compiled_operations"] += heavy
    return counts


def count_flops(forward: Callable, batch: Any) -> float:
    """Return the floating-point operations of one call, as TensorFlow's profiler counts them."""
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    graph = convert_variables_to_constants_v2(forward.get_concrete_function(batch)).graph
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    return float(profiler.profile(graph, cmd="op", options=options).total_float_ops)
