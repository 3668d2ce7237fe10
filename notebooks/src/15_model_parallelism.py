# %% [markdown] shows="One layer split by columns and by rows; attention by heads; DTensor meshes; ZeRO's memory"
# # Model parallelism
#
# Your model doesn't fit on one device. Adding more devices the usual way doesn't help: data parallelism puts a full copy on each. Here you split one network by layers, by columns, by rows and by heads. You find out what each split sends and stores, and check that each one gives the loss and the gradients of the whole model.
#
# **Time:** 90 minutes, in two sittings, and 5 for *And then*, which can wait · **Prerequisites:** [custom training loop](04-custom-training-loop.ipynb) and [all-reduce](06-all-reduce.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Place the layers of a network on different devices, and count what each holds and what they send each other.
# - Split a dense layer by columns and by rows, and choose the collective that each needs.
# - Predict how many collectives two split layers need, and show that an attention layer split by heads needs no more.
# - Run one program with DTensor on a grid of devices, split by data, by model, and by both.
# - Compute the bytes on each device under ZeRO, which shards what data parallelism copies.

# %%
import numpy as np

from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
    from tensorflow.experimental import dtensor
from utils.devices import use_logical_devices

set_seeds(0)
devices = use_logical_devices(4)
print(devices)

# %% [markdown]
# ## Does it fit?
#
# Take a language model with 7.5 billion parameters, trained with Adam in mixed precision. Each parameter takes 16 bytes: 2 for the weight, 2 for its gradient, and 12 for a 32-bit copy of the weight and Adam's two averages.
#
# **Predict.** You have 64 accelerators of 80 GB and train data-parallel on all of them. How many GB must each of them hold, not counting activations?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Held by each of 64 accelerators", 0, 200, "GB")
my_guess

# %%
from distlab import figures
from distlab.exercises.predict import show_guess
from utils.simulate.memory import find_zero_memory

held = {
    "one device": find_zero_memory(7.5e9, ranks=1, stage=0).total / 1e9,
    "each of 64, data-parallel": find_zero_memory(7.5e9, ranks=64, stage=0).total / 1e9,
    "each of 64, model split evenly": 7.5 * 16 / 64,
}
show_guess(my_guess, held["each of 64, data-parallel"], unit="GB", how="computed")
title = "A model of 7.5 billion parameters"
figures.show(figures.bars(held, unit="GB", title=title, reference=("accelerator: 80 GB", 80.0)))

# %% [markdown]
# (These numbers are arithmetic: 16 bytes times 7.5 billion. Nothing was measured.) If you said about 2, you divided by 64. Data parallelism spreads the examples, not the model: 64 devices hold 64 copies, and the model fits on none of them. Split evenly, it would take 1.88 GB on each. There are three ways to get there. Cut *between* layers: each device has some of the layers. Cut *through* layers: each device has a part of every layer. Or stay data-parallel and shard only what is *stored*, as ZeRO and FSDP do. That comes [at the end](#What-it-costs), and in practice it is often the first thing to try.
#
# Here are the 64 copies as glasses, the first ones and the last: each glass is a device, the red line is its memory, and under it stand the bytes that the device sends in a step. **Get the glasses below the red line, in at least two ways.** You don't have to know yet what each setting does.

# %%
from distlab.explorables import memory_machine

memory_machine()

# %% [markdown]
# The glasses come back at the end, when you've built what fills and empties them. (They count a Transformer's activations too, so they hold more than the bars.)
#
# Every split below has to give the same loss and gradients as the whole model. Most are compared with one reference: a network with ten hidden units, unsplit, in float64.

# %%
from utils.data import load
from utils.models import build_mlp
from utils.parallel.parts import run_unsplit

split = load("fashion_mnist").train.take(32)
images, labels = split.images[..., np.newaxis] / 255.0, split.labels
model = build_mlp(dtype="float64", hidden_units=10)
reference = run_unsplit(model, images, labels)


def check(step):
    """Fail unless the loss and every gradient are those of the unsplit model."""
    assert reference.find_difference(step) < 1e-9


print([(v.path, tuple(v.shape)) for v in model.trainable_variables])

# %% [markdown]
# ## Layers on different devices
#
# The first layer goes to CPU:0, the second to CPU:1. Two things must cross: the hidden values on the way forward, and their gradient on the way back. Each device has its own tape; the backward pass comes in the cell after the prediction.

# %%
from distlab.figures import Arrow, Box

boxes = {
    "0": Box("CPU:0", 0, 40, 300, 130),
    "one": Box("dense 1\n784 × 10", 20, 76, 260, 76, "variables"),
    "1": Box("CPU:1", 420, 40, 300, 130),
    "two": Box("dense 2 and the loss\n10 × 10", 440, 76, 260, 76, "variables"),
}
arrows = [
    Arrow("0", "1", "hidden values", offset=-20),
    Arrow("1", "0", "their gradient", dashed=True, offset=35),
]
alt = "Dense 1 on CPU:0 sends hidden values to dense 2 on CPU:1, and gets their gradient back."
title = "Two layers on two devices"
figures.show(figures.diagram(boxes, arrows, title=title, alt=alt, height_px=180))


# %%
pixels = images.astype("float32")  # as keras.Input rounds them
x = tf.constant(pixels.reshape(32, 784), tf.float64)  # [batch, pixels]
first, second = [[v.numpy() for v in layer.trainable_variables] for layer in model.layers[1:]]
kernel = first[0]  # [784, 10]
with tf.device("CPU:0"):
    kernel_1, bias_1 = (tf.Variable(value) for value in first)
with tf.device("CPU:1"):
    kernel_2, bias_2 = (tf.Variable(value) for value in second)

with tf.device("CPU:0"), tf.GradientTape() as tape_0:
    hidden = tf.nn.relu(x @ kernel_1 + bias_1)  # [batch, 10]
with tf.device("CPU:1"), tf.GradientTape() as tape_1:
    arrived = tf.identity(hidden)  # sent to CPU:1
    tape_1.watch(arrived)
    logits = arrived @ kernel_2 + bias_2
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = tf.reduce_mean(losses)

# %% [markdown]
# **Your turn.** The batch has 32 examples and a number takes 8 bytes. How many bytes cross in this step, both ways together? Write it as a product.

# %%
crossing = ...  # bytes

# %%
from utils.measure import array_bytes

from distlab.turns import lesson15 as turns

with tf.device("CPU:1"):
    for_hidden, *last_two = tape_1.gradient(loss, [arrived, kernel_2, bias_2])
with tf.device("CPU:0"):
    upstream = tf.identity(for_hidden)  # sent back to CPU:0
    first_two = tape_0.gradient(hidden, [kernel_1, bias_1], output_gradients=upstream)

for ours, theirs in zip([*first_two, *last_two], reference.gradients, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
print("gradients on", [gradient.device[-5:] for gradient in [*first_two, *last_two]])
print(f"{array_bytes(model.trainable_variables) / 1e3:.1f} kB of weights did not move")
crossing = turns.CROSSING.take(crossing)
print(
    f"crossed, counted: {array_bytes([arrived, upstream]):,} bytes, by your product: {crossing:,}"
)

# %% [markdown]
# That is 32 × 10 numbers of 8 bytes, twice. Weights stay where they are; activations and their gradients travel. That is the bargain of every cut between or through layers. Data parallelism is the reverse: gradients as large as all the weights travel, and activations stay.
#
# `run_placed` does this for any chain of layers. Here it runs a convolutional network, with the convolutions on two devices and the dense layers on two more. The matrix shows who sends how much to whom.

# %%
from utils.models import build_cnn
from utils.parallel.layers import run_placed

cnn = build_cnn(dtype="float64")
plan = ["CPU:0", "CPU:0", "CPU:1", "CPU:1", "CPU:1", "CPU:2", "CPU:3"]
placed = run_placed(cnn, plan, images, labels)
assert run_unsplit(cnn, images, labels).find_difference(placed) < 1e-9
weights = {device: 0.0 for device in devices}
values = dict(weights)
for layer in placed.layers:
    weights[layer.device] += layer.parameter_bytes / 1e3
    values[layer.device] += layer.activation_bytes / 1e3
figures.show(figures.bars(weights, unit="kB", title="Weights on each device"))
figures.show(figures.bars(values, unit="kB", title="Activations of 32 images on each device"))

links = placed.traffic.count_links()
table = np.array([[links.get((a, b), 0) / 1e3 for b in devices] for a in devices])
names = [f"from {d}" for d in devices], [f"to {d}" for d in devices]
figures.show(figures.matrix(table, *names, title="kB sent in one step", format="{:,.0f}"))
assert placed.traffic.count_bytes("activations") == placed.traffic.count_bytes("gradients")

# %% [markdown]
# Convolutions hold few weights and large activations, dense layers the reverse. With 32 images, the device with the fewest weights holds the most bytes in all. Where you cut decides what is sent: the cut after the last pooling layer sends less than a third of what the cut after the first one does.
#
# Splitting by layers has one flaw: while one device works, the other three wait. [Lesson 16](16-pipeline-parallelism.ipynb) fills that time.
#
# ## One layer by columns
#
# The other cut goes *through* a layer. A dense layer computes y = x W. Give each of two devices half of the *columns* of W, five hidden units each. Forward, each device computes five columns of y, and an all-gather puts them together. Backward, each device knows only how its own five units depend on x, so the gradient for x is the sum of both: an all-reduce.

# %%
from distlab.lessons.split_matrix import split_matrix

figures.show(split_matrix("columns", [5, 5], inputs=784))
halves = kernel[:, :5], kernel[:, 5:]
y = np.concatenate([x @ half for half in halves], axis=1)  # the all-gather
np.testing.assert_allclose(y, x @ kernel, atol=1e-12)
dy = np.random.default_rng(0).normal(size=y.shape)  # the gradient for y: any will do
parts = [dy[:, :5] @ halves[0].T, dy[:, 5:] @ halves[1].T]  # one on each device, [batch, 784]
np.testing.assert_allclose(parts[0] + parts[1], dy @ kernel.T, atol=1e-12)  # the all-reduce
print("the gradient for x is the sum of two parts of shape", parts[0].shape)

# %% [markdown]
# ## One layer by rows
#
# Or give each device half of the *rows* of W, and the matching columns of x. Each element of y is a sum over all 784 pixels, and now every device has a part of every sum. So this time the all-reduce is in the forward pass.

# %%
figures.show(split_matrix("rows", [392, 392], outputs=10))

upper, lower = kernel[:392], kernel[392:]
terms = [x[:, :392] @ upper, x[:, 392:] @ lower]  # one on each device, [batch, 10]
np.testing.assert_allclose(terms[0] + terms[1], x @ kernel, atol=1e-12)  # the all-reduce
dx = np.concatenate([dy @ upper.T, dy @ lower.T], axis=1)  # nothing to add up
np.testing.assert_allclose(dx, dy @ kernel.T, atol=1e-12)
print("forward: the sum of two terms of shape", terms[0].shape)

# %% [markdown]
# The two are mirror images: what columns need backward, rows need forward. `split_dense` makes such a layer with the tensors on their devices, and records each collective that it needs ([lesson 06](06-all-reduce.ipynb) has the ring that sends it).

# %%
from utils.parallel.tensor import split_dense

for way in ("columns", "rows"):
    layer = split_dense(kernel, first[1], devices[:2], way)
    outputs = layer.run_forward(layer.group.copy(x))
    gradients = layer.run_backward(layer.group.copy(tf.constant(dy)))
    np.testing.assert_allclose(outputs[0], x @ kernel + first[1], atol=1e-9)
    np.testing.assert_allclose(gradients[1], dy @ kernel.T, atol=1e-9)
    print(f"{way:<8}", [f"{call.phase}: {call.kind}" for call in layer.group.calls])

# %% [markdown]
# ## Two layers, one all-reduce
#
# Now we split both layers of the network. Split both by columns, and you need two collectives forward and two backward.
#
# **Predict.** Split the first by columns and the second by rows. How many collectives does a step need in all?

# %%
my_guess = guess_number("Collectives in a step", 0, 8)
my_guess

# %%
from distlab.lessons.split_mlp import run_split_mlp

both = run_split_mlp(model, devices[:2], images, labels, "both")
check(both)
figures.show(split_matrix("both", [5, 5], inputs=784))
print([f"{call.phase}: {call.kind} of {call.payload_bytes:,} bytes" for call in both.calls])
show_guess(my_guess, len(both.calls), unit=" collectives")

# %% [markdown]
# The hidden values are never put together, and needn't be. The five that device 0 computed are exactly the five that its rows of the second kernel need, and ReLU works on each value separately. (The backward all-reduce is for the gradient of x, which earlier layers would need. Here there are none.)
#
# The ten units don't have to divide evenly: three devices get 4, 3 and 3. In the table below, *both* is columns, then rows, and every cell was compared with the unsplit model.

# %%
ways, heads = ["columns", "rows", "both"], ["1 device", "2 devices", "3 devices", "4 devices"]
table = np.zeros((3, 4), int)
for i, j in np.ndindex(3, 4):
    step = run_split_mlp(model, devices[: j + 1], images, labels, ways[i])
    check(step)
    table[i, j] = max(step.parameter_bytes)
title = "Bytes of weights on the device that has most"
figures.show(figures.matrix(table, ways, heads, title=title, format="{:,}"))

# %% [markdown]
# **A good place for a break.** When you come back, run all cells above once.
#
# ## Attention by heads
#
# Most models that don't fit today are Transformers. Megatron-LM cuts each of their blocks with this pair, columns and then rows, twice: once in its dense layers, once in its attention. An attention layer looks harder to cut, because every token looks at every other. But it has several *heads*, and heads don't need each other until the very end. A head is a group of columns of the query, key and value kernels, and its result meets a group of rows of the output kernel. Columns, then rows, again.
#
# The first cell has Keras's layer with four heads, and the same by hand with two heads on each of two devices. The two parts of the result are added, one all-reduce of [32, 49, 64] numbers, and no device ever sees the other's heads. In the second cell, `SplitAttention` does this for any built Keras attention layer, backward pass included. There it cuts the attention in the first block of a Transformer like the one in `distlab train --model transformer`, but twice as wide, whose tokens are 49 patches of an image. (Random tokens will do for the check.)

# %%
from utils.models import build_transformer
from utils.parallel.attention import SplitAttention
from utils.parallel.group import DeviceGroup

tokens = tf.constant(np.random.default_rng(1).normal(size=(32, 49, 64)))  # [batch, token, width]
layer = keras.layers.MultiHeadAttention(num_heads=4, key_dim=16, dtype="float64")
whole = layer(query=tokens, value=tokens)

*qkv, out, out_bias = [v.value for v in layer.trainable_variables]
parts = []  # one on each device, [batch, token, width]
for device, heads in ((devices[0], slice(0, 2)), (devices[1], slice(2, 4))):
    with tf.device(device):
        q, k, v = (
            tf.einsum("btw,whs->bhts", tokens, kernel[:, heads]) + bias[heads][:, tf.newaxis]
            for kernel, bias in zip(qkv[::2], qkv[1::2])
        )  # [batch, head, token, 16]
        weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 4)  # 4: the root of 16
        parts.append(tf.einsum("bhts,hsw->btw", weights @ v, out[heads]))
np.testing.assert_allclose(parts[0] + parts[1] + out_bias, whole, rtol=0, atol=1e-9)
print("parts of shape", parts[0].shape, "on", [part.device[-5:] for part in parts])


# %%
transformer = build_transformer(dtype="float64", width=64)
block = transformer.get_layer("block_1").get_layer("attention")
with tf.GradientTape() as tape:
    tape.watch(tokens)
    whole = block(tokens, tokens)
sources = [tokens, *[variable.value for variable in block.trainable_variables]]
dx, *wanted = tape.gradient(whole, sources)

by_heads = SplitAttention(block, DeviceGroup(devices[:2]))
outputs = by_heads.run_forward(by_heads.group.copy(tokens))
back = by_heads.run_backward(by_heads.group.copy(tf.ones_like(whole)))
pairs = zip([outputs[1], back[0], *by_heads.gather_gradients()], [whole, dx, *wanted])
assert max(float(np.max(np.abs(ours - theirs))) for ours, theirs in pairs) < 1e-9
print([f"{call.phase}: {call.kind}" for call in by_heads.group.calls])
print("bytes of weights on each device:", by_heads.count_parameter_bytes())

# %% [markdown]
# Devices of one process share memory. Between machines a tensor must be sent, and the sender's tape can't follow it, so the backward pass needs its own message. [Lesson 16](16-pipeline-parallelism.ipynb) does that with an encoder and a decoder in two processes.
#
# ## DTensor: describe the layout, not the messages
#
# So far we wrote everything by hand, collectives included. With DTensor you don't. The devices form a *mesh*, a grid with named dimensions. Every tensor gets a *layout*: which of its axes is split over which dimension of the mesh. You still write the program for one device, and TensorFlow works out the collectives. `relayout` cuts a tensor to a layout, `fetch_layout` returns the layout of a result, and `unpack` the pieces.
#
# **Your turn.** The mesh below has the dimensions `"batch"` and `"model"`. x is split by examples over `"batch"`. Write the layout that splits W [784, 10] by columns over the other one: a word for each axis, `"unsharded"` if it isn't split.

# %%
columns = ...  # a list of two words


# %%
from distlab.lessons.dtensor_tiles import draw_tiles

mesh = dtensor.create_mesh([("batch", 2), ("model", 2)], devices=devices)
by_columns = dtensor.Layout(turns.COLUMNS.take(columns), mesh)
by_examples = dtensor.Layout(["batch", dtensor.UNSHARDED], mesh)


def place(array, layout):
    whole = dtensor.copy_to_mesh(tf.constant(array), dtensor.Layout.replicated(mesh, rank=2))
    return dtensor.relayout(whole, layout)


tensors = {"x": place(x, by_examples), "W": place(kernel, by_columns)}
tensors["y"] = tensors["x"] @ tensors["W"]  # no collective named anywhere
layouts = {n: (t.shape, dtensor.fetch_layout(t).sharding_specs) for n, t in tensors.items()}
figures.show(draw_tiles(layouts, {"batch": 2, "model": 2}))
print("y on each device:", [tuple(piece.shape) for piece in dtensor.unpack(tensors["y"])])

# %% [markdown]
# In the picture, the mesh has devices 0 and 1 in its first row, 2 and 3 in its second. x is split over "batch" only, so the two devices of a row hold the same half of x. W is split over "model" only, so the two devices of a column hold the same half of W. y is split both ways: each device has 16 examples and 5 units, computed from its own pieces alone.
#
# ### A variable, its gradient, a step
#
# A training step needs three more things, and each has a layout. `dtensor.DVariable` is a variable that lives on the mesh in pieces. Below, the first kernel is split by columns and the second by rows, as by hand above. (Biases are zero in a fresh network, so we leave them out.)

# %%
by_rows = dtensor.Layout(["model", dtensor.UNSHARDED], mesh)
kernels = [
    dtensor.DVariable(place(kernel, by_columns)),
    dtensor.DVariable(place(second[0], by_rows)),
]


@tf.function
def train_step(x, targets):
    with tf.GradientTape() as tape:
        logits = tf.nn.relu(x @ kernels[0]) @ kernels[1]
        losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
        loss = tf.reduce_mean(losses)
    gradients = tape.gradient(loss, kernels)
    for variable, gradient in zip(kernels, gradients):
        variable.assign_sub(0.1 * gradient)
    return gradients


gradients = train_step(tensors["x"], place(np.eye(10)[labels], by_examples))
for name, tensor in {"variable": kernels[0], "gradient": gradients[0]}.items():
    print(name, dtensor.fetch_layout(tensor).sharding_specs)
moved = np.concatenate([p.numpy() for p in dtensor.unpack(kernels[0].read_value())[:2]], axis=1)
np.testing.assert_allclose(moved, kernel - 0.1 * reference.gradients[0], rtol=0, atol=1e-9)
print("pieces after the step:", [tuple(p.shape) for p in dtensor.unpack(gradients[0])])

# %% [markdown]
# The gradient has its variable's layout, so the update needs no message: each device changes its own columns. The messages are inside the step. The two rows of the mesh saw different examples, so their gradients are summed, which is data parallelism's all-reduce. And within a row, each device has only a part of every logit, so the logits are summed too, as between columns and rows above. You wrote neither.
#
# Now we arrange four devices in three ways: "batch 4" splits only the examples, "model 4" only the model, "2 × 2" both.

# %%
from distlab.lessons.dtensor_mlp import run_dtensor

meshes = {
    "batch 4": {"batch": 4},
    "model 4": {"model": 4},
    "2 × 2": {"batch": 2, "model": 2},
}
wide = build_mlp(dtype="float64", hidden_units=12)  # 12 units divide by 4: DTensor insists
wanted = run_unsplit(wide, images, labels)
table = {}
for name, shape in meshes.items():
    step = run_dtensor(wide, shape, devices, images, labels)
    assert wanted.find_difference(step) < 1e-9
    table[name] = [step.parameter_bytes[0], step.image_bytes[0]]
title = "Bytes on each of four devices"
numbers = np.array(list(table.values()))
held = ["weights", "images"]
figures.show(figures.matrix(numbers, list(table), held, title=title, format="{:,}"))

# %% [markdown]
# One function, three meshes, equal gradients. "batch 4" is data parallelism, "model 4" is the split by columns and rows, and 2 × 2 is both.
#
# The idea is Mesh-TensorFlow's, of 2018: name the dimensions of tensors and mesh, and map one onto the other. It trained transformers of up to 5 billion parameters on 512 TPU cores. GSPMD brought the idea to XLA, and through it to JAX. DTensor is TensorFlow's own version, and still experimental. Keras has an API for this, `keras.distribution.ModelParallel` with a `LayoutMap`. But it needs the JAX backend: with TensorFlow's, the variables silently stay whole.
#
# ## The mistake: a nonlinearity before the all-reduce
#
# With a split by rows, each device has a part of every sum. It is tempting to carry on with that part: apply ReLU now, add up later.

# %%
early = np.maximum(terms[0], 0) + np.maximum(terms[1], 0)  # ReLU, then all-reduce
late = np.maximum(terms[0] + terms[1], 0)  # all-reduce, then ReLU
wrong = np.mean(np.abs(early - late) > 1e-9)
print(f"{100 * wrong:.0f} % of the hidden values are wrong, and nothing complains")
assert wrong > 0.1

# %% [markdown]
# The ReLU of a sum isn't the sum of the ReLUs. So a layer split by rows needs its all-reduce before the nonlinearity. A layer split by columns has whole sums, only fewer of them, and needs nothing. That is why the order is columns first, then rows.
#
# The second mistake gives correct numbers in the wrong place. A tape remembers operations, not devices. If you ask it for gradients outside the `tf.device` scope, the whole backward pass runs on CPU:0 (GPU:0 on a machine with GPUs), with every activation copied there. Here the gradient is taken outside the scope, then inside.

# %%
with tf.device("CPU:2"), tf.GradientTape(persistent=True) as tape:
    weight = tf.Variable(second[0])
    output = tf.square(weight)
outside = tape.gradient(output, weight)
with tf.device("CPU:2"):
    inside = tape.gradient(output, weight)
print("forward, outside, inside:", *[t.device[-5:] for t in (output, outside, inside)])
assert outside.device.endswith("CPU:0") and inside.device.endswith("CPU:2")

# %% [markdown]
# The fix is the second `with`: open the device's scope again for its part of the backward pass. `run_placed` does this for you, and reports for each layer where its gradients ended up (`gradient_device`).
#
# ## What it costs
#
# Memory first, and the third way out. ZeRO cuts no layer: training stays data-parallel. But each device stores only its share of the optimizer state (stage 1), of the gradients as well (stage 2), and of the weights as well (stage 3). It fetches the rest when it needs it. PyTorch's FSDP does what stage 3 does. Here is the ZeRO paper's row for 7.5 billion parameters on 64 devices. Below the picture are its published GB next to what we compute. The bars leave out activations. The glasses from the top include them.
#
# **Your turn.** The bytes for one parameter were 2 (weight), 2 (gradient) and 12 (optimizer). How many of them does each of `ranks` devices hold at stage 0 (plain data parallelism), 1, 2 and 3?


# %%
def bytes_each(stage, ranks):
    return ...


# %%
from utils.simulate.published import read_table

(row,) = read_table("zero_memory")
parameters, ranks = row["parameters_billion"] * 1e9, int(row["data_parallel"])
bytes_each = turns.ZERO.take(bytes_each)
print("yours, GB:", [round(float(7.5 * bytes_each(stage, ranks)), 2) for stage in range(4)])
memory = [find_zero_memory(parameters, ranks, stage) for stage in range(4)]
names = ["data-parallel", "stage 1", "stage 2", "stage 3"]
parts = {
    name: {part: getattr(m, part) / 1e9 for part in ("weights", "gradients", "optimizer")}
    for name, m in zip(names, memory)
}
title = "What each of 64 devices holds of 7.5 billion parameters"
line = ("accelerator: 80 GB", 80.0)
figures.show(figures.stacked_bars(parts, unit="GB", title=title, reference=line))
published = [row[f"stage{stage}_gb"] for stage in (1, 2, 3)]
print("published:", published, "computed:", [round(m.total / 1e9, 2) for m in memory[1:]])
np.testing.assert_allclose([m.total / 1e9 for m in memory[1:]], published, rtol=0.01)
memory_machine()

# %% [markdown]
# Any of the three stages makes the model of the first picture fit, without cutting a layer, and stage 3 leaves the most room. Its price: in each step all weights are sent twice and the gradients once, 1.5 times what an all-reduce sends. Whether cutting the model is cheaper depends on which is larger, weights or activations.
#
# Three things to try:
#
# 1. Press ZeRO 1, 2 and 3 and watch the glasses empty, part by part. At 3, look at the bytes between replicas.
# 2. Open *More* and choose the preset with 175 billion parameters. Which part grows with the sequence? Now press *Store attention's scores*. What was FlashAttention buying? And what does *Sequence parallelism* add to that?
# 3. Without ZeRO, make 7.5 billion parameters fit with tensor parallelism or pipeline stages alone. Which of the two sends more?
#
# About the second: the machine counts activations as Korthikanti and others did in 2022 (without dropout). Plain attention stores two numbers for each pair of tokens in each head. (We counted what Keras's `MultiHeadAttention` keeps in float32 for its backward pass, as [lesson 18](18-precision-and-memory.ipynb) does: 8 bytes.) So activations explode as the sequence grows. FlashAttention, from the same year, computes attention in tiles and never stores the scores. By the machine's formula a model of 7.5 billion parameters keeps 342 GB of activations at 8,192 tokens with the scores, and 38 GB without them. So with a modern attention kernel, activations grow in proportion to the sequence.
#
# Tensor parallelism alone leaves the layer norms whole on every device. *Sequence parallelism*, from the same paper as the formula, splits those along the tokens and sends the same bytes. [Lesson 23](23-which-way-to-cut.ipynb) builds it, and two more cuts: context and expert parallelism.
#
# TensorFlow has no ZeRO or FSDP. For tensor parallelism it has two APIs, both experimental. One is DTensor, on any device. The other is for TPUs: `tf.distribute.TPUStrategy` with an `experimental_device_assignment` and `experimental_spmd_xla_partitioning=True`, and inside it `strategy.experimental_split_to_logical_devices`, which hands the split to XLA's partitioner. We have no TPU, so we haven't run the second. For a model that needs 64 GPUs, people use PyTorch (FSDP, DeepSpeed, Megatron-LM) or JAX.
#
# And time? Our logical devices share two cores, so a split can't gain anything here, and we don't time it. Real devices compute at the same time, and then it is the collectives that must be fast. That is why tensor parallelism (the cut through layers) usually stays within one machine with fast links.
#
# This is the end of the core.
#
# ## And then: one model, five lessons
#
# One model will come back in lessons 16, 18, 20 and 23. It's a Transformer with 7 billion parameters that reads 4,096 tokens at a time, on 64 H100s in nodes of eight. Each lesson cuts it or stores it in its own way and adds a row to the bars: the memory of a GPU, and the seconds of a step. Move the two sliders to see when a row turns red. Unlike the first picture, these bars include activations: 112 GB of weights, gradients and state, and 18 GB of activations for one sequence.

# %%
from distlab.explorables.one_model import one_model_explorer

one_model_explorer(15)

# %% [markdown]
# Plain copies don't fit. Split over the eight GPUs of a node, the model fits with much room to spare. (With sequence parallelism.) The price is in the step: 2.4 of its 9.2 s go into the all-reduces inside each layer. The GPUs wait for them even over NVLink, and nothing hides them.
#
# ## Recap
#
# - By layers, 5,120 bytes of activations and their gradients crossed, and the weights stayed.
# - A layer split by columns needs an all-reduce backward, one split by rows forward.
# - Columns, then rows: one all-reduce each way, with the ReLU in between for free. Attention by heads is the same.
# - One program ran on three meshes; "model 4" held the fewest weights, "batch 4" the fewest images.
# - ZeRO's stage 3 took 120 GB down to 1.88 GB on each of 64 devices.
#
# ## On a real GPU
#
# What decides between tensor parallelism and anything else is the link between two GPUs:
#
#     nvidia-smi topo -m
#
# Look at the entry for GPU0 and GPU1. `NV` and a number means NVLink. `SYS` means the way through the host's processors, which is slow for something that every block does twice in each direction.
#
# ## Cheat sheet
#
# ```python
# import tensorflow as tf
# from tensorflow.experimental import dtensor
# cpu, one = tf.config.list_physical_devices("CPU")[0], tf.config.LogicalDeviceConfiguration()
# tf.config.set_logical_device_configuration(cpu, [one] * 4)  # or four GPUs: "GPU:0" and so on
# mesh = dtensor.create_mesh([("batch", 2), ("model", 2)], devices=[f"CPU:{n}" for n in range(4)])
# whole = dtensor.copy_to_mesh(tf.ones([784, 12]), dtensor.Layout.replicated(mesh, rank=2))
# kernel = dtensor.relayout(whole, dtensor.Layout([dtensor.UNSHARDED, "model"], mesh))
# print([piece.shape for piece in dtensor.unpack(kernel)])
# # bytes per parameter (Adam, mixed precision) on each of N devices, data-parallel: 16;
# # ZeRO stage 1: 4 + 12/N, stage 2: 2 + 14/N, stage 3: 16/N
# ```
#
# - Columns: an all-gather of y forward, an all-reduce of the gradient for x backward.
# - Rows: an all-reduce of y forward; backward an all-gather of the gradient for x.
# - Columns, then rows (dense layers, or heads): one all-reduce each way.
# - By layers: each device has its own tape, and calls `tape.gradient(…, output_gradients=received)` inside its own `with tf.device(…)`.
#
# The layers and the attention are in [utils/parallel](../utils/parallel/__init__.py), to read and reuse. There is no program for this in `examples/`, since on TensorFlow Keras 3 has no API that splits a model's variables for tensor parallelism. (Keras 2 has an experimental one, `tf_keras.dtensor.experimental.LayoutMap`. We haven't run it.) How two processes find each other is in [multi_worker_custom_loop.py](../examples/multi_worker_custom_loop.py).
#
# ## Further reading
#
# - Shoeybi and others, [Megatron-LM](https://arxiv.org/abs/1909.08053), 2019: columns, then rows, in dense layers and in attention
# - Vaswani and others, [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017: heads
# - Shazeer and others, [Mesh-TensorFlow](https://arxiv.org/abs/1811.02084), 2018
# - Xu and others, [GSPMD](https://arxiv.org/abs/2105.04663), 2021
# - Korthikanti and others, [Reducing Activation Recomputation in Large Transformer Models](https://arxiv.org/abs/2205.05198), 2022: the activations counted above, and sequence parallelism
# - Dao and others, [FlashAttention](https://arxiv.org/abs/2205.14135), 2022: attention without stored scores
# - TensorFlow's guide, [DTensor concepts](https://www.tensorflow.org/guide/dtensor_overview); API page [tf.distribute.TPUStrategy](https://www.tensorflow.org/api_docs/python/tf/distribute/TPUStrategy)
# - Rajbhandari and others, [ZeRO](https://arxiv.org/abs/1910.02054), 2020
#
# ## The lab
#
# You split a layer yourself, and are graded on its gradients, in [lab 12, pipelines and shards](../labs/lab12-pipelines-and-shards.ipynb).
