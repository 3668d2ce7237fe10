"""Lab 03, Keras under a strategy: what each function should be seen to do."""

from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.exercises.comparing import AnyOf, Anything
from distlab.grading import regression
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab03 import exercise as lab03
from distlab.labs.lab03.digits import BATCH, HEAVIER, describe_pairs, draw_digits, draw_run
from distlab.labs.lab03.exercise import STEPS_DONE, draw_layer
from utils.data import split_batch

RULES = LabRules(own_seconds=60, cell_seconds=60, submission_seconds=180, data=("mnist",))
EPSILON = 1e-7  # Keras keeps probabilities this far from 0 and 1


def expect_input(seed: int, examples: int, batch: int, way: str = "right") -> dict[str, Any]:
    if way == "endless":
        return {"ends": False}
    if way == "not-one-label":
        mixed = ("mixed throughout", "another order in the next epoch")
        mixed += ("the same order for the same seed", "another order for another seed")
        shape = {"shape of a batch of labels": "not [batch]"}
        return {"ends": True} | shape | dict.fromkeys(mixed, Anything())
    images, labels = draw_digits(seed, examples)
    kind = "float64" if way == "double-precision" else "float32"
    pixels = images.astype(kind) / np.dtype(kind).type(
        {"not-scaled": 1, "scaled-256": 256}.get(way, 255)
    )
    pixels = pixels[..., None] if way != "no-channel" else pixels
    labels = labels.astype("float32") if way == "float-labels" else labels
    stops = list(range(batch, examples, batch)) + [examples]
    if way == "rest-dropped":
        stops = [stop for stop in stops if stop % batch == 0]
    if way == "one-batch":
        stops = stops[:1]
    starts = [0, *stops[:-1]]
    found = describe_pairs([(pixels[a:b], labels[a:b]) for a, b in zip(starts, stops, strict=True)])
    if way in ("rest-dropped", "one-batch"):  # which examples are missing depends on the order
        found |= dict.fromkeys(
            ("examples of each label", "pixels of each label", "pixel range"), Anything()
        )
    if way == "batches-shuffled" and examples % batch:  # the last one is somewhere else
        *full, rest = found["batch sizes"]
        moved = [full[:k] + [rest] + full[k:] for k in range(len(full))]
        found["batch sizes"] = AnyOf(tuple(moved))
    neighbors = ("not-shuffled", "small-buffer", "batches-shuffled")
    return found | {
        "mixed throughout": way not in neighbors,
        "another order in the next epoch": way not in ("not-shuffled", "same-each-epoch"),
        "the same order for the same seed": way != "seed-ignored",
        "another order for another seed": Anything()
        if way == "seed-ignored"
        else way not in ("not-shuffled", "seed-fixed"),
    }


def expect_model(replicas: int, seed: int, way: str = "right") -> dict[str, Any]:
    images, labels = draw_digits(seed, 24)
    logits = images.reshape(24, -1) / 255 @ softmax.draw_weights(seed)
    seen = logits
    outputs = softmax.probabilities(logits) if way == "softmax-layer" else logits
    if way == "not-from-logits":
        seen = np.log(np.clip(logits, EPSILON, 1 - EPSILON))
    step = 0.1 * images.reshape(24, -1).T @ softmax.slopes(logits, labels) / 255 / 24
    changed = ("compiled-outside", "not-from-logits", "softmax-layer", "adam", "step-of-another")
    after = softmax.draw_weights(seed) - step * (0.1 if way == "other-rate" else 1)
    return {
        "copies of each weight": 1 if way == "outside-scope" else replicas,
        "copies of the step counter": 1 if "outside" in way else replicas,
        "momentum": {"with-momentum": AnyOf((0.5, 0.9, 0.99)), "adam": Anything()}.get(way, 0.0),
        "optimizer": "Adam" if way == "adam" else "SGD",
        "learning rate": 0.01 if way == "other-rate" else 0.1,
        "largest output": float(np.max(outputs)),
        "loss": float(regression.losses(seen, labels).mean()),
        "accuracy": None if way == "no-accuracy" else float(np.mean(logits.argmax(1) == labels)),
        "kernel after one step": Anything() if way in changed else after,
    }


def expect_callbacks(boundaries: Any, rates: Any, way: str = "right") -> dict[str, Any]:
    shift = {"late-by-one": -1, "early-by-one": 1}.get(way, 0)
    epochs = range(sum(boundaries) + 2)
    rates = sorted(rates, reverse=True) if way == "rates-sorted" else rates
    edges = boundaries[:1] if way == "first-boundary-only" else boundaries
    edges = np.cumsum(boundaries) if way == "boundaries-added" else edges
    used = [rates[sum(edge <= epoch + shift for edge in edges)] for epoch in epochs]
    if way == "never-changed":
        used = [0.5] * len(used)
    noted = [0.5, *used[:-1]] if way == "noted-before" else used
    noted = noted[-1:] if way == "noted-last-only" else noted
    noted = used[-1:] * len(used) if way == "variable-noted" else noted
    noted = np.repeat(used, 2).tolist() if way == "noted-each-batch" else noted
    return {"used": used, "noted": [] if way == "not-noted" else noted}


def expect_program(seed: int, way: str = "right") -> dict[str, Any]:
    """Return what gradient descent with NumPy gives: the weights of the best epoch."""
    if way in ("start-not-zero", "shuffled"):  # drawn at random: other weights each time
        once = True if way == "shuffled" else Anything()
        free = {"kernel": Anything(), "biases": Anything(), "each image once an epoch": once}
        return free | {"began at zero": way == "shuffled"}
    if way == "best-by-training":
        return AnyOf(tuple(_choose_epoch(seed, key, BATCH) for key in ("training", "on training")))
    if way == "another-batch":
        return AnyOf(
            tuple(_choose_epoch(seed, "right", batch) for batch in (BATCH // 2, 2 * BATCH))
        )
    return _choose_epoch(seed, way, BATCH)


def _choose_epoch(seed: int, way: str, batch: int) -> dict[str, Any]:
    """Train with NumPy; return the weights of the epoch that the answer or mistake chooses."""
    run = draw_run(seed)
    scale = 1 if way == "not-scaled" else 255
    pairs = [(x.reshape(len(x), -1) / scale, y) for x, y in (run["training"], run["validation"])]
    (images, labels), held_out = pairs
    if way == "validation-trained":
        images, labels = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
    heavier = 0.0 if way == "not-distributed" else HEAVIER
    weights, velocity, epochs = np.zeros((785, 10)), np.zeros((785, 10)), []
    rates = run["rates"]
    rates = {
        "first-rate-kept": rates[:1] * len(rates),
        "next-rate": [*rates[1:], rates[-1]],
        "rates-doubled": [2 * rate for rate in rates],
    }.get(way, rates)
    for rate in rates:
        seen: list[np.ndarray] = []
        for first in range(0, len(labels), batch):
            x, y = _add_ones(images[first : first + batch]), labels[first : first + batch]
            factors = _weigh(len(y), heavier)
            seen.append(factors * regression.losses(x @ weights, y))
            slopes = softmax.slopes(x @ weights, y) * factors[:, None] / len(y)
            velocity = (0.9 if way == "with-momentum" else 0.0) * velocity - rate * x.T @ slopes
            weights = weights + velocity
        epochs.append(
            _describe_epoch(weights, held_out, pairs[0], batch, heavier, np.concatenate(seen))
        )
    best = _pick(epochs, way)
    return {"kernel": best["weights"][:-1], "biases": best["weights"][-1]} | {
        "began at zero": Anything(),
        "each image once an epoch": Anything(),
    }


def _add_ones(images: np.ndarray) -> np.ndarray:
    """Return images [n, 784] with a column of ones for the biases."""
    return np.concatenate([images, np.ones((len(images), 1))], axis=1)


def _weigh(examples: int, heavier: float) -> np.ndarray:
    """Return the factor of each example's loss in a batch over two replicas."""
    on_first = split_batch(examples, 2)[0]
    return 1 + heavier * (np.arange(examples) >= on_first)


def _describe_epoch(
    weights: np.ndarray, held_out: Any, training: Any, batch: int, heavier: float, seen: np.ndarray
) -> dict[str, Any]:
    def average(images: np.ndarray, labels: np.ndarray) -> float:
        losses = regression.losses(_add_ones(images) @ weights, labels)
        starts = range(0, len(labels), batch)
        factors = [_weigh(len(labels[k : k + batch]), heavier) for k in starts]
        return float(np.mean(losses * np.concatenate(factors)))

    right = (_add_ones(held_out[0]) @ weights).argmax(axis=1) == held_out[1]
    return {
        "weights": weights,
        "validation": average(*held_out),
        "accuracy": float(right.mean()),
        "on training": average(*training),
        "training": float(seen.mean()),
    }


def _pick(epochs: list[dict[str, Any]], way: str) -> dict[str, Any]:
    """Return the epoch with the lowest validation loss, or the one that a mistake takes."""
    losses = [epoch["validation"] for epoch in epochs]
    rises = [k for k in range(1, len(losses)) if losses[k] > losses[k - 1]] or [1]
    fixed = {"last-epoch": -1, "one-epoch": 0, "stopped-early": rises[0] - 1}
    if way in fixed:
        return epochs[fixed[way]]
    if way == "best-by-accuracy":
        return max(epochs, key=lambda epoch: epoch["accuracy"])
    key = way if way in ("training", "on training") else "validation"
    return min(epochs, key=lambda epoch: epoch[key])


def expect_reload(replicas: int, seed: int, way: str = "right") -> dict[str, Any]:
    inputs, kernel = draw_layer(seed)
    copies = {"outside-scope": 1, "not-saved": 1, "another-strategy": 4}.get(way, replicas)
    return {
        "file written": way != "not-saved",
        "copies of each weight": copies,
        "steps its optimizer has counted": {
            "not-compiled": None,
            "cloned": AnyOf((0, None)),
            "fresh-weights": Anything(),
        }.get(way, STEPS_DONE),
        "outputs": inputs @ (kernel * (way != "fresh-weights")),
    }


INPUT = Judge(lab03.INPUT, expect_input)
MODEL = Judge(lab03.MODEL, expect_model)
CALLBACKS = Judge(lab03.CALLBACKS, expect_callbacks)
RELOAD = Judge(lab03.RELOAD, expect_reload)
PROGRAM = Judge(lab03.PROGRAM, expect_program)
