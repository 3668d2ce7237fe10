"""Slow tasks: frozen for a moment after each step that they report, whatever they compute."""

import threading
from typing import TYPE_CHECKING

from ..errors import InputError
from .record import JobRecord

if TYPE_CHECKING:
    from .group import TaskGroup
    from .supervisor import Supervisor

MAX_SECONDS = 1.0  # a heartbeat that stays away for longer may end the group


class Slowing:
    """The pause of each task of a job after each of its steps.

    A task reports its steps itself (event "step"), or another does for it, and names it in
    the field `of`. The thread that follows them starts with the first slow task.
    """

    def __init__(self, record: JobRecord, supervisor: "Supervisor") -> None:
        self._record, self._supervisor = record, supervisor
        self._seconds = supervisor.slow_seconds
        self._thread: threading.Thread | None = None

    def set(self, task: str, seconds: float) -> None:
        if not 0 <= seconds <= MAX_SECONDS:
            raise InputError(f"seconds must be from 0 to {MAX_SECONDS:g} per step, got {seconds}.")
        group = self._supervisor.group
        if group.find(task).state != "paused":
            group.act(group.find(task), "resume", None)  # raises where the launcher can't
        self._seconds[task] = seconds
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="slowing", daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        for event in self._record.follow_events(len(self._record.get_events())):
            name = event.get("of", event["task"])
            if event["event"] == "step" and self._seconds.get(name):
                self._freeze(self._supervisor.group, name)

    def _freeze(self, group: "TaskGroup", name: str) -> None:
        task = group.find(name)
        if task.state != "running":
            return
        group.act(task, "pause", None)

        def let_go() -> None:
            if task.state != "paused":  # by other code, meanwhile
                group.act(task, "resume", None)

        timer = threading.Timer(self._seconds[name], let_go)
        timer.daemon = True
        timer.start()
