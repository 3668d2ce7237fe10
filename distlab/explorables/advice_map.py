"""A map of advice: what is advised for each size of a model and each number of devices."""

from collections.abc import Mapping
from dataclasses import replace

from distlab.figures import Picture
from distlab.figures.canvas import SMALL_PX, WIDTH_PX, Sheet, draw_sheet, say_number
from distlab.figures.palette import IDEAS
from distlab.figures.picture import INK
from utils.measure import count

DEVICES = range(13)  # powers of 2
SIZES = tuple(12 - k / 2 for k in range(13))  # parameters as powers of 10, the largest on top
LEFT_PX, TOP_PX, TALL_PX = 90.0, 32.0, 20.0


def draw_map(cells: str, ideas: Mapping[str, str], at: tuple[float, int], advice: str) -> Picture:
    """Draw `cells`, and mark the one of `at`: its exponents in SIZES and in DEVICES.

    `cells` has a digit for each size and number of devices: the place of its advice in `ideas`,
    which gives each advice the color of an idea. `advice` is the one of `at`.
    """
    names, (size, devices) = list(ideas), at
    row = min(range(len(SIZES)), key=lambda k: abs(SIZES[k] - size))
    wide = (WIDTH_PX - LEFT_PX) / len(DEVICES)

    def place(k: int) -> tuple[float, float]:
        y, x = divmod(k, len(DEVICES))
        return LEFT_PX + x * wide, TOP_PX + y * TALL_PX

    def paint(sheet: Sheet) -> None:
        for k, cell in enumerate(cells):
            color = IDEAS[ideas[names[int(cell)]]][0]
            sheet.rectangle(*place(k), wide - 1, TALL_PX - 1, color, 0.5, linewidth=0)
        chosen = row * len(DEVICES) + devices
        sheet.rectangle(*place(chosen), wide, TALL_PX, INK, facecolor="none", linewidth=2.5)
        for k in range(0, len(SIZES), 2):
            y = TOP_PX + (k + 0.5) * TALL_PX
            sheet.write(LEFT_PX - 8, y, say_number(10.0 ** (SIZES[k] - 9)), "right", SMALL_PX)
        below = TOP_PX + len(SIZES) * TALL_PX
        for power in DEVICES[::3]:
            x = LEFT_PX + (power + 0.5) * wide
            sheet.write(x, below + 10, f"{2**power:,}", size=SMALL_PX)
        axes = "devices, and on the left billions of parameters"
        sheet.write((LEFT_PX + WIDTH_PX) / 2, below + 28, axes, size=SMALL_PX)
        for name in sorted(set(cells)):
            own = [k for k, cell in enumerate(cells) if cell == name]
            x, y = place(own[len(own) // 2])
            sheet.write(x, y + TALL_PX / 2, names[int(name)], size=SMALL_PX)

    billions = say_number(10.0 ** (size - 9))
    title = f"{advice}: {billions} billion parameters on {count(2**devices, 'device')}"
    there = ", ".join(names[int(name)] for name in sorted(set(cells)))
    picture = draw_sheet(
        paint,
        title=title,
        alt=f"{title}. The map shows where else the advice is {there}.",
        height_px=TOP_PX + TALL_PX * len(SIZES) + 42,
        chart={"kind": "map", "cells": cells, "names": names, "at": [row, devices]},
    )
    words = "The frame is your job. In JupyterLab and in the book, a click on the map moves it."
    return replace(picture, caption=words).with_ideas(ideas)
