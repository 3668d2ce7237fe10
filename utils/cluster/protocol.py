"""What a cluster's parent, its warm process and its tasks say to each other. Imports no TensorFlow.

The parent and the warm process talk over a socket pair, one JSON object a message.
A task gets four descriptors: its standard output and error, the pipe for its
events, the pipe for its result, and a file with the pickled function. Nothing here
crosses a machine.
"""

import json
import socket
import struct
from dataclasses import asdict, dataclass, field
from typing import Any

_LENGTH = struct.Struct("!I")


@dataclass(frozen=True)
class TaskOrder:
    """One task to start: who it is, what it runs, and its environment.

    `role` "call" runs the pickled function, "serve" waits as a server of a
    parameter-server cluster. `replicas` is the number of logical devices.
    """

    name: str
    role: str
    replicas: int
    environment: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def send_message(
    connection: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = ()
) -> None:
    """Send one message, with open descriptors where there are some."""
    body = json.dumps(message).encode()
    packet = _LENGTH.pack(len(body)) + body
    sent = socket.send_fds(connection, [packet], list(descriptors)) if descriptors else 0
    connection.sendall(packet[sent:])


def receive_message(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return one message and its descriptors, or None when the other side has gone."""
    try:
        start, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, 8)
        head = _receive_rest(connection, start, _LENGTH.size)
        if head is None:
            return None
        body = _receive_rest(connection, b"", _LENGTH.unpack(head)[0])
    except ConnectionError:
        return None
    return None if body is None else (json.loads(body), descriptors)


def _receive_rest(connection: socket.socket, start: bytes, length: int) -> bytes | None:
    data = start
    while len(data) < length:
        piece = connection.recv(length - len(data))
        if not piece:
            return None
        data += piece
    return data
