"""A small picture for each lesson: 240 by 120 units, in the colors of the page around it.

Every shape has classes that the page's style sheet gives colors to: `c1` to `c6` fill, `l1`
to `l6` draw a line, `t1` to `t6` fill with a tint. One is forward, two backward, three
all-reduce, four variables, five data, as in `distlab.figures.palette`. `ink`, `dim` and
`paper` are the theme's, `on` and `black` write on a fill. `go` moves when the tile is pointed
at, for readers who have not asked for less motion.
"""

import math
from collections.abc import Callable, Sequence
from html import escape

from utils.schedules import make_1f1b
from utils.simulate.pipeline import StageTimes, simulate_pipeline

WIDTH, HEIGHT = 240, 120
Drawing = tuple[str, list[str]]  # what it shows in words, its shapes
_DRAWINGS: dict[str, Callable[[], Drawing]] = {}


def draw(lesson: str) -> str:
    """Return the picture of a lesson ("05") as one `<svg>` element with its words."""
    words, shapes = _DRAWINGS.get(lesson, _draw_other)()
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(words)}">'
        + "".join(shapes) + "</svg>"
    )  # fmt: skip


def _of(lesson: str) -> Callable[[Callable[[], Drawing]], Callable[[], Drawing]]:
    def note(function: Callable[[], Drawing]) -> Callable[[], Drawing]:
        _DRAWINGS[lesson] = function
        return function

    return note


# ---- shapes


def _box(x: float, y: float, wide: float, tall: float, look: str, round_: float = 3) -> str:
    return (f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" rx="{round_:g}" '
            f'class="{look}"/>')  # fmt: skip


def _dot(x: float, y: float, radius: float, look: str) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{look}"/>'


def _path(way: str, look: str) -> str:
    return f'<path d="{way}" class="{look}"/>'


def _line(points: Sequence[tuple[float, float]], look: str) -> str:
    return _path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), look)


def _arrow(x: float, y: float, to_x: float, to_y: float, color: int, more: str = "") -> str:
    """A line with a head in color number `color`."""
    angle, size = math.atan2(to_y - y, to_x - x), 8
    wings = [(to_x - size * math.cos(angle + turn), to_y - size * math.sin(angle + turn))
             for turn in (0.5, -0.5)]  # fmt: skip
    head = _line([wings[0], (to_x, to_y), wings[1]], f"l{color} {more}")
    return _line([(x, y), (to_x, to_y)], f"l{color} {more}") + head


def _curve(function: Callable[[float], float], left: float, right: float, look: str) -> str:
    """The line of a function of 0 to 1 that gives heights, from `left` to `right`."""
    steps = [k / 40 for k in range(41)]
    return _line([(left + (right - left) * k, function(k)) for k in steps], look)


def _write(x: float, y: float, text: str, look: str = "ink", size: float = 12) -> str:
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="middle" class="{look}">'
            f"{escape(text)}</text>")  # fmt: skip


def _grid(x: float, y: float, columns: int, rows: int, size: float, look: Callable) -> list[str]:
    """Squares; `look(column, row)` gives the classes of each."""
    return [_box(x + c * (size + 2), y + r * (size + 2), size, size, look(c, r), 1.5)
            for r in range(rows) for c in range(columns)]  # fmt: skip


# ---- one for each lesson


@_of("00")
def _two_replicas() -> Drawing:
    same = [1, 4, 2, 3, 1, 2, 4, 1, 3]
    shapes = []
    for x in (22, 158):
        shapes += [_box(x, 22, 60, 76, "box", 8)]
        shapes += _grid(x + 10, 38, 3, 3, 12, lambda c, r: f"c{same[3 * r + c]}")
    shapes += [_arrow(88, 52, 108, 52, 3, "go right"), _arrow(152, 68, 132, 68, 3, "go left")]
    shapes += [_dot(120, 60, 13, "t3"), _dot(120, 60, 13, "l3"), _write(120, 65, "+", "ink", 16)]
    return "Two devices with the same weights; between them their gradients are added up", shapes


@_of("01")
def _speed_up() -> Drawing:
    axes = _line([(30, 14), (30, 102), (222, 102)], "line")
    ideal = _line([(30, 102), (150, 14)], "l6 dashed")
    real = _curve(lambda k: 102 - 64 * (1 - math.exp(-2.6 * k)), 30, 218, "l1 thick")
    dots = [_dot(30 + 188 * k, 102 - 64 * (1 - math.exp(-2.6 * k)), 4.5, "c1 go up")
            for k in (0.12, 0.28, 0.55, 0.9)]  # fmt: skip
    return "Speed-up against devices: the ideal goes straight up, the measured one bends", [
        axes, ideal, real, *dots]  # fmt: skip


@_of("02")
def _scope() -> Drawing:
    shapes = [_box(92, 12, 134, 96, "frame", 10), _box(18, 44, 34, 34, "c4"),
              _write(35, 66, "w", "black", 16)]  # fmt: skip
    for k, y in enumerate((20, 48, 76)):
        shapes += [_arrow(56, 61, 104, y + 12, 3, "go right"), _box(112, y, 24, 24, "c4"),
                   _write(124, y + 17, "w", "black", 13),
                   _box(144, y + 6, 70, 12, f"t{(1, 3, 5)[k]}"),
                   _box(144, y + 6, (62, 44, 54)[k], 12, f"c{(1, 3, 5)[k]}")]  # fmt: skip
    return "One variable becomes three copies inside a strategy's scope", shapes


@_of("03")
def _stairs() -> Drawing:
    shapes = [_line([(24, 12), (24, 104), (222, 104)], "line")]
    for k, color in enumerate((1, 2, 3, 5)):
        shapes.append(_curve(
            lambda t, k=k: 26 + 5 * k + 62 * (1 - math.exp(-3.2 * t)) - 5 * k * t, 30, 218,
            f"l{color}"))  # fmt: skip
    stairs = [(30, 22), (92, 22), (92, 52), (154, 52), (154, 82), (218, 82)]
    return "Four losses that fall together, above a learning rate that goes down in steps", [
        *shapes, _line(stairs, "l4 thick dashed")]  # fmt: skip


@_of("04")
def _loop() -> Drawing:
    shapes, places = [], []
    for k in range(4):
        angle = math.pi * (k / 2 - 0.5)
        places.append((120 + 78 * math.cos(angle), 60 + 40 * math.sin(angle)))
    shapes.append('<ellipse cx="120" cy="60" rx="78" ry="40" class="l3 dashed go turn"/>')
    for (x, y), word, color in zip(places, ("batch", "forward", "gradient", "update"),
                                    (5, 1, 2, 3)):  # fmt: skip
        shapes += [_box(x - 31, y - 12, 62, 24, "paper", 12), _box(x - 31, y - 12, 62, 24,
                   f"t{color} edge{color}", 12), _write(x, y + 4, word)]  # fmt: skip
    return "The loop: batch, forward, gradient, update, and again", shapes


@_of("05")
def _valley() -> Drawing:
    shapes = [
        f'<ellipse cx="150" cy="66" rx="{r * 2.1:g}" ry="{r:g}" class="ring{k}"/>'
        for k, r in enumerate((50, 38, 26, 14))
    ]
    shapes += [_arrow(46, 30, 206, 94, 2, "go grow"), _arrow(46, 30, 86, 46, 1),
               _dot(46, 30, 5, "ink"), _write(80, 26, "×1", "ink", 13),
               _write(210, 78, "×4", "ink", 13)]  # fmt: skip
    return "A valley of the loss: the right step goes towards its floor, one four times as long " \
        "leaps over it", shapes  # fmt: skip


@_of("06")
def _ring() -> Drawing:
    shapes = ['<circle cx="120" cy="60" r="42" class="line"/>']
    for k in range(6):
        angle = k * math.pi / 3 - math.pi / 2
        x, y = 120 + 42 * math.cos(angle), 60 + 42 * math.sin(angle)
        shapes += [_dot(x, y, 13, "paper"), _dot(x, y, 13, "line")]
        for part in range(6):
            turn, step = part * math.pi / 3, math.pi / 3
            ends = [(x + 11 * math.cos(a), y + 11 * math.sin(a)) for a in (turn, turn + step)]
            whole = (part - k) % 6 < 3
            shapes.append(
                _path(
                    f"M{x:.1f} {y:.1f}L{ends[0][0]:.1f} {ends[0][1]:.1f}A11 11 0 0 1 "
                    f"{ends[1][0]:.1f} {ends[1][1]:.1f}Z",
                    f"{'c' if whole else 't'}{part + 1}",
                )
            )
    shapes.append('<g class="go turn">' + _dot(120, 37, 4, "c3") + _dot(120, 83, 4, "c3") + "</g>")
    return "Six ranks on a ring; pieces of the gradient travel from each to the next", shapes


@_of("07")
def _center() -> Drawing:
    shapes = [_box(88, 10, 64, 34, "c4", 6), _write(120, 32, "weights", "black", 13)]
    for k, x in enumerate((24, 92, 160)):
        shapes += [_arrow(120 + 22 * (k - 1), 48, x + 28, 76, 3, "go down"),
                   _box(x, 80, 56, 28, f"t{(1, 3, 5)[k]} edge{(1, 3, 5)[k]}", 6)]  # fmt: skip
    return "The weights in one place; three devices copy them at each step", shapes


@_of("08")
def _names() -> Drawing:
    shapes = [_write(30, 82, "{", "dim", 64), _write(210, 82, "}", "dim", 64)]
    nodes = ((82, 32, "chief", 1), (158, 32, "worker", 3), (82, 88, "worker", 3),
             (158, 88, "ps", 2))  # fmt: skip
    shapes += [_line([(82, 32), (158, 32), (158, 88), (82, 88), (82, 32)], "line")]
    for x, y, word, color in nodes:
        shapes += [_box(x - 28, y - 13, 56, 26, "paper", 6),
                   _box(x - 28, y - 13, 56, 26, f"t{color} edge{color}", 6),
                   _write(x, y + 4, word)]  # fmt: skip
    return "Who is who in a cluster: a chief, workers, a parameter server", shapes


@_of("09")
def _two_machines() -> Drawing:
    shapes = []
    for x, colors in ((22, (1, 1, 1)), (150, (2, 2, 2))):
        shapes += [_box(x, 16, 68, 88, "box", 6)]
        for k, color in enumerate(colors):
            shapes += [_box(x + 8, 26 + 25 * k, 52, 16, f"t{color}"),
                       _box(x + 8, 26 + 25 * k, 52 - 9 * k, 16, f"c{color}")]  # fmt: skip
    shapes += [_arrow(94, 52, 146, 52, 3, "go right"), _arrow(146, 70, 94, 70, 3, "go left")]
    return "Two machines, each with its own part of the data, exchange gradients", shapes


@_of("10")
def _killed() -> Drawing:
    def loss(t: float) -> float:
        return 20 + 70 * (1 - math.exp(-2.6 * t))

    shapes = [_line([(22, 12), (22, 106), (224, 106)], "line"), _box(92, 12, 36, 94, "hatch", 0),
              _curve(lambda t: loss(t * 0.52), 26, 128, "l1 thick"),
              _curve(lambda t: loss(0.34 + t * 0.66), 92, 220, "l3 thick dashed go draw"),
              _line([(120, loss(0.52) - 8), (136, loss(0.52) + 8)], "l2 thick"),
              _line([(136, loss(0.52) - 8), (120, loss(0.52) + 8)], "l2 thick"),
              _line([(92, 106), (92, 18)], "l5"), _path("M92 16l20 7l-20 7z", "c5")]  # fmt: skip
    return "A loss that falls, a kill, and the way back from the last checkpoint", shapes


@_of("11")
def _servers() -> Drawing:
    shapes = [_box(66, 12, 44, 28, "c4", 5), _box(130, 12, 44, 28, "c4", 5)]
    for k, (x, reach) in enumerate(((40, 1.0), (120, 0.55), (200, 0.8))):
        color = (1, 3, 5)[k]
        target = 88 if x < 120 else 152
        top = 82 - (82 - 44) * reach
        shapes += [_arrow(x, 80, x + (target - x) * reach, top, color, "go up"),
                   _dot(x, 96, 14, f"t{color} edge{color}")]  # fmt: skip
    return "Two parameter servers; three workers, each at its own pace", shapes


@_of("12")
def _conveyor() -> Drawing:
    shapes = [
        _line([(14, 88), (196, 88)], "line"),
        _dot(22, 96, 7, "line"),
        _dot(188, 96, 7, "line"),
    ]
    for k, x in enumerate((20, 54, 88, 122, 156)):
        shapes.append(_box(x, 62 - (k % 2) * 2, 24, 24, f"c{(6, 6, 1, 1, 3)[k]} go right"))
    for x, word in ((48, "read"), (108, "map")):
        shapes += [_box(x, 18, 46, 26, "t5 edge5", 4), _write(x + 23, 35, word)]
    shapes += [_box(194, 40, 38, 48, "c3", 5), _box(201, 48, 24, 32, "paper", 2)]
    return "Examples on a conveyor, through its machines, into an accelerator", shapes


@_of("13")
def _dealt() -> Drawing:
    colors = (1, 2, 3, 5)
    shapes = [_box(16 + 14 * k, 14, 11, 18, f"c{colors[k % 4]}", 2) for k in range(15)]
    for w, color in enumerate(colors):
        x = 20 + 54 * w
        shapes += [_arrow(x + 19, 38, x + 19, 56, color, "go down"), _box(x, 60, 40, 48, "box", 5)]
        count = 3 if w == 3 else 4
        shapes += [_box(x + 6 + 16 * (k % 2), 66 + 20 * (k // 2), 12, 16, f"c{color}", 2)
                   for k in range(count)]  # fmt: skip
    return "Fifteen examples dealt out to four workers: one of them gets fewer", shapes


@_of("14")
def _array() -> Drawing:
    shapes = _grid(62, 12, 8, 6, 12.5, lambda c, r: "c1" if c + r < 5 else
                   "c3" if c + r < 8 else "t3")  # fmt: skip
    shapes += [_arrow(28, 30 + 28 * k, 54, 30 + 28 * k, 5, "go right") for k in range(3)]
    shapes += [_box(190, 44, 34, 32, "t2 edge2", 4), _write(207, 65, "XLA", "ink", 13)]
    return "A grid of multipliers that a wave of numbers runs through", shapes


@_of("15")
def _split() -> Drawing:
    shapes = _grid(24, 22, 6, 5, 13, lambda c, r: "c1" if c < 3 else "c2")
    shapes += [_write(120, 66, "×", "ink", 18)]
    shapes += _grid(134, 14, 5, 6, 13, lambda c, r: "c1" if r < 3 else "c2")
    return "A matrix split by columns, the next one by rows: two devices, half each", shapes


@_of("16")
def _schedule() -> Drawing:
    run = simulate_pipeline(make_1f1b(4, 5), StageTimes(1.0, 1.0, 1.0))
    scale, shapes = 212 / run.makespan, []
    for stage in range(4):
        shapes.append(_box(14, 12 + 25 * stage, 212, 21, "hatch", 2))
    for span in run.timeline():
        shapes.append(_box(
            14 + span.start * scale, 12 + 25 * span.stage, (span.end - span.start) * scale - 1, 21,
            "c1" if span.kind == "F" else "c2", 2))  # fmt: skip
    return "1F1B on four stages: forward and backward passes, and the bubble between", shapes


@_of("17")
def _warm_up() -> Drawing:
    shapes = [_line([(22, 12), (22, 104), (224, 104)], "line")]
    ramp = [(22, 100), (70, 26)]
    fall = [(70 + 150 * t, 26 + 37 * (1 - math.cos(math.pi * t))) for t in
            (k / 20 for k in range(21))]  # fmt: skip
    shapes += [_line([*ramp, *fall], "l3 thick"), _line([(22, 26), (70, 26)], "l2 dashed"),
               _box(104, 22, 12, 12, "c1"), _box(128, 18, 24, 24, "c1"),
               _box(166, 12, 48, 48, "c1 go grow")]  # fmt: skip
    return "A learning rate that warms up, then falls; batches that grow", shapes


@_of("18")
def _bits() -> Drawing:
    shapes = []
    kinds = (("float32", 8, 23), ("bfloat16", 8, 7), ("float16", 5, 10))
    for row, (name, exponent, mantissa) in enumerate(kinds):
        y = 14 + 34 * row
        shapes.append(_write(34, y + 16, name, "ink", 11))
        looks = ["c2", *["c5"] * exponent, *["c1"] * mantissa]
        shapes += [_box(66 + 5.2 * k, y, 4.2, 24, look, 1) for k, look in enumerate(looks)]
    return "The bits of float32, bfloat16 and float16: sign, exponent, mantissa", shapes


@_of("19")
def _engines() -> Drawing:
    places = ((40, 30, "Ray"), (200, 30, "Spark"), (40, 92, "Slurm"), (200, 92, "K8s"))
    shapes = []
    for k, (x, y, word) in enumerate(places):
        color = (1, 2, 3, 5)[k]
        shapes += [_line([(120, 60), (x, y)], f"l{color}"),
                   _box(x - 27, y - 14, 54, 28, "paper", 14),
                   _box(x - 27, y - 14, 54, 28, f"t{color} edge{color}", 14),
                   _write(x, y + 4, word)]  # fmt: skip
    shapes += [_box(82, 44, 76, 32, "c1", 6), _write(120, 64, "train()", "on", 13)]
    return "One training function, started by Ray, Spark, Slurm or Kubernetes", shapes


@_of("20")
def _plan() -> Drawing:
    known = [(34 + 26 * k, 96 - 15 * k) for k in range(3)]
    far = [(known[-1][0] + 30 * k, known[-1][1] - 13 * k + 1.4 * k * k) for k in range(5)]
    band = [*((x, y - 3 * k) for k, (x, y) in enumerate(far)),
            *((x, y + 3 * k) for k, (x, y) in reversed(list(enumerate(far))))]  # fmt: skip
    shapes = [_line([(22, 10), (22, 106), (224, 106)], "line"), _line(band, "t1"),
              _line(far, "l1 thick dashed"), _line(known, "l1 thick"),
              *(_dot(x, y, 5, "c1") for x, y in known), _dot(*far[-1], 6, "c2 go up")]  # fmt: skip
    return "A few measured points, and a prediction far beyond them", shapes


@_of("21")
def _tree() -> Drawing:
    shapes = [_line([(120, 24), (64, 60), (34, 98)], "line"), _line([(64, 60), (96, 98)], "line"),
              _line([(120, 24), (176, 60), (146, 98)], "line"),
              _line([(120, 24), (176, 60), (206, 98)], "l3 thick")]  # fmt: skip
    shapes += [_dot(120, 24, 13, "paper"), _dot(120, 24, 13, "t1 edge1"), _write(120, 29, "?")]
    shapes += [
        part
        for x in (64, 176)
        for part in (_dot(x, 60, 11, "paper"), _dot(x, 60, 11, "t1 edge1"), _write(x, 65, "?"))
    ]
    shapes += [_box(x - 15, 88, 30, 20, f"c{color}", 5)
               for x, color in ((34, 1), (96, 5), (146, 2), (206, 3))]  # fmt: skip
    return "Two questions, four strategies: a guide to decide by", shapes


@_of("22")
def _unet() -> Drawing:
    heights = (84, 60, 38, 22, 38, 60, 84)
    shapes = [_box(22 + 29 * k, 104 - tall, 20, tall, f"c{1 if k < 3 else 4 if k == 3 else 3}", 3)
              for k, tall in enumerate(heights)]  # fmt: skip
    shapes += [_line([(44 + 29 * k, 104 - heights[k] + 8), (194 - 29 * k, 104 - heights[k] + 8)],
                     "l5 dashed") for k in range(3)]  # fmt: skip
    return "A U-Net: down, across and up again, to a mask as large as the image", shapes


def _draw_other() -> Drawing:
    shapes = [_dot(60 + 40 * k, 60, 14, f"c{k + 1}") for k in range(4)]
    return "Four devices in a row", [_line([(60, 60), (180, 60)], "line"), *shapes]
