"""Bytes that cross the loopback device while something runs: what a cluster here really sends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import psutil

from distlab.errors import CourseError

LOOPBACK = ("lo", "lo0")


def read_loopback_bytes() -> int:
    """Return the bytes sent over loopback so far, by every program of this machine.

    Raises CourseError where the system does not count them.
    """
    counters = psutil.net_io_counters(pernic=True)
    for name in LOOPBACK:
        if name in counters:
            return counters[name].bytes_sent
    raise CourseError("this system does not count the bytes of its loopback device")


def measure_traffic(call: Callable[[], Any], steps: int, repeats: int = 5) -> float:
    """Call `call`, which takes `steps` steps, and return the bytes sent for each of them.

    Counts headers and acknowledgments, so it is a little more than the payload, and what
    other programs send over loopback meanwhile: of `repeats` calls the smallest count is
    returned.
    """
    counts = []
    for _ in range(repeats):
        before = read_loopback_bytes()
        call()
        counts.append(read_loopback_bytes() - before)
    return min(counts) / steps


def count_synchronous(
    build_model: Callable[[], Any], example_loss: Callable[..., Any], images: Any, labels: Any
) -> dict[str, float]:
    """Return the bytes of one step of all workers, with sparse and with dense gradients.

    One worker's program under MultiWorkerMirroredStrategy; every worker trains on the same
    batch. "slices": an Embedding's gradient stays the IndexedSlices that it is, and is
    gathered. "dense": it is made a whole table first, and all-reduced.
    """
    import keras
    import tensorflow as tf

    strategy, found = tf.distribute.MultiWorkerMirroredStrategy(), {}
    with strategy.scope():
        model, sgd = build_model(), keras.optimizers.SGD(0.1)
        sgd.build(model.trainable_variables)

    def replica_step(dense: bool) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(example_loss(labels, model(images)))
        gradients = tape.gradient(loss, model.trainable_variables)
        if dense:
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        sgd.apply_gradients(zip(gradients, model.trainable_variables))

    for name, dense in {"slices": False, "dense": True}.items():
        step = tf.function(partial(strategy.run, replica_step, args=(dense,)))
        step(), step()  # traced, connected
        found[name] = measure_traffic(lambda step=step: [step() for _ in range(4)], 4)
    return found
