"""Softmax regression in NumPy: the data, first weights and slopes that labs train with.

Images are rows [examples, inputs], labels int [examples], weights [inputs, classes];
the loss of an example is its cross-entropy.
"""

import numpy as np

__all__ = ["draw_weights", "probabilities", "slopes"]  # an answer's: its data come from the lab
INPUTS, CLASSES = 784, 10


def read_examples(picks: "np.ndarray | list[int]", test: bool = False):
    """Return the bundled images at places `picks`, [examples, 784] in [0, 1], and their labels."""
    from utils.data import load

    data = load("fashion_mnist")
    part = data.test if test else data.train
    picks = np.asarray(picks, dtype=int)
    return part.images[picks].reshape(len(picks), INPUTS) / 255, part.labels[picks].astype(int)


def draw_weights(seed: int) -> np.ndarray:
    """Return small random weights."""
    return np.random.default_rng(seed).normal(0.0, 0.05, size=(INPUTS, CLASSES))


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of logits [examples, classes]."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def slopes(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return d loss / d logits of each example, [examples, classes]."""
    return probabilities(logits) - np.eye(logits.shape[1])[labels]
