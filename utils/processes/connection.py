"""The framed connection between two processes: the one wire of this library.

    connection = connect("127.0.0.1:4000", "worker 1", limit_seconds=10)
    connection.send({"chunk": 3}, array.data.cast("B"))
    message = connection.receive()             # message.content, message.body

A message is four bytes with the length of its head, the head as JSON (the message, and how many
bytes follow), and these bytes. Nothing that arrives is run as code. Every wait ends after
`limit_seconds` without progress, and its error names the one waited for.

Processes that don't trust the way between them begin with `handshake`, and seal all later messages:
a message that was changed, repeated, left out or turned round ends the connection.

Why not `multiprocessing.connection`? It has no limit while a message is on its way, so a slow
caller holds a thread for ever. Its handshake (HMAC-MD5 before Python 3.12, which isn't a weakness
here, as nobody can forge it) proves who has the key and gives no key for what follows. A machine
between the two can pass the proof on, and say what it likes afterwards. It also carries no reason
for a refusal, and no descriptors with a message.
"""

import contextlib
import hmac
import json
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, RunError, shorten

MAX_HEAD_BYTES, MAX_DESCRIPTORS = 2**20, 12
LIMIT_SECONDS = 60.0
PAUSE_SECONDS = 0.02  # between two attempts to reach one who isn't listening yet
SEAL_BYTES = 32
NO_MESSAGE = "something that isn't a message"
_LENGTH, _COUNT = struct.Struct("!I"), struct.Struct("!Q")


class PeerSilent(RunError):
    """The other side of a connection is there and says, or takes, nothing."""


class PeerGone(RunError):
    """The other side of a connection has hung up, or has sent something that isn't a message.

    `between_messages` says whether nothing is lost by it.
    """

    def __init__(self, words: str, between_messages: bool = False) -> None:
        self.between_messages = between_messages
        super().__init__(words)


class Seal:
    """The seals of one direction: HMAC-SHA256 (RFC 2104) of a count and the message."""

    def __init__(self, key: bytes) -> None:
        self._key, self._count = key, 0

    def make(self, data: Any) -> bytes:
        """Return the seal of the next message."""
        self._count += 1
        return hmac.digest(self._key, _COUNT.pack(self._count) + bytes(data), "sha256")


@dataclass
class WireMessage:
    """A received message: `content` is plain data, `body` the `body_bytes` bytes after it."""

    content: Any
    body: bytearray
    body_bytes: int
    descriptors: list[int]


class Connection:
    """One end of a connected stream socket; `peer` names the other end in errors.

    A message with a head or a body of more than `max_bytes` is refused; without it, a body may
    have any size. `first` are the first bytes that came of a message. `send` and `receive` wait.
    Who sends and receives at the same time uses `post`, `push` and `pull`, which don't, with
    `wait_for`. Descriptors go over local sockets only.
    """

    def __init__(
        self,
        end: socket.socket,
        peer: str,
        limit_seconds: float = LIMIT_SECONDS,
        max_bytes: int | None = None,
    ) -> None:
        self.peer, self.limit_seconds, self.max_bytes = peer, limit_seconds, max_bytes
        self.first = b""
        self._own_seal: Seal | None = None
        self._peer_seal: Seal | None = None
        self._socket, self._unsent, self._into = end, list[memoryview](), None
        self._descriptors: list[int] = []
        end.setblocking(False)
        self._local = end.family == getattr(socket, "AF_UNIX", None)
        if not self._local:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._messages = self._read_messages()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def own_address(self) -> str:
        """The address of this machine at which the other side sees it."""
        return self._socket.getsockname()[0]

    def seal(self, own_key: bytes, peer_key: bytes) -> None:
        """Seal every message from now on, each direction with its own key."""
        self._own_seal, self._peer_seal = Seal(own_key), Seal(peer_key)

    def send(
        self,
        content: Any,
        body: Any = b"",
        descriptors: Sequence[int] = (),
        limit_seconds: float | None = None,
    ) -> int:
        """Send one message, and return how many bytes that took.

        Raises PeerSilent when the other side takes nothing within the limit, PeerGone
        when it has hung up.
        """
        count = self.post(content, body, descriptors)
        self._push_all(limit_seconds)
        return count

    def receive(
        self, limit_seconds: float | None = None, all_seconds: float = float("inf")
    ) -> WireMessage:
        """Return the next message; raises PeerSilent and PeerGone as `send` does.

        A limit of infinity waits for the message for ever. It must be complete within
        `all_seconds`, however steadily it comes.
        """
        limit, deadline = limit_seconds or self.limit_seconds, time.monotonic() + all_seconds
        while (message := self.pull()) is None:
            left = min(limit, max(deadline - time.monotonic(), 0.0))
            if not wait_for([self], [], left):
                raise self._say_silent("sent", min(limit, all_seconds))
        return message

    def post(self, content: Any, body: Any = b"", descriptors: Sequence[int] = ()) -> int:
        """Lay one message ready for `push`; return its size in bytes.

        `body` is bytes, or a buffer of bytes that must not change until it has been sent.
        """
        head = json.dumps([content, len(body)]).encode()
        seal = self._own_seal
        packet = _LENGTH.pack(len(head)) + (seal.make(head) if seal else b"") + head
        sealed = seal.make(body) if seal and len(body) else b""
        sent = self._send_with(descriptors, packet) if descriptors else 0
        self._unsent += [memoryview(part) for part in (packet[sent:], body, sealed) if len(part)]
        return len(packet) + len(body) + len(sealed)

    def push(self) -> bool:
        """Send as much as the socket takes now. Return whether nothing is left to be sent."""
        while self._unsent:
            try:
                sent = self._socket.sendmsg(self._unsent)
            except BlockingIOError:
                return False
            except OSError as error:
                raise self._say_gone() from error
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.pop(0))
            if sent:
                self._unsent[0] = self._unsent[0][sent:]
        return True

    def pull(self, into: memoryview | None = None) -> WireMessage | None:
        """Receive what is there now; return a message once it is whole, else None.

        A body that has the size of `into` arrives there, and `WireMessage.body` is empty.
        """
        self._into = into
        try:
            return next(self._messages)
        except StopIteration:  # it has failed before
            raise self._say_gone() from None

    def read(self, take: Callable[[WireMessage], None]) -> bool | None:
        """Do as a source of `cluster.streams` does: give `take` the next message.

        Returns whether there was one, None where no more will come.
        """
        try:
            message = self.pull()
        except PeerGone:
            return None
        if message is None:
            return False
        take(message)
        return True

    def close(self) -> None:
        """Hang up; safe to call twice, and from another thread than the one that waits."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def drop_copy(self) -> None:
        """In a forked child: give this end up, which stays open in the process that forked."""
        self._socket.close()

    def _push_all(self, limit_seconds: float | None = None) -> None:
        while not self.push():
            if not wait_for([], [self], limit_seconds or self.limit_seconds):
                raise self._say_silent("taken", limit_seconds)

    def _send_with(self, descriptors: Sequence[int], packet: bytes) -> int:
        """Send descriptors with the beginning of `packet`; return how much of it went out."""
        self._push_all()  # earlier messages
        while True:
            try:
                return socket.send_fds(self._socket, [packet], list(descriptors))
            except BlockingIOError:
                if not wait_for([], [self], self.limit_seconds):
                    raise self._say_silent("taken", None) from None
            except OSError as error:
                raise self._say_gone() from error

    def _read_messages(self) -> Iterator[WireMessage | None]:
        """Yield each message when it is whole, and None wherever nothing more is there now."""
        while True:
            prefix, self._descriptors = bytearray(_LENGTH.size), []
            yield from self._fill(memoryview(prefix), first=True)
            self.first = bytes(prefix)
            head = bytearray(self._check_size(*_LENGTH.unpack(prefix), MAX_HEAD_BYTES))
            seal = bytearray(SEAL_BYTES if self._peer_seal else 0)
            yield from self._fill(memoryview(seal))
            yield from self._fill(memoryview(head))
            self._check_seal(seal, head)
            try:
                content, size = json.loads(head)
                self._check_size(size, float("inf"))
                into = self._into if self._into is not None and len(self._into) == size else None
                body = bytearray(0 if into is not None else size)
            except (ValueError, TypeError, RecursionError):  # brackets in brackets
                raise PeerGone(f"{self.peer} has sent {NO_MESSAGE}") from None
            yield from self._fill(memoryview(body) if into is None else into)
            if size and self._peer_seal:
                yield from self._fill(memoryview(seal))
                self._check_seal(seal, body if into is None else into)
            yield WireMessage(content, body, size, self._descriptors)

    def _check_size(self, size: int, most: float) -> int:
        """Return `size`; raises PeerGone for more than may come."""
        if size > (self.max_bytes or most):
            most = self.max_bytes or most
            raise PeerGone(
                f"{self.peer} has sent {NO_MESSAGE} (at most {most:,} bytes, got {size:,})"
            )
        return size

    def _check_seal(self, seal: bytearray, data: Any) -> None:
        if self._peer_seal and not hmac.compare_digest(seal, self._peer_seal.make(data)):
            raise PeerGone(f"{self.peer} has sent a message with a wrong seal")

    def _fill(self, missing: memoryview, first: bool = False) -> Iterator[None]:
        """Receive until nothing is missing; `first` is the beginning of a message."""
        whole = len(missing)
        while len(missing):
            try:
                if first and self._local:
                    data, found, _, _ = socket.recv_fds(self._socket, len(missing), MAX_DESCRIPTORS)
                    self._descriptors += found
                    missing[: len(data)], count = data, len(data)
                else:
                    count = self._socket.recv_into(missing)
            except BlockingIOError:
                yield None
                continue
            except OSError as error:
                raise self._say_gone() from error
            if not count:
                raise self._say_gone(between_messages=first and len(missing) == whole)
            missing = missing[count:]

    def _say_gone(self, between_messages: bool = False) -> PeerGone:
        return PeerGone(f"{self.peer} has hung up", between_messages)

    def _say_silent(self, what: str, seconds: float | None) -> PeerSilent:
        return PeerSilent(f"{self.peer} has {what} nothing for {seconds or self.limit_seconds:g} s")


def wait_for(readers: Sequence[Connection], writers: Sequence[Connection], seconds: float) -> bool:
    """Wait until one of the connections can be read from, or written to; False if none can."""
    limit = None if seconds == float("inf") else seconds
    try:
        if not hasattr(select, "poll"):
            return any(select.select(readers, writers, [], limit))
        poll = select.poll()
        for one in {*readers, *writers}:
            poll.register(one, select.POLLIN * (one in readers) | select.POLLOUT * (one in writers))
        return bool(poll.poll(None if limit is None else 1000 * limit))
    except ValueError:  # closed meanwhile, which the next `pull` or `push` says
        return True


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port". Raises InputError for anything else."""
    host, _, port = address.rpartition(":")
    try:
        host.encode("idna")  # as a lookup does
    except UnicodeError:
        host = ""
    if not (host and port.isdigit() and int(port) < 65536):
        got = shorten(repr(address), 80)
        raise InputError(f"The address must be host:port, such as 10.0.0.1:2222, got {got}.")
    return host.strip("[]"), int(port)


def listen(address: str) -> socket.socket:
    """Return a socket that listens at `address`, and nowhere else.

    Raises InputError where that can't be had.
    """
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(
            f"Can't listen at {address} ({error.strerror or error}). Name another port."
        ) from None


def connect(address: str, peer: str, limit_seconds: float = LIMIT_SECONDS) -> Connection:
    """Connect to `peer`, who listens at `address`, or will within the limit; see `reach`."""
    return Connection(reach(address, peer, limit_seconds), peer, limit_seconds)


def reach(address: str, peer: str, limit_seconds: float = LIMIT_SECONDS) -> socket.socket:
    """Return a socket connected to `peer`, which listens at `address` within the limit.

    Raises InputError for a bad address, PeerSilent if nothing answers in time.
    """
    place, end = split_address(address), time.monotonic() + limit_seconds
    while True:
        try:
            left = max(end - time.monotonic(), 0.01)
            return socket.create_connection(place, left)
        except OSError as error:
            if time.monotonic() > end:
                raise PeerSilent(
                    f"{peer} doesn't answer at {address} after {limit_seconds:g} s ({error}). "
                    "Check that it runs and that no firewall is in the way."
                ) from None
            time.sleep(PAUSE_SECONDS)


def answers(address: str, seconds: float) -> bool:
    """Return whether anything listens at "host:port"; tries for at most `seconds`."""
    try:
        socket.create_connection(split_address(address), seconds).close()
    except (OSError, InputError):
        return False
    return True


def accept(listener: socket.socket, peer: str, limit_seconds: float = LIMIT_SECONDS) -> Connection:
    """Return a connection to the next caller. Raises PeerSilent if none comes in time."""
    listener.settimeout(limit_seconds)
    try:
        caller, _ = listener.accept()
    except TimeoutError:
        raise PeerSilent(f"{peer} didn't connect within {limit_seconds:g} s.") from None
    return Connection(caller, peer, limit_seconds)
