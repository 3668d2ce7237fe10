"""The drawing surface that all figures share: fonts, colours, pixels. Matplotlib on first use.

One unit is one CSS pixel at the picture's full width, so a font size of 13
here is 13 px on the page.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from distlab.figures.picture import INK, PAPER, Picture, clean_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_PX = 720
TITLE_PX, TEXT_PX, SMALL_PX = 15.0, 13.0, 12.0

# Okabe and Ito's colours (jfly.uni-koeln.de/color), the ones with 3:1 on white and on
# JupyterLab's dark page first.
BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, ORANGE, SKY = "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 2)), (0, (8, 2, 2, 2)), (0, (4, 4)), ":")

_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "distributed-training-lab",
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same widths on every machine
    "font.size": TEXT_PX,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 1.0,
    "axes.unicode_minus": True,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": SMALL_PX,
    "ytick.labelsize": SMALL_PX,
    "lines.linewidth": 2.2,
    "lines.markersize": 6.5,
    "figure.facecolor": "none",
    "image.composite_image": False,
}


def draw(
    paint: Callable[["Figure"], None], *, alt: str, height_px: float, width_px: int = WIDTH_PX
) -> Picture:
    """Call `paint` with an empty figure of the given size in pixels; return the Picture."""
    raw = io.StringIO()
    with _painted(paint, width_px, height_px) as figure:
        figure.savefig(raw, format="svg", metadata={"Date": None})

    def draw_png() -> bytes:
        data = io.BytesIO()
        with _painted(paint, width_px, height_px) as figure:
            figure.savefig(
                data, format="png", dpi=144, facecolor="white", metadata={"Software": None}
            )
        return data.getvalue()

    return Picture(clean_svg(raw.getvalue(), alt, width_px), alt, _draw_png=draw_png)


@contextmanager
def _painted(
    paint: Callable[["Figure"], None], width_px: float, height_px: float
) -> Iterator["Figure"]:
    import matplotlib.style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.style.context(_SETTINGS, after_reset=True):
        figure = Figure(figsize=(width_px / 72, height_px / 72), dpi=72)
        FigureCanvasAgg(figure)
        paint(figure)
        _unclip(figure)
        yield figure


def _unclip(figure: "Figure") -> None:
    """Draw everything whole: a clip path is lost where a page holds the same picture twice.

    The page takes the first of two equal ids, which may lie in a hidden tab.
    """
    for artist in figure.findobj():
        artist.set_clip_on(False)


def pixel_axes(figure: "Figure") -> "Axes":
    """Return axes over the whole figure, in pixels from its upper left corner."""
    axes = figure.add_axes((0, 0, 1, 1))
    width_px, height_px = figure.get_size_inches() * 72
    axes.set_xlim(-2, width_px + 2)  # room for the outlines of boxes at the edges
    axes.set_ylim(height_px, 0)
    axes.axis("off")
    return axes


def plot_axes(figure: "Figure", left: float, top: float, right: float, bottom: float) -> "Axes":
    """Return axes for a chart, `left`, `top`, `right` and `bottom` pixels from the edges."""
    width_px, height_px = figure.get_size_inches() * 72
    return figure.add_axes(
        (
            left / width_px,
            bottom / height_px,
            (width_px - left - right) / width_px,
            (height_px - top - bottom) / height_px,
        )
    )


def write_title(figure: "Figure", title: str) -> None:
    """Write `title` in the upper left corner (22 pixels high)."""
    height_px = figure.get_size_inches()[1] * 72
    figure.text(0, 1 - 3 / height_px, title, size=TITLE_PX, weight="bold", ha="left", va="top")


def text_width_px(text: str, size_px: float = TEXT_PX, weight: str = "normal") -> float:
    """Return the width of `text` in pixels in the font that figures are measured in."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=size_px, weight=weight)
    return text_to_path.get_text_width_height_descent(text or " ", font, ismath=False)[0]


def tinted(colour: str, strength: float = 0.28) -> tuple[float, float, float, float]:
    """Return `colour` thinned so that ink reads on it in light and dark pages."""
    from matplotlib.colors import to_rgba

    return to_rgba(colour, strength)


def label_paper() -> dict[str, Any]:
    """Return the `bbox` of a text that crosses lines: a patch in the page's own colour."""
    return {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5, "alpha": 0.85}


def say_number(value: float) -> str:
    """Return `value` for people: "1,024", "0.412", "3.1e-07"; whole numbers in full."""
    value = float(value)
    if value != value:
        return "not a number"
    if value in (float("inf"), float("-inf")):
        return "infinity" if value > 0 else "minus infinity"
    if value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `count(1, "worker")` is "1 worker", 4 "4 workers"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
