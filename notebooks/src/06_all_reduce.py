# %% [markdown] shows="Naive, ring, recursive doubling and hierarchical, with messages and bytes counted; your own gradient on the ring, step by step; five algorithms race on one clock"
# # All-reduce
#
# Every step of data-parallel training needs a sum: each replica has a gradient, and all of them need the total. The obvious way is to send everything to one place. But then every replica you add makes the others wait longer. Here you sum gradients in four ways, count every message, and learn to predict what the sum costs before you rent the machines.
#
# **Time:** 60 minutes · **Prerequisites:** [the training loop by hand](04-custom-training-loop.ipynb), [loss scaling](05-loss-scaling.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Write a ring all-reduce: reduce-scatter, then all-gather.
# - Count the steps, messages and bytes of naive, ring, recursive-doubling and hierarchical all-reduce.
# - Compare two all-reduces although they round differently.
# - Time a collective, fit a latency and a bandwidth to your timings, and predict other timings from them.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
print(use_logical_devices(4))

# %%
import time
from collections import Counter

import numpy as np

# %% [markdown]
# ## Four ranks, ten numbers
#
# When a hundred GPUs send their gradients to one of them, it receives 99 and sends the sum 99 times. How little can the busiest GPU get by with?
#
# An operation that a group of processes carries out together is a *collective*, and its members are called *ranks*. An **all-reduce** is the collective that adds up one array from every rank and gives every rank the sum.
#
# Our four ranks are four replicas. Each computes a gradient on its own 32 Fashion-MNIST images. The picture shows the gradient of the last layer's bias: ten numbers per rank, and their sum in the bottom row. With the model's other arrays they make one long vector per rank, and that's what we'll send.

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


# %%
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
# Real ranks can't look into each other's memory, so they send messages. Ours live in one process, and sending is just a copy. What matters is the log that `Post` keeps: from whom, to whom, how many bytes. All messages of one *step* travel at the same time, and in a step each rank sends at most one and receives at most one.


# %%
class Post:
    """Carries arrays between ranks in this process, and writes every message down."""

    def __init__(self):
        self.steps, self.log = 0, []  # of (source, destination, bytes)

    def send(self, values, source, destination):
        self.log.append((source, destination, values.nbytes))
        return values.copy()

    def end_step(self):
        self.steps += 1


def run(algorithm, vectors, post):
    """Check every rank's sum; return the steps, and the most messages and bytes that a rank sends."""
    for result in algorithm(vectors, post):
        np.testing.assert_allclose(result, total, atol=1e-6)
    messages, sent = Counter(), Counter()
    for source, _, size in post.log:
        messages[source] += 1
        sent[source] += size
    return post.steps, max(messages.values()), max(sent.values())


# %% [markdown]
# ## Naive: everything to rank 0
#
# Rank 0 receives the other vectors one by one, adds them up, and sends the sum to each rank. The cell prints the steps, and how many messages and bytes the busiest rank sends.


# %%
def naive(vectors, post):
    total, others = vectors[0], range(1, len(vectors))
    for rank in others:
        total = total + post.send(vectors[rank], rank, 0)
        post.end_step()
    sums = [total]
    for rank in others:
        sums.append(post.send(total, 0, rank))
        post.end_step()
    return sums


costs = run(naive, vectors, Post())
print("steps, most messages, most bytes:", costs, "of", N)

# %% [markdown]
# One vector is 407,080 bytes. Rank 0 receives three and sends three. With P ranks, 2(P - 1) vectors pass through its one port while the others wait. With a hundred ranks that's 198 vectors.
#
# ## The ring
#
# Cut every vector into P chunks, and arrange the ranks in a ring. In each step every rank sends *one chunk* to its right neighbor, all at once.
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
from distlab.turns import lesson06 as turns

sent_chunk = turns.SENT_CHUNK.take(sent_chunk)
summed = "the sum of two ranks' numbers" if sent_chunk == 3 else "one rank's numbers: no progress"
print(f"chunk {sent_chunk} of rank 0, after turn 0: {summed}")


# %%
def reduce_scatter(chunks, post, ranks):  # chunks[p][k]: chunk k of ranks[p]
    count = len(chunks)
    for turn in range(count - 1):
        for p in range(count):
            right, k = (p + 1) % count, (p - turn) % count
            arrived = post.send(chunks[p][k], ranks[p], ranks[right])
            chunks[right][k] = chunks[right][k] + arrived
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


# %%
from distlab.exercises.predict import show_guess

costs = run(ring, vectors, Post())
show_guess(my_guess, round(costs[2] / N, 3), unit=" times")
print("steps, most messages, most bytes:", costs)

# %% [markdown]
# The ring takes as many steps as naive, with messages of a quarter of the size. A rank sends 2(P - 1)/P times the vector: three quarters in each half. (0.75 forgets the all-gather.) That's less than two vectors *however many ranks there are*, and the load is even. As long as the ranks do the adding, no all-reduce can get by with less on its busiest rank.
#
# Now watch it with your own gradients. Each rank is a circle in its own color, cut into four chunks. Each chunk shows the first of its two or three numbers. Press Step: the bands in a chunk show whose numbers it has added up, and it turns green, with stripes, when it holds the complete sum. On the right is the addition that each message makes. Stop after step 3, when each rank has one striped chunk. Which rank holds which complete sum?

# %%
from distlab.explorables import ring_of

ring_of(biases)

# %% [markdown]
# ## Recursive doubling and hierarchical
#
# A ring of P ranks needs 2(P - 1) steps. Every step costs a *latency*, the time that even an empty message takes. So for short vectors, fewer steps are better. In **recursive doubling**, each rank swaps its sum with a partner at distance 1, then 2, then 4, and so on. At distance 1 ranks 0 and 1 swap, and so do 2 and 3. At distance 2 it's 0 and 2, and 1 and 3. (So the partner is `rank ^ distance`: one bit of the rank flips.) That takes log2 P steps, each with the whole vector. The number of ranks must be a power of two here.
#
# **Hierarchical** is for machines that hold several ranks each, where the network between machines is the slow part. Add up inside every machine, run a ring over one leader per machine, and pass the sum back. Here each machine has two ranks: 0 and 1, 2 and 3. (If every GPU has its own network card, one leader leaves most cards idle. One ring per chunk is better.)


# %%
def recursive_doubling(vectors, post):
    ranks, distance = range(len(vectors)), 1
    while distance < len(ranks):
        swapped = [post.send(vectors[r ^ distance], r ^ distance, r) for r in ranks]
        vectors = [vectors[r] + swapped[r] for r in ranks]
        distance *= 2
        post.end_step()
    return vectors


def hierarchical(vectors, post):  # two ranks on each machine
    leaders = range(0, len(vectors), 2)
    sums = [vectors[a] + post.send(vectors[a + 1], a + 1, a) for a in leaders]
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
# Three of the four are best at something. Recursive doubling needs the fewest steps, and its busiest rank sends the fewest messages; the ring's sends the fewest bytes, and hierarchical sends the fewest between the machines. Naive is best in none of these columns.
#
# Which of them is fastest? That depends on the vector and on the links. Here all four race on one clock, with eight ranks. A plain *tree* is the fifth: half of the ranks drop out in each step up to rank 0, and come back on the way down. Press Play. The bar below shows who wins at which size.

# %%
from distlab.explorables import all_reduce_race

all_reduce_race()

# %% [markdown]
# Three things to try:
#
# 1. Find a size at which the ring wins, and one at which it loses. (Latency decides for short vectors, bytes for long ones.)
# 2. Go from 8 ranks to 16. The naive curve climbs, and the ring's right end hardly moves: that is the 2(P - 1)/P.
# 3. Make the links inside a node 10 times as fast (under *More*). The ring gains nothing. Why? And which algorithm gains most?
#
# ## The mistake: comparing sums to the bit
#
# You move a run from one machine to two, and the losses differ in the sixth digit. Is that a bug? Here all four algorithms add up 1,000 random float32 numbers of each of four ranks. The obvious test asks for equal sums.

# %%
numbers = np.random.default_rng(0).normal(size=(4, 1000)).astype("float32")
sums = {name: algorithm(list(numbers), Post()) for name, algorithm in algorithms.items()}
for name, per_rank in sums.items():
    equal = int(np.sum(per_rank[0] == sums["naive"][0]))
    everywhere = all(np.array_equal(per_rank[0], other) for other in per_rank)
    print(f"{name:<20}{equal:>5} of 1000 as in naive; the same bits on every rank: {everywhere}")
    np.testing.assert_allclose(per_rank[0], sums["naive"][0], rtol=1e-5, atol=1e-6)  # the fix

# %% [markdown]
# All four are correct, and a test with `==` calls three of them wrong. Floating-point addition rounds, so the result depends on the order. (The ring adds chunk 0 in the order 0, 1, 2, 3, as naive does, and chunk 3 in the order 3, 0, 1, 2.) The fix is the last line of the cell: compare with a tolerance.
#
# The other column matters more. Every rank gets the same bits, or the copies of the weights would drift apart.
#
# ## Between processes
#
# `ProcessRing` in `utils` is our ring between real processes: each holds one socket to the next rank and one from the previous. We time it against the ring that TensorFlow uses between workers without GPUs ([lesson 09](09-multi-worker-mirrored.ipynb)).
#
# How do you time a collective? Three things in the cell matter. The first call isn't timed, because it traces the graph and opens connections. A barrier before each timed call makes both workers start together, or you'd time the wait for the slower one. And the two take turns, so that other programs slow both alike. The best of seven rounds counts.


# %%
from utils.collectives import ProcessRing


def time_both(addresses, sizes, rounds=7):
    """Run in each worker: {name: best seconds for each size} of our ring and of TensorFlow's."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id

    def reduce_replica(values):
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(values))

    best = {"ours": [], "TensorFlow": []}
    with ProcessRing(addresses, rank, limit_seconds=60) as ring:
        for size in sizes:
            values = np.full(size // 4, rank + 1, "float32")
            compiled = tf.function(lambda v: strategy.run(reduce_replica, args=(v,)))
            ways = {"ours": ring.all_reduce}
            ways["TensorFlow"] = lambda v, step=compiled: step(tf.constant(v)).numpy()
            for name, way in ways.items():
                assert (way(values) == 1 + 2).all()  # the untimed call
                best[name].append(np.inf)
            for name in rounds * list(ways):  # in turn
                ring.all_reduce(np.zeros(2, "float32"))  # the barrier
                begun = time.perf_counter()
                ways[name](values)
                best[name][-1] = min(best[name][-1], time.perf_counter() - begun)
    return best


# %% tags=["nbval-ignore-output"]
from utils.cluster import LocalCluster
from utils.tf_config import pick_free_ports

addresses = [f"127.0.0.1:{port}" for port in pick_free_ports(2)]
sizes = [1024 * 4**power for power in range(7)]  # 1 KiB to 4 MiB
with LocalCluster(workers=2, devices="cpu") as cluster:
    best = cluster.run(time_both, addresses, sizes, timeout=120)[0]  # worker 0's
print("µs for 1 KiB:", {name: round(1e6 * seconds[0]) for name, seconds in best.items()})
assert all(seconds[-1] > seconds[0] for seconds in best.values())  # 4 MiB and 1 KiB

# %% [markdown]
# ## Latency and bandwidth, from your own timings
#
# Can two numbers predict all of these times? The *alpha-beta model* says that a message of n bytes takes alpha + n / bandwidth, where alpha is the latency. A ring of P ranks then takes 2(P - 1) latencies, plus 2(P - 1)/P times the vector's bytes, divided by the bandwidth. We fit both to every other size, then predict all sizes, and sixteen ranks.
#
# **Your turn.** Recursive doubling moves the whole vector in each of its steps. How many seconds does it take on such links? `size` is in bytes, `latency` in seconds, `bandwidth` in bytes per second.


# %%
def doubling_seconds(ranks, size, latency, bandwidth):
    return ...


# %% tags=["nbval-ignore-output"]
from distlab.lessons.all_reduce_race import draw_times
from utils.simulate.collective import Link, fit_link, simulate_all_reduce

doubling_seconds = turns.DOUBLING.take(doubling_seconds)

drawn, links = {}, {}
for name, seconds in best.items():
    links[name], _ = fit_link("ring", 2, sizes[::2], seconds[::2], relative=True)
    drawn[f"{name}, measured"] = sizes, seconds
    predicted = [simulate_all_reduce("ring", 2, size, links[name]).seconds for size in sizes]
    drawn[f"{name}, predicted"] = sizes, predicted
    assert 0.1 < predicted[0] / seconds[0] < 10
    rate = links[name].bandwidth_bytes_per_second / 1e9
    print(f"{name:<11}{1e6 * links[name].latency_seconds:7.1f} µs a message, {rate:.2f} GB/s")
figures.show(draw_times(drawn, "Measured, and predicted from every other size"))

# %% tags=["nbval-ignore-output"]
link = links["ours"]
for size in (2**10, 2**26):  # sixteen ranks on the link fitted to our ring
    row = {n: simulate_all_reduce(n, 16, size, link).seconds for n in ("naive", "ring")}
    row["your doubling"] = doubling_seconds(
        16, size, link.latency_seconds, link.bandwidth_bytes_per_second
    )
    print(f"{format_bytes(size)}:", {name: f"{1e3 * value:.2f} ms" for name, value in row.items()})

# %% [markdown]
# Two numbers give the shape of each line: flat on the left, where latency is nearly everything, and rising on the right, where bytes are. In between, the model can be wrong by a factor of two. ([Lesson 07](07-what-a-step-sends.ipynb) tests it on published clusters.) On the left the two wait for different things. Our ring sends at once. TensorFlow's goes through its runtime's threads and gRPC, its network layer, and the receiver has to *ask* for each chunk.
#
# The last cell puts sixteen ranks on links like *yours*. In this model doubling wins for short vectors and the ring for long ones. So libraries have several algorithms and choose by size.
#
# ## What it costs
#
# The model counts what the busiest rank sends, for groups of up to 1,024:

# %%
kinds = ("naive", "ring", "recursive-doubling", "tree")
print("ranks   naive    ring   doubling   tree   (vectors that the busiest rank sends)")
for ranks in (2, 4, 8, 64, 1024):
    costs = [simulate_all_reduce(n, ranks, 1.0, Link(0, 1)) for n in kinds]
    sent = [cost.bytes_per_rank for cost in costs]
    assert sent[1] < 2
    print(f"{ranks:>5}{sent[0]:>8.0f}{sent[1]:>8.3f}{sent[2]:>11.0f}{sent[3]:>7.0f}")

# %% [markdown]
# In a ring, each rank sends less than two vectors per all-reduce, for 8 ranks as for 1,024. What grows is the number of latencies. (NCCL, NVIDIA's library, has double binary trees, in which no rank sends more than two vectors.)
#
# **Recap**
#
# - **Write:** a ring all-reduce is two similar loops around the ring, one that adds and one that copies.
# - **Count:** on four ranks, each algorithm except the naive one had the smallest number in some column.
# - **Compare:** two correct sums differ in their last bits; use a tolerance.
# - **Predict:** an untimed call, a barrier, turns; then latency and bandwidth go a long way.
#
# ## Cheat sheet
#
# ```python
# import tensorflow as tf
# strategy = tf.distribute.MirroredStrategy()  # or MultiWorkerMirroredStrategy
# total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.ones(2)))
# def ring_seconds(P, N, latency, bandwidth):  # P ranks, N bytes each, seconds, bytes per second
#     return 2 * (P - 1) * latency + 2 * (P - 1) / P * N / bandwidth
# ```
#
# `utils.collectives` has all five algorithms. A whole program for several workers, with TensorFlow adding up the gradients: [multi_worker_custom_loop.py](../examples/multi_worker_custom_loop.py).
#
# ## On a real GPU
#
# `make gpu-check ARGS=all-reduces` times NCCL, the ring, the hierarchical copy (on an even number) and one device on the machine's GPUs, for several sizes.
# Look at the largest size in the row of NCCL, in ms.
# 2(P - 1)/P times its bytes, divided by that time, is the bus bandwidth. The time includes the call, so the links can do a little more.
#
# ## Further reading
#
# - Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, Journal of Parallel and Distributed Computing 69, 2009
# - Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, International Journal of High Performance Computing Applications 19, 2005
# - [Sergeev and Del Balso, Horovod](https://arxiv.org/abs/1802.05799), arXiv:1802.05799, 2018
# - API: [ReplicaContext.all_reduce](https://www.tensorflow.org/api_docs/python/tf/distribute/ReplicaContext#all_reduce)
# - [nccl-tests, on bus bandwidth](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)
#
# ## The lab
#
# You write both halves of the ring, and predict what it costs, in [lab 06, ring all-reduce](../labs/lab06-ring-all-reduce.ipynb).
