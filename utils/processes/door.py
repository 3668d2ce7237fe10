"""A door: listens at one address, and lets in who has the key."""

import contextlib
import errno
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from .connection import Connection
from .handshake import SALT_BYTES, ChannelLost, Garbled, admit, make_connection, refuse

MAX_FAILURES, FAILURE_SECONDS = 5, 60.0  # wrong or garbled answers of one address
MAX_CALLERS, MAX_CALLERS_OF_ONE = 96, 48  # connections that haven't proved anything yet


class Door:
    """Lets callers in, each in its own thread, until `close`.

    `welcome(connection)` is called in that thread for each caller that has proved to have `key`. An
    address that has failed five times within a minute is refused; a silent caller is sent away
    after ten seconds; and only `most` may wait at once, `most_of_one` from one address.
    """

    def __init__(
        self,
        listener: socket.socket,
        key: bytes,
        welcome: Callable[[Connection], None],
        salt: bytes = bytes(SALT_BYTES),
        most_of_one: int = MAX_CALLERS_OF_ONE,
    ) -> None:
        self._listener, self._key, self._welcome, self._salt = listener, key, welcome, salt
        self._most = max(MAX_CALLERS, most_of_one), most_of_one
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
                refuse(make_connection(end, place[0]), why)

    def _find_refusal(self, peer: str) -> str | None:
        """Return why `peer` may not come in now; else count it among the callers."""
        with self._lock:
            if self._count_failures(peer) >= MAX_FAILURES:
                return "wait"
            if self._callers.total() >= self._most[0] or self._callers[peer] >= self._most[1]:
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
        connection, is_in = make_connection(end, peer), False
        try:
            admit(connection, self._key, self._salt, lambda right: self._judge(peer, right))
            is_in = True
        except Garbled:
            self._judge(peer, False)
        except ChannelLost:
            pass
        finally:
            with self._lock:
                self._callers[peer] -= 1
                self._callers += Counter()  # without those who are at 0
        if is_in:
            self._welcome(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Stop admitting callers; safe to call twice."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
