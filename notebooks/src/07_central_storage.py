# %% [markdown] shows="CentralStorageStrategy: where variables live and what each step copies, next to MirroredStrategy"
# # Central storage
#
# Mirroring keeps a full set of weights and optimizer state on every GPU. What if that doesn't fit? The oldest answer is to keep one copy in the memory of the computer that the GPUs sit in, the *host*: it sends the weights out to the GPUs and collects their gradients. You may never train this way, but it's simple enough to check every byte. Here you audit what a strategy really sends, find traffic that nobody needs, and catch a metric that lies. The same audit works on other strategies.
#
# **Time:** 75 minutes · **Prerequisites:** [what a strategy does](02-strategy-api.ipynb) and [custom training loop](04-custom-training-loop.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Say where the weights and the optimizer's state live under central storage, and where under mirroring.
# - Count the bytes that cross between devices in one step, on paper and on TensorFlow's own graph.
# - Choose between the two, given the number of parameters, the optimizer and the number of replicas.
# - Fix a metric that is wrong under central storage and right under mirroring.

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

# %% [markdown]
# ## One store, several readers
#
# `MirroredStrategy` keeps a copy of all variables on every replica. `CentralStorageStrategy` keeps one set, usually in the host's memory. In each step it sends the variables' values to the replicas and collects their gradients. Like mirroring, it's synchronous and works on one machine.
#
# Here the logical device CPU:0 plays the host, and CPU:1, CPU:2 and CPU:3 play three GPUs. Both strategies get the same three replicas. `ReductionToOneDevice` means that one replica adds up all gradients. We need it in CPU notebooks ([lesson 06](06-all-reduce.ipynb) shows why); on GPUs, leave that argument out.

# %%
from distlab import figures

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
# For each weight, Adam also keeps two moving averages. Such extra variables of an optimizer are called *slots*. That makes three equal arrays.
#
# **Predict.** Call the size of all weights together V. How many times V do the three accelerators (CPU:1 to CPU:3) hold together under `mirrored`, slots included?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Held by the three accelerators", 0, 20, "V")  # or a number
my_guess


# %%
from distlab.exercises.predict import show_guess
from utils.measure import array_bytes
from utils.models import build_model


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
# A mirrored variable has a part on each of CPU:1, CPU:2 and CPU:3: three arrays on three devices. (If you said 3, that's one device.) Central storage makes an `AggregatingVariable`: one variable, on CPU:0. Between steps the accelerators hold none of these arrays. The next picture shows the same in bytes:

# %%
groups = {
    name: {device: bytes_on[device] / 1e6 for device in devices} for name, bytes_on in held.items()
}
figures.show(figures.grouped_bars(groups, unit="MB", title="Variables and slots on each device"))

# %% [markdown]
# ## One step by hand
#
# What has to be sent in one step? To see it, we train a linear classifier without any strategy. Its weight matrix, the kernel, is on the host, and three devices compute.
#
# **Predict.** The kernel has 784 × 10 weights of 8 bytes (float64, so that we can compare results to many digits). So V is 62,720 bytes. How many bytes travel between devices in one step? Images and labels don't count.

# %%
my_guess = guess_number("Bytes in one step", 1e4, 1e7, "bytes", log=True)
my_guess

# %%
from utils.data import load

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
        values = send(kernel.read_value(), device)  # the host sends the weights
        with tf.device(device), tf.GradientTape() as tape:
            tape.watch(values)
            loss = find_loss(values, own_images, own_labels)
        gradients.append(send(tape.gradient(loss, values), HOST))  # and gets a gradient back
    with tf.device(HOST):
        kernel.assign_sub(0.1 * tf.add_n(gradients))


with tf.device(HOST):
    by_hand = tf.Variable(tf.zeros([784, 10], tf.float64))
step_by_hand(by_hand, images[0], labels[0])
show_guess(my_guess, sum(sent.values()), unit=" bytes")

# %% [markdown]
# Each replica receives V and sends V back: 2 × 3 × V. (If you said 188,160, you counted one way.) All of it passes through the host, so every replica you add gives the host more to send and receive.
#
# `CentralStorageStrategy` does the same. Reading a variable in a replica sends its value there. When all replicas change a variable with `aggregation=SUM`, the strategy adds up their changes and applies the sum once. (We call `run` without `tf.function` here, so that every step is easy to follow.)

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
# Doing it by hand shows what *has* to be sent. What does the strategy send? A compiled step is a graph, and each operation in it has a device. A tensor that is made on one device and used on another has to be sent, once for each device that uses it. So we can count the bytes without running anything. `count_sent` starts at the graph's outputs and assignments and walks backwards, because what none of them needs is never computed. On the way it adds up the tensors that change devices. (A variable is read on the device where it lives.)


# %%
def count_sent(graph):
    """Return {(from, to): bytes} of the floating-point tensors that change devices."""
    home = {inner.op.name: outer.device for outer, inner in graph.captures}  # where variables live

    def place(op):
        reads = op.type == "ReadVariableOp"
        return (home[op.inputs[0].op.name] if reads else op.device)[-5:]

    # start from outputs and assignments, and follow the inputs backwards
    used, waiting = set(), [tensor.op for tensor in graph.outputs]
    waiting += [op for op in graph.get_operations() if op.type.startswith("Assign")]
    while waiting:
        op = waiting.pop()
        if op not in used:
            used.add(op)
            waiting += [tensor.op for tensor in op.inputs]

    # a set, because a tensor that one device uses twice is sent only once
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
# The graph agrees with the hand count: V out and V in for each of three replicas. Now a Keras model with Keras's Adam, under both strategies. If nothing else is sent, central storage should need 6 V again. (`without_autotune` switches off a background thread of tf.data that this notebook might have to wait for. Keep it on in your own pipelines.)
#
# **Your turn.** Under mirroring here, one of the R replicas adds up the gradients and sends the sum back. How many V travel in a step?


# %%
def sent_by_mirroring(replicas):  # in V
    return ...


# %%
from distlab.turns import lesson07 as turns

sent_by_mirroring = turns.MIRRORED.take(sent_by_mirroring)


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
from utils.data.batches import epoch_order, without_autotune

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
print("mirrored, by your count:", sent_by_mirroring(3), "V")

# %% [markdown]
# Central storage sends 8 V, not 6. Where do the other two come from? Look at the row and the column of CPU:1, which show 2 instead of 1. The Keras optimizer asks for the sum of the gradients *in the replicas*, as it must under mirroring. So the host sends the sum to CPU:1, and CPU:1 sends it back for the update. That's 2 V for nothing, whatever the number of replicas.
#
# Mirroring sends 4 V here: two replicas send their gradients to the first, and the sum goes back to both. The weights never travel.
#
# The last number in each printed line is for a forward pass alone, as in evaluation. Central storage sends V to each replica even then; mirroring sends nothing.
#
# ## The same weights
#
# Both strategies made the same eight steps. Are the weights the same? And what about `train` of `utils`, under either strategy?

# %%
from utils.training import train

job = {"model": "mlp", "optimizer": "adam", "dtype": "float64", "replicas": 3, "epochs": 1}
reports = {n: train(strategy=n, max_examples=384, global_batch_size=48, **job) for n in strategies}
for name, report in reports.items():
    triples = zip(weights[name], report.weights, weights["mirrored"], strict=True)
    for ours, theirs, others in triples:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
        np.testing.assert_allclose(ours, others, rtol=0, atol=1e-9)
print("central storage, mirrored, and train under both: equal weights to 1e-9")

# %% [markdown]
# ## Memory against bytes sent
#
# With R replicas, central storage sends 2 (R + 1) V per step, and mirroring that is reduced on one device sends 2 (R - 1) V: 8 V and 4 V for our three. The explorer uses these formulas, and the assertions compare them with what we counted. It also shows mirroring with the ring of [lesson 06](06-all-reduce.ipynb).

# %%
from distlab.explorables.storage import held_bytes, sent_bytes, storage_explorer

for name in strategies:
    assert sum(counts[name].values()) == sent_bytes(name, V, replicas=3)
    computed = held_bytes(name, V // 2, slots=2)  # V is in float64, this model in float32
    assert abs(held[name][HOST] - computed["host"]) < 16  # all but Adam's two scalars
    assert abs(held[name]["CPU:1"] - computed["each accelerator"]) < 16
billions = 16 * 2**30 / held_bytes("mirrored", 4e9, slots=2)["each accelerator"]
assert round(billions, 1) == 1.4  # billion parameters with Adam fill 16 GiB
storage_explorer()

# %% [markdown]
# Three things to try:
#
# 1. Add replicas. In a ring no replica ever sends as much as 2 V. The host sends more with every replica you add.
# 2. Change from Adam to SGD. Mirroring then needs a third of the memory, so central storage has less to save.
# 3. Find a model that fits with central storage only. With Adam, variables and slots under mirroring outgrow an accelerator of 16 GiB (16,384 MiB) at about 1.4 billion parameters. During a step, when gradients need memory too, it happens sooner, as "What it costs" shows.
#
# So central storage never wins in bytes sent. It can win when three things hold: variables and slots don't fit on an accelerator but do fit in the host, there are few replicas, and the link to the host is fast. Large models today are mostly *sharded* instead: each accelerator keeps a part of the weights and slots. (Search for ZeRO or FSDP; [lesson 15](15-model-parallelism.ipynb) counts what it saves.)
#
# ## The mistake: trusting Keras's metrics under central storage
#
# Each replica feeds 1 to a `keras.metrics.Mean` in step 1, 2 in step 2, and so on up to 5. The true mean is 3.
#
# **Predict.** What does the metric report under `central`?

# %%
my_guess = guess_number("The metric's mean", 0, 10, step=0.1)
my_guess


# %%
def follow(strategy, metric, steps):
    """Feed `metric` the step's number from each replica; return its [step, (mean, total)]."""
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
# A mean of 1.479 instead of 3, and no error. Under central storage the new total is `3 × (old total) + 3 × step`. Each replica runs `total.assign(total + value)`, and the strategy adds up what the three replicas assign, old total and all. Under mirroring the same variable has `synchronization=ON_READ`: each replica has its own total, and they're added up only when someone reads it. So nothing goes wrong.
#
# **Your turn.** Suppose that you can't change the strategy, and `assign` is all you have. Three replicas assign at once, and what they assign is added up. What should each of them assign, so that the total gains the three values and nothing else?


# %%
def assigned(total, value):
    return ...


# %%
assigned = turns.ASSIGNED.take(assigned)
with central.scope():
    total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
for step in range(1, 6):  # three replicas, each with the value `step`
    central.run(lambda s=float(step): total.assign(assigned(total.read_value(), s)))
print("total after 1, 2, 3, 4 and 5:", total.numpy(), "· three times their sum:", 3 * 15)

# %%
totals = seen["central-storage"][:10, 1]
assert (totals[1:] == 3 * totals[:-1] + 3 * np.arange(2, 11)).all()
series = {name: (np.arange(1, 91), values[:, 0]) for name, values in seen.items()}
last = int(np.flatnonzero(np.isfinite(seen["central-storage"][:, 0]))[-1])  # row 0 is step 1
mark = {f"nan from step {last + 2}": (last + 1, seen["central-storage"][last, 0])}
title = "The mean that each strategy reports after being fed 1, 2, 3, …"
figures.show(figures.lines(series, x_label="step", y_label="mean", title=title, marks=mark))
assert last + 2 == 81

# %% [markdown]
# The total triples in every step, so what was added in step 1 soon counts 3, 9, 27, … times, and the early steps drown out the rest. At step 81, where the line ends, total and count have overflowed float32, and the mean is nan (not a number).
#
# You don't have to write such a metric yourself to be caught: `fit` keeps its loss in one. Under central storage it trains correctly and reports a wrong loss. The next cell shows it: the weights are equal, the reported losses are not.

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
# A third of the old total works for three replicas. Better is to add in place. With `assign_add`, each replica passes only what is new, and adding that up is right under both strategies. `utils.training` uses metrics of this kind (`ExampleMean`), so the losses that `train` reported above agree too.


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
# First, the measured time of one step. On logical devices nothing crosses a wire: all of them share the memory of one process. So the times show the work that each strategy does, and the bytes show what a wire would have to carry on top. Central storage may even be faster here, since it computes one update where mirroring computes three.
#
# Then the memory: how large a model fits on an accelerator of 16 GiB with Adam, if we leave out the activations (the outputs of the layers, kept for the backward pass)? During a step a mirrored replica holds weights, two slots and gradients, 4 V. Under central storage it holds the weights it was sent and its gradients, 2 V.

# %% tags=["nbval-ignore-output"]
from utils.measure import Stopwatch

first_batches = {}
for name, strategy in strategies.items():
    distributed = strategy.experimental_distribute_dataset(batches)
    first_batches[name] = next(iter(distributed))
times = {name: [] for name in strategies}
for _ in range(33):  # alternating, so that other programs slow both alike
    for name in strategies:
        with Stopwatch() as watch:
            steps[name](first_batches[name])
        times[name].append(watch.seconds)
milliseconds = {name: 1e3 * np.median(seconds[3:]) for name, seconds in times.items()}
figures.show(figures.bars(milliseconds, unit="ms", title="One step on two shared cores"))

# %%
from utils.measure import format_bytes

for name, total in counts.items():
    print(f"{name:<16} {format_bytes(sum(total.values()))} sent in a step of this float64 model")
arrays = {"mirrored": 1 + 2 + 1, "central-storage": 1 + 1}  # weights, slots, gradients
for name, count in arrays.items():
    millions = 16 * 2**30 / (4 * count) / 1e6
    print(f"{name:<16} at most {millions:,.0f} million float32 parameters")

# %% [markdown]
# ## Where it stands in TensorFlow
#
# The strategy is experimental: TensorFlow promises neither to keep it nor to leave it as it is. Inside, it uses code that was written for *parameter servers*, processes that do nothing but store variables for others:

# %%
print("tf.distribute has it:", hasattr(tf.distribute, "CentralStorageStrategy"))
print("its working part is the", type(central.extended).__name__)

# %% [markdown]
# [Lesson 11](11-parameter-server.ipynb) takes the same idea across machines: several such servers, each with some of the variables, and workers that don't have to wait for one another. What you counted here, weights out and gradients back, is what each of those workers pays in every step.
#
# **Recap**
#
# - **Where:** under central storage everything is on the host; under mirroring each accelerator has a full set, 9 V on all three.
# - **How much:** central storage sent 6 V by hand and 8 V with a Keras optimizer; mirroring sent 4 V.
# - **Which:** central storage saves memory on the accelerators and never saves bytes sent.
# - **The metric:** `assign(total + value)` counted old totals three times; `assign_add` fixed it.
#
# ## Cheat sheet
#
# ```python
# import keras, tensorflow as tf
# strategy = tf.distribute.experimental.CentralStorageStrategy()  # all GPUs, variables on the CPU
# with strategy.scope():  # variables go to the host
#     model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])
#     optimizer = keras.optimizers.Adam()
#     optimizer.build(model.trainable_variables)
#     loss_sum = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)  # instead of a Keras metric
# strategy.run(lambda: loss_sum.assign_add(1.0))  # only what is new is added up
# # sent per step, R replicas, V bytes of weights, Keras optimizer: 2 (R + 1) V, all through the host
# # worth it if (1 + slots) V (slots: Adam 2, plain SGD 0) fits the host but not a GPU, and R is small
# ```
#
# A whole training loop: [mirrored_custom_loop.py](../examples/mirrored_custom_loop.py). To run it with central storage, change its strategy, and use `AddingMean` from above instead of its Keras metrics.
#
# ## On a real GPU
#
# `distlab train --strategy central-storage --device gpu` trains on the GPUs of one machine, with the variables on its CPU.
# Look at its images/s, and compare with `--strategy mirrored`.
# Central storage pays for the way through the host and for an update on its CPU, mirroring for an all-reduce and an update on each GPU.
#
# ## Further reading
#
# - TensorFlow's guide, [Distributed training: CentralStorageStrategy](https://www.tensorflow.org/guide/distributed_training#centralstoragestrategy)
# - The API page [tf.distribute.experimental.CentralStorageStrategy](https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/CentralStorageStrategy)
# - Li and others, [Scaling distributed machine learning with the parameter server](https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu), OSDI 2014
# - Ren and others, [ZeRO-Offload](https://arxiv.org/abs/2101.06840): the optimizer's state in the host's memory, for large models
#
# ## The lab
#
# You practice placing variables in [lab 02, the strategy API](../labs/lab02-strategy-api.ipynb). In [lab 10, parameter servers](../labs/lab10-parameter-server.ipynb), processes of their own keep the variables, and workers in other processes read and update them.
