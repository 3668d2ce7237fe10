"""The tasks of a job, a lane each: state, loss over time, what was done to them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from distlab.errors import CourseError
from distlab.figures import canvas
from distlab.figures.canvas import BLUE, GREEN, ORANGE, SMALL_PX, VERMILLION, WIDTH_PX, Sheet
from distlab.figures.picture import INK, Picture

MAX_POINTS = 160
MARK_SYMBOLS = {"end": "✕", "pause": "❚❚", "back": "↻"}
MARK_COLOURS = {"end": VERMILLION, "pause": ORANGE, "back": GREEN}
STATE_COLOURS = {
    "running": GREEN, "serving": GREEN, "done": BLUE, "paused": ORANGE, "frozen": ORANGE,
    "failed": VERMILLION, "killed": VERMILLION,
}  # fmt: skip
TOP_PX, LANE_PX, LEFT_PX = 40.0, 92.0, 178.0


@dataclass(frozen=True)
class Mark:
    """What happened to a task `time` seconds after the start; `kind` is end, pause or back."""

    kind: str
    words: str
    time: float


@dataclass(frozen=True)
class LaneRecord:
    """One task; each step has its seconds in `times`, its loss and its attempt."""

    name: str
    state: str
    state_words: str
    symbol: str
    facts: str = ""
    sent: str = ""
    times: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def notes(self) -> str:
        """The marks in words, in order: "✕ killed by you at step 40 · ↻ back at step 31"."""
        return " · ".join(f"{MARK_SYMBOLS[mark.kind]} {mark.words}" for mark in self.marks)

    @property
    def runs(self) -> list[list[tuple[float, float]]]:
        """(seconds, loss) of each attempt, thinned to MAX_POINTS in all, the last kept."""
        rows = [r for r in zip(self.times, self.losses, self.attempts) if math.isfinite(r[1])]
        stride = max(1, math.ceil(len(rows) / MAX_POINTS))
        kept = [row for place, row in enumerate(rows) if (len(rows) - 1 - place) % stride == 0]
        return [[row[:2] for row in part] for _, part in groupby(kept, key=lambda row: row[2])]


def job_lanes(lanes: Sequence[LaneRecord], *, title: str) -> Picture:
    """Draw each task's state, its loss over the seconds of the job, and what was done to it.

    All lanes share the time axis; each has its own scale of losses. Raises
    CourseError for no lanes.
    """
    if not lanes:
        raise CourseError("job_lanes: no task to draw: give one lane or more")
    longest = last_second(lanes)

    def paint(sheet: Sheet) -> None:
        for number, lane in enumerate(lanes):
            _draw_lane(sheet, lane, TOP_PX + number * LANE_PX, longest)

    words = f"{title}. " + " ".join(_describe_lane(lane) for lane in lanes)
    height_px = TOP_PX + len(lanes) * LANE_PX
    return canvas.draw_sheet(paint, title=title, alt=words, height_px=height_px)


def last_second(lanes: Sequence[LaneRecord]) -> float:
    """Return the time of the last step or mark of all lanes, 1.0 where there is none."""
    times = [time for lane in lanes for time in lane.times]
    times += [mark.time for lane in lanes for mark in lane.marks]
    return max(times, default=0.0) or 1.0


def _draw_lane(sheet: Sheet, lane: LaneRecord, top: float, longest: float) -> None:
    colour = STATE_COLOURS.get(lane.state, INK)
    sheet.rectangle(0, top, 4, LANE_PX - 10, colour, 1.0, edgecolor="none")
    sheet.write(14, top + 10, lane.name, "left", weight="bold")
    sheet.write(14, top + 30, f"{lane.symbol} {lane.state_words}", "left", SMALL_PX)
    for place, fact in enumerate(lane.facts.split(" · ")[:2]):
        sheet.write(14, top + 48 + 17 * place, fact, "left", SMALL_PX)
    box = (LEFT_PX, top + 4, WIDTH_PX - LEFT_PX - 4, 50.0)
    sheet.rectangle(*box, INK, 0.04, edgecolor="none")
    _draw_curve(sheet, lane, box, longest)
    sheet.write(LEFT_PX, top + 67, lane.notes or lane.sent, "left", SMALL_PX)


def _draw_curve(sheet: Sheet, lane: LaneRecord, box: tuple[float, ...], longest: float) -> None:
    for points in place_runs(lane, box, longest):
        sheet.line([p[0] for p in points], [p[1] for p in points], BLUE, linewidth=2)
    for mark in lane.marks:
        x, ends = box[0] + box[2] * min(1.0, mark.time / longest), [box[1], box[1] + box[3]]
        dashes = (0, (4, 3))
        sheet.line([x, x], ends, MARK_COLOURS[mark.kind], linewidth=1.4, linestyle=dashes)
        symbol = MARK_SYMBOLS[mark.kind]
        sheet.write(x, box[1] + 6, symbol, size=SMALL_PX, bbox=canvas.label_paper())


def place_runs(
    lane: LaneRecord, box: tuple[float, ...], longest: float
) -> list[list[tuple[float, float]]]:
    """Return the points of each attempt's curve inside `box` (x, y, width, height), y downwards."""
    values = [loss for run in lane.runs for _, loss in run]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    span = (high - low) or 1.0
    x, y, width, height = box
    return [
        [(x + width * min(1.0, t / longest), y + 6 + (height - 12) * (high - v) / span)
         for t, v in run]
        for run in lane.runs
    ]  # fmt: skip


def _describe_lane(lane: LaneRecord) -> str:
    says = [f"{lane.name}: {lane.state_words}"]
    values = [loss for run in lane.runs for _, loss in run]
    if len(values) > 1:
        says.append(f"loss from {canvas.say_number(values[0])} to {canvas.say_number(values[-1])}")
    elif lane.facts:
        says.append(lane.facts)
    says += [mark.words for mark in lane.marks]
    return ", ".join(says) + "."
