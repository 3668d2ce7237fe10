"""The machine that hosts a test of connections: who is there tries all others, and that is all."""

import socket
from collections.abc import Callable
from dataclasses import asdict, replace

from ...cluster.signals import Signals
from ...errors import RunError
from ...processes.handshake import ChannelLost
from ..settings import RunReport
from .channel import open_door
from .lobby import open_lobby, report_test
from .settings import RendezvousSettings
from .trial import try_pairs


def host_trial(
    machines: int,
    rendezvous: RendezvousSettings,
    listener: socket.socket,
    code: str,
    say: Callable[[str], None],
) -> RunReport:
    """Test all ways between `machines` machines, or those that have come in time.

    The report's cause names the blocked routes, None if there are none.
    """
    about, lobby = open_lobby([], None, rendezvous, listener, say)
    door = open_door(listener, code, lobby.welcome)
    seconds, begin = rendezvous.join_seconds, rendezvous.gathering.begin
    closed: list[str] | None = None
    try:
        with Signals() as signals:
            while closed is None:
                crew = lobby.gather(
                    1, 2, machines, seconds, lambda: signals.number, seconds, begin.is_set
                )
                try:
                    if signals.number:
                        closed = [f"stopped by {signals.name}"]
                    else:
                        closed = try_pairs(about, [guest for guest, _ in crew])
                except ChannelLost as lost:
                    say(f"lost a machine, which {lost}; starting another round")
    except RunError as error:
        closed = [str(error)]
        raise
    finally:
        guests = lobby.guests
        report = report_test(["stopped"] if closed is None else closed, len(guests) + 1)
        lobby.finish(guests, report=asdict(report))
        door.close()
        for guest in guests:
            guest.channel.close()
    return replace(report, status=128 + signals.number) if signals.number else report
