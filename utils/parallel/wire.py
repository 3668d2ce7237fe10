"""Arrays between worker processes, over plain TCP sockets.

A message is four bytes with the length of its header, the header as JSON (key,
dtype, shape) and the array's bytes. Nothing that arrives is run as code.
"""

import contextlib
import json
import socket
import struct
import threading
import time

import numpy as np

from ..errors import InputError
from .mailbox import Mailbox

PAUSE_SECONDS = 0.02  # between two attempts to reach a worker that is not listening yet
MOST_HEADER_BYTES = 65_536


class Wire:
    """Listens at this worker's own address and sends to the others.

    What arrives is laid into `mailbox` as a tensor, under its key. Use it in a
    `with` block: all sockets are closed at its end. Raises InputError where the
    own address cannot be used, or another worker cannot be reached in time.
    """

    def __init__(
        self, addresses: list[str], index: int, mailbox: Mailbox, limit_seconds: float
    ) -> None:
        self._addresses, self._mailbox, self._limit = addresses, mailbox, limit_seconds
        self._peers: dict[int, socket.socket] = {}
        self._accepted: list[socket.socket] = []
        self.bytes_sent = 0
        try:
            self._listener = socket.create_server(_split(addresses[index]), backlog=len(addresses))
        except OSError as error:
            raise InputError(
                f"{addresses[index]}: cannot listen there ({error.strerror}): start again"
            ) from None
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *exception: object) -> None:
        """Hang up. What was sent still arrives; threads that wait for more are woken."""
        for connection in [*self._peers.values(), *self._accepted, self._listener]:
            with contextlib.suppress(OSError):  # the other side has gone already
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def send(self, worker: int, key: tuple[str, int, int], array: np.ndarray) -> None:
        """Send an array to `worker`, where it will lie under `key`."""
        if worker not in self._peers:
            self._peers[worker] = self._connect(worker)
        array = np.ascontiguousarray(array)
        header = json.dumps([list(key), array.dtype.str, list(array.shape)]).encode()
        message = struct.pack("!I", len(header)) + header
        self._peers[worker].sendall(message)
        self._peers[worker].sendall(array.data.cast("B") if array.size else b"")
        self.bytes_sent += len(message) + array.nbytes

    def _connect(self, worker: int) -> socket.socket:
        end = time.monotonic() + self._limit
        while True:
            try:
                connection = socket.create_connection(_split(self._addresses[worker]), timeout=5)
            except OSError as error:
                if time.monotonic() > end:
                    raise InputError(
                        f"worker {worker} at {self._addresses[worker]} does not answer ({error})"
                    ) from None
                time.sleep(PAUSE_SECONDS)
                continue
            connection.settimeout(self._limit)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            self._accepted.append(connection)
            threading.Thread(target=self._receive, args=(connection,), daemon=True).start()

    def _receive(self, connection: socket.socket) -> None:
        import tensorflow as tf

        try:
            while (size := _read(connection, 4)) is not None:
                length = struct.unpack("!I", size)[0]
                if length > MOST_HEADER_BYTES:
                    raise ConnectionError(f"a header of {length:,} bytes")
                key, dtype, shape = json.loads(_read(connection, length))
                kind = np.dtype(dtype)
                body = _read(connection, int(np.prod(shape)) * kind.itemsize)
                array = np.frombuffer(body, kind).reshape(shape)
                self._mailbox.put(tuple(key), tf.constant(array))
        except (OSError, ValueError, TypeError) as error:
            self._mailbox.fail(error)


def _read(connection: socket.socket, count: int) -> bytearray | None:
    """Return exactly `count` bytes; None where the other side has hung up before the first."""
    body = bytearray()
    while len(body) < count:
        piece = connection.recv(min(count - len(body), 1 << 20))
        if not piece:
            if body:
                raise ConnectionError("the connection broke in the middle of a message")
            return None
        body += piece
    return body


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
