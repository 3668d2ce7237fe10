# ruff: noqa: E501
"""Lab 06: answers that must pass, in several styles, and answers that must be refused by name."""

HEAD = "import numpy as np\nfrom distlab.labs.lab06.exercise import Network, Send\n"


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
    second="all_gather(chunks, network)",
    after="",
    before="pass",
):
    """All-reduce by the lab's own solutions of exercises 1 and 2, which stand above it."""
    return f"""{HEAD}
def all_reduce(vectors, network):
    ranks = len(vectors)
    {before}
    chunks = [{cut} for v in vectors]
    reduce_scatter(chunks, network)
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


# Each of these runs both halves: `shift` is 0 and `change` adds, or 1 and it replaces.
BY_CHUNK = """{head}
def {name}(chunks, network):
    p = len(chunks)
    at = {{(k - {shift}) % p: k for k in range(p)}}  # rank -> the chunk that it sends
    for _ in range(p - 1):
        sends = [Send(source=r, destination=(r + 1) % p, values=chunks[r][k], chunk=k) for r, k in at.items()]
        for m in network.exchange(sends):
            {change}
        at = {{(r + 1) % p: k for r, k in at.items()}}
"""
NEW_ROWS = """{head}
def {name}(chunks, network):
    p = len(chunks)
    rows = [list(row) for row in chunks]
    for s in range(1, p):
        arrived = network.exchange([Send(r, (r + 1) % p, rows[r][({shift} + r - s + 1) % p], ({shift} + r - s + 1) % p) for r in range(p)])
        rows = [[{value} for k, mine in enumerate(row)] for r, row in enumerate(rows) for m in arrived if m.destination == r]
    return rows
"""
GENERATOR = """{head}
def {name}(chunks, network):
    p = len(chunks)
    for s in range(p - 1):
        sends = (Send(r, (r + 1) % p, chunks[r][(r + {shift} - s) % p].copy(), (r + {shift} - s) % p) for r in range(p))
        for m in network.exchange(sends):
            {change}
"""
ROLLED = """{head}
def {name}(chunks, network):
    ranks = np.arange(len(chunks))
    send = (ranks + {shift}) % len(ranks)
    for _ in ranks[1:]:
        out = [Send(int(r), int((r + 1) % len(ranks)), chunks[r][send[r]], int(send[r])) for r in ranks]
        for m in network.exchange(out):
            {change}
        send = np.roll(send, 1)
"""
WHILE = """{head}
def {name}(chunks, network):
    ranks, step = len(chunks), 0
    while step < ranks - 1:
        sends = []
        for receiver in range(ranks):
            sender = receiver - 1 if receiver else ranks - 1
            k = sender + {shift} - step
            while k < 0:
                k += ranks
            while k >= ranks:
                k -= ranks
            sends.append(Send(sender, receiver, chunks[sender][k], k))
        for m in network.exchange(sends):
            {change}
        step = step + 1
"""


def both_ways(pattern):
    """Return the pattern as reduce-scatter and as all-gather."""
    first = pattern.format(
        head=HEAD,
        name="reduce_scatter",
        shift=0,
        change="chunks[m.destination][m.chunk] = chunks[m.destination][m.chunk] + m.values",
        value="mine + m.values if k == m.chunk else mine",
    )
    second = pattern.format(
        head=HEAD,
        name="all_gather",
        shift=1,
        change="chunks[m.destination][m.chunk] = m.values",
        value="m.values if k == m.chunk else mine",
    )
    return first, second


LOOPED_SECONDS = """
def ring_seconds(ranks, payload_bytes, latency_seconds, bandwidth):
    clock = 0.0
    for half in ("reduce-scatter", "all-gather"):
        for step in range(1, ranks):
            clock += latency_seconds
            clock += payload_bytes / ranks / bandwidth
    return clock
"""
NAMED_SECONDS = """
from fractions import Fraction
def ring_seconds(ranks, payload_bytes, latency_seconds, bandwidth):
    steps = 2 * (ranks - 1)
    chunk_bytes = payload_bytes * float(Fraction(1, ranks))
    sending = steps * chunk_bytes / bandwidth
    waiting = steps * latency_seconds
    return sending + waiting
"""
MORE = [both_ways(p) for p in (BY_CHUNK, NEW_ROWS, GENERATOR, ROLLED, WHILE)]
MATRIX_ALL_REDUCE = (
    HEAD
    + """
def all_reduce(vectors, network):
    p, n = len(vectors), len(vectors[0])
    owner = np.concatenate([np.full(len(part), k) for k, part in enumerate(np.array_split(np.arange(n), p))])
    held = [np.array(v) for v in vectors]
    for turn in range(2 * (p - 1)):
        adding = turn < p - 1
        sends = []
        for r in range(p):
            k = (r - turn) % p if adding else (r + 1 - (turn - (p - 1))) % p
            sends.append(Send(r, (r + 1) % p, held[r][owner == k], k))
        for m in network.exchange(sends):
            old = held[m.destination][owner == m.chunk]
            held[m.destination][owner == m.chunk] = old + m.values if adding else m.values
    return held
"""
)
IN_A_CLASS = (
    HEAD
    + """
class Ring:
    def __init__(self, rows, network):
        self.rows, self.network, self.p = rows, network, len(rows)
    def turn(self, shift, combine):
        for s in range(self.p - 1):
            chunk_of = lambda r: (r + shift - s) % self.p
            sends = [Send(r, (r + 1) % self.p, self.rows[r][chunk_of(r)], chunk_of(r)) for r in range(self.p)]
            for m in self.network.exchange(sends):
                row = self.rows[m.destination]
                row[m.chunk] = combine(row[m.chunk], m.values)
def all_reduce(vectors, network):
    ring = Ring([np.array_split(v, len(vectors)) for v in vectors], network)
    ring.turn(0, np.add)
    ring.turn(1, lambda mine, theirs: theirs)
    return list(map(np.concatenate, ring.rows))
"""
)
THROUGH_RANK_0 = (
    HEAD
    + """
def all_reduce(vectors, network):
    total = vectors[0].copy()
    for rank in range(1, len(vectors)):
        (message,) = network.exchange([Send(rank, 0, vectors[rank], 0)])
        total += message.values
    results = [total]
    for rank in range(1, len(vectors)):
        (message,) = network.exchange([Send(0, rank, total, 0)])
        results.append(message.values)
    return results
"""
)
STACKED = all_reduce().replace(
    "return [np.concatenate(row) for row in chunks]",
    "return np.array([np.hstack(chunks[r]) for r in range(ranks)])",
)
CUT_BY_HAND = all_reduce(
    cut="[v[a:b] for a, b in cuts]",
    before="n = len(vectors[0]); sizes = [n // ranks + (k < n % ranks) for k in range(ranks)]; cuts = [(sum(sizes[:k]), sum(sizes[:k + 1])) for k in range(ranks)]",
)
AS_TUPLES = all_reduce().replace("return [", "return tuple([").replace("in chunks]", "in chunks])")
OWN_HALVES = (
    HEAD
    + """
def all_reduce(vectors, network):
    p = len(vectors)
    chunks = [np.array_split(np.asarray(v, dtype=float), p) for v in vectors]
    def step(s, first, take):
        sends = [Send(r, (r + 1) % p, chunks[r][(r + first - s) % p], (r + first - s) % p) for r in range(p)]
        for m in network.exchange(sends):
            take(m)
    def add(m):
        chunks[m.destination][m.chunk] = m.values + chunks[m.destination][m.chunk]
    def replace(m):
        chunks[m.destination][m.chunk] = m.values
    for s in range(p - 1):
        step(s, 0, add)
    for s in range(p - 1):
        step(s, 1, replace)
    return [np.concatenate(chunks[r]) for r in range(p)]
"""
)
RIGHT = {
    "scatter": [
        scatter(),
        ENUMERATED.format(name="reduce_scatter", first=0, value="chunks[r][m.chunk] + m.values"),
        RETURNS.format(
            name="reduce_scatter", first=0, value="table[m.destination, m.chunk] + m.values"
        ),
        *(first for first, _ in MORE),
    ],
    "gather": [
        gather(),
        ENUMERATED.format(name="all_gather", first=1, value="m.values"),
        RETURNS.format(name="all_gather", first=1, value="m.values"),
        *(second for _, second in MORE),
    ],
    "all-reduce": [
        all_reduce(),
        OWN_ALL_REDUCE,
        MATRIX_ALL_REDUCE,
        IN_A_CLASS,
        STACKED,
        CUT_BY_HAND,
        AS_TUPLES,
        OWN_HALVES,
    ],
    "seconds": [
        "from fractions import Fraction as F\n"
        + seconds(
            "2 * (ranks - 1) * (F(latency_seconds) + F(payload_bytes) / ranks / F(bandwidth))"
        ),
        seconds("2 * (ranks - 1) * (latency_seconds + payload_bytes / ranks / bandwidth)"),
        seconds(
            "2 * (ranks - 1) * latency_seconds + 2 * (ranks - 1) / ranks * payload_bytes / bandwidth"
        ),
        seconds(
            "sum(latency_seconds + payload_bytes / ranks / bandwidth for _ in range(2) for _ in range(ranks - 1))"
        ),
        seconds("(2 * ranks - 2) * latency_seconds + (2 - 2 / ranks) * payload_bytes / bandwidth"),
        seconds(
            "(lambda chunk: 2 * (ranks - 1) * (latency_seconds + chunk / bandwidth))(payload_bytes / ranks)"
        ),
        "import numpy as np\n"
        + seconds(
            "np.sum(np.full(2 * (ranks - 1), latency_seconds + payload_bytes / (ranks * bandwidth)))"
        ),
        LOOPED_SECONDS,
        NAMED_SECONDS,
    ],
}
WRONG = {
    "scatter": {
        "replaced": scatter("="),
        "read-elsewhere": scatter().replace("m.values", "chunks[m.source][m.chunk]"),
        "(it never ends)": scatter().replace(
            "for step in range(ranks - 1):", "for step in iter(int, 1):"
        ),
        "(a tuple sent)": scatter().replace(
            "Send(rank, (rank + 1) % ranks, chunks[rank][k], k)",
            "(rank, (rank + 1) % ranks, chunks[rank][k], k)",
        ),
        "one-step-short": scatter(steps="ranks - 2"),
        "one-step-too-many": scatter(steps="ranks"),
        "always-the-same": scatter(turn="0"),
        "one-by-one": one_by_one("reduce_scatter", 0, "+="),
        "next-chunk": scatter(turn="(-step)"),
        "own-chunk": half("reduce_scatter", -1, "+="),
        "(the other way round)": scatter().replace("(rank + 1) % ranks", "(rank - 1) % ranks"),
        "(no ring)": scatter().replace("(rank + 1) % ranks", "rank + 1"),
    },
    "gather": {
        "added": gather("+="),
        "read-elsewhere": gather().replace("m.values", "chunks[m.source][m.chunk]"),
        "one-step-short": gather(steps="ranks - 2"),
        "unfinished-sent": gather(first=0),
        "always-the-same": gather(turn="0"),
        "one-by-one": one_by_one("all_gather", 1, "="),
        "not-sent": """
def all_gather(chunks, network):
    for k, holder in enumerate([len(chunks) - 1, *range(len(chunks) - 1)]):
        for row in chunks:
            row[k] = chunks[holder][k]
""",
    },
    "all-reduce": {
        "through-rank-0": THROUGH_RANK_0,
        "not-sent": HEAD
        + "def all_reduce(vectors, network):\n    return [sum(vectors)] * len(vectors)\n",
        "whole-vectors": HEAD
        + """
def all_reduce(vectors, network):
    sums, passing = list(vectors), list(vectors)
    for _ in vectors[1:]:
        sends = [Send(r, (r + 1) % len(vectors), v, 0) for r, v in enumerate(passing)]
        for m in network.exchange(sends):
            sums[m.destination] = sums[m.destination] + m.values
            passing[m.destination] = m.values
    return sums
""",
        "rest-to-last": all_reduce(
            cut="np.split(v, [k * (len(v) // ranks) for k in range(1, ranks)])"
        ),
        "rest-lost": all_reduce(cut="np.split(v[:len(v) // ranks * ranks], ranks)"),
        "not-gathered": all_reduce(second="pass"),
        "averaged": all_reduce(after=" / ranks"),
        "empty-skipped": OWN_HALVES.replace(
            "network.exchange(sends)", "network.exchange([s for s in sends if len(s.values)])"
        ),
        "(only one rank gets it)": all_reduce()
        .replace("return [", "return [")
        .replace("for row in chunks]", "for row in chunks[:1]]"),
    },
    "seconds": {
        "one-half": seconds("(ranks - 1) * (latency_seconds + payload_bytes / ranks / bandwidth)"),
        "whole-vectors": seconds("2 * (ranks - 1) * (latency_seconds + payload_bytes / bandwidth)"),
        "one-step-each": seconds(
            "2 * ranks * (latency_seconds + payload_bytes / ranks / bandwidth)"
        ),
        "one-latency": seconds(
            "latency_seconds + 2 * (ranks - 1) / ranks * payload_bytes / bandwidth"
        ),
        "chunks-by-steps": seconds(
            "2 * (ranks - 1) * (latency_seconds + payload_bytes / (ranks - 1) / bandwidth)"
        ),
        "one-chunk": seconds(
            "2 * (ranks - 1) * latency_seconds + payload_bytes / ranks / bandwidth"
        ),
        "rank-by-rank": seconds(
            "2 * (ranks - 1) * ranks * (latency_seconds + payload_bytes / ranks / bandwidth)"
        ),
        "bits": seconds(
            "2 * (ranks - 1) * (latency_seconds + 8 * payload_bytes / ranks / bandwidth)"
        ),
    },
}

LIBRARY = (
    HEAD
    + """from utils.collectives import ring_all_reduce
def all_reduce(vectors, network):
    return ring_all_reduce(vectors, network).vectors
"""
)
REFUSED = {
    "scatter": {
        "calls utils.collectives.ring": "from utils.collectives import ring_reduce_scatter as reduce_scatter\n",
        "must keep one array per chunk": scatter() + "    return chunks[0]\n",
    },
    "gather": {
        "calls utils.collectives.ring": HEAD
        + "import utils.collectives as c\ndef all_gather(chunks, network):\n    c.ring_all_gather(chunks, network)\n"
    },
    "all-reduce": {
        "calls utils.collectives.ring": LIBRARY,
        "must be a list with each rank's sum, got <map": all_reduce().replace(
            "[np.concatenate(row) for row in chunks]", "map(np.concatenate, chunks)"
        ),
        "join its chunks": all_reduce().replace(
            "return [np.concatenate(row) for row in chunks]", "return chunks"
        ),
    },
}
