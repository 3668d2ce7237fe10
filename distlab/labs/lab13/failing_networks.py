"""Networks in float16 that fail at a known place, drawn for lab 13, each with a trap."""

import json
from collections.abc import Sequence
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises import softmax

LARGE, SMALL = 2.0**14, 2.0**-8  # float16 has no trouble with numbers between them
OVERFLOWS = 2.0**18  # four times the largest float16
LAYERS, WIDTH, EXAMPLES = 4, 8, 6
MAX_SCALE = 2.0**21
Network = tuple[list[np.ndarray], np.ndarray, np.ndarray, float]


def draw_network(seed: int, where: str, layer: int, trap: str = "") -> Network:
    """Return kernels, features, labels and loss scale of a network that fails at a known place.

    Four layers of eight in float16, 6 examples. `where` is "forward" (layer's output overflows),
    "backward" (the gradient of layer's kernel does) or "none". The overflow is by a factor of four,
    and all before it stays four times below the limit. `trap` names a mistake that finds another
    place in this network. Few random networks are like that: `failing_networks.json` has 60 seeds
    of each, found by trying one after the other with the judge's `find_overflow`, and chosen so
    that it tells other mistakes apart, too.
    """
    return deepcopy(_find_network(seed, where, layer, trap))  # an answer may change the arrays


@lru_cache(64)
def _find_network(seed: int, where: str, layer: int, trap: str) -> Network:
    chosen = _read_seeds()[f"{where} {layer} {trap}".strip()]
    network = _draw(np.random.default_rng(chosen[seed % len(chosen)]), where, layer, trap)
    assert network, "every seed in failing_networks.json draws a network that may fail"
    return network


@cache
def _read_seeds() -> dict[str, list[int]]:
    return json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def _draw(rng: np.random.Generator, where: str, layer: int, trap: str) -> Network | None:
    """Return a network that may fail where it should, None if it surely doesn't."""
    kernels = [
        rng.normal(size=(WIDTH, WIDTH)) * gain for gain in 2.0 ** rng.uniform(-4, 4, size=LAYERS)
    ]
    features = rng.normal(size=(EXAMPLES, WIDTH)) * 2.0 ** rng.uniform(-4, 4)
    if trap in ("no-relu", "after-relu"):
        _add_negative_column(rng, kernels, features, layer if where == "forward" else 1, trap)
    if trap == "relu-last":
        kernels[-1] = -np.abs(kernels[-1])
    if where == "forward" and trap != "after-relu":
        features *= OVERFLOWS / _run(kernels, features)[layer][0].max()
    if max(np.abs(array).max() for array in (features, *kernels)) > LARGE:
        return None
    outputs = _run(kernels, features)
    if not _fit([terms for _, terms in outputs], where, layer):
        return None
    logits = outputs[-1][0]
    labels = logits.argmax(axis=1)
    if where == "backward":
        labels = rng.permutation(labels)
    halves = [kernel.astype(np.float16) for kernel in kernels]
    scale = _choose_scale(rng, kernels, features, labels, where, layer, trap)
    return (halves, features.astype(np.float16), labels, scale) if scale else None


def _run(kernels: Sequence[np.ndarray], features: np.ndarray) -> list[tuple[Any, Any]]:
    """Return every layer's output [examples, 8], and the sum of its terms' sizes."""
    outputs, x = [], features
    for kernel in kernels:
        outputs.append((x @ kernel, np.abs(x) @ np.abs(kernel)))
        x = np.maximum(outputs[-1][0], 0)
    return outputs


def _fit(terms: Sequence[np.ndarray], where: str, layer: int) -> bool:
    fine = terms[:layer] if where == "forward" else terms
    return all(SMALL < part.max() < LARGE for part in fine)


def _add_negative_column(
    rng: np.random.Generator, kernels: list[np.ndarray], features: np.ndarray, layer: int, trap: str
) -> None:
    """Make one output of `layer` (1 or later) negative for all examples: a ReLU makes it 0.

    For "after-relu" it overflows. For "no-relu" the next layer would, if it got that number.
    """
    column = int(rng.integers(WIDTH))
    kernels[layer][:, column] = -np.abs(kernels[layer][:, column])
    lowest = -_run(kernels, features)[layer][0][:, column].min()
    wanted = OVERFLOWS if trap == "after-relu" else LARGE / 4
    kernels[layer][:, column] *= wanted / max(lowest, SMALL)
    if trap == "no-relu":
        row = kernels[layer + 1][column]
        row *= 8 * OVERFLOWS / LARGE / np.abs(row).max()


def _choose_scale(
    rng: np.random.Generator,
    kernels: Sequence[np.ndarray],
    features: np.ndarray,
    labels: np.ndarray,
    where: str,
    layer: int,
    trap: str,
) -> float:
    """Return a loss scale that makes the gradients overflow where they should, 0 for none."""
    if where == "forward":
        return float(2.0 ** rng.integers(4, 22))
    slopes, terms = _measure_back(kernels, features, labels)
    if where == "none":
        fits = np.floor(np.log2(LARGE / max(slopes.max(), terms.max(), SMALL**4)))
        scale = float(2.0 ** min(fits - rng.integers(3), np.log2(MAX_SCALE)))
        return scale if scale >= (2.0**17 if trap == "float16-loss" else 8) else 0.0
    by_kernel = trap == "output-gradients"
    scale = float(
        2.0 ** np.ceil(np.log2(OVERFLOWS / max((terms if by_kernel else slopes)[layer], SMALL**4)))
    )
    fine = [
        *slopes[layer + 1 :],
        *terms[layer + 1 :],
        *(slopes[layer : layer + 1] if by_kernel else []),
    ]
    return scale if scale <= MAX_SCALE and all(part * scale < LARGE for part in fine) else 0.0


def _measure_back(
    kernels: Sequence[np.ndarray], features: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest gradient for each layer's output, and the largest for its kernel.

    The second with all terms of its sums taken as positive.
    """
    outputs = [output for output, _ in _run(kernels, features)]
    inputs = [features, *(np.maximum(output, 0) for output in outputs[:-1])]
    slopes = softmax.slopes(outputs[-1], labels) / len(labels)
    sizes, terms = [], []
    for k in reversed(range(LAYERS)):
        sizes.insert(0, np.abs(slopes).max())
        terms.insert(0, (np.abs(inputs[k].T) @ np.abs(slopes)).max())
        slopes = (slopes @ kernels[k].T) * (inputs[k] > 0)
    return np.array(sizes), np.array(terms)
