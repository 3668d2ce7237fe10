"""The cockpit: watch a job's tasks while they run, and kill, pause and restart them.

`cockpit(job)` is a widget that a thread of its own keeps up to date, also while the
kernel is idle or runs another cell. The browser's side is `cockpit.js` and
`cockpit.css` (anywidget, no build step).
"""

import html
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from distlab.figures import LaneRecord, Picture, job_lanes
from distlab.figures.lanes import MARK_COLOURS, MARK_SYMBOLS, last_second, place_runs
from distlab.figures.picture import add_still
from distlab.widgets.cockpit_lanes import LaneBook
from utils.errors import DistributedError

if TYPE_CHECKING:
    from utils.cluster.job import Job

UPDATE_SECONDS = 0.25
CURVE_BOX = (2.0, 2.0, 476.0, 56.0)  # x, y, width, height in a sheet of 480 by 60
_HERE = Path(__file__).parent


class Cockpit(anywidget.AnyWidget):
    """A lane for each task of `job`, with buttons; made by `cockpit`.

    `view` is what the browser shows, as plain data. `picture()` is a still of it
    as it is now, and stands in its place where widgets cannot run. Updates, at
    most four a second and only when something has changed, end with the job.
    """

    _esm = (_HERE / "cockpit.js").read_text(encoding="utf-8")
    _css = (_HERE / "cockpit.css").read_text(encoding="utf-8")
    view = traitlets.Dict().tag(sync=True)

    def __init__(self, job: "Job") -> None:
        self._job, self._book = job, LaneBook(job)
        self._message = ""
        self._reading, self._closed = threading.Lock(), threading.Event()
        self._lanes: list[LaneRecord] = []
        super().__init__(view=self._look())
        take_messages_while_cells_run(self)
        self.on_msg(self._take_message)
        self._thread = threading.Thread(target=self._follow, name="cockpit", daemon=True)
        self._thread.start()

    def picture(self) -> Picture:
        """Return a still picture of the lanes as they are now."""
        self._look()
        return job_lanes(self._lanes, title=f"The job: {self._say_status()}")

    def act(self, action: str, task: str = "") -> None:
        """Do what a button does: "kill", "pause", "resume" or "restart" a task, or "stop" the job.

        `task` is like "worker 1". What cannot be done is said in the cockpit.
        """
        job, _, index = task.partition(" ")
        try:
            if action == "stop":
                self._message = "you stopped the job"
                self._job.stop()
            elif self._job.finished:
                self._message = "the job has ended"
            elif action in ("kill", "pause", "resume", "restart"):
                getattr(self._job, action)(job, int(index))
                self._message = ""
        except (DistributedError, ValueError) as error:
            self._message = str(error)
        self._update()

    def close(self) -> None:
        """Stop following the job; the job goes on."""
        self._closed.set()
        super().close()

    def _take_message(self, _: object, content: Any, buffers: object) -> None:
        """A button was pressed; act in a thread, as stopping a job takes a moment."""
        if isinstance(content, dict):
            chosen = (str(content.get("action", "")), str(content.get("task", "")))
            threading.Thread(target=self.act, args=chosen, daemon=True).start()

    def _follow(self) -> None:
        while not self._closed.wait(UPDATE_SECONDS):
            finished = self._job.finished
            self._update()
            if finished:
                return

    def _update(self) -> None:
        if not self._closed.is_set():
            self.view = self._look()  # sent only where it differs

    def _look(self) -> dict[str, Any]:
        with self._reading:
            self._lanes = self._book.read()
            finished = self._job.finished
            return {
                "status": self._say_status(),
                "message": self._message,
                "finished": finished,
                "lanes": [show_lane(lane, self._lanes, finished) for lane in self._lanes],
            }

    def _say_status(self) -> str:
        job = self._job
        again = f" (attempt {job.attempt})" if job.attempt > 1 else ""
        if not job.finished:
            return f"running{again}"
        return f"done{again}" if job.error is None else f"ended: {job.error}"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """The widget, and beside it the still picture for pages without widgets."""
        still = self.picture()
        return add_still(super()._repr_mimebundle_(**options), still, f"Cockpit: {still.alt}")


def cockpit(job: "Job") -> Cockpit:
    """Show a lane for each task of `job` (made by `LocalCluster.start`), live, with buttons.

    A lane has the task's state, step, loss over time, bytes and last lines. The
    bytes are what the task reports as `sent_bytes`, or else what the kernel has
    counted on its TCP connections.
    """
    return Cockpit(job)


def take_messages_while_cells_run(widget: anywidget.AnyWidget) -> None:
    """Have the kernel take the browser's messages in the subshell that JupyterLab names.

    ipykernel 7.4 sends them to the shell that last used the comm, the main one, where
    they wait until the running cell has ended.
    """
    if hasattr(widget.comm, "_reply_subshell_for"):
        widget.comm._reply_subshell_for = lambda data, named: named


def show_lane(lane: LaneRecord, lanes: list[LaneRecord], finished: bool) -> dict[str, Any]:
    """Return one lane as the browser takes it."""
    halted = lane.state in ("paused", "frozen")
    ended = finished or lane.state in ("done", "failed", "killed", "stopped")
    return {
        "name": lane.name,
        "state": lane.state,
        "words": f"{lane.symbol} {lane.state_words}",
        "facts": lane.facts,
        "bytes": lane.sent,
        "notes": lane.notes,
        "lines": "\n".join(lane.lines),
        "curve": draw_curve(lane, last_second(lanes)),
        "pause": "resume" if halted else "pause",
        "can": {"kill": not ended, "pause": not ended, "restart": not finished},
    }


def draw_curve(lane: LaneRecord, longest: float) -> str:
    """Return the task's loss over time as SVG text, with its marks; "" where it reports none."""
    runs = place_runs(lane, CURVE_BOX, longest)
    if not runs:
        return ""
    paths = "".join(_draw_path(points) for points in runs)
    marks = "".join(_draw_mark(mark.kind, mark.time / longest) for mark in lane.marks)
    words = html.escape(f"{lane.name}: {lane.facts}; {lane.notes}".rstrip("; "))
    return (
        f'<svg viewBox="0 0 480 60" role="img" aria-label="Loss over time, {words}">'
        f'<rect class="ground" width="480" height="60"/>{paths}{marks}</svg>'
    )


def _draw_path(points: list[tuple[float, float]]) -> str:
    if len(points) == 1:
        x, y = points[0]
        return f'<circle class="curve" cx="{x:.1f}" cy="{y:.1f}" r="2"/>'
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="curve" points="{text}"/>'


def _draw_mark(kind: str, place: float) -> str:
    x = CURVE_BOX[0] + CURVE_BOX[2] * min(1.0, place)
    colour = MARK_COLOURS[kind]
    at = min(max(x, 8.0), 472.0)
    return (
        f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="2" y2="58" stroke="{colour}"/>'
        f'<text class="mark" x="{at:.1f}" y="13">{MARK_SYMBOLS[kind]}</text>'
    )
