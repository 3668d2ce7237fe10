# ruff: noqa: E501
"""Lab 02: answers that must pass, in several styles, and answers that must be refused by name."""

TF = "import tensorflow as tf\n"
SUM = "tf.distribute.ReduceOp.SUM"


def variable(options="", scope="strategy.scope()", value="start"):
    return f"""{TF}import contextlib
def make_variable(strategy, start):
    with {scope}:
        return tf.Variable({value}, dtype=tf.float64{options})
"""


def aggregate(name):
    return f", aggregation=tf.VariableAggregation.{name}"


def moments(*lines):
    body = "\n".join("    " + line for line in lines)
    return f"{TF}import numpy as np\ndef global_moments(strategy, values):\n    local = strategy.experimental_local_results\n{body}\n"


def predict(
    deal="rows[k::R]",
    merge="merged[k::R] = part",
    before="merged = np.empty((len(rows), 2))",
    after="merged",
):
    return f"""{TF}import numpy as np
def predict_in_order(strategy, predict, rows):
    R = strategy.num_replicas_in_sync
    def own(context):
        k = context.replica_id_in_sync_group
        return tf.constant({deal})
    shares = strategy.experimental_distribute_values_from_function(own)
    parts = strategy.experimental_local_results(strategy.run(predict, args=(shares,)))
    {before}
    for k, part in enumerate(parts):
        {merge}
    return {after}
"""


def meter(
    add="total.assign_add(tf.reduce_sum(values)); count.assign_add(tf.cast(len(values), tf.float64))",
    read="return count, tf.math.divide_no_nan(total, count)",
    options="synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM",
):
    return f"""{TF}import numpy as np
def make_meter(strategy):
    with strategy.scope():
        total = tf.Variable(0.0, dtype=tf.float64, {options})
        count = tf.Variable(0.0, dtype=tf.float64, {options})
    def add(values):
        {add}
    def read():
        {read}
    return add, read
"""


TWO_RUNS = [
    "def total(v): return strategy.reduce('SUM', v, axis=None)",
    "count = total(strategy.run(lambda v: tf.cast(len(v), v.dtype), args=(values,)))",
    "mean = total(strategy.run(tf.reduce_sum, args=(values,))) / count",
    "far = total(strategy.run(lambda v: tf.reduce_sum((v - mean) ** 2), args=(values,)))",
    "return mean, tf.sqrt(far / count)",
]
ON_REPLICAS = [
    "def own(v):",
    "    context = tf.distribute.get_replica_context()",
    "    n = context.all_reduce('sum', tf.cast(tf.size(v), v.dtype))",
    "    mean = context.all_reduce('sum', tf.reduce_sum(v)) / n",
    "    return mean, tf.sqrt(context.all_reduce('sum', tf.reduce_sum(tf.square(v - mean))) / n)",
    "mean, deviation = strategy.run(own, args=(values,))",
    "return local(mean)[0], local(deviation)[-1]",
]
MERGED = [
    "n, mean, far = 0, 0.0, 0.0",
    "for part in local(values):",
    "    m, k = float(tf.reduce_mean(part)), len(part)",
    "    far += float(tf.math.reduce_variance(part)) * k + (m - mean) ** 2 * n * k / (n + k)",
    "    mean, n = mean + (m - mean) * k / (n + k), n + k",
    "return [mean, (far / n) ** 0.5]",
]
IN_PAIRS = (
    TF
    + """
import numpy as np
def predict_in_order(strategy, predict, rows):
    R = strategy.num_replicas_in_sync
    ids = strategy.experimental_distribute_values_from_function(
        lambda c: tf.range(c.replica_id_in_sync_group, len(rows), R))
    everything = tf.constant(rows)
    found = strategy.run(lambda i: predict(tf.gather(everything, i)), args=(ids,))
    order = np.argsort(strategy.gather(ids, axis=0).numpy())
    return strategy.gather(found, axis=0).numpy()[order]
"""
)
SCATTERED = (
    TF
    + """
def predict_in_order(strategy, predict, rows):
    @tf.function
    def work(rows):
        context = tf.distribute.get_replica_context()
        ids = tf.range(context.replica_id_in_sync_group, tf.shape(rows)[0], context.num_replicas_in_sync)
        found = predict(tf.gather(rows, ids))
        whole = tf.scatter_nd(ids[:, tf.newaxis], found, tf.shape(rows))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, whole)
    return strategy.experimental_local_results(strategy.run(work, args=(tf.constant(rows),)))[0]
"""
)
ONE_BY_ONE = (
    TF
    + """
def predict_in_order(strategy, predict, rows):
    R, done = strategy.num_replicas_in_sync, []
    for start in range(0, len(rows), R):
        def own(context):
            k = start + context.replica_id_in_sync_group
            return tf.constant(rows[k:k + 1])
        shares = strategy.experimental_distribute_values_from_function(own)
        for part in strategy.experimental_local_results(strategy.run(predict, args=(shares,))):
            done.extend(part.numpy().tolist())
    return done
"""
)
IN_METRICS = (
    TF
    + """
import keras
def make_meter(strategy):
    with strategy.scope():
        mean, total = keras.metrics.Mean(dtype="float64"), keras.metrics.Sum(dtype="float64")
    def add(values):
        mean.update_state(values)
        total.update_state(tf.ones_like(values))
    return add, lambda: (total.result(), mean.result())
"""
)
IN_A_LIST = (
    TF
    + """
def make_meter(strategy):
    seen = []
    def add(values):
        context = tf.distribute.get_replica_context()
        everyone = context.all_gather(values, axis=0)
        if context.replica_id_in_sync_group == 0:
            seen.extend(everyone.numpy().tolist())
    def read():
        return [len(seen), sum(seen) / len(seen) if seen else 0]
    return add, read
"""
)
ONE_VARIABLE = (
    TF
    + """
def make_meter(strategy):
    class Meter:
        def __init__(self):
            with strategy.scope():
                self.both = tf.Variable([0.0, 0.0], dtype=tf.float64, aggregation=tf.VariableAggregation.SUM,
                                        synchronization=tf.VariableSynchronization.ON_READ)
        def add(self, values):
            self.both.assign_add(tf.stack([tf.cast(tf.size(values), tf.float64), tf.reduce_sum(values)]))
        def read(self):
            count, total = self.both.numpy()
            return int(count), total / max(count, 1)
    meter = Meter()
    return meter.add, meter.read
"""
)
RIGHT = {
    "variable": [
        variable(aggregate("MEAN")),
        variable(
            aggregate("MEAN") + ", trainable=False, name='x'",
            value="tf.constant(start, tf.float64)",
        ),
        variable(", synchronization=tf.VariableSynchronization.ON_WRITE" + aggregate("MEAN")),
        variable(aggregate("MEAN"), value="lambda: tf.cast(start, tf.float64)"),
        variable(aggregate("MEAN"), value="tf.fill([], tf.constant(start, tf.float64))"),
        variable(aggregate("MEAN") + ", shape=[], name='mean_of_all'"),
        TF
        + """
def make_variable(strategy, start):
    scope = strategy.scope()
    scope.__enter__()
    try:
        return tf.Variable(float(start), True, dtype="float64", aggregation=tf.VariableAggregation.MEAN)
    finally:
        scope.__exit__(None, None, None)
""",
        TF
        + """
def make_variable(strategy, start):
    def make():
        with strategy.scope():
            made = tf.Variable(0.0, dtype=tf.float64, aggregation=tf.VariableAggregation.MEAN)
            made.assign(start)
        return made
    return make()
""",
    ],
    "moments": [
        moments(
            "parts = np.concatenate([p.numpy() for p in local(values)])",
            "return parts.mean(), parts.std()",
        ),
        moments(*TWO_RUNS),
        moments(*ON_REPLICAS),
        moments(*MERGED),
        moments(
            "everything = strategy.gather(values, axis=0)",
            "return tf.stack([tf.reduce_mean(everything), tf.math.reduce_std(everything)])",
        ),
        moments(
            "mean = strategy.reduce('MEAN', values, axis=0)",
            "squares = strategy.reduce('MEAN', strategy.run(tf.square, args=(values,)), axis=0)",
            "return float(mean), float(squares - mean ** 2) ** 0.5",
        ),
        moments(
            "sums = strategy.run(lambda v: tf.stack([tf.reduce_sum(v ** p) for p in (0, 1, 2)]), args=(values,))",
            "n, a, b = tf.unstack(strategy.reduce('SUM', sums, axis=None))",
            "return np.array([a / n, np.sqrt(b / n - (a / n) ** 2)])",
        ),
        moments(
            "n = sum(len(v) for v in local(values))",
            "add = lambda f: float(strategy.reduce('SUM', strategy.run(f, args=(values,)), axis=None))",
            "mean = add(tf.reduce_sum) / n",
            "return (mean, (add(lambda v: tf.reduce_sum((v - mean) ** 2)) / n) ** 0.5)",
        ),
    ],
    "predict": [
        predict(),
        predict("[r for i, r in enumerate(rows.tolist()) if i % R == k], tf.float64"),
        predict(before="merged = [None] * len(rows)", merge="merged[k::R] = part.numpy().tolist()"),
        predict(
            before="merged = []",
            merge="merged += zip(range(k, len(rows), R), part.numpy())",
            after="np.stack([row for _, row in sorted(merged, key=lambda pair: pair[0])])",
        ),
        predict(
            before="merged = tf.zeros((len(rows), 2), tf.float64)",
            merge="merged = tf.tensor_scatter_nd_update(merged, tf.range(k, len(rows), R)[:, None], part)",
        ),
        IN_PAIRS,
        SCATTERED,
        ONE_BY_ONE,
    ],
    "meter": [
        meter(),
        meter(options="aggregation=tf.VariableAggregation.SUM"),
        meter(read="n = float(count.numpy()); return (n, float(total.numpy()) / n if n else 0.0)"),
        meter(
            "for v in tf.unstack(values): total.assign_add(v); count.assign_add(1.0)",
            "return np.array([count.numpy(), total.numpy() / max(count.numpy(), 1)])",
        ),
        meter(
            "c = tf.distribute.get_replica_context(); total.assign_add(c.all_reduce('sum', tf.reduce_sum(values))); count.assign_add(c.all_reduce('sum', tf.cast(len(values), tf.float64)))",
            options="aggregation=tf.VariableAggregation.MEAN",
        ),
        IN_METRICS,
        IN_A_LIST,
        ONE_VARIABLE,
    ],
}
WRONG = {
    "variable": {
        "outside-scope": variable(scope="contextlib.nullcontext()"),
        "summed": variable(aggregate("SUM")),
        "first-only": variable(aggregate("ONLY_FIRST_REPLICA")),
        "copies-differ": variable(),
        "copies-differ (read late)": variable(
            aggregate("MEAN") + ", synchronization=tf.VariableSynchronization.ON_READ"
        ),
    },
    "moments": {
        "around-zero": moments(
            "add = lambda x: strategy.reduce('SUM', strategy.run(tf.reduce_sum, args=(x,)), axis=None)",
            "n = sum(int(tf.size(part)) for part in local(values))",
            "squares = strategy.run(tf.square, args=(values,))",
            "return add(values) / n, tf.sqrt(add(squares) / n)",
        ),
        "mean-of-means": moments(
            "means = strategy.run(tf.reduce_mean, args=(values,))",
            "far = strategy.run(tf.math.reduce_std, args=(values,))",
            "return [strategy.reduce('MEAN', x, axis=None) for x in (means, far)]",
        ),
        "sum-of-means": moments(
            "means = strategy.run(tf.reduce_mean, args=(values,))",
            "far = strategy.run(tf.math.reduce_std, args=(values,))",
            "return [strategy.reduce('SUM', x, axis=None) for x in (means, far)]",
        ),
        "first-only": moments(
            "first = local(values)[0].numpy()", "return first.mean(), first.std()"
        ),
        "divided-by-replicas": moments(
            "R, total = strategy.num_replicas_in_sync, strategy.reduce('SUM', values, axis=0)",
            "squares = strategy.reduce('SUM', strategy.run(tf.square, args=(values,)), axis=0)",
            "return total / R, tf.sqrt(tf.abs(squares / R - (total / R) ** 2))",
        ),
        "mean-of-deviations": moments(
            "far = strategy.run(tf.math.reduce_std, args=(values,))",
            "return strategy.reduce('MEAN', values, axis=0), strategy.reduce('MEAN', far, axis=None)",
        ),
        "mean-of-deviations (by counts)": moments(
            "far = strategy.run(lambda v: tf.ones_like(v) * tf.math.reduce_std(v), args=(values,))",
            "return [strategy.reduce('MEAN', x, axis=0) for x in (values, far)]",
        ),
        "around-own-mean": moments(
            "far = strategy.run(lambda v: (v - tf.reduce_mean(v)) ** 2, args=(values,))",
            "return strategy.reduce('MEAN', values, axis=0), tf.sqrt(strategy.reduce('MEAN', far, axis=0))",
        ),
        "variance": moments(
            "everything = strategy.gather(values, axis=0).numpy()",
            "return everything.mean(), everything.var()",
        ),
        "one-less": moments(
            "everything = strategy.gather(values, axis=0).numpy()",
            "return everything.mean(), everything.std(ddof=1)",
        ),
        "(a sum)": moments(
            "a = np.concatenate([v.numpy() for v in local(values)])", "return a.sum(), a.std()"
        ),
        "(exchanged)": moments(
            "a = np.concatenate([v.numpy() for v in local(values)])", "return a.std(), a.mean()"
        ),
    },
    "predict": {
        "replica-by-replica": predict(
            before="merged = []", merge="merged += part.numpy().tolist()"
        ),
        "in-blocks": predict(
            "np.array_split(rows, R)[k]",
            before="merged = []",
            merge="merged += part.numpy().tolist()",
        ),
        "on-one-replica": TF
        + "def predict_in_order(strategy, predict, rows):\n    return predict(tf.constant(rows))\n",
        "all-to-all": predict(
            "rows", before="merged = []", merge="merged += part.numpy().tolist()"
        ),
        "rest-dropped": predict(
            "rows[:len(rows) // R * R][k::R]", before="merged = np.empty((len(rows) // R * R, 2))"
        ),
        "summed": predict(
            "rows[:len(rows) // R * R][k::R]", before="merged = 0", merge="merged = merged + part"
        ),
        "(the example's numbers, and predict is never called)": """
import numpy as np
def predict_in_order(strategy, predict, rows):
    replicas = np.arange(len(rows)) % strategy.num_replicas_in_sync
    return np.stack([rows[:, 0] + 2 * rows[:, 1], replicas], axis=1)
""",
        "counted-from-one": predict("rows[(k - 1) % R::R]", merge="merged[(k - 1) % R::R] = part"),
    },
    "meter": {
        "first-only": meter(
            options="synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA"
        ),
        "first-only (no aggregation)": meter(options="trainable=False"),
        "averaged": meter(options="aggregation=tf.VariableAggregation.MEAN"),
        "reduced-twice": meter(
            "c = tf.distribute.get_replica_context(); total.assign_add(c.all_reduce('sum', tf.reduce_sum(values))); count.assign_add(c.all_reduce('sum', tf.cast(len(values), tf.float64)))"
        ),
        "batches-counted (and means added)": meter(
            "total.assign_add(tf.reduce_mean(values)); count.assign_add(1.0)"
        ),
        "mean-of-means": meter(
            "total.assign_add(tf.reduce_mean(values)); count.assign_add(tf.cast(len(values), tf.float64)); calls.append(1)",
            "return count, float(total.numpy()) / max(len(calls), 1)",
        ).replace("    def add", "    calls = []\n    def add"),
        "last-only": meter(
            "total.assign(tf.reduce_sum(values)); count.assign(tf.cast(len(values), tf.float64))"
        ),
        "last-only (read forgets)": meter(
            read="n, s = float(count.numpy()), float(total.numpy()); total.assign(0.0); count.assign(0.0); return n, s / max(n, 1)"
        ),
        "empty": meter(read="return count, total / count"),
        "summed": meter(read="return count, total"),
        "sum-of-last": meter(
            "total.assign(tf.reduce_sum(values)); count.assign_add(tf.cast(len(values), tf.float64))"
        ),
    },
}

REFUSED = {
    "moments": {
        "not two numbers": moments("return strategy.gather(values, axis=0)"),
        "global_moments returned None": moments("print(local(values))"),
        "tensors of different lengths": moments(
            "mean = strategy.reduce('MEAN', values, axis=None)", "return mean, mean"
        ),
    },
    "meter": {
        "not two functions": TF + "def make_meter(strategy):\n    return print\n",
        "read returned None": meter(read="print(count, total)"),
    },
    "predict": {
        "predict_in_order returned None": predict(after="None"),
        "tf.stack takes tensors of one length": predict(
            merge="pass", after="tf.reshape(tf.stack(parts, axis=1), [-1, 2])"
        ),
    },
    "variable": {
        "not a float64 scalar": variable(aggregate("MEAN")).replace("float64", "float32"),
        "not a tf.Variable": TF
        + """
class Copies(tf.distribute.DistributedValues):
    dtype, shape = tf.float64, ()
    def __init__(self, start, count):
        self.start, self.total, self._values = start, 0.0, (start,) * count
    def assign_add(self, number):
        self.total += float(number) / len(self._values)
        self._values = (self.start + self.total,) * len(self._values)
def make_variable(strategy, start):
    return Copies(start, strategy.num_replicas_in_sync)
""",
    },
}
