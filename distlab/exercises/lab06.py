"""Lab 06, ring all-reduce: a network that counts, what each part should send, worked examples."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distlab.exercises.checking import make_check, refuse, require_value
from utils.collectives import (
    Network,
    Send,
    count_bytes,
    count_messages,
    naive_all_reduce,
    ring_all_gather,
    ring_reduce_scatter,
    split_into_chunks,
)
from utils.errors import DistributedError

__all__ = ["Network", "Send"]
Chunks = list[list[np.ndarray]]


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


def try_gather(all_gather: Callable[..., Any], seed: int, ranks: int, length: int) -> Any:
    """Begin where a right reduce-scatter ends; return every rank's vector, and the traffic."""
    chunks = _make_chunks(seed, ranks, length)
    ring_reduce_scatter(chunks, Network(ranks))
    network = Network(ranks, keep_values=True)
    chunks = _run(all_gather, chunks, network)
    vectors = np.stack([np.concatenate([np.ravel(c) for c in row]) for row in chunks])
    return {"vectors": vectors} | describe_traffic(network)


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


# ---- what should be found, and what the known mistakes give


def go_round(
    chunks: Chunks, network: Network, first: int, steps: int, add: bool, way: str = "right"
) -> None:
    """Send chunks round the ring `steps` times, from chunk rank + `first` on."""
    ranks = len(chunks)
    for step in range(steps):
        turn = 0 if way == "always-the-same" else step
        picked = [(rank + first - turn) % ranks for rank in range(ranks)]
        sends = [
            Send(rank, (rank + 1) % ranks, chunks[rank][chunk], chunk)
            for rank, chunk in enumerate(picked)
        ]
        groups = [[send] for send in sends] if way == "one-by-one" else [sends]
        for sent in (message for group in groups for message in network.exchange(group)):
            mine = chunks[sent.destination]
            mine[sent.chunk] = mine[sent.chunk] + sent.values if add else sent.values


def expect_scatter(seed: int, ranks: int, length: int, way: str = "right") -> dict[str, Any]:
    """Return what `try_scatter` should find, or finds for the mistake `way`."""
    steps = ranks - 1 + {"one-step-short": -1, "one-step-too-many": 1}.get(way, 0)

    def part(chunks: Chunks, network: Network) -> None:
        go_round(chunks, network, 0, steps, way != "replaced", way)

    return try_scatter(part, seed, ranks, length)


def expect_gather(seed: int, ranks: int, length: int, way: str = "right") -> dict[str, Any]:
    """Return what `try_gather` should find, or finds for the mistake `way`."""
    steps = ranks - 1 - (way == "one-step-short")
    first = 0 if way == "unfinished-sent" else 1

    def part(chunks: Chunks, network: Network) -> None:
        go_round(chunks, network, first, steps, way == "added", way)

    return try_gather(part, seed, ranks, length)


def expect_all_reduce(seed: int, ranks: int, length: int, way: str = "right") -> dict[str, Any]:
    """Return what `try_all_reduce` should find, or finds for the mistake `way`."""

    def whole(vectors: list[np.ndarray], network: Network) -> list[np.ndarray]:
        if way == "through-rank-0":
            return naive_all_reduce(vectors, network).vectors
        if way == "not-sent":
            return [np.sum(vectors, axis=0)] * ranks
        cut = length - length % ranks if way == "rest-lost" else length
        chunks = [split_into_chunks(vector[:cut], ranks) for vector in vectors]
        ring_reduce_scatter(chunks, network)
        if way != "not-gathered":
            ring_all_gather(chunks, network)
        joined = [np.concatenate(row) for row in chunks]
        return [row / ranks for row in joined] if way == "averaged" else joined

    return try_all_reduce(whole, seed, ranks, length)


def expect_seconds(
    ranks: int, payload_bytes: float, latency: float, bandwidth: float, way: str = "right"
) -> float:
    """Return the seconds of a ring all-reduce in the alpha-beta model, or of a mistaken one."""
    steps = 2 * (ranks - 1)
    if way == "one-half":
        steps = ranks - 1
    moved = steps * payload_bytes / ranks
    if way == "whole-vectors":
        moved = steps * payload_bytes
    return (1 if way == "one-latency" else steps) * latency + moved / bandwidth


ONE_BY_ONE = (
    "the messages went one after the other, a step each: hand all P of a step to one exchange"
)
_SIZES = ((1, 3, 7), (2, 4, 8))
SCATTER = make_check(
    ("lab06", "scatter", "reduce_scatter"),
    _SIZES,
    expect_scatter,
    {
        "replaced": "the receiver threw its own values away: it adds what arrives",
        "one-step-short": "one step too few: P ranks need P - 1",
        "one-step-too-many": "one step too many: after P - 1 the sums are whole, and then counted "
        "twice",
        "always-the-same": "every step sent the same chunk: send on what has just been added to",
        "one-by-one": ONE_BY_ONE,
    },
    hint="in step s, rank r sends chunk r - s (mod P) to rank r + 1, which adds it",
    tolerance=1e-6,
)
GATHER = make_check(
    ("lab06", "gather", "all_gather"),
    _SIZES,
    expect_gather,
    {
        "added": "finished chunks were added once more: the receiver replaces its own",
        "one-step-short": "one step too few: the last rank still lacks a chunk",
        "unfinished-sent": "unfinished chunks were sent round: rank r begins with chunk r + 1",
        "always-the-same": "every step sent the same chunk: hand on what has just arrived",
        "one-by-one": ONE_BY_ONE,
    },
    hint="in step s, rank r sends chunk r + 1 - s (mod P) to rank r + 1, which takes it over",
    tolerance=1e-6,
)
ALL_REDUCE = make_check(
    ("lab06", "all-reduce", "all_reduce"),
    ((3, 3, 8), (4, 4, 10)),
    expect_all_reduce,
    {
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
)
SECONDS = make_check(
    ("lab06", "seconds", "ring_seconds"),
    ((4, 1e6, 1e-5, 1e9), (8, 4e8, 2e-6, 5e10)),
    expect_seconds,
    {
        "one-half": "this is one of the two halves: the chunks go round twice",
        "whole-vectors": "a message is one chunk, 1/P of the vector, not the whole of it",
        "one-latency": "the latency is paid once for each step, not once in all",
    },
    hint="2(P - 1) steps, each a latency and a chunk of N / P bytes over the bandwidth",
    tolerance=1e-3,
)


def check_scatter(reduce_scatter: Callable[..., Any]) -> None:
    """Try `reduce_scatter` on the worked examples; AssertionError names the mistake."""
    SCATTER.verify([try_scatter(reduce_scatter, *example) for example in SCATTER.examples])


def check_gather(all_gather: Callable[..., Any]) -> None:
    """Try `all_gather` in the same way."""
    GATHER.verify([try_gather(all_gather, *example) for example in GATHER.examples])


def check_all_reduce(all_reduce: Callable[..., Any]) -> None:
    """Try `all_reduce` in the same way."""
    ALL_REDUCE.verify([try_all_reduce(all_reduce, *example) for example in ALL_REDUCE.examples])


def check_seconds(answers: Sequence[Any]) -> None:
    """Compare `ring_seconds` of each of `SECONDS.examples`."""
    SECONDS.verify(answers)
