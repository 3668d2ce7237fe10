# %% [markdown] shows="What float16 loses, one replica that overflows, and how memory is counted and saved"
# # Precision and memory
#
# Half precision promises half the bytes and, on a GPU, several times the speed. Then one image is too bright and one replica overflows. What becomes of the others depends on which Keras you use. Here you see what 16 bits lose, keep a float16 run alive on several replicas, and learn which bytes to attack when a model doesn't fit.
#
# **Time:** 90 minutes · **Prerequisites:** [loss scaling](05-loss-scaling.ipynb), [model parallelism](15-model-parallelism.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Show what float16 and bfloat16 lose, and find the underflow in real gradients.
# - Choose a loss scale, and let it move automatically.
# - Show what one overflowing replica does to the others, and make all of them skip the step.
# - Count the bytes of weights, gradients, optimizer state and activations, and of what crosses the network.
# - Save memory with accumulation, recomputation and sharding, and name what each costs.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
    import tf_keras  # Keras 2, only to compare with
from utils.devices import use_logical_devices

set_seeds(0)
devices = use_logical_devices(2)
print(devices)

# %%
import numpy as np

# %% [markdown]
# ## Four numbers first
#
# Here are the numbers that each type has around the one you pick; yours snaps to the nearest. **Find one that float16 loses and bfloat16 keeps, and one that bfloat16 changes more than float16 does.** Which of the two would you train in? The line comes back at the end, with real gradients of 4,096 replicas on it.

# %%
from distlab.explorables import float_line

float_line()

# %% [markdown]
# Here is what each type makes of four numbers from everyday training: a weight of 1 after a small update, a large activation, a small gradient, and 0.1.

# %%
for name in ("float32", "bfloat16", "float16"):
    values = tf.cast(tf.constant([1.001, 70_000.0, 1e-8, 0.1]), name)
    print(f"{name:<9}", *(f"{value:<12.6g}" for value in tf.cast(values, tf.float32).numpy()))

# %% [markdown]
# bfloat16 rounds 1.001 back to 1, so the update is gone. float16 keeps it, but turns 70,000 into infinity and the small gradient into zero. The two types spend their 16 bits differently. bfloat16 has float32's range, with 8 bits of precision. float16 has 11 bits of precision, and a small range. How many numbers does each have between 1 and 1.0625? That is precision. Range is how small and how large numbers can get.

# %%
numbers = np.arange(2**16, dtype=np.uint16)
positive = {
    kind.name: tf.cast(tf.bitcast(numbers, kind), tf.float64).numpy()
    for kind in (tf.float16, tf.bfloat16)
}
near = {name: int(np.sum((v >= 1) & (v <= 1.0625))) for name, v in positive.items()}
print("numbers from 1 to 1.0625:", near)
for name, values in positive.items():
    finite = values[np.isfinite(values) & (values > 0)]
    low, high = np.log2(finite.min()), np.log2(finite.max())
    print(f"{name}: from 2^{low:.0f} to 2^{high:.0f}, at most {finite.max():.6g}")

# %% [markdown]
# The first line counts the lines of the picture above: whatever lies between two of them is rounded to one. (bfloat16 goes further down, to 2⁻¹³³, but TensorFlow on a CPU treats these *subnormal* numbers as zero. So its range begins at 2⁻¹²⁶, as float32's does.)
#
# So 16 bits everywhere is a bad idea. In Keras a *policy* says where to use them. Under `"mixed_bfloat16"` or `"mixed_float16"` a layer multiplies in 16 bits and keeps its weights in 32.
#
# **Your turn.** A model of two dense layers: 4 features, 8 hidden units with ReLU under the policy, 3 logits in float32, so that softmax and loss don't lose digits.


# %%
def build(policy):
    return ...  # keras.Sequential([keras.Input((4,)), …])


# %%
from distlab.turns import lesson18 as turns

build = turns.BUILD.take(build)
for name in ("mixed_bfloat16", "mixed_float16"):
    small = build(name)
    print(f"{name}: weights {small.weights[0].dtype}, logits {small.outputs[0].dtype}")

# %% [markdown]
# ## Underflow in real gradients
#
# Our model is a small Transformer: 49 patches of 4 × 4 pixels are its tokens. Take 64 images, one replica's share, and look at the gradient that reaches the first block. The loss is divided by the *global* batch, as in lesson 05. So the more replicas there are, the smaller each number gets.
#
# **Predict.** With 512 replicas of 64 images, what percentage of these gradients lies below 2⁻²⁴, the smallest positive number that float16 has?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Gradients below the floor", 0, 100, "%")  # or write a number
my_guess

# %%
from utils.data import load

split = load("fashion_mnist").train.take(64)
images = tf.constant(split.images[..., np.newaxis] / 255, tf.float32)  # [64, 28, 28, 1]
labels = tf.constant(split.labels, tf.int64)
per_example = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def find_token_gradient(model, divide_by):
    """Return the gradient for the tokens that enter the first block, [64, 49, 32]."""
    tokens = keras.Sequential(model.layers[:4])(images)
    with tf.GradientTape() as tape:
        tape.watch(tokens)
        outputs = tokens
        for layer in model.layers[4:]:
            outputs = layer(outputs)
        loss = tf.reduce_sum(per_example(labels, outputs)) / divide_by
    return np.abs(tape.gradient(loss, tokens).numpy().astype("float64")).ravel()


# %% tags=["nbval-ignore-output"]
from distlab import figures
from distlab.exercises.predict import show_guess
from distlab.lessons.float_pictures import draw_shares
from utils.models import build_transformer

model = build_transformer()
sizes = {count: find_token_gradient(model, 64 * count) for count in (1, 64, 512)}
below = {count: 100 * np.mean(values < 2.0**-24) for count, values in sizes.items()}
named = {f"{count} × 64 images": values for count, values in sizes.items()}
figures.show(draw_shares(named, floor=-24))
show_guess(my_guess, round(below[512], 1), unit="%")
assert below[1] < 1 < below[64] < below[512]

# %% [markdown]
# Why so many? Dividing by 512 instead of 1 moves every number nine powers of two to the left, and the curve was close to the floor already. The dashed line at 2⁻²⁴ is float16's floor. The height at which a curve crosses it is the share that becomes zero, or at best the floor itself. The data is the same for every curve; only the divisor changed. So a model that loses nothing in float16 on one GPU can lose part of its gradient on 512, without a warning. (That follows from TensorFlow's convention: divide by the global batch, then sum. PyTorch's DistributedDataParallel computes each replica's mean and averages the gradients, so its backward pass has numbers of the same size on any number of replicas.)
#
# ## A static loss scale
#
# The fix is old and simple: multiply the loss by a scale before the backward pass, and divide the gradients by it afterwards, in float32. Here is the number line again, with your gradients below it. Which scales bring all of them into float16's range?

# %% tags=["nbval-ignore-output"]
float_line(sizes[1], replicas=512)

# %% [markdown]
# All gradients move to the right, away from the floor. If the scale is too large, gradients overflow at the other end. How large should it be? We compare float16's gradients of all weights with float32's, for the batch of 512 replicas.
#
# **Your turn.** How far off is a gradient? Write the error as a part of the exact gradient's norm.


# %%
def find_error(got, exact):
    return ...  # 0 if they are equal


# %%
GLOBAL_BATCH, find_error = 64 * 512, turns.ERROR.take(find_error)


def find_gradients(model, scale=1.0):
    """Return the gradient for each variable, divided by `scale` again."""
    with tf.GradientTape() as tape:
        losses = per_example(labels, model(images, training=True))
        scaled = tf.reduce_sum(losses) / GLOBAL_BATCH * scale
    return [g / scale for g in tape.gradient(scaled, [v.value for v in model.trainable_variables])]


def flatten(gradients):
    return np.concatenate([np.ravel(g) for g in gradients]).astype("float64")


exact = find_gradients(model)
half = build_transformer(dtype="mixed_float16")  # the same weights, in float32
brain = build_transformer(dtype="mixed_bfloat16")

# %% tags=["nbval-ignore-output"]
errors = {}
for power in (0, 4, 8, 15, 20, 32):
    gradient = flatten(find_gradients(half, 2.0**power))
    finite = np.isfinite(gradient).all()
    errors[power] = float(find_error(gradient, flatten(exact))) if finite else np.inf
    print(f"scale 2^{power:<3} error {errors[power]:.4f}")
in_brain = find_gradients(brain)
print(f"bfloat16, no scale: {find_error(flatten(in_brain), flatten(exact)):.4f}")
assert errors[32] == np.inf

# %% [markdown]
# Without a scale, float16's gradient is far off, since its smallest terms were lost on the way. A scale anywhere in a wide range brings it close to float32's; one that is too large makes it infinite. bfloat16 needs no scale at all.
#
# But look at bfloat16's error. When we stored this notebook, on a CPU, it was more than 50 times a scaled float16's. Its three missing bits explain a factor of 2³ = 8. Where does the rest come from? When a gradient looks wrong, print the error of each variable before you blame anything.

# %% tags=["nbval-ignore-output"]
each = {}
for variable, got, wanted in zip(brain.trainable_variables, in_brain, exact):
    if np.linalg.norm(wanted) > 1e-9:  # a key's bias has no gradient at all
        each[variable.path] = float(find_error(np.array(got), np.array(wanted)))
for name in sorted(each, key=each.get, reverse=True)[:6]:
    print(f"{each[name]:6.1%}  {name}")
kernels = [error for name, error in each.items() if name.endswith("kernel")]
print(f"the worst kernel: {max(kernels):.1%}")
for kind in ("bfloat16", "float16"):
    ones = tf.ones([300, 4], kind)
    by_kernel, total = tf.raw_ops.BiasAddGrad(out_backprop=ones)[0], tf.reduce_sum(ones[:, 0])
    print(f"300 ones in {kind}: BiasAddGrad {float(by_kernel):g}, reduce_sum {float(total):g}")
assert total == 300

# %% [markdown]
# The worst are biases, and the kernels are off by a percent or so, as three bits fewer would suggest. The gradient of a bias is a sum over the batch and over all tokens. TensorFlow's kernel for it on a CPU, `BiasAddGrad`, adds up *in bfloat16*. With 8 bits such a sum of ones gets stuck at 256, because 257 rounds back to 256. There is no error and no warning.
#
# So is it the type or the kernel? XLA makes its own kernels. We compile the same gradients.

# %% tags=["nbval-ignore-output"]
compiled = {}
for name, each_model, scale in (("bfloat16", brain, 1.0), ("float16", half, 2.0**15)):
    find = tf.function(find_gradients, jit_compile=True)
    compiled[name] = float(find_error(flatten(find(each_model, scale)), flatten(exact)))
    print(f"{name}, compiled by XLA: error {compiled[name]:.4f}")
ratio = compiled["bfloat16"] / compiled["float16"]
print(f"bfloat16 over float16: {ratio:.1f}")
assert 3 < ratio < 20

# %% [markdown]
# *That* is what the missing bits cost: a factor of about eight, not fifty. So don't blame the type for a kernel. On a CPU, use float32, or compile the step.
#
# A static scale is one argument in Keras, `keras.optimizers.SGD(0.05, loss_scale_factor=2.0**15)`. The optimizer divides by it. Multiplying the loss is up to your loop, with `optimizer.scale_loss`.
#
# ## A scale that moves automatically
#
# Who knows the right scale for next week's model? A *dynamic* scale finds it. It starts high. If a gradient is infinite or nan, the step is skipped and the scale is halved. After enough good steps in a row, it is doubled. Keras waits for 2,000; we take 3, to see it move. We start at 2³²:

# %%
dynamic = keras.optimizers.LossScaleOptimizer(
    keras.optimizers.SGD(0.05), initial_scale=2.0**32, dynamic_growth_steps=3
)
dynamic.build(half.trainable_variables)


@tf.function
def step():
    with tf.GradientTape() as tape:
        losses = per_example(labels, half(images, training=True))
        loss = dynamic.scale_loss(tf.reduce_sum(losses) / GLOBAL_BATCH)
    variables = half.trainable_variables
    dynamic.apply_gradients(zip(tape.gradient(loss, variables), variables))


powers = []
for _ in range(18):
    step()
    powers.append(float(np.log2(dynamic.dynamic_scale.numpy())))

# %% tags=["nbval-ignore-output"]
figures.show(
    figures.lines(
        {"loss scale": (list(range(1, 19)), powers)},
        x_label="step",
        y_label="power of two",
        title="The scale falls until gradients are finite, then tests the edge",
    )
)
assert min(powers) < 32 and powers[0] == 31 and int(dynamic.iterations) < 18

# %% [markdown]
# The first steps are lost to the search. After that, one step is lost whenever the scale grows too far. With 2,000 good steps between two attempts, that costs next to nothing.
#
# ## The mistake: asking only the first replica
#
# Now two replicas, and one of them overflows. Four features go in, three numbers come out, and in step 3 an example on the *second* replica is far too bright.
#
# **Predict.** The first replica's gradients are finite, and the second's are not. After step 3, how many of the 12 weights are still finite with Keras 3's `LossScaleOptimizer`?

# %%
from utils.strategies import make_strategy

my_guess = guess_number("Finite weights after step 3", 0, 12, "of 12")
strategy = make_strategy("mirrored", 2)
rng = np.random.default_rng(0)
batches = rng.normal(size=(5, 2, 4, 4)).astype("float32")  # [step, replica, example, feature]
batches[2, 1, 0] *= 5e4
my_guess


# %%
def run_five_steps(framework, wrap):
    """Return the scale and the first replica's weights after every step."""
    with strategy.scope():
        dense = framework.layers.Dense(3, use_bias=False, dtype="mixed_float16")
        model = framework.Sequential([framework.layers.Input((4,)), dense])
        model.set_weights([np.linspace(-1, 1, 12).reshape(4, 3)])
        optimizer = wrap(framework.optimizers.SGD(0.05), initial_scale=2.0**10)
        optimizer.build(model.trainable_variables)
    scale_loss = optimizer.get_scaled_loss if framework is tf_keras else optimizer.scale_loss

    def replica_step(features):
        with tf.GradientTape() as tape:
            outputs = tf.cast(model(features, training=True), tf.float32)
            loss = scale_loss(tf.reduce_sum(outputs**2) / 8)  # the global batch is 8
        gradients = tape.gradient(loss, model.trainable_variables)
        if framework is tf_keras:
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    run, seen = tf.function(lambda *features: strategy.run(replica_step, args=features)), []
    place = strategy.experimental_distribute_values_from_function
    for shares in batches:  # [replica, example, feature]
        run(place(lambda c, shares=shares: tf.constant(shares[c.replica_id_in_sync_group])))
        scale = optimizer.loss_scale if framework is tf_keras else optimizer.dynamic_scale
        seen.append((float(tf.convert_to_tensor(scale)), model.get_weights()[0]))
    return seen


# %%
def report(seen):
    for number, (scale, weights) in enumerate(seen, start=1):
        print(f"step {number}: scale {scale:<7.0f} {np.isfinite(weights).sum():>2} finite weights")


keras_3 = run_five_steps(keras, keras.optimizers.LossScaleOptimizer)
report(keras_3)
show_guess(my_guess, int(np.isfinite(keras_3[2][1]).sum()))

# %% [markdown]
# All gone, and they stay gone. (If you said 12, you expected the step to be skipped.) The run continues, skips every further step and halves the scale, with no error. Why? Keras 3.15 checks the gradients *before* they are summed, and lets the first replica decide for all. Its gradients were fine. The sum that both replicas then applied held an infinity.
#
# tf_keras (Keras 2) sums first, and checks the sum:

# %%
old = run_five_steps(tf_keras, tf_keras.mixed_precision.LossScaleOptimizer)
report(old)
assert np.array_equal(old[2][1], old[1][1]) and old[2][0] == old[1][0] / 2

# %% [markdown]
# Step 3 is skipped on both replicas, the scale is halved in the same step, and training continues. The fix for Keras 3 is the same idea: sum first, then check. If any replica's gradient isn't finite, neither is the sum, and every replica has the same sum. So they all decide alike, without another message. Keras calls `_tf_apply` on every replica; we add up the gradients there, and stop the inner optimizer from adding them a second time.


# %%
from utils.training.loss_scale import SharedLossScaleOptimizer


class SumFirst(keras.optimizers.LossScaleOptimizer):
    def __init__(self, inner_optimizer, **options):
        super().__init__(inner_optimizer, **options)
        inner_optimizer._all_reduce_sum_gradients = list  # it gets sums: nothing left to add

    def _tf_apply(self, grads, trainable_variables=None):
        pairs = self._all_reduce_sum_gradients(zip(grads, trainable_variables))
        super()._tf_apply([gradient for gradient, _ in pairs], trainable_variables)


fixed = run_five_steps(keras, SumFirst)
report(fixed)
ours = run_five_steps(keras, SharedLossScaleOptimizer)  # the same, for every strategy
for (scale, weights), (other_scale, others), (third_scale, thirds) in zip(fixed, ours, old):
    assert scale == other_scale == third_scale
    assert np.allclose(weights, others, atol=1e-6) and np.allclose(weights, thirds, atol=1e-6)

# %% [markdown]
# Step by step, weights and scales are the same as with tf_keras. `SharedLossScaleOptimizer` does this under MirroredStrategy, CentralStorageStrategy, several workers and parameter servers, and `distlab train --dtype mixed_float16` uses it. Across workers it matters even more. There, Keras 3's own optimizer trains normally as long as the workers agree. We gave two workers the batches above. Steps 1 and 2 ran. In step 3 worker 1 overflowed, skipped its update and halved its scale. Worker 0 hadn't come back from that step after a minute. Presumably it waits in an all-reduce that worker 1 skipped. So the run hangs, without an error, the first time that one worker overflows and another doesn't. That may be step 1, if the initial scale is too large for one worker only, or hours later.

# %% tags=["nbval-ignore-output"]
from utils.training import train

job = {"model": "mlp", "dtype": "mixed_float16", "max_examples": 640, "epochs": 2}
safe = train(strategy="mirrored", replicas=2, **job)
print(safe)
assert safe.loss[1] < safe.loss[0] and safe.loss_scale > 1

# %% [markdown]
# ## What it costs
#
# ### What crosses the network
#
# The model computes in float16. In which type do its gradients travel?

# %%
from utils.collectives import ring_all_reduce

with tf.GradientTape() as tape:
    loss = tf.reduce_mean(per_example(labels, half(images)))
gradients = tape.gradient(loss, [v.value for v in half.trainable_variables])
types = sorted({gradient.dtype.name for gradient in gradients})
print("the gradients are", *types)
flat = np.concatenate([np.ravel(g) for g in gradients])
for kind in ("float32", "float16"):
    result = ring_all_reduce([flat.astype(kind), flat.astype(kind)])
    print(f"{kind}: each of two replicas sends {result.bytes_per_rank[0]:,} bytes")
assert types == ["float32"]

# %% [markdown]
# Mixed precision alone doesn't save a byte here: variables are float32, so their gradients are too. To halve the traffic you have to cast before the sum. Then the sum itself is rounded, and may overflow.
#
# ### Where the memory goes
#
# Weights, gradients and optimizer state can be counted from their arrays. For the activations we ask TensorFlow which tensors the backward pass will read.

# %%
from distlab.lessons.kept_activations import count_kept_bytes
from utils.measure import array_bytes

adam = keras.optimizers.Adam()
adam.build(model.trainable_variables)
held = {
    "weights": array_bytes(model.trainable_variables),
    "gradients": array_bytes(gradients),
    "Adam's state": array_bytes(adam.variables),
    "activations, batch 16": count_kept_bytes(model, images[:16]),
    "activations, batch 64": count_kept_bytes(model, images),
    "the same in mixed_float16": count_kept_bytes(half, images),
}
MEBIBYTE = 2**20
shown = {name: size / MEBIBYTE for name, size in held.items()}
figures.show(figures.bars(shown, unit="MiB", title="What one training step holds"))
assert held["Adam's state"] > 2 * held["weights"]

# %% [markdown]
# The activations dwarf everything else here, and they grow with the batch. `mixed_float16` doesn't halve them: layer normalization keeps float32 copies for its statistics. And it doesn't shrink the weights at all. So if a model doesn't fit, first ask *which* bar is too long. Below are several ways to shorten the activations, and two for the rest.
#
# ### Gradient accumulation
#
# Cut the batch of 64 into four *micro-batches* of 16, and only a quarter of the activations is held at a time. Add up the four gradients, then update once. The price is time, since many small passes usually take longer than one large one. The result must be the update of the whole batch:

# %%
from utils.training.accumulation import make_accumulating_step

weights = tf.fill([64], 1 / 64)
updates = {}
for pieces in (1, 4):
    trainee = build_transformer()
    sgd = keras.optimizers.SGD(0.05)
    sgd.build(trainee.trainable_variables)
    one = tf.distribute.get_strategy()
    update = make_accumulating_step(one, trainee, sgd, per_example, micro_batches=pieces)
    update(images, labels, weights)
    updates[pieces] = trainee.get_weights()
for whole, pieced in zip(updates[1], updates[4]):
    assert np.allclose(whole, pieced, atol=1e-6)
ratio = held["activations, batch 64"] / held["activations, batch 16"]
print(f"the same update; activations divided by {ratio:.1f}")

# %% [markdown]
# ### Recomputation
#
# `tf.recompute_grad` keeps only the input of a function, and runs the function again when the backward pass needs what's inside. Here each of the two Transformer blocks is such a function. (`keras.RematScope` should do the same for whole layers. On TensorFlow, Keras 3.15 raises an error in a compiled step if a wrapped layer is called with a keyword argument.)


# %%
def wrap(layer):
    return tf.recompute_grad(lambda inputs: layer(inputs, training=True))


def run_again(inputs):
    for layer in model.layers:
        is_block = layer.name.startswith("block")
        inputs = wrap(layer)(inputs) if is_block else layer(inputs)
    return inputs


def make_gradient_step(forward):
    @tf.function(autograph=False)
    def find():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(per_example(labels, forward(images)))
        return tape.gradient(loss, [v.value for v in model.trainable_variables])

    return find


ways = {"kept": make_gradient_step(model), "computed again": make_gradient_step(run_again)}
for first, second in zip(*(find() for find in ways.values())):
    assert np.allclose(first, second, atol=1e-6)
again = count_kept_bytes(run_again, images)
print(f"kept between the passes: {held['activations, batch 64'] / again:.1f} times fewer bytes")

# %% tags=["nbval-ignore-output"]
from utils.measure import time_calls

best = {name: [] for name in ways}
for _ in range(3):  # alternating, so that a busy moment hits both
    for name, find in ways.items():
        best[name] += time_calls(lambda find=find: find()[0].numpy(), 2).seconds
milliseconds = {name: 1e3 * min(seconds) for name, seconds in best.items()}
figures.show(figures.bars(milliseconds, unit="ms", title="One gradient of 64 images"))

# %% [markdown]
# You get the same gradients, and between the two passes only a fraction of the bytes is kept. While the backward pass is inside a block, that block's activations are back. So with two blocks the peak falls by less than half, and with many by far more. You pay with a second forward pass. On a GPU that usually adds about a third to a step (Chen and others, below). The picture shows what it added here.
#
# ### Long sequences
#
# A Transformer has one more bar that gets too long. Plain attention stores a score for each pair of tokens, so twice the sequence takes four times the bytes. FlashAttention computes attention in tiles and stores no scores ([lesson 23](23-which-way-to-cut.ipynb) builds it). If tensor parallelism splits the layers, sequence parallelism splits what the layer norms keep as well. The memory machine in [lesson 15](15-model-parallelism.ipynb#What-it-costs) has a switch for each.
#
# ### Eight bits
#
# Recent GPUs also multiply 8-bit floats. There are two types. e4m3 has 4 bits of precision, for weights and activations. e5m2 gives one of them up for range, for gradients. With so few numbers, one loss scale for the whole model isn't enough. Every tensor needs its own. Keras's policy `float8_from_mixed_bfloat16` keeps three for a dense layer: one for its inputs, one for its kernel, one for the gradient that arrives from above. Here are both types on everyday numbers, and then the same network trained three times.

# %% tags=["nbval-ignore-output"]
for kind in (tf.dtypes.experimental.float8_e4m3fn, tf.dtypes.experimental.float8_e5m2):
    values = tf.cast(tf.constant([1.001, 448.0, 500.0, 5e-4, 0.1]), kind)
    print(f"{kind.name:<14}", *(f"{v:<11.6g}" for v in tf.cast(values, tf.float32).numpy()))
flat_images = tf.reshape(images, [64, 784])
mean_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
policies, ended = ("float32", "mixed_bfloat16", "float8_from_mixed_bfloat16"), {}
for policy in policies:
    keras.utils.set_random_seed(0)
    hidden = keras.layers.Dense(64, "relu", dtype=policy)
    net = keras.Sequential([keras.Input((784,)), hidden, keras.layers.Dense(10, dtype="float32")])
    net.compile(keras.optimizers.SGD(0.05), mean_loss)
    run = net.fit(flat_images, labels, epochs=20, shuffle=False, verbose=0)
    ended[policy] = run.history["loss"]
    print(f"{policy:<27} loss {ended[policy][0]:.4f} to {ended[policy][-1]:.4f}")
own = {variable.name: variable.numpy() for variable in hidden.variables}
largest, scale = own["kernel_amax_history"].max(), own["kernel_scale"]
print(f"kernel: largest number {largest:.3f}, scale {scale:.6f}, 448 × scale {448 * scale:.3f}")
assert ended[policies[2]][-1] < 0.7 * ended[policies[2]][0]
assert np.isclose(448 * scale, largest, rtol=0.1)

# %%
with strategy.scope():  # two replicas; the second one's images are three times as bright
    hidden = keras.layers.Dense(64, "relu", dtype=policy)
    net = keras.Sequential([keras.Input((784,)), hidden, keras.layers.Dense(10, dtype="float32")])
    net.compile(keras.optimizers.SGD(0.05), mean_loss)
brighter = tf.concat([flat_images[:32], 3 * flat_images[32:]], axis=0)
net.fit(brighter, labels, batch_size=64, epochs=3, shuffle=False, verbose=0)
for name in ("kernel_scale", "inputs_scale"):
    copies = strategy.experimental_local_results(getattr(hidden, name).value)
    print(f"{name}: the same on both replicas:", float(copies[0]) == float(copies[1]))
    assert (float(copies[0]) == float(copies[1])) is (name == "kernel_scale")

# %% [markdown]
# e4m3 ends at 448. It has no infinity, so 500 becomes nan, and 0.0005 is gone. Still, all three networks learn. The scale puts the largest number of the last 1,024 steps at 448. The next step may bring a larger one, so Keras clips it. Weights and their gradients stay float32. So FP8 saves no byte of weights. It can save time: Keras rounds to 8 bits and multiplies in bfloat16, and on a GPU with FP8, XLA can replace that by an 8-bit product. Without XLA, or on a CPU, it saves nothing. (A tape outside of a `tf.function` raises a ValueError in Keras 3.15.1.)
#
# The last cell shows what several replicas do with the scales. Scales and histories are "trainable" variables in Keras: their new value travels as their gradient, and the optimizer puts it in place without a step. But no all-reduce touches it. Each replica keeps the scale of its own images, and the copies of one "mirrored" variable differ. The weights' gradients are still summed, so training works. But a checkpoint keeps only one of the copies.
#
# Two more ways to use fewer bits:
#
# - **TF32.** On NVIDIA GPUs since Ampere, TensorFlow multiplies float32 matrices in TF32 unless you say otherwise: float32's range with float16's precision. It's quick, and results in "float32" then agree to about three digits. `tf.config.experimental.enable_tensor_float_32_execution(False)` turns it off.
# - **8-bit optimizer state.** Adam's two averages take 8 bytes for each weight. In 8 bits, with one scale for each block of numbers, they take a little over 2 (Dettmers and others, below). Keras has no such optimizer.
#
# ### Sharded data parallelism
#
# If weights and Adam's state are the long bars, neither accumulation nor recomputation helps: every data-parallel replica holds all of them. ZeRO, and PyTorch's FSDP after it, shard them. Each of N replicas keeps 1/N of the optimizer state (stage 1), also of the gradients (stage 2), also of the weights (stage 3), and gets the rest from the others when it needs it. The price is traffic: by the paper's count none extra for stages 1 and 2, and half as much again for stage 3. `tf.distribute` has nothing like it; DTensor layouts ([lesson 15](15-model-parallelism.ipynb)) come closest.
#
# [Lesson 15](15-model-parallelism.ipynb#What-it-costs) computes the bytes of each stage for 7.5 billion parameters: 120 GB on each of 64 replicas, and 1.88 GB at stage 3.
#
# ### The 7 B model, recomputed
#
# The model of lessons [15](15-model-parallelism.ipynb) and [16](16-pipeline-parallelism.ipynb) was in bfloat16 all the time. What does recomputing its activations change?

# %%
from distlab.explorables.one_model import one_model_explorer

one_model_explorer(18)

# %% [markdown]
# Each GPU holds half as much, and a step takes about a third longer. On GPUs with room to spare that's a bad trade. Recompute when the alternative is not to fit.
#
# ### Back to the number line
#
# These are the gradients that reach the first block again, for 4,096 replicas and without a loss scale. The number on top is the updated weight from the beginning. **Save nearly all of the gradients, in two ways.** What does each way cost you?

# %% tags=["nbval-ignore-output"]
assert np.mean(sizes[1] / 4096 < 2.0**-126) < 0.01 < np.mean(sizes[1] / 4096 < 2.0**-24)
float_line(sizes[1], 1.001, replicas=4096)

# %% [markdown]
# A loss scale does it, and then someone has to find it, and all replicas have to skip together when it's too large. bfloat16 does it without a scale, and its line shows the price: 1.001 becomes 1, so the update is gone. That's why the policy keeps the weights in float32.
#
# ## On a real GPU
#
#     distlab train --device gpu --model transformer --dtype mixed_bfloat16 --epochs 2
#
# Compare the images/s of the second epoch with `--dtype float32`. The loss should stay within a few hundredths. If it doesn't, print the error of each variable.
#
# ## Cheat sheet
#
# ```python
# import keras
#
# keras.mixed_precision.set_global_policy("mixed_bfloat16")  # on GPUs and TPUs that have it
# # on older GPUs: "mixed_float16". One replica: Keras scales the loss in `compile`.
# # Several: from utils.training.loss_scale import SharedLossScaleOptimizer
# #          optimizer = SharedLossScaleOptimizer(keras.optimizers.Adam())
# logits = keras.layers.Dense(10, dtype="float32")  # outputs and loss stay in float32
# # too many activations: accumulate, recompute; too much state: shard (ZeRO, FSDP)
# ```
#
# **Recap**
#
# - float16 is short of range, bfloat16 of precision. The more replicas, the more gradients fell below float16's floor.
# - Most of bfloat16's error wasn't the type's: a CPU kernel adds up bias gradients in 16 bits, and XLA doesn't.
# - A loss scale brought float16's small gradients back, and a dynamic scale found its own value.
# - One replica overflowed: Keras 3 lost every weight, tf_keras and the fix skipped one step.
# - Gradients cross the network in float32 unless you cast them. Activations were the largest bar.
# - A dense layer trained in FP8, with a scale for each tensor that Keras moved automatically.
# - Accumulation and recomputation cut activations, and sharding cuts the rest. You pay with smaller passes, a second forward pass, or traffic.
#
# For a whole program, see [mixed_precision.py](../examples/mixed_precision.py).
#
# ## Further reading
#
# - Micikevicius and others, [Mixed Precision Training](https://arxiv.org/abs/1710.03740): loss scaling, and why weights stay in float32
# - Kalamkar and others, [A Study of BFLOAT16 for Deep Learning Training](https://arxiv.org/abs/1905.12322)
# - TensorFlow's guide [Mixed precision](https://www.tensorflow.org/guide/mixed_precision); API page [tf.recompute_grad](https://www.tensorflow.org/api_docs/python/tf/recompute_grad)
# - Chen and others, [Training Deep Nets with Sublinear Memory Cost](https://arxiv.org/abs/1604.06174): recomputation
# - Rajbhandari and others, [ZeRO](https://arxiv.org/abs/1910.02054): sharded data parallelism
# - Micikevicius and others, [FP8 Formats for Deep Learning](https://arxiv.org/abs/2209.05433); Dettmers and others, [8-bit Optimizers via Block-wise Quantization](https://arxiv.org/abs/2110.02861)
#
# ## The lab
#
# In [lab 13, precision and memory](../labs/lab13-precision-and-memory.ipynb) you find where a `nan` began, make two replicas skip together, and compute gradients within a budget of bytes. "Loss scaling" has a second meaning, dividing by the global batch. That one is practiced in [lab 05, loss scaling](../labs/lab05-loss-scaling.ipynb).
