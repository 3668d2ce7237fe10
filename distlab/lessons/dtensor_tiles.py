"""Lesson 15: which device holds which piece of a DTensor, drawn from the layouts."""

from collections.abc import Mapping, Sequence
from math import log10

import numpy as np

from distlab.figures.canvas import COLORS, SMALL_PX, Sheet, draw_sheet, text_width_px
from distlab.figures.picture import INK, Picture

Tiles = dict[tuple[int, int], list[int]]  # (row, column) of a tile -> the devices that hold it
TOP_PX, GAP_PX, NAME_PX, CELL_PX = 44.0, 54.0, 44.0, 54.0


def draw_tiles(
    tensors: Mapping[str, tuple[Sequence[int], Sequence[str]]], mesh: Mapping[str, int]
) -> Picture:
    """Draw a mesh of two dimensions, then each tensor in the tiles that its layout makes.

    `tensors` are {name: (shape [rows, columns], layout's sharding specs)}; between the last
    two stands "=". `mesh` maps the names of its dimensions to their sizes. Devices count
    along its rows. A tile says which devices hold it: several hold equal copies.
    """
    first, second = mesh.values()
    own = {(r, c): [r * second + c] for r, c in np.ndindex(first, second)}
    sizes = {name: tuple(40 + 45 * log10(n) for n in shape) for name, (shape, _) in tensors.items()}
    tiles = {name: find_tiles(specs, mesh) for name, (_, specs) in tensors.items()}
    tall = max(size[0] for size in sizes.values())

    def paint(sheet: Sheet) -> None:
        middle, x, (rows, columns) = TOP_PX + tall / 2, 4.0, mesh
        draw_grid(sheet, own, x, middle, (CELL_PX * first, CELL_PX * second))
        write_name(sheet, x + CELL_PX * second / 2, TOP_PX + tall, "mesh", f"{rows} ↓  {columns} →")
        x += CELL_PX * second + GAP_PX
        for number, (name, (shape, _)) in enumerate(tensors.items()):
            high, wide = sizes[name]
            draw_grid(sheet, tiles[name], x, middle, (high, wide))
            write_name(sheet, x + wide / 2, TOP_PX + tall, name, f"{shape[0]} × {shape[1]}")
            x += wide + GAP_PX
            sign = {len(tensors) - 1: "", len(tensors) - 2: "="}.get(number, "·")
            sheet.write(x - GAP_PX / 2, middle, sign)

    title = f"A mesh of {first} × {second} devices, and what each of them holds"
    words = "; ".join(f"{name}: {_describe(own)}" for name, own in tiles.items())
    alt = f"{title}. {words}."
    return draw_sheet(paint, title=title, alt=alt, height_px=TOP_PX + tall + NAME_PX)


def find_tiles(specs: Sequence[str], mesh: Mapping[str, int]) -> Tiles:
    """Return which devices hold each tile of a matrix whose two axes are split by `specs`.

    A spec is the name of a dimension of the mesh, or "unsharded".
    """
    names, tiles = list(mesh), {}
    for device, place in enumerate(np.ndindex(*mesh.values())):
        tile = tuple(place[names.index(spec)] if spec in mesh else 0 for spec in specs)
        tiles.setdefault(tile, []).append(device)
    return tiles


def draw_grid(
    sheet: Sheet, tiles: Tiles, x: float, middle: float, size: tuple[float, float]
) -> None:
    """Draw the tiles of one matrix; a tile of several devices is banded in their colors."""
    rows, columns = (1 + max(tile[axis] for tile in tiles) for axis in (0, 1))
    high, wide = size[0] / rows, size[1] / columns
    for (row, column), devices in tiles.items():
        left, top = x + column * wide, middle - size[0] / 2 + row * high
        band = wide / len(devices)
        for number, device in enumerate(devices):
            place = (left + number * band, top, band, high)
            color = COLORS[device % len(COLORS)]
            sheet.rectangle(*place, color, 0.34, edgecolor="none", linewidth=0)
        sheet.rectangle(left, top, wide, high, INK, linewidth=1.3)
        words = ", ".join(map(str, devices))
        if text_width_px(words, SMALL_PX) + 4 > wide:
            words = words.replace(", ", "\n")
        sheet.write(left + wide / 2, top + high / 2, words, size=SMALL_PX)


def write_name(sheet: Sheet, x: float, below: float, name: str, size: str) -> None:
    sheet.write(x, below + 14, name, weight="bold")
    sheet.write(x, below + 31, size, size=SMALL_PX)


def _describe(tiles: Tiles) -> str:
    says = [
        f"tile {row}, {column} on {' and '.join(map(str, devices))}"
        for (row, column), devices in tiles.items()
    ]
    return ", ".join(says)
