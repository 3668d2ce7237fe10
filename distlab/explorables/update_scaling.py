"""The update explorer: what each way to scale a loss does to the reader's own gradients."""

from dataclasses import replace

import numpy as np

from distlab.explorables.controls import Choice, Slider
from distlab.explorables.explorer import Explorer, explore
from distlab.figures import Picture
from distlab.lessons.scaled_updates import (
    DIVISORS,
    Shares,
    draw_updates,
    inner_products,
    update_ratio,
)
from utils.data import split_batch


def update_explorer(gradients: np.ndarray, replicas: int = 4) -> Explorer:
    """Show the ratio of each way's update to the single-device gradient, and its residual.

    `gradients` are those of single examples' losses, [examples, parameters]; the
    explorer's batch is the first so many of them. Raises CourseError for another
    shape or fewer than two examples.
    """
    products = inner_products(gradients)
    examples = len(products)
    few = sorted({1, 2, max(1, examples // 4), max(1, examples // 2), examples - 1, examples})

    def show_update(replicas: int, examples: int, written: int, way: str) -> Picture:
        return show_ratios(products, Shares(replicas, examples, written), way)

    return explore(
        show_update,
        replicas=Slider("Replicas", 1, 8, replicas, grid=(1, 2, 3, 4, 8)),
        examples=Slider("Examples in the batch", 1, examples, examples, grid=few),
        written=Slider("Batch size written in the code", 1, examples, examples, grid=few),
        way=Choice("Each replica's loss", list(DIVISORS), next(iter(DIVISORS))),
    )


def show_ratios(products: np.ndarray, batch: Shares, way: str) -> Picture:
    """Return every way's update as an arrow, `way` in bold and explained in the caption."""
    updates = {name: update_ratio(products, batch, name) for name in DIVISORS}
    title = f"{batch.examples} examples on {batch.replicas} replicas: what each way applies"
    picture = draw_updates(updates, title=title, selected=way)
    return replace(picture, caption=explain_ratio(batch, way, *updates[way]))


def explain_ratio(batch: Shares, way: str, ratio: float, residual: float) -> str:
    """Return in words how `batch` is split and what `way` applies."""
    shares = ", ".join(str(own) for own in split_batch(batch.examples, batch.replicas))
    says = f"The replicas hold {shares}. With {way} they apply ×{ratio:.4g} the gradient"
    if residual > 1e-9:
        return (
            f"{says}, and residual {residual:.2g}: the direction is off, since examples on a "
            "smaller share count for more."
        )
    if abs(ratio - 1) < 1e-9:
        return f"{says}: exactly what one device applies."
    return f"{says}, in the right direction."
