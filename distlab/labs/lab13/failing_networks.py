"""Networks in float16 that fail at a known place, drawn for lab 13."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.exercises import softmax

LARGE, SMALL = 2.0**14, 2.0**-8  # numbers between them are no trouble for float16


def draw_network(seed: int, where: str, layer: int) -> tuple[Any, ...]:
    """Return kernels, features, labels and loss scale of a network that fails at a known place.

    Four layers of eight in float16, 6 examples. `where` is "forward" (layer's output
    overflows), "backward" (the gradient for layer's output does) or "none". What overflows
    does so by a factor of two or more, all before it stays twice below the limit or more. The
    kernels' sizes, the features' and the scale say nothing of it by themselves.
    """
    rng = np.random.default_rng(seed)
    while True:
        kernels, features = _draw_layers(rng)
        if where == "backward" and layer < 3:  # so that few draws do not fit
            kernels[layer], kernels[layer + 1] = kernels[layer] / 2**6, kernels[layer + 1] * 2**6
        if where == "forward":
            features *= 2.0**18 / np.abs(_run_layers(kernels, features)[layer]).max()
        outputs = _run_layers(kernels, features)
        sizes = np.array([np.abs(output).max() for output in outputs])
        fine = sizes[:layer] if where == "forward" else sizes
        if not (fine < LARGE).all() or not (min(sizes.min(), features.min()) > SMALL):
            continue
        labels = outputs[-1].argmin(axis=1)
        scale = _choose_scale(rng, _measure_back(kernels, features, outputs, labels), where, layer)
        if scale and features.max() < LARGE:
            break
    halves = [kernel.astype(np.float16) for kernel in kernels]
    return halves, features.astype(np.float16), labels, scale


def _draw_layers(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Return four positive kernels [8, 8] and features [6, 8], all of sizes drawn at random."""
    kernels = []
    for gain in 2.0 ** rng.uniform(-6, 9, size=4):
        kernel = np.abs(rng.normal(0.3, 0.1, size=(8, 8))) + np.eye(8)
        kernels.append(kernel * gain / np.linalg.norm(kernel, 2))
    return kernels, rng.uniform(0.4, 1.0, size=(6, 8)) * 2.0 ** rng.uniform(-6, 9)


def _measure_back(
    kernels: Sequence[np.ndarray],
    features: np.ndarray,
    outputs: Sequence[np.ndarray],
    labels: np.ndarray,
) -> np.ndarray:
    """Return [layer, 2]: the largest gradient for each layer's output, and for its kernel."""
    slopes = _run_back(kernels, outputs, labels)
    inputs = [features, *(np.maximum(output, 0) for output in outputs[:-1])]
    return np.array([[np.abs(s).max(), np.abs(x.T @ s).max()] for x, s in zip(inputs, slopes)])


def _choose_scale(rng: np.random.Generator, back: np.ndarray, where: str, layer: int) -> float:
    """Return a loss scale with which the gradients overflow where they should; 0 for none."""
    if where == "forward":
        return float(2.0 ** rng.integers(4, 22))
    if where == "backward":
        scale = 2.0 ** np.ceil(np.log2(2**18 / back[layer, 0]))
        return float(scale if (back[layer + 1 :] * scale < LARGE).all() else 0)
    scale = 2.0 ** (np.floor(np.log2(LARGE / back.max())) - rng.integers(3))
    return float(scale if scale >= 8 else 0)


def _run_layers(kernels: Sequence[np.ndarray], features: np.ndarray) -> list[np.ndarray]:
    """Return every layer's output [examples, 8], with a ReLU after all but the last."""
    outputs, x = [], features
    for kernel in kernels:
        outputs.append(x @ kernel)
        x = np.maximum(outputs[-1], 0)
    return outputs


def _run_back(
    kernels: Sequence[np.ndarray], outputs: Sequence[np.ndarray], labels: np.ndarray
) -> list[np.ndarray]:
    """Return the mean loss's gradient for every layer's output, [examples, 8] each."""
    slopes = [softmax.slopes(outputs[-1], labels) / len(labels)]
    for kernel, output in zip(kernels[:0:-1], outputs[-2::-1]):
        slopes.insert(0, (slopes[0] @ kernel.T) * (output > 0))
    return slopes
