"""All-reduce in motion: a ring with the reader's own numbers, and five algorithms on one clock."""

from collections.abc import Sequence

import numpy as np

from distlab.errors import CourseError
from distlab.explorables.explorable import Explorable
from distlab.figures import Picture, lines, matrix
from distlab.figures.picture import shorten_number
from utils.collectives import ALGORITHMS, ring_all_reduce, split_into_chunks
from utils.simulate.collective import Link, Nodes, simulate_all_reduce

MAX_RANKS = 16
RANKS_PER_NODE = (2, 4, 8)


def all_reduce_race(
    ranks: int = 8, payload_bytes: float = 1e6, ranks_per_node: int = 4, *, autoplay: bool = True
) -> Explorable:
    """Show naive, ring, recursive doubling, tree and hierarchical all-reduce on one clock.

    Below them: the time of each against the size of the vector, and which is fastest where.
    The links start at 20 us and 10 GB/s. Raises CourseError for fewer than 2 ranks or more
    than 16, and for nodes of other than 2, 4 or 8 ranks.
    """
    _check_ranks(ranks)
    if ranks_per_node not in RANKS_PER_NODE:
        raise CourseError(f"{ranks_per_node} ranks in a node: choose {RANKS_PER_NODE}")
    data = {"label": "All-reduce, five ways", "algorithms": list(ALGORITHMS), "autoplay": autoplay}
    options = {
        "ranks": ranks,
        "bytes": payload_bytes,
        "latency": 2e-5,
        "bandwidth": 1e10,
        "perNode": ranks_per_node,
        "inside": 1,
        "time": 0,
    }
    sizes = [10.0**power for power in range(3, 10)]
    nodes = Nodes(min(ranks_per_node, ranks), Link(2e-5, 1e10))
    series = {
        name: (
            sizes,
            [simulate_all_reduce(name, ranks, n, Link(2e-5, 1e10), nodes).seconds for n in sizes],
        )
        for name in ALGORITHMS
    }
    still = lines(
        series,
        x_label="size of the vector",
        y_label="time of one all-reduce",
        title=f"All-reduce over {ranks} ranks",
        log_x=True,
        log_y=True,
        y_unit="s",
        x_unit="kB",
    )
    return Explorable("ring", data, options, still)


def ring_of(vectors: Sequence[np.ndarray]) -> Explorable:
    """Show a ring all-reduce of the reader's own arrays, one for each rank, step by step.

    Of each chunk the first number is written, with four digits, in which processors agree.
    Raises CourseError for fewer than 2 ranks or more than 16, and what `ring_all_reduce`
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
    if not 2 <= ranks <= MAX_RANKS:
        raise CourseError(f"{ranks} ranks on a circle: give 2 to {MAX_RANKS}")
