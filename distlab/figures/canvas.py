"""The drawing surface that all figures share: fonts, colors, pixels. Matplotlib on first use.

One unit is one CSS pixel at the picture's full width, so a font size of 13
here is 13 px on the page.
"""

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distlab.errors import CourseError
from distlab.figures.palette import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from distlab.figures.picture import INK, PAPER, Picture, clean_svg, follow_theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_PX = 720
SCREEN_DPI = 100  # an inch of a figure is as wide as where matplotlib shows it
TITLE_PX, TEXT_PX, SMALL_PX = 15.0, 13.0, 12.0

# The ones with 3:1 on white and on JupyterLab's dark page first.
COLORS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
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


_CHARTS_ALONE: ContextVar[bool] = ContextVar("charts_alone", default=False)


@contextmanager
def charts_alone() -> Iterator[None]:
    """Inside, a picture that has a chart isn't painted: its `svg` is empty."""
    token = _CHARTS_ALONE.set(True)
    try:
        yield
    finally:
        _CHARTS_ALONE.reset(token)


def draw(
    paint: Callable[["Figure"], None],
    *,
    alt: str,
    height_px: float,
    chart: dict[str, Any] | None = None,
) -> Picture:
    """Call `paint` with an empty figure WIDTH_PX by `height_px` pixels; return the Picture."""
    if chart is not None and _CHARTS_ALONE.get():
        return Picture("", alt, chart=chart)
    with _painted(paint, height_px) as figure:
        raw = to_svg(figure)

    def draw_png() -> bytes:
        with _painted(paint, height_px) as figure:
            return to_png(figure)

    return Picture(clean_svg(raw, alt, WIDTH_PX), alt, _draw_png=draw_png, chart=chart)


def to_svg(figure: "Figure", **options: Any) -> str:
    """Return matplotlib's SVG file of `figure`, without its date."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None}, **options)
    return file.getvalue()


def to_png(figure: "Figure") -> bytes:
    """Return `figure` as a PNG file on opaque white, without matplotlib's version."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=144, facecolor="white", metadata={"Software": None})
    return file.getvalue()


@contextmanager
def _painted(paint: Callable[["Figure"], None], height_px: float) -> Iterator["Figure"]:
    import matplotlib.style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.style.context(_SETTINGS, after_reset=True):
        figure = Figure(figsize=(WIDTH_PX / 72, height_px / 72), dpi=72)
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


def from_figure(figure: "Figure", alt: str, caption: str = "") -> Picture:
    """Return any matplotlib `figure` as a Picture that says what it shows in `alt`.

    It is drawn unchanged, but without its background. Black parts follow the page's theme (images
    keep their pixels), and a figure wider than 720 pixels is shrunk. Raises CourseError for
    anything else than a figure, and for no words.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if not isinstance(figure, Figure):
        kind = type(figure).__name__
        raise CourseError(
            f"show needs a matplotlib Figure, got {kind}. Give plt.gcf() or axes.figure."
        )
    if not alt.strip():
        raise CourseError("show needs alt, which says what the figure shows: alt='Loss falls …'.")
    with matplotlib.rc_context({key: _SETTINGS[key] for key in ("svg.fonttype", "svg.hashsalt")}):
        raw = to_svg(figure, transparent=True)
    width_px = min(WIDTH_PX, round(figure.get_figwidth() * SCREEN_DPI))
    svg = clean_svg(follow_theme(raw), alt, width_px)
    return Picture(svg, alt, caption, _draw_png=lambda: to_png(figure))


def show(figure: "Picture | Figure", alt: str = "", caption: str = "") -> None:
    """Display a Picture, or any matplotlib figure with `alt`, in a notebook as one output.

    The output is an SVG image, and the words as plain text. Equal figures give equal outputs,
    so a notebook that is run again compares clean. A figure of `plt` is closed, so that the
    notebook doesn't show it twice. Raises as `from_figure` does.
    """
    from IPython.display import display

    if isinstance(figure, Picture):
        picture = replace(figure, caption=caption or figure.caption)
    else:
        picture = from_figure(figure, alt, caption)
    display(picture._repr_mimebundle_(), raw=True)
    if not isinstance(figure, Picture) and "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figure)


class Sheet:
    """An empty page under a title: what `draw_sheet` gives to `paint`.

    Places and sizes are pixels from the upper left corner, y downwards; `style` goes to matplotlib
    unchanged.
    """

    def __init__(self, figure: "Figure") -> None:
        self.axes = figure.add_axes((0, 0, 1, 1))
        self.axes.axis("off")
        self.size_px = figure.get_size_inches() * 72
        self.set_limits()

    def set_limits(self) -> None:
        width_px, height_px = self.size_px
        self.axes.set_xlim(-2, width_px + 2)  # room for the outlines of boxes at the edges
        self.axes.set_ylim(height_px, 0)

    def write(
        self,
        x: float,
        y: float,
        text: str,
        align: str = "center",
        size: float = TEXT_PX,
        **style: Any,
    ) -> None:
        """Write `text` around the height `y`, its left, center or right (`align`) at `x`."""
        self.axes.text(x, y, text, ha=align, va="center", size=size, **style)

    def rectangle(
        self,
        x: float,
        y: float,
        wide: float,
        tall: float,
        color: Any,
        strength: float = 0.0,
        **style: Any,
    ) -> None:
        """Draw a box with an edge in `color`, filled with a tint of it."""
        from matplotlib.patches import Rectangle

        style = {"facecolor": tinted(color, strength), "edgecolor": color, **style}
        self.axes.add_patch(Rectangle((x, y), wide, tall, **style))

    def line(self, x: Sequence[float], y: Sequence[float], color: Any = INK, **style: Any) -> None:
        """Draw a line through the points (x[i], y[i])."""
        self.axes.plot(x, y, color=color, **style)

    def arrow(
        self, tail: tuple[float, float], head: tuple[float, float], color: Any, width: float
    ) -> None:
        """Draw an arrow from `tail` to `head` with a filled head that grows with `width`."""
        from matplotlib.patches import FancyArrowPatch

        patch = FancyArrowPatch(
            tail,
            head,
            arrowstyle="-|>",
            mutation_scale=8 + 2 * width,
            color=color,
            linewidth=width,
            shrinkA=0,
            shrinkB=0,
        )
        self.axes.add_patch(patch)


def draw_sheet(
    paint: Callable[[Sheet], None],
    *,
    title: str,
    alt: str,
    height_px: float,
    chart: dict[str, Any] | None = None,
) -> Picture:
    """Call `paint` with an empty Sheet under `title`; return the Picture."""

    def paint_figure(figure: "Figure") -> None:
        write_title(figure, title)
        sheet = Sheet(figure)
        paint(sheet)
        sheet.set_limits()  # an image has set its own

    chart = chart and {"title": title, **chart}
    return draw(paint_figure, alt=alt, height_px=height_px, chart=chart)


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


def tinted(color: str, strength: float = 0.28) -> tuple[float, float, float, float]:
    """Return `color` thinned so that ink reads on it in light and dark pages."""
    from matplotlib.colors import to_rgba

    return to_rgba(color, strength)


def label_paper() -> dict[str, Any]:
    """Return the `bbox` of a text that crosses lines: a patch in the page's own color."""
    return {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5, "alpha": 0.85}


def spread(heights: Sequence[float], step: float) -> list[float]:
    """Move ascending `heights` apart until neighbors are `step` or more from each other."""
    placed = [float(h) for h in heights]
    for _ in range(60):
        moved = False
        for i in range(len(placed) - 1):
            short = step - (placed[i + 1] - placed[i])
            if short > 1e-6:
                placed[i] -= short / 2
                placed[i + 1] += short / 2
                moved = True
        if not moved:
            break
    return placed


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
