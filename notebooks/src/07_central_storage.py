# %% [markdown] shows="CentralStorageStrategy: where variables live and what each step copies, next to MirroredStrategy"
# # Central storage
#
# Mirroring keeps a full set of weights and optimizer state on every GPU. What if that doesn't fit? The oldest answer is to keep one copy in the host's memory and send values out and gradients in. You may never train this way, but it makes a fine suspect. In 40 minutes you'll audit what a strategy really sends, find traffic that nobody needs, and catch a metric that lies. The same audit works on any strategy.
#
# **Time:** 40 minutes · **Builds on:** [what a strategy does](02-strategy-api.ipynb) and [custom training loop](04-custom-training-loop.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Say where each variable and each optimizer slot lives under central storage, and where under mirroring.
# - Count the bytes that cross between devices in one step, on paper and on TensorFlow's own graph.
# - Choose between the two from the parameters, the optimizer and the number of replicas.
# - Repair a metric whose total central storage multiplies.

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
from collections import Counter

import numpy as np

from distlab import figures
from utils.data import load
from utils.data.batches import epoch_order, without_autotune
from distlab.exercises.predict import show_guess
from utils.measure import Stopwatch, array_bytes, format_bytes
from utils.models import build_model
from utils.training import train
from distlab.widgets.storage import held_bytes, sent_bytes, storage_explorer

# %% [markdown]
# ## One store, several readers
#
# `MirroredStrategy` keeps a copy of all variables on every replica. `CentralStorageStrategy` keeps one set, usually in the host's memory, and sends values out and gradients in. Like mirroring, it's synchronous and works on one machine.
#
# Here the logical device CPU:0 plays the host, and CPU:1, CPU:2 and CPU:3 play three GPUs. Both strategies get the same three replicas. `ReductionToOneDevice` is there for CPU notebooks; on GPUs, leave that argument out.

# %%
HOST, ACCELERATORS = "CPU:0", ["CPU:1", "CPU:2", "CPU:3"]
central = tf.distribute.experimental.CentralStorageStrategy(ACCELERATORS, parameter_device=HOST)
mirrored = tf.distribute.MirroredStrategy(
    ACCELERATORS, cross_device_ops=tf.distribute.ReductionToOneDevice()
)
strategies = {"central-storage": central, "mirrored": mirrored}
print([strategy.num_replicas_in_sync for strategy in strategies.values()], "replicas")
figures.show(figures.central_storage_devices(3, device="CPU", first=1, store="CPU:0, the host"))

# %% [markdown]
# ## Where the variables live
#
# Next to each weight, Adam keeps two moving averages, its *slots*. That makes three arrays of the same size.
#
# **Predict.** Call the size of all weights V. How many V do the three accelerators hold together under `mirrored`, slots included?

# %%
my_guess = None  # a multiple of V


# %%
def build(strategy, dtype="float32"):
    """Return the MLP and its Adam, made in the scope of `strategy`."""
    with strategy.scope():
        model = build_model("mlp", dtype=dtype)
        optimizer = keras.optimizers.Adam(0.001)
        optimizer.build(model.trainable_variables)
    return model, optimizer


held = {}
for name, strategy in strategies.items():
    model, optimizer = build(strategy)
    held[name] = Counter()
    for variable in model.trainable_variables + optimizer.variables:
        for part in strategy.experimental_local_results(variable.value):
            held[name][part.device[-5:]] += array_bytes([part])
    print(f"{name:<16}{type(variable.value).__name__:<20}", sorted(held[name]))

V = array_bytes(model.trainable_variables)
show_guess(my_guess, round(sum(held["mirrored"].values()) / V, 2), unit=" V")

# %% [markdown]
# A mirrored variable has a part on each of CPU:1, CPU:2 and CPU:3. Central storage makes an `AggregatingVariable`: one variable, on CPU:0. Between steps the accelerators hold none of these arrays. In bytes:

# %%
groups = {
    name: {device: bytes_on[device] / 1e6 for device in devices} for name, bytes_on in held.items()
}
figures.show(figures.grouped_bars(groups, unit="MB", title="Variables and slots on each device"))

# %% [markdown]
# ## One step by hand
#
# To see what must be sent, train a linear classifier without any strategy: one kernel on the host, three devices that compute.
#
# **Predict.** The kernel has 784 × 10 weights of 8 bytes: V is 62,720 bytes. How many bytes cross between devices in one step?

# %%
my_guess = None  # your number of bytes

# %%
split = load("fashion_mnist").train.take(480)
images = split.images.reshape(10, 3, 16, 784) / 255.0  # [step, replica, 16, pixels]
labels = split.labels.reshape(10, 3, 16)
sent = Counter()


def send(tensor, device):
    """Return `tensor` on `device`, and count its bytes."""
    sent[tensor.device[-5:], device] += array_bytes([tensor])
    with tf.device(device):
        return tf.identity(tensor)


def find_loss(kernel, images, labels):
    """Return this replica's share of the mean loss of 48 examples."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, images @ kernel)
    return tf.reduce_sum(losses) / 48


# %%
def step_by_hand(kernel, images, labels):
    gradients = []
    for device, own_images, own_labels in zip(ACCELERATORS, images, labels, strict=True):
        values = send(kernel.read_value(), device)  # out
        with tf.device(device), tf.GradientTape() as tape:
            tape.watch(values)
            loss = find_loss(values, own_images, own_labels)
        gradients.append(send(tape.gradient(loss, values), HOST))  # in
    with tf.device(HOST):
        kernel.assign_sub(0.1 * tf.add_n(gradients))


with tf.device(HOST):
    by_hand = tf.Variable(tf.zeros([784, 10], tf.float64))
step_by_hand(by_hand, images[0], labels[0])
show_guess(my_guess, sum(sent.values()), unit=" bytes")

# %% [markdown]
# Each replica receives V and sends V back: 2 × 3 × V. All of it passes through the host, which is why the number of replicas matters so much below.
#
# `CentralStorageStrategy` does the same. Reading a variable in a replica sends its value there, and a variable with `aggregation=SUM` adds up what the replicas subtract. (We call `run` eagerly here, so that every step is easy to follow.)

# %%
with central.scope():
    kernel = tf.Variable(tf.zeros([784, 10], tf.float64), aggregation=tf.VariableAggregation.SUM)


def replica_step(images, labels):
    with tf.GradientTape() as tape:
        loss = find_loss(kernel, images, labels)
    kernel.assign_sub(0.1 * tape.gradient(loss, kernel))


# %%
def split_step(step):
    """Return images and labels of one step, a part for each replica of `central`."""

    def split(array):
        return central.experimental_distribute_values_from_function(
            lambda context: tf.constant(array[step, context.replica_id_in_sync_group])
        )

    return split(images), split(labels)


for step in range(10):
    central.run(replica_step, args=split_step(step))
    if step > 0:
        step_by_hand(by_hand, images[step], labels[step])
np.testing.assert_allclose(kernel.numpy(), by_hand.numpy(), rtol=0, atol=1e-12)
print("10 steps: equal weights; kernel on", kernel.device[-5:])

# %% [markdown]
# ## What TensorFlow really sends
#
# A compiled step is a graph, and its operations have devices. A tensor that is made on one device and used on another has to be sent, once for each device that uses it. So we can count the bytes without running anything: walk back from every assignment and output, since what none of them needs is never computed, and add up the tensors that change devices. A variable is read on the device where it lives.


# %%
def count_sent(graph):
    """Return {(from, to): bytes} of the floating-point tensors that change devices."""
    home = {inner.op.name: outer.device for outer, inner in graph.captures}  # of each variable

    def place(op):
        reads = op.type == "ReadVariableOp"
        return (home[op.inputs[0].op.name] if reads else op.device)[-5:]

    # walk back from what the step leaves behind
    used, waiting = set(), [tensor.op for tensor in graph.outputs]
    waiting += [op for op in graph.get_operations() if op.type.startswith("Assign")]
    while waiting:
        op = waiting.pop()
        if op not in used:
            used.add(op)
            waiting += [tensor.op for tensor in op.inputs]

    # a set: a tensor that a device uses twice is sent once
    edges = {(t.ref(), place(t.op), place(op)) for op in used for t in op.inputs}
    total = Counter()
    for tensor, start, end in edges:
        if start and end and start != end and tensor.deref().dtype.is_floating:
            total[start, end] += array_bytes([tensor.deref()])
    return total


# %%
def as_picture(total, size, title):
    table = np.array([[total[start, end] / size for end in devices] for start in devices])
    return figures.matrix(
        table, [f"from {d}" for d in devices], [f"to {d}" for d in devices], title=title
    )


compiled = tf.function(lambda *batch: central.run(replica_step, args=batch))
total = count_sent(compiled.get_concrete_function(*split_step(0)).graph)
assert sum(total.values()) == 6 * kernel.dtype.size * 7840
figures.show(as_picture(total, kernel.dtype.size * 7840, "Sent in one step, in V: SGD by hand"))

# %% [markdown]
# The graph agrees with the hand count: V out and V in for each of three replicas. Now for a real model with Keras's Adam, under both strategies. (`without_autotune` only spares this notebook a wait for tf.data's tuning thread. Your own pipelines should keep that thread.)


# %%
def make_step(strategy, model, optimizer):
    """Return a compiled training step on a global batch of 48 (images, labels)."""

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)  # [per_replica_batch, 10]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=48)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    return tf.function(lambda batch: strategy.run(replica_step, args=batch))


# %%
split = load("fashion_mnist").train.take(384)
order = epoch_order(384, seed=0, epoch=0)
images = split.images[order][..., np.newaxis] / 255.0  # float64 [384, 28, 28, 1]
examples = tf.data.Dataset.from_tensor_slices((images, split.labels[order]))
batches = without_autotune(examples.batch(48))  # 8 global batches
weights, steps, counts, reads = {}, {}, {}, {}
for name, strategy in strategies.items():
    model, optimizer = build(strategy, "float64")
    steps[name] = make_step(strategy, model, optimizer)
    for batch in strategy.experimental_distribute_dataset(batches):
        steps[name](batch)
    counts[name] = count_sent(steps[name].get_concrete_function(batch).graph)
    forward = tf.function(lambda b, s=strategy, m=model: s.run(lambda x, *_: m(x), args=b))
    reads[name] = count_sent(forward.get_concrete_function(batch).graph)
    weights[name] = [np.asarray(variable) for variable in model.trainable_variables]
V = array_bytes(model.trainable_variables)

# %%
figures.show(as_picture(counts["central-storage"], V, "Central storage with Keras: sent, in V"))
figures.show(as_picture(counts["mirrored"], V, "Mirrored, reduced on one device: sent, in V"))
for name in strategies:
    step, forward = (sum(total.values()) / V for total in (counts[name], reads[name]))
    print(f"{name:<16} sends {step:.0f} V in a training step, {forward:.0f} V in a forward pass")

# %% [markdown]
# Central storage sends 8 V, not 6. Where do the other two come from? The Keras optimizer asks for the sum *in the replicas*, as it must under mirroring. So the host sends the sum to CPU:1, and CPU:1 sends it back for the update. That's two V for nothing, whatever the number of replicas.
#
# Mirroring sends 4 V here: two replicas send their gradients to the first, and the sum comes back. The weights never travel.
#
# Reading alone has its price as well. In a forward pass, as in evaluation, central storage sends V to each replica; mirroring sends nothing.
#
# ## The same weights
#
# Both strategies made the same eight steps, and so does `utils.training.train` under either one.

# %%
options = {"model": "mlp", "optimizer": "adam", "dtype": "float64", "replicas": 3, "epochs": 1}
reports = {n: train(strategy=n, limit=384, global_batch_size=48, **options) for n in strategies}
for name, report in reports.items():
    triples = zip(weights[name], report.weights, weights["mirrored"], strict=True)
    for ours, theirs, others in triples:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
        np.testing.assert_allclose(ours, others, rtol=0, atol=1e-9)
print("central storage, mirrored, and train under both: equal weights to 1e-9")

# %% [markdown]
# ## Memory against bytes sent
#
# The counts fit two formulas with R replicas: 2 (R + 1) V for central storage, 2 (R - 1) V for mirroring reduced on one device. The explorer computes with both, and the assertions compare them with what we measured.

# %%
for name in strategies:
    assert sum(counts[name].values()) == sent_bytes(name, V, replicas=3)
    computed = held_bytes(name, V // 2, slots=2)  # float32: half the bytes
    assert abs(held[name][HOST] - computed["host"]) < 16  # Adam's two scalars
    assert abs(held[name]["CPU:1"] - computed["each accelerator"]) < 16
billions = 16 * 2**30 / held_bytes("mirrored", 4e9, slots=2)["each accelerator"]
assert round(billions, 1) == 1.4  # parameters, for an accelerator of 16 GiB
storage_explorer()

# %% [markdown]
# Three things to try:
#
# 1. Add replicas. In a ring no replica ever sends 2 V; the host sends more with every replica you add.
# 2. Go from Adam to SGD. Mirroring needs a third of the memory, so central storage has less to save.
# 3. Find a model that fits one way only. With Adam, mirroring passes an accelerator's 16 GiB (16,384 MiB) between steps at about 1.4 billion parameters. During a step it's sooner, as "What it costs" shows.
#
# So central storage never wins in bytes sent. It can win when three things hold: variables and slots don't fit on an accelerator but do fit in the host, there are few replicas, and the link to the host is fast. Large models today are mostly *sharded* over the accelerators instead (ZeRO, FSDP): [lesson 15](15-model-parallelism.ipynb) does it.
#
# ## The mistake: trusting Keras's metrics under central storage
#
# Each replica feeds 1 to a `keras.metrics.Mean` in step 1, 2 in step 2, and so on up to 5. The true mean is 3.
#
# **Predict.** What does the metric report under `central`?

# %%
my_guess = None  # your number


# %%
def follow(strategy, metric, steps):
    """Tell `metric` the number of the step, from each replica; return [step, (mean, total)]."""
    seen = []
    for step in range(1, steps + 1):
        strategy.run(lambda s=step: metric.update_state(tf.constant(float(s))))
        total = tf.convert_to_tensor(metric.total.value)
        seen.append((float(metric.result()), float(total)))
    return np.array(seen)


# %%
seen = {}
for name, strategy in strategies.items():
    with strategy.scope():
        metric = keras.metrics.Mean()
    seen[name] = follow(strategy, metric, steps=90)
    print(f"{name:<16} totals {seen[name][:5, 1].tolist()}")
show_guess(my_guess, seen["central-storage"][4, 0])

# %% [markdown]
# There is no error. Under central storage the total is `3 × (old total) + 3 × step`. The metric writes `total.assign(total + value)` on each replica, and the strategy adds up what the three replicas assign, old total and all. Under mirroring the same variable is made `ON_READ`: each replica has its own, and nothing goes wrong.

# %%
totals = seen["central-storage"][:10, 1]
assert (totals[1:] == 3 * totals[:-1] + 3 * np.arange(2, 11)).all()
series = {name: (np.arange(1, 91), values[:, 0]) for name, values in seen.items()}
last = int(np.flatnonzero(np.isfinite(seen["central-storage"][:, 0]))[-1])  # 0 is step 1
mark = {f"nan from step {last + 2}": (last + 1, seen["central-storage"][last, 0])}
title = "The mean that each strategy reports after being fed 1, 2, 3, …"
figures.show(figures.lines(series, x_label="step", y_label="mean", title=title, marks=mark))
assert last + 2 == 81

# %% [markdown]
# The total triples in every step, so step 1 soon counts 3, 9, 27, … times, and the early steps drown out the rest. At step 81, where the line ends, total and count have overflowed float32 and the mean is nan.
#
# `fit` keeps its loss in such a metric. Under central storage it trains correctly and reports a wrong loss: below, the weights are equal and the reported losses are not.

# %% tags=["nbval-ignore-output"]
losses, fitted = {}, {}
for name, strategy in strategies.items():
    with strategy.scope():
        model = build_model("mlp", dtype="float64")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05), loss)
    history = model.fit(batches, shuffle=False, verbose=0)
    losses[name], fitted[name] = history.history["loss"][0], model.get_weights()
    print(f"{name:<16} fit reports a loss of {losses[name]:.4f}")
for ours, theirs in zip(*fitted.values(), strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
assert abs(losses["central-storage"] - losses["mirrored"]) > 1e-2

# %% [markdown]
# The fix is to add in place. `assign_add` passes the strategy only what is new, and the sum of that is right under both strategies. `utils.training` measures with metrics of this kind (`ExampleMean`), so the losses that `train` reported above agree too.


# %%
class AddingMean(keras.metrics.Metric):
    def __init__(self, name="adding_mean"):
        super().__init__(name=name)
        self.total = self.add_weight(initializer="zeros", name="total")
        self.count = self.add_weight(initializer="zeros", name="count")

    def update_state(self, value):
        self.total.value.assign_add(value)
        self.count.value.assign_add(tf.ones_like(value))

    def result(self):
        return self.total / self.count


# %%
for name, strategy in strategies.items():
    with strategy.scope():
        metric = AddingMean()
    means = follow(strategy, metric, steps=90)[:, 0]
    np.testing.assert_allclose(means, (np.arange(1, 91) + 1) / 2, rtol=1e-6)
    print(f"{name:<16} mean of 1 to 90: {means[-1]}")
np.testing.assert_allclose(reports["central-storage"].loss, reports["mirrored"].loss, rtol=1e-6)
print("train reports the same loss under both strategies")

# %% [markdown]
# ## What it costs
#
# First, the measured time of one step. On logical devices nothing crosses a wire: a tensor changes hands inside one process. So the times show the strategies' own work, and the bytes show what a wire would have to carry. Central storage may even come out ahead here, since it computes one update where mirroring computes three.
#
# Then the memory: what fits on an accelerator of 16 GiB with Adam, leaving activations out. During a step a mirrored replica holds weights, two slots and gradients. Under central storage it holds the values it was sent, and its gradients.

# %% tags=["nbval-ignore-output"]
batch_of = lambda s: next(iter(s.experimental_distribute_dataset(batches)))  # noqa: E731
one_batch = {name: batch_of(strategy) for name, strategy in strategies.items()}
times = {name: [] for name in strategies}
for _ in range(33):  # in turn, so that other work on this machine meets both
    for name in strategies:
        with Stopwatch() as watch:
            steps[name](one_batch[name])
        times[name].append(watch.seconds)
milliseconds = {name: 1e3 * np.median(seconds[3:]) for name, seconds in times.items()}
figures.show(figures.bars(milliseconds, unit="ms", title="One step on two shared cores"))
assert min(milliseconds.values()) > 0

# %%
for name, total in counts.items():
    print(f"{name:<16} {format_bytes(sum(total.values()))} sent in a step of this float64 model")
arrays = {"mirrored": 1 + 2 + 1, "central-storage": 1 + 1}  # each of the size of the weights
for name, count in arrays.items():
    millions = 16 * 2**30 / (4 * count) / 1e6
    print(f"{name:<16} at most {millions:,.0f} million float32 parameters")

# %% [markdown]
# ## Where it stands in TensorFlow
#
# The strategy is experimental: TensorFlow promises neither to keep it nor to leave it as it is. Inside, it runs on a part that was written for parameter servers, with one store in the same process:

# %%
print("tf.distribute has it:", hasattr(tf.distribute, "CentralStorageStrategy"))
print("its working part is the", type(central.extended).__name__)

# %% [markdown]
# Parameter servers, in [lesson 11](11-parameter-server.ipynb), take the same idea across machines: several stores, each with some of the variables, and workers that don't have to wait for one another. What you counted here, values out and gradients in, is what each of those workers pays.
#
# What you have seen:
#
# - **Where:** everything on the host under central storage; a full set on each accelerator, 9 V in all, under mirroring.
# - **How much:** 6 V by hand and in the graph, 8 V with a Keras optimizer; 4 V under mirroring.
# - **Which:** central storage saves memory on the accelerators and never saves bytes sent.
# - **The metric:** `assign_add` in place of `assign(total + value)`.
#
# ## Take-away card
#
# ```python
# import keras, tensorflow as tf
# strategy = tf.distribute.experimental.CentralStorageStrategy()  # all GPUs, variables on the CPU
# with strategy.scope():  # variables go to the host
#     model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])
#     optimizer = keras.optimizers.Adam()
#     optimizer.build(model.trainable_variables)
#     loss_sum = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)  # no Keras metric
# strategy.run(lambda: loss_sum.assign_add(1.0))  # only what is new is added up
# # sent in a step, R replicas, V bytes of weights: 2 (R + 1) V, all through the host
# # worth it when (1 + slots) V does not fit on a GPU but fits in the host, and R is small
# ```
#
# A whole training loop, in which you change only the strategy: [mirrored_custom_loop.py](../examples/mirrored_custom_loop.py). Take the metric from above instead of its Keras metrics.
#
# ## Where it is described
#
# - TensorFlow's guide, [Distributed training: CentralStorageStrategy](https://www.tensorflow.org/guide/distributed_training#centralstoragestrategy)
# - The API page [tf.distribute.experimental.CentralStorageStrategy](https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/CentralStorageStrategy)
# - Li and others, [Scaling distributed machine learning with the parameter server](https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu), OSDI 2014
# - Ren and others, [ZeRO-Offload](https://arxiv.org/abs/2101.06840): optimizer state in the host's memory, done for large models
#
# ## The lab
#
# You practise placing variables in [lab 02, the strategy API](../labs/lab02-strategy-api.ipynb), and values out, gradients in across processes in [lab 10, parameter servers](../labs/lab10-parameter-server.ipynb).
