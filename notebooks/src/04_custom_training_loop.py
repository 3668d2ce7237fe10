# %% [markdown] shows="The same by hand on Fashion-MNIST, with the same result as `fit`"
# # The training loop by hand
#
# Sooner or later `fit` is in your way: two models that train each other, a loss made of gradients, an update every fourth batch. Then you write the loop yourself, and on four replicas one wrong divisor changes every step without an error. In this lesson you write that loop on Fashion-MNIST, with metrics and checkpoints, and get the weights of `fit` to twelve decimal places.
#
# **Time:** 50 minutes · **Builds on:** [Keras on four replicas](03-mirrored-keras.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Write the training step of one replica and run it on all of them with `strategy.run`.
# - Reduce the replicas' losses to one number, and explain why a metric needs no reduce.
# - Save a checkpoint every second epoch, restore it without a strategy, and check that it scores the same.
# - Compare a Python loop with loops inside a `tf.function`.
# - Fix the two errors that this loop meets first in Keras 3.

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
import warnings
from pathlib import Path

import numpy as np

from distlab import figures
from utils.data import load
from utils.data.batches import epoch_order
from distlab.exercises.predict import show_guess
from distlab.figures import Arrow, Box
from utils.measure import Stopwatch, array_bytes, format_bytes, images_per_second, time_calls
from utils.models import build_cnn, build_mlp
from utils.strategies import make_strategy
from utils.training import train
from distlab.widgets.predictions import prediction_explorer

# %% [markdown]
# ## One step, as a picture
#
# Five things happen in a step, and you will write each of them once: the batch is split, each replica computes, gradients are added up, every replica makes the same update, and each counts into its own copy of the metrics. The picture shows the first four; the fifth sends nothing.

# %%
xs = [0, 184, 368, 552]
boxes = {"batch": Box("global batch: 128 examples, cut in four", 0, 34, 720, 36, "data")}
for i, x in enumerate(xs):
    boxes[f"replica {i}"] = Box(f"replica {i}", x, 112, 168, 98)
    boxes[f"step {i}"] = Box("loss and gradients\nof 32 examples", x + 9, 146, 150, 54, "compute")
boxes["sum"] = Box("all-reduce: the sum of the four gradients", 0, 254, 720, 36, "reduce")
boxes["update"] = Box("every replica makes the same update", 0, 332, 720, 36, "variables")
arrows = [Arrow("batch", f"replica {i}", "32") for i in range(4)]
arrows += [Arrow(f"replica {i}", "sum", "gradients") for i in range(4)]
arrows.append(Arrow("sum", "update", "the sum, to all"))
alt = (
    "One training step from top to bottom: a global batch of 128 examples is cut into 32 for each "
    "of four replicas; each computes loss and gradients; an all-reduce adds the gradients; every "
    "replica makes the same update."
)
figures.show(figures.diagram(boxes, arrows, title="One step", alt=alt, height_px=376))

# %% [markdown]
# ## The data, split over the replicas
#
# The course's sample of Fashion-MNIST: real pictures of clothes in ten classes.

# %%
fashion = load("fashion_mnist")
print(fashion)
names = [fashion.class_names[label] for label in fashion.train.labels[:10]]
title = "The first ten training examples"
figures.show(figures.images(fashion.train.images[:10], names, title=title, columns=5))

# %% [markdown]
# `experimental_distribute_dataset` wraps a dataset of *global* batches. Out of it come `PerReplica` values: one piece for each replica, each on its own device.
#
# **Predict.** 2,000 test examples in batches of 128 leave a last batch of 80. How many of those examples does each of the four replicas get?

# %%
my_guess = None  # examples per replica

# %%
GLOBAL_BATCH = 128
reduction = tf.distribute.ReductionToOneDevice()  # on CPUs; GPUs use NCCL by default
strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def make_batches(split, batch, examples, **options):
    """Return batches of the first `examples` of `split`: images [batch, 28, 28, 1] in [0, 1]."""
    images = split.images[:examples, ..., None] / np.float32(255)
    dataset = tf.data.Dataset.from_tensor_slices((images, split.labels[:examples]))
    return dataset.batch(batch, **options)


uneven = strategy.experimental_distribute_dataset(make_batches(fashion.test, GLOBAL_BATCH, 2000))
pieces = [strategy.experimental_local_results(images) for images, _ in uneven]
for number in (0, len(pieces) - 1):
    print(f"batch {number:>2}:", [(part.device[-5:], part.shape[0]) for part in pieces[number]])
show_guess(my_guess, pieces[-1][0].shape[0], unit=" examples")

# %% [markdown]
# For training we take 3,840 examples, thirty full batches; [lesson 05](05-loss-scaling.ipynb) is about uneven ones. Test batches of 200 divide 2,000 evenly. So `drop_remainder=True` makes all shapes static and drops nothing.

# %%
full = {"drop_remainder": True}
shuffled = make_batches(fashion.train, 1, 3840).unbatch().shuffle(3840, seed=0)
train_batches = strategy.experimental_distribute_dataset(shuffled.batch(GLOBAL_BATCH, **full))
test_batches = strategy.experimental_distribute_dataset(
    make_batches(fashion.test, 200, 2000, **full)
)
print(type(train_batches).__name__, "·", type(next(iter(train_batches))[0]).__name__)

# %% [markdown]
# ## Model, optimizer and metrics, in the scope
#
# Everything that has variables is made in the scope. `optimizer.build` makes the optimizer's variables now. Left to the first step, they would be made inside a traced function, which is one of the mistakes below.

# %%
with strategy.scope():
    model = build_cnn(seed=0)
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


train_replica = make_train_replica(model, optimizer, train_accuracy, GLOBAL_BATCH)

# %% [markdown]
# `strategy.run` calls it once on each replica. Before we let it train, we compute the same loss on one device, to compare with.
#
# **Predict.** 128 examples went through four replicas. What does replica 0's copy of the metric's `count` hold, and what do you get when you read `count`? Guess the first.

# %%
my_guess = None  # the count on replica 0

# %%
batch = next(iter(train_batches))  # (images, labels), each a PerReplica
images, labels = (strategy.gather(part, axis=0) for part in batch)  # [128, ...] on one device
one_device = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))  # [128]
loss = strategy.reduce("SUM", strategy.run(train_replica, args=batch), axis=None)
np.testing.assert_allclose(loss, tf.reduce_mean(one_device), rtol=1e-5)
counts = [int(c) for c in strategy.experimental_local_results(train_accuracy.count.value)]
print("count on each replica:", counts, "· read:", int(train_accuracy.count.numpy()))
show_guess(my_guess, counts[0])

# %% [markdown]
# The four losses add up to the mean over the 128 examples, as the assertion checks: parts of a mean are reduced with `SUM`. The metric needs no reduce. Each replica counted its own 32, and reading adds them up.
#
# ## The step of all, compiled
#
# A `tf.function` around `run` and `reduce` traces all replicas into one graph. The test step leaves out the tape and the update, and returns how many examples it saw.


# %%
def make_test_replica(model, loss, accuracy):
    """Return the test step of one replica: its examples in, how many they were out."""

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

# %%
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
words = {"x_label": "epoch", "y_label": "accuracy", "title": "Accuracy; saved after 2 and 4"}
figures.show(figures.lines(curves, **words))
print(f"loss of the last epoch {mean_loss:.3f}, test accuracy {accuracy:.3f}")
assert np.isfinite(mean_loss) and accuracy > 0.7
assert record["training"][-1] > record["training"][0]

# %% [markdown]
# The training curve is a mean over an epoch in which the model kept changing; the test curve is measured after it. Which pictures does the model get wrong? Here are the first six. Below them, once you run the cell, you can browse 200 images before and after training: the true class is in bold, a wrong answer is vermillion and hatched.

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
versions = {"before training": before, "after training": after}
prediction_explorer(fashion.test.images[:200], truth, names, versions, start=int(wrong[0]))

# %% [markdown]
# ## Restore without a strategy
#
# A checkpoint holds values, not devices. Here it goes into a plain model with different initial weights, made outside any scope, as on the machine that will serve it. It predicts in batches of 50, as each replica did.

# %%
plain, epochs_read = build_cnn(seed=1), tf.Variable(0)
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
# So far Python calls the compiled step once per batch. The loop can also run *inside* a `tf.function`: either over the distributed dataset itself, a whole epoch in one call, or over an iterator, with a chosen number of steps per call. (`steps` is a tensor: a Python number would make a new trace for each value.)
#
# With a small model and small batches, what surrounds the steps shows. First we check that all ways train the same; then we time whole passes over 20 batches, each with a new iterator.

# %%
small_batches = strategy.experimental_distribute_dataset(
    make_batches(fashion.train, 64, 20 * 64, **full)
)
with strategy.scope():
    small = build_mlp(seed=0)
    sgd = keras.optimizers.SGD(0.05)
    sgd.build(small.trainable_variables)
small_replica = make_train_replica(small, sgd, train_accuracy, 64)
small_step = compile_step(strategy, small_replica)
start = small.get_weights()


def drive_from_python(strategy, step, batches):
    for images, labels in batches:
        step(images, labels)


def make_whole_epoch(strategy, replica_step, batches):
    @tf.function
    def whole_epoch():
        for images, labels in batches:
            strategy.run(replica_step, args=(images, labels))

    return whole_epoch


def make_several_steps(strategy, replica_step):
    @tf.function
    def several_steps(iterator, steps):
        for _ in tf.range(steps):
            strategy.run(replica_step, args=next(iterator))

    return several_steps


# %%
with warnings.catch_warnings(action="ignore"):  # of options that tracing cannot read
    whole_epoch = make_whole_epoch(strategy, small_replica, small_batches)
    whole_epoch()
several_steps = make_several_steps(strategy, small_replica)


def call_with(steps_per_call, steps=20):
    iterator = iter(small_batches)
    for _ in range(steps // steps_per_call):
        several_steps(iterator, tf.constant(steps_per_call))


ways = {
    "Python, a call per step": lambda: drive_from_python(strategy, small_step, small_batches),
    "iterator, 5 steps per call": lambda: call_with(5),
    "iterator, 20 steps per call": lambda: call_with(20),
    "dataset, an epoch per call": whole_epoch,
}
ends = []
for way in ways.values():
    small.set_weights(start)
    way()
    ends.append(small.get_weights())
for end in ends[1:]:
    for ours, theirs in zip(end, ends[0]):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
print(len(ways), "ways, 20 steps each, the same weights")

# %% [markdown]
# **Predict.** Which of the four passes is fastest on your machine?

# %%
my_guess = None  # one of the four names above

# %% tags=["nbval-ignore-output"]
milliseconds = {}
for name, way in ways.items():
    timing = time_calls(lambda: (way(), sgd.iterations.numpy()), repeats=2)  # after a warm-up
    milliseconds[name] = 1000 * timing.best_seconds / 20
title = "Four logical replicas on this machine, best of two"
figures.show(figures.bars(milliseconds, unit="ms a step", title=title))
show_guess(my_guess, min(milliseconds, key=milliseconds.get))
assert int(sgd.iterations.numpy()) == 20 * (1 + 4 + 4 * 3)

# %% [markdown]
# Read these bars with care. A new iterator can be expensive, and three of the four ways make theirs in Python, once per pass. Over only 20 steps, that can hide what fewer calls save, the point of Keras's `steps_per_execution`. In your own job, make the iterator once, over a repeated dataset, and time the steps alone.
#
# The other side of the choice doesn't depend on the machine: between two calls your Python code can print, stop or save; during a call it can't. `utils.training` takes up to 32 steps per call, fewer where a checkpoint is due.
#
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


few = make_batches(fashion.train, 64, 64, **full)
collectives = tf.distribute.MirroredStrategy(devices)  # the default reduction
says = {
    "one device, not built": try_first_step(make_strategy("one-device"), few, False),
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
drive_from_python(strategy, step, strategy.experimental_distribute_dataset(ordered))

fitted, sgd = new_model(strategy)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
fitted.compile(sgd, loss)
fitted.fit(ordered, verbose=0, shuffle=False)

job = {"strategy": "mirrored", "replicas": 4, "dataset": "fashion_mnist", "model": "mlp"}
job |= {"limit": 512, "global_batch_size": 64, "epochs": 1, "optimizer": "sgd", "dtype": "float64"}
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
# ## What you saw
#
# - One replica's step, run on all four, gave the loss of one device.
# - A part of the loss needs `SUM`; a metric adds up its copies when you read it.
# - A checkpoint from four replicas, restored into a plain model, scored the same.
# - Four ways to drive the loop gave the same weights; which is fastest, you measure.
# - `reset_state`, and `optimizer.build` in the scope, fix the two errors.
#
# ## Take-away card
#
# ```python
# def replica_step(images, labels):
#     with tf.GradientTape() as tape:
#         losses = loss_object(labels, model(images, training=True))  # reduction="none"
#         loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH)
#     gradients = tape.gradient(loss, model.trainable_variables)
#     optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # built in the scope
#     return loss
# @tf.function
# def step(images, labels):
#     return strategy.reduce("SUM", strategy.run(replica_step, args=(images, labels)), axis=None)
# ```
#
# You bring `model`, `optimizer`, `loss_object` and `GLOBAL_BATCH`. A whole program, on one page: [mirrored_custom_loop.py](../examples/mirrored_custom_loop.py).
#
# ## Where it is described
#
# - TensorFlow's tutorial, [Custom training with tf.distribute.Strategy](https://www.tensorflow.org/tutorials/distribute/custom_training), and the guide, [Training checkpoints](https://www.tensorflow.org/guide/checkpoint)
# - Keras's guide, [Writing a training loop from scratch in TensorFlow](https://keras.io/guides/writing_a_custom_training_loop_in_tensorflow/)
# - API: [Strategy.run](https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy#run), [Strategy.reduce](https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy#reduce), [tf.train.CheckpointManager](https://www.tensorflow.org/api_docs/python/tf/train/CheckpointManager)
# - The data: [Xiao, Rasul and Vollgraf, Fashion-MNIST](https://arxiv.org/abs/1708.07747), arXiv:1708.07747, 2017
#
# ## The lab
#
# You practise this in [lab 04, the custom training loop](../labs/lab04-custom-training-loop.ipynb).
