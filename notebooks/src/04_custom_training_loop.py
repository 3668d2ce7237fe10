# %% [markdown] shows="The same by hand on Fashion-MNIST, with the same result as `fit`"
# # The training loop by hand
#
# Sooner or later `fit` is in your way: two models that train each other, a penalty on the gradient, an update every fourth batch. If only the step is different, override `train_step` of your model: `fit` keeps its callbacks, and a strategy works with it (we tried a gradient penalty under `MirroredStrategy`). For the rest you write the loop yourself, and on four replicas one wrong divisor changes every step without an error. In this lesson you write that loop on Fashion-MNIST, with metrics and checkpoints, and get the weights of `fit` to twelve decimal places.
#
# **Time:** 70 minutes · **Prerequisites:** [Keras on four replicas](03-mirrored-keras.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Write the training step of one replica and run it on all of them with `strategy.run`.
# - Reduce the replicas' losses to one number, and explain why a metric needs no reduce.
# - Save a checkpoint every second epoch, restore it without a strategy, and check that it scores the same.
# - Compare a Python loop with loops inside a `tf.function`.
# - Provoke the two errors that you are likely to hit first in Keras 3, and build an optimizer's variables in time.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
devices = use_logical_devices(4)
print(devices)

# %%
import re
import tempfile
from pathlib import Path

import numpy as np

# %% [markdown]
# ## One step, as a picture
#
# Five things happen in a step, and you'll write each of them once: the batch is split, each replica computes, gradients are added up, every replica makes the same update to its own copy, and each counts into its own metrics.

# %%
from distlab import figures
from distlab.lessons.training_step import draw_training_step

figures.show(draw_training_step(replicas=4, global_batch_size=128))

# %% [markdown]
# ## The data, split over the replicas
#
# Fashion-MNIST again: clothes in ten classes.

# %%
from utils.data import load

fashion = load("fashion_mnist")
print(fashion)
names = [fashion.class_names[label] for label in fashion.train.labels[:10]]
title = "The first ten training examples"
figures.show(figures.images(fashion.train.images[:10], names, title=title, columns=5))

# %% [markdown]
# `experimental_distribute_dataset` wraps a dataset of *global* batches. Out of it come `PerReplica` values: one piece for each replica, each on its own device.
#
# 2,000 test examples, arrays in memory, in batches of 128 leave a last batch of 80.

# %%
global_batch_size = 128
reduction = tf.distribute.ReductionToOneDevice()  # on CPUs; GPUs use NCCL by default
strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def as_dataset(split, examples):
    """Return the first examples of `split`, image [28, 28, 1] in [0, 1] by image."""
    images = split.images[:examples, ..., None] / np.float32(255)
    return tf.data.Dataset.from_tensor_slices((images, split.labels[:examples]))


uneven = strategy.experimental_distribute_dataset(as_dataset(fashion.test, 2000).batch(128))
pieces = [strategy.experimental_local_results(images) for images, _ in uneven]
for number in (0, len(pieces) - 1):
    print(f"batch {number:>2}:", [(part.device[-5:], part.shape[0]) for part in pieces[number]])

# %% [markdown]
# From files it would be 32, 32, 16 and 0 ([lesson 03](03-mirrored-keras.ipynb)). We avoid that: 3,840 training examples are thirty full batches, and batches of 200 divide the 2,000 test examples. So `drop_remainder=True` makes all shapes static and drops nothing.

# %%
shuffled = as_dataset(fashion.train, 3840).shuffle(3840, seed=0)
train_batches = strategy.experimental_distribute_dataset(
    shuffled.batch(global_batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
)
test_batches = strategy.experimental_distribute_dataset(
    as_dataset(fashion.test, 2000).batch(200, drop_remainder=True)
)
print(type(train_batches).__name__, "·", type(next(iter(train_batches))[0]).__name__)

# %% [markdown]
# ## Model, optimizer and metrics, in the scope
#
# Everything that has variables is made in the scope. `optimizer.build` makes the optimizer's variables now. Left to the first step, they would be made inside a traced function, which is one of the mistakes below.


# %%
def make_cnn():
    layers = [keras.Input((28, 28, 1)), keras.layers.Conv2D(32, 3, strides=2, activation="relu")]
    layers += [keras.layers.Flatten(), keras.layers.Dense(10)]
    return keras.Sequential(layers)  # images [batch, 28, 28, 1] -> logits [batch, 10]


with strategy.scope():
    model = make_cnn()
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    train_accuracy = keras.metrics.SparseCategoricalAccuracy()
    test_loss = keras.metrics.Mean()
    test_accuracy = keras.metrics.SparseCategoricalAccuracy()
print([type(v.value).__name__ for v in (model.weights[0], test_accuracy.count)])

# %% [markdown]
# There are two kinds of variable. A `MirroredVariable` has equal copies. A `SyncOnReadVariable` has a separate copy on each replica, and the copies are added up only when you read it: no communication during the step.
#
# ## The step of one replica
#
# It is the single-device step with one number changed: the losses are divided by the **global** batch size. The optimizer adds up the replicas' gradients, so each replica contributes its part of the mean.


# %%
def make_train_replica(model, optimizer, accuracy, global_batch_size):
    """Return the training step of one replica: its examples in, its share of the loss out."""

    def train_replica(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)  # [per_replica_batch, 10]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        accuracy.update_state(labels, logits)
        return loss

    return train_replica


train_replica = make_train_replica(model, optimizer, train_accuracy, global_batch_size)

# %% [markdown]
# `strategy.run` calls it once on each replica. Before we let it train, we compute the same loss on one device, to compare with.
#
# **Predict.** 128 examples went through four replicas. What does replica 0's copy of the metric's `count` hold, and what do you get when you read `count`? Guess the first.

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Count on replica 0", 0, 128)
my_guess

# %%
from distlab.exercises.predict import show_guess

batch = next(iter(train_batches))  # (images, labels), each a PerReplica
images, labels = (strategy.gather(part, axis=0) for part in batch)  # [128, ...] on one device
one_device = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))  # [128]
loss = strategy.reduce("SUM", strategy.run(train_replica, args=batch), axis=None)
np.testing.assert_allclose(loss, tf.reduce_mean(one_device), rtol=1e-5)
counts = [int(c) for c in strategy.experimental_local_results(train_accuracy.count.value)]
print("count on each replica:", counts, "· read:", int(train_accuracy.count.numpy()))
show_guess(my_guess, counts[0])

# %% [markdown]
# The four losses add up to the mean over the 128 examples, as the assertion checks: parts of a mean are reduced with `SUM`. The metric needs no reduce. Each replica counted its own 32, and reading adds them up. (If you said 128, that's what a read gives.)
#
# ## The step of all, compiled
#
# A `tf.function` around `run` and `reduce` traces all replicas into one graph. The test step leaves out the tape and the update, and returns how many examples it saw.


# %%
def make_test_replica(model, loss, accuracy):
    """Return the test step of one replica: its examples in, their number out."""

    def test_replica(images, labels):
        logits = model(images, training=False)  # [per_replica_batch, 10]
        loss.update_state(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        accuracy.update_state(labels, logits)
        return tf.size(labels)

    return test_replica


def compile_step(strategy, replica_step):
    """Return a compiled step: a global batch in, the sum of what the replicas return out."""

    @tf.function
    def step(images, labels):
        return strategy.reduce("SUM", strategy.run(replica_step, args=(images, labels)), axis=None)

    return step


# %%
train_step = compile_step(strategy, train_replica)
test_step = compile_step(strategy, make_test_replica(model, test_loss, test_accuracy))


def evaluate(test_step, batches, *metrics):
    """Return the number of examples in `batches`, and each metric over all of them."""
    for metric in metrics:
        metric.reset_state()
    examples = sum(int(test_step(*batch)) for batch in batches)
    return examples, *(float(metric.result()) for metric in metrics)


def predict(model, images):
    """Return class probabilities [n, 10] of uint8 `images` [n, 28, 28]."""
    return tf.nn.softmax(model(images[..., None] / np.float32(255))).numpy()


examples, *_ = evaluate(test_step, test_batches, test_loss, test_accuracy)
before = predict(model, fashion.test.images[:200])
print("test examples seen by all replicas together:", examples)

# %% [markdown]
# ## The loop, with a checkpoint every second epoch
#
# A `Checkpoint` names everything that belongs to the state of the run: the model, the optimizer with its moments and step counter, and the number of epochs done. The manager numbers its files and keeps the newest two.
#
# **Your turn.** When do you save? Write the condition for a run of any length: after every second epoch, and after the last one. Epochs are counted from 1 here.


# %%
def should_save(epoch, epochs):
    return ...


# %%
from distlab.turns import lesson04 as turns

should_save = turns.SAVE.take(should_save)
for epochs in (4, 5):
    print(f"of {epochs} epochs:", [e for e in range(1, epochs + 1) if should_save(e, epochs)])

# %%
from utils.measure import Stopwatch

run_folder = tempfile.TemporaryDirectory()  # removed at the end of the lesson
epochs_done = tf.Variable(0)
state = {"model": model, "optimizer": optimizer, "epochs": epochs_done}
manager = tf.train.CheckpointManager(tf.train.Checkpoint(**state), run_folder.name, max_to_keep=2)
record = {"training": [], "test": []}  # accuracy of each epoch
epoch_seconds, saving_seconds = [], []
for epoch in range(1, 5):
    train_accuracy.reset_state()
    with Stopwatch() as watch:
        losses = [train_step(*batch) for batch in train_batches]
        mean_loss = float(tf.add_n(losses)) / len(losses)
    epoch_seconds.append(watch.seconds)
    _, _, accuracy = evaluate(test_step, test_batches, test_loss, test_accuracy)
    record["training"].append(float(train_accuracy.result()))
    record["test"].append(accuracy)
    epochs_done.assign(epoch)
    if epoch % 2 == 0:
        with Stopwatch() as watch:
            print(f"epoch {epoch}: saved", Path(manager.save()).name)
        saving_seconds.append(watch.seconds)

# %% tags=["nbval-ignore-output"]
curves = {name: (range(1, 5), values) for name, values in record.items()}
marks = {f"ckpt-{k}": (2 * k, record["test"][2 * k - 1]) for k in (1, 2)}
words = {"x_label": "epoch", "y_label": "accuracy", "title": "Accuracy, and where it was saved"}
figures.show(figures.lines(curves, marks=marks, **words))
print(f"loss of the last epoch {mean_loss:.3f}, test accuracy {accuracy:.3f}")
assert np.isfinite(mean_loss) and accuracy > 0.7
assert record["training"][-1] > record["training"][0]

# %% [markdown]
# The training curve is a mean over an epoch while the model kept changing. The test curve is measured after it. Which pictures does the model get wrong? Here are the first six. Run the cell below them to go through 200 images, from the surest right answer to the surest wrong one. The true class is in bold, and a wrong answer is red. Does the model at least know when it doesn't know?

# %% tags=["nbval-ignore-output"]
after = predict(model, fashion.test.images[:200])
answers, truth = after.argmax(axis=1), fashion.test.labels[:200]
wrong = np.flatnonzero(answers != truth)
names = fashion.class_names
captions = [f"{names[truth[i]]}:\nsays {names[answers[i]]}" for i in wrong[:6]]
title = f"{len(wrong)} of 200 test images are misread; the first six"
figures.show(figures.images(fashion.test.images[wrong[:6]], captions, title=title, columns=6))
assert 0 < len(wrong) < 100

# %% tags=["nbval-ignore-output"]
from distlab.explorables.predictions import prediction_explorer

versions = {"before training": before, "after training": after}
prediction_explorer(fashion.test.images[:200], truth, names, versions, start=int(wrong[0]))

# %% [markdown]
# ## Restore without a strategy
#
# A checkpoint holds values, not devices. Here it goes into a plain model with different initial weights, made outside any scope, as on the machine that will serve it. It predicts in batches of 50, as each replica did.

# %%
plain, epochs_read = make_cnn(), tf.Variable(0)
status = tf.train.Checkpoint(model=plain, epochs=epochs_read).restore(manager.latest_checkpoint)
status.assert_existing_objects_matched().expect_partial()  # the optimizer is left in the file
pixels = fashion.test.images[..., None] / np.float32(255)
right = plain.predict(pixels, batch_size=50, verbose=0).argmax(axis=1) == fashion.test.labels
print("epochs in the checkpoint:", int(epochs_read), "·", type(plain.weights[0].value).__name__)
assert right.sum() == round(2000 * accuracy)

# %% [markdown]
# The assertion holds to the last example: the plain model gets exactly as many of the 2,000 right as the four replicas did.
#
# ## Who drives the loop?
#
# So far Python calls the compiled step once per batch. The loop can also run *inside* a `tf.function`, a chosen number of steps per call; Keras's `steps_per_execution` does that. (`steps` is a tensor: a Python number would make a new trace for each value.)
#
# With a small model and small batches, what surrounds the steps shows. All ways take their batches from one iterator over a dataset of 20 batches, repeated: making an iterator is slow, and would hide what we want to see. First we check that all train the same.

# %%
from utils.models import build_mlp

twenty = as_dataset(fashion.train, 20 * 64).batch(64, drop_remainder=True)
iterator = iter(strategy.experimental_distribute_dataset(twenty.repeat()))
with strategy.scope():
    small = build_mlp(seed=0)
    sgd = keras.optimizers.SGD(0.05)
    sgd.build(small.trainable_variables)
small_replica = make_train_replica(small, sgd, train_accuracy, 64)
small_step = compile_step(strategy, small_replica)
start = small.get_weights()


@tf.function
def several_steps(iterator, steps):
    for _ in tf.range(steps):
        strategy.run(small_replica, args=next(iterator))


def drive(steps_per_call):
    """Train 20 steps, on the twenty batches."""
    for _ in range(20 // steps_per_call):
        if steps_per_call == 1:
            small_step(*next(iterator))
        else:
            several_steps(iterator, tf.constant(steps_per_call))
    return sgd.iterations.numpy()  # waits for the last step


# %%
ends = []
for steps_per_call in (1, 5, 20):
    small.set_weights(start)
    drive(steps_per_call)
    ends.append(np.concatenate([np.ravel(w) for w in small.get_weights()]))
np.testing.assert_allclose(ends[1:], [ends[0]] * 2, atol=1e-6)
print("20 calls, 4 calls and 1 call: the same weights after 20 steps")

# %% [markdown]
# Where does the time of a call per step go? You might blame the call. We take it apart: fetching a batch for four replicas alone, which `next(iterator)` does outside the graph, and calling the step alone, on a batch that is there.

# %% tags=["nbval-ignore-output"]
from utils.measure import time_calls

one_batch = next(iterator)
ways = {
    "a call per step": lambda: drive(1),
    "only next(iterator)": lambda: [next(iterator) for _ in range(20)],
    "only the call": lambda: [float(small_step(*one_batch)) for _ in range(20)],
    "20 steps per call": lambda: drive(20),
}
milliseconds = {name: [] for name in ways}
for _ in range(5):  # in turn, so that other work on the machine slows all of them
    for name, way in ways.items():
        timing = time_calls(way, repeats=1, warm_up=0)
        milliseconds[name].append(1000 * timing.best_seconds / 20)
best = {name: min(values) for name, values in milliseconds.items()}
title = "Four logical replicas on this machine, best of five rounds"
figures.show(figures.bars(best, unit="ms a step", title=title))
assert int(sgd.iterations.numpy()) == 20 * 3 * (1 + 5)

# %% [markdown]
# The second and the third bar make up the first, more or less. When we looked at it on two quiet cores, a call per step took 4.6 to 5.6 ms, fetching alone 2.2 to 2.7 ms, the call alone 3.0 ms, and a step of 20 in one call 2.7 to 2.9 ms. So what you save is nearly all fetching. (And the call per step reduces its loss, which the loop doesn't.) It matters when steps are short, as here. With a large model it disappears in the step. [Lesson 12](12-input-pipelines.ipynb) is about fetching.
#
# The other side of the choice doesn't depend on the machine: between two calls your Python code can print, stop or save. During a call it can't. `utils.training` takes up to 32 steps per call, fewer if a checkpoint is due.
#
# **Your turn.** Your run prints its loss after every 10 steps and saves after every 25. All calls take equally many steps. How many can that be at most, if neither is to be missed?

# %%
most = ...

# %%
most = max(1, turns.STEPS.take(most))
due = [step for step in range(1, 101) if step % 10 == 0 or step % 25 == 0]
missed = [step for step in due if step % most]
print(f"{100 / most:g} calls for 100 steps; due in the middle of a call: {missed}")

# %% [markdown]
# ## The mistake: two errors of loops written for Keras 2
#
# Loops written for Keras 2 call `reset_states()` between epochs. Keras 3 has dropped the plural.

# %% tags=["raises-exception"]
train_accuracy.reset_states()

# %% [markdown]
# The fix: drop the final *s*, as in `evaluate` above.
#
# The second one hides: an optimizer that makes its variables in the first step. On one device that works, and on four replicas with `ReductionToOneDevice` too, so the program looks right. With collectives, which `MirroredStrategy` chooses by default here, it fails.


# %%
def try_first_step(strategy, dataset, build):
    """Return what the first compiled step with a new Adam says, its variables built or not."""
    layers = [keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)]
    with strategy.scope():
        model, adam = keras.Sequential(layers), keras.optimizers.Adam()
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        if build:
            adam.build(model.trainable_variables)
    step = compile_step(strategy, make_train_replica(model, adam, accuracy, 64))
    batch = next(iter(strategy.experimental_distribute_dataset(dataset)))
    try:
        return "trains" if np.isfinite(step(*batch)) else "loss is not finite"
    except tf.errors.InvalidArgumentError as error:
        return re.search(r"You must feed a value for placeholder tensor", str(error)).group()


few = as_dataset(fashion.train, 64).batch(64)
collectives = tf.distribute.MirroredStrategy(devices)  # the default reduction
says = {
    "one device, not built": try_first_step(tf.distribute.OneDeviceStrategy("CPU:0"), few, False),
    "four, ReductionToOneDevice, not built": try_first_step(strategy, few, False),
    "four, collectives, not built": try_first_step(collectives, few, False),
    "four, collectives, built": try_first_step(collectives, few, True),
}
for case, words in says.items():
    print(f"{case:<39}{words}")
assert says["four, collectives, not built"].startswith("You must feed")

# %% [markdown]
# The placeholder belongs to a variable that was to be made while the graph was being traced. Call `optimizer.build(model.trainable_variables)` in the scope before the first step, and there is no such variable. The program then no longer depends on how gradients are added.
#
# A third mistake raises nothing at all: leaving out `global_batch_size`. That is right only while all replicas hold equally many examples; [lesson 05](05-loss-scaling.ipynb) measures the rest.
#
# ## The same as fit, and through utils
#
# Here are our step, `fit`, and `utils.training.train` with either loop, on four replicas: float64 and plain SGD, 512 examples in the same order.

# %%
from utils.data.batches import epoch_order

order = epoch_order(512, seed=0, epoch=0)
x = fashion.train.images[order][..., None] / 255.0  # float64
ordered = tf.data.Dataset.from_tensor_slices((x, fashion.train.labels[order])).batch(64)


def new_model(strategy):
    with strategy.scope():
        model, sgd = build_mlp(seed=0, dtype="float64"), keras.optimizers.SGD(0.05)
        sgd.build(model.trainable_variables)
    return model, sgd


ours, sgd = new_model(strategy)
step = compile_step(strategy, make_train_replica(ours, sgd, train_accuracy, 64))
for batch in strategy.experimental_distribute_dataset(ordered):
    step(*batch)

fitted, sgd = new_model(strategy)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
fitted.compile(sgd, loss)
history = fitted.fit(ordered, verbose=0, shuffle=False)

# %%
from utils.training import train

job = {"strategy": "mirrored", "replicas": 4, "dataset": "fashion_mnist", "model": "mlp"}
job |= {"max_examples": 512, "global_batch_size": 64, "epochs": 1}
job |= {"optimizer": "sgd", "dtype": "float64"}
others = {"fit": fitted.get_weights()}
for loop in ("custom", "fit"):
    others[f'train(loop="{loop}")'] = train(loop=loop, **job).weights
for name, weights in others.items():
    for mine, theirs in zip(ours.get_weights(), weights):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)
    print(f"{name:<20} the weights of our loop, to 1e-12")

# %% [markdown]
# ## What it costs

# %% tags=["nbval-ignore-output"]
from utils.measure import array_bytes, format_bytes, images_per_second

sent = array_bytes(model.trainable_variables)
saved = sum(p.stat().st_size for p in Path(run_folder.name).glob("ckpt-2*"))
rate = images_per_second(3840, min(epoch_seconds))
print(f"gradients of a replica {format_bytes(sent)} a step, checkpoint {format_bytes(saved)}")
print(f"saved in {min(saving_seconds):.2f} s; {rate:,.0f} images/s on four logical replicas")
assert 3 * sent < saved < 3.2 * sent and len(saving_seconds) == 2
run_folder.cleanup()  # nothing of this lesson stays on the disk

# %% [markdown]
# In every step each replica contributes as many bytes of gradients as the model has weights, whatever the batch. How many of them cross a network depends on the all-reduce, the subject of [lesson 06](06-all-reduce.ipynb). A checkpoint is three times as large, since Adam keeps two moments of every weight.
#
# ## Recap
#
# - One replica's step, run on all four, gave the loss of one device.
# - A part of the loss needs `SUM`; a metric adds up its copies when you read it.
# - A checkpoint from four replicas, restored into a plain model, scored the same.
# - A call per step and 20 steps per call gave the same weights, at different speeds.
# - `reset_state`, and `optimizer.build` in the scope, fix the two errors.
#
# ## Cheat sheet
#
# ```python
# def replica_step(images, labels):
#     with tf.GradientTape() as tape:
#         losses = loss_object(labels, model(images, training=True))  # reduction="none"
#         loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
#     gradients = tape.gradient(loss, model.trainable_variables)
#     optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # built in the scope
#     return loss
# @tf.function
# def step(images, labels):
#     return strategy.reduce("SUM", strategy.run(replica_step, args=(images, labels)), axis=None)
# ```
#
# You bring `model`, `optimizer`, `loss_object` and `global_batch_size`. A whole program, on one page: [mirrored_custom_loop.py](../examples/mirrored_custom_loop.py).
#
# ## On a real GPU
#
# `distlab train --strategy mirrored --device gpu` trains with such a loop on every GPU of the machine.
# While it runs, look at the GPU-Util of each GPU in `nvidia-smi`.
# If all of them stay low, fetching or calling takes the time, not computing.
#
# ## Further reading
#
# - TensorFlow's tutorial, [Custom training with tf.distribute.Strategy](https://www.tensorflow.org/tutorials/distribute/custom_training), and the guide, [Training checkpoints](https://www.tensorflow.org/guide/checkpoint)
# - Keras's guides, [Writing a training loop from scratch in TensorFlow](https://keras.io/guides/writing_a_custom_training_loop_in_tensorflow/) and [Customizing what happens in fit() with TensorFlow](https://keras.io/guides/custom_train_step_in_tensorflow/), on `train_step`
# - API: [Strategy.run](https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy#run), [Strategy.reduce](https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy#reduce), [tf.train.CheckpointManager](https://www.tensorflow.org/api_docs/python/tf/train/CheckpointManager)
# - The data: [Xiao, Rasul and Vollgraf, Fashion-MNIST](https://arxiv.org/abs/1708.07747), arXiv:1708.07747, 2017
#
# ## The lab
#
# You practice this in [lab 04, the custom training loop](../labs/lab04-custom-training-loop.ipynb).
