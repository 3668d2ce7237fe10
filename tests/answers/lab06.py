# ruff: noqa: E501
"""Lab 06: answers that must pass, in several styles, and answers that must be refused by name."""

HEAD = "import numpy as np\nfrom distlab.exercises.lab06 import Network, Send\n"


def half(name, first, change, steps="ranks - 1", turn="step"):
    return f"""{HEAD}
def {name}(chunks, network):
    ranks = len(chunks)
    for step in range({steps}):
        sends = []
        for rank in range(ranks):
            k = (rank + {first} - {turn}) % ranks
            sends.append(Send(rank, (rank + 1) % ranks, chunks[rank][k], k))
        for m in network.exchange(sends):
            chunks[m.destination][m.chunk] {change} m.values
"""


def scatter(change="+=", **options):
    return half("reduce_scatter", 0, change, **options)


def gather(change="=", first=1, **options):
    return half("all_gather", first, change, **options)


ENUMERATED = (
    HEAD
    + """
def {name}(chunks, network):
    p = len(chunks)
    carried = [(r + {first}) % p for r in range(p)]
    for _ in chunks[1:]:
        arrived = network.exchange([Send(r, (r + 1) % p, chunks[r][k], k) for r, k in enumerate(carried)])
        by_rank = dict((m.destination, m) for m in arrived)
        for r in range(p):
            m = by_rank[r]
            chunks[r][m.chunk] = {value}
            carried[r] = m.chunk
"""
)
RETURNS = (
    HEAD
    + """
def {name}(chunks, network):
    p = len(chunks)
    table = np.array([list(row) + [None] for row in chunks], dtype=object)[:, :p]
    for s in range(p - 1):
        out = [((r + {first} - s) % p, r) for r in range(p)]
        for m in network.exchange([Send(r, (r + 1) % p, table[r, k], k) for k, r in out]):
            table[m.destination, m.chunk] = {value}
    return [list(row) for row in table]
"""
)


def one_by_one(name, first, change):
    return f"""{HEAD}
def {name}(chunks, network):
    ranks = len(chunks)
    for step in range(ranks - 1):
        for rank in range(ranks):
            k = (rank + {first} - step) % ranks
            for m in network.exchange([Send(rank, (rank + 1) % ranks, chunks[rank][k], k)]):
                chunks[m.destination][m.chunk] {change} m.values
"""


def all_reduce(
    cut="np.array_split(v, ranks)",
    second="ring_all_gather(chunks, network)",
    after="",
    before="pass",
):
    return f"""{HEAD}from utils.collectives import ring_reduce_scatter, ring_all_gather, naive_all_reduce
def all_reduce(vectors, network):
    ranks = len(vectors)
    {before}
    chunks = [{cut} for v in vectors]
    ring_reduce_scatter(chunks, network)
    {second}
    return [np.concatenate(row){after} for row in chunks]
"""


OWN_ALL_REDUCE = (
    HEAD
    + """
def all_reduce(vectors, network):
    p = len(vectors)
    edges = np.cumsum([0] + [len(vectors[0]) // p + (k < len(vectors[0]) % p) for k in range(p)])
    parts = [slice(edges[k], edges[k + 1]) for k in range(p)]
    held = np.array(vectors, dtype=float)
    for half, shift in (("add", 0), ("copy", 1)):
        for s in range(p - 1):
            sends = [Send(r, (r + 1) % p, held[r, parts[(r + shift - s) % p]], (r + shift - s) % p) for r in range(p)]
            for m in network.exchange(sends):
                here = held[m.destination]
                here[parts[m.chunk]] = m.values + (here[parts[m.chunk]] if half == "add" else 0)
    return held
"""
)


def seconds(expression):
    return f"def ring_seconds(ranks, payload_bytes, latency_seconds, bandwidth):\n    return {expression}\n"


RIGHT = {
    "scatter": [
        scatter(),
        ENUMERATED.format(name="reduce_scatter", first=0, value="chunks[r][m.chunk] + m.values"),
        RETURNS.format(
            name="reduce_scatter", first=0, value="table[m.destination, m.chunk] + m.values"
        ),
    ],
    "gather": [
        gather(),
        ENUMERATED.format(name="all_gather", first=1, value="m.values"),
        RETURNS.format(name="all_gather", first=1, value="m.values"),
    ],
    "all-reduce": [
        all_reduce(),
        OWN_ALL_REDUCE,
        HEAD
        + "from utils.collectives import ring_all_reduce\ndef all_reduce(vectors, network):\n    return ring_all_reduce(vectors, network).vectors\n",
    ],
    "seconds": [
        seconds("2 * (ranks - 1) * (latency_seconds + payload_bytes / ranks / bandwidth)"),
        seconds(
            "2 * (ranks - 1) * latency_seconds + 2 * (ranks - 1) / ranks * payload_bytes / bandwidth"
        ),
        seconds(
            "sum(latency_seconds + payload_bytes / ranks / bandwidth for _ in range(2) for _ in range(ranks - 1))"
        ),
    ],
}
WRONG = {
    "scatter": {
        "replaced": scatter("="),
        "one-step-short": scatter(steps="ranks - 2"),
        "one-step-too-many": scatter(steps="ranks"),
        "always-the-same": scatter(turn="0"),
        "one-by-one": one_by_one("reduce_scatter", 0, "+="),
    },
    "gather": {
        "added": gather("+="),
        "one-step-short": gather(steps="ranks - 2"),
        "unfinished-sent": gather(first=0),
        "always-the-same": gather(turn="0"),
        "one-by-one": one_by_one("all_gather", 1, "="),
    },
    "all-reduce": {
        "through-rank-0": all_reduce(before="return naive_all_reduce(vectors, network).vectors"),
        "not-sent": HEAD
        + "def all_reduce(vectors, network):\n    return [sum(vectors)] * len(vectors)\n",
        "rest-lost": all_reduce(cut="np.split(v[:len(v) // ranks * ranks], ranks)"),
        "not-gathered": all_reduce(second="pass"),
        "averaged": all_reduce(after=" / ranks"),
    },
    "seconds": {
        "one-half": seconds("(ranks - 1) * (latency_seconds + payload_bytes / ranks / bandwidth)"),
        "whole-vectors": seconds("2 * (ranks - 1) * (latency_seconds + payload_bytes / bandwidth)"),
        "one-latency": seconds(
            "latency_seconds + 2 * (ranks - 1) / ranks * payload_bytes / bandwidth"
        ),
    },
}
