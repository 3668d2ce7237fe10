"""Lesson 18: the numbers that a type has, and the sizes of gradients, drawn."""

from collections.abc import Mapping

import numpy as np

from distlab import figures
from distlab.figures import canvas
from distlab.figures.picture import Picture

LEFT_PX, TOP_PX, ROW_PX = 90.0, 36.0, 56.0


def draw_numbers(types: Mapping[str, np.ndarray], low: float, high: float) -> Picture:
    """Draw a line for each number from `low` to `high` that a type has: {its name: numbers}."""
    near = {name: v[(v >= low) & (v <= high)] for name, v in types.items()}
    bottom = TOP_PX + ROW_PX * len(near)

    def to_px(value: float) -> float:
        return LEFT_PX + (value - low) / (high - low) * (canvas.WIDTH_PX - LEFT_PX - 30)

    def paint(sheet: canvas.Sheet) -> None:
        for row, (name, values) in enumerate(near.items()):
            top = TOP_PX + ROW_PX * row
            sheet.write(LEFT_PX - 14, top + 20, name, "right")
            for value in values:
                x = to_px(value)
                sheet.line([x, x], [top, top + 40], canvas.COLORS[row], linewidth=1.6)
        for value in (low, (low + high) / 2, high):
            sheet.write(to_px(value), bottom + 6, f"{value:g}", size=canvas.SMALL_PX)

    title = f"Every number from {low:g} to {high:g}"
    alt = f"{title}: " + "; ".join(f"{name} has {len(v)}" for name, v in near.items()) + "."
    return canvas.draw_sheet(paint, title=title, alt=alt, height_px=bottom + 20)


def draw_shares(sizes: Mapping[str, np.ndarray], floor: int) -> Picture:
    """Draw for each series which per cent of its sizes is below each power of two.

    A mark is at 2 to the power of `floor`, under which float16 has no number.
    """
    powers = np.arange(floor - 10, floor + 9)
    series = {
        name: (powers, [100 * np.mean(values < 2.0**power) for power in powers])
        for name, values in sizes.items()
    }
    below = ", ".join(f"{100 * np.mean(v < 2.0**floor):.1f}% of {n}" for n, v in sizes.items())
    return figures.lines(
        series,
        x_label="power of two",
        y_label="% of gradients below it",
        title="How small the gradients are",
        marks={"float16's floor": float(floor)},
        alt=f"How small the gradients are. Below float16's floor, 2^{floor}, lie {below}.",
    )
