"""The loss-scaling explorer: what each way to divide the loss does to the update.

All numbers are computed on a small example: a linear model, squared errors, and
gradients that are summed over replicas, as an all-reduce sums them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from distlab.figures import Picture, bars, split_evenly
from distlab.figures.canvas import say_number
from distlab.widgets.controls import Choice, Slider
from distlab.widgets.explorer import Explorer, explore

FEATURES, SEED = 3, 7

# How a replica turns the sum of its examples' losses into its loss: the divisor,
# from the examples of this replica, the global batch size and the number of replicas.
Divisor = Callable[[int, int, int], float]
WAYS: Mapping[str, Divisor] = {
    "sum / global batch size": lambda own, batch, replicas: batch,
    "mean of each replica": lambda own, batch, replicas: own,
    "mean of each replica / replicas": lambda own, batch, replicas: own * replicas,
    "sum / per-replica batch size": lambda own, batch, replicas: batch // replicas,
    "plain sum": lambda own, batch, replicas: 1,
}


def scaling_explorer(replicas: int = 4, global_batch_size: int = 64) -> Explorer:
    """Show the update of each way to divide the loss, relative to the update on one device.

    The chosen way is highlighted and explained. A batch that does not divide
    by the replicas shows which ways weigh the examples unequally.
    """
    return explore(
        show_scaling,
        replicas=Slider("Replicas", 1, 8, replicas),
        global_batch_size=Slider("Global batch size", 8, 128, global_batch_size),
        way=Choice("Each replica's loss", list(WAYS), "mean of each replica"),
    )


def make_gradients(global_batch_size: int) -> np.ndarray:
    """Return the gradient of each example's squared error, [global_batch_size, FEATURES].

    The model is linear with weights of zero; inputs and targets come from SEED.
    """
    rng = np.random.default_rng(SEED)
    inputs = rng.normal(size=(global_batch_size, FEATURES))
    targets = inputs @ np.array([1.0, -2.0, 0.5]) + 0.1 * rng.normal(size=global_batch_size)
    return -2.0 * targets[:, None] * inputs  # [batch, features]: d/dw (x·w - y)² at w = 0


def update_ratio(way: str, replicas: int, global_batch_size: int) -> tuple[float, float]:
    """Return how long the update of `way` is, and how far it points off, against one device.

    The first number is the update's part along the one-device gradient (of
    the mean loss over the whole batch) divided by that gradient's length; the
    second is the length of what is left over, divided by the same.
    """
    gradients = make_gradients(global_batch_size)
    one_device = gradients.mean(axis=0)
    update = np.zeros(FEATURES)
    start = 0
    for own in split_evenly(global_batch_size, replicas):
        share = gradients[start : start + own].sum(axis=0)
        update += share / WAYS[way](own, global_batch_size, replicas)
        start += own
    ratio = float(update @ one_device / (one_device @ one_device))
    aside = float(np.linalg.norm(update - ratio * one_device) / np.linalg.norm(one_device))
    return ratio, aside


def show_scaling(replicas: int, global_batch_size: int, way: str) -> Picture:
    """Return bars of every way's update, `way` highlighted and explained in the caption."""
    ratios = {name: update_ratio(name, replicas, global_batch_size)[0] for name in WAYS}
    picture = bars(
        ratios,
        unit="×",
        title=f"Update relative to one device: {replicas} replicas, batch {global_batch_size}",
        reference=("one device: ×1", 1.0),
        highlight=way,
        log=True,
    )
    return replace(picture, caption=explain_scaling(way, replicas, global_batch_size))


def explain_scaling(way: str, replicas: int, global_batch_size: int) -> str:
    """Return in words what `way` does to the update, computed from the small example."""
    ratio, aside = update_ratio(way, replicas, global_batch_size)
    sizes = ", ".join(str(n) for n in split_evenly(global_batch_size, replicas))
    says = f"Replicas hold {sizes} examples. With “{way}” the summed gradients are "
    if abs(ratio - 1) < 1e-9 and aside < 1e-9:
        return says + "exactly the gradient that one device computes."
    about = "" if aside < 1e-9 else "about "
    says += f"{about}{say_number(ratio)} times the gradient that one device computes"
    if not about:
        return says + ": with plain SGD, as if the learning rate were multiplied by that number."
    return says + (
        f", and point {say_number(100 * aside)} % of its length to the side: examples on a smaller "
        "replica count for more."
    )
