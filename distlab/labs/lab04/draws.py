"""Lab 04: what its exercises train on, drawn from a seed."""

import numpy as np

from distlab.exercises import softmax
from utils.data import split_batch

REPLICAS = 4  # of exercise 1


def cut_column(column: np.ndarray, replicas: int = REPLICAS) -> list[np.ndarray]:
    """Return each replica's part of a column of a batch, as TensorFlow splits it."""
    return np.split(column, np.cumsum(split_batch(len(column), replicas))[:-1])


def draw_batch(seed: int, examples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images [examples, 784], labels [examples] and first weights [784, 10]."""
    picks = np.random.default_rng(seed).choice(10_000, size=examples, replace=False)
    return *softmax.read_examples(picks), softmax.draw_weights(seed)


def draw_test(seed: int, examples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return test images and labels, and weights that get about half of them right.

    The end is right but for the last image, so that the last, smaller batch weighs differently
    from the rest, and its shares from each other.
    """
    rng = np.random.default_rng(seed)
    images, labels = softmax.read_examples(rng.choice(2000, examples, replace=False), test=True)
    wanted = np.where(rng.random(examples) < 0.5, labels, (labels + 1) % 10)
    wanted[-examples // 4 :] = labels[-examples // 4 :]
    wanted[-1] = (labels[-1] + 1) % 10
    kernel, *_ = np.linalg.lstsq(images, np.eye(10)[wanted], rcond=None)
    return images, labels, kernel


def draw_gradients(seed: int, epochs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients of each epoch's two steps, [epochs, 2, 4, 3], and weights [4, 3]."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(epochs, 2, 4, 3)), rng.normal(size=(4, 3))


def draw_run(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images [21, 6], labels [21] of 3 classes, and the first weights [6, 3]."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(21, 6)), rng.integers(0, 3, size=21), rng.normal(size=(6, 3))
