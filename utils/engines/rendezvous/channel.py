"""An authenticated connection between the host of a rendezvous and one member.

The handshake, before which nobody's word counts (lengths in bytes):

    host -> member    salt (16), host's nonce (32)
    member -> host    member's nonce (32), HMAC(key, "member", salt, both nonces)
    host -> member    HMAC(key, "host", salt, both nonces)      or why not

The key is the code, stretched with the salt; it is never sent, and a recorded proof is worth
nothing with another nonce or in the other role. Afterwards each side has a key of its own,
made of the same, and every frame carries its HMAC-SHA256 (RFC 2104) over a count and what is
said: one that was changed, repeated, left out or turned round ends the connection. A frame is
JSON and bytes after it; nothing that arrives is run. What is said can be read on the way, as
what TensorFlow sends can.
"""

import contextlib
import hmac
import json
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...errors import RunError

MAGIC = "distlab-rendezvous-1"
HANDSHAKE_SECONDS = 10.0
MAX_HELLO_BYTES, MAX_FRAME_BYTES = 1024, 2**20
BEAT_SECONDS, LOST_SECONDS = 1.0, 10.0
NONCE_BYTES, SALT_BYTES, MAC_BYTES = 32, 16, 32
SEND_BUFFER_BYTES = 2**18  # so that a beat never waits long behind a checkpoint
BEAT = "beat"
_LENGTH, _COUNT = struct.Struct("!I"), struct.Struct("!Q")


class ChannelLost(RunError):
    """The other side has hung up, is silent, or has sent what cannot be trusted."""


class WrongCode(ChannelLost):
    """The other side does not know the code, or we do not."""


class Garbled(ChannelLost):
    """What came in place of a handshake is none."""


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
            mac = _make_mac(self._own_key, _COUNT.pack(self._sent) + told)
            self._sent += 1
            try:
                self._end.sendall(_LENGTH.pack(len(told)) + mac + told)
            except OSError as error:
                raise ChannelLost(f"takes nothing any more ({_say(error)})") from None

    def receive(self) -> Frame:
        """Return the next frame that is no beat; raises ChannelLost."""
        while True:
            frame = self._read_frame()
            if frame.kind != BEAT:
                return frame

    def _read_frame(self) -> Frame:
        (length,) = _LENGTH.unpack(_read(self._inbox, _LENGTH.size, LOST_SECONDS))
        if length > MAX_FRAME_BYTES:
            raise ChannelLost(f"has announced a frame of {length} bytes")
        mac, told = (_read(self._inbox, size, LOST_SECONDS) for size in (MAC_BYTES, length))
        wanted = _make_mac(self._peer_key, _COUNT.pack(self._received) + told)
        if not hmac.compare_digest(mac, wanted):
            raise ChannelLost("has sent a frame whose seal is wrong")
        self._received += 1
        head, _, body = told.partition(b"\n")
        try:
            kind, data = json.loads(head)
        except (ValueError, TypeError):
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
    """The host's side of the handshake; `judge` is told whether the proof is right, and decides.

    Raises WrongCode, Garbled, or ChannelLost for anything else.
    """
    ours = secrets.token_bytes(NONCE_BYTES)
    _tell(end, magic=MAGIC, salt=salt.hex(), nonce=ours.hex())
    answer = _hear(end, time.monotonic() + HANDSHAKE_SECONDS)
    theirs, proof = _read_hex(answer, "nonce", NONCE_BYTES), _read_hex(answer, "proof", MAC_BYTES)
    about = salt + ours + theirs
    if not judge(hmac.compare_digest(proof, _make_mac(key, b"member" + about))):
        with contextlib.suppress(ChannelLost):
            _tell(end, refused="code")
        raise WrongCode("does not know the code")
    _tell(end, proof=_make_mac(key, b"host" + about).hex())
    return _make_channel(end, peer, key, about, b"host", b"member")


def introduce(end: socket.socket, peer: str, stretch: Callable[[bytes], bytes]) -> Channel:
    """The member's side of the handshake; `stretch(salt)` returns the key.

    Raises WrongCode, or ChannelLost for anything else.
    """
    hello = _hear(end, time.monotonic() + HANDSHAKE_SECONDS)
    if "refused" in hello:
        kind = WrongCode if hello["refused"] == "wait" else ChannelLost
        raise kind(REFUSALS.get(str(hello["refused"]), "refused"))
    if hello.get("magic") != MAGIC:
        raise Garbled("is no rendezvous of this version of distlab")
    salt, theirs = _read_hex(hello, "salt", SALT_BYTES), _read_hex(hello, "nonce", NONCE_BYTES)
    ours, key = secrets.token_bytes(NONCE_BYTES), stretch(salt)
    about = salt + theirs + ours
    _tell(end, nonce=ours.hex(), proof=_make_mac(key, b"member" + about).hex())
    answer = _hear(end, time.monotonic() + HANDSHAKE_SECONDS)
    if "refused" in answer:
        raise WrongCode(REFUSALS.get(str(answer["refused"]), "refused"))
    proof = _read_hex(answer, "proof", MAC_BYTES)
    if not hmac.compare_digest(proof, _make_mac(key, b"host" + about)):
        raise WrongCode("does not know the code itself: it is not your host")
    return _make_channel(end, peer, key, about, b"member", b"host")


REFUSALS = {
    "code": "says that the code is wrong",
    "wait": "has seen too many wrong codes from this machine: wait a minute",
    "busy": "is busy with too many callers: wait a moment",
}


def refuse(end: socket.socket, why: str) -> None:
    """Say why, one of REFUSALS, and hang up."""
    with contextlib.suppress(ChannelLost):
        _tell(end, refused=why)
    end.close()


def _make_channel(
    end: socket.socket, peer: str, key: bytes, about: bytes, own: bytes, other: bytes
) -> Channel:
    if end.family != socket.AF_UNIX:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    keys = [_make_mac(key, b"frames of the " + role + about) for role in (own, other)]
    return Channel(end, peer, *keys)


def _make_mac(key: bytes, told: bytes) -> bytes:
    return hmac.digest(key, told, "sha256")


def _tell(end: socket.socket, **data: str) -> None:
    told = json.dumps(data).encode()
    try:
        end.settimeout(HANDSHAKE_SECONDS)
        end.sendall(_LENGTH.pack(len(told)) + told)
    except OSError as error:
        raise ChannelLost(f"takes nothing ({_say(error)})") from None


def _hear(end: socket.socket, deadline: float) -> dict[str, Any]:
    """Return what is said before the two know each other: a small object, in time."""
    (length,) = _LENGTH.unpack(_read(end, _LENGTH.size, deadline - time.monotonic()))
    if length > MAX_HELLO_BYTES:
        raise Garbled("is no rendezvous: it talks in another way")
    try:
        told = json.loads(_read(end, length, deadline - time.monotonic()))
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise Garbled("has sent what is no message")
    return told


def _read_hex(told: dict[str, Any], name: str, size: int) -> bytes:
    try:
        value = bytes.fromhex(told.get(name))
    except (TypeError, ValueError):
        value = b""
    if len(value) != size:
        raise Garbled(f"has sent no {name} of {size} bytes")
    return value


def _read(end: socket.socket, size: int, seconds: float) -> bytes:
    """Return `size` bytes, all of them within `seconds`; raises ChannelLost."""
    deadline, parts, missing = time.monotonic() + seconds, [], size
    while missing:
        try:
            end.settimeout(max(deadline - time.monotonic(), 0.001))
            part = end.recv(min(missing, 2**16))
        except TimeoutError:
            raise ChannelLost(f"has said nothing for {seconds:.0f} s") from None
        except OSError as error:
            raise ChannelLost(_say(error)) from None
        if not part:
            raise ChannelLost("has hung up")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _say(error: OSError) -> str:
    return error.strerror or type(error).__name__
