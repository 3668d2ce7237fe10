"""What an all-reduce returns, and the check of what it is given."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from .network import (
    Message,
    Network,
    count_bytes,
    count_messages,
    count_serial_bytes,
)


@dataclass(frozen=True)
class AllReduceResult:
    """The sums and what they cost.

    `vectors[rank]` is the sum as that rank holds it, of the shape and dtype of
    the input. `messages` is every message in the order it was sent; `steps`
    how many one-after-the-other steps there were. `messages_per_rank` and
    `bytes_per_rank` count what each rank sent. `serial_bytes` adds up the
    largest message of each step: with `steps` it gives the time on equal links,
    steps * latency + serial_bytes / bandwidth.
    """

    vectors: list[np.ndarray]
    messages: tuple[Message, ...]
    steps: int

    @property
    def messages_per_rank(self) -> list[int]:
        return count_messages(self.messages, len(self.vectors))

    @property
    def bytes_per_rank(self) -> list[int]:
        return count_bytes(self.messages, len(self.vectors))

    @property
    def serial_bytes(self) -> int:
        return count_serial_bytes(self.messages)


def flatten_inputs(vectors: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return each rank's array as a 1-D copy.

    Raises InputError for no rank at all, and for shapes or dtypes that differ.
    """
    arrays = [np.asarray(vector) for vector in vectors]
    if not arrays:
        raise InputError("an all-reduce over 0 ranks: give one array for each rank, 1 or more")
    first = arrays[0]
    for rank, array in enumerate(arrays):
        if array.shape != first.shape or array.dtype != first.dtype:
            raise InputError(
                f"rank {rank} holds {array.dtype} of shape {array.shape}, rank 0 {first.dtype} of "
                f"shape {first.shape}: all ranks reduce arrays of one shape and dtype"
            )
    return [array.flatten() for array in arrays]


def make_result(flat: Sequence[np.ndarray], like: np.ndarray, network: Network) -> AllReduceResult:
    """Put the reduced 1-D arrays back into the shape of `like`, with the network's record."""
    vectors = [array.reshape(np.shape(like)) for array in flat]
    return AllReduceResult(vectors, tuple(network.messages), network.steps)
