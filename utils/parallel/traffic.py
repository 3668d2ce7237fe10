"""Count the traffic between devices: every tensor sent, with its bytes."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..measure import array_bytes


@dataclass(frozen=True)
class Transfer:
    """One tensor sent from the device `source` to `destination`; `what` it was sent for."""

    what: str
    source: str
    destination: str
    payload_bytes: int


class Traffic:
    """Sends tensors between devices and keeps a record of it in `transfers`.

    Several threads may send at once.
    """

    def __init__(self) -> None:
        self.transfers: list[Transfer] = []

    def send(self, tensor: Any, device: str, what: str) -> Any:
        """Return `tensor`, of any shape, on `device` ("CPU:1"); nothing counts if it is there."""
        import tensorflow as tf

        source = short_device(tensor.device)
        if source == device:
            return tensor
        with tf.device(device):
            arrived = tf.identity(tensor)
        self.transfers.append(Transfer(what, source, device, array_bytes([arrived])))
        return arrived

    def count_bytes(self, what: str | None = None) -> int:
        """Return the bytes sent in all, or for one purpose ("activations", "gradients")."""
        return sum(t.payload_bytes for t in self.transfers if what in (None, t.what))

    def count_links(self) -> dict[tuple[str, str], int]:
        """Return the bytes sent over each link, {(source, destination): bytes}."""
        links: Counter[tuple[str, str]] = Counter()
        for transfer in self.transfers:
            links[transfer.source, transfer.destination] += transfer.payload_bytes
        return dict(links)


def short_device(name: str) -> str:
    """Return "CPU:1" for "/job:localhost/replica:0/task:0/device:CPU:1"."""
    return name.rpartition("device:")[2]
