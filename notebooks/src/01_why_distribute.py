# %% [markdown] shows="The words, the batch arithmetic, and when one device is enough"
# # Why distribute, and what is shared
#
# Eight GPUs cost eight times as much as one, and may be no faster. Before you pay, you want to know what they share, what they send each other and what limits the gain. By the end of this lesson you can work that out for your own model. Sometimes the answer is that one device is plenty.
#
# **Time:** 75 minutes · **Prerequisites:** [start here](00-start-here.ipynb) · **Hardware:** two CPU cores
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
import numpy as np

# %% [markdown]
# ## The words, in one picture
#
# | word | meaning |
# |---|---|
# | **device**, accelerator | what computes: a GPU, a TPU core; here a logical CPU device |
# | **worker** | one process, usually one machine, with one or several devices |
# | **replica** | one device's copy of the model, working on its part of the batch |
# | **all-reduce** | every replica contributes a tensor, such as its gradients, and every replica gets the sum |

# %%
from distlab import figures
from distlab.explorables.sharing import draw_cluster

figures.show(draw_cluster(workers=2, replicas_per_worker=2))

# %% [markdown]
# ## How to split one computation
#
# A layer multiplies a batch of images by a matrix of weights. There are two usual ways to split that product over several devices. **Data parallelism** cuts the batch: every device holds all weights. **Model parallelism** cuts the weights: every device sees all images. The next cell does both, on four devices.

# %%
from utils.data import load

data = load("fashion_mnist")
batch = data.train.images[:64].reshape(64, 784) / 255  # [batch, pixels]
weights = np.random.default_rng(0).normal(size=(784, 128))  # [pixels, units]
by_rows, by_columns = [], []
for device, images, columns in zip(devices, np.split(batch, 4), np.split(weights, 4, axis=1)):
    with tf.device(device):
        by_rows.append(tf.matmul(images, weights))  # data parallel: 16 images, all weights
        by_columns.append(tf.matmul(batch, columns))  # model parallel: all images, 32 units

# %%
from distlab.explorables.sharing import draw_two_ways
from utils.measure import array_bytes, format_bytes

for name, parts in (("data parallel ", by_rows), ("model parallel", by_columns)):
    print(name, [(part.device[-5:], tuple(part.shape)) for part in parts])
whole = tf.matmul(batch, weights)  # on one device
np.testing.assert_allclose(tf.concat(by_rows, axis=0), whole, rtol=1e-12, atol=1e-12)
np.testing.assert_allclose(tf.concat(by_columns, axis=1), whole, rtol=1e-12, atol=1e-12)
print("data parallel  sends", format_bytes(weights.nbytes), "of gradients, whatever the batch")
print("model parallel sends", format_bytes(array_bytes([whole])), "of outputs for 64 images")
figures.show(draw_two_ways(examples=64, inputs=784, units=128))

# %% [markdown]
# Both ways give the product that one device computes. They differ in what must travel. With data parallelism it is the gradient of the weights, once a step. With model parallelism, split like this, it is each layer's outputs, which an *all-gather* puts together before the next layer can begin, and their gradients on the way back. (Numbers have 64 bits here; float32 halves the bytes.)
#
# **Your turn.** There's a third way: cut along the 784 pixels. Each device gets a quarter of the pixels of every image, and the rows of the weights that belong to these pixels, and multiplies the two. How do the four results become the product?


# %%
def combine(parts):  # four results, [64, 128] each
    return ...


# %%
from distlab.turns import lesson01 as turns

combine = turns.THIRD_CUT.take(combine)
slices = [slice(first, first + 196) for first in range(0, 784, 196)]
third = np.asarray(combine([batch[:, part] @ weights[part] for part in slices]))
print("one device:", tuple(whole.shape), "· combined:", third.shape)
print("equal:", third.shape == whole.shape and np.allclose(third, whole))

# %% [markdown]
# One number of the product is a sum over 784 pixels, and each device has 196 of its terms. So this cut sends outputs too, in an all-reduce.
#
# Data parallelism is the usual way: most models need no change for it. A model too large for one device needs model parallelism (lessons 15 and 16) or *sharded* data parallelism (ZeRO, FSDP: lesson 15), which no `tf.distribute` strategy does. Until then, "distributed" means data parallel: each replica computes with the whole model.
#
# ## One batch, three sizes
#
# The **global batch** holds the examples of one step. Each worker takes its **per-worker batch**, each replica its **per-replica batch**. This course writes `global_batch_size` or `per_replica_batch_size`. If an API says just `batch_size`, as `fit` does, it means the global one. (If you come from PyTorch's DDP: there, each process has a `DataLoader`, and its `batch_size` is the replica's.)
#
# **Predict.** Four replicas, 66 examples in batches of 32: two full batches, and a third with the 2 that are left. How many examples of the third does the last replica get?

# %%
from distlab.explorables import guess_number

my_last = guess_number("Examples of the last replica", 0, 8)
my_last

# %%
from distlab.exercises.predict import show_guess
from utils.data import split_batch

strategy = tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())
batches = strategy.experimental_distribute_dataset(tf.data.Dataset.range(66).batch(32))
shares = []
for batch in batches:
    shares.append([len(part) for part in strategy.experimental_local_results(batch)])
print("each replica's share of each batch:", shares)
show_guess(my_last, shares[2][3], unit=" examples")
assert shares == [split_batch(n, 4) for n in (32, 32, 2)]

# %%
from distlab.explorables.batches import batch_explorer

workers, replicas_per_worker, global_batch_size = 4, 4, 1024
per_worker_batch_size = global_batch_size // workers
per_replica_batch_size = per_worker_batch_size // replicas_per_worker
print(f"{per_worker_batch_size} for each worker, {per_replica_batch_size} for each replica")
batch_explorer(global_batch_size, workers, replicas_per_worker)

# %% [markdown]
# TensorFlow's split and the course's `split_batch`, which draws the explorer, agree. A share is the batch divided by *all* replicas, rounded up, and shares are handed out until the examples run out. You might expect 6 examples over four replicas to be 2, 2, 1 and 1. They are 2, 2, 2 and 0. (That's for data in memory. Files may be split differently: [lesson 13](13-distributed-input.ipynb) has the rules.) Set the global batch size to 1,030, then to 10. A replica without examples still takes part in the step. Lesson 05 shows what that does to a mean.
#
# ## What is reduced is gradients
#
# Do the replicas average their weights? Watch one step of four replicas instead. The step returns four things from each replica: a layer's weights before, the replica's own gradient, the gradient after the all-reduce, and the weights afterwards. The picture shows one of those weights, the one with the largest gradient. (`strategy.run` calls a function once on each replica, and `all_reduce` in it adds up what the replicas hold; lesson 02 takes both apart. Each replica divides its losses by 64, the *global* batch size, so its gradient is a part of the mean; that's lesson 05.)

# %%
from utils.models import build_model

images, labels = data.train.images[:64, ..., None] / 255, data.train.labels[:64]
one_batch = tf.data.Dataset.from_tensor_slices((images, labels)).batch(64)
with strategy.scope():
    model = build_model("mlp", dtype="float64")
    optimizer = keras.optimizers.SGD(0.125)  # 1/8, exact in binary
    optimizer.build(model.trainable_variables)


# %%
def gradients_of(images, labels):
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
        loss = tf.reduce_sum(losses) / 64  # this replica's part of the global batch's mean
    return tape.gradient(loss, model.trainable_variables)


@tf.function
def step_of_replica(images, labels):
    kernel = model.trainable_variables[-2]  # [128, 10]
    before, own = kernel + 0, gradients_of(images, labels)  # + 0 makes a copy
    total = tf.distribute.get_replica_context().all_reduce("sum", own)  # only to look at
    optimizer.apply_gradients(zip(own, model.trainable_variables))  # all-reduces by itself
    return before, own[-2], total[-2], kernel + 0


# %%
one_device = gradients_of(images, labels)[-2].numpy()  # before the step: all 64 on one device
row, column = np.unravel_index(np.abs(one_device).argmax(), one_device.shape)
(parts,) = strategy.experimental_distribute_dataset(one_batch)  # a part for each replica
results = strategy.run(step_of_replica, args=parts)
before, own, total, after = [np.stack(strategy.experimental_local_results(r)) for r in results]
words = ["weight before", "own gradient", "reduced gradient", "weight after"]
table = [r[:, row, column] for r in (before, own, total, after)]  # [word, replica]
figures.show(figures.matrix(table, words, devices, title="One weight, one step", format="{:+.4f}"))

# %%
assert len(np.unique(own[:, row, column])) == 4  # every replica has its own
for same in (before, total, after):  # equal on every replica
    np.testing.assert_array_equal(same, np.broadcast_to(same[0], same.shape))
np.testing.assert_allclose(total[0], own.sum(axis=0), rtol=1e-10, atol=1e-14)
np.testing.assert_allclose(total[0], one_device, rtol=1e-10, atol=1e-14)
np.testing.assert_allclose(after[0], before[0] - 0.125 * total[0], rtol=1e-12)

# %% [markdown]
# Read the table row by row. The weights are equal before. The gradients differ. Their sum is equal on all replicas, and it is the gradient that one device computes from all 64 examples. So every replica makes the same update without asking anyone, and the weights are equal after. No weight was sent.
#
# ### Averaging weights is another algorithm
#
# Suppose each copy applied its *own* gradient, and we averaged the copies. Is that the same? The cell tries it on the four gradients above, with two of Keras's optimizers.


# %%
def update(optimizer, gradient):  # one step from the weights above
    weight = keras.Variable(before[0], dtype="float64")
    optimizer.apply([gradient], [weight])
    return weight.numpy()


for kind in (keras.optimizers.SGD, keras.optimizers.Adam):
    reduced = update(kind(0.125), total[0])
    alone = [update(kind(0.125), 4 * part) for part in own]  # 4 *: the mean of its 16 images
    averaged = np.mean(alone, axis=0)
    print(kind.__name__, "gives the same weights:", np.allclose(averaged, reduced, rtol=1e-9))

# %% [markdown]
# With SGD it's the same, because its update is linear in the gradient and because we averaged after a single step. Adam divides each gradient by its size, which isn't linear: each copy divides by the size of its own gradient.
#
# With two steps between averages even SGD goes elsewhere. Take two workers with the losses ½(w − 1)² and 3 · ½(w − 3)², and start both at 0 with rate 0.1. After two steps with averaged gradients w is 0.90. If each worker takes two steps alone, they reach 0.19 and 1.53, and the average is 0.86. Averaging weights every few steps is another algorithm, *local SGD*. No `tf.distribute` strategy trains that way.
#
# ## Synchronous and asynchronous
#
# **Synchronous** training, with an all-reduce: every replica waits for the slowest. On several machines `MultiWorkerMirroredStrategy` does it, and whatever you may read, it has no parameter server: each worker holds the weights itself, and they talk through all-reduces (lesson 09).
#
# **Asynchronous** training: nobody waits. A **parameter server** keeps the weights. Each worker reads them, computes, and sends its gradient when it is ready. Another strategy does this:

# %%
figures.show(figures.parameter_server_devices(workers=3, servers=2))

# %% [markdown]
# What does waiting cost? Here are four workers. The last one takes twice as long. Run the cell and make it as fast as the others. Is the waiting over? Then let each step vary a little:

# %%
from distlab.explorables.sharing import pace_explorer

pace_explorer(slow_seconds=2)

# %% [markdown]
# The price of not waiting is **staleness**: while a worker computes, others change the weights, so its gradient belongs to weights that are some updates old. When four workers take turns, each gradient is 3 updates old. Whether that hurts depends on the learning rate times the age; [lesson 11](11-parameter-server.ipynb) measures both.
#
# ## The mistake: taking the dataset's batch for the replica's
#
# You trained with batches of 64 on one device, and want 64 for each of 4 replicas. The code still says `.batch(64)`:


# %%
def describe_epoch(batch_size):
    batches = tf.data.Dataset.range(1024).batch(batch_size)
    first = next(iter(strategy.experimental_distribute_dataset(batches)))
    sizes = [len(part) for part in strategy.experimental_local_results(first)]
    print(f"each replica sees {sizes}, {len(batches)} steps an epoch")
    return sizes, len(batches)


wrong = describe_epoch(batch_size=64)

# %% [markdown]
# There is no error. Each replica gets a quarter of what you meant, and the epoch has as many steps as on one device, each now with an all-reduce. **The batch size of a dataset that the strategy splits is the global one**; let its name say so. (If your own function makes each worker's dataset, as in [lesson 13](13-distributed-input.ipynb), it batches per replica.)

# %%
per_replica_batch_size = 64
global_batch_size = per_replica_batch_size * strategy.num_replicas_in_sync
right = describe_epoch(batch_size=global_batch_size)
assert wrong == ([16, 16, 16, 16], 1024 // 64)  # as many steps as one device
assert right == ([64, 64, 64, 64], 1024 // 64 // 4)

# %% [markdown]
# (A global batch four times as large also wants another learning rate: lesson 17.)
#
# ## What it costs
#
# **Memory.** Each mirrored replica holds all weights, a gradient for each, and what the optimizer keeps: for Adam two numbers for each weight, its *moments*. The *activations*, the layers' outputs, are kept from the forward pass for the backward pass. Only they are split with the batch. The cell counts them for a small convolutional network, which we time below:

# %%
from distlab.explorables.sharing import show_memory

cnn = build_model("cnn")
adam = keras.optimizers.Adam()
adam.build(cnn.trainable_variables)
one_image = data.train.images[:1, ..., None] / np.float32(255)
outputs = keras.Model(cnn.inputs[0], [layer.output for layer in cnn.layers])(one_image)
kept = {
    "weights": array_bytes(cnn.weights),
    "gradients": array_bytes(cnn.trainable_variables),
    "Adam's moments": array_bytes(v for v in adam.variables if v.shape),  # no counters
}
per_parameter = sum(kept.values()) / cnn.count_params()
print(f"{cnn.count_params():,} parameters, {per_parameter:.0f} bytes for each of them")
print(format_bytes(array_bytes(outputs)), "of activations for each image")
figures.show(show_memory(kept, array_bytes(outputs), replicas=4, global_batch_size=64))

# %% [markdown]
# The upper bars are mirrored, the lower ones sharded. For a given global batch, more mirrored replicas shrink the activations and nothing else. If weights, gradients and moments alone don't fit on one device, more *mirrored* replicas don't help. Sharding does (ZeRO, FSDP): each replica that you add frees memory on the others. (The sharded bar leaves out a peak. While a layer computes, its weights are gathered and complete on every device. One Dense layer here has 102,464 of the 121,930 weights, 0.39 MiB, however many replicas there are.) So does model parallelism.
#
# **Your turn.** Adam's 16 bytes for each weight are four float32 arrays. SGD with momentum keeps one number for each weight where Adam keeps two. How many bytes does a weight take then on a mirrored replica, its gradient included?

# %%
bytes_per_weight = ...

# %%
bytes_per_weight = turns.MOMENTUM.take(bytes_per_weight)
for name, size in {"Adam": per_parameter, "SGD with momentum": bytes_per_weight}.items():
    print(f"{name:<18}{2**34 / size / 1e9:.2f} billion weights fill 16 GiB")

# %% [markdown]
# (Activations come on top.)
#
# **Time.** Is training on n devices n times as fast? Your logical devices share the cores of one CPU, so they can't tell. The picture has them anyway, next to figures published for real GPUs in 2017. In both, each device keeps its batch, so the global batch grows with the devices. (`train`, the course's training function, reports its images/s after each epoch; the cell collects these events.)
#
# **Predict.** ResNet-50 on eight P100 GPUs of one machine: how many times the images/s of one?

# %%
my_speed_up = guess_number("Eight GPUs over one", 1, 12, "x", step=0.1)
my_speed_up


# %% tags=["nbval-ignore-output"]
from utils.training import train


def best_images_per_second(replicas):  # the fastest of four epochs, 64 images for each replica
    events, job = [], {"max_examples": 64 * 4 * 4, "epochs": 4, "global_batch_size": 64 * replicas}
    train(strategy="mirrored", replicas=replicas, on_event=events.append, **job)
    return max(e["images_per_second"] for e in events if e["event"] == "epoch")


own_rates = {n: best_images_per_second(n) for n in (1, 2, 4)}  # by number of replicas
print({n: f"{rate:,.0f} images/s" for n, rate in own_rates.items()})

# %% tags=["nbval-ignore-output"]
from utils.simulate.published import read_source, read_table

print(read_source("tf_benchmarks_2017"))
rows = [r for r in read_table("tf_benchmarks_2017") if r["platform"] == "DGX1-P100"]
gpus = [int(r["gpus"]) for r in rows]
curves = {}
for name in ("resnet_50", "alexnet"):
    curves[f"published: {name}"] = (gpus, [r[name] / rows[0][name] for r in rows])
curves["yours, one CPU"] = (list(own_rates), [rate / own_rates[1] for rate in own_rates.values()])
title = "Speed-up: P100 GPUs as published, and your logical devices"
figures.show(figures.lines(curves, x_label="devices", y_label="times one device", title=title))
show_guess(my_speed_up, curves["published: resnet_50"][1][-1], unit="×", how="published")
assert curves["published: resnet_50"][1][-1] > 7 > curves["published: alexnet"][1][-1]

# %% [markdown]
# On eight GPUs ResNet-50 came close to 8 (7.9). AlexNet didn't (6.0): its gradients are larger and its step shorter, so the exchange weighs more. Two things limit the gain. You can measure both: the first here, the second in [lesson 06](06-all-reduce.ipynb).
#
# **What doesn't spread over the devices**, the *serial* part, is the first. More devices speed up the step. They don't speed up the preparation of the batch, if the program does that image by image in Python.
#
# **Your turn.** A batch takes `input_seconds` to prepare, and then one device needs `step_seconds` to train on it. How many seconds do both take together on more devices?


# %%
def seconds_on(devices, input_seconds, step_seconds):
    return ...


# %% tags=["nbval-ignore-output"]
from distlab.explorables.amdahl import amdahl_explorer, amdahl_speed_up
from utils.environment import count_cores
from utils.measure import time_calls

seconds_on = turns.SERIAL.take(seconds_on)


def prepare():  # 64 images, standardized one by one in Python
    images = data.train.images[:64] / np.float32(255)
    return np.stack([(image - image.mean()) / image.std() for image in images])


input_seconds, step_seconds = time_calls(prepare, 30).best_seconds, 64 / own_rates[1]
parallel = step_seconds / (input_seconds + step_seconds)
alone, on_8 = (seconds_on(n, input_seconds, step_seconds) for n in (1, 8))
print(f"input {1000 * input_seconds:.1f} ms, step {1000 * step_seconds:.1f} ms")
limit = amdahl_speed_up(parallel, 8)
print(f"{parallel:.1%} of the time spreads; 8 real devices would be {limit:.1f} x as fast")
print(f"with your sum: {alone / on_8:.1f} x")
assert 1 < limit < 8 and np.isclose(limit, 1 / (1 - parallel + parallel / 8))
published, own = (dict(zip(*curves[name])) for name in ("published: alexnet", "yours, one CPU"))
dots = {"AlexNet, published": published, f"Yours, measured on {count_cores()} cores": own}
amdahl_explorer(parallel, dots, most_devices=8)

# %% [markdown]
# The curve is **Amdahl's law** for your measurement: the serial part sets a limit that no number of devices can pass. The dots are the speed-ups from above. One curve goes through all of AlexNet's dots. If yours are below 1, no curve goes through them: a second logical device brings work, and no core. (With `prefetch`, input and step overlap, and the slower one sets the pace: lesson 12.)
#
# **Communication** is the second. The fewer images each device has, the more an all-reduce of all gradients weighs. How much it weighs depends on the bytes, and on a link's speed and *latency* (the fixed price of a message). [Lesson 06](06-all-reduce.ipynb) has the formula, measures it, and lets you race five ways to do it.
#
# ### When one device is enough
#
# Ask two questions. Does one copy fit on one device? Is one device fast enough? If both answers are yes, use one device. You may hear that they are in 95 % of cases: treat that as folklore and measure. (And if you need several machines, know this before you plan: in Keras 3 on TensorFlow, `fit` across machines works only with a patch, while your own loops work unchanged. [Lesson 21](21-choosing.ipynb) has the whole table.) Now the two questions, for our network:

# %% tags=["nbval-ignore-output"]
needed_bytes = sum(kept.values()) + 64 * array_bytes(outputs)
minutes = 10 * 60_000 / own_rates[1] / 60
print(f"fits? one copy with 64 images takes {format_bytes(needed_bytes)}")
print(f"fast enough? ten epochs of all 60,000 images take {minutes:.1f} minutes on this machine")
assert needed_bytes < 2**30 and minutes < 120

# %% [markdown]
# ## Cheat sheet
#
# ```python
# per_replica_batch_size = 64
# global_batch_size = per_replica_batch_size * strategy.num_replicas_in_sync
# dataset = dataset.batch(global_batch_size)  # the dataset's batch is the global one
# for batch in strategy.experimental_distribute_dataset(dataset):
#     shares = [len(part) for part in strategy.experimental_local_results(batch)]
#
# bytes_of_one_device = 16 * parameters  # float32 with Adam, mirrored
# bytes_of_one_device += activation_bytes_per_image * per_replica_batch_size
# seconds = input_seconds + step_seconds / devices  # Amdahl; with prefetch the larger of the two
# seconds += 2 * (devices - 1) * (gradient_bytes / devices / bytes_per_second + latency)  # ring
# ```
#
# A whole program that trains on all devices of a machine, on one page: [mirrored_fit.py](../examples/mirrored_fit.py).
#
# **Recap**
#
# - A last batch of 2 left two of four replicas with nothing.
# - One product, cut by examples and by weights; workers that wait, and workers that don't.
# - Own gradients differed, reduced ones were equal, no weight traveled.
# - Adam in float32: 16 bytes a parameter on every mirrored replica; only activations shrink.
# - Your input time and your step time limit what more devices gain.
#
# ## Further reading
#
# - TensorFlow's guides, [Distributed training with TensorFlow](https://www.tensorflow.org/guide/distributed_training) and [Distributed input](https://www.tensorflow.org/tutorials/distribute/input), and the API page of [tf.distribute.MultiWorkerMirroredStrategy](https://www.tensorflow.org/api_docs/python/tf/distribute/MultiWorkerMirroredStrategy).
# - Parameter servers and staleness: Dean and others, [Large scale distributed deep networks](https://research.google/pubs/large-scale-distributed-deep-networks/), 2012; Chen and others, [Revisiting distributed synchronous SGD](https://arxiv.org/abs/1604.00981), 2016.
# - Averaging weights: Stich, [Local SGD converges fast and communicates little](https://arxiv.org/abs/1805.09767), 2018.
# - The limit: Amdahl, [Validity of the single processor approach to achieving large scale computing capabilities](https://doi.org/10.1145/1465482.1465560), 1967.
#
# ## The lab
#
# You practice this in [lab 01, batches and words](../labs/lab01-batches-and-words.ipynb).
