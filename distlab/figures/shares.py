"""Who received which example: a strip of squares for each replica or worker."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from distlab.errors import CourseError
from distlab.figures.canvas import (
    COLOURS,
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

TOP_PX, STRIP_PX, MOST_EXAMPLES = 56.0, 30.0, 80


def shares(
    views: Mapping[str, Iterable[Iterable[int]]],
    examples: int,
    *,
    title: str,
    alt: str | None = None,
) -> Picture:
    """Draw a row for each of `views` (who -> the ids of each step), a square for each example.

    A filled square was received; one received twice by the same has a thick edge.
    Steps alternate between two strengths. Examples that nobody received are crossed
    out in a last row. Raises CourseError for more than 80 examples, an id that is
    not below `examples`, and no views.
    """
    rows = {who: [list(step) for step in steps] for who, steps in views.items()}
    seen = Counter(i for steps in rows.values() for step in steps for i in step)
    if not rows or not 1 <= examples <= MOST_EXAMPLES or any(i >= examples for i in seen):
        raise CourseError(
            f"shares: {len(rows)} rows of {examples} examples: give 1 row or more, 1 to "
            f"{MOST_EXAMPLES} examples, and ids below their number"
        )
    lost = [i for i in range(examples) if not seen[i]]

    def paint(figure: "Figure") -> None:
        write_title(figure, title)
        axes = pixel_axes(figure)
        names = [*rows, "nobody"] if lost else list(rows)
        left = max(text_width_px(name) for name in names) + 14
        wide = (WIDTH_PX - left) / examples
        _draw_heads(axes, examples, left, wide)
        for number, (who, steps) in enumerate(rows.items()):
            y = TOP_PX + number * STRIP_PX
            axes.text(left - 10, y + STRIP_PX / 2, who, ha="right", va="center", size=TEXT_PX)
            _draw_strip(axes, steps, examples, left, wide, y, COLOURS[number % len(COLOURS)])
        if lost:
            _draw_lost(axes, lost, left, wide, TOP_PX + len(rows) * STRIP_PX)

    height_px = TOP_PX + (len(rows) + bool(lost)) * STRIP_PX + 8
    return draw(paint, alt=alt or _describe(rows, seen, lost, title), height_px=height_px)


def _draw_heads(axes: "Axes", examples: int, left: float, wide: float) -> None:
    step = next(s for s in (1, 2, 4, 8, 16) if s * wide >= 22)
    for i in range(0, examples, step):
        x = left + (i + 0.5) * wide
        axes.text(x, TOP_PX - 12, str(i), ha="center", va="center", size=SMALL_PX)


def _draw_strip(axes: "Axes", steps, examples: int, left, wide, y, colour) -> None:
    mine = Counter(i for step in steps for i in step)
    at = {i: number for number, step in enumerate(steps) for i in step}
    for i in range(examples):
        if i in at:
            face = tinted(colour, (0.35, 0.7)[at[i] % 2])
            edge, line = (INK, 2.2) if mine[i] > 1 else (colour, 1.0)
        else:
            face, edge, line = "none", tinted(INK, 0.3), 0.7
        _draw_square(axes, left + i * wide, y, wide, face, edge, line)


def _draw_square(axes: "Axes", x, y, wide, face, edge, line: float) -> None:
    from matplotlib.patches import Rectangle

    gap = min(1.0, wide / 8)
    place = (x + gap, y + 4), wide - 2 * gap, STRIP_PX - 8
    axes.add_patch(Rectangle(*place, facecolor=face, edgecolor=edge, linewidth=line))


def _draw_lost(axes: "Axes", lost: list[int], left, wide, y) -> None:
    axes.text(left - 10, y + STRIP_PX / 2, "nobody", ha="right", va="center", size=TEXT_PX)
    for i in lost:
        x = left + i * wide
        for ends in ((y + 6, y + STRIP_PX - 6), (y + STRIP_PX - 6, y + 6)):
            axes.plot([x + 2, x + wide - 2], ends, color=VERMILLION, linewidth=1.8)


def _describe(rows, seen: Counter[int], lost: list[int], title: str) -> str:
    says = []
    for who, steps in rows.items():
        ids = sorted({i for step in steps for i in step})
        says.append(f"{who}: {count(len(ids), 'example')}{_say(ids)}")
    more = [i for i, times in seen.items() if times > 1]
    ends = f"{count(len(lost), 'example')} received by nobody; " if lost else "None lost; "
    ends += f"{count(len(more), 'example')} more than once" if more else "none more than once"
    return f"{title}. {'; '.join(says)}. {ends}."


def _say(ids: list[int]) -> str:
    return f" ({', '.join(map(str, ids[:12]))}{' …' if len(ids) > 12 else ''})" if ids else ""
