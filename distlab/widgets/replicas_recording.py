"""The recording of two replicas that train: an animated SVG of real frames, for README and home.

    python -m distlab.widgets.replicas_recording      # writes two_replicas.svg in distlab/lessons

It needs no script: CSS shows one scene after the other, and moves the gradients. Where less
motion is asked for, one scene stands still.
"""

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from distlab.figures.palette import IDEAS, REPLICAS
from distlab.lessons.two_replicas import FILTERS, IMAGES, SIDE, Frame

PLACE = Path(__file__).parents[1] / "lessons" / "two_replicas.svg"
TOGETHER, BROKEN = (1, 2, 3, 5, 8, 14, 24, 40, 60, 80), (83, 87, 93, 102, 116)  # the scenes' steps
BREAK_AT, SCENE_SECONDS = 80, 1.3
LEFT, COLUMN, MIDDLE = (30, 550), 380, 290
IMAGES_Y, STRIP_Y, WIRE_Y, BANK_Y, CHART_Y, HEIGHT = 60, 182, 224, 320, 448, 540
WORDS = ("tops, coats and dresses", "trousers, shoes and bags")
ALT = (
    "Two devices train copies of one network. Each sees images of its own classes, clothes on "
    "the left, shoes and bags on the right, and finds its own gradient. In the all-reduce the "
    "two gradients become one, and both copies are updated with it: they stay equal and learn "
    "all ten classes. Then the all-reduce is broken: the copies drift apart, and both forget "
    "the classes that they do not see."
)
PANEL = f'<rect class="panel" width="960" height="{HEIGHT}" rx="14"/>'  # each scene hides others
_STYLE = """
text {{ font: 600 15px system-ui, sans-serif; fill: #1d1f22 }} .light {{ font-weight: 400 }}
.panel {{ fill: #f5f7fa }} .paper {{ fill: #fff }} .over {{ fill: {over} }}
image {{ image-rendering: pixelated }}
.s {{ opacity: 0; animation: s {all}s step-end infinite }}
@keyframes s {{ 0% {{ opacity: 1 }} {share:.4f}%, 100% {{ opacity: 0 }} }}
.m {{ animation: {one}s ease-in-out infinite }}
{moves}
.new {{ animation: new {one}s step-end infinite }}
@keyframes new {{ 0% {{ opacity: 0 }} 84%, 100% {{ opacity: 1 }} }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #eceef1 }} .panel {{ fill: #191d23 }}
.paper {{ fill: #111418 }} .over {{ fill: {over_dark} }}
.clothes {{ filter: invert(1) }} }}
@media (prefers-reduced-motion: reduce) {{ .s, .m, .new {{ animation: none }}
.still {{ opacity: 1 }} .going {{ opacity: 0 }} }}
"""


def record(frames: Sequence[Frame]) -> str:
    """Return the animated SVG of the `frames` of a run of two replicas.

    The all-reduce is broken from frame BREAK_AT on; the steps of TOGETHER and BROKEN are shown.
    """
    steps = [*TOGETHER, *BROKEN]
    scenes = [_draw_scene(frames, step, number) for number, step in enumerate(steps)]
    style = _STYLE.format(
        all=SCENE_SECONDS * len(steps), share=100 / len(steps), one=SCENE_SECONDS,
        moves=_write_moves(), over=IDEAS["over"].light, over_dark=IDEAS["over"].dark,
    )  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 {HEIGHT}" role="img" '
        f'aria-label="{ALT}"><title>Two replicas, one mind</title><style>{style}</style>'
        f"{PANEL}{''.join(scenes)}</svg>\n"
    )


def _write_moves() -> str:
    """Return how each gradient moves in a scene: to the wire, and as the mean to its copy."""
    down, far = WIRE_Y + 34 - STRIP_Y, BANK_Y - 30 - (WIRE_Y + 34)
    text = ""
    for k, left in enumerate(LEFT):
        side = MIDDLE - left
        text += (
            f"@keyframes out{k} {{ 0%, 15% {{ transform: none; opacity: 1 }} "
            f"45%, 52% {{ transform: translate({side}px, {down}px); opacity: 1 }} "
            f"53%, 100% {{ transform: translate({side}px, {down}px); opacity: 0 }} }}\n"
            f"@keyframes in{k} {{ 0%, 51% {{ transform: none; opacity: 0 }} "
            f"52%, 62% {{ transform: none; opacity: 1 }} "
            f"84% {{ transform: translate({-side}px, {far}px); opacity: 1 }} "
            f"85%, 100% {{ transform: translate({-side}px, {far}px); opacity: 0 }} }}\n"
            f".out{k} {{ animation-name: out{k} }} .in{k} {{ animation-name: in{k} }}\n"
        )
    reach = BANK_Y - 30 - STRIP_Y
    return text + (
        f"@keyframes own {{ 0%, 15% {{ transform: none; opacity: 1 }} 84% {{ transform: "
        f"translate(0, {reach}px); opacity: 1 }} 85%, 100% {{ opacity: 0 }} }}\n"
        ".own { animation-name: own }\n"
    )


def _draw_scene(frames: Sequence[Frame], step: int, number: int) -> str:
    frame, before = frames[step - 1], frames[max(0, step - 2)]
    largest = max(float(np.abs(frame.gradients).max()), float(np.abs(frame.total).max()))
    limit = float(np.abs(frames[BREAK_AT - 1].filters).max())
    parts = [PANEL, _draw_wire(frame.broken)]
    for k, left in enumerate(LEFT):
        parts += [
            f'<text x="{left}" y="28">device {k}</text>',
            f'<text x="{left + COLUMN}" y="28" text-anchor="end">'
            f"{frame.accuracy[k]:.0%} right</text>",
            f'<text class="light" x="{left}" y="50">{WORDS[k]}</text>',
            _put(_clothes(frame.images[k]), left, IMAGES_Y, COLUMN, COLUMN / 4, "clothes"),
            f'<text class="light" x="{left}" y="{STRIP_Y - 8}">its gradient</text>',
        ]
        strip = _bank(frame.gradients[k] / largest, FILTERS)
        parts.append(_move(strip, left, STRIP_Y, "own" if frame.broken else f"out{k}"))
        if not frame.broken:
            mean = _bank(frame.total / largest, FILTERS)
            parts.append(_move(mean, MIDDLE, WIRE_Y + 34, f"in{k}"))
        box = (left, BANK_Y, COLUMN, COLUMN / 4)
        parts.append(_put(_bank(before.filters[k] / limit, 8), *box))
        parts.append(_put(_bank(frame.filters[k] / limit, 8), *box, "new"))
        parts.append(_frame_bank(left, REPLICAS[k]))
    equal = frame.apart == 0
    words = "both copies are equal" if equal else f"copies differ by up to {frame.apart:.3f}"
    over = "" if equal else ' class="over"'
    parts.append(f'<text x="480" y="{BANK_Y + 118}" text-anchor="middle"{over}>{words}</text>')
    parts.append(_draw_chart(frames[:step], len(frames)))
    delay = SCENE_SECONDS * (number - len(TOGETHER) - len(BROKEN))
    still = " still" if step == TOGETHER[-1] else ""
    return f'<g class="s{still}" style="animation-delay:{delay:.2f}s">{"".join(parts)}</g>'


def _draw_wire(broken: bool) -> str:
    color = IDEAS["over" if broken else "all-reduce"].light
    dashes = ' stroke-dasharray="6 7"' if broken else ""
    words = "the all-reduce is broken" if broken else "all-reduce: the mean of both gradients"
    return (
        f'<rect class="paper" x="20" y="{WIRE_Y}" width="920" height="68" rx="12" '
        f'stroke="{color}" stroke-width="2.5"{dashes}/>'
        f'<text x="480" y="{WIRE_Y + 21}" text-anchor="middle">{words}</text>'
    )


def _frame_bank(left: int, color: str) -> str:
    lines = "".join(f"M{left + n * COLUMN / 8} {BANK_Y}v{COLUMN / 4}" for n in range(1, 8))
    lines += f"M{left} {BANK_Y + COLUMN / 8}h{COLUMN}"
    return (
        f'<path d="{lines}" stroke="#9aa3b2" stroke-width="2"/>'
        f'<rect x="{left}" y="{BANK_Y}" width="{COLUMN}" height="{COLUMN / 4}" fill="none" '
        f'stroke="{color}" stroke-width="4"/>'
    )


def _draw_chart(frames: Sequence[Frame], number: int) -> str:
    """Draw the loss and each copy's accuracy up to now."""
    top, tall, half = CHART_Y + 8, HEIGHT - CHART_Y - 22, 330

    def plot(values: Sequence[float], left: int, high: float, color: str, dashes: str) -> str:
        points = " ".join(
            f"{left + half * n / number:.0f},{top + tall * (1 - min(v, high) / high):.1f}"
            for n, v in enumerate(values)
        )
        style = f'fill="none" stroke="{color}" stroke-width="2.5" stroke-dasharray="{dashes}"'
        return f'<polyline points="{points}" {style}/>'

    text = f'<text x="30" y="{top + 34}">loss</text><text x="490" y="{top + 34}">accuracy</text>'
    text += plot([frame.loss for frame in frames], 110, 2.5, "#6b7280", "none")
    for k, dashes in ((1, "none"), (0, "8 6")):
        text += plot([float(f.accuracy[k]) for f in frames], 600, 1.0, REPLICAS[k], dashes)
    return text


def _bank(values: np.ndarray, columns: int) -> Image.Image:
    """Return filters [FILTERS, SIDE, SIDE] in -1 to 1 as a picture, `columns` in a row."""
    rows = FILTERS // columns
    grid = values.reshape(rows, columns, SIDE, SIDE).transpose(0, 2, 1, 3)
    flat = np.clip(grid.reshape(rows * SIDE, columns * SIDE), -1, 1)
    share = np.abs(flat)[..., None] ** 0.6
    plus, minus = (_to_rgb(IDEAS[name].light) for name in ("backward", "forward"))
    zero = np.array([245, 247, 250])
    color = zero + (np.where(flat[..., None] < 0, minus, plus) - zero) * share
    return Image.fromarray(color.astype(np.uint8)).quantize(32)


def _to_rgb(color: str) -> np.ndarray:
    return np.array([int(color[n : n + 2], 16) for n in (1, 3, 5)])


def _clothes(images: np.ndarray) -> Image.Image:
    """Return a replica's images [IMAGES, 28, 28] in two rows, dark on white, in 16 grays."""
    grid = images.reshape(2, IMAGES // 2, 28, 28).transpose(0, 2, 1, 3).reshape(56, -1)
    return Image.fromarray(255 - grid // 17 * 17).quantize(16)


def _put(picture: Image.Image, x: float, y: float, wide: float, tall: float, kind: str = "") -> str:
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    text = base64.b64encode(file.getvalue()).decode("ascii")
    named = f' class="{kind}"' if kind else ""
    return (
        f'<image x="{x}" y="{y}" width="{wide}" height="{tall}"{named} '
        f'href="data:image/png;base64,{text}"/>'
    )


def _move(picture: Image.Image, x: float, y: float, how: str) -> str:
    return f'<g class="m going {how}">{_put(picture, x, y, COLUMN, COLUMN / FILTERS)}</g>'


def main() -> None:
    """Train two replicas, and write the recording."""
    from distlab.lessons.two_replicas import Replicas
    from utils.data import load
    from utils.devices import use_logical_devices

    use_logical_devices(2)
    replicas = Replicas(load("fashion_mnist"))
    frames = [replicas.step(broken=number >= BREAK_AT) for number in range(max(BROKEN))]
    PLACE.write_text(record(frames), encoding="utf-8")
    print(f"{PLACE.name}: {PLACE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
