"""A ring all-reduce moment by moment: who holds what after each step, and what travelled.

Nothing is computed twice: the moments are read from the messages that
`ring_all_reduce` sent through a `Network`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from .network import Message, Network, flatten_inputs
from .ring import ring_all_reduce, split_into_chunks


@dataclass(frozen=True, eq=False)
class Moment:
    """The ring after `step` steps (0: before the first).

    `values[rank][chunk]` is what that rank holds (1-D), `parts[rank][chunk]` the
    ranks whose numbers are added up in it. `arrived` are the messages of the step
    just done, with their values; `leaving` those of the next one. `phase` is that
    of the step just done, "" before the first.
    """

    step: int
    steps: int
    phase: str
    values: list[list[np.ndarray]]
    parts: list[list[frozenset[int]]]
    arrived: tuple[Message, ...]
    leaving: tuple[Message, ...]

    @property
    def ranks(self) -> int:
        return len(self.values)

    def is_whole(self, rank: int, chunk: int) -> bool:
        """Return whether this rank's chunk is the sum over all ranks."""
        return len(self.parts[rank][chunk]) == self.ranks


def list_ring_moments(vectors: Sequence[np.ndarray]) -> list[Moment]:
    """Return the 2(P-1)+1 moments of a ring all-reduce of one array per rank.

    Raises InputError for arrays that differ, and for fewer than two ranks: one
    has nobody to send to.
    """
    flat = flatten_inputs(vectors)
    if len(flat) < 2:
        raise InputError("a ring of 1 rank sends nothing: give arrays of 2 ranks or more")
    network = Network(len(flat), keep_values=True)
    ring_all_reduce(flat, network)
    by_step = [
        tuple(m for m in network.messages if m.step == step) for step in range(network.steps)
    ]
    values = [split_into_chunks(vector, len(flat)) for vector in flat]
    parts = [[frozenset([rank])] * len(flat) for rank in range(len(flat))]
    moments = [Moment(0, network.steps, "", values, parts, (), by_step[0])]
    for step, messages in enumerate(by_step, start=1):
        values, parts = [list(row) for row in values], [list(row) for row in parts]
        for message in messages:
            _deliver(message, values, parts, moments[-1].parts)
        leaving = by_step[step] if step < network.steps else ()
        phase = messages[0].phase
        moments.append(Moment(step, network.steps, phase, values, parts, messages, leaving))
    return moments


def _deliver(
    message: Message,
    values: list[list[np.ndarray]],
    parts: list[list[frozenset[int]]],
    before: list[list[frozenset[int]]],
) -> None:
    """Add or copy what arrived, as the phase says, into the receiver's chunk."""
    rank, chunk = message.destination, message.chunk
    sent = before[message.source][chunk]
    if message.phase == "reduce-scatter":
        values[rank][chunk] = values[rank][chunk] + message.values
        parts[rank][chunk] = parts[rank][chunk] | sent
    else:
        values[rank][chunk] = message.values
        parts[rank][chunk] = sent
