"""A picture that says what it shows, and the clean-up that matplotlib's SVG needs.

What is drawn in `INK` and `PAPER` follows the theme of the page: both are
replaced by CSS variables that JupyterLab sets. A page that shows the SVG as an image (a code
host, a plain viewer) gets the fallbacks: dark ink on white paper.
"""

import base64
import hashlib
import html
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from distlab.errors import CourseError
from distlab.figures.palette import IDEAS, REPLICA_IDEAS

INK = "#212224"  # text, axes and outlines
PAPER = "#fcfdfe"  # behind labels that cross a line
INK_CSS = "var(--jp-content-font-color1, #222)"
PAPER_CSS = "var(--jp-layout-color0, #fff)"
FONT_CSS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

SVG = "image/svg+xml"
CAPTION_CSS = f"max-width:720px;margin-top:0.6em;line-height:1.5;color:{INK_CSS}"


def round_exactly(value: float) -> float:
    """Return `value` with nine digits: processors may differ in the last of sixteen."""
    return float(f"{value:.9g}")


def shorten_number(value: float) -> float:
    """Return `value` with four digits, rounded from nine.

    A value that lies halfway would else go up on one processor, down on another.
    """
    return float(f"{round_exactly(value):.4g}")


@dataclass(frozen=True)
class Picture:
    """One drawn picture: `svg` (one `<svg>` element) and its description in words.

    `alt` stands for the picture where it can't be seen. It is also the
    element's accessible name. `caption` is plain text to read below it. `chart` has its
    content as plain data, which an explorer draws in the browser, or None.
    """

    svg: str
    alt: str
    caption: str = ""
    _draw_png: Callable[[], bytes] | None = field(default=None, repr=False, compare=False)
    chart: dict[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def html(self) -> str:
        """The picture as HTML, for a notebook's output or a widget."""
        words = ""
        if self.caption:
            words = f'<figcaption style="{CAPTION_CSS}">{html.escape(self.caption)}</figcaption>'
        return f'<figure style="margin:0.5em 0">{self.svg}{words}</figure>'

    @property
    def image(self) -> str:
        """The picture as an SVG file, its caption drawn under it: what a notebook stores.

        Code hosts remove drawings from HTML, and show this one as an image.
        """
        return _draw_caption(self.svg, self.caption) if self.caption else self.svg

    def with_ideas(self, ideas: Mapping[str, str]) -> "Picture":
        """Return the picture whose chart has the colors of ideas: {name in the chart: idea}.

        An idea is a key of `palette.IDEAS`, or of `palette.REPLICA_IDEAS`. Raises CourseError for
        another one.
        """
        known = (*IDEAS, *REPLICA_IDEAS)
        if unknown := [idea for idea in ideas.values() if idea not in known]:
            raise CourseError(f"idea must be one of {', '.join(known)}, got {unknown[0]!r}")
        return replace(self, chart=self.chart and {**self.chart, "ideas": dict(ideas)})

    def png(self) -> bytes:
        """Return the picture as PNG bytes on opaque white, at twice its nominal size."""
        if self._draw_png is None:
            raise ValueError("This Picture was made from SVG text alone, so it has no PNG form.")
        return self._draw_png()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {SVG: self.image, "text/plain": f"Figure: {self.alt}"}


def add_still(bundle: Any, still: Picture | str, words: str) -> dict[str, Any]:
    """Return a widget's mimebundle with a still picture (or HTML) for pages without widgets.

    `words` stand for it as plain text.
    """
    bundle = dict(bundle[0] if isinstance(bundle, tuple) else bundle or {})
    bundle.pop("text/html", None)  # a page would show it before the image
    shown = {"text/html": still} if isinstance(still, str) else {SVG: still.image}
    return bundle | shown | {"text/plain": words}


def embed_image(svg: str) -> str:
    """Return a stored SVG as HTML that follows the page's theme.

    One with a style sheet, which would reach the whole page, becomes an `<img>`.
    """
    if "<style" not in svg:
        return f'<figure style="margin:0.5em 0">{svg}</figure>'
    alt = re.search(r'aria-label="([^"]*)"', svg)[1]
    source = base64.b64encode(svg.encode()).decode("ascii")
    return f'<img alt="{alt}" src="data:{SVG};base64,{source}" style="width:100%">'


def stack(pictures: Sequence[Picture]) -> Picture:
    """Return pictures as one, each below the one before."""
    parts, top, widest = [], 0.0, 0.0
    for picture in pictures:
        width, height = _read_size(picture.image)
        place = f'y="{top:g}" style="overflow:visible" '
        parts.append(
            re.sub(r' style="[^"]*"', "", picture.image, count=1).replace(
                "<svg ", f"<svg {place}", 1
            )
        )
        top, widest = top + height, max(widest, width)
    alt = " ".join(picture.alt for picture in pictures)
    element = f'<svg viewBox="0 0 {widest:g} {top:g}">'
    return Picture(_open_element(f"{element}{''.join(parts)}</svg>", alt, round(widest)), alt)


def _read_size(svg: str) -> tuple[float, float]:
    """Return width and height that the picture has in a page that's wide enough."""
    width, height = re.search(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"', svg).groups()
    return float(width), float(height)


def _draw_caption(svg: str, caption: str) -> str:
    """Return the picture with `caption` below it, in lines as long as it is wide."""
    width, height = _read_size(svg)
    across, down = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()
    unit = float(across) / width  # of a pixel
    lines = textwrap.wrap(caption, int(width / 7.8))  # 92 in 720 pixels, in wide letters too
    tall = float(down) + (len(lines) * 18 + 8) * unit
    written = "".join(
        f'<text y="{float(down) + (18 * k + 20) * unit:g}" style="font-size:{13 * unit:g}px;'
        f'fill:{INK_CSS}">{html.escape(line)}</text>'
        for k, line in enumerate(lines)
    )
    svg = svg.replace(f'viewBox="0 0 {across} {down}"', f'viewBox="0 0 {across} {tall:g}"', 1)
    svg = svg.replace(f' height="{height:g}"', f' height="{tall / unit:g}"', 1)
    return f"{svg.removesuffix('</svg>')}{written}</svg>"


def follow_theme(raw: str) -> str:
    """Turn what is black in matplotlib's SVG file into ink, and white surfaces into paper.

    Matplotlib writes no fill for black text and shapes: they take their group's. White text stays
    white, since it is on something dark.
    """
    raw = raw.replace('<g id="figure_1">', f'<g id="figure_1" style="fill: {INK}">', 1)
    raw = raw.replace("#000000", INK)
    return re.sub(r"<(?:path|use)[^>]*>", lambda m: m.group().replace("#ffffff", PAPER), raw)


def clean_svg(raw: str, alt: str, width_px: int) -> str:
    """Turn matplotlib's SVG file into one element that can stand in any page.

    Takes the file's text; returns `<svg>…</svg>` with `alt` as its accessible name. Matplotlib's
    file styles every element of its page (`*{…}`), names its parts `figure_1`, `text_2`, … in every
    file, and has a fixed size: here the style moves to the element itself, ids that nothing refers
    to go, the others get their own prefix, and the width follows the page up to `width_px`.
    """
    svg = raw[raw.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.S)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r" font-family: [^\"]*?;", "", svg)  # inherited from the element
    svg = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", svg)
    svg = re.sub(r' (d|x|y|points|transform)="[^"]*"', _shorten_numbers, svg)
    svg = re.sub(INK, INK_CSS, svg, flags=re.I)
    svg = re.sub(PAPER, PAPER_CSS, svg, flags=re.I)
    svg = _prefix_ids(svg, alt)
    svg = re.sub(r"\n\s*", "\n", re.sub(r"\n\s*\n+", "\n", svg))
    return _open_element(svg, alt, width_px)


def _shorten_numbers(attribute: re.Match[str]) -> str:
    """Round to a hundredth of a pixel: smaller, and the same text on every machine."""
    text = re.sub(r"\s*\n\s*", " ", attribute.group())
    if " transform=" in text:
        return text
    return re.sub(r"-?\d+\.\d+", lambda n: f"{float(n.group()):.2f}".rstrip("0").rstrip("."), text)


def _open_element(svg: str, alt: str, width_px: int) -> str:
    """Give the picture its accessible name, its size, and paper to lie on."""
    across, down = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()
    height_px = float(down) / float(across) * width_px
    style = (
        f"width:100%;max-width:{width_px}px;height:auto;display:block;overflow:visible;"
        f"stroke-linejoin:round;stroke-linecap:butt;font-family:{FONT_CSS}"
    )
    element = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'role="img" aria-label="{html.escape(alt)}" viewBox="0 0 {across} {down}" '
        f'width="{width_px}" height="{height_px:g}" style="{style}">'
        f'<rect width="100%" height="100%" fill="#fff" style="fill:{PAPER_CSS};stroke:none"/>'
    )
    return re.sub(r"<svg[^>]*>", lambda _: element, svg, count=1, flags=re.S)


def _prefix_ids(svg: str, alt: str) -> str:
    used = set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg))
    prefix = "p" + hashlib.sha256((alt + svg).encode()).hexdigest()[:10] + "-"

    def rename(match: re.Match[str]) -> str:
        return f' id="{prefix}{match.group(1)}"' if match.group(1) in used else ""

    svg = re.sub(r'\s+id="([^"]*)"', rename, svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}\1)", svg)
    return re.sub(r'href="#([^"]+)"', rf'href="#{prefix}\1"', svg)
