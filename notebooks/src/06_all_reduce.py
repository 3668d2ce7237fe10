# %% [markdown] shows="Naive, ring, recursive doubling and hierarchical, with messages and bytes counted; your own gradient on the ring, step by step; five algorithms race on one clock"
# # All-reduce
#
# Every step of data-parallel training needs the same sum: each replica has a gradient, and all of them need the total. The obvious way is to send everything to one place. But then every replica you add makes the others wait longer. Here you sum gradients in four ways, count every message, and learn to predict what the sum costs before you rent the machines.
#
# **Time:** 100 minutes, in two sittings · **Prerequisites:** [the training loop by hand](04-custom-training-loop.ipynb), [loss scaling](05-loss-scaling.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Write a ring all-reduce: reduce-scatter, then all-gather.
# - Count the steps, messages and bytes of naive, ring, recursive-doubling and hierarchical all-reduce.
# - Choose how TensorFlow adds up gradients, in one process and across workers, and say where NCCL (NVIDIA's library for it) runs.
# - Count what packing gradients into buckets saves.
# - Fit a latency and a bandwidth to your own timings, and predict other timings from them.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
print(devices := use_logical_devices(4))

# %%
import os
import re
from collections import Counter
from contextlib import suppress

import numpy as np

# %% [markdown]
# ## Four ranks, ten numbers
#
# An operation that a group of processes carries out together is a *collective*, and its members are called *ranks*. An **all-reduce** is the collective that adds up one array from every rank and gives every rank the sum.
#
# Our four ranks are four replicas. Each computes a gradient on 32 Fashion-MNIST images of its own. The picture shows the gradient of the last layer's bias: ten numbers per rank, and in the bottom row the sum that every rank needs. A model has more arrays than this one. Laid end to end, they make one long vector per rank, and that's what we'll send.

# %%
from distlab import figures
from utils.data import load
from utils.measure import format_bytes
from utils.models import build_mlp

fashion, model = load("fashion_mnist").train, build_mlp(seed=0)


def compute_gradients(rank):
    """Return one rank's gradients, an array for each variable; its loss is divided by 128."""
    mine = slice(32 * rank, 32 * (rank + 1))
    images = fashion.images[mine][..., None] / np.float32(255)  # [32, 28, 28, 1]
    with tf.GradientTape() as tape:
        logits = model(images)  # [32, 10]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(fashion.labels[mine], logits)
        loss = tf.nn.compute_average_loss(losses, global_batch_size=128)
    return [g.numpy() for g in tape.gradient(loss, model.trainable_variables)]


gradients = [compute_gradients(rank) for rank in range(4)]
biases = [arrays[-1] for arrays in gradients]  # ten numbers a rank
table = 1000 * np.array([*biases, np.sum(biases, axis=0)])
names = [*(f"rank {rank}" for rank in range(4)), "sum"]
title = "Gradient of the last bias, in thousandths"
figures.show(figures.matrix(table, names, range(10), title=title, format="{:.1f}"))
vectors = [np.concatenate([g.ravel() for g in arrays]) for arrays in gradients]
total, N = np.sum(vectors, axis=0), vectors[0].nbytes
print("all arrays end to end:", vectors[0].shape, "numbers a rank,", format_bytes(N))

# %% [markdown]
# ## A post office that counts
#
# Real ranks can't look into each other's memory: all they can do is send messages. Ours live in one process, so sending is just a copy. What matters is the log that `Post` keeps: from whom, to whom, how many bytes. All messages of one *step* travel at the same time, and in a step each rank sends at most one and receives at most one.


# %%
from utils.measure import array_bytes


class Post:
    """Carries arrays between ranks in this process, and writes every message down."""

    def __init__(self):
        self.steps, self.log = 0, []  # of (source, destination, bytes)

    def copy(self, values, rank):
        return np.array(values)

    def add(self, rank, mine, arrived):
        return mine + arrived

    def send(self, values, source, destination):
        self.log.append((source, destination, array_bytes([values])))
        return self.copy(values, destination)

    def end_step(self):
        self.steps += 1


def count_costs(post):
    """Return the steps, and the messages and bytes of the ranks that send most."""
    messages, sent = Counter(), Counter()
    for source, _, size in post.log:
        messages[source] += 1
        sent[source] += size
    return post.steps, max(messages.values()), max(sent.values())


def run(algorithm, vectors, post):
    """Run it, check every rank's sum, and return what it costs."""
    for result in algorithm(vectors, post):
        np.testing.assert_allclose(result, total, atol=1e-6)
    return count_costs(post)


# %% [markdown]
# ## Naive: everything to rank 0
#
# Rank 0 receives the other vectors one after the other, adds them up, and sends the sum to each rank. The cell prints the steps, and how many messages and bytes the busiest rank sends.


# %%
def naive(vectors, post):
    total, others = vectors[0], range(1, len(vectors))
    for rank in others:
        total = post.add(0, total, post.send(vectors[rank], rank, 0))
        post.end_step()
    sums = [total]
    for rank in others:
        sums.append(post.send(total, 0, rank))
        post.end_step()
    return sums


costs = run(naive, vectors, Post())
print("steps, most messages, most bytes:", costs, "of", N)

# %% [markdown]
# One vector is 407,080 bytes. Rank 0 sends it three times, after receiving three. With P ranks, 2(P - 1) whole vectors pass through its one port while the others wait. With a hundred ranks that's 198 vectors.
#
# ## The ring
#
# Cut every vector into P chunks, one per rank, and arrange the ranks in a ring. In each step every rank sends *one chunk* to its right neighbor, all at once.
#
# - First half, **reduce-scatter**. It takes P - 1 steps, which we call turns 0, 1, 2, … In turn 0, rank p sends chunk p. The receiver adds what arrives to its own chunk, and in the next turn sends the result on. So in turn t, rank p sends chunk p - t. At the end rank p holds the complete sum of chunk p + 1. (Chunk numbers wrap around: before chunk 0 comes the last one.)
# - Second half, **all-gather**. In turn 0, rank p sends the chunk that it has completed, p + 1. The receiver keeps a copy and sends it on. After another P - 1 turns everyone has everything.
#
# **Predict.** A chunk is a quarter of the vector. How many times the vector's size does each of four ranks send in the whole all-reduce?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Sent by each rank, in vectors", 0, 6, step=0.25)
my_guess

# %% [markdown]
# **Your turn.** Be rank 0 of four for a moment, in the first half. Turn 0 is over. Which chunk do you send in turn 1?

# %%
sent_chunk = ...


# %%
from distlab.exercises.predict import show_guess
from distlab.turns import lesson06 as turns

sent_chunk = turns.SENT_CHUNK.take(sent_chunk)


def reduce_scatter(chunks, post, ranks):  # chunks[p][k]: chunk k of ranks[p]
    count = len(chunks)
    for turn in range(count - 1):
        for p in range(count):
            right, k = (p + 1) % count, (p - turn) % count
            arrived = post.send(chunks[p][k], ranks[p], ranks[right])
            chunks[right][k] = post.add(ranks[right], chunks[right][k], arrived)
        post.end_step()


def all_gather(chunks, post, ranks):
    count = len(chunks)
    for turn in range(count - 1):
        for p in range(count):
            right, k = (p + 1) % count, (p + 1 - turn) % count
            chunks[right][k] = post.send(chunks[p][k], ranks[p], ranks[right])
        post.end_step()


def ring(vectors, post, ranks=range(4)):
    chunks = [np.array_split(vector, len(vectors)) for vector in vectors]
    reduce_scatter(chunks, post, ranks)
    all_gather(chunks, post, ranks)
    return [np.concatenate(row) for row in chunks]


costs = run(ring, vectors, Post())
summed = "the sum of two ranks' numbers" if sent_chunk == 3 else "one rank's numbers: no progress"
print(f"chunk {sent_chunk} of rank 0, after turn 0: {summed}")
show_guess(my_guess, round(costs[2] / N, 3), unit=" times")
print("steps, most messages, most bytes:", costs)

# %% [markdown]
# The ring takes as many steps as the naive way, but each message is a quarter of the size. In total a rank sends 2(P - 1)/P times the vector: three quarters in each half. (If you said 0.75, you forgot the all-gather.) That's less than two vectors *however many ranks there are*, and all ranks send the same. As long as the ranks do the adding, no all-reduce can get by with less.
#
# Now watch it with your ten numbers. Each rank is a circle in its own color, cut into four chunks. Press Step, and look at the bands in a chunk: they show whose numbers it has added up, and a chunk turns green, with stripes, when it holds the complete sum. On the right stands the addition that each message makes. Stop after step 3, when each rank has one striped chunk: which rank holds which complete sum? Compare with the rule above: rank p should have chunk p + 1.

# %%
from distlab.explorables import ring_of

ring_of(biases)

# %% [markdown]
# ## Recursive doubling and hierarchical
#
# A ring of P ranks needs 2(P - 1) steps. Every step costs a *latency*, the time that even an empty message takes. So for short vectors, fewer steps are better. In **recursive doubling**, each rank swaps its sum with a partner at distance 1, then 2, then 4, and so on. At distance 1 ranks 0 and 1 swap, and so do 2 and 3. At distance 2 it's 0 and 2, and 1 and 3. That takes log2 P steps, each with the whole vector. (The number of ranks must be a power of two here.) NCCL's *trees*, if you have read of them, are something else: *double binary trees*. They take about 2 log2 P steps, and no rank sends more than two vectors in all.
#
# **Hierarchical** is for machines that hold several ranks each, where the network between machines is the slow part. Add up inside every machine, run a ring over one leader per machine, and pass the sum back. Here each machine has two ranks: 0 and 1, 2 and 3. (If every GPU has its own network card, one leader would leave most cards idle. Libraries then reduce-scatter inside each machine, all-reduce each chunk between the GPUs that hold it, one per machine, and all-gather inside.)
#
# **Your turn.** In recursive doubling, who is the partner of a rank at a distance of 1, 2 or 4?


# %%
def partner(rank, distance):
    return ...


# %%
partner = turns.PARTNER.take(partner)
for distance in (1, 2):
    print(f"distance {distance}:", [(rank, partner(rank, distance)) for rank in range(4)])


def recursive_doubling(vectors, post):
    ranks, distance = range(len(vectors)), 1
    while distance < len(ranks):
        swapped = [post.send(vectors[r ^ distance], r ^ distance, r) for r in ranks]
        vectors = [post.add(r, vectors[r], swapped[r]) for r in ranks]
        distance *= 2
        post.end_step()
    return vectors


def hierarchical(vectors, post):  # two ranks on each machine
    leaders = range(0, len(vectors), 2)
    sums = [post.add(a, vectors[a], post.send(vectors[a + 1], a + 1, a)) for a in leaders]
    post.end_step()
    sums = ring(sums, post, leaders)
    passed_on = [post.send(total, a, a + 1) for total, a in zip(sums, leaders)]
    post.end_step()
    return [total for pair in zip(sums, passed_on) for total in pair]


# %%
from distlab.lessons.all_reduce_race import draw_costs

algorithms = {"naive": naive, "ring": ring, "recursive-doubling": recursive_doubling}
algorithms["hierarchical"] = hierarchical
by_hand, between = {}, {}
for name, algorithm in algorithms.items():
    post = Post()
    by_hand[name] = run(algorithm, vectors, post)
    between[name] = sum(size for source, to, size in post.log if source // 2 != to // 2)
figures.show(draw_costs(by_hand, between, N))

# %% [markdown]
# Three of the four are best at something. Recursive doubling needs the fewest steps and messages, the ring's busiest rank sends the fewest bytes, and hierarchical sends the fewest between the machines. Naive is best at nothing; it's merely simple.
#
# Which of them is fastest? That depends on the vector and on the links. Here all four run on one clock, and a fifth with them: a plain *tree*, which halves the ranks in each step up to rank 0, and doubles them on the way down. Press Play, then look at the bar below: who wins at which size?

# %%
from distlab.explorables import all_reduce_race

all_reduce_race()

# %% [markdown]
# Three things to try:
#
# 1. Make the vector 1 kB, and play again: latency is all that counts, and the fewest steps win. At 100 MB bytes are all that counts, and the ring wins.
# 2. Go from 8 ranks to 16. The naive curve climbs, and the ring's right end hardly moves: that is the 2(P - 1)/P.
# 3. Make the links inside a node 10 times as fast. Which algorithm gains most? The ring gains nothing: in each of its steps some message crosses between two nodes, and the step lasts as long as that one.
#
# ## On logical devices
#
# Now the same four functions with tensors. Each rank is one of our four logical devices and does its own adding; sending is a copy to another device. Only the post office has to change.


# %%
class DevicePost(Post):
    def copy(self, values, rank):
        with tf.device(devices[rank]):
            return tf.identity(values)

    def add(self, rank, mine, arrived):
        with tf.device(devices[rank]):
            return mine + arrived


post = DevicePost()
chunks = [[post.copy(c, rank) for c in np.array_split(vectors[rank], 4)] for rank in range(4)]
reduce_scatter(chunks, post, range(4))
all_gather(chunks, post, range(4))
homes = [{chunk.device.rsplit("device:")[1] for chunk in row} for row in chunks]
print("the ring's sums live on", *(home for row in homes for home in row))
assert by_hand == {n: run(call, vectors, DevicePost()) for n, call in algorithms.items()}

# %% [markdown]
# Same sums, same steps, same messages, same bytes.
#
# ## TensorFlow's own, in one process
#
# With `MirroredStrategy` you choose how gradients are added up by its argument `cross_device_ops`. To see what each choice does, we look into the traced graph: which devices do the adding?


# %%
def trace_reduce(cross_device_ops, count=4):
    """Return a compiled all-reduce of the ten numbers, and where its graph adds."""
    strategy = tf.distribute.MirroredStrategy(devices[:count], cross_device_ops=cross_device_ops)

    def reduce_replica():
        context = tf.distribute.get_replica_context()
        mine = tf.gather(np.array(biases), context.replica_id_in_sync_group)
        return context.all_reduce("SUM", mine)

    reduce = tf.function(lambda: strategy.experimental_local_results(strategy.run(reduce_replica)))
    operations = reduce.get_concrete_function().graph.get_operations()
    adds = [op.device.rsplit("device:", 1)[1] for op in operations if op.type == "AddN"]
    return reduce, adds


to_one, adds_in_one = trace_reduce(tf.distribute.ReductionToOneDevice())
by_groups, adds_in_groups = trace_reduce(tf.distribute.HierarchicalCopyAllReduce())
print("ReductionToOneDevice adds on     ", *adds_in_one)
print("HierarchicalCopyAllReduce adds on", *adds_in_groups)
for result in [*to_one(), *by_groups()]:
    np.testing.assert_allclose(result, np.sum(biases, axis=0), atol=1e-7)

# %% [markdown]
# `ReductionToOneDevice` is the naive way: one device adds and sends the sum back. `HierarchicalCopyAllReduce` adds in two groups, 0 with 1 and 2 with 3, and then adds the two sums. (It was made for GPUs that are wired in two groups, as in NVIDIA's DGX-1.)
#
# Leave the argument out, and it depends on the hardware. NVIDIA GPUs get NCCL, NVIDIA's own library of collectives, which knows the machine's wiring and picks its algorithm automatically. CPUs get the collective that TensorFlow also uses between processes.
#
# ## The mistake: NCCL where there is no GPU
#
# You'll find `NcclAllReduce` in a lot of example code. Building the graph works everywhere. Running it here doesn't, as the first cell below shows: the operation exists for GPUs only. The fix is one of the two choices above, or no argument at all.
#
# But leaving the argument out has a trap for notebooks. The first collective that runs fixes the process's *group*: who takes part, and how many. A second strategy with another number of replicas tries to join that group, and fails. (The second cell does that in worker processes, so that it doesn't spoil this notebook.)

# %%
nccl, _ = trace_reduce(tf.distribute.NcclAllReduce())
try:
    nccl()
except tf.errors.InvalidArgumentError as error:
    said = re.sub(r" used by.*", "", error.message.splitlines()[0])
    said += ", " + " ".join(re.findall(r"Registered devices: \[\w+\]", error.message))
print(said)
assert "NcclAllReduce" in said

# %%
from utils.cluster import LocalCluster

cluster = LocalCluster(workers=2)


def try_two_sizes():
    del os.environ["TF_CONFIG"]  # each worker by itself, as a notebook is
    use_logical_devices(4)
    trace_reduce(None, count=4)[0]()
    try:
        trace_reduce(None, count=2)[0]()
    except tf.errors.InternalError as error:
        return re.search(
            r"joining a group with size ?\d, but that group has size ?\d", error.message
        )[0]


said = cluster.run(try_two_sizes, timeout=60, echo=False)
print("the second strategy is", said[0])

# %% [markdown]
# The fix: use `ReductionToOneDevice` in CPU notebooks that try several numbers of replicas, or restart the kernel. That's why you see `ReductionToOneDevice` in several lessons.
#
# ## Between processes: CommunicationOptions
#
# Across workers you choose when you make the strategy: RING is TensorFlow's own ring, NCCL is NVIDIA's library, and with AUTO, the default, TensorFlow decides. The choice goes into `CommunicationOptions`. (So does `timeout_seconds=`, which turns a hang into an error; TensorFlow recommends it for debugging only.)
#
# What happens if two workers on this machine ask for NCCL, and there's no GPU?


# %%
def make_with(name):
    """Run in each worker: return a strategy whose collectives are made as `name` says."""
    kinds = tf.distribute.experimental.CommunicationImplementation  # RING, NCCL, AUTO
    options = tf.distribute.experimental.CommunicationOptions(implementation=kinds[name])
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def reduce_with(make, name):
    """Run in each worker: return what the graph asks for, and the sum that comes out."""
    strategy = make(name)

    def reduce_replica():
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.constant([1.0, 2.0]))

    step = tf.function(lambda: strategy.run(reduce_replica))
    operations = step.get_concrete_function().graph.get_operations()
    hint = next(op.get_attr("communication_hint") for op in operations if "Reduce" in op.type)
    return hint.decode(), step().numpy().tolist()


# %%
from utils.cluster import ClusterError

outcomes = {}
for name in ("RING", "NCCL", "AUTO"):
    with suppress(ClusterError):
        outcomes[name] = cluster.run(reduce_with, make_with, name, timeout=60)[0]
for name, (hint, sums) in outcomes.items():
    print(f"{name:<5} asks for {hint!r:<7} and gets {sums}")
assert [sums for _, sums in outcomes.values()] == 3 * [[2.0, 4.0]]

# %% [markdown]
# Between workers the choice is only a *hint*. Without GPUs TensorFlow runs its ring, whatever the hint says. So if your log shows "NCCL" among the options, that doesn't prove NCCL ran. On GPUs, ask NCCL itself: with the variable `NCCL_DEBUG=INFO` in each worker's environment it prints which devices take part and over which network they talk.
#
# ## TensorFlow's RING compared with ours
#
# So far our ring ran inside one process. `ProcessRing` in `utils` is the same ring between real processes: each holds one socket to the next rank and one from the previous. (They use other ports than TF_CONFIG's, which belong to TensorFlow.) We compare it with TensorFlow's ring twice. First, `reduce_both` passes the same gradients through both: do they give the same sums? Then `time_both` lets the two take turns on vectors of several sizes. A barrier before each call makes both workers start together, and we keep the best of seven rounds. TensorFlow's ring comes from `make_strategy("multi-worker", all_reduce="ring")`, which makes the strategy as you did above, and refuses `"nccl"` without GPUs.

# %%
from distlab.lessons.all_reduce_race import reduce_both
from utils.strategies import make_strategy
from utils.tf_config import pick_free_ports


def through_utils(name):
    return make_strategy("multi-worker", all_reduce=name)


assert cluster.run(reduce_with, through_utils, "ring", timeout=60)[0] == outcomes["RING"]
addresses = [f"127.0.0.1:{port}" for port in pick_free_ports(2)]
for ours, theirs in cluster.run(reduce_both, addresses, vectors[:2], timeout=60):
    np.testing.assert_array_equal(ours, theirs)
print("both workers, both ways: the same", len(ours), "sums, bit for bit")

# %% tags=["nbval-ignore-output"]
from distlab.lessons.all_reduce_race import draw_times, time_both

sizes = [1024 * 4**power for power in range(7)]  # 1 KiB to 4 MiB
timed = cluster.run(time_both, addresses, sizes, rounds=7, timeout=90)[0]  # worker 0's
best = {n: [min(s[size]) for size in sizes] for n, s in zip(("ours", "TensorFlow"), timed)}
measured = {name: (sizes, seconds) for name, seconds in best.items()}
figures.show(draw_times(measured, "All-reduce of two processes"))

# %% [markdown]
# The sums are equal to the bit, but with two ranks that's no surprise: a + b is b + a. With more, an algorithm decides in which order the numbers are added, and rounding depends on the order. Over four ranks, naive and ring sums of 1,000 random float32 numbers agreed to the bit in 674. So compare algorithms with a tolerance.
#
# On the left both lines are flat: the time goes into waiting, hardly into bytes. They wait for different things. Our ring sends at once and does nothing else. TensorFlow's passes through its runtime's threads and through gRPC, its network layer, and there the receiver has to *ask* for each chunk before it is sent.
#
# ## Latency and bandwidth, from your own timings
#
# Can two numbers predict such a line? The *alpha-beta model* says that a message of n bytes takes alpha + n / bandwidth, where alpha is the latency. A ring of P ranks then takes 2(P - 1) latencies, plus 2(P - 1)/P times the vector's bytes, divided by the bandwidth. We fit latency and bandwidth to every other size, then predict all sizes. The second cell asks the same model about sixteen ranks.
#
# **Your turn.** Recursive doubling moves the whole vector in each of its steps. How many seconds does it take on such links? `size` is in bytes, `latency` in seconds, `bandwidth` in bytes per second.


# %%
def doubling_seconds(ranks, size, latency, bandwidth):
    return ...


# %% tags=["nbval-ignore-output"]
from utils.simulate.collective import fit_link, simulate_all_reduce

doubling_seconds = turns.DOUBLING.take(doubling_seconds)


def predict_seconds(algorithm, ranks, sizes, link):
    return sizes, [simulate_all_reduce(algorithm, ranks, size, link).seconds for size in sizes]


drawn, links = {}, {}
for name, seconds in best.items():
    links[name], _ = fit_link("ring", 2, sizes[::2], seconds[::2], relative=True)
    drawn[f"{name}, measured"] = measured[name]
    drawn[f"{name}, predicted"] = predict_seconds("ring", 2, sizes, links[name])
    rate = links[name].bandwidth_bytes_per_second / 1e9
    print(f"{name:<11}{1e6 * links[name].latency_seconds:7.1f} µs a message, {rate:.2f} GB/s")
figures.show(draw_times(drawn, "Measured, and predicted from every other size"))

# %% tags=["nbval-ignore-output"]
payloads = [2.0**power for power in range(10, 28, 2)]
flat = ("naive", "ring", "recursive-doubling")
asked = {name: predict_seconds(name, 16, payloads, links["ours"]) for name in flat}
figures.show(draw_times(asked, "Simulated: 16 ranks on the link fitted to our ring"))
link = links["ours"]
for size in (2**10, 2**26):
    ring_time = simulate_all_reduce("ring", 16, size, link).seconds
    mine = doubling_seconds(16, size, link.latency_seconds, link.bandwidth_bytes_per_second)
    print(f"{format_bytes(size)}: ring {1e3 * ring_time:.2f} ms, your doubling {1e3 * mine:.2f} ms")
assert max(asked[name][1][-1] for name in flat[1:]) < asked["naive"][1][-1]

# %% [markdown]
# Two numbers give the shape of each line in the first picture: flat on the left, where latency is nearly everything, and rising on the right, where bytes are. Between the two, and wherever caches or other programs interfere, it can be wrong by a factor of two.
#
# The second picture asks about sixteen ranks on links like *yours*. In this model recursive doubling is fastest for short vectors, the ring for long ones, and naive never. That is why libraries have several algorithms and choose by size.
#
# ## The model against published clusters
#
# That was two processes on one computer. Does the model hold on real GPUs? NVIDIA's `nccl-tests` measures NCCL's all-reduce, and people publish the results. The picture below shows 29 sizes, published for two AWS p4de machines of eight A100s each; the model is fitted to two of these sizes, the smallest and 1 GiB.
#
# The table below it is from one machine of H200s and shows *bus bandwidth*: 2(P - 1)/P times the vector's bytes, divided by the time. That's how fast each rank would send in a ring, so for a ring it shouldn't depend on P. Here the model gets its bandwidth from the first row and a latency of 5 µs. (The files in `utils/simulate/published` name the machines and the tool, but not NCCL's version, nor who published them. Take them as examples.)

# %%
from utils.simulate.collective import Link
from utils.simulate.published import read_table

published = {r["bytes"]: r["time_us_out_of_place"] / 1e6 for r in read_table("nccl_allreduce_p4de")}
link, _ = fit_link("ring", 16, [8, 2**30], [published[8], published[2**30]])
model = predict_seconds("ring", 16, list(published), link)
both = {"published": (list(published), list(published.values())), "ring, model": model}
figures.show(draw_times(both, "NCCL on 2 x 8 A100, and a ring fitted at 8 B and 1 GiB"))
low = max(1 - seconds / published[size] for size, seconds in zip(*model))
print(f"the model is at most {100 * low:.0f} % too low")

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
# At its worst, in the middle of the curve, the model predicts about half of the published time. That's where gradients live: it gives 48 to 50 % of the time from 2 to 16 MiB, 64 % at 32 MiB and 68 % at 64 MiB. NCCL changes its algorithm and its protocol with the message size, and two numbers can't follow that. (The data don't say which ran at which size.)
#
# In the table the published ring is flat within a percent, as the model says. From five ranks on, the last column is above what the ring reached, 365 GB/s. From seven on it's even above what any ring could do on these links: NVLink 4 carries 450 GB/s each way. There the switch that connects the GPUs does the adding (NVLink SHARP), so each rank sends its vector only once.
#
# ## Buckets
#
# A model has many gradient arrays, most of them small. Reduced one by one, each would pay the latencies again. So they are packed end to end into *buckets*, and each bucket is reduced as one vector. TensorFlow calls them packs, and `bytes_per_pack` is the size at which a pack counts as full. At 0, the default, TensorFlow 2.21 packs everything into one. (We counted, below; the API page only says "determined automatically".)
#
# **Predict.** Our four gradients take 401,408, 512, 5,120 and 40 bytes. How many collectives are there with `bytes_per_pack=4096`?

# %%
my_guess = guess_number("Collectives", 0, 8)
my_guess


# %%
from utils.collectives import reduce_in_buckets


def count_packs(arrays, sizes):
    """Run in each worker: bytes per pack -> bytes of each collective in one all-reduce's graph."""
    strategy, counts = make_strategy("multi-worker", all_reduce="ring"), {}
    for size in sizes:
        options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=size)

        def reduce_replica(options=options):
            tensors = [tf.constant(array) for array in arrays]
            return tf.distribute.get_replica_context().all_reduce("SUM", tensors, options)

        graph = tf.function(lambda: strategy.run(reduce_replica)).get_concrete_function().graph
        collectives = [op for op in graph.get_operations() if "CollectiveReduce" in op.type]
        counts[size] = [4 * op.inputs[0].shape.num_elements() for op in collectives]
    return counts


packs = cluster.run(count_packs, gradients[0], (0, 1, 4096), timeout=60)[0]
show_guess(my_guess, len(packs[4096]), unit=" collectives")
print("bytes_per_pack -> bytes of each collective:", packs)
assert packs[4096] == [40 + 5120, 512 + 401_408]
cluster.close()
for bucket_bytes in (1, 4096, 8192, 2**20):
    bucketed = reduce_in_buckets(gradients, bucket_bytes)
    sent, messages = bucketed.bytes_per_rank[0], bucketed.messages_per_rank[0]
    name, count = f"bucket size {bucket_bytes:,} B:", len(bucketed.buckets)
    print(f"{name:<25}{count} in all, {messages:>2} messages, {sent:,} bytes a rank")
    np.testing.assert_allclose(bucketed.arrays[3][-1], np.sum(biases, axis=0), atol=1e-7)

# %% [markdown]
# TensorFlow begins with the last gradient and closes a pack once it holds more than `bytes_per_pack`. With 4,096, the arrays of 40 and 5,120 bytes fill the first pack, and the other two share the second. The four lines about buckets are from `reduce_in_buckets` in `utils`, whose buckets hold *at most* that many bytes, unless a single array is larger. The bytes are the same in every line; what changes is the number of messages.
#
# So why not always one bucket? Here is a simulated step with 100 MB of gradients in one bucket, on eight devices connected at 100 Gb/s. Move *Bucket* to the left: at which size do the devices wait least for the network, and why do they wait longer again below it?

# %%
from distlab.explorables import step_time_line
from utils.simulate.step import Network, StepWork, simulate_step

work, link = StepWork(0.01, 0.02, gradient_bytes=100e6), Link(20e-6, 12.5e9)
for megabytes in (100, 25):
    step = simulate_step(work, 8, Network(link), bucket_bytes=megabytes * 1e6)
    print(f"buckets of {megabytes:>3} MB: a step of {1e3 * step.step_seconds:.1f} ms")
assert step.step_seconds < 0.035
step_time_line(work, 8, link, bucket_bytes=100e6)

# %% [markdown]
# The backward pass computes the last layers' gradients first, and a bucket leaves as soon as it is full. A single bucket is only full when the backward pass is over: 44 ms. (Two cautions. The simulation uses the two-number model, which was a third to a half too low from 16 to 64 MiB on the A100s above. And it assumes that a full bucket leaves at once; we haven't measured when TensorFlow starts a pack.) With four buckets, three are reduced while the backward pass is still running, and the step takes 34 ms. Very small buckets lose again, because each one pays the latencies of a whole ring.
#
# ## The same through utils
#
# `utils.collectives` has the four algorithms for other numbers of ranks and any length. The cell asserts that its sums and its counts are the same as ours.

# %%
from utils.collectives import all_reduce

for name, counted in by_hand.items():
    result = all_reduce(vectors, name, ranks_per_node=2)
    assert (result.steps, max(result.messages_per_rank), max(result.bytes_per_rank)) == counted
    np.testing.assert_allclose(result.vectors[0], total, atol=1e-6)
    print(f"{name:<20}the same steps, messages and bytes")

# %% [markdown]
# ## What it costs
#
# How many copies of its vector does the busiest rank send as the group grows? The model counts them, up to 1,024 ranks:

# %%
print("ranks   naive   ring   doubling   (vectors that the busiest rank sends)")
for ranks in (2, 4, 8, 64, 1024):
    costs = [simulate_all_reduce(n, ranks, 1.0, Link(0, 1)) for n in flat]
    print(
        f"{ranks:>5}{costs[0].bytes_per_rank:>8.0f}{costs[1].bytes_per_rank:>7.2f}{costs[2].bytes_per_rank:>11.0f}"
    )

# %% [markdown]
# With a ring, each rank sends less than two copies of the gradients per step, for 8 ranks as for 1,024 (the 2.00 is rounded). What grows is the number of latencies. The last column is recursive doubling; NCCL's double trees would stay at two or below.
#
# **Recap**
#
# - **Write:** a ring all-reduce is two similar loops around the ring, one that adds and one that copies.
# - **Count:** each algorithm except the naive one is best at something.
# - **Choose:** `cross_device_ops` in one process, `CommunicationOptions` across workers; without GPUs, asking for NCCL is an error in the first and an ignored hint in the second.
# - **Pack:** four arrays in one bucket need a quarter of the messages. In the simulated step, four buckets finished before one, because three of them travel during the backward pass.
# - **Predict:** latency and bandwidth go a long way, until the library changes its algorithm.
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
# # yourself, in a function under strategy.run, with a tensor or a list of tensors:
# #   tf.distribute.get_replica_context().all_reduce("SUM", gradients)
# def ring_seconds(P, N, latency, bandwidth):  # P ranks, N bytes each, seconds, bytes per second
#     return 2 * (P - 1) * latency + 2 * (P - 1) / P * N / bandwidth
# ```
#
# A whole program for several workers that trains with this strategy: [multi_worker_custom_loop.py](../examples/multi_worker_custom_loop.py).
#
# ## On a real GPU
#
# `make gpu-check ARGS=all-reduces` times NCCL, the ring and one device on all GPUs of the machine, for several sizes.
# Look at the largest size in the row of NCCL, in ms.
# 2(P - 1)/P times its bytes, divided by that time, is the bus bandwidth. The time includes the call, so the links can do a little more.
#
# ## Further reading
#
# - Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, Journal of Parallel and Distributed Computing 69, 2009
# - Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, International Journal of High Performance Computing Applications 19, 2005
# - [Sergeev and Del Balso, Horovod](https://arxiv.org/abs/1802.05799), arXiv:1802.05799, 2018; [Li et al., PyTorch Distributed](https://arxiv.org/abs/2006.15704), arXiv:2006.15704, 2020, on buckets
# - API: [CrossDeviceOps](https://www.tensorflow.org/api_docs/python/tf/distribute/CrossDeviceOps), [CommunicationOptions](https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/CommunicationOptions), [ReplicaContext.all_reduce](https://www.tensorflow.org/api_docs/python/tf/distribute/ReplicaContext#all_reduce)
# - [nccl-tests, on bus bandwidth](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)
#
# ## The lab
#
# You write both halves of the ring, and predict what it costs, in [lab 06, ring all-reduce](../labs/lab06-ring-all-reduce.ipynb).
