# %% [markdown] shows="What a training step sends, read off TensorFlow's graph: central storage, mirrored, hierarchical; what the graph hides of a ring and NCCL; buckets; published clusters"
# # What a step sends
#
# You add a GPU and the step gets slower. Maybe something travels that nobody needs, or it travels in too many small pieces. You don't have to guess. TensorFlow writes most of it down before it sends anything: in the graph of your step. Here you read it there for three ways to share gradients, and see where the graph stops telling: a ring and NCCL send inside one operation. One sends more than it has to, and one silently loses a gradient.
#
# **Time:** 80 minutes · **Prerequisites:** [the training loop by hand](04-custom-training-loop.ipynb), [all-reduce](06-all-reduce.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Count the bytes that cross between devices in one step, on paper and on TensorFlow's own graph.
# - Choose between central storage and mirroring, given the number of parameters, the optimizer and the number of replicas.
# - Compare how TensorFlow adds up gradients in one process, choose the options for several workers, and see what NCCL (NVIDIA's library for it) does without a GPU.
# - Count what packing gradients into buckets saves.
# - Say how far off the two-number model of lesson 06 is, and at which sizes.

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
import os
import re
from collections import Counter

import numpy as np

# %% [markdown]
# ## The first patient: one store, several readers
#
# `MirroredStrategy` keeps a copy of all variables on every replica. `CentralStorageStrategy`, an older idea, keeps one set in the memory of the computer that the GPUs sit in, the *host*. In each step it sends the variables' values to the replicas and collects their gradients. You may never train this way, but it's simple enough to check every byte.
#
# Here the logical device CPU:0 plays the host, and CPU:1, CPU:2 and CPU:3 play three GPUs. `ReductionToOneDevice` means that one replica adds up all gradients.

# %%
from distlab import figures

HOST, ACCELERATORS = "CPU:0", ["CPU:1", "CPU:2", "CPU:3"]
central = tf.distribute.experimental.CentralStorageStrategy(ACCELERATORS, parameter_device=HOST)
one_device = tf.distribute.ReductionToOneDevice()
mirrored = tf.distribute.MirroredStrategy(ACCELERATORS, cross_device_ops=one_device)
figures.show(figures.central_storage_devices(3, device="CPU", first=1, store="CPU:0, the host"))

# %% [markdown]
# For each weight, Adam also keeps two moving averages, its *slots*. Call the size of all weights together V, and count what each device holds, slots included.

# %%
from utils.measure import array_bytes
from utils.models import build_model


def build(strategy):
    """Return the MLP and its Adam, made in the scope of `strategy`."""
    with strategy.scope():
        model = build_model("mlp")
        optimizer = keras.optimizers.Adam(0.001)
        optimizer.build(model.trainable_variables)
    return model, optimizer


held = {"central-storage": Counter(), "mirrored": Counter()}
for strategy, bytes_on in zip((central, mirrored), held.values()):
    model, optimizer = build(strategy)
    for variable in model.trainable_variables + optimizer.variables:
        for part in strategy.experimental_local_results(variable.value):
            bytes_on[part.device[-5:]] += array_bytes([part])
V = array_bytes(model.trainable_variables)
print({name: sorted(bytes_on) for name, bytes_on in held.items()})
print("the accelerators hold", round(sum(held["mirrored"].values()) / V, 2), "V under mirrored")

# %% [markdown]
# Three arrays on three devices: 9 V. Under central storage the accelerators hold none of these arrays between steps; CPU:0 has 3 V.
#
# ## Read it off the graph
#
# A compiled step is a graph, and each operation in it has a device. A tensor that is made on one device and used on another has to be sent, once for each device that uses it. So we can count the bytes without running anything. `count_sent` starts at the graph's outputs and assignments and walks backwards, because what none of them needs isn't computed. On the way it adds up the tensors that change devices. (A variable is read on the device where it lives.)


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
from utils.data import load

split = load("fashion_mnist").train.take(48)
examples = tf.data.Dataset.from_tensor_slices((split.images[..., None] / 255.0, split.labels))


def trace_step(strategy):
    """Return the graph of a training step on a global batch of 48, with Keras's Adam."""
    model, optimizer = build(strategy)

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)  # [per_replica_batch, 10]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=48)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    step = tf.function(lambda batch: strategy.run(replica_step, args=batch))
    batch = next(iter(strategy.experimental_distribute_dataset(examples.batch(48))))
    return step.get_concrete_function(batch).graph


# %% [markdown]
# Each of the three replicas needs the weights, and its gradient has to come back.
#
# **Predict.** How many V should central storage send in a step? Write down your number, then look at what it does send. (Images and labels don't count.)

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Sent in a step", 0, 20, "V")
my_guess


# %%
from distlab.exercises.predict import show_guess


def show_sent(graph, title):
    """Draw what each device sends to each other one, in V; return the sum of it."""
    total = count_sent(graph)
    table = np.array([[total[start, end] / V for end in devices] for start in devices])
    names = [f"from {d}" for d in devices], [f"to {d}" for d in devices]
    figures.show(figures.matrix(table, *names, title=title))
    return float(table.sum())


sent = {"central-storage": show_sent(trace_step(central), "Central storage: sent, in V")}
show_guess(my_guess, sent["central-storage"], unit=" V")

# %% [markdown]
# On paper it's 6 V: V out and V back, for three replicas. TensorFlow sends 8. Where do the other two come from? Look at the row and the column of CPU:1, which show 2 instead of 1. Keras's optimizer asks for the sum of the gradients *in the replicas*, as it must under mirroring. So the host sends the sum to CPU:1, and CPU:1 sends it back for the update. That's 2 V for nothing. By the same reasoning it's 2 V for any number of replicas; we counted it for three. (Neither the loss nor the weights show the detour. The graph does.)
#
# **Your turn.** Under mirroring here, one of the R replicas adds up the gradients and sends the sum back. How many V travel in a step?


# %%
def sent_by_mirroring(replicas):  # in V
    return ...


# %%
from distlab.turns import lesson07 as turns

sent_by_mirroring = turns.MIRRORED.take(sent_by_mirroring)
sent["mirrored"] = show_sent(trace_step(mirrored), "Mirrored, reduced on one device: sent, in V")
print("counted:", sent["mirrored"], "V, by your formula:", sent_by_mirroring(3), "V")

# %% [markdown]
# The weights never travel, only gradients and their sum. Can any way to add up send less? Each gradient has to leave its replica (or meet others on the way), and the sum has to reach every replica. If the devices do the adding, that's R - 1 sendings each way, so 2(R - 1) V is the least. The ring sends the same in total. It only spreads it evenly.
#
# ## Memory against bytes sent
#
# With R replicas, central storage sends 2(R + 1) V per step, and mirroring that is reduced on one device 2(R - 1) V. The assertions compare both with what we counted for three replicas, and the table shows what the busiest device sends.

# %%
assert sent == {"central-storage": 2 * (3 + 1), "mirrored": 2 * (3 - 1)}
for most in held["central-storage"][HOST], held["mirrored"]["CPU:1"]:
    assert abs(most - 3 * V) < 16  # weights and two slots: all but Adam's two scalars
print("replicas   the host   replica 0   each rank of a ring")
for R in (2, 4, 8, 16):
    print(f"{R:>8}{R + 1:>9} V{R - 1:>10} V{2 * (R - 1) / R:>20.2f} V")
print(f"16 GiB, mirrored: {2**34 / 16:,.0f} parameters with Adam")
print(f"16 GiB, in a step of central storage: {2**34 / 8:,.0f}")

# %% [markdown]
# In a ring no replica ever sends as much as 2 V. The host sends more with every replica you add.
#
# Which models fit with central storage only? With Adam, weights, gradient and slots under mirroring fill 16 GiB at 1.07 billion parameters ([lesson 01](01-why-distribute.ipynb)): 16 bytes for each. Central storage still sends each accelerator all weights and makes a gradient there, 8 bytes for each, so it stops at about 2.1 billion. (Activations come on top.) Only models in between need it. With SGD, central storage has less to save.
#
# So central storage doesn't win in bytes sent. It can win if weights, gradient and slots don't fit on an accelerator but weights and gradient do, if there are few replicas, and if the link to the host is fast. Large models today are mostly *sharded* instead: each accelerator keeps a part of the weights and slots. (Search for ZeRO or FSDP; [lesson 15](15-model-parallelism.ipynb) counts what it saves.)
#
# If you do train with it, don't trust Keras's metrics. That should include the loss that `fit` reports, which is such a mean (we didn't run `fit` here). Three replicas feed 1 to a mean, then 2, and so on to 5:

# %%
with central.scope():
    metric = keras.metrics.Mean()
    total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
for step in range(1, 6):
    central.run(lambda value=float(step): metric.update_state(tf.constant(value)))
    central.run(lambda value=float(step): total.assign_add(tf.constant(value)))
print(f"Keras's mean: {float(metric.result()):.3f}; with assign_add: {total.numpy() / 15:.0f}")

# %% [markdown]
# The true mean is 3. Each replica runs `total.assign(total + value)`, and the strategy adds up what the three assign, old total and all. With `assign_add` only what is new is added up.
#
# ## How MirroredStrategy adds up
#
# Its argument `cross_device_ops` decides. `ReductionToOneDevice` is lesson 06's naive way. `HierarchicalCopyAllReduce` was made for GPUs that are wired in two groups, as in NVIDIA's DGX-1: each half adds up, one half's sum goes to the other half's leader, and the total comes back the same way. Here are both on four replicas.

# %%
ops = {"ReductionToOneDevice": one_device}
ops["HierarchicalCopyAllReduce"] = tf.distribute.HierarchicalCopyAllReduce()
for name, reduce_how in ops.items():
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=reduce_how)
    print(f"{name}: {show_sent(trace_step(strategy), f'{name}: sent, in V')} V")

# %% [markdown]
# Both send 6 V, the least for four replicas. But the busiest device sends 3 V in the first and 2 V in the second.
#
# ## The mistake: a hierarchical sum of three
#
# Now count for three replicas. By your formula, no way to add up can do with less than 4 V.

# %%
ops["HierarchicalCopyAllReduce"] = tf.distribute.HierarchicalCopyAllReduce()
halves = tf.distribute.MirroredStrategy(ACCELERATORS, ops["HierarchicalCopyAllReduce"])
less = show_sent(trace_step(halves), "HierarchicalCopyAllReduce of three: sent, in V")


def add_up(strategy):
    """Let replica r send 10**r; return the sum that each replica gets."""

    def reduce_replica():
        context = tf.distribute.get_replica_context()
        mine = tf.gather([1.0, 10.0, 100.0, 1000.0], context.replica_id_in_sync_group)
        return context.all_reduce("SUM", mine)

    step = tf.function(lambda: strategy.experimental_local_results(strategy.run(reduce_replica)))
    return [int(total) for total in step()]


print(f"{less} V; 1 + 10 + 100 is", add_up(halves), "and, on one device,", add_up(mirrored))
assert add_up(halves) == [11, 11, 11]

# %% [markdown]
# It sends 3 V, and the printed sums show why: the third replica's gradient isn't in the total. TensorFlow cuts the replicas into two groups of R // 2, and with an odd number the last replica belongs to neither. There's no error and no warning. You'd train on two thirds of your data. (We tried 2 to 8 replicas with TensorFlow 2.21: 3, 5 and 7 lose one.) The fix: an even number, another `cross_device_ops`, or `make_strategy` of `utils`, which refuses.

# %%
from utils.errors import DistributedError
from utils.strategies import make_strategy

try:
    make_strategy("mirrored", 3, all_reduce="hierarchical")
except DistributedError as error:
    print(error)

# %% [markdown]
# ## The default, and NCCL
#
# Leave `cross_device_ops` out, and it depends on the hardware. NVIDIA GPUs get NCCL, which knows the machine's wiring and picks its algorithm automatically. CPUs get the collective that TensorFlow also uses between processes, a ring. What does our counter see?

# %%
for name, reduce_how in {"default": None, "NCCL": tf.distribute.NcclAllReduce()}.items():
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=reduce_how)
    graph = trace_step(strategy)
    found = [op for op in graph.get_operations() if re.search("Nccl|CollectiveReduce", op.type)]
    inputs = {array_bytes([op.inputs[0]]) // V for op in found}
    print(
        f"{name:<8}{sum(count_sent(graph).values())} V; {len(found)} x {found[0].type} of",
        inputs,
        "V",
    )
try:
    add_up(strategy)
except tf.errors.InvalidArgumentError as error:
    said = re.sub(r" used by.*", "", error.message.splitlines()[0])
    print(said, "·", re.search(r"Registered devices: \[\w+\]", error.message)[0])
assert "NcclAllReduce" in said

# %% [markdown]
# Nothing changes devices in the graph: each device has one operation that takes its V, and the sending happens inside. For a ring, lesson 06 says what: 2(R - 1)/R V from each device, 6 V in total for four.
#
# You'll find `NcclAllReduce` in a lot of example code. Building the graph works everywhere. Running it without NVIDIA GPUs doesn't: the operation exists for GPUs only.
#
# The default has a trap for notebooks on a CPU. The first collective that runs fixes the process's *group*: who takes part, and how many. A second strategy with another number of replicas tries to join that group. (The cell does that in worker processes, so that it doesn't spoil this notebook.)

# %%
from utils.cluster import LocalCluster

cluster = LocalCluster(workers=2, devices="cpu")


def try_two_sizes():
    """Run in each worker, without TF_CONFIG, as a notebook is."""
    del os.environ["TF_CONFIG"]
    devices = use_logical_devices(4)
    add_up(tf.distribute.MirroredStrategy(devices))
    try:
        add_up(tf.distribute.MirroredStrategy(devices[:2]))
    except tf.errors.InternalError as error:
        return re.search(r"joining a group with size ?\d, but that group has size ?\d", str(error))[
            0
        ]


said = cluster.run(try_two_sizes, timeout=60, echo=False)[0]
print("the second strategy is", said)
assert "group with size" in said

# %% [markdown]
# The fix: use `ReductionToOneDevice` in CPU notebooks that try several numbers of replicas, or restart the kernel. That's why you see `ReductionToOneDevice` in several lessons.
#
# ## Across workers: CommunicationOptions
#
# Between workers you choose when you make the strategy, with two classes of `tf.distribute.experimental`. `CommunicationOptions` has an `implementation` (`CommunicationImplementation.RING`, `.NCCL` or, by default, `.AUTO`, which lets TensorFlow decide). It also has `bytes_per_pack`. A model has many gradient arrays, most of them small. Reduced one by one, each would pay the latencies again. So they are packed end to end into *packs* (elsewhere: *buckets*), and each is reduced as one vector. A pack is full once it holds more than `bytes_per_pack`. At 0, the default, TensorFlow 2.21 packs everything into one. (We counted, below; the API page only says "determined automatically".)
#
# Our four gradients take 401,408, 512, 5,120 and 40 bytes, and TensorFlow begins with the last.
#
# **Your turn.** Write options that ask for TensorFlow's own ring and for packs of 4 KiB.

# %%
options = ...


# %%
options = turns.OPTIONS.take(options)
kinds = tf.distribute.experimental.CommunicationImplementation
asked = {"yours": options}
asked["1 byte, NCCL"] = tf.distribute.experimental.CommunicationOptions(1, None, kinds.NCCL)
asked["default"] = tf.distribute.experimental.CommunicationOptions()


def count_packs(asked, sizes):
    """Run in each worker: for each options, the hint and the bytes of each collective; the sum."""
    strategy, found = tf.distribute.MultiWorkerMirroredStrategy(), {}
    for name, options in asked.items():

        def reduce_replica(options=options):
            ones = [tf.ones(size // 4) for size in sizes]
            return tf.distribute.get_replica_context().all_reduce("SUM", ones, options)

        step = tf.function(lambda call=reduce_replica: strategy.run(call))
        operations = step.get_concrete_function().graph.get_operations()
        packs = [op for op in operations if "CollectiveReduce" in op.type]
        hint = packs[0].get_attr("communication_hint").decode()
        found[name] = hint, [array_bytes([op.inputs[0]]) for op in packs], float(step()[0][0])
    return found


sizes = [array_bytes([variable]) for variable in model.trainable_variables]
found = cluster.run(count_packs, asked, sizes, timeout=60)[0]
cluster.close()
for name, (hint, packs, total) in found.items():
    print(f"{name:<14} asks for {hint!r:<7} packs of {packs} bytes, 1 + 1 is {total}")

# %% [markdown]
# With 4 KiB, the arrays of 40 and 5,120 bytes fill the first pack, and the other two share the second. The bytes are the same in every line. What changes is how often the latencies are paid.
#
# The middle line asked for NCCL, and got its sum on two CPUs. Between workers the implementation is only a *hint*: without GPUs TensorFlow runs its ring. So if your log shows "NCCL" among the options, that doesn't prove NCCL ran. On GPUs, ask NCCL itself: with `NCCL_DEBUG=INFO` in each worker's environment it prints which devices take part and over which network they talk.
#
# So why not always one pack? Here is a simulated step with 100 MB of gradients in one bucket, on eight devices connected at 100 Gb/s. Move *Bucket* to the left: at which size do the devices wait least for the network, and why do they wait longer again below it?

# %%
from distlab.explorables import step_time_line
from utils.simulate.collective import Link, fit_link, simulate_all_reduce
from utils.simulate.step import Network, StepWork, simulate_step

work, link = StepWork(0.01, 0.02, gradient_bytes=100e6), Link(20e-6, 12.5e9)
for megabytes in (100, 25):
    step = simulate_step(work, 8, Network(link), bucket_bytes=megabytes * 1e6)
    print(f"buckets of {megabytes:>3} MB: a step of {1e3 * step.step_seconds:.1f} ms")
step_time_line(work, 8, link, bucket_bytes=100e6)

# %% [markdown]
# The backward pass computes the last layers' gradients first, and a bucket leaves as soon as it is full. A single bucket is full when the backward pass is over: 44 ms. With four buckets, three are reduced while the backward pass is still running, and the step takes 34 ms. Very small buckets lose again, because each one pays the latencies of a whole ring. (The simulation assumes that a full bucket leaves at once. We haven't measured when TensorFlow starts a pack.)
#
# ## What it costs: published clusters, and the model
#
# Lesson 06 fitted a latency and a bandwidth to two processes on one computer, and the simulation above uses such a pair. Does the model hold on real GPUs? NVIDIA's `nccl-tests` measures NCCL's all-reduce, and people publish the results. The picture below shows 29 sizes, published for two AWS p4de machines of eight A100s each. The model is fitted to two of these sizes, the smallest and 1 GiB.
#
# The table below it is from one machine of H200s and shows *bus bandwidth*: 2(P - 1)/P times the vector's bytes, divided by the time. That's how fast each rank would send in a ring, so for a ring it shouldn't depend on P. Here the model gets its bandwidth from the first row and a latency of 5 µs. (The files in `utils/simulate/published` name the machines and the tool, but not NCCL's version, nor who published them. Take them as examples.)

# %%
from distlab.lessons.all_reduce_race import draw_times
from utils.simulate.published import read_table


def predict(ranks, sizes, link):
    return [simulate_all_reduce("ring", ranks, size, link).seconds for size in sizes]


published = {r["bytes"]: r["time_us_out_of_place"] / 1e6 for r in read_table("nccl_allreduce_p4de")}
link, _ = fit_link("ring", 16, [8, 2**30], [published[8], published[2**30]])
model_seconds = predict(16, published, link)
both = {"published": (list(published), list(published.values()))}
both["ring, model"] = list(published), model_seconds
figures.show(draw_times(both, "NCCL on 2 x 8 A100, and a ring fitted at 8 B and 1 GiB"))
shares = {size: seconds / published[size] for size, seconds in zip(published, model_seconds)}
for mebibytes in (2, 4, 8, 16, 32, 64):
    print(
        f"{mebibytes:>3} MiB: the model gives {100 * shares[mebibytes * 2**20]:.0f} % of the published time"
    )

# %%
rows = read_table("h200_ring_busbw")
wire = Link(5e-6, rows[0]["h200_ring"] * 1e9)  # bandwidth as measured with 4 ranks
runs = [simulate_all_reduce("ring", int(r["ranks"]), 2**34, wire) for r in rows]
busy = [run.bus_bandwidth_bytes_per_second / 1e9 for run in runs]
table = np.array([[r["h200_ring"], bus, r["h200_default"]] for r, bus in zip(rows, busy)])
names = [f"{r['ranks']:.0f} ranks" for r in rows]
columns = ["ring, published", "ring, model", "NCCL's choice, published"]
title = "Bus bandwidth on H200s, GB/s"
figures.show(figures.matrix(table, names, columns, title=title, format="{:.1f}"))
assert np.allclose(table[:, 0], table[:, 1], rtol=0.008)

# %% [markdown]
# At its worst, in the middle of the curve, the model predicts about half of the published time. It gives 48 to 50 % of the time from 2 to 16 MiB, 64 % at 32 MiB and 68 % at 64 MiB, where gradient buckets are (PyTorch's default is 25 MB). At 128 MiB it gives 87 %, and only from 256 MiB on, or for small messages, is it within 10 %. NCCL changes its algorithm and its protocol with the message size, and two numbers can't follow that. (The data don't say which ran at which size.)
#
# In the table the published ring is flat within a percent, as the model says. From five ranks on, the last column is above what the ring reached, 365 GB/s. From seven on it's even above what any ring could do on these links: NVLink 4 carries 450 GB/s each way. There the switch that connects the GPUs does the adding (NVLink SHARP), so each rank sends its vector only once.
#
# **Recap**
#
# - **Count:** central storage sent 8 V where 6 were needed; mirroring 4 V, the least for three replicas.
# - **Which:** central storage saves memory on the accelerators, not bytes.
# - **Add up:** `cross_device_ops` in one process, `CommunicationOptions` across workers. Without GPUs, asking for NCCL is an error in the first and an ignored hint in the second. A hierarchical sum of an odd number loses a replica.
# - **Pack:** four arrays in one pack need a quarter of the messages; in the simulated step, four buckets finished before one.
# - **Model:** half the published time at 2 to 16 MiB; within 10 % from 256 MiB on.
#
# ## Cheat sheet
#
# ```python
# import tensorflow as tf
# # one machine: MirroredStrategy() is enough; in CPU notebooks that change the number of replicas:
# #   MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice())
# # several workers: these options also apply to the all-reduce inside optimizer.apply_gradients
# options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=32 * 1024 * 1024)
# strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
# graph = tf.function(lambda: strategy.run(tf.timestamp)).get_concrete_function().graph
# print({op.device for op in graph.get_operations()})  # read what a step does before it does it
# # sent per step, V bytes of weights, R replicas: 2 (R - 1) V mirrored; 2 (R + 1) V central + Keras
# ```
#
# A whole training loop: [mirrored_custom_loop.py](../examples/mirrored_custom_loop.py). Its strategy is one line, so every way to add up from this lesson can be tried in it.
#
# ## On a real GPU
#
# `distlab train --strategy central-storage --device gpu` trains on the GPUs of one machine, with the variables on its CPU.
# Look at its images/s, and compare with `--strategy mirrored` and its `--all-reduce nccl`, `hierarchical` and `one-device`.
# Central storage pays for the way through the host and for an update on its CPU, mirroring for an all-reduce and an update on each GPU.
#
# ## Further reading
#
# - TensorFlow's guide, [Distributed training: CentralStorageStrategy](https://www.tensorflow.org/guide/distributed_training#centralstoragestrategy)
# - API: [CrossDeviceOps](https://www.tensorflow.org/api_docs/python/tf/distribute/CrossDeviceOps), [CommunicationOptions](https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/CommunicationOptions)
# - [Li et al., PyTorch Distributed](https://arxiv.org/abs/2006.15704), arXiv:2006.15704, 2020, on buckets
# - [nccl-tests, on bus bandwidth](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)
# - Ren and others, [ZeRO-Offload](https://arxiv.org/abs/2101.06840): the optimizer's state in the host's memory, for large models
#
# ## The lab
#
# You predict what an all-reduce sends and costs in [lab 06, ring all-reduce](../labs/lab06-ring-all-reduce.ipynb). You practice placing variables in [lab 02, the strategy API](../labs/lab02-strategy-api.ipynb). [Lesson 11](11-parameter-server.ipynb) takes central storage across machines: weights out and gradients back is what each of its workers pays in every step.
