"""Lesson 00: the replicas of `two_replicas`, trained while you watch, in a page or in the kernel.

The browser's side is `explorables/browser/replicas.js`, which trains the same network on 600
images without a kernel. The kernel trains in a thread, only while the picture is on the screen,
and sends one frame for each step.
"""

import base64
import threading
from typing import Any

import numpy as np

from distlab.explorables.cockpit_panel import take_messages_while_cells_run
from distlab.explorables.explorable import Explorable
from distlab.explorables.page_replicas import LABEL, OPTIONS, RECORDING, pack_for_page, read_alt
from distlab.figures.picture import Picture
from distlab.lessons.two_replicas import ReplicaFrame, Replicas, split_classes
from utils.data.images import ImageData

SLOW_SECONDS, FAST_SECONDS = 1.3, 0.25  # between two steps
SLOW_STEPS, MAX_STEPS = 3, 400  # after a change; in all


class WatchedReplicas(Explorable):
    """The living picture; `train` takes steps at once, the thread takes them in time.

    `options` are the hand's: `replicas`, `broken`, `running`, `again` (a count), and `seen`,
    whether the picture is on the screen. `frames` are those since the last start.
    """

    def __init__(self, data: ImageData, still: Picture | str = "") -> None:
        self._images, self._changed = data, threading.Condition()
        self._training = threading.Lock()
        self._closed, self._thread = False, None
        self._options: dict[str, Any] = OPTIONS | {"where": "kernel"}
        self._start()
        frame = self._step()
        super().__init__("replicas", self._describe(frame), self._options, still)
        self.fixed = {"images": pack_for_page(data)}
        take_messages_while_cells_run(self)
        self.observe(self._take_options, names="options")

    def train(self, steps: int) -> ReplicaFrame:
        """Take `steps` steps now and return the last."""
        for _ in range(steps):
            frame = self._step()
        self.data = self._describe(frame)
        return frame

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        super().close()

    def _start(self) -> None:
        self._replicas = Replicas(self._images, self._options["replicas"])
        self.frames: list[ReplicaFrame] = []
        self._slow = SLOW_STEPS

    def _step(self) -> ReplicaFrame:
        with self._training:
            frame = self._replicas.step(self._options["broken"])
            self.frames.append(frame)
            return frame

    def _take_options(self, change: dict[str, Any]) -> None:
        with self._changed:
            before, self._options = self._options, dict(change["new"])
            if before["broken"] != self._options["broken"]:
                self._slow = SLOW_STEPS
            if self._options["running"] and not before["running"]:
                self._limit = len(self.frames) + MAX_STEPS
            if self._thread is None:
                self._limit = MAX_STEPS
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _may_train(self) -> bool:
        here = self._options["where"] == "kernel"
        return self._closed or here and all(self._options[name] for name in ("running", "seen"))

    def _work(self) -> None:
        begun = self._options["replicas"], self._options["again"]
        while True:
            with self._changed:
                self._changed.wait_for(self._may_train)
                if self._closed:
                    return
                options = self._options
            wanted = options["replicas"], options["again"]
            if wanted != begun:
                begun = wanted
                self._start()
            elif len(self.frames) >= self._limit:
                self._rest(options)
                continue
            self.data = self._describe(self._step())
            self._slow = max(0, self._slow - 1)
            with self._changed:
                self._changed.wait(self._interval)

    def _rest(self, options: dict[str, Any]) -> None:
        """Nobody has touched it for long: it trains on when asked to, by other options."""
        self.data = {**self.data, "frame": {**self.data["frame"], "resting": True}}
        with self._changed:
            self._limit += MAX_STEPS
            self._changed.wait_for(lambda: self._closed or self._options is not options)

    @property
    def _interval(self) -> float:
        return SLOW_SECONDS if self._slow else FAST_SECONDS

    def _describe(self, frame: ReplicaFrame) -> dict[str, Any]:
        """Return what the browser draws: small pictures as base64 of bytes, the rest as numbers."""
        names, groups = self._images.class_names, split_classes(self._replicas.count)
        strips = [*frame.gradients, frame.total]
        largest = max(float(np.abs(strip).max()) for strip in strips)
        drawn = {
            "replicas": self._replicas.count,
            "classes": [", ".join(names[c] for c in group) for group in groups],
            "step": frame.step,
            "broken": frame.broken,
            "everBroken": any(each.broken for each in self.frames),
            "breaks": find_breaks(self.frames),
            "apart": frame.apart,
            "accuracy": [round(float(share), 4) for share in frame.accuracy],
            "history": [[round(float(a), 3) for a in each.accuracy] for each in self.frames],
            "losses": [round(each.loss, 3) for each in self.frames],
            "images": _encode(frame.images),
            "gradients": _encode(to_bytes(frame.gradients, largest)),
            "total": _encode(to_bytes(frame.total, largest)),
            "filters": _encode(to_bytes(frame.filters, float(np.abs(frame.filters).max()))),
            "interval": self._interval,
            "resting": False,
        }
        return {"label": LABEL, "frame": drawn}

    def _page_data(self) -> dict[str, Any]:
        return {"label": LABEL, **self.fixed}


def watch_replicas(data: ImageData) -> WatchedReplicas:
    """Show two replicas that train on `data` while you watch. Needs four logical devices.

    If scripts can't run, a recording stands in: an animated SVG, made from a real training.
    """
    words = read_alt()
    return WatchedReplicas(data, Picture(RECORDING.read_text(encoding="utf-8"), words))


def find_breaks(frames: list[ReplicaFrame]) -> list[list[int]]:
    """Return [first, end) of each stretch of frames with a broken all-reduce."""
    breaks: list[list[int]] = []
    for place, frame in enumerate(frames):
        if not frame.broken:
            continue
        if breaks and breaks[-1][1] == place:
            breaks[-1][1] = place + 1
        else:
            breaks.append([place, place + 1])
    return breaks


def to_bytes(values: np.ndarray, largest: float) -> np.ndarray:
    """Return values from -largest to largest as 1 to 255, 0 as 128."""
    return np.round(128 + 127 * np.clip(values / (largest or 1.0), -1, 1)).astype(np.uint8)


def _encode(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")
