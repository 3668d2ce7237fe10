"""Arrays between worker processes: framed connections, whose messages are tensors under a key.

A message's content is key, dtype and shape, its body the array's bytes.
"""

import contextlib
import socket
import threading

import numpy as np

from ..processes.connection import Connection, PeerGone, connect, listen
from .mailbox import Mailbox


class Wire:
    """Listens at this worker's own address and sends to the others.

    What arrives is laid into `mailbox` as a tensor, under its key. Use it in a
    `with` block: all sockets are closed at its end. Raises InputError where the
    own address cannot be used, RunError where another worker cannot be reached in time.
    """

    def __init__(
        self, addresses: list[str], index: int, mailbox: Mailbox, limit_seconds: float
    ) -> None:
        self._addresses, self._mailbox, self._limit = addresses, mailbox, limit_seconds
        self._peers: dict[int, Connection] = {}
        self._accepted: list[Connection] = []
        self.bytes_sent = 0
        self._listener = listen(addresses[index])
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *exception: object) -> None:
        """Hang up. What was sent still arrives; threads that wait for more are woken."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for connection in [*self._peers.values(), *self._accepted]:
            connection.close()

    def send(self, worker: int, key: tuple[str, int, int], array: np.ndarray) -> None:
        """Send an array to `worker`, where it will lie under `key`."""
        if worker not in self._peers:
            address = self._addresses[worker]
            self._peers[worker] = connect(address, f"worker {worker}", self._limit)
        array = np.ascontiguousarray(array)
        body = array.reshape(-1).view(np.uint8).data
        content = [list(key), array.dtype.str, list(array.shape)]
        self.bytes_sent += self._peers[worker].send(content, body)

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return  # closed
            self._accepted.append(Connection(caller, "another stage", self._limit))
            arguments = [self._accepted[-1]]
            threading.Thread(target=self._receive, args=arguments, daemon=True).start()

    def _receive(self, connection: Connection) -> None:
        import tensorflow as tf

        try:
            while True:
                message = connection.receive(float("inf"))
                key, dtype, shape = message.content
                array = np.frombuffer(message.body, np.dtype(dtype)).reshape(shape)
                self._mailbox.put(tuple(key), tf.constant(array))
        except PeerGone as error:
            if not error.between_messages:
                self._mailbox.fail(error)
        except (ValueError, TypeError) as error:
            self._mailbox.fail(error)
