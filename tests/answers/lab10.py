# ruff: noqa: E501
"""Lab 10: answers that must pass, in several styles, and answers that must be refused by name."""


def train(
    manager="tf.train.CheckpointManager(tf.train.Checkpoint({state}), folder, max_to_keep=2)",
    restore="manager.restore_or_initialize()",
    state="weights=weights, done=done",
    update="weights.assign_sub(0.02 * tape.gradient(loss, weights))",
    loss="tf.reduce_mean(errors**2)",
    loop="int(done) < steps",
    chunk="every",
    after="done.assign_add(every)",
    save="manager.save(checkpoint_number=int(done))",
):
    return f"""
import tensorflow as tf
def train(strategy, coordinator, make_batches, folder, steps, every):
    with strategy.scope():
        weights = tf.Variable(tf.zeros([8]))
        done = tf.Variable(0, dtype=tf.int64)
    manager = {manager.format(state=state)}
    {restore}
    batches = iter(coordinator.create_per_worker_dataset(make_batches))
    @tf.function
    def update(iterator):
        features, targets = next(iterator)
        with tf.GradientTape() as tape:
            errors = tf.linalg.matvec(features, weights) - targets
            loss = {loss}
        {update}
    while {loop}:
        for _ in range({chunk}):
            coordinator.schedule(update, args=(batches,))
        coordinator.join()
        {after}
        {save}
    return weights.numpy()
"""


def fail(**mistake):
    """Keep arrays in place of checkpoints, which are traced anew for each save."""
    text = """
import os, pathlib
import numpy as np
class Files:
    def __init__(self, folder, **state):
        self.folder, self.state = pathlib.Path(folder), state
    def restore_or_initialize(self):
        kept = sorted(self.folder.glob("*.npz"), key=lambda path: int(path.stem))
        for name, value in np.load(kept[-1]).items() if kept else ():
            self.state[name].assign(value)
    def save(self, checkpoint_number):
        with open(self.folder / "unfinished", "wb") as file:
            np.savez(file, **{name: kept.numpy() for name, kept in self.state.items()})
        os.rename(self.folder / "unfinished", self.folder / f"{checkpoint_number}.npz")
"""
    return text + train(manager="Files(folder, {state})", **mistake)


KERAS = """
import keras
import tensorflow as tf
def train(strategy, coordinator, make_batches, folder, steps, every):
    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
        optimizer = keras.optimizers.SGD(0.02)
        optimizer.build(model.trainable_variables)
        done = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, done=done)
    newest = tf.train.latest_checkpoint(folder)
    if newest:
        checkpoint.restore(newest)
    per_worker = coordinator.create_per_worker_dataset(make_batches)
    iterator = iter(per_worker)
    def replica(features, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(features)[:, 0] - targets) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss
    @tf.function
    def step(iterator):
        return strategy.run(replica, args=next(iterator))
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=3)
    while done.numpy() < steps:
        losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(every)]
        coordinator.join()
        assert len(coordinator.fetch(losses)) == every
        done.assign_add(every)
        manager.save(checkpoint_number=int(done.numpy()))
    return model.get_weights()[0].ravel()
"""
NUMPY_FILES = """
import pathlib
import numpy as np
import tensorflow as tf
def train(strategy, coordinator, make_batches, folder, steps, every):
    folder = pathlib.Path(folder)
    kept = sorted(folder.glob("*.npy"), key=lambda path: int(path.stem))
    start = np.load(kept[-1]) if kept else np.zeros(8, np.float32)
    done = int(kept[-1].stem) if kept else 0
    with strategy.scope():
        weights = tf.Variable(start, dtype=tf.float32)
    @tf.function
    def update(iterator):
        x, y = next(iterator)
        slope = 2 * tf.linalg.matvec(x, tf.linalg.matvec(x, weights) - y, transpose_a=True) / 16.0
        weights.assign_add(-0.02 * slope)
    iterator = iter(coordinator.create_per_worker_dataset(make_batches))
    for done in range(done + every, steps + 1, every):
        [coordinator.schedule(update, (iterator,)) for _ in range(every)]
        coordinator.join()
        np.save(folder / f"{done}.tmp.npy", weights.numpy())
        (folder / f"{done}.tmp.npy").rename(folder / f"{done}.npy")
    return weights.numpy().tolist()
"""
COUNTED_ON_SERVERS = train(
    update="weights.assign_sub(0.02 * tape.gradient(loss, weights)); done.assign_add(1)",
    chunk="every - int(done) % every",
    after="done.assign(-(-int(done) // every) * every)",
)
WRITTEN = """
import os, re
import tensorflow as tf
def train(strategy, coordinator, make_batches, folder, steps, every):
    with strategy.scope():
        w = tf.Variable([0.0] * 8)
    saver = tf.train.Checkpoint(w=w)
    numbers = [int(m[1]) for m in map(re.compile(r"at-([0-9]+)[.]index").fullmatch, os.listdir(folder)) if m]
    first = max(numbers, default=0)
    if first:
        saver.read(os.path.join(folder, f"at-{first}"))
    def make():
        return make_batches().prefetch(1)
    feed = iter(coordinator.create_per_worker_dataset(make))
    @tf.function
    def closure(feed):
        x, y = next(feed)
        with tf.GradientTape() as tape:
            loss = tf.nn.l2_loss(tf.reduce_sum(x * w, axis=1) - y) / 8
        w.assign_sub(0.02 * tape.gradient(loss, w))
    while first < steps:
        for _ in range(every):
            coordinator.schedule(closure, args=(feed,))
        coordinator.join()
        first += every
        saver.write(os.path.join(folder, f"at-{first}"))
    return w.read_value()
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


def bound(
    reach="step - bound",
    waits="max(table[w][step], max(table[v][reach] for v in range(len(seconds))))",
    end="max(row[-1] for row in table)",
    finish="",
):
    return f"""
def run_bounded(seconds, bound):
    table, waited = [[0.0] for _ in seconds], [0.0 for _ in seconds]
    for step in range(len(seconds[0])):
        reach = min(max({reach}, 0), step)
        for w, row in enumerate(table):
            begin = {waits}
            waited[w] += begin - row[step]
            row.append(begin + seconds[w][step])
    {finish}
    return {{"end": {end}, "waited": waited}}
"""


CLOCKS = """
import heapq
def run_bounded(seconds, bound):
    n, steps = len(seconds), len(seconds[0])
    clocks, waited, ready, idle = [0] * n, [0.0] * n, [0.0] * n, set(range(n))
    queue, now = [], 0.0
    while True:
        for w in sorted(idle):
            if clocks[w] < steps and clocks[w] - min(clocks) <= bound:
                idle.discard(w)
                waited[w] += now - ready[w]
                heapq.heappush(queue, (now + seconds[w][clocks[w]], w))
        if not queue:
            return {"end": now, "waited": waited}
        now, w = heapq.heappop(queue)
        clocks[w] += 1
        ready[w] = now
        idle.add(w)
"""
CACHED = """
from functools import cache
import numpy as np
def run_bounded(seconds, bound):
    @cache
    def end(worker, done):
        return 0.0 if done <= 0 else begin(worker, done - 1) + seconds[worker][done - 1]
    @cache
    def begin(worker, step):
        return max([end(worker, step), *(end(other, step - bound) for other in range(len(seconds)))])
    steps = len(seconds[0])
    waited = [sum(begin(w, k) - end(w, k) for k in range(steps)) for w in range(len(seconds))]
    return {"waited": np.array(waited), "end": max(end(w, steps) for w in range(len(seconds)))}
"""
VECTORS = """
import numpy as np
def run_bounded(seconds, bound):
    seconds = np.asarray(seconds)
    history, now = [np.zeros(len(seconds))], np.zeros(len(seconds))
    for step, took in enumerate(seconds.T):
        now = np.maximum(now, history[max(step - bound, 0)].max()) + took
        history.append(now)
    own = np.cumsum(seconds, axis=1)[:, -1]
    return {"end": np.max(now), "waited": now - own}
"""
COROUTINES = """
def run_bounded(seconds, bound):
    everyone = [0.0]
    last, waited = {w: 0.0 for w in range(len(seconds))}, {w: 0.0 for w in range(len(seconds))}
    for k in range(len(seconds[0])):
        gate = everyone[k - bound] if k > bound else 0.0
        for w in last:
            pause = gate - last[w] if gate > last[w] else 0.0
            waited[w] += pause
            last[w] += pause + seconds[w][k]
        everyone.append(max(last.values()))
    return dict(end=everyone[-1], waited=list(waited.values()))
"""


RIGHT = {
    "train": [
        train(),
        KERAS,
        NUMPY_FILES,
        WRITTEN,
        train(loss="tf.tensordot(errors, errors, 1) / 16.0"),
        train(
            restore="state = tf.train.latest_checkpoint(folder); state and manager.checkpoint.restore(state)"
        ),
        train(
            loop="done < steps",
            update="weights.assign(weights - tape.gradient(loss, weights) / 50)",
        ),
        COUNTED_ON_SERVERS,
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
    "bound": [
        bound(),
        CLOCKS,
        CACHED,
        VECTORS,
        COROUTINES,
        bound(waits="sorted([table[w][step], *(other[reach] for other in table)])[-1]"),
        bound(end="max(map(max, table))"),
        bound(finish="waited = [row[-1] - sum(own) for row, own in zip(table, seconds)]"),
    ],
}
WRONG = {
    "train": {
        "began-anew": fail(restore="pass"),
        "weights-forgotten": fail(state="done=done"),
        "too-few-steps": fail(loop="int(done) + every < steps"),
        "counted-anew": fail(restore="manager.restore_or_initialize(); steps += int(done)"),
        "other-steps": fail(chunk="every - 1", after="done.assign_add(every - 1)"),
        "too-few-batches": fail(chunk="every // 2"),
        "nothing-trained": fail(update="pass"),
    },
    "partitioner": {
        "not-cut": partitioner("None"),
        "not-cut (by its bytes)": partitioner(
            "partitioners.MinSizePartitioner(max_shards=servers)"
        ),
        "twice-as-many": partitioner("partitioners.FixedShardsPartitioner(2 * servers)"),
        "one-too-few": partitioner("partitioners.FixedShardsPartitioner(servers - 1)"),
        "fixed-number": partitioner("partitioners.FixedShardsPartitioner(3)"),
    },
    "staleness": {
        "(back to front)": COUNTING.replace(
            "[out[k] for k in range(len(out))]", "[out[k] for k in range(len(out))][::-1]"
        ),
        "itself-counted": staleness(
            "sum(kind == 'apply' for kind, _ in list(events)[read:done + 1])"
        ),
        "reads-counted": staleness(
            "sum(kind == 'read' for kind, _ in list(events)[read + 1:done])"
        ),
        "since-the-start": staleness("sum(kind == 'apply' for kind, _ in list(events)[:done])"),
        "everything-counted": staleness("done - read - 1"),
        "still-open": UNDER_WAY.replace(
            "open_closures[k] = 0\n            continue",
            "open_closures[k] = len(open_closures)\n            continue",
        ).replace("open_closures[other] += 1", "pass"),
        "as-applied": COUNTING.replace("[out[k] for k in range(len(out))]", "list(out.values())"),
    },
    "bound": {
        "(the middle one, not the slowest)": bound(
            waits="max(table[w][step], sorted(row[reach] for row in table)[len(table) // 2])"
        ),
        "never-waited": bound(waits="table[w][step]"),
        "one-less": bound(reach="step - bound + 1"),
        "barrier": bound(
            waits="row[step] if step % (bound + 1) else max(table[v][step] for v in range(len(table)))"
        ),
        "one-more": bound(reach="step - bound - 1"),
        "never-waited (compared with the fastest)": bound(
            waits="max(table[w][step], min(table[v][reach] for v in range(len(seconds))))"
        ),
        "neighbor": bound(waits="max(table[w][step], table[w - 1][reach])"),
        "end-of-the-first": bound(end="min(row[-1] for row in table)"),
        "busy-as-waiting": bound(
            finish="waited = [w + max(r[-1] for r in table) - row[-1] for w, row in zip(waited, table)]"
        ),
        "not-delayed": bound().replace("append(begin", "append(row[step]"),
        "end-without-waiting": bound(end="max(sum(row) for row in seconds)"),
    },
}
REFUSED = {
    "train": {
        "train must return the weights [8], got [8, 1]": "def train(*_):\n    return [[0.0]] * 8\n",
        "the updates grew without bound": "def train(*_):\n    return [float('inf')] * 8\n",
    },
    "partitioner": {
        "a partitioner made for that many servers": partitioner("servers"),
        "called with a shape and a dtype, got": partitioner("partitioners.FixedShardsPartitioner"),
        "the number of pieces along each axis": "def make_partitioner(servers):\n"
        "    return lambda shape, dtype: servers",
    },
}
