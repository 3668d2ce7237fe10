"""Lesson 15: a dense layer's matrices, cut for devices, and the collective that they need."""

from collections.abc import Sequence
from dataclasses import dataclass

from distlab.errors import CourseError
from distlab.figures.canvas import COLORS, SMALL_PX, WIDTH_PX, Sheet, draw_sheet, text_width_px
from distlab.figures.picture import INK, Picture

WHOLE, COLUMNS, ROWS = "whole", "columns", "rows"
MAX_DEVICES = len(COLORS)
TOP_PX, NAME_PX, GAP_PX = 68.0, 44.0, 10.0
WORDS = {
    COLUMNS: "Each device holds some columns of W and computes the same columns of y: {}. An "
    "all-gather puts y together.",
    ROWS: "Each device holds some rows of W and the matching columns of x: {}. Each has one "
    "term of every sum in y, and an all-reduce adds the terms.",
    "both": "Each device holds some columns of W1, the same columns of h, and the same rows of "
    "W2: {}. Nothing is put together between the layers; one all-reduce adds the terms of y.",
}


@dataclass(frozen=True)
class Matrix:
    """A matrix: its name, its size in words and in pixels, how it is cut; `owner` of all of it."""

    name: str
    size: str
    width: float
    height: float
    cut: str = WHOLE
    owner: int | None = None


Piece = Matrix | str  # a matrix, or what stands between two


def split_matrix(split: str, sizes: Sequence[int], inputs: int = 784, outputs: int = 10) -> Picture:
    """Draw y = x W split over devices by "columns" or "rows", or a network split by "both".

    `sizes` are the columns, rows or hidden units of each device, in order; `inputs` and
    `outputs` the numbers of the whole layer's or network's. Raises CourseError for
    another split and for fewer than two or more than six devices.
    """
    if split not in _MAKERS:
        raise CourseError(f"split must be one of {', '.join(_MAKERS)}, got {split!r}.")
    if not 2 <= len(sizes) <= MAX_DEVICES or min(sizes) < 1:
        raise CourseError(f"sizes must be 2 to {MAX_DEVICES} numbers above 0, got {list(sizes)}.")
    pieces, title = _MAKERS[split](list(sizes), inputs, outputs)
    tall = max(piece.height for piece in pieces if isinstance(piece, Matrix))

    def paint(sheet: Sheet) -> None:
        _draw_key(sheet, len(sizes))
        scale = min(1.0, _fit(pieces))
        x, middle = 4.0, TOP_PX + tall / 2
        for piece in pieces:
            x = _draw_piece(sheet, piece, x, middle, scale, sizes)

    shares = ", ".join(f"device {device} {size}" for device, size in enumerate(sizes))
    words = f"{title}. {WORDS[split].format(shares)}"
    return draw_sheet(paint, title=title, alt=words, height_px=TOP_PX + tall + NAME_PX)


def _by_columns(sizes: list[int], inputs: int, _outputs: int) -> tuple[list[Piece], str]:
    outputs = sum(sizes)
    pieces: list[Piece] = [
        Matrix("x", f"batch × {inputs}", 120, 70),
        "·",
        Matrix("W", f"{inputs} × {outputs}", 100, 120, COLUMNS),
        "=",
        Matrix("y", f"batch × {outputs}", 100, 70, COLUMNS),
        "all-gather →",
        Matrix("y", "", 100, 70),
    ]
    return pieces, "One layer by columns: every device makes some of the outputs"


def _by_rows(sizes: list[int], _inputs: int, outputs: int) -> tuple[list[Piece], str]:
    pieces: list[Piece] = [
        Matrix("x", f"batch × {sum(sizes)}", 120, 70, COLUMNS),
        "·",
        Matrix("W", f"{sum(sizes)} × {outputs}", 80, 120, ROWS),
        "=",
        *_add_up(len(sizes), 80, 70),
        "all-reduce →",
        Matrix("y", "", 80, 70),
    ]
    return pieces, "One layer by rows: every device makes a part of every sum"


def _by_both(sizes: list[int], inputs: int, outputs: int) -> tuple[list[Piece], str]:
    hidden = sum(sizes)
    pieces: list[Piece] = [
        Matrix("x", f"batch × {inputs}", 90, 60),
        "·",
        Matrix("W1", f"{inputs} × {hidden}", 84, 96, COLUMNS),
        "ReLU →",
        Matrix("h", f"batch × {hidden}", 84, 60, COLUMNS),
        "·",
        Matrix("W2", f"{hidden} × {outputs}", 62, 84, ROWS),
        "=",
        *_add_up(len(sizes), 62, 60),
        "all-reduce →",
        Matrix("y", "", 62, 60),
    ]
    return pieces, "Two layers, by columns and then by rows: the hidden values stay where they are"


_MAKERS = {COLUMNS: _by_columns, ROWS: _by_rows, "both": _by_both}


def _add_up(devices: int, width: float, height: float) -> list[Piece]:
    """Return one whole matrix for each device, with plus signs between them."""
    terms: list[Piece] = []
    for number in range(devices):
        terms += ["+"] if terms else []
        size = "parts of sums" if number == 0 else ""
        terms.append(Matrix(f"y{number}", size, width, height, owner=number))
    return terms


def _fit(pieces: list[Piece]) -> float:
    """Return what to multiply the matrices' widths with so that all fit on the sheet."""
    words = sum(text_width_px(p) for p in pieces if isinstance(p, str))
    room = WIDTH_PX - 8 - words - GAP_PX * 2 * (len(pieces) // 2)
    return room / sum(piece.width for piece in pieces if isinstance(piece, Matrix))


def _draw_piece(sheet: Sheet, piece: Piece, x: float, middle: float, scale, sizes) -> float:
    """Draw a matrix or a sign at `x`; return where the next one begins."""
    if isinstance(piece, str):
        wide = text_width_px(piece)
        sheet.write(x + GAP_PX + wide / 2, middle, piece)
        return x + wide + 2 * GAP_PX
    wide, y = piece.width * scale, middle - piece.height / 2
    _draw_matrix(sheet, piece, x, y, wide, sizes)
    center, below = x + wide / 2, middle + piece.height / 2
    sheet.write(center, below + 14, piece.name, weight="bold")
    if text_width_px(piece.size, SMALL_PX) < wide + 2 * GAP_PX + 40:
        sheet.write(center, below + 31, piece.size, size=SMALL_PX)
    return x + wide


def _draw_matrix(sheet: Sheet, matrix: Matrix, x: float, y: float, wide: float, sizes) -> None:
    if matrix.cut == WHOLE:
        _draw_part(sheet, x, y, wide, matrix.height, matrix.owner)
        return
    before, total = 0, sum(sizes)
    for device, size in enumerate(sizes):
        start, share = before / total, size / total
        if matrix.cut == COLUMNS:
            _draw_part(sheet, x + start * wide, y, share * wide, matrix.height, device)
        else:
            _draw_part(sheet, x, y + start * matrix.height, wide, share * matrix.height, device)
        before += size


def _draw_part(sheet: Sheet, x, y, wide, tall, device: int | None) -> None:
    color = INK if device is None else COLORS[device]
    strength = 0.06 if device is None else 0.38
    sheet.rectangle(x + 1, y + 1, wide - 2, tall - 2, color, strength, linewidth=1.3)
    if device is not None:
        sheet.write(x + wide / 2, y + tall / 2, str(device), size=SMALL_PX)


def _draw_key(sheet: Sheet, devices: int) -> None:
    x = 4.0
    for device in [*range(devices), None]:
        name = "whole, on every device" if device is None else f"on device {device}"
        _draw_part(sheet, x, 36, 20, 18, device)
        sheet.write(x + 28, 45, name, "left", SMALL_PX)
        x += 28 + text_width_px(name, SMALL_PX) + 20
