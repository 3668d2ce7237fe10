"""One image beside what a model says of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from distlab.figures.canvas import (
    BLUE,
    SMALL_PX,
    TEXT_PX,
    VERMILLION,
    WIDTH_PX,
    draw,
    pixel_axes,
    text_width_px,
    tinted,
    write_title,
)
from distlab.figures.picture import INK, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOP_PX, IMAGE_PX, ROW_PX, BAR_PX = 38.0, 224.0, 24.0, 16.0


def draw_prediction(
    image: np.ndarray,
    label: int,
    class_names: Sequence[str],
    probabilities: np.ndarray,
    *,
    title: str,
) -> Picture:
    """Draw `image` [height, width] or [height, width, 1] beside a bar for each class.

    The largest of `probabilities` [classes] is the model's answer: its bar is
    vermillion and hatched where it is wrong; the true class has its name in bold.
    """
    answer = int(np.argmax(probabilities))

    def paint(figure: "Figure") -> None:
        write_title(figure, title)
        axes = pixel_axes(figure)
        _draw_image(axes, np.asarray(image).reshape(np.shape(image)[:2]))
        left = IMAGE_PX + 40 + max(text_width_px(name, TEXT_PX, "bold") for name in class_names)
        for place, (name, value) in enumerate(zip(class_names, probabilities, strict=True)):
            wrong = place == answer != label
            _draw_row(axes, TOP_PX + place * ROW_PX, left, name, value, place == label, wrong)
        axes.set_xlim(-2, WIDTH_PX + 2)
        axes.set_ylim(height_px, 0)

    height_px = TOP_PX + max(IMAGE_PX, len(class_names) * ROW_PX) + 10
    alt = _describe(class_names, label, answer, probabilities, title)
    return draw(paint, alt=alt, height_px=height_px)


def _draw_image(axes: "Axes", image: np.ndarray) -> None:
    from matplotlib.patches import Rectangle

    extent = (0, IMAGE_PX, TOP_PX + IMAGE_PX, TOP_PX)
    axes.imshow(image, cmap="gray", extent=extent, interpolation="none", aspect="auto")
    frame = Rectangle((0, TOP_PX), IMAGE_PX, IMAGE_PX, facecolor="none", edgecolor=INK, alpha=0.35)
    axes.add_patch(frame)


def _draw_row(axes: "Axes", y, left: float, name: str, value: float, true: bool, wrong) -> None:
    from matplotlib.patches import Rectangle

    colour = VERMILLION if wrong else BLUE
    wide = (WIDTH_PX - left - 64) * float(value)
    weight = "bold" if true else "normal"
    middle = y + ROW_PX / 2
    axes.text(left - 10, middle, name, ha="right", va="center", size=TEXT_PX, weight=weight)
    bar = Rectangle(
        (left, middle - BAR_PX / 2), wide, BAR_PX, facecolor=tinted(colour, 0.55),
        edgecolor=colour, linewidth=1.2, hatch="////" if wrong else None,
    )  # fmt: skip
    axes.add_patch(bar)
    says = f"{100 * float(value):.0f} %"
    axes.text(left + wide + 6, middle, says, ha="left", va="center", size=SMALL_PX, weight=weight)


def _describe(class_names, label: int, answer: int, probabilities, title: str) -> str:
    percent = f"{100 * float(probabilities[answer]):.0f} %"
    verdict = "right" if answer == label else f"wrong: it is {class_names[label]}"
    return f"{title}. The model says {class_names[answer]} with {percent}, which is {verdict}."
