"""A training job that is slow enough to watch, and resumes where it was after a restart."""

import os
import threading
from typing import Any

import numpy as np

from utils.data import load
from utils.events import report

STEP_SECONDS = 0.09  # at least, to be watched
SAVE_EVERY, PRINT_EVERY, BATCHES = 20, 50, 20
MAX_STEPS = 10_000  # a quarter of an hour


def train_slowly(folder: str, steps: int = MAX_STEPS, batch: int = 64) -> int:
    """Run in each of two workers: logistic regression on Fashion-MNIST, half of each batch each.

    Worker 0 saves the weights in `folder` at every twentieth step, and a restart resumes from
    there. Reports `restore`, and for each step `ready` and `step`. Returns the step that it resumed
    from.
    """
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    index, place = strategy.cluster_resolver.task_id, os.path.join(folder, "saved.npz")
    saved = dict(np.load(place)) if os.path.exists(place) else {"step": 0, "weights": 0}
    images, labels = _take_half(index, batch)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([784, 10]) + tf.cast(saved["weights"], tf.float32))

    compute, reduce = _make_halves_of_step(strategy, weights, 2 * batch)
    report("restore", step=int(saved["step"]))
    for number in range(int(saved["step"]) + 1, steps + 1):
        own = compute(images[number % len(images)], labels[number % len(images)])
        threading.Event().wait(STEP_SECONDS)  # as a larger model would take
        report("ready")
        loss = float(reduce(own))
        report("step", step=number, loss=loss)
        if number % PRINT_EVERY == 0:
            print(f"step {number}: loss {loss:.3f}")
        if number % SAVE_EVERY == 0 and index == 0:
            _save(place, number, weights.numpy())
            report("checkpoint", step=number)
    return int(saved["step"])


def _make_halves_of_step(strategy: Any, weights: Any, global_batch_size: int) -> tuple[Any, Any]:
    """Return the step in two compiled halves, so that one can see what takes how long.

    The first takes this worker's images and labels, and returns its own gradient and loss. The
    second adds them up over all workers, updates the weights and returns the mean loss.
    """
    import tensorflow as tf

    def compute(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ weights)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
        return [tape.gradient(loss, weights), loss]

    def reduce(own: list[tf.Tensor]) -> tf.Tensor:
        placed = [tf.identity(value) for value in own]  # on this replica's device
        total = tf.distribute.get_replica_context().all_reduce("SUM", placed)
        weights.assign_sub(0.05 * total[0])
        return total[1]

    return (
        tf.function(lambda x, y: strategy.run(compute, args=(x, y))),
        tf.function(lambda own: strategy.run(reduce, args=(own,))),
    )


def _take_half(index: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Return worker `index`'s images [batch number, batch, 784] and labels."""
    data, count = load("fashion_mnist").train, BATCHES * 2 * batch
    images = data.images[:count].reshape(BATCHES, 2, batch, 784)[:, index] / np.float32(255)
    return images, data.labels[:count].reshape(BATCHES, 2, batch)[:, index]


def _save(place: str, step: int, weights: np.ndarray) -> None:
    np.savez(place + ".part.npz", step=step, weights=weights)
    os.replace(place + ".part.npz", place)
