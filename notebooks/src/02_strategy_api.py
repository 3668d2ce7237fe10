# %% [markdown] shows="Scope, run, reduce, gather: what `tf.distribute.Strategy` does"
# # What a strategy does
#
# Code under a strategy often runs and still trains the wrong thing: one variable in the wrong place, one mean of unequal parts, and no error. A strategy does four jobs: it places variables, assigns computation, combines results and splits the data. In this lesson you watch each one happen on four devices, so you can tell when one goes wrong.
#
# **Time:** 45 minutes · **Builds on:** [why distribute](01-why-distribute.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Place a variable on several devices and name what each of them holds.
# - Run one function on every replica, then reduce or gather what comes back.
# - Choose the aggregation of a variable that replicas write to.
# - Replace how a strategy reduces, and name what a strategy of your own must give.
# - Test a training step under the default and the one-device strategy before the rest.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import tensorflow as tf
    import keras
from utils.devices import use_logical_devices

set_seeds(0)
devices = use_logical_devices(4)
print(devices)

# %%
import inspect
import textwrap
import traceback

import numpy as np

from distlab import figures
from utils.data import load
from utils.data.batches import BatchPlan, epoch_order, make_batches, without_autotune
from distlab.exercises.predict import show_guess
from utils.measure import array_bytes, time_calls
from utils.models import build_model
from utils.strategies import make_strategy
from utils.training import train
from distlab.widgets import Slider, explore

# %% [markdown]
# ## Four jobs
#
# | job | what the strategy decides | what you call |
# |---|---|---|
# | variables | on which devices each one is stored | `strategy.scope()` |
# | computation | which device runs which replica | `strategy.run(function)` |
# | results and gradients | how one value per replica becomes one value | `reduce`, `gather`, `all_reduce`, the optimizer |
# | data | which replica gets which examples | `experimental_distribute_dataset` |
#
# The picture shows how `MirroredStrategy` does the four jobs, with one replica on each of four logical devices. `make_strategy("mirrored", 4)` is `tf.distribute.MirroredStrategy(devices)` with a reduction for CPUs. The rest of the lesson takes the picture apart.

# %%
mirrored = make_strategy("mirrored", 4)
print(mirrored.num_replicas_in_sync, "replicas in sync")
figures.show(figures.mirrored_devices(4, device="CPU"))

# %% [markdown]
# ## Variables: what the scope changes
#
# While a scope is open, TensorFlow hands every new variable to the strategy, which decides where to store it.
#
# **Predict.** `tf.Variable(tf.zeros([1000]))` takes 4,000 bytes. Made inside the scope of `mirrored`, how many bytes does it take on the four devices together?

# %%
my_guess = None  # your number of bytes

# %%
outside = tf.Variable(tf.zeros([1000]))
with mirrored.scope():
    inside = tf.Variable(tf.zeros([1000]))

for name, variable in {"outside": outside, "inside": inside}.items():
    parts = mirrored.experimental_local_results(variable)
    print(f"{name:<8} {type(variable).__name__:<17}", [part.device[-5:] for part in parts])
show_guess(my_guess, array_bytes(mirrored.experimental_local_results(inside)), unit=" bytes")

# %% [markdown]
# A `MirroredVariable` is a handle on four ordinary variables, one per device, made with equal values. `experimental_local_results` returns them. The variable made outside is one plain variable, and no strategy knows about it.
#
# A scope puts its strategy in force and changes how variables are made. For `MirroredStrategy` that is all; the multi-worker and parameter-server strategies also set the default device. Inside a scope your code speaks for all replicas at once: the *cross-replica context*. Inside `run`, which opens the scope for you, the code speaks for one replica: its *replica context*.


# %%
def where():
    """Return the strategy in force here, and the kind of context."""
    cross = tf.distribute.in_cross_replica_context()
    return type(tf.distribute.get_strategy()).__name__, "cross-replica" if cross else "replica"


print("outside:     ", *where())
with mirrored.scope():
    print("in the scope:", *where())
print("inside run:  ", *mirrored.run(where))

# %% [markdown]
# Outside any scope a strategy is in force too: the *default strategy*, whose single replica is your ordinary program. That is why the same step can run with no strategy at all, as the test bed below does.
#
# ## Computation: run
#
# `run(function)` calls the function once for each replica, with that replica's device as the default. What comes back is a `PerReplica`: one tensor for each replica, each still on its own device. (The small cells run eagerly. A real step goes into a `tf.function`, as in the test bed.)
#
# An argument that is a `PerReplica` is taken apart again, so each replica sees its own part. `experimental_distribute_values_from_function` makes one: below, a row of `table` for each replica.


# %%
def introduce():
    context = tf.distribute.get_replica_context()
    return tf.identity(context.replica_id_in_sync_group)  # computed on this replica's device


answers = mirrored.run(introduce)
for answer in mirrored.experimental_local_results(answers):
    print(f"replica {answer.numpy()} computed on {answer.device[-5:]}")

table = np.arange(8.0).reshape(4, 2)  # [replica, 2]
losses = mirrored.experimental_distribute_values_from_function(
    lambda context: tf.constant(table[context.replica_id_in_sync_group])
)
squares = mirrored.run(tf.square, args=(losses,))
print(type(losses).__name__, "in,", type(squares).__name__, "out")
print([part.numpy().tolist() for part in mirrored.experimental_local_results(squares)])

# %% [markdown]
# ## Back to one value: reduce and gather
#
# Think of `losses` as the losses of eight examples, two on each replica: 0 and 1, 2 and 3, 4 and 5, 6 and 7.
#
# **Predict.** `reduce("SUM", losses, axis=None)`: how many numbers come back?

# %%
my_guess = None  # how many numbers

# %%
for axis in (None, 0):
    for operation in ("SUM", "MEAN"):
        answer = mirrored.reduce(operation, losses, axis=axis).numpy()
        print(f"{operation:<4} axis={axis!s:<4}", answer)
print("gather        ", mirrored.gather(losses, axis=0).numpy())
assert mirrored.reduce("MEAN", losses, axis=0) == table.mean()
np.testing.assert_array_equal(mirrored.reduce("SUM", losses, axis=None), table.sum(axis=0))
show_guess(my_guess, tf.size(mirrored.reduce("SUM", losses, axis=None)), unit=" numbers")

# %% [markdown]
# `axis=None` adds replica to replica and keeps each replica's shape: two numbers. `axis=0` folds the batch axis in as well: one number. `gather` adds nothing up; it puts the parts one after the other. All three belong to the cross-replica context: call them after `run`.
#
# ## Inside the step: all_reduce
#
# A replica that needs the sum during its step calls `all_reduce` on its replica context. Every replica must call it, and every replica gets the answer. Below, each divides its own sum by the total.


# %%
def share_of_total(values):
    own = tf.reduce_sum(values)
    total = tf.distribute.get_replica_context().all_reduce("SUM", own)
    return own / total


shares = mirrored.experimental_local_results(mirrored.run(share_of_total, args=(losses,)))
print("shares of the total:", [f"{share.numpy():.2f}" for share in shares])

# %% [markdown]
# ## Variables that replicas write to
#
# When every replica assigns its own value, the strategy must know what the variable should hold afterwards. `aggregation` says how the values become one; `synchronization` says when.
#
# **Predict.** A variable starts at 0 with `aggregation=MEAN`. Replicas 0, 1, 2 and 3 add 1, 2, 3 and 4. What does each copy hold?

# %%
my_guess = None  # your number

# %%
ways = {
    name: {"aggregation": tf.VariableAggregation[name]}
    for name in ("SUM", "MEAN", "ONLY_FIRST_REPLICA", "NONE")
}
on_read = tf.VariableSynchronization.ON_READ
ways["SUM, on read"] = {"aggregation": tf.VariableAggregation.SUM, "synchronization": on_read}


def add_own_number(variable):
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    variable.assign_add(tf.cast(replica + 1, variable.dtype))


rows = {}
for name, options in ways.items():
    with mirrored.scope():
        variable = tf.Variable(0.0, **options)
    mirrored.run(add_own_number, args=(variable,))
    parts = mirrored.experimental_local_results(variable)
    rows[name] = [float(part) for part in parts] + [float(tf.convert_to_tensor(variable))]
show_guess(my_guess, rows["MEAN"][0])

# %%
columns = [f"replica {i}" for i in range(4)] + ["read"]
title = "What each replica's copy holds after it added 1, 2, 3 or 4"
figures.show(figures.matrix(list(rows.values()), list(rows), columns, title=title))
with mirrored.scope():
    pair = {"metric": keras.metrics.Mean().total.value, "weight": keras.Variable(0.0).value}
for name, made in pair.items():
    print(f"a Keras {name} is a {type(made).__name__}, aggregation {made.aggregation.name}")

# %% [markdown]
# - `SUM`, `MEAN` and `ONLY_FIRST_REPLICA` combine the values at each write, and all copies stay equal.
# - `SUM, on read` makes a `SyncOnReadVariable`: the copies differ on purpose, a write costs no communication, and only a read adds them up. Keras makes its metrics like this.
# - `NONE` combines nothing. The copies have drifted apart without an error, and a read shows replica 0's. Keras makes its weights with `NONE`, because its optimizer writes only values that are already reduced.
#
# ## Data: who gets which examples
#
# A dataset of *global* batches goes in; each replica gets its part of every batch.

# %%
for examples in (8, 6):
    dataset = without_autotune(tf.data.Dataset.range(examples).batch(8))  # nothing to tune
    batch = next(iter(mirrored.experimental_distribute_dataset(dataset)))
    parts = mirrored.experimental_local_results(batch)
    print(examples, "examples:", [part.numpy().tolist() for part in parts])

# %% [markdown]
# A batch of 6 leaves replica 3 with nothing. [Lesson 05](05-loss-scaling.ipynb) keeps the gradient exact all the same. (`without_autotune` only spares the cell a background thread.)
#
# ## Gradients: replace the reduction and count it
#
# In a replica context, a Keras optimizer first all-reduces the gradients and then updates each copy. How values are reduced is a part that you can replace: any `tf.distribute.CrossDeviceOps`. The one below is `ReductionToOneDevice` with a counter.
#
# **Predict.** The small network has 101,770 float32 weights. How many bytes of gradients do four replicas pass to the reduction in one step?

# %%
my_guess = None  # your number of bytes


# %%
class CountingReduction(tf.distribute.ReductionToOneDevice):
    payload_bytes = 0  # of all values that replicas handed in

    def batch_reduce_implementation(self, reduce_op, value_destination_pairs, options):
        for value, _ in value_destination_pairs:
            self.payload_bytes += array_bytes(value.values)
        return super().batch_reduce_implementation(reduce_op, value_destination_pairs, options)


# %%
reduction = CountingReduction()
counted = tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
with counted.scope():
    model = build_model("mlp")
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)


def apply_ones():
    gradients = [tf.ones(variable.shape) for variable in model.trainable_variables]
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))


counted.run(apply_ones)
print(f"{model.count_params():,} weights")
show_guess(my_guess, reduction.payload_bytes, unit=" bytes")
assert reduction.payload_bytes == 4 * array_bytes(model.trainable_variables)

# %% [markdown]
# Each replica contributes one gradient for every weight of this network, whatever the batch size. The step ran without `tf.function`, so the method was called at each step. Inside one it would be called while the function is traced, and count once.
#
# ## Where a strategy of your own would begin
#
# Skip this until you need it. A `tf.distribute.Strategy` is a thin shell: the work is done by its `extended`, a `tf.distribute.StrategyExtended`. Most needs are met by replacing the reduction. For more, subclass `StrategyExtended` and implement what the base class leaves open: the methods below, found by reading its source.


# %%
def is_left_open(member):
    """Say whether `member`, a method or a property, only raises NotImplementedError."""
    function = getattr(member, "fget", member)  # a property's function
    return inspect.isfunction(function) and "NotImplementedError" in inspect.getsource(function)


members = vars(tf.distribute.StrategyExtended).items()
left_open = [name for name, member in members if is_left_open(member)]
for strategy in (mirrored, make_strategy("one-device")):
    given = [name for name in left_open if name in vars(type(strategy.extended))]
    print(f"{type(strategy.extended).__name__} gives {len(given)} of {len(left_open)}")
print(textwrap.fill(", ".join(left_open), 96))

# %% [markdown]
# They are the four jobs again: `_create_variable` and `_update` for variables, `worker_devices` and `_num_replicas_in_sync` for computation, `_reduce_to` and `_gather_to_implementation` for results, the dataset methods for data. Most begin with an underscore, which means that TensorFlow promises nothing about them: a strategy of your own is tied to one version.
#
# ## The test bed: one step, three strategies
#
# A step written for a strategy also runs under the default strategy and under `OneDeviceStrategy`, unchanged. Debug it there first, where there is one replica and nothing to reduce. Then compare.
#
# Below, `make_batches` gives images, labels and weights. An example's weight is 1 / its global batch size, so the sum of weight times loss over all replicas is the mean loss of the global batch. (TensorFlow's tutorials do the same division with `tf.nn.compute_average_loss`.) `utils.training.train` is the same step with metrics, checkpoints and reports around it: from the same seed it must give the same weights.


# %%
def train_by_hand(strategy, steps, seed=0):
    """Return the weights of the MLP after `steps` global batches of 64, float64."""
    split = load("fashion_mnist").train.take(64 * steps)
    plan = BatchPlan(len(split), 64, strategy.num_replicas_in_sync)
    batches = make_batches(split, plan, epoch_order(len(split), seed, 0), "float64")
    with strategy.scope():
        model = build_model("mlp", seed=seed, dtype="float64")
        optimizer = keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(images, labels, weights):
        def replica_step(images, labels, weights):
            with tf.GradientTape() as tape:
                logits = model(images, training=True)  # [per_replica_batch, 10]
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                loss = tf.reduce_sum(losses * weights)  # weights: 1 / global_batch_size
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        strategy.run(replica_step, args=(images, labels, weights))

    for batch in strategy.experimental_distribute_dataset(batches):
        train_step(*batch)
    return [np.asarray(variable) for variable in model.trainable_variables]


# %%
beds = {"default": 1, "one-device": 1, "mirrored": 4}
weights = {name: train_by_hand(make_strategy(name, n), steps=8) for name, n in beds.items()}
for name in ("one-device", "mirrored"):
    for ours, alone in zip(weights[name], weights["default"], strict=True):
        np.testing.assert_allclose(ours, alone, rtol=0, atol=1e-9)
    print(f"{name}: the weights of the default strategy, to 1e-9")


options = {"model": "mlp", "optimizer": "sgd", "dtype": "float64", "epochs": 1, "limit": 512}
report = train(strategy="mirrored", replicas=4, **options)
for ours, theirs in zip(weights["mirrored"], report.weights, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
print(f"{report.strategy}, {report.replicas} replicas, {report.examples} examples: equal weights")

# %% [markdown]
# On one device, equal weights prove that the step runs. On four, they also prove that it divides the loss and adds up the gradients correctly. The first does not imply the second.
#
# ## The mistakes that people really make
#
# ### A model made outside the scope
#
# The model is built first, and the strategy comes later, at `compile`.

# %%
plain_model = build_model("mlp")  # no scope
with mirrored.scope():
    plain_model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
examples = tf.data.Dataset.from_tensors((np.zeros((8, 28, 28, 1)), np.zeros(8)))
one_batch = without_autotune(examples)
try:
    plain_model.fit(one_batch, shuffle=False, verbose=0)
except AssertionError as error:
    last = traceback.extract_tb(error.__traceback__)[-1]
    print(f"{error!r} in {last.name}: {last.line}")

kernel = plain_model.trainable_variables[0].value
print("made in the scope:", mirrored.extended.variable_created_in_scope(kernel))

# %% [markdown]
# The error from `fit` has no message: the optimizer asked `strategy.extended.update` to write to a variable that the strategy did not make. `variable_created_in_scope` tells you which ones it made.
#
# Worse is a plain variable that your own step writes to: no error, and all four replicas write to one place. The fix is the same: make everything that has variables inside the scope, that is model, optimizer and metrics. `compile` belongs there too, because given a name it *makes* the optimizer. Outside, `compile("sgd", …)` trains without an error and counts each step once per replica: 4 steps on four replicas leave `optimizer.iterations` at 16, and every schedule runs four times too fast. Only `fit` may stand outside.

# %%
count = tf.Variable(1.0)  # no scope
mirrored.run(lambda: count.assign_add(1.0))
print("each replica added 1 to 1, which is now", count.numpy())
with mirrored.scope():
    model = build_model("mlp")
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(one_batch, shuffle=False, verbose=0)
print("made in the scope:", mirrored.extended.variable_created_in_scope(model.weights[0].value))

# %% [markdown]
# ### Asking for all_reduce outside a replica context
#
# In a scope, but not inside `run`, there is no replica, so there is no replica context to ask.

# %% tags=["raises-exception"]
with mirrored.scope():
    tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0))

# %% [markdown]
# `get_replica_context()` returned None. The mirror image is `strategy.reduce` inside `run`. Each context has its own call, and the fix is to use that one. (`merge_call`, which the message below names, stops all replicas while one function runs in the cross-replica context. Optimizers use it; you rarely need it.)

# %%
try:
    mirrored.run(lambda: mirrored.reduce("SUM", tf.constant(1.0), axis=None))
except RuntimeError as error:
    print("RuntimeError:", error)
inside_run = mirrored.run(
    lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0))
)
print([float(part) for part in mirrored.experimental_local_results(inside_run)])

# %% [markdown]
# ### MEAN over unequal counts
#
# Each replica returns the mean of its own examples, and `reduce("MEAN", …, axis=None)` averages the four means. With unequal counts, an example on a replica that has few of them counts for more. Run the cell and move the slider: the bars agree only where the examples divide by four.


# %%
def compare_means(examples):
    values = np.arange(examples) ** 2.0  # example i has loss i squared
    parts = np.array_split(values, 4)  # the first replicas get one more
    own = mirrored.experimental_distribute_values_from_function(
        lambda context: tf.constant(parts[context.replica_id_in_sync_group])
    )
    means = mirrored.run(tf.reduce_mean, args=(own,))
    bars = {
        "reduce MEAN of the replicas' means": float(mirrored.reduce("MEAN", means, axis=None)),
        "reduce MEAN, axis=0": float(mirrored.reduce("MEAN", own, axis=0)),
        "reduce SUM, axis=0, / examples": float(mirrored.reduce("SUM", own, axis=0)) / examples,
    }
    title = f"Mean loss of {examples} examples on replicas of {[len(p) for p in parts]}"
    return figures.bars(bars, unit="", title=title, reference=("true mean", values.mean()))


explore(compare_means, examples=Slider("Examples", 4, 16, 6))

# %% [markdown]
# The fix: reduce per-example losses with `axis=0`, or sum on each replica and divide by the global number of examples once.
#
# ## What it costs
#
# Bytes: a mirrored variable is stored once for each replica. Seconds: each `run` starts one function on every replica and waits for them all; below, a `run` that does nothing. Logical devices share the cores, so don't expect more of them to buy time here.

# %% tags=["nbval-ignore-output"]
stored_bytes, microseconds = {}, {}
for name, replicas in {"default": 1, "one-device": 1, "mirrored, 4": 4}.items():
    strategy = make_strategy(name.split(",")[0], replicas)
    with strategy.scope():
        variables = build_model("mlp").trainable_variables
    parts = [strategy.experimental_local_results(v.value) for v in variables]
    stored_bytes[name] = sum(array_bytes(part) for part in parts)
    empty_run = tf.function(lambda s=strategy: s.run(lambda: tf.identity(0.0)))
    microseconds[name] = 1e6 * time_calls(empty_run, repeats=50).median_seconds
for name, count in stored_bytes.items():
    print(f"{name:<12}{count:>10,} bytes of weights")
assert stored_bytes["mirrored, 4"] == 4 * stored_bytes["one-device"]
figures.show(figures.bars(microseconds, unit="µs", title="One compiled run that does nothing"))

# %% [markdown]
# ## Take-away card
#
# ```python
# strategy = tf.distribute.MirroredStrategy()          # or get_strategy(), OneDeviceStrategy("GPU:0")
# with strategy.scope():                               # everything that has variables
#     model, optimizer = build_model(), keras.optimizers.SGD(0.1)
#     optimizer.build(model.trainable_variables)
# for batch in strategy.experimental_distribute_dataset(dataset):   # global batches
#     losses = strategy.run(replica_step, args=(batch,))            # one result per replica
#     mean = strategy.reduce("SUM", losses, axis=None)   # each divided by the global batch size
# # inside replica_step: tf.distribute.get_replica_context().all_reduce("SUM", value)
# # counter: tf.Variable(0.0, synchronization=tf.VariableSynchronization.ON_READ,
# #                      aggregation=tf.VariableAggregation.SUM)
# ```
#
# What you saw:
#
# - One variable in the scope is four, one on each device.
# - `run` gives a result per replica; `reduce` adds them up, `gather` lines them up.
# - SUM and MEAN keep copies equal, NONE lets them drift, on read they add up.
# - A replaced reduction counted bytes; a strategy of your own fills in `StrategyExtended`.
# - Default, one-device and mirrored gave equal weights, to 1e-9.
#
# ## Where it is described
#
# - TensorFlow's guide, [Distributed training with TensorFlow](https://www.tensorflow.org/guide/distributed_training)
# - The API pages [tf.distribute.Strategy](https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy), [ReplicaContext](https://www.tensorflow.org/api_docs/python/tf/distribute/ReplicaContext) and [StrategyExtended](https://www.tensorflow.org/api_docs/python/tf/distribute/StrategyExtended)
# - The API pages [tf.VariableAggregation](https://www.tensorflow.org/api_docs/python/tf/VariableAggregation) and [tf.VariableSynchronization](https://www.tensorflow.org/api_docs/python/tf/VariableSynchronization)
#
# ## The lab
#
# You practise this in [lab 02, the strategy API](../labs/lab02-strategy-api.ipynb): place a variable, run and reduce, gather, values from a function.
