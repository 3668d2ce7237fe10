"""The door of a rendezvous: listens at one address, and lets in who knows the code."""

import contextlib
import errno
import ipaddress
import secrets
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from ...errors import InputError
from ...processes.connection import split_address
from ...processes.handshake import SALT_BYTES, ChannelLost, Garbled, refuse
from .channel import Channel, admit, open_connection
from .code import stretch_code

MAX_FAILURES, FAILURE_SECONDS = 5, 60.0  # wrong or garbled answers of one address
MAX_CALLERS, MAX_CALLERS_OF_ONE = 96, 48  # connections that have not proved anything yet


def open_address(address: str) -> socket.socket | None:
    """Return a socket that listens at `address` and nowhere else, None if that is not ours to do.

    It is another machine's, or another launcher of this machine hosts there already. Raises
    InputError for what is no address of one machine.
    """
    host, port = split_address(address)
    if not port:
        raise InputError(f"rendezvous {address}: name a port above 0, as all need the same")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InputError(f"rendezvous {address}: {error.strerror or error}") from None
    family, place = found[0], found[4]
    if ipaddress.ip_address(place[0].partition("%")[0]).is_unspecified:
        raise InputError(f"rendezvous {address}: name this machine's own address, not all of them")
    try:
        return socket.create_server(place, family=family, backlog=MAX_CALLERS)
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
            return None
        reason = error.strerror or str(error)
        raise InputError(f"rendezvous {address}: {reason}; name another port") from None


class Door:
    """Lets callers in, each in a thread of its own, until `close`.

    `welcome(channel)` is called for each who has proved to know the code. Who has failed five
    times within a minute is refused, address by address; who says nothing is sent away
    after ten seconds; and only so many may stand in the door.
    """

    def __init__(
        self, listener: socket.socket, code: str, welcome: Callable[[Channel], None]
    ) -> None:
        self._listener, self._welcome = listener, welcome
        self._salt = secrets.token_bytes(SALT_BYTES)
        self._key = stretch_code(code, self._salt)
        self._failures: dict[str, deque[float]] = {}
        self._callers: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                end, place = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED):
                    time.sleep(0.1)
                    continue
                return  # closed
            why = self._find_refusal(place[0])
            if why is None:
                threading.Thread(target=self._receive, args=(end, place[0]), daemon=True).start()
            else:
                refuse(open_connection(end, place[0]), why)

    def _find_refusal(self, peer: str) -> str | None:
        """Return why `peer` may not come in now; else count it among the callers."""
        with self._lock:
            if self._count_failures(peer) >= MAX_FAILURES:
                return "wait"
            if self._callers.total() >= MAX_CALLERS or self._callers[peer] >= MAX_CALLERS_OF_ONE:
                return "busy"
            self._callers[peer] += 1
            return None

    def _count_failures(self, peer: str) -> int:
        failures = self._failures.get(peer, deque())
        while failures and failures[0] < time.monotonic() - FAILURE_SECONDS:
            failures.popleft()
        if not failures:
            self._failures.pop(peer, None)
        return len(failures)

    def _judge(self, peer: str, right: bool) -> bool:
        """Return whether `peer` may come in; one guess after the other, so that none is free."""
        with self._lock:
            if self._count_failures(peer) >= MAX_FAILURES:
                return False
            if not right:
                self._failures.setdefault(peer, deque()).append(time.monotonic())
            return right

    def _receive(self, end: socket.socket, peer: str) -> None:
        channel = None
        try:
            channel = admit(
                end, peer, self._key, self._salt, lambda right: self._judge(peer, right)
            )
        except Garbled:
            self._judge(peer, False)
        except ChannelLost:
            pass
        finally:
            with self._lock:
                self._callers[peer] -= 1
                self._callers += Counter()  # without those who are at 0
        if channel is None:
            end.close()
        else:
            self._welcome(channel)

    def close(self) -> None:
        """Let nobody in any more; safe to call twice."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
