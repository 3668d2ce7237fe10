"""A connection between the host of a rendezvous and one member; both know the code.

It is a sealed connection of `processes`. Both sides also hear that the other lives. A
frame is a kind, plain data, and bytes; nothing that arrives is run. Messages can be read on the
way, as TensorFlow's can.
"""

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...processes import handshake
from ...processes.connection import Connection, PeerGone, PeerSilent
from ...processes.door import Door
from ...processes.handshake import ChannelLost, describe
from .code import stretch_code
from .settings import HEARTBEAT_SECONDS

MAX_FRAME_BYTES = 2**20
BEAT_SECONDS = 1.0
SEND_BUFFER_BYTES = 2**18  # so that a beat never waits long behind a checkpoint
BEAT = "beat"


@dataclass
class MeetingFrame:
    """A received message: `kind`, plain data, and the bytes after it."""

    kind: str
    data: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""

    def get(self, name: str, wanted: type, default: Any = None) -> Any:
        """Return a field; raises ChannelLost if its type isn't the expected one."""
        value = self.data.get(name, default)
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise ChannelLost(f"has sent {self.kind!r} with a wrong {name}: {str(value)[:40]!r}")
        return value


class MeetingChannel:
    """One side of a connection after the handshake. `send` may be called from any thread.

    A beat goes out every second; who has heard nothing for `lost_seconds` raises ChannelLost
    in `receive`.
    """

    def __init__(self, connection: Connection, lost_seconds: float = HEARTBEAT_SECONDS) -> None:
        self._connection, self._lost_seconds = connection, lost_seconds
        connection.limit_seconds, connection.max_bytes = lost_seconds, MAX_FRAME_BYTES
        self.heard_at = time.monotonic()  # when the other side was heard last
        self._sending, self._closed = threading.Lock(), threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    @property
    def own_address(self) -> str:
        """The address of this machine at which the other side sees it."""
        return self._connection.own_address

    def send(self, kind: str, body: bytes = b"", **data: Any) -> None:
        """Send one frame; raises ChannelLost if the other side takes nothing."""
        with self._sending:
            try:
                self._connection.send([kind, data], body)
            except (PeerGone, PeerSilent) as error:
                raise ChannelLost(describe(error, self._connection)) from None

    def receive(self) -> MeetingFrame:
        """Return the next frame that isn't a heartbeat; raises ChannelLost."""
        while True:
            try:
                message = self._connection.receive()
            except PeerSilent:
                raise ChannelLost(f"has said nothing for {self._lost_seconds:.0f} s") from None
            except PeerGone as error:
                raise ChannelLost(describe(error, self._connection)) from None
            self.heard_at = time.monotonic()
            try:
                kind, data = message.content
            except (ValueError, TypeError):
                raise ChannelLost("has sent something that isn't a message") from None
            if kind != BEAT:
                data = data if isinstance(data, dict) else {}
                return MeetingFrame(str(kind), data, bytes(message.body))

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            with contextlib.suppress(ChannelLost):
                self.send(BEAT)

    def close(self) -> None:
        """Hang up; safe to call twice and from any thread."""
        self._closed.set()
        self._connection.close()


def open_door(
    listener: socket.socket,
    code: str,
    welcome: Callable[[MeetingChannel], None],
    lost_seconds: float = HEARTBEAT_SECONDS,
) -> Door:
    """Let in who knows the code; `welcome(channel)` is called for each of them."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)  # inherited
    salt = secrets.token_bytes(handshake.SALT_BYTES)

    def let_in(connection: Connection) -> None:
        welcome(MeetingChannel(connection, lost_seconds))

    return Door(listener, stretch_code(code, salt), let_in, salt)


def introduce(
    end: socket.socket,
    peer: str,
    stretch: Callable[[bytes], bytes],
    lost_seconds: float = HEARTBEAT_SECONDS,
) -> MeetingChannel:
    """Return the channel to the host; raises as `handshake.introduce` does."""
    connection = open_connection(end, peer)
    handshake.introduce(connection, stretch)
    return MeetingChannel(connection, lost_seconds)


def open_connection(end: socket.socket, peer: str) -> Connection:
    """Return the connection on which the handshake begins."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return handshake.make_connection(end, peer)
