"""Devices that compute one layer together, and the collectives between them, counted.

The collectives are rings (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce
algorithms for clusters of workstations"), so that what each device sends is what a ring
between real devices would send.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import check_count
from ..collectives import Network, count_bytes, ring_all_gather, ring_all_reduce
from ..errors import InputError

Tensors = list[Any]  # one for each device


@dataclass(frozen=True)
class Collective:
    """One collective: its `kind`, its pass, and the bytes that it moved.

    `payload_bytes` is the whole tensor that every device ends with; `bytes_per_device`
    what each one sent, round a ring.
    """

    kind: str
    phase: str
    payload_bytes: int
    bytes_per_device: list[int]


def split_sizes(total: int, parts: int) -> list[int]:
    """Return `total` in `parts` sizes that differ by one at most, the larger first: 10 in 4, 3, 3.

    Raises InputError for fewer than one part and for more parts than there are.
    """
    check_count("parts", parts)
    if parts > total:
        raise InputError(f"parts must be at most {total}, one for each part, got {parts}.")
    return [total // parts + (place < total % parts) for place in range(parts)]


class DeviceGroup:
    """Some devices that each do their part of one computation. `calls` lists the collectives.

    Tensors of the group are lists, one tensor for each device. Raises InputError if there is no
    device or one is named twice.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        if not devices or len(set(devices)) < len(devices):
            raise InputError(
                f"devices must name at least one device, each once, got {list(devices)}."
            )
        self.devices = list(devices)
        self.calls: list[Collective] = []

    @property
    def size(self) -> int:
        return len(self.devices)

    def apply(self, function: Callable[..., Any], *arguments: Tensors) -> Tensors:
        """Return what `function` gives on each device for that device's part of each argument.

        Raises ValueError for an argument that hasn't one part for each device.
        """
        import tensorflow as tf

        results = []
        for device, *own in zip(self.devices, *arguments, strict=True):
            with tf.device(device):
                results.append(function(*own))
        return results

    def copy(self, tensor: Any) -> Tensors:
        """Return a copy of `tensor` on each device."""
        import tensorflow as tf

        return self.apply(tf.identity, [tf.convert_to_tensor(tensor)] * self.size)

    def scatter(self, tensor: Any, sizes: Sequence[int], axis: int) -> Tensors:
        """Cut `tensor` into `sizes` along `axis` and return one piece on each device."""
        import tensorflow as tf

        return self.apply(tf.identity, tf.split(tf.convert_to_tensor(tensor), sizes, axis))

    def take_own(self, wholes: Tensors, sizes: Sequence[int]) -> Tensors:
        """Return each device's own columns [batch, sizes[device]] of `wholes` [batch, columns]."""
        import tensorflow as tf

        pieces = [tf.split(whole, sizes, axis=1)[place] for place, whole in enumerate(wholes)]
        return self.apply(tf.identity, pieces)

    def join(self, parts: Tensors, axis: int) -> np.ndarray:
        """Return the parts as one array, put together along `axis`: no device needs it."""
        return np.concatenate([part.numpy() for part in parts], axis=axis)

    def all_reduce(self, parts: Tensors, phase: str) -> Tensors:
        """Return the sum of the parts, all of one shape, on each device.

        `phase` is what `calls` files it under, "forward" or "backward".
        """
        import tensorflow as tf

        result = ring_all_reduce([part.numpy() for part in parts])
        payload = result.vectors[0].nbytes
        self.calls.append(Collective("all-reduce", phase, payload, result.bytes_per_rank))
        return self.apply(tf.constant, result.vectors)

    def all_gather(self, parts: Tensors, phase: str) -> Tensors:
        """Return the parts [batch, columns] side by side, on each device."""
        import tensorflow as tf

        network = Network(self.size)
        arrays = [part.numpy() for part in parts]
        chunks = [[np.empty(0, arrays[0].dtype)] * self.size for _ in arrays]
        for place, array in enumerate(arrays):
            chunks[place - 1][place] = array  # position p of a ring begins with chunk p + 1
        members = [(position + 1) % self.size for position in range(self.size)]
        ring_all_gather(chunks, network, members)
        wholes = [np.concatenate(row, axis=1) for row in chunks]
        sent = count_bytes(network.messages, self.size)
        self.calls.append(Collective("all-gather", phase, wholes[0].nbytes, sent))
        return self.apply(tf.constant, wholes)
