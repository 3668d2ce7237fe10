"""The tasks of a job on one axis of time: when each computed, waited, sent, and lost work."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from distlab.errors import CourseError
from distlab.figures import canvas
from distlab.figures.canvas import SMALL_PX, WIDTH_PX, Sheet, text_width_px
from distlab.figures.palette import BLUE, GREEN, IDEAS, ORANGE, PURPLE
from distlab.figures.picture import INK, Picture
from utils.goodput import TaskSpan

MAX_POINTS = 160
MAX_SECONDS = 40.0  # a longer job shows its last seconds
MARK_SYMBOLS = {"end": "✕", "pause": "❚❚", "back": "↻"}
GRAY, RED = IDEAS["wait"].light, IDEAS["over"].light
MARK_COLORS = {"end": RED, "pause": ORANGE, "back": BLUE}
# kind of a span -> (words of the key, color, strength)
SPANS = {
    "compute": ("computes", BLUE, 0.75),
    "wait": ("waits for others", GRAY, 0.3),
    "send": ("all-reduce", GREEN, 0.85),
    "start": ("starts", GRAY, 0.1),
    "paused": ("paused", ORANGE, 0.5),
    "down": ("killed", RED, 0.45),
}
TOP_PX, LOSS_PX, LANE_PX, LEFT_PX, AXIS_PX, KEY_PX = 40.0, 62.0, 52.0, 150.0, 44.0, 24.0


@dataclass(frozen=True)
class Mark:
    """An event of a task, `time` seconds after the start; `kind` is end, pause or back."""

    kind: str
    words: str
    time: float


@dataclass(frozen=True)
class Flag:
    """A checkpoint of `step`, saved `time` seconds after the start; a restart `used` it."""

    time: float
    step: int
    used: bool = False


@dataclass(frozen=True)
class LaneRecord:
    """One task: its spans, the stretches that it had to train again, and marks."""

    name: str
    state: str
    state_words: str
    symbol: str
    facts: str = ""
    sent: str = ""
    spans: list[TaskSpan] = field(default_factory=list)
    lost: list[tuple[float, float]] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def notes(self) -> str:
        """The marks in words, in order: "✕ killed by you at step 40 · ↻ back at step 31"."""
        return " · ".join(f"{MARK_SYMBOLS[mark.kind]} {mark.words}" for mark in self.marks)


@dataclass(frozen=True)
class StageRecord:
    """A job: its lanes, (seconds, loss, attempt) of its steps, and how long it has run."""

    lanes: list[LaneRecord]
    losses: list[tuple[float, float, int]] = field(default_factory=list)
    seconds: float = 0.0


def draw_stage(stage: StageRecord, *, title: str) -> Picture:
    """Draw the loss once, and below it a row for each task, all on one axis of seconds.

    Raises CourseError for no lanes.
    """
    if not stage.lanes:
        raise CourseError("draw_stage must have at least one lane, got none.")
    begin, end = max(0.0, stage.seconds - MAX_SECONDS), max(stage.seconds, 1.0)
    runs = find_runs(stage.losses, begin)
    loss_px = LOSS_PX if runs else 0.0
    bottom = TOP_PX + loss_px + len(stage.lanes) * LANE_PX

    def place(time: float) -> float:
        return LEFT_PX + (WIDTH_PX - LEFT_PX - 6) * (min(max(time, begin), end) - begin) / (
            end - begin
        )

    def paint(sheet: Sheet) -> None:
        _draw_axis(sheet, begin, end, place, bottom)
        if runs:
            _draw_losses(sheet, runs, place)
        for number, lane in enumerate(stage.lanes):
            _draw_lane(sheet, lane, TOP_PX + loss_px + number * LANE_PX, place, begin)
        kinds = [k for k in SPANS if any(s.kind == k for lane in stage.lanes for s in lane.spans)]
        _draw_key(sheet, kinds, stage.lanes, bottom + AXIS_PX)

    words = f"{title}. {_describe_losses(runs)}" + " ".join(map(_describe_lane, stage.lanes))
    height_px = bottom + AXIS_PX + KEY_PX
    return canvas.draw_sheet(paint, title=title, alt=words, height_px=height_px)


def find_runs(
    losses: Sequence[tuple[float, float, int]], begin: float = 0.0
) -> list[list[tuple[float, float]]]:
    """Return the curve's pieces, (seconds, loss), from `begin` on: it breaks where no task trained.

    That is between two attempts, and in a gap much longer than a usual step. The points are
    thinned to MAX_POINTS in all, the last of them kept.
    """
    rows = [row for row in losses if math.isfinite(row[1]) and row[0] >= begin]
    gaps = sorted(b[0] - a[0] for a, b in zip(rows, rows[1:]))
    longest = max(1.0, 6 * gaps[len(gaps) // 2]) if gaps else 1.0
    piece, numbered = 0, []
    for before, row in zip([None, *rows], rows):
        if before and (row[2] != before[2] or row[0] - before[0] > longest):
            piece += 1
        numbered.append((piece, row[0], row[1]))
    stride = max(1, math.ceil(len(rows) / MAX_POINTS))
    kept = [row for place, row in enumerate(numbered) if (len(rows) - 1 - place) % stride == 0]
    return [[row[1:] for row in part] for _, part in groupby(kept, key=lambda row: row[0])]


def _draw_axis(sheet: Sheet, begin: float, end: float, place, bottom: float) -> None:
    from matplotlib.ticker import MaxNLocator

    for tick in MaxNLocator(nbins=9, steps=[1, 2, 5, 10]).tick_values(begin, end):
        if begin <= tick <= end:
            sheet.line([place(tick)] * 2, [TOP_PX, bottom], alpha=0.14, linewidth=1)
            sheet.write(place(tick), bottom + 12, f"{tick:g}", size=SMALL_PX)
    sheet.write((LEFT_PX + WIDTH_PX) / 2, bottom + 30, "seconds", size=SMALL_PX)


def _draw_losses(sheet: Sheet, runs: list[list[tuple[float, float]]], place) -> None:
    values = [value for run in runs for _, value in run]
    low, span = min(values), (max(values) - min(values)) or 1.0
    for run in runs:
        heights = [TOP_PX + 6 + (LOSS_PX - 22) * (low + span - v) / span for _, v in run]
        style = {"linewidth": 2} if len(run) > 1 else {"marker": "o", "markersize": 4}
        sheet.line([place(t) for t, _ in run], heights, INK, **style)
    sheet.write(LEFT_PX - 8, TOP_PX + 6, f"{max(values):.3g}", "right", SMALL_PX)
    sheet.write(LEFT_PX - 8, TOP_PX + LOSS_PX - 16, f"{low:.3g}", "right", SMALL_PX)
    sheet.write(0, TOP_PX + LOSS_PX / 2 - 5, "loss", "left")


def _draw_lane(sheet: Sheet, lane: LaneRecord, top: float, place, begin: float) -> None:
    sheet.write(0, top + 17, lane.name, "left", weight="bold")
    sheet.write(0, top + 35, f"{lane.symbol} {lane.state_words}", "left", SMALL_PX)
    height = LANE_PX - 14
    sheet.rectangle(LEFT_PX, top + 8, WIDTH_PX - LEFT_PX - 6, height, INK, 0.04, edgecolor="none")
    for kind, (_, color, strength) in SPANS.items():
        spans = [span for span in lane.spans if span.kind == kind and span.end > begin]
        boxes = [(place(s.start), top + 8, place(s.end) - place(s.start), height) for s in spans]
        _fill(sheet, boxes, color, strength)
    for start, end in lane.lost:
        if end > begin:
            _hatch(sheet, place(start), place(end), top + 8, height)
    for flag in lane.flags:
        if flag.time >= begin:
            _draw_flag(sheet, place(flag.time), top, flag.used)
    for mark in lane.marks:
        if mark.time >= begin:
            x, color = place(mark.time), MARK_COLORS[mark.kind]
            sheet.line([x, x], [top + 3, top + 12 + height], color, linewidth=1.6)
            symbol = MARK_SYMBOLS[mark.kind]
            style = {"bbox": canvas.label_paper(), "weight": "bold"}
            sheet.write(x, top + 8 + height / 2, symbol, size=SMALL_PX, **style)


def _fill(sheet: Sheet, boxes: list[tuple[float, ...]], color: str, strength: float) -> None:
    """Fill boxes (x, y, width, height) of one color, as one path: a long job has hundreds."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if not boxes:
        return
    points = [
        p for x, y, w, h in boxes for p in ((x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y))
    ]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(boxes)
    fill = canvas.tinted(color, strength)
    sheet.axes.add_patch(PathPatch(Path(points, codes), facecolor=fill, edgecolor="none"))


def _hatch(sheet: Sheet, left: float, right: float, top: float, height: float) -> None:
    """Strike out a stretch with slanted lines, which a page may hold twice (a pattern may not)."""
    x = left - height
    while x < right:
        a, b = max(x, left), min(x + height, right)
        if b > a:
            sheet.line([a, b], [top + height - (a - x), top + height - (b - x)], INK, linewidth=1.5)
        x += 7.0
    sheet.rectangle(left, top, max(right - left, 1.0), height, INK, linewidth=1.2)


def _draw_flag(sheet: Sheet, x: float, top: float, used: bool) -> None:
    from matplotlib.patches import Polygon

    sheet.line([x, x], [top, top + LANE_PX - 6], PURPLE, linewidth=1.2)
    wide, tall = (15, 12) if used else (9, 8)
    points = [(x, top - 1), (x + wide, top - 1 + tall / 2), (x, top - 1 + tall)]
    edge = INK if used else "none"
    sheet.axes.add_patch(Polygon(points, facecolor=PURPLE, edgecolor=edge, linewidth=1.2))


def _draw_key(sheet: Sheet, kinds: list[str], lanes: Sequence[LaneRecord], y: float) -> None:
    x = 1.0
    entries = [(SPANS[kind][0], SPANS[kind][1], SPANS[kind][2]) for kind in kinds]
    if any(lane.flags for lane in lanes):
        entries.append(("checkpoint", PURPLE, 1.0))
    if any(lane.lost for lane in lanes):
        entries.append(("trained again later", INK, 0.0))
    for words, color, strength in entries:
        sheet.rectangle(x, y, 14, 12, color, strength)
        sheet.write(x + 20, y + 6, words, "left", SMALL_PX)
        x += 36 + text_width_px(words, SMALL_PX)


def _describe_losses(runs: list[list[tuple[float, float]]]) -> str:
    values = [value for run in runs for _, value in run]
    if len(values) < 2:
        return ""
    return f"Loss from {canvas.say_number(values[0])} to {canvas.say_number(values[-1])}. "


def _describe_lane(lane: LaneRecord) -> str:
    says = [f"{lane.name}: {lane.state_words}"]
    says += _describe_spans(lane.spans)
    says += [mark.words for mark in lane.marks]
    used = [flag.step for flag in lane.flags if flag.used]
    says += [f"resumed from the checkpoint of step {step}" for step in used]
    if lane.lost:
        lost = sum(end - start for start, end in lane.lost)
        says.append(f"{lost:.1f} s of training done again")
    return ", ".join(says) + "."


def _describe_spans(spans: Iterable[TaskSpan]) -> list[str]:
    seconds: dict[str, float] = {}
    for span in spans:
        seconds[span.kind] = seconds.get(span.kind, 0.0) + span.end - span.start
    return [f"{SPANS[kind][0]} {total:.1f} s" for kind, total in seconds.items() if total >= 0.05]
