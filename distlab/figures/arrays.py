"""Arrays as pictures: grids of small images, annotated tables."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from distlab.errors import CourseError
from distlab.figures.canvas import (
    BLUE,
    SMALL_PX,
    TEXT_PX,
    VERMILLION,
    WIDTH_PX,
    count,
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

MOST_IMAGE_PX = 96.0
GAP_PX, TOP_PX, CAPTION_PX, LINE_PX = 8.0, 36.0, 22.0, 15.0


def images(
    images: Any,
    labels: Sequence[Any] | None = None,
    *,
    title: str,
    columns: int = 10,
    alt: str | None = None,
) -> Picture:
    """Draw images in a grid, each with its label, of one or more lines, below it.

    `images` is [n, height, width], with a last axis of 1 (grey) or 3 (red,
    green, blue) allowed; uint8 counts to 255, floats to 1. Raises CourseError
    for another shape and for labels that are not n.
    """
    pixels = _as_pixels(images)
    names = [str(label) for label in labels] if labels is not None else [""] * len(pixels)
    if len(names) != len(pixels):
        raise CourseError(f"images: {len(pixels)} images and {len(names)} labels: give one each")
    columns = max(1, min(columns, len(pixels)))
    side = min(MOST_IMAGE_PX, (WIDTH_PX - GAP_PX * (columns - 1)) / columns)
    lines = 1 + max(name.count("\n") for name in names)
    caption = CAPTION_PX + (lines - 1) * LINE_PX if labels is not None else 0.0
    tall = side * pixels.shape[1] / pixels.shape[2]
    rows = -(-len(pixels) // columns)

    def paint(figure: "Figure") -> None:
        write_title(figure, title)
        axes = pixel_axes(figure)
        for number, (image, name) in enumerate(zip(pixels, names, strict=True)):
            x = (number % columns) * (side + GAP_PX)
            y = TOP_PX + (number // columns) * (tall + caption + GAP_PX)
            _draw_image(axes, image, name, x, y, side, tall)
        axes.set_xlim(-2, WIDTH_PX + 2)
        axes.set_ylim(height_px, 0)

    height_px = TOP_PX + rows * (tall + caption + GAP_PX)
    return draw(paint, alt=alt or _describe_images(names, pixels, title), height_px=height_px)


def _as_pixels(images: Any) -> np.ndarray:
    """Return [n, height, width, 3] uint8."""
    pixels = np.asarray(images)
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.ndim != 4 or pixels.shape[-1] not in (1, 3) or not len(pixels):
        raise CourseError(
            f"images: an array of shape {np.shape(images)}: give [n, height, width], "
            "with a last axis of 1 or 3 if you like"
        )
    if pixels.dtype != np.uint8:
        pixels = np.round(np.clip(pixels.astype(float), 0, 1) * 255).astype(np.uint8)
    return np.broadcast_to(pixels, (*pixels.shape[:3], 3))


def _draw_image(axes: "Axes", image, name: str, x: float, y: float, side: float, tall) -> None:
    from matplotlib.patches import Rectangle

    axes.imshow(image, extent=(x, x + side, y + tall, y), interpolation="none", aspect="auto")
    frame = Rectangle((x, y), side, tall, facecolor="none", edgecolor=INK, alpha=0.35, linewidth=1)
    axes.add_patch(frame)
    if name:
        middle = y + tall + 12 + name.count("\n") * LINE_PX / 2
        axes.text(x + side / 2, middle, name, ha="center", va="center", size=SMALL_PX)


def _describe_images(names: list[str], pixels: np.ndarray, title: str) -> str:
    size = f"{pixels.shape[1]} by {pixels.shape[2]} pixels"
    says = f"{title}. {count(len(names), 'image')} of {size}"
    words = ", ".join(name.replace("\n", " ") for name in names)
    return f"{says}: {words}." if any(names) else f"{says}."


def matrix(
    array: Any,
    row_labels: Sequence[Any],
    column_labels: Sequence[Any],
    *,
    title: str,
    format: str = "{:g}",
    alt: str | None = None,
) -> Picture:
    """Draw a small table [rows, columns], each cell with its value and a tint of its size.

    Values below 0 are tinted vermillion with a dashed edge, others blue.
    `format` is a format string for one value. Raises CourseError when the
    labels do not fit the shape.
    """
    table = np.asarray(array)
    if table.shape != (len(row_labels), len(column_labels)) or not table.size:
        raise CourseError(
            f"matrix: an array of shape {table.shape} with {len(row_labels)} row and "
            f"{len(column_labels)} column labels: give one label for each row and column"
        )
    texts = [[format.format(value) for value in row] for row in table.tolist()]
    rows, heads = [str(r) for r in row_labels], [str(c) for c in column_labels]

    def paint(figure: "Figure") -> None:
        write_title(figure, title)
        _draw_table(pixel_axes(figure), table, texts, rows, heads)

    height_px = TOP_PX + 26 + len(rows) * 34 + 6
    return draw(paint, alt=alt or _describe_table(texts, rows, heads, title), height_px=height_px)


def _draw_table(axes: "Axes", table: np.ndarray, texts, rows: list[str], heads: list[str]) -> None:
    left = max(text_width_px(name) for name in rows) + 14
    need = max(text_width_px(t, TEXT_PX) for t in [*heads, *(t for row in texts for t in row)])
    wide = min((WIDTH_PX - left) / len(heads), max(need + 18, 46))
    size = TEXT_PX if need + 4 <= wide else SMALL_PX
    largest = float(np.nanmax(np.abs(table.astype(float)))) or 1.0
    for j, head in enumerate(heads):
        axes.text(left + (j + 0.5) * wide, TOP_PX + 12, head, ha="center", va="center", size=size)
    for i, name in enumerate(rows):
        y = TOP_PX + 26 + i * 34
        axes.text(left - 10, y + 17, name, ha="right", va="center", size=TEXT_PX)
        for j, text in enumerate(texts[i]):
            x = left + j * wide
            _draw_cell(axes, x, y, wide, text, float(table[i, j]) / largest, size)


def _draw_cell(
    axes: "Axes", x: float, y: float, wide: float, text: str, share: float, size
) -> None:
    from matplotlib.patches import Rectangle

    colour = VERMILLION if share < 0 else BLUE
    strength = 0.0 if share != share else 0.06 + 0.44 * abs(share)
    cell = Rectangle(
        (x + 1, y + 1), wide - 2, 32, facecolor=tinted(colour, strength), edgecolor=colour,
        linewidth=0.8, linestyle=(0, (3, 2)) if share < 0 else "-",
    )  # fmt: skip
    axes.add_patch(cell)
    axes.text(x + wide / 2, y + 17, text, ha="center", va="center", size=size)


def _describe_table(texts, rows: list[str], heads: list[str], title: str) -> str:
    says = []
    for name, row in zip(rows, texts, strict=True):
        inside = ", ".join(f"{head} {text}" for head, text in zip(heads, row, strict=True))
        says.append(f"{name}: {inside}")
    return f"{title}. {'; '.join(says)}."
