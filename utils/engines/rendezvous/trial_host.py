"""The machine that hosts a test of connections: who is there tries all others, and that is all."""

import socket
from collections.abc import Callable

from ...cluster.signals import Signals
from ...errors import RunError
from ...processes.handshake import ChannelLost
from ..settings import RunReport
from .channel import open_door
from .compare import describe_machine
from .lobby import Lobby, tell_test
from .settings import RendezvousSettings, explain_own_address
from .trial import try_pairs

FINISH_SECONDS = 3.0


class HostedTrial:
    """A test of all ways between `machines` machines, or those that have come in time."""

    def __init__(
        self,
        machines: int,
        rendezvous: RendezvousSettings,
        listener: socket.socket,
        code: str,
        say: Callable[[str], None],
    ) -> None:
        self._machines, self._rendezvous, self._say = machines, rendezvous, say
        about = describe_machine([], None, rendezvous)
        self._about = about | {"address": rendezvous.advertise_address or listener.getsockname()[0]}
        hint = explain_own_address(rendezvous.address, listener.getsockname()[0])
        self._lobby = Lobby(about["same"], say, only_tests=True, hint=hint)
        self._door = open_door(listener, code, self._lobby.welcome)

    def run(self) -> RunReport:
        """Return the report: its cause names the blocked routes, None if there are none."""
        closed: list[str] = ["stopped"]
        try:
            with Signals() as signals:
                closed = self._try_all(signals)
        except RunError as error:
            closed = [str(error)]
            raise
        finally:
            guests = self._lobby.guests
            for guest in guests:
                tell_test(guest, closed, len(guests) + 1)
            self._lobby.wait_until(lambda: all(guest.lost for guest in guests), FINISH_SECONDS)
            self._door.close()
            for guest in guests:
                guest.channel.close()
        status = 128 + signals.number if signals.number else int(bool(closed))
        return RunReport(len(guests) + 1, 0, 0.0, [], "; ".join(closed) or None, status)

    def _try_all(self, signals: Signals) -> list[str]:
        seconds, begin = self._rendezvous.join_seconds, self._rendezvous.gathering.begin
        while True:
            crew = self._lobby.gather(
                1, 2, self._machines, seconds, lambda: signals.number, seconds, begin.is_set
            )
            if signals.number:
                return [f"stopped by {signals.name}"]
            try:
                return try_pairs(self._about, [guest for guest, _ in crew])
            except ChannelLost as lost:
                self._say(f"lost a machine, which {lost}; starting another round")
