"""A class hosted from a notebook's cell, which runs while you continue in the notebook."""

import threading
from typing import Any

from distlab.classroom.hosting import WORKERS, Classroom
from distlab.classroom.meeting import PORT, ClassPlace, Say, find_own_address, say
from distlab.classroom.settings import ClassSettings
from distlab.classroom.watching import ClassCockpit
from utils.engines import RunReport
from utils.tf_config import join_address


class RunningClass:
    """A class in the background of its notebook; shown as a cockpit with a lane per student."""

    def __init__(self, room: Classroom) -> None:
        self.room, self._error = room, None
        self._thread = threading.Thread(target=self._run, name="class", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.room.run()
        except Exception as error:
            self._error = error

    def begin(self) -> None:
        """Begin with those who are here, two at least."""
        self.room.begin()

    def stop(self) -> None:
        """End the class on all laptops; returns once nothing is left."""
        self.room.stop()
        self._thread.join(60)

    def wait(self) -> RunReport:
        """Return the report at the end of the class. An interrupt ends it on all laptops."""
        try:
            while self._thread.is_alive():
                self._thread.join(0.2)
        except KeyboardInterrupt:
            self.stop()
        if self._error is not None:
            raise self._error
        return self.room.report

    @property
    def cockpit(self) -> ClassCockpit:
        """Everybody's lane, live."""
        return ClassCockpit(self.room)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.cockpit._repr_mimebundle_(**options)


def start(
    workers: int = WORKERS,
    address: str | None = None,
    port: int = PORT,
    tell: Say = say,
    **settings: Any,
) -> RunningClass:
    """Host a class from a notebook's cell: its last line shows each student's lane.

        from distlab.classroom import start
        room = start(workers=8, epochs=20, trust_network=True)
        room                                      # later: room.begin(), room.wait(), room.stop()

    `settings` are the fields of `ClassSettings`, and of `ClassPlace` except the address. Raises
    CourseError as `Classroom` does.
    """
    at = {n: settings.pop(n) for n in list(settings) if n in ClassPlace.__dataclass_fields__}
    host = address or find_own_address()
    where = ClassPlace(join_address(host, port), **at)
    room = Classroom(ClassSettings(**settings), where, workers, tell=tell)
    room.announce()
    return RunningClass(room)
