"""All students' lanes in a notebook: the cockpit, which only watches."""

import warnings
from typing import TYPE_CHECKING, Any

from distlab.classroom.roll import Roll
from distlab.classroom.table import IN_LOBBY, NOTHING, list_rows
from distlab.explorables.cockpit_panel import Cockpit, show_lane
from distlab.figures.lanes import LaneRecord

if TYPE_CHECKING:
    from distlab.classroom.hosting import Classroom


class ClassCockpit(Cockpit):
    """The lanes of a class. Its buttons begin the class, and end it on all laptops."""

    def __init__(self, room: "Classroom") -> None:
        self._room = room
        super().__init__(room.roll)

    @property
    def roll(self) -> Roll:
        return self._job

    def act(self, action: str, task: str = "") -> None:
        """Begin or end the class; a student's own laptop allows no other action."""
        if action == "stop" and not self._job.finished:
            self._room.stop()
            self._message = "You ended the class."
        elif action == "begin" and not self._job.has_begun:
            self._room.begin()
        self._update()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """As a cockpit; a name in a script that the still picture's font lacks gives no warning."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")
            return super()._repr_mimebundle_(**options)

    def _look(self) -> dict[str, Any]:
        seen = super()._look()
        rows = {row[0]: row for row in list_rows(self._job, self._book)}
        for lane in seen["lanes"]:
            lane.update(describe_lane(rows[lane["name"]]) if lane["name"] in rows else {})
        has_begun = self._job.has_begun or self._job.finished
        return seen | {
            "label": "Cockpit of a class",
            "status": f"Class: {self._say_status()}",
            "message": self._message or self._say_message(),
            "watchOnly": True,
            "stopWords": "End the class",
            "beginWords": "" if has_begun else "Begin with those who are here",
        }

    def _say_status(self) -> str:
        roll = self._job
        here = sum(pupil.state in ("starting", "running", "frozen") for pupil in roll.tasks)
        if roll.finished or not roll.has_begun:
            waiting = f"{len(roll.tasks)} of {self._room.workers} laptops are here"
            return super()._say_status() if roll.finished else waiting
        again = f", start {roll.attempt}" if roll.attempt > 1 else ""
        return f"{here} laptop{'s' * (here != 1)} train one model{again}"

    def _say_message(self) -> str:
        roll = self._job
        if roll.finished:
            return " ".join(line[0].upper() + line[1:] for line in roll.describe_weights())
        if not roll.has_begun:
            return f"To join, type: {self._room.line}\nCode: {self._room.code_words}"
        told = roll.describe()
        is_waiting = any(pupil.state == "waiting" for pupil in roll.tasks)
        return f"{self._book.news} {told}".strip() if is_waiting or not told else told

    def _show_lane(self, lane: LaneRecord, now: float) -> dict[str, Any]:
        shown = show_lane(lane, now, finished=True, can_be_slow=False)
        return shown | {"pause": "pause"}


def describe_lane(row: tuple[str, ...]) -> dict[str, str]:
    """Return the words of a lane: the state, for whom it waits, and what a step takes."""
    _, state, _, computes, waits, awaited = row
    known = computes != NOTHING and state != IN_LOBBY
    times = f"computes {computes}, waits {waits}" if known else ""
    return {"words": state, "bytes": times + f" for {awaited}" * (known and awaited != NOTHING)}
