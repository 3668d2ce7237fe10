"""The teacher's laptop: hosts the class, trains as worker 0, and keeps each student's lane."""

import signal

from distlab.classroom.joining import begin_at_enter
from distlab.classroom.meeting import COMMAND, ClassPlace, Say, say
from distlab.classroom.roll import Ending, Roll
from distlab.classroom.settings import ClassSettings
from distlab.errors import CourseError
from utils.checks import check_count
from utils.engines import RunReport
from utils.engines.rendezvous.code import make_code, read_code
from utils.engines.rendezvous.host import HostedRun
from utils.engines.rendezvous.settings import confirm_trust, is_own_host, open_address
from utils.errors import DistributedError
from utils.processes.connection import split_address

WORKERS, RESTARTS, MAX_WORKERS = 8, 20, 64


class Classroom:
    """A class, open at its address from the moment this is made. `run` trains it to its end.

    `roll` has each student's lane. The class begins when `workers` laptops are there, this one
    included, or with those present when `begin` is called. The next start leaves lost laptops out,
    and lets new ones take part. Raises CourseError if the address is taken or isn't ours.
    """

    def __init__(
        self,
        settings: ClassSettings,
        place: ClassPlace,
        workers: int = WORKERS,
        restarts: int = RESTARTS,
        tell: Say = say,
    ) -> None:
        check_count("workers", workers, 1, MAX_WORKERS)
        self._tell, self._rendezvous = tell, place.to_rendezvous()
        self.settings, self.address, self.workers = settings, self._rendezvous.address, workers
        name = self._rendezvous.gathering.name
        self.roll, self.report = Roll(name), None
        run = place.to_run(workers, restarts, settings.to_text())
        self.code = read_code() or make_code()
        listener = open_address(self.address)
        if listener is None:
            taken = is_own_host(split_address(self.address)[0])
            raise CourseError(
                f"{self.address} is in use, perhaps by another class. Give another --port."
                if taken
                else f"{self.address} must be an address of this machine. Correct "
                "--advertise-address, or leave it out."
            )
        try:
            confirm_trust(self.address, place.trust_network, tell)
            self._run = HostedRun(
                COMMAND, run, self._rendezvous, listener, self.code, self.roll.take_line, tell
            )
        except BaseException:
            listener.close()
            raise
        self.roll.follow(self._run)
        self.logs = str(self._run.logs)

    @property
    def line(self) -> str:
        """The command line that a student types."""
        return f"distlab classroom join {self.address}"

    @property
    def code_words(self) -> str:
        """The code, unless it is known beforehand."""
        return "the one in DISTLAB_CODE" if read_code() else self.code

    def announce(self) -> None:
        """Say what students type, and the code."""
        self._tell(f"each student types   {self.line}")
        self._tell(f"and then the code    {self.code_words}")
        begin_at_enter(
            self._rendezvous.gathering.begin, "begins with those who are here", self._tell
        )

    def begin(self) -> None:
        """Begin with those who are here, two at least."""
        self._rendezvous.gathering.begin.set()

    def stop(self) -> None:
        """End the class on all laptops, as Ctrl-C does."""
        self._run.signals.receive(signal.SIGINT)

    def run(self) -> RunReport:
        """Train to the end; return the report. Raises RunError if no laptop comes in time."""
        ending = Ending("an error of the course")
        try:
            self.report = self._run.run()
            stopped = self._run.signals.number
            cause = "was stopped" if stopped else self.report.cause
            ending = Ending(cause) if cause else None
            return self.report
        except DistributedError as error:
            ending = Ending(str(error))
            raise
        finally:
            self.roll.finish(ending)
