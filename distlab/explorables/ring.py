"""All-reduce in motion: a ring with the reader's own numbers, and five algorithms on one clock."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distlab.explorables.explorable import Explorable
from distlab.figures import Picture, lines, matrix
from distlab.figures.picture import shorten_number
from utils.checks import check_count
from utils.collectives import ALGORITHMS, ring_all_reduce, split_into_chunks
from utils.simulate.collective import Link, Nodes, simulate_all_reduce

MAX_RANKS = 16
RANKS, RANKS_PER_NODE = 8, 4  # of the race, at first


def all_reduce_race(*, autoplay: bool = True) -> Explorable:
    """Show naive, ring, recursive doubling, tree and hierarchical all-reduce on one clock.

    Below them: the time of each against the size of the vector, and which is fastest where.
    The links start at 20 us and 10 GB/s.
    """
    data = {"label": "All-reduce, five ways", "algorithms": list(ALGORITHMS), "autoplay": autoplay}
    options = {
        "ranks": RANKS,
        "bytes": 1e6,
        "latency": 2e-5,
        "bandwidth": 1e10,
        "perNode": RANKS_PER_NODE,
        "inside": 1,
        "time": 0,
    }
    sizes = [10.0**power for power in range(3, 10)]
    nodes = Nodes(RANKS_PER_NODE, Link(2e-5, 1e10))
    series = {
        name: (
            sizes,
            [simulate_all_reduce(name, RANKS, n, Link(2e-5, 1e10), nodes).seconds for n in sizes],
        )
        for name in ALGORITHMS
    }
    still = lines(
        series,
        x_label="size of the vector",
        y_label="time of one all-reduce",
        title=f"All-reduce over {RANKS} ranks",
        log_x=True,
        log_y=True,
        y_unit="s",
        x_unit="kB",
    )
    return Explorable("ring", data, options, still)


def ring_of(vectors: Sequence[np.ndarray]) -> Explorable:
    """Show a ring all-reduce of the reader's own arrays, one for each rank, step by step.

    Of each chunk the first number is written, with four digits, in which processors agree.
    Raises InputError for fewer than 2 ranks or more than 16, and what `ring_all_reduce`
    raises for arrays that differ.
    """
    _check_ranks(len(vectors))
    total = ring_all_reduce(vectors).vectors[0]
    flat = [np.asarray(vector, dtype=float).ravel() for vector in vectors]
    chunks = [[c[:1].tolist() for c in split_into_chunks(v, len(vectors))] for v in flat]
    largest = max(float(np.abs(total).max(initial=0)), 1e-300)
    power = 3 * int(np.floor(np.log10(largest) / 3)) if not 1 <= largest < 1000 else 0
    firsts = [[shorten_number(c[0] / 10.0**power) if c else None for c in row] for row in chunks]
    data = {
        "label": "Ring all-reduce of your own numbers",
        "algorithms": ["ring"],
        "autoplay": False,
        "values": firsts,
        "unit": "" if power == 0 else f"in units of 1e{power:+03d}, ",
    }
    options = {
        "ranks": len(vectors),
        "bytes": total.nbytes,
        "latency": 2e-5,
        "bandwidth": 1e10,
        "perNode": 1,
        "inside": 1,
        "time": 0,
    }
    return Explorable("ring", data, options, _draw_sums(chunks, 10.0**power))


@dataclass(frozen=True)
class RingMessage:
    """One message of a ring as it was sent: the first number of `chunk` (None: all chunks)."""

    step: int
    source: int
    destination: int
    chunk: int | None
    first: float | None
    adds: bool


def replay_ring(
    firsts: Sequence[Sequence[float | None]],
    messages: Sequence[RingMessage],
    *,
    finished: bool = False,
    wrong: tuple[int, int, str] | None = None,
) -> Explorable:
    """Replay the messages that someone's own ring sent, up to the wrong one, which is marked.

    `firsts[rank][k]` is the first number of chunk k, None for an empty one, before the first step;
    with `finished`, rank r begins with the whole sum of chunk r + 1. `wrong` has the step of the
    first wrong message, its rank and words about it. A step without messages is the end.
    Raises InputError for fewer than 2 ranks or more than 16.
    """
    ranks = len(firsts)
    _check_ranks(ranks)
    held = [list(row) for row in firsts]
    seen = [[[*row] for row in held]]  # before each step, and after the last one
    steps, count = [], 1 + max((m.step for m in messages), default=-1)
    for step in range(count if wrong is None else min(wrong[0] + 1, count)):
        sent = [m for m in messages if m.step == step]
        stops = wrong is not None and step == wrong[0]
        steps.append({"phase": "", "messages": [_move(m, ranks) for m in sent]})
        steps[-1]["lines"] = [_say_message(m, held) for m in sent]
        for m in sent if not stops else ():
            if m.chunk is not None:
                own = held[m.destination][m.chunk]
                held[m.destination][m.chunk] = (own or 0) + (m.first or 0) if m.adds else m.first
        seen.append([[*row] for row in held])
    start = [[2**rank] * ranks for rank in range(ranks)]
    for rank in range(ranks if finished else 0):
        start[rank][(rank + 1) % ranks] = 2**ranks - 1
    data = {
        "label": "Your ring, message by message",
        "algorithms": ["ring"],
        "autoplay": False,
        "steps": steps,
        "start": start,
        "firsts": seen,
        "wrong": wrong and dict(zip(("step", "rank", "words"), wrong, strict=True)),
    }
    options = {"ranks": ranks, "bytes": 8.0 * ranks, "perNode": 1, "inside": 1}
    options |= {"latency": 0, "bandwidth": 1e9, "time": 1}
    place = wrong and (wrong[0], wrong[1])
    chunk = next((m.chunk for m in messages if (m.step, m.source) == place), None)
    return Explorable("ring", data, options, _draw_held(held, wrong, chunk))


def _move(message: RingMessage, ranks: int) -> dict[str, Any]:
    """Return a message as the browser has it: which slices of the vector, and whether it adds."""
    chunk = message.chunk
    first, last = (0, ranks) if chunk is None else (chunk, chunk + 1)
    ends = {"source": message.source, "destination": message.destination}
    return ends | {"from": first, "to": last, "share": 1 / ranks, "adds": message.adds}


def _say_message(message: RingMessage, held: Sequence[Sequence[float | None]]) -> str:
    what = "all of it" if message.chunk is None else f"chunk {message.chunk}"
    head = f"rank {message.source} → rank {message.destination}, {what}: "
    if message.first is None:
        return f"{head}empty"
    own = None if message.chunk is None else held[message.destination][message.chunk]
    if own is None or not message.adds:
        return f"{head}{_say(message.first)} copied"
    return f"{head}{_say(own)} + {_say(message.first)} = {_say(own + message.first)}"


def _say(number: float) -> str:
    return f"{number:.2f}".replace("-", "\N{MINUS SIGN}")


def _draw_held(
    held: Sequence[Sequence[float | None]],
    wrong: tuple[int, int, str] | None,
    chunk: int | None,
) -> Picture:
    """Draw the first number of each chunk as the ranks hold them where the replay stops."""
    ranks = len(held)
    numbers = np.array([[0.0 if first is None else first for first in row] for row in held])
    columns = [f"chunk {k}" for k in range(ranks)]
    rows = [f"rank {rank}" for rank in range(ranks)]
    title, marked = "What each rank holds at the end: the first number of each chunk", None
    if wrong is not None:
        title = f"What each rank held when rank {wrong[1]} went wrong (marked)"
        marked = {(wrong[1], k) for k in (range(ranks) if chunk is None else (chunk,))}
    drawn = matrix(numbers, rows, columns, title=title, format="{:.2f}", marked=marked)
    return replace(drawn, caption=wrong[2] if wrong else "")


def _draw_sums(chunks: list[list[list[float]]], unit: float) -> Picture:
    """Draw the first number of each rank's chunks, and the sums that every rank ends with."""
    numbers = np.array([[c[0] / unit if c else 0.0 for c in row] for row in chunks])
    rows = [*(f"rank {rank}" for rank in range(len(numbers))), "sum, on every rank"]
    columns = [f"chunk {k}" for k in range(len(numbers))]
    title = "The first number of each chunk, before and after the all-reduce"
    return matrix(
        np.vstack([numbers, numbers.sum(axis=0)]), rows, columns, title=title, format="{:.2f}"
    )


def _check_ranks(ranks: int) -> None:
    check_count("ranks", ranks, 2, MAX_RANKS)
