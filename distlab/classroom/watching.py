"""Everybody's lane in a notebook: the cockpit, whose hand reaches no student's laptop."""

import warnings
from typing import TYPE_CHECKING, Any

from distlab.classroom.roll import Roll
from distlab.figures.lanes import LaneRecord
from distlab.widgets.cockpit_panel import Cockpit, show_lane

if TYPE_CHECKING:
    from distlab.classroom.hosting import Classroom


class ClassCockpit(Cockpit):
    """The lanes of a class. Its one button ends the class on all laptops."""

    def __init__(self, room: "Classroom") -> None:
        self._room = room
        super().__init__(room.roll)

    @property
    def roll(self) -> Roll:
        return self._job

    def act(self, action: str, task: str = "") -> None:
        """End the class on "stop"; nothing else can be done to a laptop that is somebody's own."""
        if action == "stop" and not self._job.finished:
            self._room.stop()
            self._message = "You ended the class."
        self._update()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """As a cockpit; a name in a script that the still picture's font lacks is no warning."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")
            return super()._repr_mimebundle_(**options)

    def _look(self) -> dict[str, Any]:
        seen = super()._look()
        seen["status"] = f"Class: {self._say_status()}"
        return seen | {
            "label": "Cockpit of a class",
            "watchOnly": True,
            "stopWords": "End the class",
        }

    def _say_status(self) -> str:
        if self._job.history() or self._job.finished:
            return super()._say_status()
        return f"waiting at {self._room.address}"

    def _show_lane(self, lane: LaneRecord, now: float) -> dict[str, Any]:
        shown = show_lane(lane, now, finished=True, can_be_slow=False)
        return shown | {"pause": "pause"}
