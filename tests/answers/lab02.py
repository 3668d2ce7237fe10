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


def mean(*lines):
    body = "\n".join("    " + line for line in lines)
    return f"{TF}import numpy as np\ndef global_mean(strategy, values):\n{body}\n"


def collect(expression):
    return f"{TF}import numpy as np\ndef collect(strategy, rows):\n    return {expression}\n"


def deal(function):
    return f"""{TF}
def deal_out(strategy, examples):
    def own(context):
        k, replicas = context.replica_id_in_sync_group, context.num_replicas_in_sync
        return {function}
    return strategy.experimental_distribute_values_from_function(own)
"""


IN_CONTEXT = (
    TF
    + """
def deal_out(strategy, examples):
    def own():
        context = tf.distribute.get_replica_context()
        return tf.range(context.replica_id_in_sync_group, examples, context.num_replicas_in_sync)
    return strategy.run(own)
"""
)
IN_REPLICAS = """
def add(x):
    return tf.distribute.get_replica_context().all_reduce("sum", x)
@tf.function
def share(v):
    return add(tf.reduce_sum(v)) / add(tf.cast(tf.size(v), v.dtype))
return strategy.experimental_local_results(strategy.run(share, args=(values,)))[0]
""".strip().splitlines()
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
    "mean": [
        mean(
            f"total = strategy.reduce({SUM}, values, axis=0)",
            "count = sum(len(v) for v in strategy.experimental_local_results(values))",
            "return total / count",
        ),
        mean(
            "parts = strategy.experimental_local_results(values)",
            "return float(np.concatenate([p.numpy() for p in parts]).mean())",
        ),
        mean("return tf.reduce_mean(strategy.gather(values, axis=0))"),
        mean("return strategy.reduce(tf.distribute.ReduceOp.MEAN, values, axis=0)"),
        mean(
            "sums = strategy.run(tf.reduce_sum, args=(values,))",
            "ones = strategy.run(lambda v: tf.reduce_sum(tf.ones_like(v)), args=(values,))",
            f"add = lambda v: strategy.reduce({SUM}, v, axis=None)",
            "return add(sums) / add(ones)",
        ),
        mean(*IN_REPLICAS),
        mean(
            "both = strategy.run(lambda v: tf.stack([tf.reduce_sum(v), tf.cast(len(v), v.dtype)]), args=(values,))",
            "total, count = tf.unstack(strategy.reduce('SUM', both, axis=None))",
            "return total / count",
        ),
        mean(
            "counted = strategy.run(lambda v: tf.cast(tf.shape(v)[0], tf.float64), args=(values,))",
            "n = strategy.reduce('SUM', counted, axis=None)",
            "parts = strategy.run(lambda v, n: tf.reduce_sum(v / n), args=(values, n))",
            "return float(strategy.reduce('SUM', parts, axis=None))",
        ),
    ],
    "collect": [
        collect("strategy.gather(rows, axis=0)"),
        collect("tf.concat(strategy.experimental_local_results(rows), 0)"),
        collect("np.vstack([r.numpy() for r in strategy.experimental_local_results(rows)])"),
        collect(
            "[row for part in strategy.experimental_local_results(rows) for row in part.numpy().tolist()]"
        ),
        collect(
            "strategy.run(lambda r: tf.distribute.get_replica_context().all_gather(r, axis=0), args=(rows,)).values[0]"
        ),
        collect("tf.reshape(tf.stack(strategy.experimental_local_results(rows)), [-1, 2])"),
        collect("np.array(strategy.gather(rows, 0))"),
        collect("tf.concat([part for part in rows.values], axis=0).numpy()"),
    ],
    "deal": [
        deal("tf.range(k, examples, replicas)"),
        deal("tf.constant([i for i in range(examples) if i % replicas == k], tf.int64)"),
        deal("tf.cast(tf.range(examples)[k::replicas], tf.int32)"),
        deal("tf.where(tf.range(examples) % replicas == k)[:, 0]"),
        deal("tf.convert_to_tensor(list(range(k, examples, replicas)))"),
        deal("k + replicas * tf.range((examples - k + replicas - 1) // replicas)"),
        deal("tf.boolean_mask(tf.range(examples), tf.range(examples) % replicas == k)"),
        IN_CONTEXT,
    ],
}
RUN_MEANS = "means = strategy.run(tf.reduce_mean, args=(values,))"
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
    "mean": {
        "mean-of-means": mean(
            RUN_MEANS, "return strategy.reduce(tf.distribute.ReduceOp.MEAN, means, axis=None)"
        ),
        "sum-of-means": mean(RUN_MEANS, f"return strategy.reduce({SUM}, means, axis=None)"),
        "first-only": mean(RUN_MEANS, "return strategy.experimental_local_results(means)[0]"),
        "divided-by-replicas": mean(
            f"total = strategy.reduce({SUM}, values, axis=0)",
            "return total / strategy.num_replicas_in_sync",
        ),
    },
    "collect": {
        "summed": collect(f"strategy.reduce({SUM}, rows, axis=None)"),
        "first-only": collect("strategy.experimental_local_results(rows)[0]"),
        "wrong-axis": collect("strategy.gather(rows, axis=1)"),
        "stacked": collect("tf.stack(strategy.experimental_local_results(rows))"),
    },
    "deal": {
        "in-blocks": deal(
            "tf.constant(__import__('numpy').array_split(range(examples), replicas)[k])"
        ),
        "all-to-all": deal("tf.range(examples)"),
        "counted-from-one": deal("tf.range(k + 1, examples, replicas)"),
        "all-the-first": deal("tf.range(0, examples, replicas)"),
        "rest-dropped": deal("tf.range(k, examples - examples % replicas, replicas)"),
        "floats": deal("tf.range(float(k), float(examples), float(replicas))"),
    },
}

REFUSED = {
    "mean": {
        "tensors of different lengths": mean(
            "return strategy.reduce(tf.distribute.ReduceOp.MEAN, values, axis=None)"
        ),
        "one number is wanted": mean("return values.values[0]"),
    },
    "deal": {"returned a list": TF + "def deal_out(strategy, n):\n    return list(range(n))\n"},
    "variable": {
        "a float64 scalar is wanted": variable(aggregate("MEAN")).replace("float64", "float32"),
        "a tf.Variable is wanted": TF
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
