# %% [markdown] shows="Each scaling mistake, measured as a ratio of updates"
# # Loss scaling
#
# On four replicas, one wrong divisor makes every step four times too long. There is no error, and the loss may still go down. It just looks like a badly chosen learning rate. At the end you will be able to scale a loss so that four replicas take exactly the step of one device. And you will recognize each usual mistake by what it does to that step.
#
# **Time:** 85 minutes · **Prerequisites:** [custom training loop](04-custom-training-loop.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Scale the loss of one replica so that the update equals the single-device gradient.
# - Measure the ratio of an applied update to that gradient, and tell a wrong length from a wrong direction.
# - Divide weighted, uneven and per-pixel losses by the right number, and scale a penalty.
# - Clip gradients after the reduction, and show what clipping before it does.
# - Predict what an old tutorial's loss does to a step of `fit`.

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

# %% [markdown]
# ## The arrow that is four times too long
#
# Here is a model of two weights in training. The rings are lines of equal loss, and the lowest point is in the middle. The black arrow (white on a dark page) is the step of one device. The thin colored ones are what four replicas contribute, laid end to end, and the red one is their sum. **Put the red arrow exactly onto the black one, without taking a replica away.** Then press Play: does it stay there? You don't have to know yet what the names of the losses mean.

# %%
from distlab.explorables import update_arrow

update_arrow()

# %% [markdown]
# More than one way does it. At the end the arrow comes back with a batch for which only one of them is left.
#
# ## Four numbers
#
# Why do only some of them work? Sixty-four examples have the losses 1, 2, 3 and so on, and four replicas hold 16 each. Each replica turns its 16 losses into one number, and the four numbers are added up, just as the replicas' gradients will be. What we want is the mean of all the losses.
#
# **Your turn.** Each replica adds up its own 16 losses and divides the sum by one number, the same on all four. Which number makes the four results add up to the mean?

# %%
divisor = ...  # write a number in place of the dots

# %%
from distlab import figures
from distlab.turns import lesson05 as turns

divisor = turns.DIVISOR.take(divisor)
losses = np.arange(1.0, 65.0).reshape(4, 16)  # [replica, example]
ways = {
    "each gives its mean": losses.mean(axis=1).sum(),
    f"each gives its sum / {divisor}": (losses.sum(axis=1) / divisor).sum(),
    "each gives its sum": losses.sum(),
}
wanted = ("wanted: the mean of the 64", losses.mean())
figures.show(figures.bars(ways, unit="", title="Sums of four numbers", reference=wanted, log=True))

# %% [markdown]
# Only one way gives the mean: it divides by the number of *all* examples, 64. The arrow that was too long came from `tf.reduce_mean`, each replica's own mean. The rest of the lesson does the same with a real network's gradients.
#
# ## The instrument: one step of SGD at learning rate 1
#
# Plain SGD at learning rate 1 subtracts the gradient itself. So if you take the weights before a step and subtract the weights after it, you get exactly what was applied: the *update*. We compare every update that four replicas make with the gradient that one device computes from the mean loss of the same examples.
#
# First, that gradient:

# %%
from utils.data import load
from utils.models import build_mlp

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

# %% [markdown]
# Then the same weights on four replicas, and one step. `step` is the step of any custom loop; `apply_step` runs it once, returns the update and puts the weights back, so every measurement starts from the same place. (It runs without `tf.function`: each step is taken only once.)

# %%
reduction = tf.distribute.ReductionToOneDevice()  # on CPUs; leave it out on GPUs
strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
with strategy.scope():
    model = build_mlp(dtype="float64")
make_sgd = functools.partial(keras.optimizers.SGD, 1.0)
decayed = functools.partial(keras.optimizers.SGD, weight_decay=0.1)


def take_step(model, batch, loss, make_optimizer=make_sgd, edit_gradients=None):
    """Take one step on every replica; return weights before - after, [parameters]."""
    before = flatten(model.trainable_variables)
    variables = [v.value for v in model.trainable_variables]  # plain ones: Keras 2 takes them too
    with strategy.scope():
        optimizer = make_optimizer()
        optimizer.build(variables)

    def step(images, labels, *weights):
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True), *weights)
        gradients = tape.gradient(value, variables)
        if edit_gradients:
            gradients = edit_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, variables))

    strategy.run(step, args=batch)
    return before - flatten(variables)


# %%
def apply_step(model, *arguments, **options):
    """Return the update of one step, and put the weights back."""
    kept = model.get_weights()
    update = take_step(model, *arguments, **options)
    model.set_weights(kept)
    return update


# %%
def distribute(*arrays, batch_size=64):  # the batches, each cut into the replicas' parts
    batches = tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size)
    return list(strategy.experimental_distribute_dataset(batches))


(batch,) = distribute(*full)  # 16 examples for each replica
last = gradient[-1], apply_step(model, batch, mean_loss)[-1]
print("the last weight: gradient {:.4f}, update {:.4f}".format(*last))

# %% [markdown]
# That is `tf.reduce_mean` on each replica, and the last weight moved four times too far. To compare all weights at once we need two numbers. The *ratio* is the factor for which ratio · gradient comes closest to the update. The *residual* is the length of what is left over, relative to the gradient. If it is 0, the direction is right and only the length can be wrong. If not, the update is *turned*, and no learning rate fixes that.

# %%
measured = {}  # {(topic, way): (ratio, residual)}


def compare(topic, way, update, gradient):
    """Print and keep the ratio of `update` to `gradient`, and the residual."""
    ratio = update @ gradient / (gradient @ gradient)
    residual = np.linalg.norm(update - ratio * gradient) / np.linalg.norm(gradient)
    measured[topic, way] = (float(ratio), float(residual))
    turned = f"turned, residual {residual:.2f}" if residual > 1e-9 else "same direction"
    print(f"{way:<38} ×{ratio:<7.4g} {turned}")


def measure(topic, losses, model, batch, gradient):
    """Compare the update that each of `losses`, {way: loss}, makes on the replicas."""
    for way, loss in losses.items():
        compare(topic, way, apply_step(model, batch, loss), gradient)


# %% [markdown]
# ## Six ways to scale, and two are right
#
# **Predict.** The global batch is 64, each replica holds 16. With `reduction="none"` a replica's loss is not one number but a list of its 16 losses. How many times the single-device gradient is applied?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Times the single-device gradient", 0, 128, "x")
my_guess

# %%
from distlab.exercises.predict import show_guess
from distlab.lessons.scaled_updates import draw_updates

average = tf.nn.compute_average_loss
keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def share_of_mean(y, z):
    return average(per_example(y, z), global_batch_size=64)


def times_four(y, z):
    return 4 * share_of_mean(y, z)


ways = {
    "tf.reduce_mean": mean_loss,
    "Keras's loss object": keras_loss,
    "Keras's loss object / replicas": lambda y, z: keras_loss(y, z) / 4,
    "compute_average_loss(64)": share_of_mean,
    "tf.reduce_sum": lambda y, z: tf.reduce_sum(per_example(y, z)),
    'reduction="none"': per_example,
}
measure("full batch", ways, model, batch, gradient)
show_guess(my_guess, round(measured["full batch", 'reduction="none"'][0], 6), unit="×")
arrows = {way: update for (_, way), update in measured.items()}
figures.show(draw_updates(arrows, title="The update (thick) and the gradient (thin)"))

# %% [markdown]
# All point in the right direction; only the lengths differ. A list of losses counts as its sum. Two ways apply the gradient itself: the sum divided by the *global* batch size, and Keras's loss object as it comes.
#
# Keras's object averages over the replica's 16, just as `tf.reduce_mean` does, yet it gives ×1 and not ×4. Inside a strategy, Keras 3 divides by the number of replicas once more, without being asked. If you then divide by 4 yourself, your step is four times too short.
#
# It does so in the scope even outside `run`, where there's nothing to add up. That bites when you evaluate by hand: in the scope, the same object returns a quarter of a batch's mean loss.
#
# ### Does the length matter?
#
# With SGD, a loss four times too large is the same as a learning rate four times too large. So each row below multiplies the loss by 4 and divides the rate by 4, and compares the update with the correct loss's update. Adam, which divides by the size of its gradients, keeps its rate.


# %%
for way, (make, rate, rate_for_four) in {
    "SGD, rate / 4": (keras.optimizers.SGD, 1.0, 0.25),
    "SGD, weight decay, rate / 4": (decayed, 1.0, 0.25),
    "Adam, same rate": (keras.optimizers.Adam, 0.001, 0.001),
}.items():
    right = apply_step(model, batch, share_of_mean, functools.partial(make, rate))
    wrong = apply_step(model, batch, times_four, functools.partial(make, rate_for_four))
    compare("loss × 4", way, wrong, right)

# %% [markdown]
# SGD alone shows no difference. With Adam the length is within one per cent, and the small residual comes from its epsilon, which weighs more against tiny gradients. So a wrong scale stays hidden for long. But whatever doesn't scale with the gradient, here the weight decay, is now four times too weak, and the update is turned.
#
# ## Sample weights
#
# With weights there are two means, and both are legitimate. You can divide the weighted sum by the number of examples, or by the sum of the weights. Each way below is compared with both. The weights are whole numbers from 1 to 5.

# %%
weights = np.random.default_rng(0).integers(1, 6, 64).astype("float64")
print(f"mean of the weights: {weights.mean():.4g}")
print("their sum on each replica:", weights.reshape(4, 16).sum(axis=1).astype(int).tolist())
weighted_batch = distribute(*full, weights)[0]
by_examples = gradient_of(
    one_device, *full, lambda y, z: tf.reduce_sum(weights * per_example(y, z)) / 64
)
by_weights = by_examples * 64 / weights.sum()


# %%
def over_all_weights(y, z, w):
    """Divide by the sum of the weights on all replicas."""
    total = tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(w))
    return tf.reduce_sum(per_example(y, z) * w) / total


weighted_mean = keras.losses.SparseCategoricalCrossentropy(
    from_logits=True, reduction="mean_with_sample_weight"
)
ways = {
    "compute_average_loss(64)": lambda y, z, w: average(per_example(y, z), w, 64),
    "Keras's loss object": keras_loss,
    '"mean_with_sample_weight"': weighted_mean,
    "sum of weights, all replicas": over_all_weights,
}
for mean, baseline in {"/ examples": by_examples, "/ weights": by_weights}.items():
    print("against the weighted sum", mean)
    measure(f"weighted sum {mean}", ways, model, weighted_batch, baseline)
average_weight = measured["weighted sum / weights", "compute_average_loss(64)"][0]
assert np.isclose(average_weight, weights.mean(), rtol=1e-12)

# %% [markdown]
# `compute_average_loss` and Keras's object divide by 64, whatever the weights are. They are exact for the first mean, and ×3.109 for the second, which is just the mean weight. With the first, doubling all weights doubles the step. With the second, only their ratios matter. If the weights of a batch average to 1, the two agree. The mistake is to want one and get the other.
#
# `"mean_with_sample_weight"` gives neither. It divides by the sum of each replica's own weights, so an example on a replica with small weights counts for more, and the update is turned. The last way adds up the weights of all replicas first, and is exact for the second mean.
#
# ## Regularization
#
# Each replica computes the same penalty from the same weights, and the four equal gradients are added up.
#
# **Your turn.** What should each of the four add to its loss, of 16 examples in a batch of 64, so that the penalty counts once?


# %%
def own_part(penalty):
    return ...


# %%
own_part = turns.PENALTY.take(own_part)
one = build_mlp(dtype="float64", hidden_units=16)
with strategy.scope():
    regularized = build_mlp(dtype="float64", hidden_units=16)
for each in (one, regularized):
    each.layers[1].kernel.regularizer = keras.regularizers.L2(0.01)
data_part = gradient_of(one, *full)
penalty = gradient_of(one, *full, lambda y, z: mean_loss(y, z) + one.losses[0]) - data_part


# %% [markdown]
# TensorFlow has a function for it, `tf.nn.scale_regularization_loss`. The data loss is scaled correctly here. We subtract its contribution from the update and compare the remainder with the penalty's gradient.


# %%
def with_penalty(scale):
    return lambda y, z: share_of_mean(y, z) + scale(tf.add_n(regularized.losses))


ways = {"added as it is": tf.identity, "scale_regularization_loss": tf.nn.scale_regularization_loss}
ways["your part"] = own_part
for way, scale in ways.items():
    update = apply_step(regularized, batch, with_penalty(scale))
    compare("penalty", way, update - data_part, penalty)

# %% [markdown]
# Added unscaled, the penalty counts once for each replica. Move the same program from 1 to 4 replicas and it regularizes four times as much. In a custom loop nobody scales `model.losses` for you. `fit` does, as we measure further down.
#
# ## The last batch
#
# 66 examples in batches of 32 leave 2 for the last batch, so the replicas get 1, 1, 0 and 0. `compute_average_loss` with `global_batch_size=32` is right for the full batches. Here we want the mean of those 2.

# %%
last_batch = distribute(images, labels, batch_size=32)[-1]
last_gradient = gradient_of(one_device, images[64:], labels[64:])
own = strategy.run(lambda x, y: mean_loss(y, model(x)), args=last_batch)


def over_real_count(y, z):  # divides by the number of examples that all replicas hold
    count = tf.distribute.get_replica_context().all_reduce("SUM", tf.size(y))
    return average(per_example(y, z), global_batch_size=count)


# %%
ways = {"tf.reduce_mean": mean_loss, "Keras's loss object": keras_loss}
ways |= {
    "compute_average_loss()": lambda y, z: average(per_example(y, z)),
    "compute_average_loss(32)": lambda y, z: average(per_example(y, z), global_batch_size=32),
    "compute_average_loss(real count)": over_real_count,
}
measure("last batch", ways, model, last_batch, last_gradient)
print("the loss that tf.reduce_mean reports:", strategy.reduce("SUM", own, axis=None).numpy())

# %% [markdown]
# `tf.reduce_mean` now gives ×2, since two replicas have something to add. Keras's object, and `compute_average_loss` without a size, assume that all four replicas hold this replica's number of examples, and divide by 4 where 2 is right. The constant 32 gives 2/32. The real count is exact.
#
# An empty replica has one more effect. The mean of nothing is not a number. Here its gradient is empty and does no harm, but the loss that you report is nan.
#
# ## One loss for each pixel
#
# In segmentation the loss has a value for each pixel, [batch, height, width]. Our target is the garment itself: pixels brighter than a half. `compute_average_loss` sums over *everything* and divides by the batch size alone.

# %%
with strategy.scope():
    segmenter = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Conv2D(1, 1)])
one = keras.models.clone_model(segmenter)
one.set_weights(segmenter.get_weights())
masks = (images[:64] > 0.5).astype("float64")  # [64, 28, 28, 1]
per_pixel = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")
pixel_gradient = gradient_of(one, images[:64], masks, lambda y, z: tf.reduce_mean(per_pixel(y, z)))

over_64 = functools.partial(average, global_batch_size=64)
ways = {
    "compute_average_loss(64)": lambda y, z: over_64(per_pixel(y, z)),
    "mean of each image first": lambda y, z: over_64(tf.reduce_mean(per_pixel(y, z), [1, 2])),
    "Keras's loss object": keras.losses.BinaryCrossentropy(from_logits=True),
}
measure("pixels", ways, segmenter, distribute(images[:64], masks)[0], pixel_gradient)

# %% [markdown]
# 784 is 28 · 28: every image counts 784 times. Average over the pixels first. Keras's object does so automatically.
#
# ## Batch normalization
#
# The correct scale isn't enough if a layer looks across the batch. `BatchNormalization` uses the mean and variance of *its replica's* 16 examples, and no factor fixes that. `synchronized=True` adds up the sums over the replicas first (SyncBatchNorm).


# %%
def normalize(synchronized):
    """Return the MLP with a normalization after its hidden layer, the same weights each time."""
    flat, hidden, last = build_mlp(dtype="float64", hidden_units=32).layers
    layer = keras.layers.BatchNormalization(synchronized=synchronized)
    return keras.Sequential([keras.Input((28, 28, 1)), flat, hidden, layer, last])


norm_gradient = gradient_of(normalize(False), *full)
with strategy.scope():
    normalized = {"as it is": normalize(False), "synchronized=True": normalize(True)}
for way, each in normalized.items():
    compare("batch norm", way, apply_step(each, batch, share_of_mean), norm_gradient)

# %%
for way, each in normalized.items():
    nans = int(np.isnan(apply_step(each, last_batch, over_real_count)).sum())
    strategy.run(each, args=batch[:1], kwargs={"training": True})
    moving_mean = each.layers[2].moving_mean.value
    copies = [copy.numpy() for copy in strategy.experimental_local_results(moving_mean)]
    same = np.allclose(copies, copies[0])
    print(f"{way}: {nans} nan after the last batch; moving means equal: {same}")
    assert np.array_equal(each.get_weights()[4], copies[0])  # what is saved is the first one's

# %% [markdown]
# As it is, the layer has three faults here. The update is turned. A batch with empty replicas turns 32 weights into nan, one for each unit. And the moving statistics, which inference uses, drift apart: nothing in Keras 3 averages them, and what is saved is the first replica's, which saw a quarter of the data. With `synchronized=True` all three are gone.
#
# ## Clipping
#
# Clipping by norm shortens a gradient that is longer than a limit to that limit. Clipping each replica's part before the sum is something else: four parts, each within the limit, can add up to four times the limit. Our limit is a tenth of the gradient's length. So the right update is a tenth of the gradient, and the ratios are relative to that.
#
# In the first two rows the optimizer clips. The other two compute the sum in the step and clip by *its* length: one passes on the clipped sum, the other each replica's own part times one factor.

# %%
limit = np.linalg.norm(gradient) / 10


def clip_sum(gradients):
    """Return the clipped sum over all replicas."""
    total = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
    return tf.clip_by_global_norm(total, limit)[0]


def clip_by_sum(gradients):
    """Return this replica's gradients times the factor that clips the sum."""
    total = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
    return [g * tf.minimum(1.0, limit / tf.linalg.global_norm(total)) for g in gradients]


keras_two_sgd = tf_keras.optimizers.SGD
for way, options in {
    "SGD(global_clipnorm)": {"make_optimizer": lambda: make_sgd(global_clipnorm=limit)},
    "the same in Keras 2": {"make_optimizer": lambda: keras_two_sgd(1.0, global_clipnorm=limit)},
    "clip the sum, pass it on": {"edit_gradients": clip_sum},
    "own part × the sum's factor": {"edit_gradients": clip_by_sum},
}.items():
    compare("clipping", way, apply_step(model, batch, share_of_mean, **options), gradient / 10)

# %% [markdown]
# Keras 3 clips each replica's part before the parts are added. The sum is too long, and it is turned, since the longer parts lost more. Keras 2 clipped after the reduction. So a recipe changes its meaning between the two, without an error.
#
# Passing the clipped sum is no better: `apply_gradients` adds up four equal copies of it. Pass parts that still add up instead: each replica's own gradients, times one common factor.
#
# ## The mistake: an old tutorial's loss in `fit`
#
# You will find code that passes `reduction="none"` or `"sum"` as soon as there is a strategy. That advice was for custom loops.
#
# **Predict.** You saw what `"none"` does in your own loop. Does `fit` protect you? It gets `SparseCategoricalCrossentropy(reduction="none")` and batches of 64 over four replicas, and doesn't complain. How many times is the gradient applied?

# %%
my_guess = guess_number("Times the single-device gradient", 0, 128, "x")
my_guess


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
    compare("fit", f'reduction="{reduction}"', update, gradient)
    print(f"  fit logs {logged / true_loss:.4g} times the mean loss")
compare("fit", "penalty", fit_once(regularized, keras_loss)[0] - data_part, penalty)
show_guess(my_guess, round(measured["fit", 'reduction="none"'][0], 6), unit="×")

keras_two_loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
try:
    strategy.run(lambda x, y: keras_two_loss(y, model(x)), args=batch)
except ValueError as error:
    print(error)

# %% [markdown]
# `"none"` and `"sum"` apply 64 times the gradient, and the logged loss is the only hint. The fix: leave the reduction alone. `"sum_over_batch_size"` is the default, and `fit` scales the penalty too.
#
# The last line shows where the old advice comes from. In a custom loop Keras 2's loss object refuses to run and tells you to write `SUM` or `NONE`, except for `fit`. People copied the rule and dropped the exception. Keras 3's object runs in a custom loop and scales itself, as measured above.
#
# ## Every mistake in one picture
#
# The picture has every measured update that isn't what it should be, as a thick arrow over the thin one that it should be. Orange arrows are turned, and no learning rate undoes that. Blue ones have the correct direction and a wrong length. Another rate undoes it if the arrow is the whole update, and the same in every step. Three kinds of blue arrows aren't. The penalty's is the penalty alone: the whole update with a fourfold penalty is turned. (Its residual depends on the weights. In two runs it was 0.27 and 0.14.) The factor between the two weighted means is the mean weight of a batch, which changes from batch to batch. And after the last batch come full ones, which need no correction: no single rate fits both.


# %% tags=["nbval-ignore-output"]
wrong = {}  # {topic and way: (ratio, residual)}, without what is right
for (topic, way), found in measured.items():
    if not np.allclose(found, (1, 0), rtol=0, atol=1e-9):
        wrong[f"{topic}: {way}"] = found
wrong = dict(sorted(wrong.items(), key=lambda item: item[1]))  # the shortest step first
figures.show(draw_updates(wrong, title="Update (thick) and what it should be (thin)"))

# %% [markdown]
# ## Back to the arrow
#
# Keras's loss object put the red arrow onto the black one at the top. Now the last batch has come: 10 examples instead of 64, so the replicas hold 3, 3, 3 and 1. **Which ways are still exact, which make the step too short, and which turn it?** Say it before you choose each of them.

# %%
update_arrow("Keras's loss object", examples=10)

# %% [markdown]
# Only the real count is exact. The written size, 64, makes the step too short, in the correct direction. Keras's object divides by each replica's own examples, so the example that is alone on its replica counts three times as much as any other, and the arrow is turned.
#
# ## The same through `utils`
#
# `utils.training.train` weights each example with 1 / (real examples in its global batch) and adds up: the real count again. Here is one epoch of 66 examples in batches of 32, by hand and through `train`, from the same weights and in the same order:

# %%
from utils.data.batches import epoch_order
from utils.training import train

job = {"global_batch_size": 32, "max_examples": 66, "epochs": 1, "seed": 0, "model": "mlp"}
job |= {"dtype": "float64", "optimizer": "sgd", "learning_rate": 0.1}
report = train(strategy="mirrored", replicas=4, **job)
order = epoch_order(66, seed=0, epoch=0)
make_slow = functools.partial(keras.optimizers.SGD, 0.1)
for name, loss in {"real count": over_real_count, "Keras's loss object": keras_loss}.items():
    with strategy.scope():
        by_hand = build_mlp(seed=0, dtype="float64")
    for parts in distribute(images[order], labels[order], batch_size=32):
        take_step(by_hand, parts, loss, make_slow)
    pairs = zip(by_hand.get_weights(), report.weights)
    same = all(np.allclose(mine, theirs, rtol=0, atol=1e-12) for mine, theirs in pairs)
    print(f"{name}: the same weights as train: {same}")
    assert same == (name == "real count")

# %% [markdown]
# ## What it costs
#
# Scaling itself is a single division. The cost, if any, is finding the right divisor: replicas may have to ask each other for it. Everything they send each other passes through the strategy's cross-device operations, so we plug in one that counts.


# %%
from utils.measure import array_bytes


class CountingReduction(tf.distribute.ReductionToOneDevice):
    sizes = ()  # bytes that one replica contributes, for each tensor reduced

    def reduce_implementation(self, reduce_op, per_replica_value, destinations, options):
        self.sizes += (array_bytes(per_replica_value.values[:1]),)
        return super().reduce_implementation(reduce_op, per_replica_value, destinations, options)


counting = CountingReduction()
strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=counting)
with strategy.scope():
    model, plain, synchronized = build_mlp(dtype="float64"), normalize(False), normalize(True)
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
    costs[name] = sum(counting.sizes)
    print(f"{name:<26}{len(counting.sizes):>3} tensors {costs[name]:>10,} bytes")
assert costs["sum of weights"] == costs["constant 64"] + 8
assert costs["clipped by the sum"] == 2 * costs["constant 64"]

# %% [markdown]
# The sum of the weights, like the real count, is one number next to all the gradients. Clipping by the sum reduces every gradient twice. Synchronized normalization adds few bytes but several small reductions, and each must end before the layer can continue. On a network that waiting is the cost.
#
# ## Recap
#
# - Dividing by the global batch gave ×1; each replica's own mean gave ×4.
# - The residual separated wrong directions from wrong lengths.
# - Weights, uneven batches, pixels and a penalty each have their own divisor.
# - Clipping each part before the sum turned the update; one common factor didn't.
# - `fit` with `reduction="none"` applied 64 times the gradient; its default applied it once.
#
# ## Cheat sheet
#
# ```python
# def replica_loss(labels, logits):  # called through strategy.run; loss_object: reduction="none"
#     losses = loss_object(labels, logits)  # [per_replica_batch, ...]
#     losses = tf.reduce_mean(losses, axis=list(range(1, losses.shape.rank)))  # over pixels, if any
#     count = tf.distribute.get_replica_context().all_reduce("SUM", tf.size(losses))
#     loss = tf.nn.compute_average_loss(losses, global_batch_size=count)
#     return loss + tf.nn.scale_regularization_loss(tf.add_n(model.losses))  # if it has any
#
# # fit: leave the reduction alone. Across the batch: BatchNormalization(synchronized=True).
# # Weights: divide by their sum on all replicas, or by all examples: two different means.
# # Clip by the length of the summed gradient.
# ```
#
# A whole program with the division in its place: [mirrored_custom_loop.py](../examples/mirrored_custom_loop.py). With half precision, where the loss is scaled too: [mixed_precision.py](../examples/mixed_precision.py).
#
# ## On a real GPU
#
# `distlab train --strategy mirrored --device gpu --max-examples 1000 --seed 0` divides by the real count, on all GPUs.
# Look at the loss after the last epoch, with `--replicas 1` and without.
# They should agree but for rounding: the divisor is the same.
#
# ## Further reading
#
# - TensorFlow's tutorial [Custom training with tf.distribute.Strategy](https://www.tensorflow.org/tutorials/distribute/custom_training), the part on the loss function
# - API page [tf.nn.compute_average_loss](https://www.tensorflow.org/api_docs/python/tf/nn/compute_average_loss)
# - API page [tf.nn.scale_regularization_loss](https://www.tensorflow.org/api_docs/python/tf/nn/scale_regularization_loss)
# - Keras, [losses](https://keras.io/api/losses/) and [BatchNormalization](https://keras.io/api/layers/normalization_layers/batch_normalization/): the arguments `reduction` and `synchronized`
# - Goyal and others, [Accurate, Large Minibatch SGD](https://arxiv.org/abs/1706.02677), sections 2.3 (normalization statistics per worker) and 3 (weight decay, momentum, dividing by the total batch)
# - Pascanu, Mikolov and Bengio, [On the difficulty of training recurrent neural networks](https://arxiv.org/abs/1211.5063): clipping by norm
#
# ## The lab
#
# You practice this in [lab 05, loss scaling](../labs/lab05-loss-scaling.ipynb): three losses and a clipping rule to fix, graded by the same ratio, and bugs to name from a ratio and a residual.
