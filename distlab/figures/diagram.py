"""Boxes and arrows, and diagrams of them: where variables live under each kind of strategy, and
what is copied in a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distlab.errors import CourseError
from distlab.figures import canvas
from distlab.figures.canvas import SMALL_PX, WIDTH_PX, Sheet
from distlab.figures.picture import INK, Picture
from utils.checks import check_count
from utils.measure import count

# kind of box -> color, strength of its tint
KINDS: Mapping[str, tuple[str, float]] = {
    "text": (INK, 0.0),
    "device": (INK, 0.04),
    "variables": (canvas.BLUE, 0.3),
    "compute": (canvas.GREEN, 0.25),
    "data": (canvas.ORANGE, 0.3),
    "server": (canvas.PURPLE, 0.3),
    "reduce": (canvas.VERMILION, 0.25),
}


@dataclass(frozen=True)
class Box:
    """A box of `kind` (see KINDS) with its upper left corner at (x, y); sizes in pixels.

    A box of kind "device" is a frame: its text is at its top and other boxes may be inside it. A
    box of kind "text" has no frame.
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

    Raises CourseError for an arrow to a box that isn't there and for an
    unknown kind of box.
    """
    for name, box in boxes.items():
        if box.kind not in KINDS:
            raise CourseError(
                f"diagram: the kind of box {name!r} must be one of {', '.join(KINDS)}, got "
                f"{box.kind!r}."
            )
    for arrow in arrows:
        for name in (arrow.start, arrow.end):
            if name not in boxes:
                raise CourseError(f"diagram: an arrow must join two boxes, and {name!r} isn't one.")

    def paint(sheet: Sheet) -> None:
        for box in boxes.values():
            _draw_box(sheet, box)
        for arrow in arrows:
            _draw_arrow(sheet, arrow, boxes[arrow.start], boxes[arrow.end])

    return canvas.draw_sheet(paint, title=title, alt=alt, height_px=height_px)


def _draw_box(sheet: Sheet, box: Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    color, strength = KINDS[box.kind]
    patch = FancyBboxPatch(
        (box.x + 4, box.y + 4),
        box.width - 8,
        box.height - 8,
        boxstyle="round,pad=4,rounding_size=6",
        facecolor=canvas.tinted(color, strength),
        edgecolor=color,
        linewidth=1.3,
    )
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
        tail,
        head,
        arrowstyle="<|-|>" if arrow.both else "-|>",
        mutation_scale=12,
        color=INK,
        linewidth=1.5,
        linestyle=(0, (5, 3)) if arrow.dashed else "-",
        shrinkA=2,
        shrinkB=2,
    )
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


MAX_DRAWN = 4
GAP_PX, SKIP_PX = 16.0, 28.0
Column = tuple[float, float, int]  # left edge, width, index


def mirrored_devices(replicas: int = 4, *, device: str = "GPU") -> Picture:
    """Draw MirroredStrategy: each replica holds a copy, gradients are all-reduced.

    Of more than four replicas the first three and the last are drawn.
    """
    check_count("replicas", replicas)
    boxes = {
        "sum": Box(
            "all-reduce: every replica gets the sum of all gradients", 0, 266, 720, 40, "reduce"
        )
    }
    arrows = []
    columns = _columns(replicas)
    boxes |= _skipped(replicas, columns, 103)
    for x, wide, index in columns:
        inside = {"x": x + 14, "width": wide - 28, "height": 50}
        boxes[f"device {index}"] = Box(f"{device}:{index}", x, 34, wide, 158)
        boxes[f"variables {index}"] = Box(
            "copy of all\nvariables", y=66, kind="variables", **inside
        )
        boxes[f"step {index}"] = Box("gradients on\nits examples", y=130, kind="compute", **inside)
        arrows.append(Arrow(f"device {index}", "sum", "gradients", both=True))
    alt = (
        f"MirroredStrategy on {count(replicas, 'replica')}: each replica holds its own copy of all "
        "variables and computes gradients on its part of the batch. An all-reduce gives every "
        "replica the sum of the gradients, so all copies make the same update and stay equal."
    )
    title = f"Mirrored: a copy of the variables on each of {count(replicas, 'replica')}"
    return diagram(boxes, arrows, title=title, alt=alt, height_px=312)


def central_storage_devices(
    replicas: int = 4, *, device: str = "GPU", first: int = 0, store: str = "CPU:0"
) -> Picture:
    """Draw CentralStorageStrategy: variables on one device, copied out and gathered each step.

    The replicas' devices count from `first`. Of more than four replicas the first three
    and the last are drawn.
    """
    check_count("replicas", replicas)
    boxes = {
        "device": Box(f"{store}", 0, 34, 720, 88),
        "store": Box(
            "the only set of variables; updated once a step", 14, 64, 692, 46, "variables"
        ),
    }
    arrows = []
    columns = _columns(replicas)
    boxes |= _skipped(replicas, columns, 254)
    for x, wide, index in columns:
        name = f"step {index}"
        boxes[f"device {index}"] = Box(f"{device}:{first + index}", x, 214, wide, 100)
        boxes[name] = Box("gradients on\nits examples", x + 14, 248, wide - 28, 52, "compute")
        arrows += _there_and_back("device", f"device {index}", wide / 4 - 6)
    alt = (
        f"CentralStorageStrategy on {count(replicas, 'replica')}: the variables live once, on "
        f"{store}. Each step copies their values to every replica, gathers the replicas' gradients "
        f"back and makes one update on {store}."
    )
    title = f"Central storage: one set of variables for {count(replicas, 'replica')}"
    return diagram(boxes, arrows, title=title, alt=alt, height_px=320)


def _there_and_back(store: str, replica: str, offset_px: float) -> list[Arrow]:
    return [
        Arrow(store, replica, "values", dashed=True, offset=-offset_px, label_at=0.38),
        Arrow(replica, store, "gradients", offset=offset_px, label_at=0.38),
    ]


def parameter_server_devices(workers: int = 3, servers: int = 2) -> Picture:
    """Draw ParameterServerStrategy: each worker reads and updates on its own, without waiting.

    At most four workers and four parameter servers are drawn, as in the other diagrams.
    """
    check_count("workers", workers)
    check_count("servers", servers)
    boxes = {"servers": Box("parameter servers", 0, 34, 720, 92)}
    columns = _columns(servers, 14, 692)
    boxes |= _skipped(servers, columns, 80)
    for x, wide, index in columns:
        text = f"ps {index}: its share of the variables"
        text = text if wide > 260 else f"ps {index}: its part"
        boxes[f"ps {index}"] = Box(text, x, 66, wide, 48, "server")
    arrows = []
    columns = _columns(workers)
    boxes |= _skipped(workers, columns, 258)
    for x, wide, index in columns:
        boxes[f"worker {index}"] = Box(f"worker {index}", x, 218, wide, 100)
        boxes[f"step {index}"] = Box(
            "gradients,\nat its own pace", x + 14, 252, wide - 28, 52, "compute"
        )
        arrows += _there_and_back("servers", f"worker {index}", wide / 4 - 6)
    alt = (
        f"ParameterServerStrategy with {count(workers, 'worker')} and "
        f"{count(servers, 'parameter server')}: the variables are spread over the servers. Each "
        "worker reads values, computes gradients and sends them back at its own pace, so a "
        "gradient may have been computed from values that others have changed since."
    )
    title = "Parameter servers: workers read and update without waiting"
    return diagram(boxes, arrows, title=title, alt=alt, height_px=324)


def _columns(number: int, left: float = 0.0, width: float = WIDTH_PX) -> list[Column]:
    """Return the columns of at most four boxes side by side: the first three and the last."""
    shown = range(number) if number <= MAX_DRAWN else (0, 1, 2, number - 1)
    skipped_px = SKIP_PX if number > MAX_DRAWN else 0.0
    wide = (width - skipped_px - GAP_PX * (len(shown) - 1)) / len(shown)
    columns = [(left + place * (wide + GAP_PX), wide, i) for place, i in enumerate(shown)]
    return [*columns[:-1], (columns[-1][0] + skipped_px, *columns[-1][1:])]


def _skipped(number: int, columns: list[Column], y: float) -> dict[str, Box]:
    """Return the dots that stand for the boxes left out of `_columns`, if any were."""
    if number <= MAX_DRAWN:
        return {}
    x, wide, _ = columns[-2]
    room = columns[-1][0] - x - wide
    return {f"skipped at {y}": Box("…", x + wide, y, room, 20, "text")}
