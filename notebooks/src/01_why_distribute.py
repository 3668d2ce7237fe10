# %% [markdown]
# # Why distribute, and what is shared
#
# You see what replicas share, what they exchange, what it costs, and when one device is all you need.
#
# **Time:** 50 minutes · **Builds on:** [start here](00-start-here.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Split a global batch over workers and replicas, remainders included.
# - Tell data parallelism from model parallelism, and synchronous from asynchronous training.
# - Show that gradients are reduced, and that weights are not.
# - Count the memory of one device: weights, gradients, optimizer, activations.
# - Decide from your own measurements whether more devices would help.

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
import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np

from utils import figures
from utils.data import load
from utils.exercises.predict import show_guess
from utils.figures import amdahl_speed_up
from utils.measure import array_bytes, format_bytes, time_calls
from utils.models import build_model
from utils.strategies import make_strategy
from utils.widgets import Choice, Slider, explore
from utils.widgets.amdahl import amdahl_explorer
from utils.widgets.batches import batch_explorer
from utils.widgets.sharing import (
    draw_cluster,
    draw_two_ways,
    estimate_step_seconds,
    gain_explorer,
    memory_explorer,
    pace_explorer,
)

# %% [markdown]
# ## The words, in one picture
#
# | word | meaning |
# |---|---|
# | **device**, accelerator | what computes: a GPU, a TPU core; here a logical CPU device |
# | **worker** | one process, usually one machine, with one or several devices |
# | **replica** | one device's copy of the model, working on its part of the batch |
# | **all-reduce** | every replica hands in a tensor, and every replica gets the sum |

# %%
figures.show(draw_cluster(workers=2, replicas_per_worker=2))

# %% [markdown]
# ## Two ways to share one computation
#
# A layer multiplies a batch of images by a matrix of weights. The product can be shared in two ways: cut the *batch* (**data parallelism**, every device holds all weights), or cut the *weights* (**model parallelism**, every device sees all images). Both are done here, on four devices, in 64-bit arithmetic.

# %%
data = load("fashion_mnist")
batch = data.train.images[:64].reshape(64, 784) / 255  # [batch, pixels]
weights = np.random.default_rng(0).normal(size=(784, 128))  # [pixels, units]
by_rows, by_columns = [], []
for device, images, columns in zip(devices, np.split(batch, 4), np.split(weights, 4, axis=1)):
    with tf.device(device):
        by_rows.append(tf.matmul(images, weights))  # data parallel: 16 images, all weights
        by_columns.append(tf.matmul(batch, columns))  # model parallel: all images, 32 units

# %%
for name, parts in (("data parallel ", by_rows), ("model parallel", by_columns)):
    print(name, [(part.device[-5:], tuple(part.shape)) for part in parts])
whole = tf.matmul(batch, weights)  # on one device
np.testing.assert_allclose(tf.concat(by_rows, axis=0), whole, rtol=1e-12, atol=1e-12)
np.testing.assert_allclose(tf.concat(by_columns, axis=1), whole, rtol=1e-12, atol=1e-12)
print("data parallel  exchanges", format_bytes(weights.nbytes), "of gradients, whatever the batch")
print("model parallel exchanges", format_bytes(array_bytes([whole])), "of outputs for 64 images")
figures.show(draw_two_ways(examples=64, inputs=784, units=128))

# %% [markdown]
# The same numbers both ways. What differs is what must travel between the devices: under data parallelism the gradient of the weights, once a step; under model parallelism the layer's outputs, before the next layer can begin.
#
# Data parallelism is the usual one: any model can do it unchanged. Model parallelism (lessons 15 and 16) is for a model that does not fit on one device. Until then, "distributed" means data parallel here.
#
# ## One batch, three sizes
#
# The **global batch** holds the examples of one step. Each worker takes its **per-worker batch**, each replica its **per-replica batch**. In this course `global_batch_size` and `per_replica_batch_size` are always written out.
#
# **Predict.** Four replicas, 66 examples in batches of 32: two full batches, and a third with what is left over. How many examples of the third does the last replica get?

# %%
my_last = None  # a number of examples

# %%
strategy = make_strategy("mirrored", 4)
examples = tf.data.Dataset.range(66).batch(32)
shares = []
for distributed in strategy.experimental_distribute_dataset(examples):
    shares.append([len(part) for part in strategy.experimental_local_results(distributed)])
print("each replica's share of each batch:", shares)
show_guess(my_last, shares[2][3], unit=" examples")
assert shares == [figures.split_evenly(n, 4) for n in (32, 32, 2)]

# %%
workers, replicas_per_worker, global_batch_size = 4, 4, 1024
per_worker_batch_size = global_batch_size // workers
per_replica_batch_size = per_worker_batch_size // replicas_per_worker
print(f"{per_worker_batch_size} for each worker, {per_replica_batch_size} for each replica")
batch_explorer(global_batch_size, workers, replicas_per_worker)

# %% [markdown]
# TensorFlow's split and the course's `split_evenly`, which draws the explorer, agree: what is left over goes to the first replicas, one example each. Set the global batch size to 1,030, then to 10. A replica without examples still takes part in the step; what that does to a mean is the subject of lesson 05.
#
# ## What is reduced is gradients
#
# Many texts say that the replicas "average their weights". Watch one step of four replicas. Each returns what a layer's weights were before, its own gradient, the all-reduced gradient, and what the weights are afterwards. One of those weights is then shown: the one with the largest gradient.
#
# **Predict.** How many different values of the gradient are there among the four replicas before the all-reduce?

# %%
my_values = None  # 1 to 4

# %%
images, labels = data.train.images[:64, ..., None] / 255, data.train.labels[:64]
one_batch = tf.data.Dataset.from_tensor_slices((images, labels)).batch(64)
with strategy.scope():
    model = build_model("mlp", dtype="float64")
    optimizer = keras.optimizers.SGD(0.125)  # 1/8, exact in binary
    optimizer.build(model.trainable_variables)


def gradients_of(images, labels):
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
        loss = tf.reduce_sum(losses) / 64  # this replica's part of the global batch's mean
    return tape.gradient(loss, model.trainable_variables)


@tf.function
def step_of_replica(images, labels):
    kernel = model.trainable_variables[-2]  # [128, 10]
    before, own = kernel + 0, gradients_of(images, labels)
    total = tf.distribute.get_replica_context().all_reduce("sum", own)
    optimizer.apply_gradients(zip(own, model.trainable_variables))  # it all-reduces as well
    return before, own[-2], total[-2], kernel + 0


# %%
one_device_gradients = gradients_of(images, labels)  # before the step: all 64 on one device
(distributed,) = strategy.experimental_distribute_dataset(one_batch)
results = strategy.run(step_of_replica, args=distributed)
before, own, total, after = [np.stack(strategy.experimental_local_results(r)) for r in results]
at = np.unravel_index(np.abs(total[0]).argmax(), (128, 10))  # where the gradient is largest
words = ["weight before", "own gradient", "reduced gradient", "weight after"]
table = [r[:, *at] for r in (before, own, total, after)]  # [row, replica]
figures.show(figures.matrix(table, words, devices, title="One weight, one step", format="{:+.4f}"))

# %%
show_guess(my_values, len(np.unique(own[:, *at])))
for same in (before, total, after):  # equal on every replica
    np.testing.assert_array_equal(same, np.broadcast_to(same[0], same.shape))
np.testing.assert_allclose(total[0], own.sum(axis=0), rtol=1e-10, atol=1e-14)
np.testing.assert_allclose(total[0], one_device_gradients[-2], rtol=1e-10, atol=1e-14)
np.testing.assert_allclose(after[0], before[0] - 0.125 * total[0], rtol=1e-12)

# %% [markdown]
# Read the table by rows. The weights are equal before; the gradients differ; their sum is equal on all replicas, and is the gradient that one device computes from all 64 examples; so every replica makes the same update by itself, and the weights are equal after. No weight was sent to anyone.
#
# ### Averaging weights is another algorithm
#
# Suppose each copy applied its *own* gradient, and the copies were then averaged. Is that the same? Four copies do it here, with Keras's optimizers, on the smallest model there is: one matrix of weights from pixels to classes, with its loss and gradient in NumPy.

# %%
x, y = data.train.images[:1000].reshape(1000, 784) / 255, data.train.labels[:1000]


def predict(w, x):  # [784, 10], [n, 784] -> [n, 10]
    powers = np.exp(x @ w - (x @ w).max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def loss_of(w, x=x, y=y):
    return float(-np.log(predict(w, x)[np.arange(len(y)), y] + 1e-12).mean())


def gradient_of(w, x, y):  # of the mean loss: [784, 10]
    return x.T @ (predict(w, x) - np.eye(10)[y]) / len(y)


# %%
def train_copies(make_optimizer, average_every, steps=8):
    """Train four copies; average_every=0 reduces gradients instead, as tf.distribute does."""
    copies = [keras.Variable(np.zeros((784, 10)), dtype="float64") for _ in range(4)]
    optimizers = [make_optimizer() for _ in copies]
    for step in range(1, steps + 1):
        parts = np.split(np.arange(64 * (step - 1), 64 * step), 4)
        found = [gradient_of(c.numpy(), x[part], y[part]) for c, part in zip(copies, parts)]
        if average_every == 0:
            found = [np.mean(found, axis=0)] * 4
        for optimizer, gradient, copy in zip(optimizers, found, copies):
            optimizer.apply([gradient], [copy])
        if average_every and step % average_every == 0:
            mean = np.mean([copy.numpy() for copy in copies], axis=0)
            for copy in copies:
                copy.assign(mean)
    return copies[0].numpy()


# %% tags=["nbval-ignore-output"]
kinds = {
    "SGD": lambda: keras.optimizers.SGD(0.02),
    "momentum": lambda: keras.optimizers.SGD(0.02, momentum=0.9),
    "Adam": lambda: keras.optimizers.Adam(0.001),
}
off = np.zeros((3, 2))  # [optimizer, how often]: distance from reduced gradients, in percent
for row, make_optimizer in enumerate(kinds.values()):
    reduced = train_copies(make_optimizer, average_every=0)
    for column, every in enumerate((1, 8)):
        averaged = train_copies(make_optimizer, average_every=every)
        off[row, column] = 100 * np.linalg.norm(averaged - reduced) / np.linalg.norm(reduced)
heads = ["averaged at every step", "averaged after 8 steps"]
title = "How far averaged weights are from reduced gradients, in percent"
figures.show(figures.matrix(off.round(2), list(kinds), heads, title=title, format="{:.2f}"))
assert off[:2, 0].max() < 1e-10 and off[2, 0] > 1 and off[:, 1].min() > 0.1

# %% [markdown]
# For SGD, with or without momentum, averaging after *every* step is the same sum in another order, because the update is linear in the gradient. Adam divides each gradient by its size, which is not linear: each copy scales by its own gradients, and the average is something else. After several local steps all three differ, since the copies computed gradients at different weights. Averaging weights is an algorithm of its own (local SGD); no `tf.distribute` strategy does it.
#
# ## No parameter server in it
#
# It is also often written that `MultiWorkerMirroredStrategy` keeps its weights on parameter servers. That is another strategy, drawn below. To ask MultiWorkerMirrored itself, two real processes train one step of one weight, which starts at 1. The gradient of worker 0 is 1, that of worker 1 is 2, the learning rate is 0.1. Each reports which jobs its cluster has, where its weight lives, and which operation of its graph talks to the others. (It takes some seconds: two processes import TensorFlow.)

# %%
program = """
import json, os, signal, sys
signal.alarm(90)  # whatever happens, this process ends
addresses, index = json.loads(sys.argv[1]), int(sys.argv[2])
task = {"type": "worker", "index": index}
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
from utils.environment import quiet_tensorflow
with quiet_tensorflow():
    import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(1.0, dtype=tf.float64)

def step_of_replica():
    own = weight * (index + 1)
    total = tf.distribute.get_replica_context().all_reduce("sum", own)
    weight.assign_sub(0.1 * total)
    return own, total

step = tf.function(lambda: strategy.run(step_of_replica))
own, total = step()
copy, = strategy.experimental_local_results(weight)
operations = {op.type for op in step.get_concrete_function().graph.get_operations()}
print(json.dumps({
    "jobs in the cluster": strategy.cluster_resolver.cluster_spec().jobs,
    "weight lives on": copy.device, "own gradient": float(own), "reduced": float(total),
    "weight after": round(float(copy), 9), "talks through": [o for o in operations if "Coll" in o],
}), flush=True)
step()  # stay until the other has finished its step
os._exit(0)
"""
figures.show(figures.parameter_server_devices(workers=3, servers=2))  # the other strategy


# %%
def run_workers(program, workers=2):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers)]
    addresses = json.dumps([f"127.0.0.1:{s.getsockname()[1]}" for s in sockets])
    for s in sockets:
        s.close()
    start = [sys.executable, "-c", program, addresses]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    processes = [subprocess.Popen([*start, str(i)], **pipes) for i in range(workers)]
    try:
        return [process.communicate(timeout=100)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


answers = run_workers(program)
if not all(answers):  # a port was taken in between: once more, with others
    answers = run_workers(program)
assert all(answers), "a worker gave no answer: run this cell again"
reports = [json.loads(answer) for answer in answers]
for key in reports[0]:
    print(f"{key:20} {reports[0][key]!s:44} {reports[1][key]}")
assert all(r["jobs in the cluster"] == ["worker"] and r["weight after"] == 0.7 for r in reports)

# %% [markdown]
# One job, `worker`, and no `ps`: nothing of the picture above is there. Each worker holds the weight itself, and the operation through which they talk is a collective: the all-reduce. (Lesson 09 trains a whole model so, lesson 11 with real parameter servers.)
#
# ## Synchronous and asynchronous
#
# With an all-reduce every replica waits for the slowest. With parameter servers nobody has to. Four workers, of which the last needs twice as long; move the slider:

# %%
pace_explorer(slow_seconds=2)

# %% [markdown]
# The price is **staleness**: while a worker computes, the others change the weights, so its gradient belongs to weights that are some updates old. With 4 workers in turn, each gradient is 3 updates old. Does that hurt?
#
# **Predict.** 200 updates with a learning rate of 0.02, once with fresh gradients, once with gradients that are 3 updates old. How many times larger is the loss at the end with the old ones? (1 means no harm.)

# %%
my_harm = None  # a factor


# %%
@lru_cache
def train_stale(staleness, learning_rate, updates=200):
    """Return the loss on 1,000 images after every tenth update."""
    rng = np.random.default_rng(0)
    past = [np.zeros((784, 10))]  # the weights after each update
    for update in range(updates):
        rows = rng.integers(0, 1000, size=64)
        old = past[max(0, update - staleness)]
        past.append(past[-1] - learning_rate * gradient_of(old, x[rows], y[rows]))
    return [loss_of(w) for w in past[::10]]


show_guess(my_harm, round(train_stale(3, 0.02)[-1] / train_stale(0, 0.02)[-1], 1), unit="x")
assert train_stale(3, 0.02)[-1] < 1.05 * train_stale(0, 0.02)[-1]
assert train_stale(15, 0.02)[-1] > 2 * train_stale(0, 0.02)[-1]


# %% tags=["nbval-ignore-output"]
def show_staleness(staleness, learning_rate):
    rate, updates = float(learning_rate), range(0, 201, 10)
    curves = {"fresh": (updates, train_stale(0, rate))}
    if staleness:
        curves[f"{staleness} updates old"] = (updates, train_stale(staleness, rate))
    title = f"Loss with stale gradients, learning rate {learning_rate}"
    return figures.lines(curves, x_label="update", y_label="loss", title=title)


rates = ["0.005", "0.01", "0.02", "0.05"]
explore(
    show_staleness,
    staleness=Slider("Staleness", 0, 20, 3),
    learning_rate=Choice("Learning rate", rates, "0.02"),
)

# %% tags=["nbval-ignore-output"]
shared, staleness = tf.Variable(np.zeros((784, 10))), []


@tf.function(reduce_retracing=True)
def gradient_on_device(w, images, labels):
    with tf.GradientTape() as tape:
        tape.watch(w)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, images @ w)
        loss = tf.reduce_mean(losses)
    return tape.gradient(loss, w)


def work(device):  # read, compute, write; never wait for another worker
    rng = np.random.default_rng(devices.index(device))
    for _ in range(50):
        rows, read_at = rng.integers(0, 1000, size=256), len(staleness)
        with tf.device(device):
            gradient = gradient_on_device(shared.read_value(), x[rows], y[rows]).numpy()
        shared.assign_sub(0.02 * gradient)
        staleness.append(len(staleness) - read_at)


with ThreadPoolExecutor(4) as pool:
    list(pool.map(work, devices))
ages = np.bincount(np.minimum(staleness, 8), minlength=9)  # [age 0 to 7, 8 or more]
shown = {f"{age} updates old" if age < 8 else "8 or more": int(ages[age]) for age in range(9)}
title = f"A real asynchronous run of {len(staleness)} updates; loss {loss_of(shared.numpy()):.2f}"
figures.show(figures.bars(shown, unit="", title=title))
assert loss_of(shared.numpy()) < 0.6 * loss_of(np.zeros((784, 10)))

# %% [markdown]
# A little staleness is harmless. Much of it breaks the training, and a smaller learning rate mends it: try 15 with 0.02, then with 0.005. The second picture is a real asynchronous run: four threads, each with a logical device of its own, share one variable and never wait; each gradient notes how many updates came between its reading and its writing. Lesson 11 does this with parameter servers.
#
# ## The mistake: the dataset's batch is taken for the replica's
#
# You trained with batches of 64 on one device, and want each of 4 replicas to have as much. The code says `.batch(64)`, as it always did:


# %%
def describe_epoch(batch_size):
    batches = tf.data.Dataset.range(1024).batch(batch_size)
    first = next(iter(strategy.experimental_distribute_dataset(batches)))
    sizes = [len(part) for part in strategy.experimental_local_results(first)]
    return f"each replica sees {sizes}, {len(batches)} steps an epoch"


print(describe_epoch(batch_size=64))

# %% [markdown]
# No error. Each replica gets a quarter of what was meant, and the epoch has as many steps as on one device, each with an all-reduce added: four GPUs, each mostly waiting. **The batch size of a dataset is the global one**; say so in its name.

# %%
per_replica_batch_size = 64
global_batch_size = per_replica_batch_size * strategy.num_replicas_in_sync
print(describe_epoch(batch_size=global_batch_size))
assert describe_epoch(64).endswith(f"{1024 // 64} steps an epoch")  # as many as one device
assert describe_epoch(global_batch_size).startswith("each replica sees [64, 64, 64, 64]")

# %% [markdown]
# (A global batch four times as large also wants another learning rate: lesson 17.)
#
# ## What it costs
#
# **Memory.** Each data-parallel replica holds all weights, a gradient for each, and Adam's two moments for each. Only the activations, kept from the forward pass for the backward pass, are shared out with the batch. Counted from the variables and the layers' outputs of the convolutional network of lesson 00:

# %%
cnn = build_model("cnn")
adam = keras.optimizers.Adam()
adam.build(cnn.trainable_variables)
one_image = data.train.images[:1, ..., None] / np.float32(255)
outputs = keras.Model(cnn.inputs[0], [layer.output for layer in cnn.layers])(one_image)
KEPT = {
    "weights": array_bytes(cnn.weights),
    "gradients": array_bytes(cnn.trainable_variables),
    "Adam's moments": array_bytes(v for v in adam.variables if len(v.shape)),
}
per_parameter = sum(KEPT.values()) / cnn.count_params()
print(f"{cnn.count_params():,} parameters, {per_parameter:.0f} bytes for each of them")
print(format_bytes(array_bytes(outputs)), "of activations for each image")
memory_explorer(KEPT, array_bytes(outputs), replicas=4, global_batch_size=64)

# %% [markdown]
# More replicas shrink the last bar and none of the others. A model whose weights, gradients and moments alone do not fit on one device is not helped by any number of replicas: that is what model parallelism is for.
#
# **Time.** What spreads over devices is the step; what does not, here, is the preparation of the batch, image by image in Python, as it is often written. Both measured on your machine, and the step on 1, 2 and 4 logical replicas:


# %%
rng = np.random.default_rng(0)


def prepare():
    """Pick 64 images; mirror half of them and standardise all, one by one in Python."""
    images = []
    for row in rng.integers(0, len(data.train), size=64):
        image = data.train.images[row] / np.float32(255)
        image = image[:, ::-1] if rng.random() < 0.5 else image
        images.append((image - image.mean()) / image.std())
    return np.stack(images)[..., None]


def make_step(replicas):
    """Return a function that trains one step of 64 images and waits for its end."""
    strategy = make_strategy("mirrored", replicas)
    with strategy.scope():
        model, optimizer = build_model("cnn"), keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    def step_of_replica(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
            loss = tf.reduce_sum(losses) / 64
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    batch = next(iter(strategy.experimental_distribute_dataset(one_batch)))
    run = tf.function(lambda: strategy.run(step_of_replica, args=batch))
    return lambda: [loss.numpy() for loss in strategy.experimental_local_results(run())]


# %% tags=["nbval-ignore-output"]
input_seconds = time_calls(prepare, 30).median_seconds
steps = {n: make_step(n) for n in (1, 2, 4)}
rounds = [{n: time_calls(step, 8).best_seconds for n, step in steps.items()} for _ in range(4)]
step_seconds = {n: min(times[n] for times in rounds) for n in steps}  # in turn: noise hits all
print(f"input {1000 * input_seconds:.2f} ms; step:", end=" ")
print(", ".join(f"{1000 * s:.1f} ms on {n}" for n, s in step_seconds.items()))
parallel = step_seconds[1] / (input_seconds + step_seconds[1])
whole = {n: input_seconds + seconds for n, seconds in step_seconds.items()}
speed_ups = {n: whole[1] / seconds for n, seconds in whole.items()}
on_8_gpus = whole[1] / (input_seconds + step_seconds[1] / 8)
print(f"{parallel:.1%} of the time spreads; 8 real devices would give {on_8_gpus:.1f}")
np.testing.assert_allclose(amdahl_speed_up(parallel, 8), on_8_gpus, rtol=1e-12)
assert 0 < parallel < 1 and speed_ups[4] < 3
amdahl_explorer(parallel, {n: speed_ups[n] for n in (2, 4)}, most_devices=8)

# %% [markdown]
# The curve is **Amdahl's law** for your measurement, on devices that add cores. Move *work that spreads* to see what a slower input does: the part that does not spread sets a limit that no number of devices passes. The squares are your logical replicas, which add none. (Lesson 12 takes the input off the critical path.)
#
# **Communication** is the other limit. A ring all-reduce of S bytes over n devices sends 2 (n - 1) / n · S bytes from each of them in 2 (n - 1) rounds. With the global batch kept the same, compute shrinks with n and communication does not. The speeds below are the nominal ones of the links; the delay of a round is set to 50 µs.

# %% tags=["nbval-ignore-output"]
gradient_bytes, ethernet = KEPT["gradients"], 10e9 / 8  # bytes; bytes a second
for n in (1, 2, 8, 64):
    compute = step_seconds[1] / n
    ring = 2 * (n - 1) / n * gradient_bytes / ethernet + 2 * (n - 1) * 50e-6
    print(f"{n:2} devices: compute {1e3 * compute:6.2f} ms, all-reduce {1e3 * ring:5.2f} ms")
    estimate = estimate_step_seconds(n, step_seconds[1], gradient_bytes, ethernet)
    np.testing.assert_allclose(compute + ring, estimate, rtol=1e-12)
gain_explorer(gradient_bytes, step_seconds[1])

# %% [markdown]
# ### When one device is enough
#
# Ask two questions: does one copy fit on one device, and is one device fast enough? If both answers are yes, stop there: no strategy beats no communication. Call it the 95 % case; that number is a manner of speaking, the two answers for this model are not:

# %% tags=["nbval-ignore-output"]
needed_bytes = sum(KEPT.values()) + 64 * array_bytes(outputs)
speed = 64 / step_seconds[1]  # images a second
minutes = 10 * 60_000 / speed / 60
print(f"fits? one copy with 64 images takes {format_bytes(needed_bytes)}")
print(f"fast enough? ten epochs of all 60,000 images take {minutes:.1f} minutes on this machine")
assert needed_bytes < 2**30 and minutes < 120

# %% [markdown]
# ## Take-away card
#
# ```python
# per_replica_batch_size = 64
# global_batch_size = per_replica_batch_size * strategy.num_replicas_in_sync
# dataset = dataset.batch(global_batch_size)  # the dataset's batch is the global one
# for batch in strategy.experimental_distribute_dataset(dataset):
#     shares = [len(part) for part in strategy.experimental_local_results(batch)]
#
# bytes_of_one_device = 16 * parameters + activation_bytes_per_image * per_replica_batch_size
# seconds = input_seconds + step_seconds / devices  # Amdahl
# seconds += 2 * (devices - 1) / devices * gradient_bytes / bytes_per_second  # ring all-reduce
# ```
#
# ## Where it is described
#
# - TensorFlow's guides, [Distributed training with TensorFlow](https://www.tensorflow.org/guide/distributed_training) and [Distributed input](https://www.tensorflow.org/tutorials/distribute/input), and the API page of [tf.distribute.MultiWorkerMirroredStrategy](https://www.tensorflow.org/api_docs/python/tf/distribute/MultiWorkerMirroredStrategy), which says that it uses collectives.
# - Parameter servers and staleness: Dean and others, [Large scale distributed deep networks](https://research.google/pubs/large-scale-distributed-deep-networks/), 2012; Chen and others, [Revisiting distributed synchronous SGD](https://arxiv.org/abs/1604.00981), 2016.
# - Averaging weights: Stich, [Local SGD converges fast and communicates little](https://arxiv.org/abs/1805.09767), 2018.
# - The limit: [Amdahl's law](https://doi.org/10.1145/1465482.1465560), 1967.
#
# ## The lab
#
# You practise this in [lab 01, batches and words](../labs/lab01-batches-and-words.ipynb).
