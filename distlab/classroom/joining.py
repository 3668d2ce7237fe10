"""A student's laptop in a class: joins, trains along, or only tries the connections."""

import getpass
import sys
import tempfile
import threading
from dataclasses import replace

from distlab.classroom.events import read_event
from distlab.classroom.meeting import COMMAND, ClassPlace, Say, say
from utils.checks import check_count
from utils.engines import RunReport
from utils.engines.rendezvous import join_rendezvous
from utils.engines.rendezvous.calling import check_host
from utils.engines.rendezvous.code import ask_for_code, make_code, read_code, tidy_code
from utils.engines.rendezvous.lobby import MAX_GUESTS
from utils.engines.rendezvous.settings import confirm_trust, open_address
from utils.engines.rendezvous.trial_host import host_trial
from utils.environment import LOG_LINE, find_kernel_shell
from utils.errors import InputError

STEPS_BETWEEN = 20  # of the lines that a student sees


def join(
    address: str, name: str | None = None, code: str | None = None, tell: Say = say, **place: object
) -> RunReport:
    """Take part in the class at `address` to its end, from a cell or a shell; return its report.

        from distlab.classroom import join
        join("192.168.1.10", name="Ada")          # asks for the code that the teacher shows

    `place` are the other fields of `ClassPlace`, such as `trust_network=True`. Interrupt it to
    leave. Raises InputError for a wrong code, RunError where the teacher's machine is lost.
    """
    here = ClassPlace(address, name, **place)
    rendezvous = here.to_rendezvous()
    confirm_trust(rendezvous.address, here.trust_network, tell)
    given = code or _ask(rendezvous.address)
    tell(f"joining the class at {rendezvous.address} as {rendezvous.gathering.name}")
    return join_rendezvous(COMMAND, here.to_run(), rendezvous, given, StudentView(tell).show, tell)


def try_connections(
    address: str,
    machines: int = 2,
    name: str | None = None,
    code: str | None = None,
    tell: Say = say,
    **place: object,
) -> RunReport:
    """Try the connections only; the report's cause names the blocked routes, None if there are
    none.

    On the machine that owns `address` this hosts the test until `machines` are there; anywhere
    else it takes part, in such a test or in a class that hasn't ended.
    """
    here = ClassPlace(address, name, **place)
    rendezvous = here.to_rendezvous(only_tests=True)
    listener = open_address(rendezvous.address)
    if listener is None:
        given = code or _ask(rendezvous.address)
        with tempfile.TemporaryDirectory() as folder:
            run = replace(here, logs=folder).to_run()
            return join_rendezvous(COMMAND, run, rendezvous, given, lambda *_: None, tell)
    with listener:
        check_count("machines", machines, 2, MAX_GUESTS)
        given = code or read_code()
        known = given or make_code()
        tell(f"testing: type  distlab classroom test {rendezvous.address}  on {machines - 1} more")
        if given is None:
            tell(f"the code is  {known}")
        begin_at_enter(rendezvous.gathering.begin, "tries those who are here", tell)
        return host_trial(machines, rendezvous, listener, known, tell)


def _ask(address: str) -> str:
    """Return the code, from the environment or typed: in a notebook the browser asks."""
    if read_code() is not None or not find_kernel_shell():
        return ask_for_code(lambda: check_host(address))
    check_host(address)
    if code := tidy_code(getpass.getpass("Code that the teacher shows: ")):
        return code
    raise InputError("The code is missing. Type the one that the teacher shows.")


def begin_at_enter(begin: threading.Event, what: str, tell: Say) -> None:
    """At a terminal, let Enter set `begin`."""
    if not sys.stdin.isatty() or find_kernel_shell():
        return
    tell(f"Enter {what}")
    threading.Thread(target=lambda: sys.stdin.readline() and begin.set(), daemon=True).start()


class StudentView:
    """A student's view of the own task: a step now and then, and errors in full."""

    def __init__(self, tell: Say) -> None:
        self._tell = tell

    def show(self, task: str, line: str) -> None:
        event = read_event(line)
        if event is None:
            if not LOG_LINE.match(line):
                self._tell(line)
            return
        kind, step = event["event"], event.get("step", 0)
        if kind == "restore":
            self._tell(f"you are {task}; training continues after step {step}")
        elif kind == "step" and step % STEPS_BETWEEN == 0:
            loss = float("nan") if event["loss"] is None else event["loss"]
            self._tell(f"step {step}, loss {loss:.4f}")
        elif kind == "weights":
            self._tell(f"done after step {step}; weights {event['checksum'][:12]}")
