# ruff: noqa: E501
"""Lab 05: losses that must pass, in several styles, and losses that must be refused by name."""

TF = "import tensorflow as tf\n"


def plain(expression, before=""):
    return f"{TF}{before}def replica_loss(errors, global_batch_size):\n    losses = tf.reduce_mean(errors, axis=1)\n    return {expression}\n"


def weighted(expression, before=""):
    head = "def weighted_loss(losses, weights, global_batch_size):\n"
    return f"{TF}{before}{head}    return {expression}\n"


def clipped(*lines):
    body = "\n".join("    " + line for line in lines)
    return f"{TF}def clip_gradients(gradients, max_norm):\n    context = tf.distribute.get_replica_context()\n{body}\n"


def uneven(expression):
    head = "def uneven_loss(losses, batch_examples, global_batch_size):\n"
    return f"{TF}{head}    return {expression}\n"


def name_bug(
    expected,
    turned='"own-weights" if weighted else "penalty-on-each" if penalized else "own-mean"',
    near="1e-3 * v",
):
    return f"""
def name_bug(ratio, residual, shares, full_batch, weighted, penalized):
    n, replicas = sum(shares), len(shares)
    if residual > 0.0005:
        return {turned}
    for word, v in {expected}:
        if abs(ratio - v) <= {near}:
            return word
"""


TABLE = '[("right", 1), ("divided-twice", 1 / replicas), ("full-batch", n / full_batch), ("own-mean", replicas), ("not-divided", n)]'
LOOP = """
def replica_loss(errors, global_batch_size):
    total = tf.zeros([], errors.dtype)
    for example in tf.unstack(errors):
        total += tf.add_n(tf.unstack(example)) / len(example)
    return total / global_batch_size
"""
WHOLE = "whole = context.all_reduce('sum', gradients)"
FACTOR = "factor = tf.minimum(1.0, max_norm / tf.linalg.global_norm(whole))"
SCALE = "return [factor * g for g in gradients]"
SQUARES = [
    "totals = [context.all_reduce(tf.distribute.ReduceOp.SUM, g) for g in gradients]",
    "norm = tf.sqrt(sum(tf.reduce_sum(t * t) for t in totals))",
    "if norm <= max_norm:",
    "    return gradients",
    "return [g * max_norm / norm for g in gradients]",
]
IN_ONE = [
    "flat = tf.concat([tf.reshape(g, [-1]) for g in gradients], 0)",
    "norm = tf.norm(context.all_reduce('SUM', flat))",
    "scale = max_norm / tf.math.maximum(norm, max_norm)",
    "return tuple(tf.multiply(scale, g) for g in gradients)",
]
BY_MERGE = [
    "def add(strategy, *parts):",
    "    return [strategy.reduce('SUM', part, axis=None) for part in parts]",
    "whole = context.merge_call(add, args=tuple(gradients))",
    "clipped, _ = tf.clip_by_global_norm(whole, max_norm)",
    "return [c / context.num_replicas_in_sync for c in clipped]",
]
BY_REPLICA_0 = [
    WHOLE,
    "clipped, _ = tf.clip_by_global_norm(whole, max_norm)",
    "first = context.replica_id_in_sync_group == 0",
    "return [c if first else tf.zeros_like(c) for c in clipped]",
]
WITH_MEAN = [
    "means = context.all_reduce('mean', gradients)",
    "clipped, norm = tf.clip_by_global_norm(means, max_norm / context.num_replicas_in_sync)",
    "return clipped",
]
GATHERED_PARTS = [
    "norm2 = 0.0",
    "for g in gradients:",
    "    everyones = context.all_gather(g[tf.newaxis], axis=0)",
    "    norm2 += tf.reduce_sum(tf.square(tf.reduce_sum(everyones, axis=0)))",
    "return [g * tf.minimum(tf.constant(1.0, g.dtype), max_norm * tf.math.rsqrt(norm2)) for g in gradients]",
]
IN_NUMPY_WORDS = [
    "summed = [context.all_reduce('sum', g) for g in gradients]",
    "factor = min(1.0, max_norm / float(tf.linalg.global_norm(summed)))",
    "return list(map(lambda g: g * factor, gradients))",
]
TRACED = "@tf.function\n"
AVERAGE = "tf.nn.compute_average_loss"
CONTEXT = "tf.distribute.get_replica_context()"
REDUCE_SUM = f"{CONTEXT}.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(weights))"


def weighted_lines(*lines):
    body = "\n".join("    " + line for line in lines)
    return f"{TF}def weighted_loss(losses, weights, global_batch_size):\n{body}\n"


MERGED = [
    "def add(strategy, own):",
    "    return strategy.reduce('SUM', own, axis=None)",
    f"total = {CONTEXT}.merge_call(add, args=(tf.reduce_sum(weights),))",
    "return tf.reduce_sum(weights * losses) / total",
]
NORMALIZED = [
    f"total = {REDUCE_SUM}",
    "shares = weights / total",
    "return tf.reduce_sum(tf.stop_gradient(shares) * losses)",
]
GATHERED = [
    f"sums = {CONTEXT}.all_gather(tf.reshape(tf.reduce_sum(weights), [1]), axis=0)",
    "return tf.math.divide(tf.math.reduce_sum(losses * weights), tf.math.reduce_sum(sums))",
]
SCALED_MEAN = [
    f"mean_weight = {REDUCE_SUM} / global_batch_size",
    "average = tf.nn.compute_average_loss(losses, weights, global_batch_size=global_batch_size)",
    "return average / mean_weight",
]
MEANS_OF_SUMS = [
    f"context = {CONTEXT}",
    "mean = context.all_reduce('mean', tf.reduce_sum(weights))",
    "return tf.tensordot(losses, weights, 1) / (mean * context.num_replicas_in_sync)",
]
VECTOR = [
    f"both = {CONTEXT}.all_reduce('sum', tf.stack([tf.reduce_sum(weights), tf.cast(tf.size(weights), weights.dtype)]))",
    "own = sum(a * b for a, b in zip(tf.unstack(losses), tf.unstack(weights)))",
    "return own / both[0]",
]
BRANCHES = """
def name_bug(ratio, residual, shares, full_batch, weighted, penalized):
    replicas, examples = len(shares), sum(shares)
    straight = residual < 0.001
    if not straight:
        if penalized:
            return "penalty-on-each"
        if weighted:
            return "own-weights"
        return "own-mean"
    if abs(ratio - 1) < 0.002:
        return "right"
    if ratio > 1:
        if abs(ratio - replicas) < 0.01:
            return "own-mean"
        return "not-divided"
    if abs(ratio - 1 / replicas) < 0.001:
        return "divided-twice"
    return "full-batch"
"""
NEAREST = """
import numpy as np
def name_bug(ratio, residual, shares, full_batch, weighted, penalized):
    words = ["right", "own-mean", "not-divided", "divided-twice", "full-batch"]
    n, r = np.sum(shares), len(shares)
    if residual:
        return {(True, False): "own-weights", (False, True): "penalty-on-each", (False, False): "own-mean"}[weighted, penalized]
    distance = np.abs(np.log(ratio) - np.log([1, r, n, 1 / r, n / full_batch]))
    return words[int(np.argmin(distance))]
"""
CLOSE = """
import math
def name_bug(ratio, residual, shares, full_batch, weighted, penalized):
    def is_close(value):
        return math.isclose(ratio, value, rel_tol=5e-3)
    if weighted and residual > 0:
        return "own-weights"
    if penalized and residual > 0:
        return "penalty-on-each"
    if residual > 0 or is_close(len(shares)):
        return "own-mean"
    if is_close(sum(shares)):
        return "not-divided"
    if is_close(1 / len(shares)):
        return "divided-twice"
    return "right" if is_close(1) else "full-batch"
"""
INVERSE = """
def name_bug(ratio, residual, shares, full_batch, weighted, penalized):
    if residual != 0:
        return "penalty-on-each" if penalized else ("own-weights" if weighted else "own-mean")
    times = round(1 / ratio if ratio < 1 else ratio, 2)
    if times == 1:
        return "right"
    if ratio > 1:
        return "own-mean" if times == len(shares) else "not-divided"
    return "divided-twice" if times == len(shares) else "full-batch"
"""
RULES = """
RULES = [
    ("penalty-on-each", lambda q, e, n, r, f, w, p: p and e > 0),
    ("own-weights", lambda q, e, n, r, f, w, p: w and e > 0),
    ("own-mean", lambda q, e, n, r, f, w, p: e > 0 or abs(q / r - 1) < 1e-3),
    ("not-divided", lambda q, e, n, r, f, w, p: abs(q / n - 1) < 1e-3),
    ("divided-twice", lambda q, e, n, r, f, w, p: abs(q * r - 1) < 1e-3),
    ("full-batch", lambda q, e, n, r, f, w, p: abs(q * f / n - 1) < 1e-3 and n != f),
]
def name_bug(ratio, residual, shares, full_batch, weighted, penalized):
    facts = ratio, residual, sum(shares), len(shares), full_batch, weighted, penalized
    return next((word for word, rule in RULES if rule(*facts)), "right")
"""
PERCENT = """
def name_bug(ratio, residual, shares, full_batch, weighted, penalized):
    percent = round(100 * ratio, 1)
    if residual > 0.0:
        if weighted: return "OWN-WEIGHTS"
        return "PENALTY-ON-EACH" if penalized else "OWN-MEAN"
    if percent == 100.0: return "right"
    if percent == 100.0 * len(shares): return "own-mean"
    if percent == 100.0 / len(shares): return "divided-twice"
    if percent < 100: return "full-batch"
    return "not-divided"
"""
FOUND = """
def name_bug(ratio, residual, shares, full_batch, weighted, penalized):
    causes = {1.0: "right", float(len(shares)): "own-mean", float(sum(shares)): "not-divided"}
    causes[round(1 / len(shares), 4)] = "divided-twice"
    causes.setdefault(round(sum(shares) / full_batch, 4), "full-batch")
    if residual == 0:
        return causes[ratio]
    return ["own-mean", "own-weights", "penalty-on-each"][weighted + 2 * penalized]
"""
SEGMENTS = """
def replica_loss(errors, global_batch_size):
    ones = tf.ones_like(errors[:, 0])
    return tf.reduce_mean(tf.linalg.matvec(tf.transpose(errors), ones)) / global_batch_size
"""
SHARE_OF_MEAN = (
    "tf.reduce_mean(losses) * tf.cast(tf.size(losses), losses.dtype) / global_batch_size"
)
RIGHT = {
    "plain": [
        plain("tf.reduce_sum(losses) / global_batch_size"),
        plain(f"{AVERAGE}(losses, global_batch_size=global_batch_size)"),
        plain("tf.reduce_sum(losses * (1.0 / global_batch_size))", TRACED),
        TF + LOOP,
        "import keras\n" + plain("keras.ops.sum(losses) / float(global_batch_size)"),
        plain(SHARE_OF_MEAN),
        TF + SEGMENTS,
        plain("tf.add_n([loss / global_batch_size for loss in losses])"),
        plain("tf.reduce_sum(errors) / (10 * global_batch_size)"),
        plain(f"{AVERAGE}(errors, global_batch_size=10 * global_batch_size)"),
    ],
    "weighted": [
        weighted(f"tf.reduce_sum(losses * weights) / {REDUCE_SUM}"),
        weighted(
            f"tf.reduce_sum(losses * weights / {CONTEXT}.all_reduce('sum', tf.reduce_sum(weights)))"
        ),
        weighted_lines(*MERGED),
        weighted_lines(*NORMALIZED),
        weighted_lines(*GATHERED),
        weighted_lines(*SCALED_MEAN),
        weighted_lines(*MEANS_OF_SUMS),
        weighted_lines(*VECTOR),
    ],
    "clipped": [
        clipped(WHOLE, FACTOR, SCALE),
        clipped(*SQUARES),
        clipped(*IN_ONE),
        clipped(*BY_MERGE),
        clipped(*BY_REPLICA_0),
        clipped(*WITH_MEAN),
        clipped(*GATHERED_PARTS),
        clipped(*IN_NUMPY_WORDS),
    ],
    "uneven": [
        uneven(
            f"tf.reduce_sum(losses) / {CONTEXT}.all_reduce('sum', tf.cast(tf.size(losses), losses.dtype))"
        ),
        uneven("tf.reduce_sum(losses) / batch_examples"),
        uneven(f"{AVERAGE}(losses, global_batch_size=batch_examples)"),
        uneven("tf.reduce_sum(losses / tf.cast(batch_examples, losses.dtype))"),
        uneven("tf.reduce_sum(losses) / batch_examples if len(losses) else tf.constant(0.0)"),
        uneven("sum(losses) / batch_examples"),
        uneven("tf.reduce_sum(losses) / global_batch_size * (global_batch_size / batch_examples)"),
        uneven(
            "tf.math.divide_no_nan(tf.reduce_sum(losses), tf.cast(batch_examples, losses.dtype))"
        ),
        uneven(
            "tf.cond(tf.size(losses) > 0, lambda: tf.reduce_mean(losses) * len(losses) / batch_examples, lambda: tf.zeros([], losses.dtype))"
        ),
    ],
    "diagnosis": [
        name_bug(TABLE),
        BRANCHES,
        NEAREST,
        CLOSE,
        INVERSE,
        RULES,
        PERCENT,
        FOUND,
    ],
}
WRONG = {
    "plain": {
        "own-mean": plain("tf.reduce_mean(losses)"),
        "only-summed": plain("tf.reduce_sum(errors)"),
        "errors-summed": plain(f"{AVERAGE}(errors, global_batch_size=global_batch_size)"),
        "errors-summed (by hand)": plain("tf.reduce_sum(errors) / global_batch_size"),
        "own-mean (of all)": plain("tf.reduce_mean(errors)"),
        "divided-twice": plain(
            "tf.reduce_sum(losses) / global_batch_size"
            " / tf.distribute.get_strategy().num_replicas_in_sync"
        ),
        "other-axis": plain("tf.reduce_sum(tf.reduce_mean(errors, axis=0)) / global_batch_size"),
        "only-replicas": plain("tf.reduce_sum(errors) / 4"),
        "mean-of-four": plain("tf.reduce_mean(losses) / 4"),
    },
    "weighted": {
        "losses-unweighted": weighted(f"tf.reduce_sum(losses) / {REDUCE_SUM}"),
        "own-mean": weighted("tf.reduce_mean(losses * weights)"),
        "weights-ignored": weighted("tf.reduce_sum(losses) / global_batch_size"),
        "own-weights": weighted("tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)"),
        "own-weights (times replicas)": weighted(
            f"tf.reduce_sum(losses * weights) / tf.reduce_sum(weights) / {CONTEXT}.num_replicas_in_sync"
        ),
        "by-examples": weighted("tf.reduce_sum(losses * weights) / global_batch_size"),
        "by-examples (TensorFlow's)": weighted(f"{AVERAGE}(losses, weights, global_batch_size)"),
        "times-replicas": weighted(
            f"tf.reduce_sum(losses * weights) / {CONTEXT}.all_reduce('mean', tf.reduce_sum(weights))"
        ),
        "times-replicas (both reduced)": weighted(
            f"{CONTEXT}.all_reduce('sum', tf.reduce_sum(losses * weights)) / {REDUCE_SUM}"
        ),
        "mean-weight": weighted(
            "tf.reduce_sum(losses) / global_batch_size * tf.reduce_mean(weights)"
        ),
    },
    "clipped": {
        "not-clipped": clipped("return gradients"),
        "clipped-before": clipped("return tf.clip_by_global_norm(gradients, max_norm)[0]"),
        "to-its-share": clipped(
            "return tf.clip_by_global_norm(gradients, max_norm / context.num_replicas_in_sync)[0]"
        ),
        "summed-again": clipped(WHOLE, "return tf.clip_by_global_norm(whole, max_norm)[0]"),
        "each-variable": clipped(
            WHOLE,
            "return [g * tf.minimum(1.0, max_norm / tf.norm(w)) for g, w in zip(gradients, whole)]",
        ),
        "always-scaled": clipped(WHOLE, FACTOR.replace("tf.minimum(1.0, ", "("), SCALE),
        "norms-added": clipped(
            "norm = context.all_reduce('sum', tf.linalg.global_norm(gradients))",
            "return [g * tf.minimum(1.0, max_norm / norm) for g in gradients]",
        ),
        "norms-added (squares)": clipped(
            "norm = tf.sqrt(context.all_reduce('sum', tf.linalg.global_norm(gradients) ** 2))",
            "return [g * tf.minimum(1.0, max_norm / norm) for g in gradients]",
        ),
        "norm-not-summed": clipped(WHOLE.replace("sum", "mean"), FACTOR, SCALE),
        "no-root": clipped(WHOLE, FACTOR.replace("(whole)", "(whole) ** 2"), SCALE),
    },
    "uneven": {
        "own-mean": uneven("tf.reduce_mean(losses)"),
        "not-divided": uneven("tf.reduce_sum(losses)"),
        "full-batch": uneven("tf.reduce_sum(losses) / global_batch_size"),
        "own-times-replicas": uneven(f"{AVERAGE}(losses)"),
        "mean-of-nothing": uneven("tf.reduce_mean(losses) * len(losses) / batch_examples"),
        "empty-not-zero": uneven(
            "tf.reduce_sum(losses) / batch_examples if len(losses) else tf.constant(1.0, tf.float64)"
        ),
    },
    "diagnosis": {
        "below-one": name_bug(
            TABLE.replace("1 / replicas", "ratio if ratio < 1 else 1 / replicas")
        ),
        "above-one": name_bug(
            TABLE.replace('("own-mean", replicas), ("not-divided", n)', '("own-mean", ratio)')
        ),
        "not-measured": name_bug(TABLE).replace(
            "    if residual",
            "    if weighted: return 'own-weights'\n    if penalized: return 'penalty-on-each'\n    if residual",
        ),
        "weights-not-seen": name_bug(TABLE, '"penalty-on-each" if penalized else "own-mean"'),
        "residual-ignored": name_bug(TABLE, '"own-mean"'),
        "turned-is-penalty": name_bug(TABLE, '"penalty-on-each"'),
        "equal-shares": name_bug(
            TABLE,
            '"own-weights" if weighted else "penalty-on-each" if penalized else "not-divided"',
        ),
        "called-right": "def name_bug(*report):\n    return 'right'\n",
        "called-right (where the ratio is near 1)": name_bug(TABLE).replace(
            "    for word", "    if 0.3 < ratio < 1.7: return 'right'\n    for word"
        ),
        "below-one (upside down)": name_bug(
            TABLE.replace("n / full_batch", "full_batch / n").replace(
                '("own-mean", replicas)', '("own-mean", replicas if ratio > 1 else ratio)'
            )
        ),
        "below-one (all are full-batch)": name_bug(
            TABLE.replace('("divided-twice", 1 / replicas), ', "").replace(
                "n / full_batch", "ratio if ratio < 1 else 2"
            )
        ),
        "above-one (all are not-divided)": name_bug(
            TABLE.replace('("own-mean", replicas), ("not-divided", n)', '("not-divided", ratio)')
        ),
        "residual-ignored (a little)": name_bug(
            TABLE,
            'min(("own-mean", replicas), ("not-divided", n), key=lambda p: abs(ratio - p[1]))[0]',
        ),
    },
}
REFUSED = {
    "weighted": {
        "Put @tf.function around the call of strategy.run": weighted(
            f"tf.reduce_sum(losses * weights) / {REDUCE_SUM}", TRACED
        ),
        "not a scalar tensor": weighted(f"losses * weights / {REDUCE_SUM}"),
    },
    "clipped": {
        "must return a list with one tensor for": clipped(
            "return tf.linalg.global_norm(gradients)"
        ),
        "clip_gradients returned None": clipped("tf.clip_by_global_norm(gradients, max_norm)"),
    },
    "plain": {
        "that depends on the losses": plain("tf.constant(1.0, tf.float64)"),
        "mixed: tf.cast": plain("tf.reduce_sum(losses) * tf.constant(0.1)"),
    },
}
