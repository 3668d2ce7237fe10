"""Prove to the other end of a connection that both hold the same key, without sending it.

Nobody's word counts before it (lengths in bytes):

    host -> member    salt (16), host's nonce (32)
    member -> host    member's nonce (32), HMAC(key, "member", salt, both nonces)
    host -> member    HMAC(key, "host", salt, both nonces)      or why not

The host is a launcher or the machine that hosts a rendezvous, the member an agent or a machine that
joins. A recorded proof is worth nothing with another nonce or in the other role. From then on each
direction is sealed with its own key, made from both sides' messages: a program that has only
relayed the proofs between two others can't send anything.
"""

import contextlib
import hmac
import secrets
import socket
from collections.abc import Callable
from typing import Any

from ..errors import RunError
from .connection import LIMIT_SECONDS, NO_MESSAGE, Connection, PeerGone, PeerSilent

MAGIC = "distlab-2"
HANDSHAKE_SECONDS, MAX_HELLO_BYTES = 10.0, 1024
NONCE_BYTES, SALT_BYTES, KEY_BYTES = 32, 16, 32
REFUSALS = {
    "code": "says that the code is wrong. Type the code that it shows",
    "wait": "has seen too many wrong codes from this machine. Wait a minute",
    "busy": "is busy with too many callers. Wait a moment",
}


class ChannelLost(RunError):
    """The other side has hung up, is silent, or has sent what can't be trusted."""


class WrongCode(ChannelLost):
    """The other side doesn't know the code, or we don't."""


class Garbled(ChannelLost):
    """The other side's first bytes aren't a valid handshake."""


def make_connection(end: socket.socket, peer: str = "") -> Connection:
    """Return a connection that accepts only small messages before the handshake is over."""
    return Connection(end, peer, HANDSHAKE_SECONDS, MAX_HELLO_BYTES)


def admit(
    connection: Connection,
    key: bytes,
    salt: bytes = bytes(SALT_BYTES),
    judge: Callable[[bool], bool] = bool,
) -> None:
    """Be the host, and seal the connection. It takes messages of any size then.

    `judge` is told whether the proof is right, and decides. Raises WrongCode, Garbled, or
    ChannelLost for anything else.
    """
    ours = secrets.token_bytes(NONCE_BYTES)
    _tell(connection, magic=MAGIC, salt=salt.hex(), nonce=ours.hex())
    answer = _hear(connection)
    theirs, proof = _read_hex(answer, "nonce", NONCE_BYTES), _read_hex(answer, "proof", KEY_BYTES)
    said = salt + ours + theirs
    if not judge(hmac.compare_digest(proof, _make_mac(key, b"member" + said))):
        with contextlib.suppress(ChannelLost):
            _tell(connection, refused="code")
        raise WrongCode("doesn't know the code")
    _tell(connection, proof=_make_mac(key, b"host" + said).hex())
    _seal(connection, key, said, b"host", b"member")


def introduce(connection: Connection, stretch: Callable[[bytes], bytes]) -> None:
    """Be the member, and seal the connection; `stretch(salt)` makes the key.

    Raises as `hear_host`, WrongCode, Garbled, or ChannelLost for anything else.
    """
    hello = hear_host(connection)
    salt, theirs = _read_hex(hello, "salt", SALT_BYTES), _read_hex(hello, "nonce", NONCE_BYTES)
    ours, key = secrets.token_bytes(NONCE_BYTES), stretch(salt)
    said = salt + theirs + ours
    _tell(connection, nonce=ours.hex(), proof=_make_mac(key, b"member" + said).hex())
    answer = _hear(connection)
    if "refused" in answer:
        raise WrongCode(REFUSALS.get(str(answer["refused"]), "refused"))
    proof = _read_hex(answer, "proof", KEY_BYTES)
    if not hmac.compare_digest(proof, _make_mac(key, b"host" + said)):
        raise WrongCode("doesn't know the code itself, so it isn't your host")
    _seal(connection, key, said, b"member", b"host")


def hear_host(connection: Connection) -> dict[str, Any]:
    """Return the first words of a host, which speaks first, and at once.

    Raises Garbled if another program answers, ChannelLost if the host refuses to talk for now.
    """
    hello = _hear(connection, silence=Garbled)
    if "refused" in hello:
        raise ChannelLost(REFUSALS.get(str(hello["refused"]), "refused"))
    if hello.get("magic") != MAGIC:
        raise Garbled("isn't a rendezvous of this version of distlab")
    return hello


def refuse(connection: Connection, why: str) -> None:
    """Refuse the caller as host: say why, with one of REFUSALS, and hang up."""
    with contextlib.suppress(ChannelLost):
        _tell(connection, refused=why)
    connection.close()


def describe(error: Exception, connection: Connection) -> str:
    """Return what the other side has done, without its name."""
    return str(error).removeprefix(f"{connection.peer} ")


def _seal(connection: Connection, key: bytes, said: bytes, own: bytes, peer: bytes) -> None:
    connection.seal(*(_make_mac(key, b"frames of the " + role + said) for role in (own, peer)))
    connection.max_bytes, connection.limit_seconds = None, LIMIT_SECONDS


def _make_mac(key: bytes, told: bytes) -> bytes:
    return hmac.digest(key, told, "sha256")


def _tell(connection: Connection, **data: str) -> None:
    try:
        connection.send(data)
    except (PeerGone, PeerSilent) as error:
        raise ChannelLost(describe(error, connection)) from None


def _hear(connection: Connection, silence: type[ChannelLost] = ChannelLost) -> dict[str, Any]:
    """Return a message from before the two know each other: a small object, in time."""
    try:
        told = connection.receive(all_seconds=HANDSHAKE_SECONDS).content
    except PeerSilent:
        raise silence(f"has said nothing for {HANDSHAKE_SECONDS:.0f} s") from None
    except PeerGone as error:
        if NO_MESSAGE in str(error):
            raise Garbled(f"begins with {connection.first.decode('ascii', 'replace')!r}") from None
        raise ChannelLost(describe(error, connection)) from None
    if not isinstance(told, dict):
        raise Garbled(f"has sent {NO_MESSAGE}")
    return told


def _read_hex(told: dict[str, Any], name: str, size: int) -> bytes:
    try:
        value = bytes.fromhex(told.get(name))
    except (TypeError, ValueError):
        value = b""
    if len(value) != size:
        raise Garbled(f"hasn't sent a {name} of {size} bytes")
    return value
