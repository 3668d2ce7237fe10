"""An authenticated connection between the host of a rendezvous and one member.

After the handshake (`engines.handshake`), whose key is the code stretched with the salt, each
side has a key of its own, and every frame carries its HMAC-SHA256 over a count and what is
said: one that was changed, repeated, left out or turned round ends the connection. A frame is
JSON and bytes after it; nothing that arrives is run. What is said can be read on the way, as
what TensorFlow sends can.
"""

import contextlib
import hmac
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import handshake
from ..handshake import LENGTH, MAC_BYTES, ChannelLost, describe, make_mac, read_bytes

MAX_FRAME_BYTES = 2**20
BEAT_SECONDS, LOST_SECONDS = 1.0, 10.0
SEND_BUFFER_BYTES = 2**18  # so that a beat never waits long behind a checkpoint
BEAT = "beat"
_COUNT = struct.Struct("!Q")


@dataclass
class Frame:
    """What arrived: `kind`, plain data, and the bytes after it."""

    kind: str
    data: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""

    def get(self, name: str, wanted: type, default: Any = None) -> Any:
        """Return a field; raises ChannelLost where it is not of the type that is wanted."""
        value = self.data.get(name, default)
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise ChannelLost(f"has sent {self.kind!r} with {name} {str(value)[:40]!r}")
        return value


class Channel:
    """One side of a connection after the handshake. `send` may be called from any thread.

    A beat goes out every second; who has heard nothing for `LOST_SECONDS` raises ChannelLost
    in `receive`. `peer` is the other side's address.
    """

    def __init__(self, end: socket.socket, peer: str, own_key: bytes, peer_key: bytes) -> None:
        self.peer, self._end, self._own_key, self._peer_key = peer, end, own_key, peer_key
        self._inbox = end.dup()  # with a time limit of its own
        self._sent = self._received = 0
        self.heard_at = time.monotonic()  # when the other side was heard last
        self._sending, self._closed = threading.Lock(), threading.Event()
        end.settimeout(LOST_SECONDS)
        threading.Thread(target=self._beat, daemon=True).start()

    @property
    def own_address(self) -> str:
        """The address of this machine at which the other side sees it."""
        return self._end.getsockname()[0]

    def send(self, kind: str, body: bytes = b"", **data: Any) -> None:
        """Send one frame; raises ChannelLost if the other side takes nothing."""
        told = json.dumps([kind, data]).encode() + b"\n" + body
        with self._sending:
            mac = make_mac(self._own_key, _COUNT.pack(self._sent) + told)
            self._sent += 1
            try:
                self._end.sendall(LENGTH.pack(len(told)) + mac + told)
            except OSError as error:
                raise ChannelLost(f"takes nothing any more ({describe(error)})") from None

    def receive(self) -> Frame:
        """Return the next frame that is no beat; raises ChannelLost."""
        while True:
            frame = self._read_frame()
            if frame.kind != BEAT:
                return frame

    def _read_frame(self) -> Frame:
        (length,) = LENGTH.unpack(read_bytes(self._inbox, LENGTH.size, LOST_SECONDS))
        if length > MAX_FRAME_BYTES:
            raise ChannelLost(f"has announced a frame of {length} bytes")
        mac, told = (read_bytes(self._inbox, size, LOST_SECONDS) for size in (MAC_BYTES, length))
        wanted = make_mac(self._peer_key, _COUNT.pack(self._received) + told)
        if not hmac.compare_digest(mac, wanted):
            raise ChannelLost("has sent a frame whose seal is wrong")
        self._received += 1
        self.heard_at = time.monotonic()
        head, _, body = told.partition(b"\n")
        try:
            kind, data = json.loads(head)
        except (ValueError, TypeError, RecursionError):
            raise ChannelLost("has sent what is no message") from None
        return Frame(str(kind), data if isinstance(data, dict) else {}, body)

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            with contextlib.suppress(ChannelLost):
                self.send(BEAT)

    def close(self) -> None:
        """Hang up; safe to call twice and from any thread."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()
        self._inbox.close()


def admit(
    end: socket.socket, peer: str, key: bytes, salt: bytes, judge: Callable[[bool], bool]
) -> Channel:
    """Return the channel to a member that has shown the key; raises as `handshake.admit` does."""
    said = handshake.admit(end, key, salt, judge)
    return _make_channel(end, peer, key, said, b"host", b"member")


def introduce(end: socket.socket, peer: str, stretch: Callable[[bytes], bytes]) -> Channel:
    """Return the channel to the host; raises as `handshake.introduce` does."""
    key, said = handshake.introduce(end, stretch)
    return _make_channel(end, peer, key, said, b"member", b"host")


def _make_channel(
    end: socket.socket, peer: str, key: bytes, said: bytes, own: bytes, other: bytes
) -> Channel:
    if end.family != socket.AF_UNIX:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    keys = [make_mac(key, b"frames of the " + role + said) for role in (own, other)]
    return Channel(end, peer, *keys)
