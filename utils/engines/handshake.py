"""How two ends of a connection show each other that they hold the same key, without sending it.

Nobody's word counts before it (lengths in bytes):

    host -> member    salt (16), host's nonce (32)
    member -> host    member's nonce (32), HMAC(key, "member", salt, both nonces)
    host -> member    HMAC(key, "host", salt, both nonces)      or why not

The host is a launcher or the machine that hosts a rendezvous, the member an agent or a machine
that joins. A recorded proof is worth nothing with another nonce or in the other role. Each
message is a small JSON object after four bytes with its length.
"""

import contextlib
import hmac
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import RunError

AGENT_VARIABLE = "DISTLAB_AGENT"
MAGIC = "distlab-rendezvous-1"
HANDSHAKE_SECONDS, MAX_HELLO_BYTES = 10.0, 1024
NONCE_BYTES, SALT_BYTES, MAC_BYTES = 32, 16, 32
REFUSALS = {
    "code": "says that the code is wrong",
    "wait": "has seen too many wrong codes from this machine: wait a minute",
    "busy": "is busy with too many callers: wait a moment",
}
LENGTH = struct.Struct("!I")


class ChannelLost(RunError):
    """The other side has hung up, is silent, or has sent what cannot be trusted."""


class Silent(ChannelLost):
    """The other side is there, and has said nothing for too long."""


class WrongCode(ChannelLost):
    """The other side does not know the code, or we do not."""


class Garbled(ChannelLost):
    """What came in place of a handshake is none."""


@dataclass(frozen=True)
class Call:
    """Where an agent calls, and the key that it shares with its launcher.

    It travels in the environment of the processes that an engine starts.
    """

    address: str
    key: str

    def to_text(self) -> str:
        return json.dumps(asdict(self))


def take_call() -> Call:
    """Return the call of this process, and take it out of what its children inherit."""
    return Call(**json.loads(os.environ.pop(AGENT_VARIABLE)))


def admit(
    end: socket.socket, key: bytes, salt: bytes = bytes(SALT_BYTES),
    judge: Callable[[bool], bool] = bool,
) -> bytes:  # fmt: skip
    """Be the host, and return what both sides have said, which is theirs alone.

    `judge` is told whether the proof is right, and decides. Raises WrongCode, Garbled, or
    ChannelLost for anything else.
    """
    ours = secrets.token_bytes(NONCE_BYTES)
    _tell(end, magic=MAGIC, salt=salt.hex(), nonce=ours.hex())
    answer = _hear(end)
    theirs, proof = _read_hex(answer, "nonce", NONCE_BYTES), _read_hex(answer, "proof", MAC_BYTES)
    said = salt + ours + theirs
    if not judge(hmac.compare_digest(proof, make_mac(key, b"member" + said))):
        with contextlib.suppress(ChannelLost):
            _tell(end, refused="code")
        raise WrongCode("does not know the code")
    _tell(end, proof=make_mac(key, b"host" + said).hex())
    return said


def introduce(end: socket.socket, stretch: Callable[[bytes], bytes]) -> tuple[bytes, bytes]:
    """Be the member; return the key, which `stretch(salt)` makes, and what both sides have said.

    Raises as `hear_host`, WrongCode, Garbled, or ChannelLost for anything else.
    """
    hello = hear_host(end)
    salt, theirs = _read_hex(hello, "salt", SALT_BYTES), _read_hex(hello, "nonce", NONCE_BYTES)
    ours, key = secrets.token_bytes(NONCE_BYTES), stretch(salt)
    said = salt + theirs + ours
    _tell(end, nonce=ours.hex(), proof=make_mac(key, b"member" + said).hex())
    answer = _hear(end)
    if "refused" in answer:
        raise WrongCode(REFUSALS.get(str(answer["refused"]), "refused"))
    proof = _read_hex(answer, "proof", MAC_BYTES)
    if not hmac.compare_digest(proof, make_mac(key, b"host" + said)):
        raise WrongCode("does not know the code itself: it is not your host")
    return key, said


def hear_host(end: socket.socket) -> dict[str, Any]:
    """Return the first words of a host; raises Garbled where another program answers.

    A host speaks first, and at once. WrongCode or ChannelLost where it refuses to talk.
    """
    try:
        hello = _hear(end)
    except Silent as silent:
        raise Garbled(str(silent)) from None
    if "refused" in hello:
        kind = WrongCode if hello["refused"] == "wait" else ChannelLost
        raise kind(REFUSALS.get(str(hello["refused"]), "refused"))
    if hello.get("magic") != MAGIC:
        raise Garbled("is no rendezvous of this version of distlab")
    return hello


def refuse(end: socket.socket, why: str) -> None:
    """Be a host that admits nobody: say why, one of REFUSALS, and hang up."""
    with contextlib.suppress(ChannelLost):
        _tell(end, refused=why)
    end.close()


def make_mac(key: bytes, told: bytes) -> bytes:
    """Return HMAC-SHA256 (RFC 2104)."""
    return hmac.digest(key, told, "sha256")


def read_bytes(end: socket.socket, size: int, seconds: float) -> bytes:
    """Return `size` bytes, all of them within `seconds`; raises ChannelLost."""
    deadline, parts, missing = time.monotonic() + seconds, [], size
    while missing:
        try:
            end.settimeout(max(deadline - time.monotonic(), 0.001))
            part = end.recv(min(missing, 2**16))
        except TimeoutError:
            raise Silent(f"has said nothing for {seconds:.0f} s") from None
        except OSError as error:
            raise ChannelLost(describe(error)) from None
        if not part:
            raise ChannelLost("has hung up")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def describe(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def _tell(end: socket.socket, **data: str) -> None:
    told = json.dumps(data).encode()
    try:
        end.settimeout(HANDSHAKE_SECONDS)
        end.sendall(LENGTH.pack(len(told)) + told)
    except OSError as error:
        raise ChannelLost(f"takes nothing ({describe(error)})") from None


def _hear(end: socket.socket) -> dict[str, Any]:
    """Return what is said before the two know each other: a small object, in time."""
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    first = read_bytes(end, LENGTH.size, HANDSHAKE_SECONDS)
    (length,) = LENGTH.unpack(first)
    if length > MAX_HELLO_BYTES:
        raise Garbled(f"begins with {first.decode('ascii', 'replace')!r}")
    try:
        told = json.loads(read_bytes(end, length, deadline - time.monotonic()))
    except (ValueError, RecursionError):  # brackets in brackets
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
