"""Call the host of a rendezvous, which may start later, and recognize another program there."""

import contextlib
import functools
import socket
import time
from collections.abc import Callable

from ...cluster.signals import Signals
from ...errors import InputError, RunError
from ...processes.connection import split_address
from ...processes.handshake import ChannelLost, Garbled, WrongCode, hear_host
from .channel import MeetingChannel, introduce, open_connection
from .code import stretch_code
from .settings import RendezvousSettings

RETRY_SECONDS, CONNECT_SECONDS, CHECK_SECONDS = 0.5, 5.0, 2.0


class NoHost(InputError):
    """Another program answers where a host should."""

    def __init__(self, address: str, does: str) -> None:
        super().__init__(
            f"The rendezvous must be a free port, got {address}: another program answers there, "
            f"which {does}. Name another port, the same on every machine."
        )


def check_host(address: str) -> None:
    """Raise NoHost if another program answers. If nothing does, a host may still come."""
    with contextlib.suppress(OSError, ChannelLost):
        end = socket.create_connection(split_address(address), CHECK_SECONDS)
        with contextlib.closing(open_connection(end, address)) as connection:
            try:
                hear_host(connection)
            except Garbled as error:
                raise NoHost(address, str(error)) from None


def connect_to_host(
    rendezvous: RendezvousSettings,
    code: str,
    say: Callable[[str], None],
    stop: Signals,
    was_there: bool = False,
) -> MeetingChannel | None:
    """Return the channel to the host, who may appear later; None once `stop` has a signal.

    Raises InputError if the host refuses the code, NoHost if another program answers, RunError if
    no host starts in time. If the host `was_there` before, an odd answer is a reason to call
    again: a host with much to do may be silent.
    """
    deadline = time.monotonic() + rendezvous.join_seconds
    stretch = functools.cache(lambda salt: stretch_code(code, salt))
    has_said = False
    while not stop.number:
        try:
            left = min(CONNECT_SECONDS, max(deadline - time.monotonic(), RETRY_SECONDS))
            return _try_host(rendezvous, stretch, left)
        except WrongCode as error:
            raise InputError(f"The host at {rendezvous.address} {error}.") from None
        except (OSError, ChannelLost) as error:
            if isinstance(error, Garbled) and not was_there:
                raise NoHost(rendezvous.address, str(error)) from None
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            where = f"{rendezvous.join_seconds:.0f} s for a host at {rendezvous.address} ({why})"
            if not has_said:
                say(f"waiting up to {where}")
            if time.monotonic() > deadline:
                cure = "Start the run there first, or correct the address."
                raise RunError(f"Waited {where}. {cure}") from None
            has_said = True
            time.sleep(RETRY_SECONDS)
    return None


def _try_host(
    rendezvous: RendezvousSettings, stretch: Callable[[bytes], bytes], seconds: float
) -> MeetingChannel:
    source = (rendezvous.advertise_address, 0) if rendezvous.advertise_address else None
    end = socket.create_connection(split_address(rendezvous.address), seconds, source)
    try:
        return introduce(end, rendezvous.address, stretch, rendezvous.heartbeat_seconds)
    except BaseException:
        end.close()
        raise
