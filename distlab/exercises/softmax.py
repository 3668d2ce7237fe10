"""Softmax regression in NumPy: the one-device truth that labs compare real training with.

Images are rows [examples, inputs], labels int [examples], weights [inputs, classes];
the loss of an example is its cross-entropy.
"""

import numpy as np

INPUTS, CLASSES = 784, 10


def read_examples(picks: "np.ndarray | list[int]", name: str = "fashion_mnist", test: bool = False):
    """Return the bundled images at places `picks`, [examples, 784] in [0, 1], and their labels."""
    from utils.data import load

    data = load(name)
    part = data.test if test else data.train
    picks = np.asarray(picks, dtype=int)
    return part.images[picks].reshape(len(picks), INPUTS) / 255, part.labels[picks].astype(int)


def draw_weights(seed: int, shape: tuple[int, ...] = (INPUTS, CLASSES)) -> np.ndarray:
    """Return small random weights."""
    return np.random.default_rng(seed).normal(0.0, 0.05, size=shape)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of logits [examples, classes]."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the cross-entropy of each example, [examples]."""
    return -np.log(probabilities(logits)[np.arange(len(labels)), labels])


def slopes(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return d loss / d logits of each example, [examples, classes]."""
    return probabilities(logits) - np.eye(logits.shape[1])[labels]


def mean_gradient(images: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the gradient of the mean loss, [inputs, classes]."""
    return images.T @ slopes(images @ weights, labels) / len(labels)


def accuracy(images: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    """Return the share of examples whose largest logit is their label's."""
    return float(np.mean((images @ weights).argmax(axis=1) == labels))
