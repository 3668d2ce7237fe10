"""Lab 03, Keras under a strategy: what each function should be seen to do."""

from typing import Any

import numpy as np

from distlab.exercises import softmax
from distlab.labs.lab03 import exercise as lab03
from distlab.exercises.comparing import AnyOf, Anything
from distlab.labs.lab03.exercise import (
    BATCH,
    STEPS_DONE,
    describe_pairs,
    draw_digits,
    draw_layer,
    draw_run,
)
from distlab.grading import regression
from distlab.grading.judging import Judge, LabRules

RULES = LabRules(cell_seconds=60, submission_seconds=180, data=("mnist",))
EPSILON = 1e-7  # Keras keeps probabilities this far from 0 and 1


def expect_input(seed: int, examples: int, batch: int, way: str = "right") -> dict[str, Any]:
    if way == "endless":
        return {"ends": False}
    images, labels = draw_digits(seed, examples)
    kind = "float64" if way == "double-precision" else "float32"
    pixels = images.astype(kind) / np.dtype(kind).type(1 if way == "not-scaled" else 255)
    pixels = pixels[..., None] if way != "no-channel" else pixels
    stops = list(range(batch, examples, batch)) + [examples]
    if way == "rest-dropped":
        stops = [stop for stop in stops if stop % batch == 0]
    if way == "one-batch":
        stops = stops[:1]
    starts = [0, *stops[:-1]]
    return describe_pairs([(pixels[a:b], labels[a:b]) for a, b in zip(starts, stops, strict=True)])


def expect_model(replicas: int, seed: int, way: str = "right") -> dict[str, Any]:
    images, labels = draw_digits(seed, 24)
    logits = images.reshape(24, -1) / 255 @ softmax.draw_weights(seed)
    seen = logits
    outputs = softmax.probabilities(logits) if way == "softmax-layer" else logits
    if way == "not-from-logits":
        seen = np.log(np.clip(logits, EPSILON, 1 - EPSILON))
    return {
        "copies of each weight": 1 if way == "outside-scope" else replicas,
        "copies of the step counter": 1 if "outside" in way else replicas,
        "momentum": {"with-momentum": AnyOf((0.5, 0.9, 0.99)), "adam": Anything()}.get(way, 0.0),
        "optimizer": "Adam" if way == "adam" else "SGD",
        "learning rate": 0.01 if way == "other-rate" else 0.1,
        "largest output": float(np.max(outputs)),
        "loss": float(regression.losses(seen, labels).mean()),
        "accuracy": None if way == "no-accuracy" else float(np.mean(logits.argmax(1) == labels)),
    }


def expect_callbacks(boundaries: Any, rates: Any, way: str = "right") -> dict[str, Any]:
    shift = {"late-by-one": -1, "early-by-one": 1}.get(way, 0)
    epochs = range(boundaries[-1] + 2)
    rates = sorted(rates, reverse=True) if way == "rates-sorted" else rates
    used = [rates[sum(edge <= epoch + shift for edge in boundaries)] for epoch in epochs]
    if way == "never-changed":
        used = [0.5] * len(used)
    noted = [0.5, *used[:-1]] if way == "noted-before" else used
    noted = used[-1:] * len(used) if way == "variable-noted" else noted
    noted = np.repeat(used, 2).tolist() if way == "noted-each-batch" else noted
    return {"used": used, "noted": [] if way == "not-noted" else noted}


def expect_program(seed: int, way: str = "right") -> dict[str, Any]:
    """Return what gradient descent with NumPy gives: the weights of the best epoch."""
    if way in ("start-not-zero", "shuffled"):  # drawn at random: other weights each time
        free = {"kernel": Anything(), "biases": Anything(), "copies of each weight": 2}
        once = True if way == "shuffled" else Anything()
        return free | {"began at zero": way == "shuffled", "each image once an epoch": once}
    run = draw_run(seed)
    scale = 1 if way == "not-scaled" else 255
    pairs = [(x.reshape(len(x), -1) / scale, y) for x, y in (run["training"], run["validation"])]
    (images, labels), held_out = pairs
    if way == "validation-trained":
        images, labels = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
    kernel, bias = np.zeros((784, 10)), np.zeros(10)
    epochs = []
    for rate in run["rates"]:
        rate = run["rates"][0] if way == "first-rate-kept" else rate
        for first in range(0, len(labels), BATCH):
            x, y = images[first : first + BATCH], labels[first : first + BATCH]
            slopes = softmax.slopes(x @ kernel + bias, y) / len(y)
            kernel, bias = kernel - rate * x.T @ slopes, bias - rate * slopes.sum(axis=0)
        loss = regression.losses(held_out[0] @ kernel + bias, held_out[1]).mean()
        epochs.append((float(loss), bias, kernel))
    best = min(epochs, key=lambda epoch: epoch[0])
    rises = [k for k in range(1, len(epochs)) if epochs[k][0] > epochs[k - 1][0]] or [1]
    chosen = {
        "last-epoch": epochs[-1],
        "one-epoch": epochs[0],
        "stopped-early": epochs[rises[0] - 1],
    }.get(way, best)
    copies = 1 if way == "outside-scope" else 2
    found = {"copies of each weight": copies, "biases": chosen[1], "kernel": chosen[2]}
    return found | {"began at zero": Anything(), "each image once an epoch": Anything()}


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
