# %% [markdown] shows="ParameterServerStrategy: a coordinator, workers and servers; staleness measured and bounded"
# # Parameter servers
#
# In synchronous training one slow worker holds up all the others. And where do you put an embedding table that no single worker can hold? Parameter servers are one answer to both: the variables live in pieces on separate servers, and no worker waits for another. The price: gradients arrive late. Here you run a coordinator, two workers and two servers as real processes, and measure both sides.
#
# **Time:** 85 minutes · **Prerequisites:** [the training loop by hand](04-custom-training-loop.ipynb), [what a step sends](07-what-a-step-sends.ipynb), [TF_CONFIG](08-tf-config.ipynb), [runs that survive](10-fault-tolerance.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Schedule closures (compiled functions with their arguments) on workers, wait for them and fetch their results.
# - Place variables on parameter servers in pieces, and count the bytes that a step moves.
# - Measure how stale every update is, and choose a learning rate that stays stable all the same.
# - Count steps exactly where Keras 3 loses some.
# - Lose a worker and a server, and say what each of them costs.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
print(use_logical_devices(1))

# %%
import tempfile
from itertools import islice

import keras
import numpy as np

# %% [markdown]
# ## Three kinds of process
#
# *Parameter servers* (the job `ps`) hold the variables, each server a part of them. *Workers* read the variables, compute a gradient and send it back, each at its own pace. The *coordinator* (the job `chief`) is where your program runs: it hands out the work.
#
# It takes two short functions to set this up by hand. Every worker and every server runs a `tf.distribute.Server`, which listens, does what it is told, and never returns. The coordinator gets the same list of addresses. We start four processes, each on a free port of this computer: the coordinator, two workers and one server. The coordinator asks a worker to add 22 to a variable that holds 20.

# %%
from distlab import figures
from distlab.lessons.server_pictures import draw_parameter_servers

figures.show(draw_parameter_servers())


def serve(addresses, job, index):
    """What each worker and each parameter server runs, until it is killed."""
    spec = tf.train.ClusterSpec(addresses)
    tf.distribute.Server(spec, job_name=job, task_index=index, protocol="grpc").join()


def coordinate(addresses):
    """What the coordinator runs: your program."""
    spec, here = tf.train.ClusterSpec(addresses), {"task_type": "chief", "task_id": 0}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc", **here)
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variable = tf.Variable(20)
    promise = coordinator.schedule(tf.function(lambda: variable.assign_add(22)))
    return promise.fetch(), variable.device


# %%
from utils.cluster import LocalCluster, make_launcher

launcher = make_launcher()  # a process that has imported TensorFlow: all clusters here fork from it
roles = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]
addresses = {}
for (job, _), address in zip(roles, launcher.find_addresses(len(roles))):
    addresses.setdefault(job, []).append(address)
one = LocalCluster(workers=1, launcher=launcher)  # starts one process at a time
servers = [one.start(serve, addresses, *role) for role in roles[1:]]
fetched, device = one.run(coordinate, addresses, timeout=60, echo=False)[0]
print("fetched", fetched, "from", device)
for server in servers:
    server.stop()  # they would wait for ever
assert fetched == 42 and "/job:ps" in device

# %% [markdown]
# `LocalCluster(workers=2, ps=2)` does this for you: it finds ports, sets `TF_CONFIG` in each process, starts the servers and stops them. On your own machines one program can play every role, as on the cheat sheet. The servers listen on every network interface, without a password, so use a network that you trust.
#
# ## Schedule, join, fetch
#
# A *closure* is a compiled function and its arguments. `schedule` puts it in a queue and returns at once, with a promise of its result; any free worker takes the next one. `join` waits until all closures are done, `fetch` gets the results.
#
# The coordinator runs the function below. It schedules 150 closures that add 1 to a variable `a` in one go (`assign_add`: the server adds). Then 150 more add 1 to `b` as you would in Python: read it, add, write it back.
#
# Both variables begin at 0, and two workers split the closures.


# %%
def count_together(closures):
    """Return both counts, the device of a variable, and how many closures each worker ran."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        a, b = tf.Variable(0, dtype=tf.int64), tf.Variable(0, dtype=tf.int64)

    @tf.function
    def in_one_go():
        a.assign_add(1)
        return tf.distribute.coordinator.experimental_get_current_worker_index()

    @tf.function
    def read_add_write():
        b.assign(b + 1)

    results = [coordinator.schedule(in_one_go) for _ in range(closures)]
    coordinator.join()
    by_worker = np.bincount(coordinator.fetch(results), minlength=2)
    for _ in range(closures):
        coordinator.schedule(read_add_write)
    coordinator.join()
    return int(a.numpy()), int(b.numpy()), a.device, by_worker


# %% tags=["nbval-ignore-output"]
cluster = LocalCluster(workers=2, ps=2, launcher=launcher)
in_one_go, read_add_write, device, by_worker = cluster.run(count_together, 150)
print(f"the variable lives on {device}; closures run by worker 0 and 1: {by_worker}")
print("added in one go:", in_one_go)
print("read, added, written:", read_add_write)
assert in_one_go == by_worker.sum() == 150 >= read_add_write and "/job:ps" in device

# %% [markdown]
# `a` has all 150: a server loses none of the additions. `b` loses an addition whenever one worker writes between the other's read and its write: the later one starts from the old number, and the other's addition is gone. How many get lost depends on the machine, and changes from run to run. Keep `b` in mind: it comes back in Keras.
#
# ## Where the variables live
#
# Parameter servers suit models that are mostly embedding tables: a row for each user, product or word. We make ours from pixels. Each image is cut into 49 patches. The gray of each quarter of a patch is rounded to one of 8 levels, so a patch shows one of 8⁴ = 4,096 patterns. Its place and its pattern together make a *token*, like a word. Every token has its row in a table, 16 float32 numbers, and the model adds up the rows of an image's tokens.
#
# A *partitioner* cuts large variables along their first axis, here into at most two pieces, one for each server. The table has 49 places x 4,096 patterns = 200,704 rows. Where do they go?
#
# **Your turn.** `MinSizePartitioner` divides a variable's bytes by `min_shard_bytes` and rounds up. It makes that many pieces, but never more than `max_shards`, nor more than the variable has rows. Into how many pieces does it cut a variable of `size` bytes with plenty of rows?


# %%
def count_pieces(size, min_shard_bytes, max_shards):
    return ...


# %%
from distlab.turns import lesson11 as turns
from utils.measure import format_bytes

count_pieces = turns.PIECES.take(count_pieces)
partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(256 << 10, max_shards=2)
for units in (32, 128, 256):
    real, _ = partitioner(tf.TensorShape([784, units]), tf.float32)
    mine = count_pieces(784 * units * 4, 256 << 10, 2)
    size = format_bytes(784 * units * 4)
    print(f"kernel of Dense({units}), {size}: {real} in TensorFlow, {mine} by your count")

# %%
from utils.models import build_embedding_model
from utils.training.parameter_server import variables
from utils.training.parameter_server.coordination import connect


def show_placement():
    """Return where each piece of the model's variables is."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
        min_shard_bytes=256 << 10, max_shards=2
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    with strategy.scope():
        return variables.describe_pieces(build_embedding_model().trainable_variables)


def show_with_connect():
    with connect(min_shard_bytes=256 << 10).strategy.scope():
        return variables.describe_pieces(build_embedding_model().trainable_variables)


pieces = cluster.run(show_placement)
print(variables.format_pieces(pieces))
assert pieces == cluster.run(show_with_connect)

# %% [markdown]
# The table is in two halves; the small variables stay whole and go to the servers in turn. (Don't trust the name: the kernel of 392 KiB becomes two pieces of 196 KiB, and both are smaller than `min_shard_bytes`.) Later cells use `connect` from utils, which makes resolver, partitioner, strategy and coordinator in one call. The last line checked that it places the same pieces on the same servers.
#
# ## A complete training loop
#
# Here is a training in TensorFlow's own words: a table, a layer on top of it, and two lines that make the difference. `create_per_worker_dataset` sends your function to the workers, and each makes a dataset there and reads from it alone. `tf.nn.embedding_lookup` reads the rows of a batch's tokens and no others.


# %%
from utils.data import load

train = load("fashion_mnist").train
images, labels = train.images[:1000, ..., None] / np.float32(255), train.labels[:1000]
tokens = build_embedding_model().layers[0](images).numpy()  # [1000, 49], rows of the table
print("rows of the first image:", tokens[0, :4], "…")


# %%
def train_table(tokens, labels, steps):
    """Train on the workers; return the loss of each step, and where the table is."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        table = tf.Variable(tf.zeros([200_704, 16]))
        kernel = tf.Variable(tf.random.stateless_normal([16, 10], [0, 0]))

    def make_dataset():
        data = tf.data.Dataset.from_tensor_slices((tokens, labels))
        return data.shuffle(1000).repeat().batch(32)

    @tf.function
    def step(iterator):
        tokens, labels = next(iterator)  # [32, 49], [32]
        with tf.GradientTape() as tape:
            rows = tf.nn.embedding_lookup(table, tokens)  # [32, 49, 16]
            logits = tf.reduce_sum(rows, axis=1) @ kernel
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        slices, gradient = tape.gradient(loss, [table, kernel])
        table.scatter_sub(tf.IndexedSlices(0.05 * slices.values, slices.indices))
        kernel.assign_sub(0.05 * gradient)
        return loss

    batches = iter(coordinator.create_per_worker_dataset(make_dataset))
    promises = [coordinator.schedule(step, args=(batches,)) for _ in range(steps)]
    coordinator.join()
    return coordinator.fetch(promises), table.device


# %% tags=["nbval-ignore-output"]
losses, device = cluster.run(train_table, tokens, labels, 200)
print(f"the table is on {device}")
first, last = np.mean(losses[:20]), np.mean(losses[-20:])
print(f"mean loss of the first 20 steps {first:.2f}, of the last 20 {last:.2f}")
assert last < first

# %% [markdown]
# No worker waited for another: there's no all-reduce in the step.
#
# ## A step moves the rows it touches
#
# A batch of 32 images has 32 x 49 = 1,568 tokens. Our model looks them up on the server, where the table lives. So only those rows travel, and the gradient goes back as *IndexedSlices*: row numbers and rows. `keras.layers.Embedding` is less careful under this strategy: it reads the whole variable first. We count the bytes of both on the *loopback* device, the network between the processes of one machine. (What other programs send there counts too.)
#
# **Your turn.** The whole table takes 12,544 KiB. How many KiB does a step move if it reads and writes only its own rows? (Take every token as a different one, and leave out the row numbers, which travel with the rows.)

# %%
moved = ...  # KiB, an expression

# %%
from utils.training.parameter_server.coordination import find_worker

moved = turns.MOVED.take(moved)


def cross_entropy(labels, logits):
    """Return the loss of each example, [batch]; `logits` is [batch, 10]."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def make_batches(images, labels, size=32):
    """Return this worker's batches, for ever, in an order of its own."""
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    return data.shuffle(len(labels), seed=find_worker()).repeat().batch(size)


def build_keras_embedding():
    own = build_embedding_model()
    rows = keras.layers.Embedding(own.layers[1].rows, 16, embeddings_initializer="zeros")
    total = keras.layers.GlobalAveragePooling1D()
    layers = [keras.Input((28, 28, 1)), own.layers[0], rows, total, keras.layers.Dense(10)]
    return keras.Sequential(layers)


# %%
from distlab.lessons.loopback_traffic import measure_traffic
from utils.training.parameter_server.loop import AsynchronousLoop


def count_bytes(images, labels):
    """Return the bytes a step of 32 images moves, with each of the two lookups."""
    coordination, found = connect(), {}
    for name, build in {"own": build_embedding_model, "keras": build_keras_embedding}.items():
        with coordination.strategy.scope():
            model, sgd = build(), keras.optimizers.SGD(0.1)
        parts = (coordination, model, sgd, cross_entropy, lambda: make_batches(images, labels))
        loop = AsynchronousLoop(*parts)
        loop.run(4)  # traced, connected
        found[name] = measure_traffic(lambda: loop.run(10), 10)
    return found


# %% tags=["nbval-ignore-output"]
sent = cluster.run(count_bytes, images, labels)
table_bytes = sum(piece.payload_bytes for piece in pieces)
print(f"only its rows: {sent['own'] / 1024:.0f} KiB measured, {moved:.0f} KiB by your count")
print(f"Keras Embedding: {sent['keras'] / 1024:,.0f} KiB, in a step of as many images")
assert 32 * 49 * 16 * 4 < sent["own"] < table_bytes / 4 and sent["keras"] > 5 * sent["own"]

# %% [markdown]
# The lookup belongs where the table is.
#
# ## Where big tables live today
#
# Bytes alone aren't a reason for parameter servers. The reasons are a table that, with its optimizer's state, no longer fits into a worker, and workers that never wait. With fast links the table isn't a reason any more: today most such tables are cut over the *workers* (DLRM below, TorchRec, HugeCTR, TPU embeddings). They train synchronously and fetch each other's rows in an *all-to-all*: every worker sends every other worker its own part. First each asks the owners for its rows, then the owners answer. Here it is for four workers, in NumPy:

# %%
rows = np.random.default_rng(0).normal(size=(200_704, 16)).astype("float32")  # the table
held = np.split(rows, 4)  # worker w holds 50,176 rows, from row 50,176 w on
needed = [tokens[32 * worker : 32 * (worker + 1)].ravel() for worker in range(4)]


def all_to_all(boxes):  # boxes[a][b] goes from a to b, and arrives as [b][a]
    return [list(arrived) for arrived in zip(*boxes)]


def by_owner(numbers):
    return [numbers[numbers // len(held[0]) == owner] for owner in range(4)]


asked = all_to_all([by_owner(numbers) for numbers in needed])  # asked[owner][worker]
answers = [[held[w][numbers % len(held[w])] for numbers in asked[w]] for w in range(4)]
received = all_to_all(answers)  # received[worker][owner]
for worker, numbers in enumerate(needed):
    got, wanted = np.concatenate(received[worker]), np.concatenate(by_owner(numbers))
    np.testing.assert_array_equal(got, rows[wanted])
far = sum(a.nbytes for w in range(4) for owner, a in enumerate(received[w]) if owner != w) / 4
print(f"{far / 1024:.0f} KiB of rows for each worker, {rows.nbytes / 1024:,.0f} KiB in the table")

# %% [markdown]
# The gradients of the rows go back the same way. For dense models, parameter servers save no bytes: a step reads all variables and writes all gradients. And with fast all-reduces, few people still accept late gradients there.
#
# ## Staleness
#
# While a worker computes, others write. By the time its gradient is ready, the parameters have moved on. The number of updates that came in between is the gradient's *staleness*.
#
# To measure it, we borrow the ticket machine from a bakery. Before a closure reads the parameters, it looks at the number on the machine. When its gradient is ready, it draws that machine's next ticket; no number is drawn twice. Staleness is the number on the ticket minus the number seen at the start: that many others drew in between. `open_windows` schedules closures that do this and nothing else. A sleep stands for the computation ([its code](../distlab/lessons/stale_updates.py) is 25 lines).
#
# **Predict.** Two workers; worker 1 takes five times as long as worker 0. Roughly what is the mean staleness over the updates of both?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Mean staleness", 0, 6, step=0.1)
my_guess


# %% tags=["nbval-ignore-output"]
from distlab.exercises.predict import show_guess
from distlab.lessons.stale_updates import open_windows
from distlab.lessons.update_records import make_spans, mean_staleness, mean_staleness_by_worker

even, slow = (cluster.run(open_windows, 40, delays) for delays in ((0.05, 0.05), (0.03, 0.15)))
figures.show(figures.timeline(make_spans(slow[:24]), title="Staleness of the first 24 updates"))
for name, updates in {"two even workers": even, "worker 1 is slow": slow}.items():
    means = mean_staleness_by_worker(updates)
    print(f"{name}: mean staleness {mean_staleness(updates):.2f};", end=" ")
    print(", ".join(f"worker {w} {mean:.2f}" for w, mean in means.items()))
    assert mean_staleness(updates) <= 1 and [u.ticket for u in updates] == list(range(40))
show_guess(my_guess, mean_staleness(slow))

# %% [markdown]
# The number on a bar is the staleness of that update. Surprisingly, the mean can't exceed the number of workers minus one, whatever their speeds. Each worker has at most one window open at a time. So a ticket makes at most one update of each *other* worker staler, by 1. (If you said more than 1, you thought of the slow worker's updates, which are stale but rare.) A slow worker doesn't push the mean past that limit. It piles the staleness onto its own, rare updates.
#
# And how much speed do you keep, in gradients used per second? Let one of three equal workers become five times slower. A synchronous group waits for its slowest member, so it falls to a fifth of its former speed. Without waiting, the two others work on as before and the slow one still gives a fifth, so (1 + 1 + 1/5) / 3 = 73 % is left. [Lesson 21](21-choosing.ipynb) asks what that speed is worth, and what happens if a synchronous round leaves out its slowest workers.
#
# ## A learning rate that stays stable
#
# Why would an old gradient hurt? It points downhill from where the weights *were*, so a large step overshoots before anyone notices. Let *k* be the largest curvature of the loss: how much the gradient changes for a step of length 1 in the direction where it changes most. Plain gradient descent is stable for rates below 2/*k*. If every gradient has the staleness *s*, the limit is 2 sin(π / (4*s* + 2)) / *k*. With *s* = 1 that is 1/*k*, half as much.
#
# For a least-squares fit we can compute *k*, so we choose a rate between the two limits, 1.5/*k*. We try it with one closure in flight, whose gradient is never stale, and with both workers busy. [`descend_squares`](../distlab/lessons/stale_updates.py) does it with the tickets from above: read the weights, compute the gradient, draw a ticket, write.
#
# **Predict.** With both workers busy at 1.5/*k*: is the loss after 40 updates smaller or larger than at the start? (It swings from one update to the next, so the largest of the last ten counts.)

# %%
from distlab.explorables import guess_word

limits = [f"{2 * np.sin(np.pi / (4 * s + 2)):.2f}/k" for s in (0, 1, 2)]
print("limit of the rate for a staleness of 0, 1, 2:", ", ".join(limits))
my_guess = guess_word("The loss after 40 updates is", "smaller", "larger")
my_guess

# %% tags=["nbval-ignore-output"]
from distlab.lessons.stale_updates import descend_squares

x, y = images[:256].reshape(256, -1), np.eye(10, dtype=np.float32)[labels[:256]]
curvature = float(np.linalg.norm(x, 2) ** 2 / len(x))  # k
busy = {"delays": (0.03, 0.03)}
cases = {
    "1.5/k, one in flight": (1.5 / curvature, 1, busy),
    "1.5/k, both": (1.5 / curvature, 40, busy),
    "0.5/k, both": (0.5 / curvature, 40, busy),
    "1.25/k, damped": (1.25 / curvature, 40, {**busy, "staleness_scaling": True}),
    "1.5/k, only fresh gradients": (1.5 / curvature, 40, {**busy, "max_staleness": 0}),
}
found = dict(zip(cases, cluster.run(descend_squares, x, y, list(cases.values()))))
losses = {name: [update.loss for update in updates] for name, (updates, _) in found.items()}
words = {"x_label": "update", "y_label": "loss", "title": "Loss with and without stale gradients"}
drawn = {name: (range(40), losses[name]) for name in list(cases)[:3]}
figures.show(figures.lines(drawn, log_y=True, **words))
show_guess(my_guess, "larger" if max(losses["1.5/k, both"][-10:]) > 0.5 else "smaller")
for name in list(cases)[3:]:
    written = sum(update.written for update in found[name][0])
    print(f"{name:<29}loss {losses[name][-1]:.3f} at the end, {written} of 40 updates written")
for name in ("1.5/k, one in flight", "1.5/k, only fresh gradients"):  # never stale
    assert losses[name][-1] < losses[name][0]

# %% [markdown]
# Same model, same data, same rate: training that is stable with one closure in flight explodes with a staleness of about one. At 0.5/k it is stable again, with both workers busy. (Where the exploding curve dips, the weights swing past the minimum and come close to it for a moment.)
#
# The last two printed lines are two more remedies, both options of `StalenessLoop`, the loop behind `descend_squares`. `staleness_scaling=True` damps: it divides a gradient by 1 + its staleness. (That hardly helps Adam, which divides by the size of its recent gradients.) `max_staleness=n` drops gradients staler than *n*. Both know the staleness in time, because the ticket is drawn before anything is written. An update that has its ticket but isn't written yet counts as missed.
#
# Neither is free: damping takes smaller steps, and dropping throws away work that was already done. And damping has a limit too, 4/3 of 1/*k* for two workers that move in step, so we tried it at 1.25/*k*. [Lesson 21](21-choosing.ipynb) lets four ways of training race, on a simulated clock.
#
# ## A counter that loses steps
#
# Keras 3 counts an optimizer's steps with `iterations.assign(iterations + 1)`: read, add, write back, like `b` above. `use_atomic_step_counter(optimizer)` replaces that one method by an addition at the server. Who cares? Adam does. To correct the bias of its first averages, it multiplies its rate by a factor that depends on the number of steps and approaches 1 as they add up.


# %%
from utils.training.parameter_server import counting


def count_steps(steps):
    """Return what Keras counted, and what the exact counter did, after `steps` of Adam each."""
    coordination, counts = connect(), []
    for prepare in (lambda optimizer: None, counting.use_atomic_step_counter):
        with coordination.strategy.scope():
            weights, adam = tf.Variable(tf.zeros(10)), keras.optimizers.Adam()
            adam.build([weights])
        prepare(adam)

        def step(adam=adam, weights=weights):
            adam.apply_gradients([(tf.ones(10), weights)])

        closure = tf.function(lambda step=step: coordination.strategy.run(step))
        for _ in range(steps):
            coordination.coordinator.schedule(closure)
        coordination.coordinator.join()
        counts.append(int(adam.iterations.numpy()))
    return counts


# %% tags=["nbval-ignore-output"]
lossy, exact = cluster.run(count_steps, 150)
print(f"of 150 steps Keras counted {lossy}, the exact counter {exact}")
is_, should = counting.adam_correction(lossy), counting.adam_correction(exact)
print(f"Adam's factor is {is_:.3f} instead of {should:.3f}")
assert exact == 150 >= lossy

# %% [markdown]
# The weights got every gradient; only the count is short. Whatever reads it is behind: Adam's factor, a learning-rate schedule, your own "stop after *n* steps".
#
# ## A worker dies and comes back
#
# A worker holds no variables. If it dies in the middle of a closure, the coordinator gives that closure to another worker. When it is back, it takes closures again, and its dataset starts from the beginning.
#
# You know the cockpit from [lesson 08](08-tf-config.ipynb), where killing one worker stopped both. Here are two workers and two servers in it. A block is one update: read the parameters, compute, write. (`make_loop` makes a `StalenessLoop` in which each update takes at least 80 ms.) The cell kills worker 1 after 30 updates, starts it again after 60, and waits until it takes part. Then the buttons are yours: **slow down**, **pause** or **kill** worker 1, or switch on **Chaos**. What does worker 0 do?

# %% tags=["nbval-ignore-output"]
from distlab.explorables import cockpit
from distlab.lessons.stale_updates import StalenessLoop
from distlab.lessons.watched_servers import train_and_tell
from utils.models import build_mlp


def make_loop():
    coordination = connect()
    with coordination.strategy.scope():
        model, sgd = build_mlp(), keras.optimizers.SGD(0.05)
    parts = (coordination, model, sgd, cross_entropy, lambda: make_batches(images, labels))
    return StalenessLoop(*parts, delays=(0.08, 0.08))


played, by = cluster.start(train_and_tell, make_loop), []  # by: who made each update
for event in played.events():
    by.append(event["of"])
    if len(by) == 30:
        played.kill("worker", 1)
    elif len(by) == 60:
        played.restart("worker", 1)
    elif len(by) > 60 and by[-1] == "worker 1":
        break
print(f"from the kill to worker 1's return, worker 0 made {by[30:].count('worker 0')} updates")
assert by[30:60].count("worker 0") > 15  # alone, but for what was under way
cockpit(played)

# %% [markdown]
# Worker 0 keeps working while worker 1 is slow, paused or dead. In lessons 08 and 09 a gray block showed its waiting; here there is no all-reduce, so nobody to wait for. And no closure is lost: it's done only when its worker has answered. If a worker dies after it wrote its update but before it answered, the closure runs again elsewhere, so one gradient counts twice. This is called "at least once", and among thousands of updates it rarely matters.
#
# ## A parameter server dies
#
# When a server dies, its variables die with it, and the run ends with an error that names the server. So the coordinator saves a checkpoint now and then, between closures, and a new run continues from the last one. We kill ps 1 after the second checkpoint, and start again.

# %% tags=["nbval-ignore-output"]
from utils.cluster import ClusterError
from utils.training.parameter_server.checkpoints import train_with_checkpoints


def train_and_save(make_loop, steps, folder):
    loop = make_loop()
    updates, begun = train_with_checkpoints(loop, folder, steps, every=20)
    return len(updates), begun, loop.written.read()


played.stop()
folder = tempfile.TemporaryDirectory()
job = cluster.start(train_and_save, make_loop, 100_000, folder.name)
print("checkpoints at steps", [event["step"] for event in islice(job.events(), 2)])
job.kill("ps", 1)
try:
    job.wait(timeout=60)
except ClusterError as error:
    print(f"{error.task}: {error.cause}")

more, begun, written = cluster.run(train_and_save, make_loop, 100, folder.name)
folder.cleanup()
print(f"continued at step {begun}: {more} more updates, {written} in all")
assert begun >= 40 and begun + more == written == 100

# %% [markdown]
# Checkpoints are also how you evaluate. *Inline*, the coordinator waits for the queue to empty and schedules the test batches on the workers: training stops meanwhile, and the result belongs to exactly one step. *Sidecar*, a separate process does it, the evaluator. The cluster doesn't know about it. It restores each checkpoint as it appears, while training continues. A variable that was cut is saved whole, so the evaluator needs no servers. `train()` tests a run inline at its end.
#
# ## The mistake: a Keras model on sharded variables
#
# With a partitioner, Keras 3 finds a `ShardedVariable` where it expects a variable. Reading it works. Asking for its gradient is another matter: first the usual way, then by its pieces.


# %%
def differentiate(as_pieces):
    coordination = connect(min_shard_bytes=1 << 10)
    with coordination.strategy.scope():
        model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(64)])
    variables = model.trainable_variables
    if as_pieces:
        kernel, bias = variables
        variables = [*kernel.value.variables, bias.value]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tf.ones([2, 100])))
    return [tuple(gradient.shape) for gradient in tape.gradient(loss, variables)]


for as_pieces in (False, True):
    try:
        print("gradients:", cluster.run(differentiate, as_pieces))
    except ClusterError as error:
        print(error.cause)

# %% [markdown]
# The second line of output is the fix: pass the pieces to the tape and the optimizer. They are plain variables, each on its server.
#
# Three more errors you may meet. `model.save` fails in the same way (`no attribute '__array__'`), and `model.export` too (`'device'`), so `train_with_checkpoints` saves the TensorFlow variables instead. `optimizer.apply_gradients` outside `strategy.run` ends in `'NoneType' object has no attribute 'merge_call'`. And Keras 3's `fit` doesn't run on parameter servers at all. The `fit` of `tf_keras`, the Keras 2 package, does.
#
# ## What it costs

# %% tags=["nbval-ignore-output"]
from utils.measure import array_bytes

dense, held = array_bytes(build_mlp().trainable_variables), variables.bytes_by_server(pieces)
print("held by the servers:", {f"ps {server}": format_bytes(n) for server, n in held.items()})
print(f"one step: the MLP, any batch: {format_bytes(2 * dense)};", end=" ")
print(f"32 images on a table of {format_bytes(table_bytes)}: {format_bytes(sent['own'])}")
one.close()
cluster.close()
assert sum(held.values()) == table_bytes

# %% [markdown]
# With dense variables, every step of every worker moves the model twice, once each way, and all of it through the servers. So a server's network link is what runs out first. More servers divide the load. A synchronous ring has no such bottleneck.
#
# ## Recap
#
# - 150 closures scheduled, joined, fetched; `assign_add` kept all of them, read-add-write can lose some.
# - A table lay in two halves on two servers, and a step moved only the rows it touched. Four workers fetched each other's rows in an all-to-all.
# - A learning rate that is stable without staleness exploded with a staleness of about one; a third of it didn't.
# - Keras's step counter can lose steps; the exact one reached 150.
# - When a worker was killed, the other worked on; when a server was killed, the run ended and continued from the last checkpoint.
#
# ## Cheat sheet
#
# You bring `make_dataset`, `replica_step` (one training step on one batch) and the number of `steps`; make the model under `strategy.scope()`:
#
# ```python
# resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
# if resolver.task_type in ("ps", "worker"):  # the same file runs in every role
#     tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id).join()
# strategy = tf.distribute.ParameterServerStrategy(resolver)
# coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
# batches = iter(coordinator.create_per_worker_dataset(make_dataset))
# step = tf.function(lambda iterator: strategy.run(replica_step, args=(next(iterator),)))
# promises = [coordinator.schedule(step, args=(batches,)) for _ in range(steps)]
# coordinator.join()  # raises if a parameter server has died
# coordinator.fetch(promises)  # then save
# ```
#
# There's no partitioner on the cheat sheet, because the usual training step fails on a Keras kernel that was cut. `MinSizePartitioner(256 << 10, max_shards=2)` would cut any variable of more than 256 KiB, such as the kernel of `Dense(128)` on 784 inputs: `AttributeError`. If you need a partitioner for a table, pass the table's pieces to the tape, as in the mistake above.
#
# Count steps with `variable.assign_add(1)`, since `optimizer.iterations` can lose some. A server's `join` never returns: stop those processes yourself. TensorFlow's tutorial sets `GRPC_FAIL_FAST=use_caller` in their environment, so that a lost process raises an error instead of being waited for. A whole program in every role, with the lines to type on two machines: [parameter_server.py](../examples/parameter_server.py).
#
# ## On a real GPU
#
# On a machine with two GPUs, `distlab train --strategy parameter-server --workers 2 --ps 1 --device gpu` gives each of the two workers a GPU.
# Look at its images/s, and compare with `--strategy mirrored --replicas 2`.
# A dense model moves twice per step and worker, so expect the servers to be the limit.
#
# ## Further reading
#
# - TensorFlow's tutorial, [Parameter server training with ParameterServerStrategy](https://www.tensorflow.org/tutorials/distribute/parameter_server_training); API: [ClusterCoordinator](https://www.tensorflow.org/api_docs/python/tf/distribute/coordinator/ClusterCoordinator)
# - [Dean et al., Large Scale Distributed Deep Networks](https://papers.nips.cc/paper/4687-large-scale-distributed-deep-networks), 2012: DistBelief and Downpour SGD
# - [Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server](https://papers.nips.cc/paper/4894-more-effective-distributed-ml-via-a-stale-synchronous-parallel-parameter-server), 2013
# - [Chen et al., Revisiting Distributed Synchronous SGD](https://arxiv.org/abs/1604.00981), arXiv:1604.00981: backup workers
# - [Naumov et al., Deep Learning Recommendation Model for Personalization and Recommendation Systems](https://arxiv.org/abs/1906.00091), arXiv:1906.00091: tables cut over the workers, and the all-to-all exchange
# - [Zhang et al., Staleness-aware Async-SGD for Distributed Deep Learning](https://arxiv.org/abs/1511.05950), arXiv:1511.05950
#
# ## The lab
#
# You practice this in [lab 10, parameter servers](../labs/lab10-parameter-server.ipynb).
