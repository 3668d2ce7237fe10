"""Lab 06, ring all-reduce: answers send their messages through a network that counts them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import numpy as np

from distlab.exercises.exercise import Exercise, contrast, each
from distlab.exercises.refusing import read_array, refuse, require_list
from distlab.exercises.ring_trace import (
    draw_vectors,
    explain_ring,
    find_moment,
    start_gather,
    tell_ring,
)
from distlab.labs import ANSWERS, COLLECTIVES
from utils.collectives import (
    Network,
    Send,
    count_bytes,
    count_messages,
)
from utils.errors import DistributedError, InputError

ABSENT = (*ANSWERS, *COLLECTIVES)

__all__ = ["Network", "Send"]
Chunks = list[list[np.ndarray]]
NOT_SENT = (
    "right sums, but nothing was sent: a rank learns of the others' values only through the network"
)
READ_ELSEWHERE = (
    "the values lack what the network added on the way: a rank can't look into its neighbor's "
    "memory, which is on another machine. Take message.values, which arrived"
)
ONE_BY_ONE = (
    "the messages went one after the other, a step each: hand all P of a step to one exchange"
)
make_exercise = partial(Exercise, lab="lab06")
_MARKED = ((1, 3, 7, 0.0), (2, 4, 8, 1.0), (3, 1, 4, 0.0))


class LabNetwork(Network):
    """The network of an answer: it names slips, ends, and can add a mark to what it carries."""

    def __init__(self, ranks: int, mark: float = 0.0) -> None:
        super().__init__(ranks, keep_values=True)
        self._mark = mark

    def exchange(self, sends: Iterable[Send], phase: str = "") -> list[Send]:
        """Do one step, as `Network` does; each value arrives with the mark added."""
        sends = list(sends)
        others = [type(send).__name__ for send in sends if not isinstance(send, Send)]
        if others:
            raise InputError(
                "exchange takes a list of Send(source, destination, values, chunk), got a "
                f"{others[0]}."
            )
        if self.steps > 4 * self.ranks + 4:
            raise InputError(
                f"Your answer still sends after {self.steps} steps. Does its loop end? The whole "
                f"all-reduce of {self.ranks} ranks takes {2 * self.ranks - 2}."
            )
        arrived = super().exchange(sends, phase)
        return [replace(send, values=send.values + self._mark) for send in arrived]


def describe_traffic(network: Network) -> dict[str, Any]:
    """Return the steps, each rank's messages and bytes, and [step, from, to, *values] each."""
    ordered = sorted(network.messages, key=lambda message: (message.step, message.source))
    sent = [[m.step, m.source, m.destination, *np.ravel(m.values).tolist()] for m in ordered]
    return {
        "steps": network.steps,
        "messages of each rank": count_messages(network.messages, network.ranks),
        "bytes of each rank": count_bytes(network.messages, network.ranks),
        "messages": sent,
    }


def say_moment(got: Any, right: Any) -> str:
    """Return the first wrong message, or result, and the expected one."""
    moment = find_moment(got, right)
    return f"went wrong: {moment.words}" if moment else contrast(got, right)


make_ring_exercise = partial(
    make_exercise,
    tolerance=1e-6,
    contrast=say_moment,
    tell=tell_ring,
    explain=explain_ring,
    by_hand=COLLECTIVES,
    plain=True,
)


def _make_chunks(seed: int, ranks: int, length: int) -> Chunks:
    from utils.collectives import split_into_chunks

    return [split_into_chunks(vector, ranks) for vector in draw_vectors(seed, ranks, length)]


def _note_refusals(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return `run`, which says so where the network refuses a step of an answer."""

    @wraps(run)
    def noting(*case: Any) -> Any:
        try:
            return run(*case)
        except DistributedError as error:
            return {"fault": f"the network refused a step: {error}"}

    return noting


def _run(part: Callable[..., Any], chunks: Chunks, network: Network) -> Chunks:
    returned = part(chunks, network)
    return chunks if returned is None else returned


@_note_refusals
def try_scatter(
    reduce_scatter: Callable[..., Any], seed: int, ranks: int, length: int, mark: float
) -> Any:
    """Return the finished chunks in order, as rank k - 1 holds chunk k, and the traffic."""
    network = LabNetwork(ranks, mark)
    chunks = _run(reduce_scatter, _make_chunks(seed, ranks, length), network)
    finished = [_read_chunk(chunks, (k - 1) % ranks, k) for k in range(ranks)]
    return {"finished chunks": np.concatenate(finished)} | describe_traffic(network)


def _read_chunk(chunks: Any, rank: int, k: int) -> np.ndarray:
    try:
        chunk = chunks[rank][k]
    except (TypeError, IndexError, KeyError):
        raise refuse(
            f"chunks[{rank}][{k}] is gone: chunks must keep one array per chunk."
        ) from None
    return np.ravel(read_array(chunk, f"chunks[{rank}][{k}]: the function"))


SCATTER = make_ring_exercise(
    name="scatter",
    function="reduce_scatter",
    examples=_MARKED,
    mistakes={
        "read-elsewhere": READ_ELSEWHERE,
        "replaced": "the receiver threw its own values away: it adds what arrives",
        "one-step-short": "one step too few: P ranks need P - 1",
        "one-step-too-many": "one step too many: after P - 1 the sums are whole, and then counted "
        "twice",
        "always-the-same": "every step sent the same chunk: send on what has just been added to",
        "own-chunk": "rank r ends with the sum of chunk r: it has to be that of chunk r + 1 (mod "
        "ranks). Begin one chunk later",
        "next-chunk": "the chunks go the wrong way round: in the next step a rank sends on the "
        "chunk that has just arrived",
        "one-by-one": ONE_BY_ONE,
    },
    hint="follow one chunk on paper: who has it first, who adds what, and where is it complete?",
    run=each(try_scatter),
)


@_note_refusals
def try_gather(
    all_gather: Callable[..., Any], seed: int, ranks: int, length: int, mark: float
) -> Any:
    """Begin where a reduce-scatter ends. Return every rank's vector, and the traffic.

    Rank r has the sum of chunk r + 1 (mod ranks), and of the others its own values.
    """
    chunks = start_gather(_make_chunks(seed, ranks, length))
    network = LabNetwork(ranks, mark)
    chunks = _run(all_gather, chunks, network)
    rows = [[_read_chunk(chunks, rank, k) for k in range(ranks)] for rank in range(ranks)]
    return {"vectors": [np.concatenate(row) for row in rows]} | describe_traffic(network)


GATHER = make_ring_exercise(
    name="gather",
    function="all_gather",
    examples=_MARKED,
    mistakes={
        "read-elsewhere": READ_ELSEWHERE,
        "added": "finished chunks were added once more: the receiver replaces its own",
        "one-step-short": "one step too few: the last rank still lacks a chunk",
        "unfinished-sent": "unfinished chunks were sent round: rank r begins with chunk r + 1",
        "always-the-same": "every step sent the same chunk: hand on what has just arrived",
        "not-sent": NOT_SENT,
        "one-by-one": ONE_BY_ONE,
    },
    hint="follow one finished chunk on paper: who has it first, and who gets it in which step?",
    run=each(try_gather),
)


@_note_refusals
def try_all_reduce(all_reduce: Callable[..., Any], seed: int, ranks: int, length: int) -> Any:
    """Return every rank's result, [ranks, length], and the traffic."""
    network = LabNetwork(ranks)
    vectors = draw_vectors(seed, ranks, length)
    found = all_reduce([vector.copy() for vector in vectors], network)
    results = require_list(found, "all_reduce", "a list with each rank's sum")
    wanted = "one array with a rank's whole sum: join its chunks"
    vectors = [read_array(result, "all_reduce", wanted) for result in results]
    return {"vectors": vectors} | describe_traffic(network)


ALL_REDUCE = make_ring_exercise(
    name="all-reduce",
    function="all_reduce",
    examples=((3, 3, 8), (4, 4, 10), (5, 1, 4), (6, 4, 3)),
    mistakes={
        "through-rank-0": "right sums, but through rank 0, which sends and receives far more than "
        "the others",
        "not-sent": NOT_SENT,
        "whole-vectors": "right sums, but whole vectors went round: a message holds one chunk",
        "rest-to-last": "the chunks differ from np.array_split's: the first ones are an element "
        "longer",
        "rest-lost": "the elements left over when the length doesn't divide are gone",
        "not-gathered": "each rank has one finished chunk only: the second half is missing",
        "averaged": "these are means: an all-reduce sums",
        "empty-skipped": "empty chunks were left out: they are sent as well, since their receiver "
        "waits for them",
    },
    hint="cut into P chunks, reduce-scatter, all-gather, join",
    run=each(try_all_reduce),
)
SECONDS = make_exercise(
    name="seconds",
    function="ring_seconds",
    examples=((4, 1e6, 1e-5, 1e9), (8, 4e8, 2e-6, 5e10)),
    mistakes={
        "one-half": "this is one of the two halves: the chunks go round twice",
        "whole-vectors": "a message is one chunk, 1/P of the vector, not the whole of it",
        "one-step-each": "each half takes P - 1 steps, not P",
        "chunks-by-steps": "the vector is cut into P chunks: P - 1 is the number of steps",
        "bits": "payload and bandwidth are both in bytes: don't multiply by 8",
        "one-latency": "the latency is paid once for each step, not once in all",
        "no-latency": "the latency is missing: each step pays it",
        "latency-shared": "the latency isn't divided by the ranks: each step pays it in full",
        "one-chunk": "each step moves a chunk, and this counts the bytes of one step only",
        "one-step": "that is one step alone: multiply it by the steps of both halves",
        "rank-by-rank": "the messages of all ranks are added up: in a step they travel at once",
        "minus-one-once": "each half takes P - 1 steps: both take 2 (P - 1), not 2 P - 1",
        "doubling": "the steps of a ring grow with the ranks, not with their logarithm",
    },
    hint="count the steps of both halves, then work out the seconds of one step",
    tolerance=1e-3,
    by_hand=("utils.simulate", "utils.collectives.fit"),
)
