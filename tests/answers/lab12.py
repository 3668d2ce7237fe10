# ruff: noqa: E501
"""Lab 12: answers that must pass, in several styles, and answers that must be refused by name."""

NP = "import numpy as np\n"


def columns(
    output="x @ w + b", bias="g.sum(axis=0)", x="sum(g @ w.T for g, w in zip(gs, kernels))"
):
    return f"""{NP}
def column_layer(x, kernels, biases, upstream):
    gs, at = [], 0
    for w in kernels:
        gs.append(upstream[:, at:at + w.shape[1]])
        at += w.shape[1]
    output = np.hstack([{output} for w, b in zip(kernels, biases)])
    return output, [x.T @ g for g in gs], [{bias} for g in gs], {x}
"""


def rows(output="sum(x @ w for x, w in zip(parts, kernels)) + bias", before="pass"):
    return f"""{NP}
def row_layer(parts, kernels, bias, upstream):
    output = {output}
    {before}
    return output, [x.T @ upstream for x in parts], upstream.sum(0), [upstream @ w.T for w in kernels]
"""


def schedule(ahead):
    return f"""
def make_1f1b(stages, micro_batches):
    orders = []
    for s in range(stages):
        ahead = min({ahead}, micro_batches)
        order = [("F", m) for m in range(ahead)]
        for m in range(micro_batches):
            order += [("BW", m)] + [("F", ahead + m)] * (ahead + m < micro_batches)
        orders.append(order)
    return orders
"""


def sharded(
    parts="2 * x.T @ (x @ w - y) / n for x, y in zip(inputs, targets)",
    gradient="sum(parts)",
    new="np.split(w - rate * gradient, edges)",
    gathered="total - sizes[(k + 1) % P]",
    scattered="total - sizes[k]",
    size="4",
):
    return f"""
import numpy as np
def sharded_step(pieces, inputs, targets, rate):
    P, sizes = len(pieces), [len(piece) for piece in pieces]
    w, total, edges = np.concatenate(pieces), sum(sizes), np.cumsum(sizes)[:-1]
    n = sum(len(y) for y in targets)
    parts = [{parts}]
    gradient = {gradient}
    return {new}, [{size} * (({gathered}) + ({scattered})) for k in range(P)]
"""


SIMULATED = """
import numpy as np
class Ring:
    def __init__(self, ranks):
        self.sent = [0] * ranks
    def send(self, rank, message):
        self.sent[rank] += message.astype(np.float32).nbytes
        return message
def sharded_step(pieces, inputs, targets, rate):
    ranks = len(pieces)
    ring = Ring(ranks)
    known = [{k: pieces[k]} for k in range(ranks)]
    for t in range(ranks - 1):
        messages = [((k - t) % ranks, ring.send(k, known[k][(k - t) % ranks])) for k in range(ranks)]
        for k, (which, message) in enumerate(messages):
            known[(k + 1) % ranks][which] = message
    count = sum(map(len, targets))
    edges = np.cumsum([len(piece) for piece in pieces])[:-1]
    sums = []
    for k in range(ranks):
        w = np.concatenate([known[k][j] for j in range(ranks)])
        sums.append(np.split(inputs[k].T @ (inputs[k] @ w - targets[k]) * 2 / count, edges))
    for t in range(ranks - 1):
        messages = [((k - t - 1) % ranks, ring.send(k, sums[k][(k - t - 1) % ranks])) for k in range(ranks)]
        for k, (which, message) in enumerate(messages):
            to = (k + 1) % ranks
            sums[to][which] = sums[to][which] + message
    return [pieces[k] - rate * sums[k][k] for k in range(ranks)], ring.sent
"""
ONE_BATCH = """
import numpy as np
def sharded_step(pieces, inputs, targets, rate):
    x, y, w = np.vstack(inputs), np.hstack(targets), np.hstack(pieces)
    w = w - 2 * rate * np.mean((x @ w - y)[:, None] * x, axis=0)
    starts = np.cumsum([0] + [p.size for p in pieces])
    sizes = np.diff(starts)
    sent = 8 * sizes.sum() - 4 * sizes - 4 * np.roll(sizes, -1)
    return tuple(w[a:b] for a, b in zip(starts, starts[1:])), tuple(sent.tolist())
"""
TENSORFLOW = """
import numpy as np, tensorflow as tf
def sharded_step(pieces, inputs, targets, rate):
    shards = [tf.Variable(piece) for piece in pieces]
    count = float(sum(target.shape[0] for target in targets))
    with tf.GradientTape() as tape:
        whole = tf.concat([tf.convert_to_tensor(s) for s in shards], 0)
        errors = [tf.linalg.matvec(tf.constant(x), whole) - y for x, y in zip(inputs, targets)]
        loss = tf.add_n([tf.reduce_sum(e * e) for e in errors]) / count
    for shard, slope in zip(shards, tape.gradient(loss, shards)):
        shard.assign_sub(rate * slope)
    lengths = [int(s.shape[0]) for s in shards]
    sent = [sum(4 * n for j, n in enumerate(lengths) if j != (k + 1) % len(lengths)) + sum(4 * n for j, n in enumerate(lengths) if j != k) for k in range(len(lengths))]
    return [s.numpy() for s in shards], sent
"""
PIECE_BY_PIECE = """
def sharded_step(pieces, inputs, targets, rate):
    weights = [value for piece in pieces for value in piece.tolist()]
    slopes, count = [0.0] * len(weights), 0
    for xs, ys in zip(inputs, targets):
        for x, y in zip(xs.tolist(), ys.tolist()):
            error = sum(a * b for a, b in zip(x, weights)) - y
            slopes = [s + 2 * error * a for s, a in zip(slopes, x)]
            count += 1
    new, sent, first = [], [], 0
    for k, piece in enumerate(pieces):
        last = first + len(piece)
        new.append([w - rate * s / count for w, s in zip(weights[first:last], slopes[first:last])])
        following = pieces[k + 1] if k + 1 < len(pieces) else pieces[0]
        sent.append(4 * (2 * len(weights) - len(piece) - len(following)))
        first = last
    return new, sent
"""


TENSORS = """
import tensorflow as tf
def column_layer(x, kernels, biases, upstream):
    x = tf.constant(x)
    kernels = [tf.constant(k) for k in kernels]
    biases = [tf.constant(b) for b in biases]
    with tf.GradientTape() as tape:
        tape.watch([x, *kernels, *biases])
        y = tf.concat([x @ w + b for w, b in zip(kernels, biases)], axis=1)
    g = tape.gradient(y, [x, *kernels, *biases], output_gradients=tf.constant(upstream))
    n = len(kernels)
    return y, g[1:1 + n], g[1 + n:], g[0]
"""
JOINED = (
    NP
    + """
def column_layer(x, kernels, biases, upstream):
    w, b = np.concatenate(kernels, 1), np.concatenate(biases)
    cut = np.cumsum([len(part) for part in biases])[:-1]
    return x @ w + b, np.split(x.T @ upstream, cut, 1), np.split(upstream.sum(0), cut), upstream @ w.T
"""
)
ROWS_TENSORS = """
import tensorflow as tf
def row_layer(parts, kernels, bias, upstream):
    parts, kernels = [tf.constant(p) for p in parts], [tf.constant(k) for k in kernels]
    bias = tf.constant(bias)
    with tf.GradientTape() as tape:
        tape.watch([*parts, *kernels, bias])
        y = tf.add_n([p @ k for p, k in zip(parts, kernels)]) + bias
    n = len(parts)
    g = tape.gradient(y, [*parts, *kernels, bias], output_gradients=tf.constant(upstream))
    return y, g[n:2 * n], g[-1], g[:n]
"""
ROWS_LOOP = (
    NP
    + """
def row_layer(parts, kernels, bias, upstream):
    y = np.tile(bias, (len(upstream), 1))
    dws, dxs = [], []
    for x, w in zip(parts, kernels):
        y += x @ w
        dws.append(np.einsum("bi,bo->io", x, upstream))
        dxs.append(np.einsum("bo,io->bi", upstream, w))
    return [y, dws, np.ones(len(upstream)) @ upstream, dxs]
"""
)
QUEUE = """
def make_1f1b(stages, micro_batches):
    def order(stage):
        done_f = done_b = 0
        while done_b < micro_batches:
            if done_f < micro_batches and done_f - done_b < stages - stage:
                yield "F", done_f
                done_f += 1
            else:
                yield "BW", done_b
                done_b += 1
    return [list(order(stage)) for stage in range(stages)]
"""
SLICES = """
import numpy as np
def column_layer(x, kernels, biases, upstream):
    output, kernel_gradients, bias_gradients = np.empty(upstream.shape), [], []
    x_gradient, start = np.zeros_like(x), 0
    for kernel, bias in zip(kernels, biases):
        stop = start + kernel.shape[1]
        own = upstream[:, start:stop]
        output[:, start:stop] = np.dot(x, kernel) + bias
        kernel_gradients.append(np.dot(x.T, own))
        bias_gradients.append(np.sum(own, axis=0))
        x_gradient += np.dot(own, kernel.T)
        start = stop
    return output, kernel_gradients, bias_gradients, x_gradient
"""
EINSUM = """
import numpy as np
def column_layer(x, kernels, biases, upstream):
    edges = [0, *np.cumsum([b.size for b in biases])]
    gs = [upstream[:, a:b] for a, b in zip(edges, edges[1:])]
    y = np.column_stack([np.einsum("ni,io->no", x, w) + b for w, b in zip(kernels, biases)])
    dw = tuple(np.einsum("ni,no->io", x, g) for g in gs)
    db = tuple(np.einsum("no->o", g) for g in gs)
    dx = np.einsum("kni->ni", np.array([np.einsum("no,io->ni", g, w) for g, w in zip(gs, kernels)]))
    return [y, dw, db, dx]
"""
LOOPS = """
import numpy as np
def column_layer(x, kernels, biases, upstream):
    batch, inputs = x.shape
    outputs = [np.zeros((batch, k.shape[1])) for k in kernels]
    dws, dbs = [np.zeros_like(k) for k in kernels], [np.zeros_like(b) for b in biases]
    dx, first = np.zeros((batch, inputs)), 0
    for p, (w, b) in enumerate(zip(kernels, biases)):
        for n in range(batch):
            for o in range(w.shape[1]):
                g = upstream[n, first + o]
                outputs[p][n, o] = sum(x[n, i] * w[i, o] for i in range(inputs)) + b[o]
                dbs[p][o] += g
                for i in range(inputs):
                    dws[p][i, o] += x[n, i] * g
                    dx[n, i] += w[i, o] * g
        first += w.shape[1]
    return np.concatenate(outputs, 1), dws, dbs, dx
"""
BY_DEVICE = """
import numpy as np
class Device:
    def __init__(self, kernel, bias):
        self.kernel, self.bias = kernel, bias
    def forward(self, x):
        self.x = x
        return x @ self.kernel + self.bias
    def backward(self, g):
        return self.x.T @ g, g.sum(0), g @ self.kernel.T
def column_layer(x, kernels, biases, upstream):
    devices = [Device(k, b) for k, b in zip(kernels, biases)]
    y = np.hstack([d.forward(x) for d in devices])
    edges = np.cumsum([k.shape[1] for k in kernels])
    shares = np.split(upstream, edges[:-1], axis=1)
    dws, dbs, dxs = zip(*[d.backward(g) for d, g in zip(devices, shares)])
    return y, list(dws), list(dbs), np.sum(dxs, axis=0)
"""
AS_LISTS = """
import numpy as np
def column_layer(x, kernels, biases, upstream):
    n = [k.shape[1] for k in kernels]
    shares = [upstream[:, sum(n[:i]):sum(n[:i + 1])] for i in range(len(n))]
    y = np.concatenate([x @ k + b for k, b in zip(kernels, biases)], -1)
    dx = upstream @ np.concatenate(kernels, 1).T
    return y.tolist(), [(x.T @ s).tolist() for s in shares], [s.sum(0).tolist() for s in shares], dx.tolist()
"""
ROWS_JOINED = """
import numpy as np
def row_layer(parts, kernels, bias, upstream):
    x, w = np.concatenate(parts, axis=1), np.concatenate(kernels, axis=0)
    edges = np.cumsum([part.shape[1] for part in parts])[:-1]
    return x @ w + bias, np.split(x.T @ upstream, edges, axis=0), upstream.sum(axis=0), np.split(upstream @ w.T, edges, axis=1)
"""
ROWS_REDUCED = """
from functools import reduce
import numpy as np
def row_layer(parts, kernels, bias, upstream):
    partial = [np.matmul(x, w) for x, w in zip(parts, kernels)]
    output = reduce(np.add, partial, np.broadcast_to(bias, upstream.shape))
    dws = [np.matmul(np.transpose(x), upstream) for x in parts]
    dxs = [np.matmul(upstream, np.transpose(w)) for w in kernels]
    return output, dws, np.einsum("no->o", upstream), dxs
"""
ROWS_FIRST_ADDS = """
import numpy as np
def row_layer(parts, kernels, bias, upstream):
    outputs = []
    for rank, (x, w) in enumerate(zip(parts, kernels)):
        outputs.append(x @ w + (bias if rank == 0 else 0))
    return np.sum(outputs, axis=0), tuple(x.T @ upstream for x in parts), upstream.sum(0), tuple(upstream @ w.T for w in kernels)
"""
ROWS_SHARE_OF_BIAS = """
import numpy as np
def row_layer(parts, kernels, bias, upstream):
    y = sum(x @ w + bias / len(parts) for x, w in zip(parts, kernels))
    grads = [(x.T @ upstream, upstream @ w.T) for x, w in zip(parts, kernels)]
    return y, [g[0] for g in grads], np.add.reduce(upstream, 0), [g[1] for g in grads]
"""
ROWS_OUTER = """
import numpy as np
def row_layer(parts, kernels, bias, upstream):
    batch = len(upstream)
    y = [[bias[o] + sum(float(p[n] @ k[:, o]) for p, k in zip(parts, kernels)) for o in range(len(bias))] for n in range(batch)]
    dws = [sum(np.outer(p[n], upstream[n]) for n in range(batch)) for p in parts]
    dxs = [np.stack([k @ upstream[n] for n in range(batch)]) for k in kernels]
    return y, dws, [float(c) for c in upstream.sum(0)], dxs
"""
WARM_UP = """
def make_1f1b(stages, micro_batches):
    def order(stage):
        warm = min(stages - stage, micro_batches)
        begin = [("F", m) for m in range(warm)]
        steady = [op for m in range(micro_batches - warm) for op in (("BW", m), ("F", m + warm))]
        end = [("BW", m) for m in range(micro_batches - warm, micro_batches)]
        return begin + steady + end
    return [order(stage) for stage in range(stages)]
"""
COUNTERS = """
def make_1f1b(stages, micro_batches):
    plan = []
    for s in range(stages):
        todo_f, todo_b, ops = list(range(micro_batches)), list(range(micro_batches)), []
        for _ in range(stages - s):
            if todo_f:
                ops.append(("F", todo_f.pop(0)))
        while todo_b:
            ops.append(("BW", todo_b.pop(0)))
            if todo_f:
                ops.append(("F", todo_f.pop(0)))
        plan.append(ops)
    return plan
"""
GENERATED = """
def make_1f1b(stages, micro_batches):
    for stage in range(stages):
        forwards, backwards = iter(range(micro_batches)), iter(range(micro_batches))
        order = [("F", m) for _, m in zip(range(stages - stage), forwards)]
        for m in backwards:
            order.append(("BW", m))
            later = next(forwards, None)
            if later is not None:
                order.append(("F", later))
        yield order
"""
SORTED = """
def make_1f1b(stages, micro_batches):
    plan = []
    for s in range(stages):
        ahead = stages - s
        timed = [(2 * (m - ahead) + 1 if m >= ahead else -stages + m, "F", m) for m in range(micro_batches)]
        timed += [(2 * m, "BW", m) for m in range(micro_batches)]
        plan.append(tuple((kind, m) for _, kind, m in sorted(timed, key=lambda t: t[0])))
    return tuple(plan)
"""
RECURSIVE = """
import numpy as np
def make_1f1b(stages, micro_batches):
    def go(stage, done_f, done_b):
        if done_b == micro_batches:
            return []
        if done_f < micro_batches and done_f < done_b + stages - stage:
            return [["F", done_f]] + go(stage, done_f + 1, done_b)
        return [["BW", np.int64(done_b)]] + go(stage, done_f, done_b + 1)
    return [go(stage, 0, 0) for stage in range(stages)]
"""
FROM_THE_LAST = """
def make_1f1b(stages, micro_batches):
    last = [op for m in range(micro_batches) for op in (("F", m), ("BW", m))]
    orders = [last]
    while len(orders) < stages:
        after = [m for kind, m in orders[0] if kind == "F"]
        ahead = min(len(orders) + 1, micro_batches)
        order = [("F", m) for m in after[:ahead]]
        rest = after[ahead:]
        for m in after:
            order.append(("BW", m))
            if rest:
                order.append(("F", rest.pop(0)))
        orders.insert(0, order)
    return orders
"""
LIBRARY = """
from utils.schedules import make_1f1b as build
def make_1f1b(stages, micro_batches):
    return [[[op.kind, op.micro_batch] for op in order] for order in build(stages, micro_batches).orders]
"""
RIGHT = {
    "columns": [columns(), TENSORS, JOINED, SLICES, EINSUM, LOOPS, BY_DEVICE, AS_LISTS],
    "rows": [
        rows(),
        ROWS_TENSORS,
        ROWS_LOOP,
        ROWS_JOINED,
        ROWS_REDUCED,
        ROWS_FIRST_ADDS,
        ROWS_SHARE_OF_BIAS,
        ROWS_OUTER,
    ],
    "schedule": [
        schedule("stages - s"),
        QUEUE,
        WARM_UP,
        COUNTERS,
        GENERATED,
        SORTED,
        RECURSIVE,
        FROM_THE_LAST,
    ],
    "sharded": [
        sharded(),
        SIMULATED,
        ONE_BATCH,
        TENSORFLOW,
        PIECE_BY_PIECE,
        sharded(
            parts="x.T @ (x @ w - y) * (len(y) / n) * 2 / len(y) for x, y in zip(inputs, targets)",
            gradient="np.add.reduce(parts)",
        ),
        sharded(
            gathered="sum(sizes[(k - t) % P] for t in range(P - 1))",
            scattered="sum(sizes[(k - 1 - t) % P] for t in range(P - 1))",
        ),
        sharded(
            parts="-2 / n * (y - x @ w) @ x for x, y in zip(inputs, targets)",
            size="np.dtype('float32').itemsize",
        ),
    ],
}
WRONG = {
    "columns": {
        "not-summed": columns(x="gs[0] @ kernels[0].T"),
        "averaged": columns(x="np.mean([g @ w.T for g, w in zip(gs, kernels)], axis=0)"),
        "bias-forgotten": columns(output="x @ w"),
        "bias-averaged": columns(bias="g.mean(axis=0)"),
        "kernel-averaged": columns().replace("x.T @ g for", "x.T @ g / len(x) for"),
        "kernel-averaged (biases too)": columns(bias="g.mean(axis=0)").replace(
            "x.T @ g for", "x.T @ g / len(x) for"
        ),
        "equal-parts": columns(x="upstream @ np.hstack(kernels).T").replace(
            "return output", "gs = np.array_split(upstream, len(kernels), axis=1); return output"
        ),
        "not-in-parts": columns().replace("[x.T @ g for g in gs]", "x.T @ upstream"),
        "not-in-parts (biases too)": columns()
        .replace("[x.T @ g for g in gs]", "x.T @ upstream")
        .replace("[g.sum(axis=0) for g in gs]", "upstream.sum(0)"),
        "not-summed (the last part's)": columns(x="gs[-1] @ kernels[-1].T"),
        "bias-wrong-axis": columns(bias="g.sum(axis=1)"),
    },
    "rows": {
        "bias-everywhere": rows("sum(x @ w + bias for x, w in zip(parts, kernels))"),
        "first-part-only": rows("parts[0] @ kernels[0] + bias"),
        "averaged": rows("np.mean([x @ w for x, w in zip(parts, kernels)], axis=0) + bias"),
        "upstream-shared": rows(before="upstream = upstream / len(parts)"),
        "upstream-shared (but for the bias)": rows(
            before="b = upstream.sum(0); upstream = upstream / len(parts)"
        ).replace("upstream.sum(0), [", "b, ["),
        "upstream-shared (for x alone)": rows().replace(
            "[upstream @ w.T", "[upstream / len(parts) @ w.T"
        ),
        "bias-gradients-summed": rows().replace("upstream.sum(0)", "len(parts) * upstream.sum(0)"),
        "bias-forgotten": rows("sum(x @ w for x, w in zip(parts, kernels))"),
        "x-whole": rows().replace(
            "[upstream @ w.T for w in kernels]", "upstream @ np.vstack(kernels).T"
        ),
        "not-in-parts": rows()
        .replace("[x.T @ upstream for x in parts]", "np.hstack(parts).T @ upstream")
        .replace("[upstream @ w.T for w in kernels]", "upstream @ np.vstack(kernels).T"),
    },
    "schedule": {
        "all-forwards-first": schedule("micro_batches"),
        "one-at-a-time": schedule("1"),
        "one-too-many": schedule("stages - s + 1"),
        "same-warm-up": schedule("stages"),
        "later-first": schedule("s + 1"),
        "newest-first": schedule("stages - s").replace(
            "        orders", "        order[-ahead:] = order[-ahead:][::-1]\n        orders"
        ),
        "one-too-few": schedule("max(stages - s - 1, 1)"),
        "(micro-batches that are not there)": schedule("stages - s").replace(
            "min(stages - s, micro_batches)", "stages - s"
        ),
    },
    "sharded": {
        "own-gradient": sharded(
            new="[np.split(w - rate * part, edges)[k] for k, part in enumerate(parts)]"
        ),
        "own-gradient (its own mean)": sharded(
            parts="2 * x.T @ (x @ w - y) / len(y) for x, y in zip(inputs, targets)",
            new="[np.split(w - rate * part, edges)[k] for k, part in enumerate(parts)]",
        ),
        "own-mean": sharded(
            parts="2 * x.T @ (x @ w - y) / len(y) / P for x, y in zip(inputs, targets)"
        ),
        "summed": sharded(parts="2 * x.T @ (x @ w - y) for x, y in zip(inputs, targets)"),
        "two-forgotten": sharded(parts="x.T @ (x @ w - y) / n for x, y in zip(inputs, targets)"),
        "uphill": sharded(new="np.split(w + rate * gradient, edges)"),
        "all-reduced": sharded(scattered="2 * total - sizes[k] - sizes[(k + 1) % P]"),
        "gather-only": sharded(scattered="0"),
        "equal-pieces": sharded(gathered="(P - 1) * total / P", scattered="(P - 1) * total / P"),
        "next-piece-kept": sharded(scattered="total - sizes[(k + 1) % P]"),
        "own-piece-again": sharded(gathered="(P - 1) * sizes[k]"),
        "own-piece-kept": sharded(gathered="total - sizes[k]"),
        "eight-bytes": sharded(size="8"),
        "in-numbers": sharded(size="1"),
    },
}

REFUSED = {
    "schedule": {"make_1f1b calls utils.schedules": LIBRARY},
    "columns": {
        "must return four things": "def column_layer(*case):\n    return case[0]\n",
        "Pieces of an array may differ in size": columns().replace(
            "return output", "gs = np.array_split(upstream, len(kernels), axis=1); return output"
        ),
        "shapes of two arrays don't fit together": columns().replace(
            "return output", "gs = np.split(upstream, len(kernels), axis=1); return output"
        ),
        "NumPy's own words: matmul": columns(output="x[:, :1] @ w + b"),
    },
    "rows": {"returned None": rows().replace("upstream.sum(0)", "None")},
}
