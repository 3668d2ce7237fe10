"""The arrow that is four times too long: what each way to scale a loss does to a step."""

from typing import Any

import numpy as np

from distlab.explorables.explorable import Explorable
from distlab.lessons.scaled_updates import DIVISORS, Shares, draw_updates, update_ratio
from utils.checks import check_choice, check_count

EXAMPLES, RATE = 64, 0.55
WAY, REPLICAS = "tf.reduce_mean", 4  # at first


def update_arrow(way: str = WAY, *, examples: int = EXAMPLES) -> Explorable:
    """Show the valley of a linear model's loss, and the steps that each of DIVISORS takes in it.

    The model has two weights and 64 examples, so that its whole loss is one map. It starts with
    `way`, and a batch of `examples` where the code says 64. Raises InputError for another way, and
    for examples that the slider doesn't reach.
    """
    check_choice("way", way, DIVISORS)
    check_count("examples", examples, 2, EXAMPLES)
    data = make_problem()
    options = {
        "way": way,
        "replicas": REPLICAS,
        "examples": examples,
        "written": EXAMPLES,
        "time": 0,
    }
    singles = list_gradients(data, np.array(data["start"]))[:examples]
    batch = Shares(REPLICAS, examples, EXAMPLES)
    ratios = {name: update_ratio(singles @ singles.T, batch, name) for name in DIVISORS}
    title = f"{examples} examples on {REPLICAS} replicas: what each way applies"
    return Explorable("arrow", data, options, draw_updates(ratios, title=title, selected=way))


def make_problem() -> dict[str, Any]:
    """Return the examples, where training starts, and the shape of the valley, as plain data."""
    rng = np.random.default_rng(5)
    angle = np.radians(24)
    turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    inputs = rng.normal(size=(EXAMPLES, 2)) * (0.55, 1.0) @ turned.T  # [example, weight]
    targets = inputs @ (0.4, -0.2) + rng.normal(scale=0.25, size=EXAMPLES)
    best = np.linalg.lstsq(inputs, targets, rcond=None)[0]
    curves, axes = np.linalg.eigh(inputs.T @ inputs / EXAMPLES)
    start = best + axes @ np.array([-2.3, 0.75])
    return {
        "label": "The arrow that is four times too long",
        "inputs": inputs.tolist(),
        "targets": targets.tolist(),
        "start": start.tolist(),
        "best": best.tolist(),
        "rate": RATE / float(curves.max()),
        "curves": curves.tolist(),
        "view": [3.4, 2.1],
        "turn": float(np.degrees(np.arctan2(axes[1, 0], axes[0, 0]))),
    }


def list_gradients(data: dict[str, Any], weights: np.ndarray) -> np.ndarray:
    """Return each example's gradient of half its squared error, [example, weight]."""
    inputs, targets = np.array(data["inputs"]), np.array(data["targets"])
    return (inputs @ weights - targets)[:, None] * inputs
