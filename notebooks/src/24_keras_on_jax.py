# %% [markdown] keras_backend="jax" shows="One Keras model on one device, data-parallel, tensor-parallel and sharded, all equal; the collectives read from the compiled program"
# # The same ideas on one mesh: Keras on JAX
#
# You ask how to run Keras's `fit` on several machines, or how to shard a model that doesn't fit, and the answer is: Keras 3 on JAX. What you have learned carries over, because the ideas are the same and only their names change. Here you take one model through four layouts without touching its code, and then read in the compiled program what each layout sends.
#
# **Time:** 75 minutes: a core of 55, and 20 for *And then* · **Prerequisites:** [all-reduce](06-all-reduce.ipynb), [model parallelism](15-model-parallelism.ipynb), [which way to cut](23-which-way-to-cut.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Train one Keras model with `DataParallel` and with a `LayoutMap`, and show that the weights equal one device's.
# - Say which part of each variable a device holds, and how many bytes that is.
# - Read the collectives in a compiled program, and compare them with what you would have sent by hand.
# - Find a layout key that matches nothing.

# %%
import os

os.environ["KERAS_BACKEND"] = "jax"  # before anything imports Keras
from distlab.lessons.keras_on_jax import check_backend
from utils.environment import quiet_tensorflow

check_backend()
with quiet_tensorflow():
    import jax
    import keras

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 4)  # before the first device is asked for
    keras.utils.set_random_seed(0)  # loads TensorFlow, as fit does: its banner stays unseen
devices = keras.distribution.list_devices()
print("Keras on", keras.backend.backend(), "with", devices)

# %%
import subprocess
import sys
from pathlib import Path

import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

# %% [markdown]
# ## One program
#
# In `tf.distribute` you choose a strategy and put your code into its scope. Here you set a *distribution* once, before the model is made. It says how variables and batches lie on the devices. Everything else is the program for one device.

# %%
from distlab.lessons.keras_on_jax import count_held_bytes
from utils.data import load

data = load("fashion_mnist").train.take(512)
images, labels = data.images.reshape(512, 784) / np.float32(255), data.labels


def train(distribution=None):
    """Return the model after 8 steps of 64 images each."""
    keras.distribution.set_distribution(distribution)
    keras.utils.set_random_seed(0)
    layers = [keras.Input((784,)), keras.layers.Dense(256, activation="relu", name="hidden")]
    model = keras.Sequential([*layers, keras.layers.Dense(10, name="logits")], name="net")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    model.fit(images, labels, batch_size=64, shuffle=False, verbose=0)
    return model


def held(model):
    """Return the bytes of weights and momentum on each device."""
    variables = [*model.variables, *model.optimizer.variables]
    return [count_held_bytes(variables, device) for device in jax.devices()]


one = train()
print(held(one), [variable.path for variable in one.variables])

# %% [markdown]
# The kernel of the first layer is 784 × 256, and its momentum is just as large. All of it is on the first device, and three devices have nothing to do. Remember the paths: they are how you will name a variable.
#
# ## Data parallel
#
# A mesh of four devices in a row, with one axis named `batch`. Each batch of 64 is split along that axis.

# %%
row = keras.distribution.DeviceMesh((4,), ("batch",), devices)
data_parallel = keras.distribution.DataParallel(row)
mirrored = train(data_parallel)


def check(model):
    """Fail unless the weights are one device's, to float32's rounding."""
    pairs = zip(model.get_weights(), one.get_weights(), strict=True)
    assert max(np.abs(a - b).max() for a, b in pairs) < 1e-6


check(mirrored)
print(f"each device holds {held(mirrored)[0] / held(one)[0]:.0%} of one device's bytes")

# %% [markdown]
# Data parallelism copies everything, here as under `MirroredStrategy`. It splits the work and saves no memory.
#
# ## What does the step send?
#
# You wrote no all-reduce, and Keras didn't either. JAX handed the step of *one* device to the compiler XLA, together with the layouts of its inputs. The compiler split the program over the devices and added the collectives that the result needs. (The method goes back to GSPMD. In JAX 0.10 its successor, Shardy, decides the layouts.) So the honest way to learn what is sent is to read the compiled program.
#
# `model.train_step` takes the state of the model and a batch, and returns the new state. That's the function that `fit` compiles.


# %%
from distlab.lessons.keras_on_jax import list_collectives


def collectives(model, distribution):
    """Return the collectives of one step of `fit`, as the compiler wrote them."""
    keras.distribution.set_distribution(distribution)
    parts = (model.trainable_variables, model.non_trainable_variables)
    parts += (model.optimizer.variables, model.metrics_variables)
    state = tuple([each.value for each in part] for part in parts)
    split = [distribution.get_data_layout(a.shape).backend_layout for a in (images, labels)]
    batch = jax.device_put((images[:64], labels[:64]), tuple(split))
    as_before = jax.tree.map(lambda array: array.sharding, state)
    step = jax.jit(model.train_step, out_shardings=(None, as_before))
    return list_collectives(step.lower(state, batch).compile().as_text())


[found] = collectives(mirrored, data_parallel)
print(found)
print("gradients:", 4 * mirrored.count_params(), "bytes, and the loss:", 4)

# %% [markdown]
# One all-reduce of all gradients, packed into one message together with the loss. How many bytes is that for each device? [Lesson 06](06-all-reduce.ipynb)'s ring can tell: we let it reduce vectors of the same size.

# %%
from utils.collectives import ring_all_reduce

vectors = [np.zeros(found.payload_bytes // 4, np.float32)] * 4
by_hand = max(ring_all_reduce(vectors).bytes_per_rank)
print(f"a device sends {found.sent_bytes:,} bytes on a ring; by hand {by_hand:,}")
assert abs(by_hand - found.sent_bytes) <= 64  # the pieces of the ring are whole numbers

# %% [markdown]
# ## Where is the loss-scaling trap?
#
# In [lesson 05](05-loss-scaling.ipynb) each replica took the mean over its own share, and you had to know the right divisor. Here there is no replica in the program. The mean is over the global batch, and the compiler has to give that mean, whatever the layout. That has a price: the compiler adds a collective wherever an operation looks across the batch (batch normalization is one), and the batch has to split evenly.

# %%
another = train(data_parallel)
try:
    another.fit(images[:62], labels[:62], batch_size=62, verbose=0)
except ValueError as error:
    print(str(error)[-104:])
    assert "evenly divide" in str(error)
else:
    raise AssertionError("62 images went to 4 devices")

# %% [markdown]
# An error instead of a wrong gradient. Drop the remainder. Or pad with weights of 0 and make the loss with `reduction="mean_with_sample_weight"`: the default divides by all 64 rows, the two empty ones included, so the gradient would be 3% too small.
#
# ## Tensor parallel: a `LayoutMap`
#
# Now a mesh of 2 × 2. The axis `batch` splits the images, and the axis `model` splits the kernels. A `LayoutMap` says how: its keys are patterns for paths, and each value has one entry per axis of the variable, the name of an axis of the mesh or `None`.
#
# The hidden kernel is cut by columns, so each device computes half of the hidden values ([lesson 15](15-model-parallelism.ipynb)).
#
# **Your turn.** How must the next kernel, 256 × 10, be cut so that each device can use its half of the hidden values as they are?

# %%
logits_layout = ...  # an entry for its rows and an entry for its columns

# %%
from distlab import figures
from distlab.lessons.keras_on_jax import draw_shards
from distlab.turns import lesson24 as turns

logits_layout = turns.LOGITS.take(logits_layout)
square = keras.distribution.DeviceMesh((2, 2), ("batch", "model"), devices)


def lay_out(mesh, layouts):
    """Return a distribution for {key: layout}; the axis `batch` splits the batch."""
    layout_map = keras.distribution.LayoutMap(mesh)
    layout_map.update(layouts)
    return keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name="batch")


layouts = {".*hidden/kernel": (None, "model"), ".*hidden/bias": ("model",)}
over_model = lay_out(square, {**layouts, ".*logits/kernel": logits_layout})
tensor_parallel = train(over_model)
check(tensor_parallel)


def draw(model, title):
    kernels = {f"{name} kernel": model.get_layer(name).kernel for name in ("hidden", "logits")}
    figures.show(draw_shards(kernels, title))


draw(tensor_parallel, "Which devices hold which part, cut over the axis model")
print(held(tensor_parallel), "bytes of weights and momentum")

# %% [markdown]
# The picture is drawn from the arrays' own shards. Devices 0 and 2 hold the same half, because they're in the same column of the mesh. Half the bytes on each device, momentum included: Keras gives the optimizer's variables the layout of their weights.
#
# What does this step send? Each device has partial sums of the logits of its images, and those have to be added along the axis `model`.
#
# **Your turn.** Write how many bytes that all-reduce carries on a device, for any batch and any mesh.


# %%
def logits_bytes(images, batch, model):
    return ...  # a global batch of images; the mesh is batch x model; 10 logits in float32


# %%
logits_bytes = turns.REDUCED.take(logits_bytes)
for each in collectives(tensor_parallel, over_model):
    print(each)
print("your function:", logits_bytes(64, 2, 2))

# %% [markdown]
# Two all-reduces, each over two devices. The small one adds the logits on the way forward. Lesson 15 counts one such all-reduce per pair of layers forward and one backward; the second is missing here because nobody asks for the gradient with respect to the images. The large one adds the gradients along the axis `batch`: half as many bytes as before, because each device has the gradients of its half only.
#
# Cut the two kernels in the opposite way, rows first and then columns. The result is the same. The bill isn't.

# %%
keys = {".*hidden/kernel": ("model", None), ".*logits/kernel": (None, "model")}
swapped = lay_out(square, keys)
other_way = train(swapped)
check(other_way)
ways = {"columns, then rows": (tensor_parallel, over_model)}
ways["rows, then columns"] = other_way, swapped
for name, way in ways.items():
    found = collectives(*way)
    total = sum(each.sent_bytes for each in found)
    print(f"{name}: {len(found)} collectives, {total:,} bytes sent by each device")

# %% [markdown]
# With rows first, the hidden values are partial sums. They have to be added before the ReLU, all 256 of them for each image. The compiler always makes the program correct. Making it cheap is your part, and the layout is how you do it.
#
# ## Sharded state: FSDP in one line
#
# ZeRO 3, or FSDP, shards weights and optimizer state over the *data* axis ([lesson 23](23-which-way-to-cut.ipynb)). In a `LayoutMap` that's nothing new: name the axis `batch` for the weights too.
#
# **Your turn.** Write the layout of a variable of any shape: cut the first axis that divides evenly, and leave the others.


# %%
def cut(shape, devices):
    return ...  # one entry per axis: "batch" or None


# %%
cut = turns.CUT.take(cut)
layouts = {variable.path: cut(variable.shape, 4) for variable in one.variables}
print(layouts)
over_batch = lay_out(row, layouts)
sharded = train(over_batch)
check(sharded)
draw(sharded, "Which devices hold which part, cut over the axis batch")
bytes_held = {"one device": one, "data parallel": mirrored, "tensor parallel": tensor_parallel}
bytes_held = {name: held(model)[0] for name, model in {**bytes_held, "sharded": sharded}.items()}
title = "Weights and momentum on the first device"
figures.show(figures.bars(bytes_held, unit="bytes", title=title))

# %% [markdown]
# A quarter on each device, and one device's weights again. (A path in full is a key as well.)
#
# **Predict.** In lesson 23 ZeRO 3 gathered the weights and reduce-scattered the gradients. Is there a reduce-scatter in the program that our compiler wrote for four CPU devices?

# %%
from distlab.explorables import guess_word

my_guess = guess_word("A reduce-scatter in the program", "yes", "no")
my_guess

# %%
from distlab.exercises.predict import show_guess

found = collectives(sharded, over_batch)
for each in found:
    print(each)
show_guess(my_guess, "yes" if any(e.name == "reduce-scatter" for e in found) else "no")

# %% [markdown]
# The large all-gather brings the hidden kernel together, as in lesson 23. (Once is enough: the backward pass doesn't need the first kernel, since nobody asks for the gradient of the images. The 10,240 bytes are the second kernel, and the 1,024 the hidden bias. The other two move gradients of activations: the 2,560 the logits', and the all-to-all the hidden values'.) But then comes an all-reduce of *all* gradients, and each device throws three quarters of the sum away. That's correct, and on a ring it sends twice what a reduce-scatter would. XLA's compiler for GPUs has a pass that turns this pair into a reduce-scatter, and its compiler for CPUs doesn't use it here. Without reading the program, you'd have believed what the word FSDP promises.
#
# The compiler also chooses what to move. Cut the hidden kernel by columns over the same four devices:

# %%
columns = lay_out(row, {**layouts, "net/hidden/kernel": (None, "batch")})
by_columns = train(columns)
check(by_columns)
for each in collectives(by_columns, columns):
    print(each)
assert held(by_columns) == held(sharded)

# %% [markdown]
# The same bytes held, and a different program. The first all-gather now has 64 × 784 × 4 bytes: it gathers the *images* instead of the weights. That's tensor parallelism over the data axis, and with 64 images it's much cheaper. With 64,000 it wouldn't be.
#
# ## The mistake: a key that matches nothing
#
# A key has to match a variable's path *in full*. (That's Keras 3.15; earlier releases may match part of a path.) Here is one that looks fine.

# %%
keys = {"hidden/kernel": (None, "model"), ".*logits/kernel": ("model", None)}
missed = train(lay_out(square, keys))
check(missed)
print(held(missed), "bytes, and data parallel:", held(mirrored))

# %% [markdown]
# No error, no warning, and the weights are right. Yet each device holds almost everything: the path is `net/hidden/kernel`, and `hidden/kernel` isn't all of it. On a real model you'd notice when memory runs out, or never.
#
# **Your turn.** Write the check: which keys match none of the paths? Python's `re.fullmatch(key, path)` compares as Keras does.


# %%
def unmatched(keys, paths):
    return ...  # a list of keys


# %%
unmatched = turns.UNMATCHED.take(unmatched)
stray = unmatched(list(keys), [variable.path for variable in missed.variables])
print("match nothing:", stray)
assert missed.get_layer("hidden").kernel.value.sharding.is_fully_replicated

# %% [markdown]
# The last line is the other way to see it: ask the array itself. Put one of the two into your program, right after the model is built.
#
# ## What it costs
#
# All layouts at once, each a step of 64 images on four devices:

# %%
ways = {"data parallel": (mirrored, data_parallel)}
ways["tensor parallel"] = tensor_parallel, over_model
ways["sharded by rows"] = sharded, over_batch
ways["sharded by columns"] = by_columns, columns
costs = {name: sum(each.sent_bytes for each in collectives(*w)) for name, w in ways.items()}
for name, (model, _) in ways.items():
    print(f"{name:<19} holds {held(model)[0]:>9,} and sends {costs[name]:>9,} bytes a step")
assert min(costs, key=costs.get) == "sharded by columns"
figures.show(figures.bars(costs, unit="bytes", title="What each device sends in a step, on a ring"))

# %% [markdown]
# (Counted from the programs, with the ring's formulas. Nothing was timed.) For this tiny model and this small batch, cutting the weights over all four devices by columns sends the least, and holds as little as by rows. A large enough batch reverses the order of what is sent: what travels by columns grows with the batch, and gradients don't.
#
# This is the end of the core. Take a break if you like.
#
# ## And then: a step by hand
#
# If the compiler doesn't choose what you want, write the collectives yourself. Inside `jax.shard_map` a function sees one device's part, as a replica does in `strategy.run`. Here is the step of FSDP for one kernel, with the reduce-scatter that we missed.


# %%
line = jax.make_mesh((4,), ("batch",))
x, y = images[:64], np.eye(10, dtype=np.float32)[labels[:64]]
kernel = np.random.default_rng(0).normal(size=(784, 10)).astype(np.float32) / 28


def find_loss(kernel, x, y):
    return -(jax.nn.log_softmax(x @ kernel) * y).sum() / 64  # 64: the GLOBAL batch


def fsdp_step(piece, x, y):
    """Return the new rows of the kernel that this device holds."""
    whole = jax.lax.all_gather(piece, "batch", tiled=True)
    gradient = jax.grad(find_loss)(whole, x, y)
    return piece - 0.1 * jax.lax.psum_scatter(gradient, "batch", tiled=True)


# %%
part = PartitionSpec("batch")
step = jax.shard_map(fsdp_step, mesh=line, in_specs=(part, part, part), out_specs=part)
placed = [jax.device_put(each, NamedSharding(line, part)) for each in (kernel, x, y)]
new = jax.jit(step)(*placed)
assert np.allclose(new, kernel - 0.1 * jax.grad(find_loss)(kernel, x, y), atol=1e-6)
for each in list_collectives(jax.jit(step).lower(*placed).compile().as_text()):
    print(each)

# %% [markdown]
# There it is, with a quarter of the gradient as its result. And the loss-scaling trap is back: inside `shard_map` you're one of four, and the divisor is yours to know.
#
# ## And then: saved under one layout, restored under another
#
# [examples/keras_jax.py](../examples/keras_jax.py) is one page of public API: a model, `fit`, and a checkpoint that holds full arrays in one file. It trains here for one epoch of 640 images on four devices, data parallel.

# %%
home = Path("runs/lesson24")
home.mkdir(parents=True, exist_ok=True)
few, test = load("fashion_mnist").train.take(640), load("fashion_mnist").test.take(400)
arrays = {"x_train": few.images, "y_train": few.labels}
arrays |= {"x_test": test.images, "y_test": test.labels}
np.savez(home / "data.npz", **{name: np.squeeze(array) for name, array in arrays.items()})
os.environ["FASHION_MNIST"] = str((home / "data.npz").resolve())


def words(checkpoint, **options):
    """Return the command that runs the example with a checkpoint of this name."""
    options |= {"checkpoint": home / checkpoint, "checkpoint-every": 5}
    pairs = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [sys.executable, "../examples/keras_jax.py", *pairs]


for name in ("two.npz", "one.npz"):
    (home / name).unlink(missing_ok=True)
four = words("two.npz", epochs=1, **{"cpu-devices": 4})
ran = subprocess.run(four, capture_output=True, text=True, check=True)
print(*[line for line in ran.stdout.splitlines() if "{" not in line], sep="\n")

# %% [markdown]
# ## And then: two processes, and one is killed
#
# The same program again, now as two processes with two devices each, and sharded. `distlab run` starts both and sets the variables that `keras.distribution.initialize()` reads. They find the checkpoint of the data-parallel run and cut its arrays as *their* layout says. When the chief has saved step 20, we kill the other process, as if its machine were gone.

# %% tags=["nbval-ignore-output"] seconds=300
from distlab.lessons.killed_run import kill_worker
from utils.engines import RunSettings, run_program

seen, said, killed = [], [], []


def watch(task, line):
    """Note the first worker's lines; kill the second after step 20."""
    if task == "worker 0" and line.startswith(("4 devices", "resumed", "saved")):
        seen.append(line)
        if line == "saved step 20" and not killed:
            killed.append(line)
            kill_worker(1)


both = [*words("two.npz", epochs=8, **{"cpu-devices": 2}), "--sharded"]
report = run_program(both, RunSettings(workers=2, max_restarts=1), watch, said.append)
print(*[line for line in said if "ended" in line], sep="\n")
print(*[line for line in seen if not line.startswith("saved")], sep="\n")
assert report.status == 0 and report.restarts == 1

# %%
alone = words("one.npz", epochs=8, **{"cpu-devices": 1})
subprocess.run(alone, capture_output=True, check=True)
with np.load(home / "one.npz") as ours, np.load(home / "two.npz") as theirs:
    assert ours["step"] == theirs["step"] == 80
    differences = [np.abs(ours[name] - theirs[name]).max() for name in ours]
assert max(differences) < 0.02  # float32 adds up in another order, and that grows in 80 steps
print("three layouts, one kill, and each weight within 0.02 of one device's")

# %% [markdown]
# Four devices in one process, then two interrupted processes of two, and the weights end within 0.02 of one device's. (Float32 adds up in another order, and the small differences grow over 80 steps.) Nothing here survives the loss of a process while it runs: by default the others notice after up to 100 seconds (JAX's heartbeat timeout; here `distlab run` was quicker), and all have to start again.
#
# ## Recap
#
# - One program ran under four layouts and gave one device's weights each time.
# - The compiler added the collectives. Reading the program showed how many there were, and how large.
# - Columns, then rows sent less than the opposite order, and both were correct.
# - Sharded state held a quarter, and the CPU's compiler sent it with an all-reduce.
# - A key that matched nothing sharded nothing, and only the arrays' shards showed it.
#
# What you know, in four dialects ([three lines of each](../docs/counterparts.md)):
#
# | | `tf.distribute` | `keras.distribution` | `jax.sharding` | PyTorch |
# |---|---|---|---|---|
# | devices | a strategy | `DeviceMesh` | `jax.make_mesh` | `init_device_mesh` |
# | data parallel | `MirroredStrategy`, `MultiWorkerMirroredStrategy` | `DataParallel` | the batch over an axis | `DistributedDataParallel` |
# | sharded state | no ZeRO; parameter servers split variables | `ModelParallel`, weights over the batch's axis | weights over the same axis | `fully_shard` |
# | tensor parallel | nothing built in (DTensor, experimental) | `ModelParallel` with a `LayoutMap` | a `PartitionSpec` for each kernel | `parallelize_module` |
# | a collective by hand | `ReplicaContext.all_reduce` | use `jax.lax` | `jax.lax.psum_scatter` in `jax.shard_map` | `reduce_scatter_tensor` |
# | pipeline | nothing built in | nothing built in | `jax.lax.ppermute` | `torch.distributed.pipelining` |
# | several processes | TF_CONFIG | `keras.distribution.initialize` | `jax.distributed.initialize` | `torchrun`, `init_process_group` |
# | parameter servers, asynchronous training | `ParameterServerStrategy` | no | no | not in this course |
# | `fit` on several machines | Keras 2, or Keras 3 patched (`distlab run --keras legacy` or `patched`) | yes | has no `fit` | has no `fit` |
# | a process dies | all start again from a checkpoint; a worker of parameter servers is simply replaced | the same | the same | not in this course |
#
# The PyTorch column follows its documentation, and nothing here runs it. On GPUs and TPUs the two `jax.config` lines go, the meshes have to fit the number of devices, and the check needs a looser limit, since matrices are multiplied with fewer bits there. We haven't run it there.
#
# ## On a real GPU
#
# With `jax[cuda12]` installed on a machine with several GPUs:
#
#     python examples/keras_jax.py --sharded
#
# Look at the bytes in its first line, and compare them with the run without `--sharded`. On N GPUs, expect about 1/N.
#
# ## Cheat sheet
#
# ```python
# os.environ["KERAS_BACKEND"] = "jax"  # before anything imports Keras
# mesh = keras.distribution.DeviceMesh((2, 2), ("batch", "model"), keras.distribution.list_devices())
# layouts = keras.distribution.LayoutMap(mesh)
# layouts[".*hidden/kernel"] = (None, "model")  # the pattern has to match the WHOLE path
# keras.distribution.set_distribution(  # before the model is made
#     keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch"))
# variable.value.sharding, variable.value.addressable_shards  # where it really is
# jax.jit(step).lower(*arguments).compile().as_text()  # which collectives there really are
# ```
#
# ## Further reading
#
# - Keras, [Distributed training with Keras 3](https://keras.io/guides/distribution/)
# - JAX, [Distributed arrays and automatic parallelization](https://docs.jax.dev/en/latest/notebooks/Distributed_arrays_and_automatic_parallelization.html) and [shard_map](https://docs.jax.dev/en/latest/notebooks/shard_map.html)
# - Xu and others, [GSPMD: General and Scalable Parallelization for ML Computation Graphs](https://arxiv.org/abs/2105.04663)
#
# ## The lab
#
# In [lab 17, layouts on a mesh](../labs/lab17-layouts-on-a-mesh.ipynb), you lay out a Transformer so that it fits and sends little. Your layout is graded by its compiled program.
