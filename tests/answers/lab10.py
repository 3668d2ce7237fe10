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
    ],
    "partitioner": [
        partitioner("partitioners.FixedShardsPartitioner(num_shards=servers)"),
        partitioner("partitioners.MinSizePartitioner(min_shard_bytes=1, max_shards=servers)"),
        partitioner("lambda shape, dtype, **_: [servers] + [1] * (shape.rank - 1)"),
    ],
    "staleness": [
        staleness("sum(kind == 'apply' for kind, _ in list(events)[read + 1:done])"),
        COUNTING,
        MATRIX,
    ],
    "start": [
        start("own_clock - min(clocks) <= bound"),
        start("all(own_clock <= other + bound for other in clocks)"),
        start("np.min(clocks) >= own_clock - bound"),
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
        "never-joined": closures(join="pass"),
        "averaged": closures(result="float(np.mean(coordinator.fetch(results)))"),
    },
    "partitioner": {
        "not-cut": partitioner("None"),
        "twice-as-many": partitioner("partitioners.FixedShardsPartitioner(2 * servers)"),
        "one-too-few": partitioner("partitioners.FixedShardsPartitioner(servers - 1)"),
    },
    "staleness": {
        "itself-counted": staleness(
            "sum(kind == 'apply' for kind, _ in list(events)[read:done + 1])"
        ),
        "reads-counted": staleness(
            "sum(kind == 'read' for kind, _ in list(events)[read + 1:done])"
        ),
        "since-the-start": staleness("sum(kind == 'apply' for kind, _ in list(events)[:done])"),
    },
    "start": {
        "behind-the-fastest": start("max(clocks) - own_clock <= bound"),
        "never-equal": start("own_clock - min(clocks) < bound"),
        "mean": start("own_clock - sum(clocks) / len(clocks) <= bound"),
    },
}
