# %% [markdown] shows="What XLA demands, found by compiling on the CPU"
# # TPU and XLA
#
# You rent a TPU by the hour, and the first hour goes into error messages: a shape, an op, a stray `print`. You can have most of them at home for free, because XLA, the compiler behind a TPU, compiles for the CPU as well. Here you break each of its rules, see what TensorFlow says, and fix it.
#
# One thing up front: this lesson has never run on a TPU. All results come from XLA on a CPU, and what we say about TPUs comes from their documentation.
#
# **Time:** 80 minutes · **Prerequisites:** [custom training loop](04-custom-training-loop.ipynb) and [input pipelines](12-input-pipelines.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Compile a training step with XLA, and prove that it takes the same steps.
# - Recognize five things that don't belong in a TPU's step: a dynamic shape, an op that XLA lacks, a host callback, a shape that depends on the data, a Python side effect.
# - Repair two of them yourself, run the repairs of the other three, and check the results.
# - Run a program that takes a TPU if there is one, and the usual device otherwise.
# - Measure what half precision (bfloat16) and `steps_per_execution` gain, and what they cost.

# %%
import re

import numpy as np

from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
print(use_logical_devices(2))

# %% [markdown]
# ## Four numbers first
#
# A TPU runs only compiled *programs*, and the compiler that makes them is XLA. Even a single op is a program there, a small and slow one, so you want a whole step in one program. With `tf.function(step, jit_compile=True)` XLA compiles for the CPU too, so you can learn most of a TPU's rules here.
#
# We take one training step in three ways: Python calls each op ("op by op"); TensorFlow runs a graph of ops ("graph"); XLA makes one program of it all ("XLA"). XLA compiles that program at the first call, and the time of that call is the fourth number.

# %%
from distlab import figures
from utils.data import load
from utils.measure import Stopwatch, time_calls
from utils.models import build_mlp

data = load("fashion_mnist").train.take(8192)
images = (data.images[..., np.newaxis] / 255).astype("float32")  # [8192, 28, 28, 1]
labels = data.labels.astype("int32")
batch = tf.constant(images[:32]), tf.constant(labels[:32])
cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model, optimizer = build_mlp(), keras.optimizers.SGD(0.1)
optimizer.build(model.trainable_variables)
start = model.get_weights()


def step(images, labels):
    """Take one step of SGD; return the loss before it."""
    with tf.GradientTape() as tape:
        loss = cross_entropy(labels, model(images, training=True))
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    )
    return loss


# %% tags=["nbval-ignore-output"]
ways = {
    "op by op": step,
    "graph": tf.function(step),
    "XLA": tf.function(step, jit_compile=True),
}
with Stopwatch() as first_call:
    ways["XLA"](*batch)
milliseconds = {"XLA, first call": 1e3 * first_call.seconds}
for name, way in ways.items():
    timing = time_calls(lambda way=way: way(*batch).numpy(), repeats=15, warm_up=2)
    milliseconds[name] = 1e3 * timing.median_seconds
title = "One training step of 32 images"
figures.show(figures.bars(milliseconds, unit="ms", title=title, highlight="XLA", log=True))
assert milliseconds["XLA, first call"] > milliseconds["XLA"]

# %% [markdown]
# (Mind the scale: a bar twice as long is far more than twice the time.) Does XLA pay here? Compare its bar with the graph's. If an XLA step is shorter, divide the first call by the difference: that many steps pay for compiling. If it isn't, compiling doesn't pay at all on this machine. That happens: when we measured the course's small CNN on two CPU cores, a compiled step handled half as many images per second. Keep the price of a first call in mind for the first rule.
#
# ## What XLA makes
#
# First we check that it is the same training: eight steps from the same weights, in all three ways. (The losses aren't equal to the last bit, since XLA adds up in another order.) Then we print parts of a program as XLA receives it, for a function of just one layer, ReLU(x W).


# %%
def train_eight(way):
    model.set_weights(start)
    return [float(way(images[k : k + 32], labels[k : k + 32])) for k in range(0, 256, 32)]


losses = [train_eight(way) for way in ways.values()]  # [way, step]
print("losses differ by less than 1e-4:", np.ptp(losses, axis=0).max() < 1e-4)
assert np.ptp(losses, axis=0).max() < 1e-4

# %%
weights = tf.ones([4, 3])
layer = tf.function(lambda x: tf.nn.relu(x @ weights), jit_compile=True)
program = layer.experimental_get_compiler_ir(tf.ones([32, 4]))(stage="hlo")
for line in program.split("\n"):
    if any(word in line for word in (" dot(", " maximum(", " parameter(")):
        print(re.sub(r"\), .*", ")", line.strip()))
assert "f32[32,4]" in program and "f32[32,3]" in program

# %% [markdown]
# `f32[32,4]` is a float32 tensor of 32 rows and 4 columns; `dot` is the matrix product, and `maximum` is ReLU. So every tensor has a type and a *shape*, and 32, the batch size, is part of the program. Memory is laid out when the program is compiled, not when it runs. That gives us four rules: two about shapes, which must be known in advance; one about ops, since XLA needs an instruction for each; and one about the *host*, the computer with your Python, which can't step in.
#
# ## Rule 1: no dynamic shapes
#
# Photographs have different widths. We cut our images to nine widths from 20 to 28, one batch of each, and compute a loss over their pixels.
#
# How many programs does XLA compile? There is a counter, `experimental_get_tracing_count()`, and there is the clock: a call that compiles takes long. We use both, and we do it twice. The second time TensorFlow gets the usual advice against many traces, `reduce_retracing=True`.

# %% tags=["nbval-ignore-output"]
scale = tf.Variable(2.0)


def pixel_loss(images, real):
    """Return the mean over the pixels where `real` is 1, and its gradient."""
    with tf.GradientTape() as tape:
        squares = tf.tanh(images * scale) ** 2
        loss = tf.reduce_sum(squares * real) / tf.reduce_sum(real)
    return loss, tape.gradient(loss, scale)


def time_calls_of(function, batches):
    """Call it twice with each batch; print the traces and the milliseconds."""
    ms = {"first calls": [], "second calls": []}
    for x in batches:
        for seconds in ms.values():
            with Stopwatch() as watch:
                function(x, np.ones_like(x))[0].numpy()
            seconds.append(round(1e3 * watch.seconds, 1))
    print(function.experimental_get_tracing_count(), "traces;", ms, "ms")


cut = [images[:32, :, :width] for width in range(20, 29)]  # [32, 28, width, 1]
dynamic = tf.function(pixel_loss, jit_compile=True)
time_calls_of(dynamic, cut)
relaxed = tf.function(pixel_loss, jit_compile=True, reduce_retracing=True)
time_calls_of(relaxed, cut[::4])  # three of the nine
assert dynamic.experimental_get_tracing_count() == 9
assert relaxed.experimental_get_tracing_count() == 2

# %% [markdown]
# Each width's first call is slow, because XLA compiles a program for it. That is as true of the second line, where the counter says 2 and three calls were slow. The counter counts how often TensorFlow *traced* the function. With `reduce_retracing`, or an `input_signature` with None for the width, one trace serves all widths, and XLA still compiles each of them. So trust the clock.
#
# The fix: pad in the input pipeline, and tell the loss which pixels are real. Losses and gradients stay the same. One size for all wastes work on the narrow ones, so people use a few sizes, *buckets*. A short last batch is another shape too: `batch(32, drop_remainder=True)` leaves it out. (`TPUStrategy.run` can pad a short batch for you, so a TPU doesn't strictly need that. With one fixed shape you needn't rely on it.)
#
# **Your turn.** To which width is an image padded, if all widths are to be multiples of 4?


# %%
def bucket(width):
    return ...


# %%
from distlab.turns import lesson14 as turns

bucket = turns.BUCKET.take(bucket)
static = tf.function(pixel_loss, jit_compile=True)
same = []
for x in cut:
    missing = [(0, 0), (0, 0), (0, max(0, int(bucket(x.shape[2])) - x.shape[2])), (0, 0)]
    padded = static(np.pad(x, missing), np.pad(np.ones_like(x), missing))
    same.append(np.allclose(padded, dynamic(x, np.ones_like(x)), rtol=1e-5))
print("programs for nine widths:", static.experimental_get_tracing_count(), "same loss:", all(same))

# %% [markdown]
# (Here the counter does count programs: each trace has one fixed width.)
#
# ## Rule 2: only ops that XLA has
#
# XLA has most of the ops that a training step needs, but not all of TensorFlow's. A histogram, for example, is missing. The error is long; our `refusal` cuts out the part that matters, which names the op.
#
# The fix is in the second cell, the same histogram from ops that XLA has: turn each pixel's brightness level (0 to 3) into a one-hot vector and add those up. (Or count in the input pipeline, which runs on the host and may use every op.)


# %%
def refusal(call):
    """Return the heart of what TensorFlow says when `call` cannot be compiled, else None."""
    try:
        call()
    except tf.errors.InvalidArgumentError as error:
        found = re.search(r"No registered .*? devices|XLA compilation requires [^.]*", str(error))
        return found[0]


def histogram(x):
    """Count the pixels in four steps of brightness, [4]."""
    return tf.histogram_fixed_width(x, [0.0, 1.0], 4)


print(refusal(lambda: tf.function(histogram, jit_compile=True)(batch[0])))


# %%
def histogram_for_xla(x):
    which = tf.clip_by_value(tf.cast(x * 4, tf.int32), 0, 3)
    return tf.reduce_sum(tf.one_hot(tf.reshape(which, [-1]), 4, dtype=tf.int32), axis=0)


counts = tf.function(histogram_for_xla, jit_compile=True)(batch[0])
print(counts.numpy())
assert (counts.numpy() == histogram(batch[0]).numpy()).all()

# %% [markdown]
# On a TPU, don't count on this error. TensorFlow has *soft device placement*, and it is on by default: an op that can't run on the device you named silently runs on one where it can. In a TPU's step such an op goes to the host's CPU, and every step waits for the trip there and back. You can watch it here by asking for a TPU that doesn't exist. With soft placement off, the same line raises an error:

# %%
for soft in (True, False):
    tf.config.set_soft_device_placement(soft)
    try:
        with tf.device("TPU:0"):
            print(f"soft placement {soft}: ran on", histogram(batch[0]).device[-5:])
    except tf.errors.InvalidArgumentError as error:
        print(f"soft placement {soft}:", str(error).split(" '")[0])
tf.config.set_soft_device_placement(True)

# %% [markdown]
# ## Rule 3: no calls back to the host
#
# `tf.numpy_function`, `tf.py_function` and `tf.print` interrupt the program in the middle of a step to do something on the host: the first two run Python, the third formats a string and prints it.
#
# The second cell has two fixes. If the code prepares the batch, put it into the dataset's `map`, which runs on the host. If it is part of the model, write it in TensorFlow ops. And if you want to see the loss, *return* it, and print it between steps.


# %%
def blur(x):
    """Average each row of pixels with the next, in NumPy."""
    return ((x + np.roll(x, 1, axis=1)) / 2).astype("float32")


def blur_in_step(x):
    return tf.reduce_mean(tf.numpy_function(blur, [x], tf.float32))


def print_in_step(x):
    tf.print("loss", tf.reduce_mean(x))
    return x


for call in (blur_in_step, print_in_step):
    print(refusal(lambda call=call: tf.function(call, jit_compile=True)(batch[0])))

# %%
on_host = tf.data.Dataset.from_tensors(batch[0]).map(
    lambda x: tf.numpy_function(blur, [x], tf.float32)
)
mean = tf.function(tf.reduce_mean, jit_compile=True)
own = tf.function(lambda x: tf.reduce_mean((x + tf.roll(x, 1, axis=1)) / 2), jit_compile=True)
means = [float(mean(next(iter(on_host)))), float(own(batch[0]))]
print("same mean:", np.isclose(*means, rtol=1e-5))
assert np.isclose(means, blur(images[:32]).mean(), rtol=1e-5).all()

# %% [markdown]
# ## Rule 4: no shapes that depend on the data
#
# Say we train only on the hard examples, those with a loss above the mean. How many there are depends on the data, and `hard_by_mask` picks them out.
#
# **Your turn.** Compute the same mean, but keep all values, so that the shape is known in advance.


# %%
def mean_above(values, limit):  # [n] and a number
    return ...


# %%
def hard_by_mask(losses):
    hard = tf.boolean_mask(losses, losses > tf.reduce_mean(losses))
    shapes.append(hard.shape)
    return tf.reduce_mean(hard)


def hard_by_yours(losses):
    return mean_above(losses, tf.reduce_mean(losses))


mean_above, shapes = turns.MEAN_ABOVE.take(mean_above), []
some_losses = tf.constant([0.1, 2.0, 0.3, 1.5, 0.2, 0.1])
means = [float(tf.function(f)(some_losses)) for f in (hard_by_mask, hard_by_yours)]
print("shape by mask, while tracing:", *shapes, " means:", means)
assert not shapes[0].is_fully_defined()

# %% [markdown]
# By mask the shape is unknown, `(None,)`, and XLA for the CPU compiles even that: it reserves space for all six and carries a count along. Don't rely on that for every op and every device. `tf.where` with *three* arguments keeps the shape, so it needs no such trick.
#
# A loop that runs until the data says stop has the same problem. Does XLA compile the *gradient* of a `while` loop that runs until the values are small?


# %%
def shrink(x, most=None):
    """Halve `x` until all is below 0.1, in at most `most` rounds; return the gradient."""
    with tf.GradientTape() as tape:
        rounds = tf.while_loop(
            lambda y: tf.reduce_max(y) > 0.1,
            lambda y: (tf.tanh(y * scale) / 4,),
            (x,),
            maximum_iterations=most,
        )
        loss = tf.reduce_sum(rounds[0])
    return tape.gradient(loss, scale)


compiled = tf.function(shrink, jit_compile=True)
refused = refusal(lambda: compiled(some_losses))
print(refused)
same = np.isclose(compiled(some_losses, most=20), shrink(some_losses))
print("with maximum_iterations, same gradient:", same)
assert refused and same

# %% [markdown]
# It doesn't. The forward pass alone would compile, but the gradient needs the values of each round, and XLA must know how much room they take. The fix is a limit; the loop still stops as early as before.
#
# ## The mistake: Python inside the step
#
# If you break one of the four rules, you notice sooner or later, by an error or by lost time. There is a fifth that you can break without noticing: no Python inside the step. Python runs only while the step is *traced*, here once, and whatever it computed then is built into the program. Here the step adds noise to its input with NumPy, and counts its calls in a Python list.
#
# **Predict.** We run five steps. How many different noise values do we get?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Different noise values", 0, 5)
my_guess


# %%
from distlab.exercises.predict import show_guess


def noisy(x):
    calls.append("one more")
    return x + np.random.normal()


calls, noise = [], tf.function(noisy, jit_compile=True)
show_guess(my_guess, len({float(noise(0.0)) for _ in range(5)}))
print("steps: 5, counted by Python:", len(calls))

# %% [markdown]
# There is no error and no warning. The "noise" is one and the same number in every step, so it isn't noise any more. Don't blame XLA; every `tf.function` does this. The fix: take random numbers from TensorFlow, and keep counts in variables.

# %%
count, generator = tf.Variable(0), tf.random.Generator.from_seed(1)


@tf.function(jit_compile=True)
def noise(x):
    count.assign_add(1)
    return x + generator.normal([])


print("different noises:", len({float(noise(0.0)) for _ in range(5)}))
print("counted by the program:", int(count))
assert int(count) == 5

# %% [markdown]
# ## The same through `utils`: is my model ready?
#
# `examine_model` takes any Keras model, traces its training step twice, reads the graph, and compiles it; in a shell that's `distlab tpu-ready my_model:make_model`. It finds the frozen noise too: if a constant differs between the two traces, it came from Python. Here are five models, each breaking one rule. The table shows the layer, the rule and what was found:


# %%
from utils.training.tpu_ready import examine_model


class Does(keras.layers.Layer):
    """Returns what `what` makes of its input."""

    def __init__(self, what):
        super().__init__(name=what.__name__)
        self.what = what

    def call(self, x):
        return tf.ensure_shape(self.what(x), x.shape)


# %%
def adds_histogram(x):
    return x + tf.cast(histogram(x)[0], x.dtype)


def through_numpy(x):
    return tf.numpy_function(blur, [x], tf.float32)


def less_hard_mean(x):
    return x - tf.reduce_mean(tf.boolean_mask(x, x > 0.5))


def with_noise(x):
    return x + np.random.normal()


inner = [Does(f) for f in (adds_histogram, through_numpy, less_hard_mean, with_noise)]
found = []
for layer in [keras.layers.GlobalAveragePooling1D(name="pool"), *inner]:
    shape = (None, 8) if layer.name == "pool" else (8,)
    broken = keras.Sequential([keras.Input(shape, name="pixels"), layer, keras.layers.Dense(1)])
    found += examine_model(broken, batch_size=8).problems
print("\n".join(f"{f.layer or 'input':<15}{f.kind:<22}{f.what.split(' (')[0][:45]}" for f in found))
assert len({f.kind for f in found}) == 5 and examine_model(build_mlp(), batch_size=8).ready

# %% [markdown]
# The last line also checked the model of this lesson, and it is ready. So let's go to a TPU.
#
# ## TPUStrategy
#
# Everything up to here you have seen happen. From here on, what we say about a TPU itself is from its documentation: we had none to run it on.
#
# Three calls come before the strategy, once, at the start of the program. The *resolver* finds the TPU (`"local"` on a TPU machine, a name or address elsewhere). The second call connects to it. The third *initializes* it. That wipes the TPU's memory, so don't repeat it later. It returns the *topology*, which lists where each core sits. The first cell makes these calls; without a TPU, the third one fails. (On a TPU machine you install `tensorflow-tpu` in place of `tensorflow`; the newest that we found is 2.20.)
#
# In the second cell `make_strategy("tpu")` makes the same calls, and reports in one sentence if there is no TPU. The program then takes a TPU if there is one and the usual device otherwise, with the same training code. In a shell that's `distlab train --strategy tpu`.


# %%
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
tf.config.experimental_connect_to_cluster(resolver)
try:
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
except tf.errors.NotFoundError as error:
    print(str(error).split(". ")[0])

# %%
from utils.errors import DistributedError
from utils.strategies import make_strategy
from utils.training import train

try:
    make_strategy("tpu")
    name = "tpu"
except DistributedError as error:
    print(error)
    name = "one-device"
report = train(strategy=name, model="mlp", max_examples=512, epochs=1)
assert np.isfinite(report.loss).all()

# %% [markdown]
# A topology is plain data, so you can read and draw one without the hardware. This one has the shape of a TPU v3-8, a machine of 2018: one host, and a mesh of 2 by 2 chips with two cores each. Each core is a replica, so a global batch of 1,024 is 128 on each. Chips pass gradients straight to their neighbors. The host (dashed lines) brings the images. 128 is a good number for this machine: it works on tiles of 8 by 128 numbers and pads whatever doesn't fill them. Newer chips differ (a v5e chip has one core), so don't hard-code eight; ask `strategy.num_replicas_in_sync`.

# %%
from distlab.lessons.tpu_mesh import draw_mesh
from utils.devices import describe_topology

places = [[[x, y, 0, core] for y in (0, 1) for x in (0, 1) for core in (0, 1)]]
v3_8 = describe_topology(
    tf.tpu.experimental.Topology(mesh_shape=[2, 2, 1, 2], device_coordinates=places)
)
figures.show(draw_mesh(v3_8, global_batch_size=1024))
assert v3_8["cores"] == 8 and v3_8["mesh"] == (2, 2, 1, 2)

# %% [markdown]
# ## What it costs: bfloat16
#
# A TPU multiplies in bfloat16, a 16-bit number with float32's exponent but 8 bits of precision instead of 24. Its range is practically the same as float32's, while float16 ends at 65,504. So as a rule bfloat16 needs no loss scaling. ([Lesson 18](18-precision-and-memory.ipynb) is about precision and memory.) The price: small updates get lost. Here we subtract 0.001 from a weight a hundred times.

# %%
for dtype in (tf.float32, tf.bfloat16, tf.float16):
    print(f"{dtype.name:<9} largest {float(dtype.max):.3g}")
for dtype in (tf.float32, tf.bfloat16):
    weight = tf.constant(1.0, dtype)
    for _ in range(100):
        weight -= tf.constant(0.001, dtype)
    print(f"1 - 100 · 0.001 in {dtype.name:<9}{float(weight):.3f}")
assert float(weight) == 1.0

# %% [markdown]
# After a hundred updates, the bfloat16 weight hasn't moved: the next number below 1 is about 0.996, so each step of 0.001 is rounded back. Hence *mixed* precision: weights and updates in float32, multiplications and what flows between the layers in bfloat16.

# %% tags=["nbval-ignore-output"]
from utils.measure import array_bytes

rows = {}
for dtype in ("float32", "mixed_bfloat16", "bfloat16"):
    mixed = build_mlp(dtype=dtype)
    mixed.compile(keras.optimizers.SGD(0.01), cross_entropy, jit_compile=True)
    mixed.fit(images[:2048], labels[:2048], 32, shuffle=False, verbose=0)  # 64 steps; compiles
    with Stopwatch() as epoch:
        history = mixed.fit(images, labels, 32, shuffle=False, verbose=0)
    hidden = keras.Model(mixed.inputs[0], mixed.layers[1].output)(images[:32])  # [32, 128]
    rows[dtype] = array_bytes(mixed.weights), array_bytes([hidden]), history.history["loss"][-1]
    seconds = f"{epoch.seconds:.2f} s an epoch"
    weight_bytes, activation_bytes, loss = rows[dtype]
    sizes = f"weights {weight_bytes:,} B, hidden {activation_bytes:,} B"
    print(f"{dtype:<15} {sizes}, loss {loss:.3f}, {seconds}")
assert rows["mixed_bfloat16"][0] == rows["float32"][0]
assert 2 * rows["mixed_bfloat16"][1] == rows["float32"][1]
assert abs(rows["mixed_bfloat16"][2] - rows["float32"][2]) < 0.02
assert rows["bfloat16"][2] > rows["mixed_bfloat16"][2]

# %% [markdown]
# "Hidden" are the activations of the hidden layer. Mixed precision halves them, and with large batches activations often take most of the memory. It leaves the weights as they are, and its loss stays within 0.02 of float32's here. Pure bfloat16 halves the weights too, and in this run it learns worse. As for the seconds: a TPU is made for bfloat16, but a CPU without instructions for it, as yours may be, converts back and forth.
#
# ### `steps_per_execution`
#
# Between two steps the host is busy: it fetches the result, runs callbacks and starts the next step. Meanwhile a TPU waits. With `compile(steps_per_execution=n)`, `fit` runs `n` steps before it comes back to Python.
#
# **Your turn.** A step takes `step_ms` on the device, and each return to Python `host_ms`. What is the smallest `n` with which the device works at least 90 % of the time? Afterwards, move the first slider and compare.


# %%
def choose_steps(step_ms, host_ms):
    return ...


# %%
from distlab.explorables.host_loop import host_loop_explorer

choose_steps = turns.STEPS.take(choose_steps)
print("a step of 4 ms, 6 ms to return:", choose_steps(4.0, 6.0), "steps")
host_loop_explorer()

# %% [markdown]
# That is a drawing with round numbers. Here is what your own `fit` gains:


# %% tags=["nbval-ignore-output"]
returns, trained, rates = {}, {}, {}
for steps in (1, 8, 64):
    fitted, back = build_mlp(), []
    fitted.compile("sgd", cross_entropy, steps_per_execution=steps, jit_compile=True)
    fitted.fit(images[:4096], labels[:4096], 32, shuffle=False, verbose=0)  # compiles
    watcher = keras.callbacks.LambdaCallback(on_train_batch_end=lambda k, logs: back.append(k))
    with Stopwatch() as epoch:
        fitted.fit(images, labels, 32, shuffle=False, verbose=0, callbacks=[watcher])
    returns[steps], trained[steps] = len(back), fitted.get_weights()
    rates[f"{steps} at a time"] = 1e3 * epoch.seconds / 256
figures.show(figures.bars(rates, unit="ms", title="One step of fit, by steps_per_execution"))
print("times back in Python, in 256 steps:", returns)
assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(trained[1], trained[64]))
assert returns == {1: 256, 8: 32, 64: 4}

# %% [markdown]
# The weights are the same up to rounding, with fewer returns to Python. The picture shows what that saves per step. It varies from run to run here, where host and device are the same two cores. A TPU is a separate machine: if the host steps in after every short step, the TPU sits idle. The price: callbacks see only every `n`-th step, and Ctrl-C or a checkpoint has to wait for all `n`. A good start is an `n` that makes one execution take about a second.
#
# ## On a real GPU
#
# XLA compiles for GPUs too, and `jit_compile=True` asks it for the whole step there as well. The variable below is milder. It lets XLA compile the parts of a graph that it can, and TensorFlow runs the rest, so an op that XLA lacks raises no error:
#
#     TF_XLA_FLAGS=--tf_xla_auto_jit=2 distlab train --device gpu --model cnn --epochs 2
#
# Compare the images/s of the second epoch with and without the variable. The first epoch includes compiling.
#
# ## Cheat sheet
#
# ```python
# import keras
# import tensorflow as tf
# resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")  # once, first of all
# tf.config.experimental_connect_to_cluster(resolver)
# tf.tpu.experimental.initialize_tpu_system(resolver)  # wipes the TPU's memory
# strategy = tf.distribute.TPUStrategy(resolver)  # a replica on each core
# keras.mixed_precision.set_global_policy("mixed_bfloat16")
# with strategy.scope():
#     model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10, dtype="float32")])
#     model.compile("adam", "mse", steps_per_execution=100)
# ```
#
# It needs a TPU. Feed it with `dataset.batch(global_batch_size, drop_remainder=True)`, and keep Python, `tf.print` and data-dependent shapes out of the step. Before you pay for the hour: `distlab tpu-ready my_model:make_model`.
#
# **Recap**
#
# - Op by op, as a graph or compiled by XLA, a step gave the same losses, to 1e-4.
# - Four of the five things that don't belong in a step made XLA refuse, compile again or reserve extra space; the fifth, Python, stayed silent.
# - Each of the five had a fix; the first four kept the result.
# - One program takes a TPU if there is one, and trains without one otherwise.
# - Mixed bfloat16 halved the activations; `steps_per_execution` cut 256 returns to 4.
#
# A whole program for a TPU, whose step also compiles here: [tpu.py](../examples/tpu.py). Half precision on GPUs: [mixed_precision.py](../examples/mixed_precision.py).
#
# ## Further reading
#
# - TensorFlow's guide [Use TPUs](https://www.tensorflow.org/guide/tpu), and API page [tf.distribute.TPUStrategy](https://www.tensorflow.org/api_docs/python/tf/distribute/TPUStrategy)
# - XLA in TensorFlow: [tf.function](https://www.tensorflow.org/api_docs/python/tf/function), the argument `jit_compile`; [Better performance with tf.function](https://www.tensorflow.org/guide/function), on tracing and Python side effects
# - TensorFlow's guide [Mixed precision](https://www.tensorflow.org/guide/mixed_precision)
# - Jouppi and others, [A domain-specific supercomputer for training deep neural networks](https://doi.org/10.1145/3360307), 2020: TPU v2 and v3, the machine drawn above. (The better-known paper of 2017 is about v1, which only runs trained models, in 8-bit integers.)
# - Kalamkar and others, [A Study of BFLOAT16 for Deep Learning Training](https://arxiv.org/abs/1905.12322)
#
# ## The lab
#
# This lesson doesn't have its own lab. You practice one of its rules, to do on the host what the step must not do, in [lab 11, tf.data](../labs/lab11-tf-data.ipynb).
