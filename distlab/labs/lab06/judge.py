"""Lab 06, ring all-reduce: what each part should send, and hold at the end."""

from typing import Any

import numpy as np

from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab06 import exercise as lab06
from distlab.labs.lab06.exercise import Chunks, try_all_reduce, try_gather, try_scatter
from utils.collectives import (
    Network,
    Send,
    naive_all_reduce,
    split_into_chunks,
)

RULES = LabRules(cell_seconds=10, submission_seconds=30, data=())


def _go_round(
    chunks: Chunks, network: Network, first: int, steps: int, add: bool, way: str = "right"
) -> None:
    """Send chunks round the ring `steps` times, from chunk rank + `first` on."""
    ranks = len(chunks)
    for step in range(steps):
        turn = {"always-the-same": 0, "next-chunk": -step}.get(way, step)
        picked = [(rank + first - turn) % ranks for rank in range(ranks)]
        sends = [
            Send(rank, (rank + 1) % ranks, chunks[rank][chunk], chunk)
            for rank, chunk in enumerate(picked)
        ]
        if way == "empty-skipped":
            sends = [send for send in sends if len(send.values)]
        groups = [[send] for send in sends] if way == "one-by-one" else [sends]
        for sent in (message for group in groups for message in network.exchange(group)):
            mine, values = chunks[sent.destination], sent.values
            if way == "read-elsewhere":
                values = chunks[sent.source][sent.chunk]
            mine[sent.chunk] = mine[sent.chunk] + values if add else values


def expect_scatter(
    seed: int, ranks: int, length: int, mark: float, way: str = "right"
) -> dict[str, Any]:
    steps = ranks - 1 + {"one-step-short": -1, "one-step-too-many": 1}.get(way, 0)

    def part(chunks: Chunks, network: Network) -> None:
        first = -1 if way == "own-chunk" else 0
        _go_round(chunks, network, first, steps, way != "replaced", way)

    return try_scatter(part, seed, ranks, length, mark)


def expect_gather(
    seed: int, ranks: int, length: int, mark: float, way: str = "right"
) -> dict[str, Any]:
    steps = ranks - 1 - (way == "one-step-short")
    first = 0 if way == "unfinished-sent" else 1

    def part(chunks: Chunks, network: Network) -> None:
        if way == "not-sent":
            whole = [chunks[k - 1][k] for k in range(ranks)]
            chunks[:] = [list(whole) for _ in chunks]
        else:
            _go_round(chunks, network, first, steps, way == "added", way)

    return try_gather(part, seed, ranks, length, mark)


def _send_whole(vectors: list[np.ndarray], network: Network) -> list[np.ndarray]:
    """Pass whole vectors round the ring, each rank adding up what comes by."""
    ranks, sums, passing = len(vectors), list(vectors), list(vectors)
    for _ in range(ranks - 1):
        sends = [Send(rank, (rank + 1) % ranks, passing[rank], 0) for rank in range(ranks)]
        for sent in network.exchange(sends):
            passing[sent.destination] = sent.values
            sums[sent.destination] = sums[sent.destination] + sent.values
    return sums


def expect_all_reduce(seed: int, ranks: int, length: int, way: str = "right") -> dict[str, Any]:

    def whole(vectors: list[np.ndarray], network: Network) -> list[np.ndarray]:
        if way == "through-rank-0":
            return naive_all_reduce(vectors, network).vectors
        if way == "not-sent":
            return [np.sum(vectors, axis=0)] * ranks
        if way == "whole-vectors":
            return _send_whole(vectors, network)
        cut = length - length % ranks if way == "rest-lost" else length
        chunks = [split_into_chunks(vector[:cut], ranks) for vector in vectors]
        if way == "rest-to-last":
            ends = [k * (length // ranks) for k in range(1, ranks)]
            chunks = [np.split(vector, ends) for vector in vectors]
        steps = ranks - 1
        _go_round(chunks, network, 0, steps, add=True, way=way)
        if way != "not-gathered":
            _go_round(chunks, network, 1, steps, add=False, way=way)
        joined = [np.concatenate(row) for row in chunks]
        return [row / ranks for row in joined] if way == "averaged" else joined

    return try_all_reduce(whole, seed, ranks, length)


def expect_seconds(
    ranks: int, payload_bytes: float, latency: float, bandwidth: float, way: str = "right"
) -> float:
    """Return the seconds of a ring all-reduce in the alpha-beta model, or of a mistaken one."""
    steps = 2 * (ranks - 1)
    steps = {
        "one-half": ranks - 1,
        "one-step-each": 2 * ranks,
        "minus-one-once": 2 * ranks - 1,
        "one-step": 1,
        "rank-by-rank": steps * ranks,
        "doubling": 2 * np.log2(ranks),
    }.get(way, steps)
    moved = steps * payload_bytes / (ranks - (way == "chunks-by-steps"))
    moved *= 8 if way == "bits" else 1
    if way == "whole-vectors":
        moved = steps * payload_bytes
    waits = {"one-latency": 1, "no-latency": 0, "latency-shared": steps / ranks}.get(way, steps)
    return waits * latency + moved / (steps if way == "one-chunk" else 1) / bandwidth


SCATTER = Judge(lab06.SCATTER, expect_scatter)
GATHER = Judge(lab06.GATHER, expect_gather)
ALL_REDUCE = Judge(lab06.ALL_REDUCE, expect_all_reduce)
SECONDS = Judge(lab06.SECONDS, expect_seconds)
