"""A training job that is slow enough to be watched, and goes on where it was after a restart."""

import os
import threading
from typing import Any

import numpy as np

from utils.data import load
from utils.events import report

STEP_SECONDS = 0.06  # at least, to be watched
SAVE_EVERY = 10


def train_slowly(folder: str, steps: int, batch: int = 64) -> int:
    """Run in each of two workers: logistic regression on Fashion-MNIST, half of each batch each.

    Worker 0 saves the weights in `folder` at every tenth step, and a restart goes on from
    there. Returns the step that it went on from.
    """
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    index, place = strategy.cluster_resolver.task_id, os.path.join(folder, "saved.npz")
    saved = dict(np.load(place)) if os.path.exists(place) else {"step": 0, "weights": 0}
    images, labels = _take_half(index, batch)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([784, 10]) + tf.cast(saved["weights"], tf.float32))

    step = _make_step(strategy, weights, 2 * batch)
    for number in range(int(saved["step"]) + 1, steps + 1):
        loss = float(step(images[number % len(images)], labels[number % len(images)]))
        report("step", step=number, loss=loss)
        if number % SAVE_EVERY == 0:
            print(f"step {number}: loss {loss:.3f}")
            if index == 0:
                _save(place, number, weights.numpy())
        threading.Event().wait(STEP_SECONDS)
    return int(saved["step"])


def _make_step(strategy: Any, weights: Any, global_batch_size: int) -> Any:
    """Return the compiled step: images and labels of this worker in, mean loss of all out."""
    import tensorflow as tf

    def replica_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ weights)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
        gradient = tape.gradient(loss, weights)
        total = tf.distribute.get_replica_context().all_reduce("SUM", [gradient, loss])
        weights.assign_sub(0.05 * total[0])
        return total[1]

    return tf.function(lambda x, y: strategy.run(replica_step, args=(x, y)))


def _take_half(index: int, batch: int, batches: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Return worker `index`'s images [batch number, batch, 784] and labels."""
    data, count = load("fashion_mnist").train, batches * 2 * batch
    images = data.images[:count].reshape(batches, 2, batch, 784)[:, index] / np.float32(255)
    return images, data.labels[:count].reshape(batches, 2, batch)[:, index]


def _save(place: str, step: int, weights: np.ndarray) -> None:
    np.savez(place + ".part.npz", step=step, weights=weights)
    os.replace(place + ".part.npz", place)
