"""The network of the all-reduce algorithms: it carries arrays between ranks and counts.

All ranks live in one process. What they may do in one step is what one network
port allows: each rank sends at most one message and receives at most one. What an
algorithm returns is an `AllReduceResult`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..checks import check_count
from ..errors import InputError


@dataclass(frozen=True)
class Message:
    """One message as it was sent.

    `step` counts from 0 through the whole run. Messages of one step travel at
    the same time. `chunk` is the index of the piece of the vector that it
    carries, None for the whole vector. `phase` says what the message is for
    ("reduce-scatter", "gather", ...). `values` is what it carried (1-D), kept
    only by `Network(..., keep_values=True)`.
    """

    step: int
    source: int
    destination: int
    chunk: int | None
    payload_bytes: int
    phase: str = ""
    values: np.ndarray | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Send:
    """One rank's message of a step: `values` for `destination`."""

    source: int
    destination: int
    values: np.ndarray
    chunk: int | None = None


class Network:
    """Carries arrays between `ranks` ranks, step by step, and records every message.

    `messages` is the record. Raises InputError for fewer than one rank.
    """

    def __init__(self, ranks: int, keep_values: bool = False) -> None:
        self.ranks = check_count("ranks", ranks)
        self.steps = 0
        self.messages: list[Message] = []
        self._keep_values = keep_values

    def exchange(self, sends: Iterable[Send], phase: str = "") -> list[Send]:
        """Do one step: deliver `sends`, all at once; return what arrives, as copies.

        A chunk without elements is a message too (of 0 bytes): its receiver
        waits for it. Without any send the step doesn't count. Raises
        InputError if a rank doesn't exist, sends to itself, or sends or
        receives more than once in the step.
        """
        sends = list(sends)
        self._check(sends)
        arrived = [Send(s.source, s.destination, np.array(s.values), s.chunk) for s in sends]
        for sent in arrived:
            values = sent.values.copy() if self._keep_values else None
            self.messages.append(
                Message(
                    self.steps,
                    sent.source,
                    sent.destination,
                    sent.chunk,
                    sent.values.nbytes,
                    phase,
                    values,
                )
            )
        self.steps += bool(sends)
        return arrived

    def _check(self, sends: Sequence[Send]) -> None:
        for sent in sends:
            for rank in (sent.source, sent.destination):
                if not 0 <= rank < self.ranks:
                    raise InputError(f"rank must be from 0 to {self.ranks - 1}, got {rank}.")
            if sent.source == sent.destination:
                raise InputError(
                    f"Rank {sent.source} must not send to itself. It has these values already."
                )
        for verb, side in (("sends", "source"), ("receives", "destination")):
            counted = Counter(getattr(sent, side) for sent in sends)
            for rank, count in counted.items():
                if count > 1:
                    raise InputError(
                        f"A port carries one message each way per step, and rank {rank} {verb} "
                        f"{count} in step {self.steps}. Use a step for each."
                    )


def open_network(ranks: int, network: Network | None = None) -> Network:
    """Return `network`, or a new one where it is None, for a run over `ranks` ranks.

    Raises InputError if it has another number of ranks or has carried messages before.
    """
    if network is None:
        return Network(ranks)
    if network.ranks != ranks or network.steps:
        raise InputError(
            f"This all-reduce needs a new network of {ranks} ranks, got one of "
            f"{network.ranks} after {network.steps} steps."
        )
    return network


def count_messages(messages: Sequence[Message], ranks: int) -> list[int]:
    """Return how many messages each rank sent, one number a rank."""
    counted = Counter(message.source for message in messages)
    return [counted[rank] for rank in range(ranks)]


def count_bytes(messages: Sequence[Message], ranks: int) -> list[int]:
    """Return how many bytes each rank sent, one number a rank."""
    sent = [0] * ranks
    for message in messages:
        sent[message.source] += message.payload_bytes
    return sent


@dataclass(frozen=True)
class AllReduceResult:
    """The sums and what they cost.

    `vectors[rank]` is the sum as that rank holds it, of the shape and dtype of
    the input. `messages` is every message in the order it was sent; `steps`
    how many one-after-the-other steps there were. `messages_per_rank` and
    `bytes_per_rank` count what each rank sent.
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


def flatten_inputs(vectors: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return each rank's array as a 1-D copy.

    Raises InputError for no rank at all, and for shapes or dtypes that differ.
    """
    arrays = [np.asarray(vector) for vector in vectors]
    if not arrays:
        raise InputError("An all-reduce needs one array per rank, got 0 ranks.")
    first = arrays[0]
    for rank, array in enumerate(arrays):
        if array.shape != first.shape or array.dtype != first.dtype:
            raise InputError(
                f"All ranks must reduce arrays of one shape and dtype. Rank {rank} holds "
                f"{array.dtype} of shape {array.shape}, rank 0 {first.dtype} of shape "
                f"{first.shape}."
            )
    return [array.flatten() for array in arrays]


def make_result(flat: Sequence[np.ndarray], like: np.ndarray, network: Network) -> AllReduceResult:
    """Put the reduced 1-D arrays back into the shape of `like`, with the network's record."""
    vectors = [array.reshape(np.shape(like)) for array in flat]
    return AllReduceResult(vectors, tuple(network.messages), network.steps)
