# %% [markdown]
# # Loss scaling
#
# You scale a loss so that four replicas take exactly the step that one device would take, and
# you measure what every usual mistake does to that step.
#
# **Time:** 60 minutes · **Builds on:** [custom training loop](04-custom-training-loop.ipynb) ·
# **Hardware:** two CPU cores
#
# ## Objectives
#
# - Scale the loss of one replica so that the update equals the single-device gradient.
# - Measure the ratio of an applied update to that gradient, and tell a wrong scale from a wrong
#   direction.
# - Divide weighted, uneven and per-pixel losses by the right number, and scale a penalty.
# - Clip gradients after the reduction, and show what clipping before it does.
# - Repair a `fit` call that follows an old tutorial.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
    import tf_keras  # Keras 2, only to compare with
from utils.devices import use_logical_devices

set_seeds(0)
keras.config.set_floatx("float64")  # so that ratios come out exact
devices = use_logical_devices(4)
print(devices)

# %%
import functools

import numpy as np

from utils import figures
from utils.data import load
from utils.data.batches import epoch_order
from utils.exercises.predict import show_guess
from utils.measure import array_bytes, time_calls
from utils.models import build_mlp
from utils.strategies import make_strategy
from utils.training import train
from utils.widgets.update_scaling import Shares, inner_products, update_explorer, update_ratio

# %% [markdown]
# ## Four numbers first
#
# Sixty-four examples have the losses 1, 2, … 64. Four replicas hold 16 each. A replica turns
# its 16 losses into one number, and what the replicas return is added up, as their gradients
# will be. Below: the mean that is wanted, then three ways to get at it. One of the three is
# right.

# %%
losses = np.arange(1.0, 65.0).reshape(4, 16)  # [replica, example]
print("the mean of the 64             ", losses.mean())
print("each replica its mean, summed  ", losses.mean(axis=1).sum())
print("each its sum / 64, summed      ", (losses.sum(axis=1) / 64).sum())
print("each its sum, summed           ", losses.sum())

# %% [markdown]
# ## The instrument: one step of SGD at learning rate 1
#
# With plain SGD at learning rate 1 a step subtracts the gradient itself: weights before minus
# weights after is what was applied, the *update*. It is held against the gradient that one
# device computes from the mean loss over the same examples.
#
# The first cell computes that gradient on one device. The second makes the same weights on four
# replicas. In it, `step` is the body of any custom loop; `apply_step` runs it once, returns the
# update, and puts the weights back, so that every measurement starts from the same place.
# `compare` fits update = ratio · gradient over all parameters by least squares. The *residual*
# is what that leaves over, relative to the gradient: 0 means that only the scale differs.

# %%
data = load("fashion_mnist").train
images = data.images[:66, ..., np.newaxis] / 255  # [66, 28, 28, 1]
labels = data.labels[:66]
full = (images[:64], labels[:64])  # one global batch; the other 2 are for later
per_example = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def flatten(arrays):
    """Return all elements of `arrays` as one NumPy vector."""
    return np.concatenate([np.ravel(a.numpy()) for a in arrays])


def mean_loss(y, z):
    """Return the mean loss of labels `y` and logits `z`."""
    return tf.reduce_mean(per_example(y, z))


def gradient_of(model, images, labels, loss=mean_loss):
    """Return the single-device gradient of `loss(labels, logits)`, [parameters]."""
    with tf.GradientTape() as tape:
        value = loss(labels, model(images, training=True))
    return flatten(tape.gradient(value, model.trainable_variables))


one_device = build_mlp(dtype="float64")
gradient = gradient_of(one_device, *full)
print("parameters:", gradient.size)

# %%
strategy = make_strategy("mirrored", 4)
with strategy.scope():
    model = build_mlp(dtype="float64")
measured = {}


def make_sgd(rate=1.0, **options):
    return keras.optimizers.SGD(rate, **options)


def apply_step(model, batch, loss, make_optimizer=make_sgd, change=list, put_back=True):
    """Take one step on every replica; return weights before - after, [parameters].

    `change` may alter a replica's gradients before they are applied.
    """
    kept, before = model.get_weights(), flatten(model.trainable_variables)
    variables = [v.value for v in model.trainable_variables]  # plain ones: Keras 2 takes them too
    with strategy.scope():
        optimizer = make_optimizer()
        optimizer.build(variables)

    def step(images, labels, *weights):
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True), *weights)
        optimizer.apply_gradients(zip(change(tape.gradient(value, variables)), variables))

    strategy.run(step, args=batch)
    update = before - flatten(variables)
    if put_back:
        model.set_weights(kept)
    return update


def compare(name, update, gradient):
    """Print and keep the ratio of `update` to `gradient`, and the residual."""
    ratio = update @ gradient / (gradient @ gradient)
    residual = np.linalg.norm(update - ratio * gradient) / np.linalg.norm(gradient)
    measured[name] = (float(ratio), float(residual))
    print(f"{name:<46} ×{ratio:<8.4g} residual {residual:.2f}")


# %% [markdown]
# ## Four ways to scale, and more
#
# **Predict.** The global batch is 64, each replica holds 16. A replica's loss is
# `tf.reduce_mean` over its own 16, as on one device. How many times the single-device gradient
# is applied?

# %%
my_guess = None  # your number


# %%
def share_out(*arrays, batch_size=64):
    """Return the batches of `arrays` as the strategy hands them to its replicas."""
    batches = tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size)
    return list(strategy.experimental_distribute_dataset(batches))


def share_of_mean(y, z):
    return average(per_example(y, z), global_batch_size=64)


average = tf.nn.compute_average_loss
keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
batch = share_out(*full)[0]
for name, loss in {
    "tf.reduce_mean": mean_loss,
    "Keras's loss object": keras_loss,
    "Keras's loss object / replicas": lambda y, z: keras_loss(y, z) / 4,
    "compute_average_loss(64)": share_of_mean,
    "tf.reduce_sum": lambda y, z: tf.reduce_sum(per_example(y, z)),
    'reduction="none", left as it is': per_example,
}.items():
    compare(name, apply_step(model, batch, loss), gradient)
    assert measured[name][1] < 1e-12
show_guess(my_guess, round(measured["tf.reduce_mean"][0], 6), unit="×")
parts = strategy.run(lambda x, y: (keras_loss(y, model(x)), mean_loss(y, model(x))), args=batch)
kept, own = [strategy.reduce("SUM", part, axis=None).numpy() for part in parts]
print(f"what Keras's object returns in a replica / the mean of its 16: {kept / own:.4g}")

# %% [markdown]
# The residuals are 0: each way points in the right direction, and only the length differs. Two
# ways apply the gradient itself: the sum divided by the *global* batch size, and Keras's loss
# object as it comes.
#
# The second may surprise. A replica that averages over its own 16 should give ×4, as
# `tf.reduce_mean` does. The last line shows why it does not: inside a strategy, Keras 3's
# object divides by the number of replicas once more, by itself. Who divides by 4 again takes a
# step four times too short.
#
# ## Sample weights
#
# With weights there are two means: the weighted sum divided by the number of examples, or by
# the sum of the weights. The second is the weighted mean, and the ratios below are to its
# gradient. The weights are whole numbers from 1 to 5.

# %%
weights = np.random.default_rng(0).integers(1, 6, 64).astype("float64")
print(f"mean of the weights: {weights.mean():.4g}")
print("their sum on each replica:", weights.reshape(4, 16).sum(axis=1).astype(int).tolist())
weighted_batch = share_out(*full, weights)[0]
weighted_gradient = gradient_of(
    one_device, *full, lambda y, z: tf.reduce_sum(weights * per_example(y, z)) / weights.sum()
)


# %%
def over_all_weights(y, z, w):
    """Divide by the sum of the weights on all replicas."""
    total = tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(w))
    return tf.reduce_sum(per_example(y, z) * w) / total


weighted_mean = keras.losses.SparseCategoricalCrossentropy(
    from_logits=True, reduction="mean_with_sample_weight"
)
for name, loss in {
    "compute_average_loss(64)": lambda y, z, w: average(per_example(y, z), w, 64),
    "Keras's loss object": keras_loss,
    'reduction="mean_with_sample_weight"': weighted_mean,
    "sum of weights, all replicas": over_all_weights,
}.items():
    update = apply_step(model, weighted_batch, loss)
    compare(f"weights: {name}", update, weighted_gradient)
assert np.isclose(measured["weights: compute_average_loss(64)"][0], weights.mean(), rtol=1e-12)
assert np.allclose(measured["weights: sum of weights, all replicas"], (1, 0), atol=1e-12)

# %% [markdown]
# `compute_average_loss` and Keras's object divide by 64 whatever the weights are: their ratio
# is the mean weight. That is right where weights have a mean of 1 over the data; elsewhere it
# is another learning rate. `"mean_with_sample_weight"` divides by the sum of the weights, but
# by each replica's own, so an example on a replica with small weights counts for more: the
# residual says that the direction is off. The last way adds up the weights of all replicas
# first.
#
# ## Regularisation
#
# Each replica computes the same penalty from the same weights, and the four equal gradients are
# added up. `tf.nn.scale_regularization_loss` divides by the number of replicas. Below, the
# gradient of the data's loss, which is right, is taken away, and what is left is held against
# the penalty's own gradient.


# %%
one = build_mlp(dtype="float64", hidden_units=16)
with strategy.scope():
    regularised = build_mlp(dtype="float64", hidden_units=16)
for each in (one, regularised):
    each.layers[1].kernel.regularizer = keras.regularizers.L2(0.01)
data_part = gradient_of(one, *full)
both = gradient_of(one, *full, lambda y, z: mean_loss(y, z) + one.losses[0])
penalty = both - data_part


# %%
def with_penalty(scale):
    return lambda y, z: share_of_mean(y, z) + scale(tf.add_n(regularised.losses))


update = apply_step(regularised, batch, with_penalty(tf.identity))
compare("penalty: added as it is", update - data_part, penalty)
update = apply_step(regularised, batch, with_penalty(tf.nn.scale_regularization_loss))
compare("penalty: scale_regularization_loss", update - data_part, penalty)

# %% [markdown]
# Added as it is, the penalty counts once for each replica: the same program moved from 1 to 4
# replicas regularises four times as much. In a custom loop nobody scales `model.losses` for
# you; `fit` does, as is measured further down.
#
# ## The last batch
#
# **Predict.** 66 examples in batches of 32 leave 2 for the last batch, and four replicas get 1,
# 1, 0 and 0 of them. The loss is `compute_average_loss(..., global_batch_size=32)`, right for
# the full batches. How many times the gradient of the mean of those 2 is applied?

# %%
my_guess = None  # your number


# %%
def over_real_count(y, z):
    """Divide by the number of examples that all replicas really hold."""
    count = tf.distribute.get_replica_context().all_reduce("SUM", tf.size(y))
    return average(per_example(y, z), global_batch_size=count)


last_batch = share_out(images, labels, batch_size=32)[-1]
last_gradient = gradient_of(one_device, images[64:], labels[64:])
print("shares:", [len(share) for share in strategy.experimental_local_results(last_batch[1])])
for name, loss in {
    "tf.reduce_mean": mean_loss,
    "Keras's loss object": keras_loss,
    "compute_average_loss()": lambda y, z: average(per_example(y, z)),
    "compute_average_loss(32)": lambda y, z: average(per_example(y, z), global_batch_size=32),
    "compute_average_loss(real count)": over_real_count,
}.items():
    compare(f"last batch: {name}", apply_step(model, last_batch, loss), last_gradient)
show_guess(my_guess, round(measured["last batch: compute_average_loss(32)"][0], 6), unit="×")
own = strategy.run(lambda x, y: mean_loss(y, model(x)), args=last_batch)
print("the loss that tf.reduce_mean reports:", strategy.reduce("SUM", own, axis=None).numpy())

# %% [markdown]
# Keras's object, and `compute_average_loss` without a size, take it that every replica holds as
# many examples as this one: 1 · 4 instead of 2, and so half the step. The constant 32 gives
# 1/16. Counting what is really there is exact.
#
# An empty replica has one more effect. The mean of nothing is not a number. Its gradient is
# empty and does no harm, but the loss that you report is lost.
#
# ## One loss for each pixel
#
# In segmentation the loss has a value for each pixel, [batch, height, width]. Here the target
# is the garment itself: pixels brighter than a half. `compute_average_loss` sums over
# *everything* and divides by the batch size alone.

# %%
with strategy.scope():
    segmenter = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Conv2D(1, 1)])
one = keras.models.clone_model(segmenter)
one.set_weights(segmenter.get_weights())
masks = (images[:64] > 0.5).astype("float64")  # [64, 28, 28, 1]
per_pixel = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")
pixel_gradient = gradient_of(one, images[:64], masks, lambda y, z: tf.reduce_mean(per_pixel(y, z)))

# %%
for name, loss in {
    "compute_average_loss(64)": lambda y, z: average(per_pixel(y, z), global_batch_size=64),
    "each image first": lambda y, z: average(tf.reduce_mean(per_pixel(y, z), [1, 2]), None, 64),
    "Keras's loss object": keras.losses.BinaryCrossentropy(from_logits=True),
}.items():
    update = apply_step(segmenter, share_out(images[:64], masks)[0], loss)
    compare(f"pixels: {name}", update, pixel_gradient)

# %% [markdown]
# 784 is 28 · 28: every image counts as often as it has pixels. Average over the pixels first.
# Keras's object does so by itself.
#
# ## Batch normalisation
#
# A right scale is not enough where a layer looks across the batch. `BatchNormalization` uses
# the mean and variance of *its replica's* 16 examples, and no factor mends that.
# `synchronized=True` adds up the sums over the replicas first (SyncBatchNorm).


# %%
def normalise(synchronized):
    """Return the MLP with a normalisation after its hidden layer, the same weights each time."""
    flat, hidden, last = build_mlp(dtype="float64", hidden_units=32).layers
    layer = keras.layers.BatchNormalization(synchronized=synchronized)
    return keras.Sequential([keras.Input((28, 28, 1)), flat, hidden, layer, last])


# %%
norm_gradient = gradient_of(normalise(False), *full)
with strategy.scope():
    normalised = {"as it is": normalise(False), "synchronized=True": normalise(True)}
for name, each in normalised.items():
    compare(f"batch norm: {name}", apply_step(each, batch, share_of_mean), norm_gradient)

# %%
for name, each in normalised.items():
    nans = int(np.isnan(apply_step(each, last_batch, over_real_count)).sum())
    strategy.run(each, args=batch[:1], kwargs={"training": True})
    moving_mean = each.layers[2].moving_mean.value
    copies = [copy.numpy() for copy in strategy.experimental_local_results(moving_mean)]
    same = np.allclose(copies, copies[0])
    print(f"{name}: {nans} nan after empty replicas; moving means equal: {same}")
    assert np.array_equal(each.get_weights()[4], copies[0])  # what is saved is the first one's

# %% [markdown]
# As it is, the layer has three faults here. The update points elsewhere: that is the residual.
# A batch with empty replicas turns 32 weights into nan, one for each unit. And the moving
# statistics, which inference uses, drift apart: in Keras 3 nothing averages them, and what is
# saved is the first replica's, which saw a quarter of the data. With `synchronized=True` all
# three are gone.
#
# ## Clipping
#
# To clip by norm is to shorten a gradient that is longer than a limit to that limit. To clip
# each replica's share before the sum is something else: four shares within the limit can add up
# to four times the limit.
#
# **Predict.** The limit is half the length of the single-device gradient, so the right update
# has half its length. How many times that update does `SGD(global_clipnorm=limit)` apply under
# the strategy?

# %%
my_guess = None  # your number

# %%
limit = np.linalg.norm(gradient) / 2


def all_reduce_sum(gradients):
    return tf.distribute.get_replica_context().all_reduce("SUM", gradients)


def clip_by_sum(gradients, limit=limit):
    """Scale this replica's gradients by the factor that clips the sum over all replicas."""
    length = tf.linalg.global_norm(all_reduce_sum(gradients))
    return [g * tf.minimum(1.0, limit / length) for g in gradients]


for name, options in {
    "SGD(global_clipnorm)": {"make_optimizer": lambda: make_sgd(global_clipnorm=limit)},
    "the same in Keras 2": {
        "make_optimizer": lambda: tf_keras.optimizers.SGD(1.0, global_clipnorm=limit)
    },
    "all_reduce, clip, apply": {
        "change": lambda g: tf.clip_by_global_norm(all_reduce_sum(g), limit)[0]
    },
    "factor from the all_reduce": {"change": clip_by_sum},
}.items():
    compare(f"clipping: {name}", apply_step(model, batch, share_of_mean, **options), gradient / 2)
show_guess(my_guess, round(measured["clipping: SGD(global_clipnorm)"][0], 6), unit="×")
tight = apply_step(model, batch, share_of_mean, lambda: make_sgd(global_clipnorm=limit / 5))
compare("clipping: SGD(global_clipnorm / 5)", tight, gradient / 10)

# %% [markdown]
# Keras 3 clips each replica's share before it adds them up. At the first limit no share is long
# enough to be clipped, and the sum passes at twice the limit. At a fifth of it (the last line)
# every share is clipped, the sum is still too long, and it has turned: the longer shares lost
# more. Keras 2 clipped after the reduction, so a recipe changes its meaning between the two,
# without an error.
#
# The third way clips the sum, and then `apply_gradients` adds up four equal copies of it. So
# hand it shares that still add up: each replica's own gradients, times one common factor.
#
# ## Why a wrong scale hides, and why it matters
#
# With SGD, a loss four times too large is a learning rate four times too large: divide the rate
# by 4 and no trace is left. Adam divides by the size of its gradients, and takes the factor out
# by itself. But whatever has a size of its own beside the gradient does not scale with it. Each
# row below holds the loss × 4 against the right loss, with the learning rate divided by 4
# (Adam: with the same rate).


# %%
def compare_times_four(name, make_optimizer, wrong_rate=0.25, penalty=0.0, change=list):
    def take_step(factor, rate):
        def loss(y, z):
            squares = tf.add_n([tf.nn.l2_loss(v) for v in model.trainable_variables])
            return factor * share_of_mean(y, z) + tf.nn.scale_regularization_loss(penalty * squares)

        return apply_step(model, batch, loss, lambda: make_optimizer(rate), change)

    compare(f"loss × 4: {name}", take_step(4, wrong_rate), take_step(1, 1.0))


def clip_at_double(gradients):
    return clip_by_sum(gradients, limit=2 * np.linalg.norm(gradient))


compare_times_four(
    "Adam, same rate", lambda rate: keras.optimizers.Adam(rate / 1000), wrong_rate=1.0
)
compare_times_four("SGD, rate / 4", make_sgd)
compare_times_four("SGD, rate / 4, L2 penalty", make_sgd, penalty=0.1)
compare_times_four("SGD, rate / 4, weight decay", lambda rate: make_sgd(rate, weight_decay=0.1))
compare_times_four("SGD, rate / 4, clipped", make_sgd, change=clip_at_double)

# %% [markdown]
# SGD alone: no difference. Adam: within one per cent in length, at the very first step. The
# penalty and the weight decay are now four times too weak beside the data, and the step turns.
# The clip is set at twice the gradient's length and should not act at all; it halves the step.
#
# ## The mistake: an old tutorial's loss in `fit`
#
# Much of what is written advises `reduction="none"` or `"sum"` whenever there is a strategy.
# That was meant for custom loops.
#
# **Predict.** `compile(loss=SparseCategoricalCrossentropy(reduction="none"))`, then `fit` with
# batches of 64 over four replicas. There is no error and no warning. How many times the
# gradient is applied?

# %%
my_guess = None  # your number


# %%
def fit_once(model, loss):
    """Fit one batch of 64 at learning rate 1; return the update and the loss that `fit` logs."""
    kept, before = model.get_weights(), flatten(model.trainable_variables)
    with strategy.scope():
        model.compile(make_sgd(), loss=loss)
    batches = tf.data.Dataset.from_tensor_slices(full).batch(64)
    logged = model.fit(batches, verbose=0, shuffle=False).history["loss"][0]
    update = before - flatten(model.trainable_variables)
    model.set_weights(kept)
    return update, logged


true_loss = mean_loss(labels[:64], model(images[:64])).numpy()
for reduction in ("none", "sum", "sum_over_batch_size"):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
    update, logged = fit_once(model, loss)
    compare(f'fit: reduction="{reduction}"', update, gradient)
    print(f"  fit logs {logged / true_loss:.4g} times the mean loss")
compare("fit: penalty", fit_once(regularised, keras_loss)[0] - data_part, penalty)
show_guess(my_guess, round(measured['fit: reduction="none"'][0], 6), unit="×")

# %% [markdown]
# The mend is to leave the reduction alone: `"sum_over_batch_size"` is the default. `fit` scales
# the penalty too. With the other two, the logged loss is the only hint.
#
# Other old advice fails at once, each piece in its own words. The last is Keras 2, whose loss
# object refuses to run in a custom loop: its message is the old advice. Keras 3's object runs, and
# scales itself, as was measured above.

# %%
keras_two_loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
attempts = {
    'reduction="auto"': lambda: keras.losses.MeanSquaredError(reduction="auto"),
    "losses.Reduction": lambda: keras.losses.Reduction.NONE,
    "skipping": lambda: make_sgd().apply_gradients([], skip_gradients_aggregation=True),
    "summing": lambda: make_sgd().apply_gradients([], experimental_aggregate_gradients=False),
    "Keras 2": lambda: strategy.run(lambda x, y: keras_two_loss(y, model(x)), args=batch),
}
for name, attempt in attempts.items():
    try:
        attempt()
        print(f"{name}: no error")
    except (AttributeError, TypeError, ValueError) as error:
        says = str(error).split(" Expected")[0].splitlines()[0]
        print(f"{name}: {type(error).__name__}: {says}")

# %% [markdown]
# ## Every mistake in one picture
#
# The table holds all that was measured above. The picture shows the rows that are not right, on a
# logarithmic scale; the dashed line at 1 is the single-device step. Orange bars are also turned:
# their residual is not 0, and no learning rate mends them.
#
# The explorer after it puts any update together from your own gradients, one for each of the 64
# examples: a way to scale a loss is a factor for each. Set 2 examples and a written size of 32
# for the last batch of above. Set 63 examples: now Keras's object is a little off in direction,
# since the smallest share counts for more.

# %% tags=["nbval-ignore-output"]
right = {name: abs(r - 1) < 1e-9 and off < 1e-9 for name, (r, off) in measured.items()}
for name, (ratio, residual) in measured.items():
    print(f"{'right' if right[name] else 'wrong'}  ×{ratio:<8.4g} residual {residual:.2f}  {name}")
wrong = {n + ", turned" * (off > 1e-9): r for n, (r, off) in measured.items() if not right[n]}
marks = {"highlight": [name for name in wrong if "turned" in name], "reference": ("right: ×1", 1)}
title = "Update / single-device gradient, 4 replicas"
figures.show(figures.bars(wrong, unit="×", title=title, log=True, **marks))
assert np.isclose(min(wrong.values()), 1 / 16) and np.isclose(max(wrong.values()), 784)

# %% tags=["nbval-ignore-output"]
singles = np.array(
    [gradient_of(one_device, images[i : i + 1], labels[i : i + 1]) for i in range(64)]
)  # [example, parameters]
for way in ("tf.reduce_mean", "Keras's loss object", "tf.reduce_sum"):
    ratio, _ = update_ratio(inner_products(singles), Shares(4, 64, 64), way)
    assert np.isclose(ratio, measured[way][0])
update_explorer(singles)

# %% [markdown]
# ## The same through `utils`
#
# `utils.training.train` weighs each example with 1 / (real examples in its global batch) and
# adds up: the real count again. One epoch of 66 examples in batches of 32, by hand and through
# `train`, from the same weights and in the same order:

# %%
report = train(
    strategy="mirrored",
    replicas=4,
    model="mlp",
    dtype="float64",
    optimizer="sgd",
    learning_rate=0.1,
    global_batch_size=32,
    limit=66,
    epochs=1,
    seed=0,
)
order = epoch_order(66, seed=0, epoch=0)
for name, loss in {"real count": over_real_count, "Keras's loss object": keras_loss}.items():
    with strategy.scope():
        by_hand = build_mlp(seed=0, dtype="float64")
    for shares in share_out(images[order], labels[order], batch_size=32):
        apply_step(by_hand, shares, loss, lambda: make_sgd(0.1), put_back=False)
    pairs = zip(by_hand.get_weights(), report.weights)
    same = all(np.allclose(mine, theirs, rtol=0, atol=1e-12) for mine, theirs in pairs)
    print(f"{name}: the same weights as train: {same}")
    assert same == (name == "real count")

# %% [markdown]
# ## What it costs
#
# To scale is one division. What can cost is to know the right number, since replicas have to
# ask each other. All that they tell each other passes through the strategy's cross-device
# operations; here is one that counts it. The seconds are those of logical devices on one
# processor, where a message costs next to nothing.


# %% tags=["nbval-ignore-output"]
class CountingReduction(tf.distribute.ReductionToOneDevice):
    sizes = ()

    def reduce_implementation(self, reduce_op, per_replica_value, destinations, options):
        self.sizes += (array_bytes(per_replica_value.values[:1]),)
        return super().reduce_implementation(reduce_op, per_replica_value, destinations, options)


counting = CountingReduction()
strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=counting)
with strategy.scope():
    model, plain, synchronized = build_mlp(dtype="float64"), normalise(False), normalise(True)
costs = {}
for name, arguments in {
    "constant 64": (model, batch, share_of_mean),
    "sum of weights": (model, weighted_batch, over_all_weights),
    "clipped by the sum": (model, batch, share_of_mean, make_sgd, clip_by_sum),
    "batch norm": (plain, batch, share_of_mean),
    "batch norm, synchronized": (synchronized, batch, share_of_mean),
}.items():
    counting.sizes = ()
    apply_step(*arguments)
    costs[name], count = sum(counting.sizes), len(counting.sizes)
    seconds = time_calls(functools.partial(apply_step, *arguments)).best_seconds
    print(f"{name:<26}{count:>3} tensors {costs[name]:>10,} bytes {seconds * 1000:>6.1f} ms")
assert costs["sum of weights"] == costs["constant 64"] + 8
assert costs["clipped by the sum"] == 2 * costs["constant 64"]

# %% [markdown]
# The sum of the weights, or the real count, is one number beside all the gradients. Clipping by
# the sum reduces every gradient twice. Synchronised normalisation adds few bytes but several
# small reductions, each of which must end before the layer can go on; on a network it is the
# waiting that costs.
#
# ## Take-away card
#
# ```python
# def replica_loss(labels, logits):  # called through strategy.run; loss_object: reduction="none"
#     losses = loss_object(labels, logits)  # [per_replica_batch, ...]
#     losses = tf.reduce_mean(losses, axis=list(range(1, losses.shape.rank)))  # over pixels, if any
#     count = tf.distribute.get_replica_context().all_reduce("SUM", tf.size(losses))
#     loss = tf.nn.compute_average_loss(losses, global_batch_size=count)
#     return loss + tf.nn.scale_regularization_loss(tf.add_n(model.losses))  # if it has any
#
# # fit: leave the reduction alone. BatchNormalization(synchronized=True). Weights: / all their sum.
# # Clip by the length of all_reduce("SUM", gradients), not with the optimizer's global_clipnorm.
# ```
#
# ## Where it is described
#
# - TensorFlow's tutorial [Custom training with
#   tf.distribute.Strategy](https://www.tensorflow.org/tutorials/distribute/custom_training),
#   the part on the loss function
# - API page [tf.nn.compute_average_loss](https://www.tensorflow.org/api_docs/python/tf/nn/compute_average_loss)
# - API page [tf.nn.scale_regularization_loss](https://www.tensorflow.org/api_docs/python/tf/nn/scale_regularization_loss)
# - Keras, [losses](https://keras.io/api/losses/) and
#   [BatchNormalization](https://keras.io/api/layers/normalization_layers/batch_normalization/):
#   the arguments `reduction` and `synchronized`
# - Goyal and others, [Accurate, Large Minibatch SGD](https://arxiv.org/abs/1706.02677),
#   sections 2.3 (normalisation statistics per worker) and 3 (weight decay, momentum, dividing
#   by the total batch)
# - Pascanu, Mikolov and Bengio, [On the difficulty of training recurrent neural
#   networks](https://arxiv.org/abs/1211.5063): clipping by norm
#
# ## The lab
#
# You practise this in lab 05, loss scaling: four wrong losses to mend, then weights,
# regularisation and uneven batches, graded by the same ratio.
