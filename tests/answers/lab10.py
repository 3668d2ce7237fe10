# ruff: noqa: E501
"""Lab 10: answers that must pass, in several styles, and answers that must be refused by name."""


def closures(
    schedule="results = [coordinator.schedule(closure) for _ in range(count)]",
    join="coordinator.join()",
    result="sum(float(v) for v in coordinator.fetch(results))",
):
    return f"""
import numpy as np
def run_closures(coordinator, closure, count):
    {schedule}
    {join}
    return {result}
"""


EACH = """
def run_closures(coordinator, closure, count):
    total = 0.0
    for _ in range(count):
        value = coordinator.schedule(closure)
        coordinator.join()
        total += value.fetch()
    return total
"""


FETCHED = """
def run_closures(coordinator, closure, count):
    total = 0.0
    for _ in range(count):
        total += coordinator.schedule(closure).fetch()
    coordinator.join()
    return total
"""
POLLED = """
def run_closures(coordinator, closure, count):
    import collections
    waiting = collections.deque()
    for number in range(count):
        waiting.append(coordinator.schedule(closure, args=()))
    coordinator.join()
    assert coordinator.done()
    total = 0.0
    while waiting:
        total += float(waiting.popleft().fetch())
    return total
"""
POLLED_EACH = FETCHED.replace(
    "total += coordinator.schedule(closure).fetch()",
    "result = coordinator.schedule(closure)\n        while not coordinator.done():\n            pass\n        total += result.fetch()",
)
FOR_SHOW = """
def run_closures(coordinator, closure, count):
    total = sum(float(closure()) for _ in range(count))
    results = [coordinator.schedule(closure) for _ in range(count)]
    coordinator.join()
    return total if coordinator.fetch(results) else None
"""


def partitioner(expression):
    return f"""
import tensorflow as tf
def make_partitioner(servers):
    partitioners = tf.distribute.experimental.partitioners
    return {expression}
"""


def staleness(expression):
    return f"""
def measure_staleness(events):
    closures = sorted(k for kind, k in events if kind == "apply")
    found = []
    for k in closures:
        read, done = list(events).index(("read", k)), list(events).index(("apply", k))
        found.append({expression})
    return found
"""


COUNTING = """
import numpy as np
def measure_staleness(events):
    count, seen, out = 0, {}, {}
    for kind, k in events:
        if kind == "read":
            seen[k] = count
        else:
            out[k] = count - seen[k]
            count += 1
    return np.array([out[k] for k in range(len(out))])
"""
MATRIX = """
import numpy as np
def measure_staleness(events):
    n = sum(kind == "apply" for kind, _ in events)
    read, done = np.zeros(n), np.zeros(n)
    for when, (kind, k) in enumerate(events):
        (read if kind == "read" else done)[k] = when
    between = (done[None, :] > read[:, None]) & (done[None, :] < done[:, None])
    return between.sum(axis=1).tolist()
"""


UNDER_WAY = """
def measure_staleness(events):
    open_closures, result = {}, {}
    for kind, k in events:
        if kind == "read":
            open_closures[k] = 0
            continue
        result[k] = open_closures.pop(k)
        for other in open_closures:
            open_closures[other] += 1
    return [value for _, value in sorted(result.items())]
"""
VERSIONS = """
from itertools import accumulate
def measure_staleness(events):
    versions = list(accumulate(kind == "apply" for kind, _ in events))
    read = {k: v for (kind, k), v in zip(events, versions) if kind == "read"}
    applied = {k: v for (kind, k), v in zip(events, versions) if kind == "apply"}
    return tuple(applied[k] - read[k] - 1 for k in range(len(read)))
"""


SERVER = """
class Server:
    def __init__(self):
        self.version, self.seen, self.stale = 0, {}, {}

    def on_read(self, k):
        self.seen[k] = self.version

    def on_apply(self, k):
        self.stale[k] = self.version - self.seen[k]
        self.version += 1

    def replay(self, events):
        for kind, k in events:
            getattr(self, f"on_{kind}")(k)
        return [self.stale[k] for k in sorted(self.stale)]


def measure_staleness(events):
    return Server().replay(events)
"""


def start(expression):
    return (
        f"import numpy as np\ndef may_start(own_clock, clocks, bound):\n    return {expression}\n"
    )


RIGHT = {
    "closures": [
        closures(),
        closures(result="np.sum([r.fetch() for r in results])"),
        closures(
            "results = []\n    while len(results) < count:\n        results.append(coordinator.schedule(closure))",
            result="float(np.add.reduce(coordinator.fetch(tuple(results))))",
        ),
        POLLED,
        closures(result="sum(map(float, map(coordinator.fetch, results)))"),
        closures(
            "results = {k: coordinator.schedule(closure) for k in range(count)}",
            result="sum(coordinator.fetch(results).values())",
        ),
        closures(
            "results = list(map(lambda _: coordinator.schedule(closure, (), {}), range(count)))"
        ),
        "import math\n" + closures(result="math.fsum(r.get() for r in results)"),
    ],
    "partitioner": [
        partitioner("partitioners.FixedShardsPartitioner(num_shards=servers)"),
        partitioner("partitioners.MinSizePartitioner(min_shard_bytes=1, max_shards=servers)"),
        partitioner("lambda shape, dtype, **_: [servers] + [1] * (shape.rank - 1)"),
        partitioner("partitioners.FixedShardsPartitioner(servers)"),
        partitioner("partitioners.MinSizePartitioner(4, servers)"),
        partitioner(
            "lambda shape, dtype, axis=0: [servers if k == axis else 1 for k in range(len(shape))]"
        ),
        partitioner(
            "(lambda fixed: lambda shape, dtype, axis=0: fixed(shape, dtype, axis))(partitioners.FixedShardsPartitioner(servers))"
        ),
        """
import tensorflow as tf
class Rows(tf.distribute.experimental.partitioners.Partitioner):
    def __init__(self, pieces):
        self.pieces = pieces
    def __call__(self, shape, dtype, axis=0):
        cut = [1] * len(shape)
        cut[axis] = min(self.pieces, shape.dims[axis].value)
        return cut
def make_partitioner(servers):
    return Rows(servers)
""",
    ],
    "staleness": [
        staleness("sum(kind == 'apply' for kind, _ in list(events)[read + 1:done])"),
        COUNTING,
        MATRIX,
        staleness("len([k for kind, k in list(events)[read + 1:done] if kind == 'apply'])"),
        staleness("[kind for kind, _ in events][read:done].count('apply')"),
        staleness("sum(1 for k2 in closures if read < list(events).index(('apply', k2)) < done)"),
        UNDER_WAY,
        VERSIONS,
        SERVER,
    ],
    "start": [
        start("own_clock - min(clocks) <= bound"),
        start("all(own_clock <= other + bound for other in clocks)"),
        start("np.min(clocks) >= own_clock - bound"),
        start("not any(own_clock - clock > bound for clock in clocks)"),
        start("own_clock <= sorted(clocks)[0] + bound"),
        start("own_clock in range(min(clocks), min(clocks) + bound + 1)"),
        start("np.all(np.asarray(clocks) + bound >= own_clock)"),
        start("max(own_clock - clock for clock in clocks) < bound + 1"),
    ],
}
WRONG = {
    "closures": {
        "ran-here": closures(
            "results = [closure() for _ in range(count)]", "pass", "sum(float(r) for r in results)"
        ),
        "one-too-few": closures(
            "results = [coordinator.schedule(closure) for _ in range(1, count)]"
        ),
        "joined-each-time": EACH,
        "fetched-in-loop": FETCHED,
        "fetched-in-loop (no join)": FETCHED.replace("    coordinator.join()\n", ""),
        "fetched-in-loop (polled until each is done)": POLLED_EACH,
        "(computed here, scheduled for show)": FOR_SHOW,
        "never-joined": closures(join="pass"),
        "never-joined (before the first)": closures(
            "coordinator.join()\n    results = [coordinator.schedule(closure) for _ in range(count)]",
            "pass",
        ),
        "never-joined (halfway)": closures(
            "results = [coordinator.schedule(closure) for _ in range(count // 2)]",
            "coordinator.join()\n"
            "    results += [coordinator.schedule(closure) for _ in range(count - count // 2)]",
        ),
        "averaged": closures(result="float(np.mean(coordinator.fetch(results)))"),
    },
    "partitioner": {
        "not-cut": partitioner("None"),
        "twice-as-many": partitioner("partitioners.FixedShardsPartitioner(2 * servers)"),
        "one-too-few": partitioner("partitioners.FixedShardsPartitioner(servers - 1)"),
        "fixed-number": partitioner("partitioners.FixedShardsPartitioner(3)"),
    },
    "staleness": {
        "itself-counted": staleness(
            "sum(kind == 'apply' for kind, _ in list(events)[read:done + 1])"
        ),
        "reads-counted": staleness(
            "sum(kind == 'read' for kind, _ in list(events)[read + 1:done])"
        ),
        "since-the-start": staleness("sum(kind == 'apply' for kind, _ in list(events)[:done])"),
        "everything-counted": staleness("done - read - 1"),
        "as-applied": COUNTING.replace("[out[k] for k in range(len(out))]", "list(out.values())"),
    },
    "start": {
        "behind-the-fastest": start("max(clocks) - own_clock <= bound"),
        "never-equal": start("own_clock - min(clocks) < bound"),
        "spread": start("max(clocks) - min(clocks) <= bound"),
        "mean": start("own_clock - sum(clocks) / len(clocks) <= bound"),
        "always": start("True"),
        "never": start("False"),
        "only-the-slowest": start("own_clock == min(clocks)"),
    },
}
REFUSED = {
    "closures": {
        "schedule returns a promise": closures(result="sum(results)"),
        "schedule the closure itself": closures(
            "results = [coordinator.schedule(lambda: 0.0) for _ in range(count)]",
            result="sum(float(closure()) for _ in range(count))",
        ),
    },
    "partitioner": {
        "how many pieces there are along each axis": "def make_partitioner(servers):\n"
        "    return lambda shape, dtype: servers",
    },
}
