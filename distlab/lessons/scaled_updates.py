"""Compare ways to scale a loss: each update's ratio to the gradient, and its picture.

Any way to scale a loss multiplies each example's gradient with a factor and adds
up. So every update can be put together from the gradients of single examples,
and lengths and angles from their inner products alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from distlab.errors import CourseError
from distlab.figures import Picture
from distlab.figures.canvas import BLUE, VERMILION, WIDTH_PX, Sheet, draw_sheet, text_width_px
from distlab.figures.picture import INK
from utils.data import split_batch

MAX_UNIT_PX = 70.0  # the length of the gradient's arrow
ROOM_FOR = 4.2  # times the gradient, in a row
TOP_PX, ROW_PX, MAX_ACROSS_PX = 36.0, 44.0, 34.0
MAX_STRAIGHT = 1e-9  # a residual of rounding alone


@dataclass(frozen=True)
class Shares:
    """One global batch: `examples` over `replicas`, `written` as its size in the code."""

    replicas: int
    examples: int
    written: int


# A replica that holds `own` examples divides the sum of their losses by these. The divisors
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


def update_ratio(products: np.ndarray, batch: Shares, way: str) -> tuple[float, float]:
    """Return the ratio of the update of `way` to the single-device gradient, and the residual.

    The ratio r is the least-squares fit of update = r * gradient. The residual is the norm of
    update - r * gradient divided by the gradient's norm.
    """
    factors = np.array(
        [
            1 / DIVISORS[way](own, batch)
            for own in split_batch(batch.examples, batch.replicas)
            for _ in range(own)
        ]
    )  # [examples]
    mean = np.full(batch.examples, 1 / batch.examples)
    inner = products[: batch.examples, : batch.examples]
    square = mean @ inner @ mean
    ratio = factors @ inner @ mean / square
    off = factors - ratio * mean
    return float(ratio), float(np.sqrt(max(off @ inner @ off, 0.0) / square))


def draw_updates(
    updates: Mapping[str, tuple[float, float]], *, title: str, selected: str = ""
) -> Picture:
    """Draw each update, name -> (ratio, residual), as an arrow next to the gradient's.

    The gradient is a thin arrow of length 1 to the right. An update goes `ratio` along it and
    `residual` across it. It is blue, or vermilion if it is turned. An arrow that is too long for
    its row is broken, with its true length next to it. Raises CourseError for no updates and for
    values that aren't finite.
    """
    if not updates or not np.all(np.isfinite(list(updates.values()))):
        raise CourseError("updates must have at least one name with its finite (ratio, residual).")
    says = {name: say_update(*update) for name, update in updates.items()}

    def paint(sheet: Sheet) -> None:
        left = max(text_width_px(name) for name in updates) + 22
        room = max(text_width_px(text) for text in says.values()) + 20
        unit = min(MAX_UNIT_PX, (WIDTH_PX - room - left) / ROOM_FOR)
        for number, (name, update) in enumerate(updates.items()):
            y = TOP_PX + (number + 0.5) * ROW_PX
            weight = "bold" if name == selected else "normal"
            sheet.write(left - 18, y + 9, name, "right", weight=weight)
            _draw_update(sheet, left, y + 11, WIDTH_PX - room, unit, *update)
            sheet.write(WIDTH_PX - room + 14, y + 9, says[name], "left", weight=weight)

    alt = f"{title}. {'; '.join(f'{name}: {text}' for name, text in says.items())}."
    height_px = TOP_PX + len(updates) * ROW_PX + 6
    return draw_sheet(paint, title=title, alt=alt, height_px=height_px)


def say_update(ratio: float, residual: float) -> str:
    """Return "×4", or "×0.93, turned 12°" for an update that isn't along the gradient."""
    if residual <= MAX_STRAIGHT:
        return f"×{ratio:.4g}"
    degrees = np.degrees(np.arctan2(residual, ratio))
    return f"×{ratio:.3g}, turned {degrees:.2g}°"


def _draw_update(
    sheet: Sheet, x: float, y: float, end: float, unit: float, ratio: float, residual: float
) -> None:
    """Draw one row from (x, y) to at most `end`: the gradient, and the update over it."""
    color = VERMILION if residual > MAX_STRAIGHT else BLUE
    over, across = ratio * unit, residual * unit
    shorter = min(1.0, (end - x) / max(over, 1e-9), MAX_ACROSS_PX / max(across, 1e-9))
    tip = (x + shorter * over, y - shorter * across)
    sheet.line([x + unit] * 2, [y - 9, y + 9], linewidth=1, linestyle=(0, (2, 2)))
    sheet.arrow((x, y), tip, color, 3.2)
    sheet.arrow((x, y), (x + unit, y), INK, 1.0)
    if shorter < 1:
        middle = (x + 0.8 * (tip[0] - x), y + 0.8 * (tip[1] - y))
        for k in (-3.5, 3.5):
            places = [middle[0] + k - 4, middle[0] + k + 4], [middle[1] + 8, middle[1] - 8]
            sheet.line(*places, linewidth=1.6)
