"""A number line of floats: what each type makes of a number, and of a model's gradients."""

from typing import Any

import numpy as np

from distlab.errors import CourseError
from distlab.explorables.explorable import Explorable
from distlab.lessons.float_pictures import draw_numbers, draw_shares

NEAR = (1.0, 1.0625)  # of the still


def float_line(
    gradients: Any = None, value: float = 0.1, *, replicas: int = 1, scale: float = 1.0
) -> Explorable:
    """Show what float32, bfloat16 and float16 make of a number that the hand moves.

    With `gradients`, any array, a histogram of their sizes slides over the range of a type:
    `replicas` divides them, and a loss `scale`, from 1 to 2**32, multiplies. Raises CourseError if
    all gradients are 0 or none is finite, and for replicas that aren't a power of two.
    """
    data: dict[str, Any] = {"label": "A number line of floats", "bins": None}
    options = {"value": value, "type": "float16"}
    options["scale"] = float(np.log2(np.clip(scale, 1.0, 2.0**32)))
    if replicas not in (powers := [2**k for k in range(13)]):
        raise CourseError(f"replicas must be a power of two up to 4096, got {replicas}.")
    options["replicasLog"] = powers.index(replicas)
    if gradients is None:
        return Explorable("floats", data, options, draw_numbers(_list_numbers(), *NEAR))
    sizes = np.abs(np.asarray(gradients, dtype=float)).ravel()
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    if not sizes.size:
        raise CourseError("gradients must have a finite number other than 0, got none.")
    places, counts = np.unique(np.floor(2 * np.log2(sizes)), return_counts=True)
    data["bins"] = [[p / 2, n] for p, n in zip(places.tolist(), counts.tolist(), strict=True)]
    moved = sizes * scale / replicas
    still = draw_shares({f"scale {scale:g}, replicas {replicas}": moved}, floor=-24)
    return Explorable("floats", data, options, still)


def _list_numbers() -> dict[str, np.ndarray]:
    """Return all numbers of the two 16-bit types."""
    patterns = np.arange(2**16, dtype=np.uint32)
    with np.errstate(invalid="ignore"):
        half = patterns.astype(np.uint16).view(np.float16).astype(float)
        return {"float16": half, "bfloat16": (patterns << 16).view(np.float32).astype(float)}
