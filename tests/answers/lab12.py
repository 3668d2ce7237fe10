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


def count(expression):
    return f"import math\ndef fewest_micro_batches(stages, most_bubble):\n    return {expression}\n"


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
LIBRARY = """
from utils.schedules import make_1f1b as build
def make_1f1b(stages, micro_batches):
    return [[[op.kind, op.micro_batch] for op in order] for order in build(stages, micro_batches).orders]
"""
RIGHT = {
    "columns": [columns(), TENSORS, JOINED],
    "rows": [rows(), ROWS_TENSORS, ROWS_LOOP],
    "schedule": [schedule("stages - s"), QUEUE, LIBRARY],
    "count": [
        count("max(1, math.ceil(round((stages - 1) * (1 - most_bubble) / most_bubble, 9)))"),
        count("next(m for m in range(1, 10**6) if (stages - 1) / (m + stages - 1) <= most_bubble)"),
        count(
            "float(next(m for m in range(1, 10**6) if m / (m + stages - 1) >= 1 - most_bubble - 1e-12))"
        ),
    ],
}
FIRST = "next(m for m in range(1, 10**6) if {} <= most_bubble)"
WRONG = {
    "columns": {
        "not-summed": columns(x="gs[0] @ kernels[0].T"),
        "averaged": columns(x="np.mean([g @ w.T for g, w in zip(gs, kernels)], axis=0)"),
        "bias-forgotten": columns(output="x @ w"),
        "bias-averaged": columns(bias="g.mean(axis=0)"),
    },
    "rows": {
        "bias-everywhere": rows("sum(x @ w + bias for x, w in zip(parts, kernels))"),
        "first-part-only": rows("parts[0] @ kernels[0] + bias"),
        "averaged": rows("np.mean([x @ w for x, w in zip(parts, kernels)], axis=0) + bias"),
        "upstream-shared": rows(before="upstream = upstream / len(parts)"),
    },
    "schedule": {
        "all-forwards-first": schedule("micro_batches"),
        "one-at-a-time": schedule("1"),
        "one-too-many": schedule("stages - s + 1"),
        "same-warm-up": schedule("stages"),
    },
    "count": {
        "of-ideal-time": count(FIRST.format("(stages - 1) / m")),
        "all-stages": count(FIRST.format("stages / (m + stages)")),
        "one-bubble": count(FIRST.format("1 / (m + 1)")),
        "one-more": count(FIRST.format("(stages - 1) / (m + stages - 1)") + " + 1"),
    },
}
