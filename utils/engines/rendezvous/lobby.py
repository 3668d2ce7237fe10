"""The lobby of a run: machines are compared at the door, and wait for a place in order."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...errors import RunError
from ...processes.handshake import ChannelLost
from ..settings import RunReport, RunSettings
from .channel import MeetingChannel
from .compare import describe_machine, find_difference
from .guest import Guest
from .names import find_free_name
from .settings import RendezvousSettings, explain_own_address

ELASTIC_SECONDS = 10.0  # for more members, once there are enough
WORD_SECONDS = 10.0  # between two words on who is missing
FINISH_SECONDS = 3.0  # for guests to hear how it has ended
MAX_GUESTS = 256


class Lobby:
    """The members of a run, in the order of joining.

    `about` is what the host says of itself. `gather` is called by the host. In a test nothing is
    run, and machines that want to run are sent away.
    """

    def __init__(self, about: Mapping[str, Any], say: Callable[[str], None], hint: str) -> None:
        """`hint` is a sentence on why machines may not join, "" if nothing stands against it."""
        self._same, self._only_tests = about["same"], about.get("test", False)
        self._say, self._hint = say, hint
        self._guests: list[Guest] = []
        self._on_join: Callable[[Guest], None] = lambda guest: None
        self._changed = threading.Condition()
        self.is_running = False
        self.when_running = "the run has begun, and you take part after a restart if it has room"
        self.own_name: str | None = None  # the host's, if the others' must differ
        self.read_piece: Callable[[str, int], bytes | None] = lambda path, offset: None
        self.try_out: Callable[[Guest], list[str]] | None = None  # who only tests its connection

    @property
    def guests(self) -> list[Guest]:
        """Those who take part or wait for a place."""
        with self._changed:
            return [guest for guest in self._guests if guest.lost is None]

    def welcome(self, channel: MeetingChannel) -> None:
        """Take a caller who knows the code into the run, or tell why not."""
        try:
            frame = channel.receive()
            if frame.kind != "join":
                raise ChannelLost("did not join")
            guest = Guest(channel, frame, self._note_change)
            why = find_difference(self._same, guest.same)
            if why is None and guest.only_tests and self.try_out is not None:
                return self._test(guest)
            if why is None and self._only_tests and not guest.only_tests:
                why = "This is only a connection test. Run the same test, or wait for the run."
            if why is None and len(self.guests) >= MAX_GUESTS:
                why = f"At most {MAX_GUESTS} machines can join, and that many have."
            if why is not None:
                self._say(f"{guest.host} ({guest.address}) can't join. {why}")
                channel.send("refuse", why=why)
                time.sleep(0.5)  # for it to read that, before we hang up
                return channel.close()
            self._enter(guest)
        except ChannelLost:
            channel.close()

    def _test(self, guest: Guest) -> None:
        """Try the ways between this machine and a guest who takes no part; tell it."""
        guest.listen()
        try:
            closed = self.try_out(guest)
        except ChannelLost:
            return
        except RunError as error:
            closed = [str(error)]
        told = "; ".join(closed) or "all ways are open"
        self._say(f"{guest.host} ({guest.address}) tested its connections: {told}")
        self.finish([guest], report=asdict(report_test(closed, 2)))
        guest.channel.close()

    def _enter(self, guest: Guest) -> None:
        guest.read_piece = self.read_piece
        if self.own_name is not None:
            taken = {self.own_name, *(other.host for other in self.guests)}
            guest.host = find_free_name(guest.host, taken)
        workers = f"{guest.seats} worker{'s' * (guest.seats != 1)}"
        self._say(f"{guest.host} ({guest.address}) has joined with {workers}")
        said = self.when_running if self.is_running else "waiting for the others"
        guest.send("say", text=f"joined; {said}")
        guest.listen()
        for other in self.guests:
            if other.identity == guest.identity != "":
                other.lose("has called again")
        with self._changed:
            self._guests.append(guest)
            self._changed.notify_all()
        self._on_join(guest)

    def tell_joined(self, on_join: Callable[[Guest], None]) -> None:
        """Call `on_join` for each machine that has joined or will."""
        self._on_join = on_join
        for guest in self.guests:
            on_join(guest)

    def _note_change(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def gather(
        self,
        own_seats: int,
        least: int,
        most: int,
        seconds: float,
        stop: Callable[[], int],
        settle_seconds: float = ELASTIC_SECONDS,
        begin: Callable[[], bool] = lambda: False,
    ) -> list[tuple[Guest, int]]:
        """Return who takes part, each with its number of workers; `own_seats` are the host's.

        Waits for `most` workers; with `least` of them, for `settle_seconds` more, or until
        `begin()`. Returns early when `stop()` isn't 0. Raises RunError if too few come
        within `seconds`.
        """
        begun = now = time.monotonic()
        enough_since, next_word = None, begun + WORD_SECONDS
        while not stop():
            present = own_seats + sum(guest.seats for guest in self.guests)
            enough_since = (enough_since or now) if present >= least else None
            settled = enough_since and (now - enough_since > settle_seconds or begin())
            if present >= most or settled:
                break
            if now - begun > seconds and not enough_since:
                raise RunError(
                    f"The run needs {least} workers, got {present} within {seconds:.0f} s. Type "
                    f"the same command on more machines, or ask for fewer workers.{self._hint}"
                )
            if now > next_word:
                next_word = now + WORD_SECONDS
                words = f"{present} of {most} workers are here; waiting for more machines"
                self._say(f"{words}.{self._hint}" if self._hint else words)
            with self._changed:
                self._changed.wait(0.2)
            now = time.monotonic()
        return self._seat(most - own_seats)

    def _seat(self, seats: int) -> list[tuple[Guest, int]]:
        """Return those who joined first, in the order of their ranks."""
        seated = []
        for guest in self.guests:
            if taken := min(guest.seats, seats):
                seated.append((guest, taken))
                seats -= taken
        return sorted(seated, key=lambda pair: pair[0].order)

    def finish(self, guests: Sequence[Guest], **data: object) -> None:
        """Tell guests how all has ended, and give them time to hear that."""
        for guest in guests:
            with contextlib.suppress(ChannelLost):
                guest.send("finish", **data)
        self.wait_until(lambda: all(guest.lost for guest in guests), FINISH_SECONDS)

    def wait_until(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Wait until `is_done()`, which is checked whenever a guest changes; return its value."""
        with self._changed:
            return self._changed.wait_for(is_done, seconds)


def report_test(closed: Sequence[str], machines: int) -> RunReport:
    """Return how a test of connections has ended: status 1 for closed ways, 0 for none."""
    return RunReport(machines, 0, 0.0, [], "; ".join(closed) or None, int(bool(closed)))


def open_lobby(
    command: Sequence[str],
    settings: RunSettings | None,
    rendezvous: RendezvousSettings,
    listener: socket.socket,
    say: Callable[[str], None],
) -> tuple[dict[str, Any], Lobby]:
    """Return what this machine says of itself, and the lobby of the others."""
    place = listener.getsockname()[0]
    about = describe_machine(command, settings, rendezvous)
    about["address"] = rendezvous.advertise_address or place
    return about, Lobby(about, say, explain_own_address(rendezvous.address, place))
