"""The update explorer: what each way to scale a loss does to the reader's own gradients.

Any way to scale a loss multiplies each example's gradient with a factor and adds
up. So every update can be put together from the gradients of single examples,
and lengths and angles from their inner products alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from distlab.errors import CourseError
from distlab.figures import Picture, bars, split_evenly
from distlab.widgets.controls import Choice, Slider
from distlab.widgets.explorer import Explorer, explore


@dataclass(frozen=True)
class Shares:
    """One global batch: `examples` over `replicas`, `written` as its size in the code."""

    replicas: int
    examples: int
    written: int


# What a replica that holds `own` examples divides the sum of their losses by. The divisors
# of TensorFlow's and Keras's functions are what they do under a strategy, not what they say.
Divisor = Callable[[int, Shares], float]
DIVISORS: Mapping[str, Divisor] = {
    "tf.reduce_mean": lambda own, batch: own,
    "Keras's loss object": lambda own, batch: own * batch.replicas,
    "Keras's loss object / replicas": lambda own, batch: own * batch.replicas**2,
    "compute_average_loss(written size)": lambda own, batch: batch.written,
    "compute_average_loss(real count)": lambda own, batch: batch.examples,
    "tf.reduce_sum": lambda own, batch: 1,
}


def update_explorer(gradients: np.ndarray, replicas: int = 4) -> Explorer:
    """Show the ratio of each way's update to the single-device gradient, and its residual.

    `gradients` are those of single examples' losses, [examples, parameters]; the
    explorer's batch is the first so many of them. Raises CourseError for another
    shape or fewer than two examples.
    """
    products = inner_products(gradients)
    examples = len(products)

    def show_update(replicas: int, examples: int, written: int, way: str) -> Picture:
        return show_ratios(products, Shares(replicas, examples, written), way)

    return explore(
        show_update,
        replicas=Slider("Replicas", 1, 8, replicas),
        examples=Slider("Examples in the batch", 1, examples, examples),
        written=Slider("Batch size written in the code", 1, examples, examples),
        way=Choice("Each replica's loss", list(DIVISORS), next(iter(DIVISORS))),
    )


def inner_products(gradients: np.ndarray) -> np.ndarray:
    """Return the inner product of each two rows of `gradients`, [examples, examples]."""
    gradients = np.asarray(gradients, dtype=float)
    if gradients.ndim != 2 or len(gradients) < 2:
        raise CourseError(
            f"gradients of shape {gradients.shape}: give one row for each example, two or more"
        )
    return gradients @ gradients.T


def update_ratio(products: np.ndarray, batch: Shares, way: str) -> tuple[float, float]:
    """Return the ratio of the update of `way` to the single-device gradient, and the residual.

    The ratio r is the least-squares fit of update = r * gradient; the residual
    is the length of update - r * gradient divided by that of the gradient.
    """
    factors = np.array(
        [
            1 / DIVISORS[way](own, batch)
            for own in split_evenly(batch.examples, batch.replicas)
            for _ in range(own)
        ]
    )  # [examples]
    mean = np.full(batch.examples, 1 / batch.examples)
    inner = products[: batch.examples, : batch.examples]
    square = mean @ inner @ mean
    ratio = factors @ inner @ mean / square
    off = factors - ratio * mean
    return float(ratio), float(np.sqrt(max(off @ inner @ off, 0.0) / square))


def show_ratios(products: np.ndarray, batch: Shares, way: str) -> Picture:
    """Return bars of every way's ratio, `way` highlighted and explained in the caption."""
    ratios = {name: update_ratio(products, batch, name)[0] for name in DIVISORS}
    picture = bars(
        ratios,
        unit="×",
        title=f"Update / single-device gradient: {batch.examples} examples, "
        f"{batch.replicas} replicas",
        reference=("right: ×1", 1.0),
        highlight=way,
        log=True,
    )
    return replace(picture, caption=explain_ratio(batch, way, *update_ratio(products, batch, way)))


def explain_ratio(batch: Shares, way: str, ratio: float, residual: float) -> str:
    """Return in words how `batch` is shared out and what `way` applies."""
    shares = ", ".join(str(own) for own in split_evenly(batch.examples, batch.replicas))
    says = f"The replicas hold {shares}. With {way} they apply ×{ratio:.4g} the gradient"
    if residual > 1e-9:
        return (
            f"{says}, and residual {residual:.2g}: the direction is off, since examples on a "
            "smaller share count for more."
        )
    if abs(ratio - 1) < 1e-9:
        return f"{says}: exactly what one device applies."
    return f"{says}, in the right direction."
