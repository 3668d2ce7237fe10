# %% [markdown] shows="Scope, run, reduce, gather: what `tf.distribute.Strategy` does"
# # What a strategy does
#
# Code under a strategy often runs and still trains the wrong thing: one variable in the wrong place, one mean of unequal parts, and no error. A strategy does four jobs: it places variables, assigns computation, combines results and splits the data. In this lesson you watch each one happen on four devices, so you can tell when one goes wrong.
#
# **Time:** 75 minutes · **Prerequisites:** [why distribute](01-why-distribute.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Place a variable on several devices and name what each of them holds.
# - Run one function on every replica, then reduce or gather what comes back.
# - Choose the aggregation of a variable that replicas write to.
# - Replace how a strategy adds up gradients, and count the bytes that it gets.
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
import re
import textwrap
import traceback

import numpy as np

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
# The picture shows how `MirroredStrategy` does the four jobs, with one replica on each of four logical devices. (`ReductionToOneDevice` adds up on one device, which suits CPUs; on GPUs leave it out.) The rest of the lesson takes it apart.

# %%
from distlab import figures

mirrored = tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())
print(mirrored.num_replicas_in_sync, "replicas in sync")
figures.show(figures.mirrored_devices(4, device="CPU"))

# %% [markdown]
# ## Variables: what the scope changes
#
# While a scope is open, TensorFlow hands every new variable to the strategy, which decides where to store it.
#
# `tf.Variable(tf.zeros([1000]))` takes 4,000 bytes. What does it take when it's made inside the scope of `mirrored`?

# %%
from utils.measure import array_bytes

outside = tf.Variable(tf.zeros([1000]))
with mirrored.scope():
    inside = tf.Variable(tf.zeros([1000]))

for name, variable in {"outside": outside, "inside": inside}.items():
    parts = mirrored.experimental_local_results(variable)
    print(f"{name:<8} {type(variable).__name__:<17}", [part.device[-5:] for part in parts])
print("inside, all parts:", array_bytes(mirrored.experimental_local_results(inside)), "bytes")

# %% [markdown]
# A `MirroredVariable` is a handle on four ordinary variables, one per device, made with equal values. `experimental_local_results` returns them. The variable made outside is one plain variable, and no strategy knows about it.
#
# A scope makes its strategy the current one and changes how variables are made. For `MirroredStrategy` that is all; the multi-worker strategy also sets the default device. (`ParameterServerStrategy` doesn't in TensorFlow 2.21. There, connecting to the cluster makes the chief the default.) Inside a scope your code speaks for all replicas at once: the *cross-replica context*. Inside `run`, which opens the scope for you, the code speaks for one replica: its *replica context*.


# %%
def where():
    kind = "cross-replica" if tf.distribute.in_cross_replica_context() else "replica"
    return type(tf.distribute.get_strategy()).__name__, kind


print("outside:     ", *where())
with mirrored.scope():
    print("in the scope:", *where())
print("inside run:  ", *mirrored.run(where))

# %% [markdown]
# Outside any scope there is a current strategy too, the *default strategy*. Its single replica is your ordinary program. That is why the same step can run with no strategy at all, as the test bed below does.
#
# ## Computation: run
#
# `run(function)` calls the function once for each replica, with that replica's device as the default. What comes back is a `PerReplica`: one tensor for each replica, each still on its own device. There are two exceptions. With one replica you get its plain tensor. And if all replicas return the same Python object, as `where` did with its strings, you get that object once. (The small cells run eagerly. A real step goes into a `tf.function`, as in the test bed.)
#
# An argument that is a `PerReplica` is taken apart again, so each replica sees its own part. `experimental_distribute_values_from_function` makes one: it calls your function once for each replica.
#
# **Your turn.** Write that function. Replica 0 gets the numbers 0 and 1, replica 1 gets 2 and 3, and so on up to 7. `context.replica_id_in_sync_group` is the replica's number.


# %%
def own_block(context):  # an array of two numbers
    return ...


# %%
from distlab.turns import lesson02 as turns

own_block = turns.OWN_BLOCK.take(own_block)
blocks = mirrored.experimental_distribute_values_from_function(
    lambda context: tf.constant(own_block(context))
)
print([part.numpy().tolist() for part in mirrored.experimental_local_results(blocks)])


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
# `reduce` adds them up or averages them. Watch what `axis` does:

# %%
from utils.collectives import combine_values

for axis, ending in {None: "", 0: "-all"}.items():
    for operation in ("SUM", "MEAN"):
        answer = mirrored.reduce(operation, losses, axis=axis).numpy()
        ours = combine_values(operation.lower() + ending, table)  # the same in NumPy
        np.testing.assert_array_equal(np.ravel(answer), ours)
        print(f"{operation:<4} axis={axis!s:<4}", answer)
print("gather        ", mirrored.gather(losses, axis=0).numpy())

# %% [markdown]
# `axis=None` combines the replicas, number by number, and keeps each one's shape: two numbers. `axis=0` folds the batch axis in as well: one number. `gather` adds nothing up; it puts the parts one after the other. Both `reduce` and `gather` belong to the cross-replica context: call them after `run`.
#
# Below you can see where each number goes. Press **Play**, then choose another call and play again. What happens with seven values on four replicas? And who holds the answer after `all_reduce`, which comes next?

# %%
from distlab.explorables import replica_values

replica_values("sum", values=table.ravel())

# %% [markdown]
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
from distlab.explorables import guess_number

my_guess = guess_number("Each copy holds", 0, 12, step=0.5)
my_guess

# %%
from distlab.exercises.predict import show_guess

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
# - `SUM`, `MEAN` and `ONLY_FIRST_REPLICA` combine the values at each write, and all copies stay equal. With `MEAN` that's (1 + 2 + 3 + 4) / 4 = 2.5. (If you said 10, that's `SUM`.)
# - `SUM, on read` makes a `SyncOnReadVariable`: the copies differ on purpose, a write costs no communication, and only a read adds them up. Keras makes its metrics like this.
# - `NONE` combines nothing. The copies have drifted apart without an error, and a read shows replica 0's. Keras makes its weights with `NONE`, because its optimizer writes only values that are already reduced.
#
# **Your turn.** A language model keeps count of the tokens that it has seen, in a variable that it reads in every step. In each step every replica adds the tokens of its own part, and every copy should then hold the count of all. Which aggregation do you choose? Write its name as a string.

# %%
aggregation = ...

# %%
aggregation = turns.TOKENS.take(aggregation)
after = rows.get(aggregation.upper(), "no such row")
print("after the replicas added 1, 2, 3 and 4, the copies and a read:", after)

# %% [markdown]
# ## Data: who gets which examples
#
# A dataset of *global* batches goes in; each replica gets its part of every batch.

# %%
for examples in (8, 6):
    dataset = tf.data.Dataset.range(examples).batch(8)
    batch = next(iter(mirrored.experimental_distribute_dataset(dataset)))
    parts = mirrored.experimental_local_results(batch)
    print(examples, "examples:", [part.numpy().tolist() for part in parts])

# %% [markdown]
# A batch of 6 leaves replica 3 with nothing: TensorFlow rounds 6 / 4 up, and hands out shares of 2 until none are left. [Lesson 05](05-loss-scaling.ipynb) keeps the gradient exact all the same.
#
# ## Gradients: replace the reduction and count it
#
# In a replica context, a Keras optimizer first all-reduces the gradients and then updates each copy. How values are reduced is a part that you can replace: any `tf.distribute.CrossDeviceOps`. The one below is `ReductionToOneDevice` with a counter.


# %%
class CountingReduction(tf.distribute.ReductionToOneDevice):
    payload_bytes = 0  # of all values that replicas contribute

    def batch_reduce_implementation(self, reduce_op, value_destination_pairs, options):
        for value, _ in value_destination_pairs:
            self.payload_bytes += array_bytes(value.values)
        return super().batch_reduce_implementation(reduce_op, value_destination_pairs, options)


# %%
from utils.models import build_model

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
print(f"{model.count_params():,} weights, {reduction.payload_bytes:,} bytes of gradients")
assert reduction.payload_bytes == 4 * array_bytes(model.trainable_variables)

# %% [markdown]
# Each replica contributes one gradient for every weight of this network, whatever the batch size. So it's 4 replicas × 101,770 weights × 4 bytes. The step ran without `tf.function`, so the method was called at each step. Inside one it would be called only while the function is traced, and count once per trace.
#
# ## The test bed: one step, three strategies
#
# A step written for a strategy also runs under the default strategy and under `OneDeviceStrategy`, unchanged. Debug it there first: there is one replica, and nothing to reduce. Then compare.
#
# Below, every replica divides its losses by the *global* batch size, and the optimizer adds up the gradients. `utils.training.train` is the same step with metrics, checkpoints and reports around it: from the same seed it must give the same weights.

# %%
from utils.data import load
from utils.data.batches import epoch_order

order, split = epoch_order(512, seed=0, epoch=0), load("fashion_mnist").train
images, labels = split.images[order][..., None] / 255, split.labels[order]
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(64)  # 8 global batches
four_batches = tf.data.Dataset.from_tensor_slices((images[:32], labels[:32])).batch(8)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)  # both for `fit`, below
job = {"model": "mlp", "max_examples": 512, "epochs": 1, "global_batch_size": 64}  # for `train`
job |= {"optimizer": "sgd", "learning_rate": 0.05, "dtype": "float64"}


# %%
def train_by_hand(strategy):
    """Return the weights of the MLP after one epoch of `dataset`, float64."""
    with strategy.scope():
        model = build_model("mlp", dtype="float64")
        optimizer = keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)  # [per_replica_batch, 10]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=64)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    @tf.function
    def train_step(images, labels):
        strategy.run(replica_step, args=(images, labels))

    for batch in strategy.experimental_distribute_dataset(dataset):
        train_step(*batch)
    return [np.asarray(variable) for variable in model.trainable_variables]


# %%
from utils.training import train

default, one = tf.distribute.get_strategy(), tf.distribute.OneDeviceStrategy("CPU:0")
weights = train_by_hand(default)
others = {"one device": train_by_hand(one), "mirrored": train_by_hand(mirrored)}
others["utils.training.train"] = train(strategy="mirrored", replicas=4, **job).weights
for name, theirs in others.items():
    for ours, their in zip(weights, theirs, strict=True):
        np.testing.assert_allclose(ours, their, rtol=0, atol=1e-9)
    print(f"{name}: the weights of the default strategy, to 1e-9")

# %% [markdown]
# On one device, equal weights prove that the step runs. On four, they also prove that it divides the loss and adds up the gradients correctly. The first doesn't imply the second.
#
# ## The mistakes that people really make
#
# ### A model made outside the scope
#
# The model is built first, and the strategy comes later, at `compile`.

# %%
plain_model = build_model("mlp")  # no scope
with mirrored.scope():
    plain_model.compile("sgd", loss)
try:
    plain_model.fit(four_batches, shuffle=False, verbose=0)
except AssertionError as error:
    print(repr(error), "in", traceback.extract_tb(error.__traceback__)[-1].name)
print(mirrored.extended.variable_created_in_scope(plain_model.weights[0].value))

# %% [markdown]
# The error from `fit` has no message: the optimizer asked `strategy.extended.update` to write to a variable that the strategy didn't make. `variable_created_in_scope` tells you which ones it made. The fix is to make the model in the scope.
#
# ### `compile` outside the scope
#
# With plain SGD this one is silent. Given the name `"sgd"`, `compile` *makes* an optimizer, and the optimizer has variables too. Here the model is made in the scope and trains four steps, compiled once outside and once inside. How many steps does the optimizer count?


# %%
def count_steps(model):
    """Fit four batches; return the copies of the optimizer's step counter."""
    model.fit(four_batches, shuffle=False, verbose=0)
    iterations = model.optimizer.iterations.value
    return [int(copy) for copy in mirrored.experimental_local_results(iterations)]


with mirrored.scope():
    model = build_model("mlp")
model.compile("sgd", loss)
print("compiled outside:", outside := count_steps(model))
with mirrored.scope():
    model.compile("sgd", loss)
print("compiled inside: ", inside := count_steps(model))
assert (outside, inside) == ([16], [4, 4, 4, 4])

# %% [markdown]
# Outside, there is one plain counter, and all four replicas add 1 to it in every step. Nothing fails, but every learning-rate schedule runs four times too fast.
#
# Other optimizers keep an array or two for each weight, their *slots*. Are they as quiet?

# %%
momentum = keras.optimizers.SGD(0.1, momentum=0.9)
optimizers = {"sgd": "sgd", "momentum": momentum, "rmsprop": "rmsprop", "adam": "adam"}
for (name, optimizer), slots in zip(optimizers.items(), (0, 1, 1, 2)):
    with mirrored.scope():
        model = build_model("mlp")
    model.compile(optimizer, loss)  # outside
    try:
        said = f"trains, and counts {count_steps(model)}"
    except RuntimeError as error:
        words = re.search("Mixing different tf.distribute.Strategy", str(error))
        said = f"RuntimeError: {words[0]}"
    print(f"{name:<9}slots: {slots}  {said}")

# %% [markdown]
# They aren't: the strategy notices that the slots were made elsewhere. So the optimizer without slots is the one that fools you. Everything that makes variables belongs inside: the model, the optimizer, the metrics, and so `compile`. `fit`, `evaluate` and `predict` can go outside.
#
# ### The right call in the wrong context
#
# In a scope, but not inside `run`, there is no replica, so there is no replica context to ask for an `all_reduce`.


# %%
def add_up_outside():
    with mirrored.scope():
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0))


def reduce_inside():
    return mirrored.run(lambda: mirrored.reduce("SUM", tf.constant(1.0), axis=None))


for mistake in (add_up_outside, reduce_inside):
    try:
        mistake()
    except (AttributeError, RuntimeError) as error:
        print(f"{mistake.__name__}: {type(error).__name__}:", textwrap.fill(str(error), 96))

# %% [markdown]
# In the first, `get_replica_context()` returned None. The second is its mirror image: `strategy.reduce` inside `run`. Each context has its own call, and the fix is to use that one, as in the sections above. (`merge_call`, which the message names, stops all replicas while one function runs in the cross-replica context. Optimizers use it; you rarely need it.)
#
# ### MEAN over unequal counts
#
# Each replica returns the mean of its own examples, and `reduce("MEAN", …, axis=None)` averages the four means. Here six examples have the losses 0, 1, 4, 9, 16 and 25, and the strategy splits them as you saw above: 2, 2, 2 and 0.

# %%
squares = np.arange(16) ** 2.0  # example i has loss i squared
dataset = tf.data.Dataset.from_tensor_slices(squares[:6]).batch(8)
own = next(iter(mirrored.experimental_distribute_dataset(dataset)))
means = mirrored.run(tf.reduce_mean, args=(own,))
wrong = float(mirrored.reduce("MEAN", means, axis=None))
print("MEAN of the replicas' means:", wrong)
print("MEAN, axis=0:", float(mirrored.reduce("MEAN", own, axis=0)))
print("SUM, axis=0, / examples:", float(mirrored.reduce("SUM", own, axis=0)) / 6)
assert np.isnan(wrong)

# %% [markdown]
# The mean of nothing is nan, and one nan makes the mean of the four means nan.
#
# **Your turn.** Suppose that you have only the four means, and the number of examples behind each. What is the mean of all the examples?


# %%
def combine(means, counts):  # [0.5, 6.5, 20.5, nan] and [2, 2, 2, 0], say
    return ...


# %%
combine = turns.MEANS.take(combine)
own_means = [float(mean) for mean in mirrored.experimental_local_results(means)]
print("combined:", combine(own_means, [2, 2, 2, 0]), "· mean of the six:", squares[:6].mean())
replica_values("mean-of-means", count=6, values=squares)

# %% [markdown]
# If no share is empty, the mean of means is a number. It's wrong as a rule if the shares differ in size, because an example on a replica with few of them counts for more. The picture deals the six as evenly as possible, 2, 2, 1 and 1. Choose *replica by replica* under **Cut into pieces** to see 2, 2, 2 and 0.
#
# Play it, then click one of replica 0's or 1's numbers: it moves to the next replica. No number has changed, and the mean of all stays where it is, but the answer jumps. (Take a replica's only number away, and the answer is nan.) Now move **Values**: the two means agree if the examples divide by four.
#
# The fix: reduce per-example losses with `axis=0`, or sum on each replica and divide by the global number of examples once.
#
# ## What it costs
#
# Bytes: a mirrored variable is stored once for each replica. Seconds: each `run` starts one function on every replica and waits for them all; below, a `run` that does nothing. The first two have one replica each. Don't read much into their difference.

# %% tags=["nbval-ignore-output"]
from utils.measure import time_calls

beds = {"default": default, "one device": one, "mirrored, 4": mirrored}
seconds = {name: [] for name in beds}
runs = {name: tf.function(lambda s=s: s.run(lambda: tf.identity(0.0))) for name, s in beds.items()}
for name, strategy in beds.items():
    with strategy.scope():
        variables = build_model("mlp").trainable_variables
    parts = [strategy.experimental_local_results(v.value) for v in variables]
    print(f"{name:<12}{sum(array_bytes(part) for part in parts):>10,} bytes of weights")
for _ in range(5):  # in turn, so that other work on the machine slows all of them
    for name, run in runs.items():
        seconds[name].append(time_calls(run, repeats=20).best_seconds)
microseconds = {name: 1e6 * min(values) for name, values in seconds.items()}
figures.show(figures.bars(microseconds, unit="µs", title="One compiled run that does nothing"))
assert sum(array_bytes(part) for part in parts) == 4 * array_bytes(variables)

# %% [markdown]
# ## Old names, and today's
#
# Much of the code you find online was written for an older TensorFlow. *Stops* comes with the error's own words, and *old style* still works. `distlab modernize train.py` finds all of these and more than a hundred others in your own program; [docs/migrating.md](../docs/migrating.md) lists them.
#
# | old | in TensorFlow 2.21, Keras 3 | today |
# |---|---|---|
# | `strategy.experimental_run_v2(lambda a: a, args=(1,))` | stops: has no attribute 'experimental_run_v2' | `strategy.run(lambda a: a, args=(1,))` |
# | `strategy.experimental_distribute_datasets_from_function(lambda context: dataset.batch(2))` | old style | `strategy.distribute_datasets_from_function(lambda context: dataset.batch(2))` |
# | `strategy.experimental_make_numpy_dataset(x)` | stops: has no attribute 'experimental_make_numpy_dataset' | `tf.data.Dataset.from_tensor_slices(x)` |
# | `strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(tf.constant, args=(1.0,)))` | stops: missing 1 required positional argument: 'axis' | `strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(tf.constant, args=(1.0,)), axis=None)` |
# | `tf.distribute.experimental.MultiWorkerMirroredStrategy` | old style | `tf.distribute.MultiWorkerMirroredStrategy` |
# | `tf.distribute.experimental.ParameterServerStrategy` | old style | `tf.distribute.ParameterServerStrategy` |
# | `tf.distribute.experimental.TPUStrategy` | old style | `tf.distribute.TPUStrategy` |
# | `tf.distribute.experimental.CollectiveCommunication.RING` | old style | `tf.distribute.experimental.CommunicationImplementation.RING` |
# | `metric.reset_states()` | stops: object has no attribute 'reset_states' | `metric.reset_state()` |
# | `keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.NONE)` | old style | `keras.losses.MeanSquaredError(reduction="none")` |
# | `keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.AUTO)` | stops: Invalid value for argument `reduction` | `keras.losses.MeanSquaredError()` |
# | `keras.optimizers.legacy.SGD(0.1)` | stops: `keras.optimizers.legacy` is not supported in Keras 3 | `keras.optimizers.SGD(0.1)` |
# | `tf.estimator.RunConfig()` | stops: module 'tensorflow' has no attribute 'estimator' | `model.fit(x, y, verbose=0)` |
# | `keras.callbacks.experimental.BackupAndRestore("backup")` | stops: has no attribute 'experimental' | `keras.callbacks.BackupAndRestore("backup")` |
# | `model.save("folder")` | stops: Invalid filepath extension for saving | `model.save("model.keras")` |
#
# ## Cheat sheet
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
# You bring `build_model`, `dataset` and `replica_step`. A whole program with scope, run and reduce in their places: [mirrored_custom_loop.py](../examples/mirrored_custom_loop.py).
#
# **Recap**
#
# - One variable in the scope is four, one on each device.
# - `run` gives a result per replica; `reduce` adds them up, `gather` lines them up.
# - SUM and MEAN keep copies equal, NONE lets them drift, ON_READ adds them up when you read.
# - Our own reduction counted the bytes: one set from each replica.
# - Default, one-device and mirrored gave equal weights, to 1e-9.
#
# ## Further reading
#
# - TensorFlow's guide, [Distributed training with TensorFlow](https://www.tensorflow.org/guide/distributed_training)
# - The API pages [tf.distribute.Strategy](https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy), [ReplicaContext](https://www.tensorflow.org/api_docs/python/tf/distribute/ReplicaContext) and [StrategyExtended](https://www.tensorflow.org/api_docs/python/tf/distribute/StrategyExtended) (the class behind a strategy, and where your own would begin; replacing the reduction is usually enough)
# - The API pages [tf.VariableAggregation](https://www.tensorflow.org/api_docs/python/tf/VariableAggregation) and [tf.VariableSynchronization](https://www.tensorflow.org/api_docs/python/tf/VariableSynchronization)
#
# ## The lab
#
# You practice this in [lab 02, the strategy API](../labs/lab02-strategy-api.ipynb): a variable on every replica, the spread of unequal shares, predictions in order, a meter.
