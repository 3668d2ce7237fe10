"""Lab 06, ring all-reduce: answers send their messages through a network that counts them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from distlab.exercises.exercise import Exercise, each
from distlab.exercises.refusing import refuse, require_value
from utils.collectives import (
    Network,
    Send,
    count_bytes,
    count_messages,
    ring_reduce_scatter,
    split_into_chunks,
)
from utils.errors import DistributedError

__all__ = ["Network", "Send"]
Chunks = list[list[np.ndarray]]
ONE_BY_ONE = (
    "the messages went one after the other, a step each: hand all P of a step to one exchange"
)
_SIZES = ((1, 3, 7), (2, 4, 8))


def draw_vectors(seed: int, ranks: int, length: int) -> list[np.ndarray]:
    """Return one gradient, [length] of float64, for each rank."""
    rng = np.random.default_rng(seed)
    return [np.round(rng.normal(size=length), 3) for _ in range(ranks)]


def describe_traffic(network: Network) -> dict[str, Any]:
    """Return the steps, each rank's messages and bytes, and the sum of each message's values."""
    ordered = sorted(network.messages, key=lambda message: (message.step, message.source))
    payloads = [float(np.sum(message.values)) for message in ordered]
    return {
        "steps": network.steps,
        "messages of each rank": count_messages(network.messages, network.ranks),
        "bytes of each rank": count_bytes(network.messages, network.ranks),
        "sums of the messages": payloads,
    }


def _make_chunks(seed: int, ranks: int, length: int) -> Chunks:
    return [split_into_chunks(vector, ranks) for vector in draw_vectors(seed, ranks, length)]


def _run(part: Callable[..., Any], chunks: Chunks, network: Network) -> Chunks:
    try:
        returned = part(chunks, network)
    except DistributedError as error:
        raise refuse(f"the network refused a step: {error}") from None
    return chunks if returned is None else returned


def try_scatter(reduce_scatter: Callable[..., Any], seed: int, ranks: int, length: int) -> Any:
    """Return the finished chunks in order, as rank k - 1 holds chunk k, and the traffic."""
    network = Network(ranks, keep_values=True)
    chunks = _run(reduce_scatter, _make_chunks(seed, ranks, length), network)
    finished = np.concatenate([np.ravel(chunks[(k - 1) % ranks][k]) for k in range(ranks)])
    return {"finished chunks": finished} | describe_traffic(network)


SCATTER = Exercise(
    lab="lab06",
    name="scatter",
    function="reduce_scatter",
    examples=_SIZES,
    mistakes={
        "replaced": "the receiver threw its own values away: it adds what arrives",
        "one-step-short": "one step too few: P ranks need P - 1",
        "one-step-too-many": "one step too many: after P - 1 the sums are whole, and then counted "
        "twice",
        "always-the-same": "every step sent the same chunk: send on what has just been added to",
        "one-by-one": ONE_BY_ONE,
    },
    hint="in step s, rank r sends chunk r - s (mod P) to rank r + 1, which adds it",
    tolerance=1e-6,
    shows_case=False,
    run=each(try_scatter),
)


def try_gather(all_gather: Callable[..., Any], seed: int, ranks: int, length: int) -> Any:
    """Begin where a right reduce-scatter ends; return every rank's vector, and the traffic."""
    chunks = _make_chunks(seed, ranks, length)
    ring_reduce_scatter(chunks, Network(ranks))
    network = Network(ranks, keep_values=True)
    chunks = _run(all_gather, chunks, network)
    vectors = np.stack([np.concatenate([np.ravel(c) for c in row]) for row in chunks])
    return {"vectors": vectors} | describe_traffic(network)


GATHER = Exercise(
    lab="lab06",
    name="gather",
    function="all_gather",
    examples=_SIZES,
    mistakes={
        "added": "finished chunks were added once more: the receiver replaces its own",
        "one-step-short": "one step too few: the last rank still lacks a chunk",
        "unfinished-sent": "unfinished chunks were sent round: rank r begins with chunk r + 1",
        "always-the-same": "every step sent the same chunk: hand on what has just arrived",
        "one-by-one": ONE_BY_ONE,
    },
    hint="in step s, rank r sends chunk r + 1 - s (mod P) to rank r + 1, which takes it over",
    tolerance=1e-6,
    shows_case=False,
    run=each(try_gather),
)


def try_all_reduce(all_reduce: Callable[..., Any], seed: int, ranks: int, length: int) -> Any:
    """Return every rank's result, [ranks, length], and the traffic."""
    network = Network(ranks, keep_values=True)
    vectors = draw_vectors(seed, ranks, length)
    try:
        found = all_reduce([vector.copy() for vector in vectors], network)
    except DistributedError as error:
        raise refuse(f"the network refused a step: {error}") from None
    results = require_value(found, "all_reduce", "a list with each rank's sum")
    return {"vectors": [np.asarray(r, dtype=float) for r in results]} | describe_traffic(network)


ALL_REDUCE = Exercise(
    lab="lab06",
    name="all-reduce",
    function="all_reduce",
    examples=((3, 3, 8), (4, 4, 10)),
    mistakes={
        "through-rank-0": "right sums, but through rank 0, which sends and receives far more than "
        "the others",
        "not-sent": "right sums, but nothing was sent: a rank learns of the others' values only "
        "through the network",
        "rest-lost": "the elements left over when the length does not divide are gone",
        "not-gathered": "each rank has one finished chunk only: the second half is missing",
        "averaged": "these are means: an all-reduce sums",
    },
    hint="cut into P chunks, reduce-scatter, all-gather, join",
    tolerance=1e-6,
    shows_case=False,
    run=each(try_all_reduce),
)
SECONDS = Exercise(
    lab="lab06",
    name="seconds",
    function="ring_seconds",
    examples=((4, 1e6, 1e-5, 1e9), (8, 4e8, 2e-6, 5e10)),
    mistakes={
        "one-half": "this is one of the two halves: the chunks go round twice",
        "whole-vectors": "a message is one chunk, 1/P of the vector, not the whole of it",
        "one-latency": "the latency is paid once for each step, not once in all",
    },
    hint="2(P - 1) steps, each a latency and a chunk of N / P bytes over the bandwidth",
    tolerance=1e-3,
)
