"""The cockpit: watch a job's tasks on one axis of time, and kill, pause, slow and restart them.

`cockpit(job)` is a widget that its own thread keeps up to date, also while the kernel
is idle or runs another cell. The browser's side is `explorables/browser/cockpit.js`.
"""

import math
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import anywidget

from distlab.explorables.cockpit_book import JobBook
from distlab.explorables.cockpit_chaos import Chaos
from distlab.explorables.cockpit_lanes import Bytes, make_stage
from distlab.explorables.explorable import MIME, Explorable
from distlab.figures.lanes import LaneRecord, StageRecord, draw_stage, find_runs
from distlab.figures.picture import Picture, add_still
from utils.environment import find_kernel_shell
from utils.errors import DistributedError
from utils.goodput import Goodput
from utils.measure import count

if TYPE_CHECKING:
    from utils.cluster.job import Job

UPDATE_SECONDS, SCORE_SECONDS, WINDOW_SECONDS = 0.25, 1.0, 26.0
TASK_ACTIONS = ("kill", "pause", "resume", "restart")
SCORE = {
    "useful": "useful",
    "waiting": "waiting",
    "restarting": "restarting",
    "repeated": "trained twice",
    "rest": "starting and saving",
}
SLOW = "slow "  # the option "slow worker 1": milliseconds a step
_shown: "dict[str, weakref.ref[Cockpit]]" = {}  # by the notebook's cell


class Cockpit(Explorable):
    """A row for each task of `job`, with buttons; made by `cockpit`.

    `data` is what the browser shows, as plain data; its `score` is what `measure_goodput` finds.
    `options` are the user's actions: `press` is the last button, `slow worker 1` the milliseconds
    of a slider, `chaos` its switch. `picture()` is a still of its present state, and takes its
    place if widgets can't run. Updates, at most four a second, end with the job.
    """

    def __init__(self, job: "Job") -> None:
        self._job, self._book, self._bytes = job, JobBook(job), Bytes()
        self._chaos = Chaos(job, self._book, self.act)
        self._message, self._done = "", dict[str, Any]()
        self._score, self._scored_at = dict[str, Any](), -math.inf
        self._reading, self._closed = threading.RLock(), threading.Event()
        self._obeying = threading.Lock()
        options = {"press": {"count": 0}, "chaos": False}
        super().__init__("cockpit", self._look(), options, still="")
        self._done = dict(self.options)
        take_messages_while_cells_run(self)
        self.observe(self._take_options, names="options")
        self._thread = threading.Thread(target=self._follow, name="cockpit", daemon=True)
        self._thread.start()

    def picture(self) -> Picture:
        """Return a still picture of the job's present state."""
        return draw_stage(self._read(), title=f"The job: {self._say_status()}")

    def act(self, action: str, task: str = "") -> None:
        """Do what a button does: "kill", "pause", "resume" or "restart" a task, or "stop" the job.

        `task` is like "worker 1". If it can't be done, the cockpit says so.
        """
        job, _, index = task.partition(" ")
        try:
            self._message = ""
            if action == "stop":
                self._message = "You stopped the job."
                self._job.stop()
            elif self._job.finished:
                self._message = "The job has ended."
            elif action in TASK_ACTIONS:
                getattr(self._job, action)(job, int(index))
        except (DistributedError, ValueError) as error:
            self._message = str(error)
        self._update()

    def close(self) -> None:
        """Stop following the job; the job continues."""
        self._closed.set()
        self._chaos.switch(False)
        super().close()

    def _take_options(self, change: dict[str, Any]) -> None:
        """Something was pressed or moved; act in a thread, as stopping a job takes a moment."""
        moved = {k: v for k, v in change["new"].items() if self._done.get(k) != v}
        self._done = dict(change["new"])
        threading.Thread(target=self._obey, args=[moved], daemon=True).start()

    def _obey(self, moved: dict[str, Any]) -> None:
        for name, value in moved.items():
            if name == "press":
                self.act(str(value.get("action", "")), str(value.get("task", "")))
                continue
            with self._obeying:  # of two moves at once, the later holds, whichever thread is first
                if name == "chaos":
                    self._chaos.switch(bool(self.options[name]))
                elif name.startswith(SLOW):
                    self._slow(name.removeprefix(SLOW), self.options[name])

    def _slow(self, task: str, milliseconds: Any) -> None:
        job, _, index = task.partition(" ")
        try:
            if not self._job.finished:
                self._job.slow(job, int(index), float(milliseconds) / 1000)
        except (DistributedError, ValueError) as error:
            self._message = str(error)

    def _follow(self) -> None:
        while not self._closed.wait(UPDATE_SECONDS):
            finished = self._job.finished
            self._update()
            if finished:
                self._chaos.switch(False)
                return

    def _update(self) -> None:
        with self._reading:  # or a thread that looked earlier could show it later
            if not self._closed.is_set():
                self.data = self._look()  # sent only if it differs

    def _read(self, seconds: float = float("inf")) -> StageRecord:
        with self._reading:
            self._book.read()
            return make_stage(self._job, self._book, self._bytes, seconds)

    def _look(self) -> dict[str, Any]:
        with self._reading:
            stage = self._read(WINDOW_SECONDS)
            return {
                "label": "Cockpit of a job",
                "status": f"Job: {self._say_status()}",
                "message": self._message or self._book.news,
                "finished": self._job.finished,
                "score": self._show_score(),
                "clock": round(stage.seconds, 3),
                "lanes": [self._show_lane(lane, stage.seconds) for lane in stage.lanes],
                "losses": [_round(run) for run in find_runs(stage.losses)],
                **self._show_lines(),
            }

    def _show_lane(self, lane: LaneRecord, now: float) -> dict[str, Any]:
        finished = self._job.finished
        slow = finished or self._book.is_synchronous or lane.name.startswith("worker")
        return show_lane(lane, now, finished, can_be_slow=slow)

    def _show_score(self) -> dict[str, Any]:
        """Return where the time has gone, added up once a second; nothing with servers."""
        due = self._job.finished or time.monotonic() - self._scored_at >= SCORE_SECONDS
        if due and self._book.is_synchronous and self._book.last_step:
            self._score, self._scored_at = show_score(self._book.score()), time.monotonic()
        return self._score

    def _show_lines(self) -> dict[str, str]:
        lanes = self._book.lanes.items()
        lines = [f"{name}: {line}" for name, lane in lanes for line in lane.lines]
        log = [f"{name}: {line}" for name, lane in lanes for line in lane.log]
        number = sum(lane.log_lines for _, lane in lanes)
        words = f"TensorFlow's own log ({count(number, 'line')})"
        return {"lines": "\n".join(lines), "log": "\n".join(log), "logWords": words}

    def _say_status(self) -> str:
        job = self._job
        again = f" (attempt {job.attempt})" if job.attempt > 1 else ""
        if not job.finished:
            return f"running{again}"
        if job.error is None:
            return f"done{again}"
        return f"stopped{again}" if job.error.cause == "was stopped" else f"ended: {job.error}"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The widget, and with it the still picture for pages without a kernel."""
        still = self.picture()
        bundle = add_still(super()._repr_mimebundle_(**options), still, f"Cockpit: {still.alt}")
        bundle.pop(MIME)  # without a kernel no button would do anything
        return bundle


def cockpit(job: "Job") -> Cockpit:
    """Show a row for each task of `job` (made by `LocalCluster.start`), live, with buttons.

    All rows share one axis of time. A row shows when its task computes (from its event "batch"
    to "ready", if it reports them), when it waits for others, and when gradients travel (up to
    the event "step"). Checkpoints (event "checkpoint") are flags. A strip above adds up where
    the time has gone. The bytes are what the task
    reports as `sent_bytes`, or else what the kernel has counted on its TCP connections. Where
    a notebook's cell is run again, the job of the cockpit that it showed before is stopped.
    """
    _stop_former(cell := _find_cell())
    shown = Cockpit(job)
    if cell:
        _shown[cell] = weakref.ref(shown)
    return shown


def _stop_former(cell: str) -> None:
    former = _shown.get(cell, lambda: None)()
    if former is not None:
        former._job.stop()


def _find_cell() -> str:
    """Return what JupyterLab calls the running cell; "" elsewhere."""
    shell = find_kernel_shell()
    parent = shell.kernel.get_parent() if shell else {}
    return parent.get("metadata", {}).get("cellId", "")


def take_messages_while_cells_run(widget: anywidget.AnyWidget) -> None:
    """Have the kernel take the browser's messages in the subshell that JupyterLab names.

    ipykernel 7.4 sends them to the shell that last used the comm, the main one, where
    they wait until the running cell has ended.
    """
    if hasattr(widget.comm, "_reply_subshell_for"):
        widget.comm._reply_subshell_for = lambda data, named: named


def show_lane(
    lane: LaneRecord, now: float, finished: bool, can_be_slow: bool = True
) -> dict[str, Any]:
    """Return one lane as the browser takes it: times in seconds, what is on the axis `now`."""
    since = now - WINDOW_SECONDS
    halted = lane.state in ("paused", "frozen")
    ended = finished or lane.state in ("done", "failed", "killed", "stopped")
    return {
        "name": lane.name,
        "state": lane.state,
        "words": f"{lane.symbol} {lane.state_words}",
        "facts": lane.facts,
        "bytes": lane.sent,
        "notes": lane.notes,
        "spans": _round((s.start, s.end, s.kind) for s in lane.spans if s.end >= since),
        "lost": _round(each for each in lane.lost if each[1] >= since),
        "flags": _round((f.time, f.step, f.used) for f in lane.flags if f.time >= since),
        "marks": _round((m.time, m.kind, m.words) for m in lane.marks if m.time >= since),
        "pause": "resume" if halted else "pause",
        "can": {
            "kill": not ended,
            "pause": not ended,
            "restart": not finished,
            "slow": not ended if can_be_slow else None,
        },
    }


def show_score(spent: Goodput) -> dict[str, Any]:
    """Return the shares as the browser takes them: [kind, percent] each, and all of it in words."""
    parts = [[kind, round(100 * getattr(spent, kind), 1)] for kind in SCORE]
    words = {kind: f"{SCORE[kind]} {percent:.0f}%" for kind, percent in parts}
    words["repeated"] += f" ({count(spent.steps_repeated, 'step')})"
    return {"parts": parts, "words": " · ".join(words.values())}


def _round(rows: Any) -> list[list[Any]]:
    """Return rows as JSON takes them, times to the millisecond."""
    return [[round(v, 3) if isinstance(v, float) else v for v in row] for row in rows]
