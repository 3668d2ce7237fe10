"""Grids: small images, annotated tables, and who received which example."""

import base64
import io
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from distlab.errors import CourseError
from distlab.figures import canvas
from distlab.figures.canvas import SMALL_PX, TEXT_PX, WIDTH_PX, Sheet, draw_sheet, text_width_px
from distlab.figures.picture import INK, Picture
from utils.measure import count

TOP_PX = 36.0
MAX_IMAGE_PX, GAP_PX, CAPTION_PX, LINE_PX = 96.0, 8.0, 22.0, 15.0
HEAD_PX, CELL_PX = 26.0, 34.0
STRIPS_PX, STRIP_PX, MAX_EXAMPLES = 56.0, 30.0, 80


def images(
    images: Any,
    labels: Sequence[Any] | None = None,
    *,
    title: str,
    columns: int = 10,
    alt: str | None = None,
) -> Picture:
    """Draw images in a grid, each with its label, of one or more lines, below it.

    `images` is [n, height, width], with a last axis of 1 (gray) or 3 (red,
    green, blue) allowed. Uint8 counts to 255, floats to 1. Raises CourseError
    for another shape and for labels that aren't n.
    """
    pixels = _as_pixels(images)
    names = [str(label) for label in labels] if labels is not None else [""] * len(pixels)
    if len(names) != len(pixels):
        raise CourseError(
            f"images and labels must be equally many, got {len(pixels)} and {len(names)}."
        )
    columns = max(1, min(columns, len(pixels)))
    side = min(MAX_IMAGE_PX, (WIDTH_PX - GAP_PX * (columns - 1)) / columns)
    lines = 1 + max(name.count("\n") for name in names)
    caption = CAPTION_PX + (lines - 1) * LINE_PX if labels is not None else 0.0
    tall = side * pixels.shape[1] / pixels.shape[2]

    def paint(sheet: Sheet) -> None:
        for number, (image, name) in enumerate(zip(pixels, names, strict=True)):
            x = (number % columns) * (side + GAP_PX)
            y = TOP_PX + (number // columns) * (tall + caption + GAP_PX)
            _draw_image(sheet, image, name, x, y, side, tall)

    size = f"{pixels.shape[1]} by {pixels.shape[2]} pixels"
    words = f": {', '.join(name.replace(chr(10), ' ') for name in names)}" if any(names) else ""
    return draw_sheet(
        paint,
        title=title,
        alt=alt or f"{title}. {count(len(names), 'image')} of {size}{words}.",
        height_px=TOP_PX + -(-len(pixels) // columns) * (tall + caption + GAP_PX),
        chart={
            "kind": "images",
            "items": [[encode_png(image), name] for image, name in zip(pixels, names, strict=True)],
        },
    )


def encode_png(image: Any) -> str:
    """Return the address of an image, [height, width] or with a last axis of 1 or 3, as PNG."""
    from PIL import Image

    (pixels,) = _as_pixels(np.asarray(image)[None])
    gray = pixels[..., 0] if (pixels == pixels[..., :1]).all() else pixels
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(gray)).save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _as_pixels(images: Any) -> np.ndarray:
    """Return [n, height, width, 3] uint8."""
    pixels = np.asarray(images)
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.ndim != 4 or pixels.shape[-1] not in (1, 3) or not len(pixels):
        raise CourseError(
            "images must have shape [n, height, width] and may have a last axis of 1 or 3, "
            f"got {np.shape(images)}."
        )
    if pixels.dtype != np.uint8:
        pixels = np.round(np.clip(pixels.astype(float), 0, 1) * 255).astype(np.uint8)
    return np.broadcast_to(pixels, (*pixels.shape[:3], 3))


def _draw_image(sheet: Sheet, image, name: str, x: float, y: float, side: float, tall) -> None:
    place = (x, x + side, y + tall, y)
    sheet.axes.imshow(image, extent=place, interpolation="none", aspect="auto")
    sheet.rectangle(x, y, side, tall, INK, facecolor="none", alpha=0.35, linewidth=1)
    if name:
        middle = y + tall + 12 + name.count("\n") * LINE_PX / 2
        sheet.write(x + side / 2, middle, name, size=SMALL_PX)


def matrix(
    array: Any,
    row_labels: Sequence[Any],
    column_labels: Sequence[Any],
    *,
    title: str,
    format: str = "{:g}",
    marked: Collection[tuple[int, int]] | None = None,
) -> Picture:
    """Draw a small table [rows, columns], each cell with its value and a tint of its size.

    Values below 0 are tinted vermilion with a dashed edge, others blue. With
    `marked`, only those cells (row, column) are tinted and bold: for columns of
    different units. `format` is a format string for one value. Raises
    CourseError when the labels don't fit the shape.
    """
    table = np.asarray(array)
    if table.shape != (len(row_labels), len(column_labels)) or not table.size:
        raise CourseError(
            f"matrix must have one label per row and column, got shape {table.shape} with "
            f"{len(row_labels)} row and {len(column_labels)} column labels."
        )
    texts = [[format.format(value) for value in row] for row in table.tolist()]
    rows, heads = [str(r) for r in row_labels], [str(c) for c in column_labels]
    left = max(text_width_px(name) for name in rows) + 14
    lines = [_wrap_head(head, (WIDTH_PX - left) / len(heads)) for head in heads]
    top_px = TOP_PX + HEAD_PX + LINE_PX * (max(map(len, lines)) - 1)
    says = []
    for i, (name, row) in enumerate(zip(rows, texts, strict=True)):
        cells = [
            f"{heads[j]} {text}" + " (marked)" * ((i, j) in (marked or ()))
            for j, text in enumerate(row)
        ]
        says.append(f"{name}: {', '.join(cells)}")
    return draw_sheet(
        lambda sheet: _draw_table(sheet, table, texts, rows, lines, marked, left, top_px),
        title=title,
        alt=f"{title}. {'; '.join(says)}.",
        height_px=top_px + len(rows) * CELL_PX + 6,
    )


def _wrap_head(head: str, room_px: float) -> list[str]:
    """Return a column's head in the one line that fits into its room, or in two alike."""
    words = head.split(" ")
    if text_width_px(head, SMALL_PX) + 4 <= room_px or len(words) == 1:
        return [head]
    pairs = [[" ".join(words[:k]), " ".join(words[k:])] for k in range(1, len(words))]
    return min(pairs, key=lambda pair: max(map(text_width_px, pair)))


def _draw_table(
    sheet: Sheet,
    table: np.ndarray,
    texts,
    rows: list[str],
    heads: list[list[str]],
    marked,
    left: float,
    top_px: float,
) -> None:
    need = max(text_width_px(text) for line in [*heads, *texts] for text in line)
    wide = min((WIDTH_PX - left) / len(heads), max(need + 18, 46))
    size = TEXT_PX if need + 4 <= wide else SMALL_PX
    largest = float(np.nanmax(np.abs(table.astype(float)))) or 1.0
    for j, head in enumerate(heads):
        for line, text in enumerate(reversed(head)):
            y = top_px - HEAD_PX + 12 - line * LINE_PX
            sheet.write(left + (j + 0.5) * wide, y, text, size=size)
    for i, name in enumerate(rows):
        y = top_px + i * CELL_PX
        sheet.write(left - 10, y + 17, name, "right")
        for j, text in enumerate(texts[i]):
            x = left + j * wide
            bold = marked is not None and (i, j) in marked
            part = float(table[i, j]) / largest if marked is None else (0.5 if bold else np.nan)
            _draw_cell(sheet, x, y, wide, part)
            weight = "bold" if bold else "normal"
            sheet.write(x + wide / 2, y + 17, text, size=size, weight=weight)


def _draw_cell(sheet: Sheet, x: float, y: float, wide: float, part: float) -> None:
    """Draw a cell whose value is `part` of the largest; nan has no tint."""
    color = canvas.VERMILION if part < 0 else canvas.BLUE
    strength = 0.0 if part != part else 0.06 + 0.44 * abs(part)
    edge = (0, (3, 2)) if part < 0 else "-"
    place = (x + 1, y + 1, wide - 2, CELL_PX - 2)
    sheet.rectangle(*place, color, strength, linewidth=0.8, linestyle=edge)


def shares(
    views: Mapping[str, Iterable[Iterable[int]]],
    examples: int,
    *,
    title: str,
) -> Picture:
    """Draw a row for each of `views` (who -> the ids of each step), a square for each example.

    A filled square was received. One received twice by the same has a thick edge. Steps alternate
    between two strengths. Examples that no device received are crossed out in a last row. Raises
    CourseError for more than 80 examples, an id that is not below `examples`, and no views.
    """
    rows = {who: [list(step) for step in steps] for who, steps in views.items()}
    seen = Counter(i for steps in rows.values() for step in steps for i in step)
    if not rows or not 1 <= examples <= MAX_EXAMPLES or any(i >= examples for i in seen):
        raise CourseError(
            f"shares must have at least 1 row, 1 to {MAX_EXAMPLES} examples and ids below "
            f"their number, got {len(rows)} rows of {examples} examples."
        )
    lost = [i for i in range(examples) if not seen[i]]
    return draw_sheet(
        lambda sheet: _draw_shares(sheet, rows, lost, examples),
        title=title,
        alt=_describe_shares(rows, seen, lost, title),
        height_px=STRIPS_PX + (len(rows) + bool(lost)) * STRIP_PX + 8,
    )


def _draw_shares(sheet: Sheet, rows: Mapping, lost: list[int], examples: int) -> None:
    left = max(text_width_px(name) for name in [*rows, *(["nobody"] if lost else [])]) + 14
    wide = (WIDTH_PX - left) / examples
    step = next(s for s in (1, 2, 4, 8, 16) if s * wide >= 22)
    for i in range(0, examples, step):
        sheet.write(left + (i + 0.5) * wide, STRIPS_PX - 12, str(i), size=SMALL_PX)
    for number, (who, steps) in enumerate(rows.items()):
        y = STRIPS_PX + number * STRIP_PX
        sheet.write(left - 10, y + STRIP_PX / 2, who, "right")
        color = canvas.COLORS[number % len(canvas.COLORS)]
        _draw_strip(sheet, steps, examples, left, wide, y, color)
    if lost:
        _draw_lost(sheet, lost, left, wide, STRIPS_PX + len(rows) * STRIP_PX)


def _draw_strip(sheet: Sheet, steps, examples: int, left, wide, y, color) -> None:
    mine = Counter(i for step in steps for i in step)
    at = {i: number for number, step in enumerate(steps) for i in step}
    gap = min(1.0, wide / 8)
    for i in range(examples):
        face, edge, line = "none", canvas.tinted(INK, 0.3), 0.7
        if i in at:
            face = canvas.tinted(color, (0.35, 0.7)[at[i] % 2])
            edge, line = (INK, 2.2) if mine[i] > 1 else (color, 1.0)
        place = (left + i * wide + gap, y + 4, wide - 2 * gap, STRIP_PX - 8)
        sheet.rectangle(*place, edge, facecolor=face, linewidth=line)


def _draw_lost(sheet: Sheet, lost: list[int], left, wide, y) -> None:
    sheet.write(left - 10, y + STRIP_PX / 2, "nobody", "right")
    for i in lost:
        x = left + i * wide
        for ends in ((y + 6, y + STRIP_PX - 6), (y + STRIP_PX - 6, y + 6)):
            sheet.line([x + 2, x + wide - 2], ends, canvas.VERMILION, linewidth=1.8)


def _describe_shares(rows: Mapping, seen: Counter[int], lost: list[int], title: str) -> str:
    says = []
    for who, steps in rows.items():
        ids = sorted({i for step in steps for i in step})
        some = f" ({', '.join(map(str, ids[:12]))}{' …' if len(ids) > 12 else ''})" if ids else ""
        says.append(f"{who}: {count(len(ids), 'example')}{some}")
    more = [i for i, times in seen.items() if times > 1]
    ends = [f"{count(len(lost), 'example')} received by nobody"] if lost else []
    ends += [f"{count(len(more), 'example')} received more than once"] if more else []
    end = " and ".join(ends) or "Every example was received exactly once"
    return f"{title}. {'; '.join(says)}. {end}."
