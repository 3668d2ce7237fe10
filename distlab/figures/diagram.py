"""Boxes and arrows: the small drawing language under the diagrams of devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distlab.errors import CourseError
from distlab.figures import canvas
from distlab.figures.canvas import SMALL_PX, Sheet
from distlab.figures.picture import INK, Picture

# kind of box -> colour, strength of its tint
KINDS: Mapping[str, tuple[str, float]] = {
    "text": (INK, 0.0),
    "device": (INK, 0.04),
    "variables": (canvas.BLUE, 0.3),
    "compute": (canvas.GREEN, 0.25),
    "data": (canvas.ORANGE, 0.3),
    "server": (canvas.PURPLE, 0.3),
    "reduce": (canvas.VERMILLION, 0.25),
}


@dataclass(frozen=True)
class Box:
    """A box of `kind` (see KINDS) with its upper left corner at (x, y); sizes in pixels.

    A box of kind "device" is a frame: its text stands at its top and other
    boxes may lie inside it. A box of kind "text" has no frame.
    """

    text: str
    x: float
    y: float
    width: float
    height: float
    kind: str = "device"


@dataclass(frozen=True)
class Arrow:
    """An arrow from one box to another, by their names, with a label at its middle.

    `dashed` is for what is copied, a full line for gradients; `both` has two
    heads; `offset` moves it sideways, in pixels; `label_at` moves the label along
    the arrow (0 to 1).
    """

    start: str
    end: str
    label: str = ""
    dashed: bool = False
    both: bool = False
    offset: float = 0.0
    label_at: float = 0.5


def diagram(
    boxes: Mapping[str, Box],
    arrows: Sequence[Arrow] = (),
    *,
    title: str,
    alt: str,
    height_px: float,
) -> Picture:
    """Draw named `boxes` on a sheet 720 pixels wide, then `arrows` between them.

    Raises CourseError for an arrow to a box that is not there and for an
    unknown kind of box.
    """
    for name, box in boxes.items():
        if box.kind not in KINDS:
            raise CourseError(
                f"diagram: box {name!r} is of kind {box.kind!r}: choose {', '.join(KINDS)}"
            )
    for arrow in arrows:
        for name in (arrow.start, arrow.end):
            if name not in boxes:
                raise CourseError(f"diagram: an arrow names the box {name!r}, which is not there")

    def paint(sheet: Sheet) -> None:
        for box in boxes.values():
            _draw_box(sheet, box)
        for arrow in arrows:
            _draw_arrow(sheet, arrow, boxes[arrow.start], boxes[arrow.end])

    return canvas.draw_sheet(paint, title=title, alt=alt, height_px=height_px)


def _draw_box(sheet: Sheet, box: Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    colour, strength = KINDS[box.kind]
    patch = FancyBboxPatch(
        (box.x + 4, box.y + 4), box.width - 8, box.height - 8,
        boxstyle="round,pad=4,rounding_size=6", facecolor=canvas.tinted(colour, strength),
        edgecolor=colour, linewidth=1.3,
    )  # fmt: skip
    if box.kind != "text":
        sheet.axes.add_patch(patch)
    middle = box.x + box.width / 2
    if box.kind == "device":
        sheet.write(middle, box.y + 16, box.text, weight="bold")
    else:
        sheet.write(middle, box.y + box.height / 2, box.text, linespacing=1.3)


def _draw_arrow(sheet: Sheet, arrow: Arrow, start: Box, end: Box) -> None:
    from matplotlib.patches import FancyArrowPatch

    tail, head = _edges(start, end, arrow.offset)
    patch = FancyArrowPatch(
        tail, head, arrowstyle="<|-|>" if arrow.both else "-|>", mutation_scale=12,
        color=INK, linewidth=1.5,
        linestyle=(0, (5, 3)) if arrow.dashed else "-", shrinkA=2, shrinkB=2,
    )  # fmt: skip
    sheet.axes.add_patch(patch)
    if arrow.label:
        x = tail[0] + (head[0] - tail[0]) * arrow.label_at
        y = tail[1] + (head[1] - tail[1]) * arrow.label_at
        sheet.write(x, y, arrow.label, size=SMALL_PX, bbox=canvas.label_paper(), linespacing=1.25)


def _edges(start: Box, end: Box, offset: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return where an arrow leaves `start` and meets `end`: on the sides that face each other."""
    start_y, end_y = start.y + start.height / 2, end.y + end.height / 2
    if end.y >= start.y + start.height or start.y >= end.y + end.height:
        down = end_y > start_y
        narrow = start if start.width < end.width else end
        x = narrow.x + narrow.width / 2 + offset
        return (
            (x, start.y + start.height if down else start.y),
            (x, end.y if down else end.y + end.height),
        )
    right = end.x > start.x
    return (
        (start.x + start.width if right else start.x, start_y + offset),
        (end.x if right else end.x + end.width, end_y + offset),
    )
