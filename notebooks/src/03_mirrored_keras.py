# %% [markdown] shows="MNIST with `fit`: callbacks, TensorBoard, checkpoints, export"
# # Keras on four replicas: MirroredStrategy with fit
#
# Moving a `fit` call from one device to four changes about three lines. A model made in the wrong place, or a batch that doesn't divide, can still spoil the run. In this lesson you train a digit classifier on MNIST as a real job would, with callbacks, a checkpoint and an export, and check whether the four copies of every variable drift apart.
#
# **Time:** 75 minutes · **Prerequisites:** [what a strategy does](02-strategy-api.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Build an input pipeline whose global batch is the per-replica batch times the number of replicas.
# - Compile a model in a strategy's scope and train it with TensorBoard, checkpoint and learning-rate callbacks.
# - Compare the replicas' copies of every variable after training.
# - Restore the best checkpoint, export the model, and load it with and without a scope.
# - Predict how the last batch of an epoch is split, and fix the runs that it breaks.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
    import tensorflow_datasets as tfds
from utils.devices import use_logical_devices

set_seeds(0)
devices = use_logical_devices(4)
print(devices)

# %%
import re
import tempfile
import time
from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# %% [markdown]
# ## MNIST, and what TFDS knows about it
#
# TFDS, TensorFlow Datasets, is a library of prepared data sets. Each has a *builder*, which carries a description of its data, `info`, next to the data itself. `make_tfds_folder` writes the course's sample of the real MNIST in TFDS's format (once, in a few seconds), so nothing is downloaded. With a network, `tfds.load("mnist", with_info=True)` gives you the full set.

# %%
from distlab import figures
from utils.data import make_tfds_folder

mnist = tfds.builder_from_directory(make_tfds_folder("mnist"))
print(mnist.info.full_name, mnist.info.supervised_keys)
print(mnist.info.features["image"], mnist.info.features["label"].num_classes, "classes")
print({name: split.num_examples for name, split in mnist.info.splits.items()})
first = list(mnist.as_dataset(split="train[:10]", as_supervised=True))
pictures = np.stack([image for image, _ in first])  # [10, 28, 28, 1]
digits = [int(label) for _, label in first]
figures.show(figures.images(pictures, digits, title="The first ten training examples"))

# %% [markdown]
# ## The strategy, and its batches
#
# `MirroredStrategy` keeps a copy of every variable on every device. In each step every replica computes gradients on its part of the *global* batch, an all-reduce adds them up, and all copies make the same update. So choose the per-replica batch size for one device, then multiply.
#
# (Your four devices are parts of one CPU. They do what four GPUs would do, just not faster. `ReductionToOneDevice` chooses how the gradients are added up; [lesson 07](07-what-a-step-sends.ipynb) compares the options. TensorFlow takes nearly all the memory of every real GPU that it sees. If you share yours, `CUDA_VISIBLE_DEVICES=0,1` in the environment hides all but those two, and `tf.config.experimental.set_memory_growth(gpu, True)`, called for each GPU before anything else, takes memory only as needed.)

# %%
reduction = tf.distribute.ReductionToOneDevice()  # on CPUs; GPUs use NCCL by default
strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
per_replica_batch_size = 32
global_batch_size = per_replica_batch_size * strategy.num_replicas_in_sync
print(strategy.num_replicas_in_sync, "replicas, global batch", global_batch_size)

# %% [markdown]
# ## Cache, shuffle, scale, batch
#
# The order matters: `cache` stores whatever comes before it.
#
# **Predict.** If `shuffle` stood before `cache`, how many different orders would three epochs see?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Different orders in three epochs", 0, 6)
my_guess


# %%
from distlab.exercises.predict import show_guess


def count_orders(dataset, epochs=3):
    """Return in how many different orders `epochs` passes visit the labels."""
    return len({tuple(int(y) for _, y in dataset) for _ in range(epochs)})


some = mnist.as_dataset(split="train[:100]", as_supervised=True)
print("cache, then shuffle:", count_orders(some.cache().shuffle(100, seed=0)))
show_guess(my_guess, count_orders(some.shuffle(100, seed=0).cache()), unit=" order")

# %% [markdown]
# A cached order is frozen, so `cache` comes first and `shuffle` after it. We also cache before scaling: as bytes the images take a quarter of what they take as float32. The shuffle buffer is larger than the data, so every order is possible. `drop_remainder=True` gives every batch the same, static shape. Leaving it out is the mistake of this lesson. It drops examples at the end of each epoch. In training that does little harm, but an evaluation should count them all. So validation and test get a batch size that divides evenly, and nothing is dropped.
#
# (On your own machine write `tf.data.AUTOTUNE` instead of the two fixed numbers, and leave `fixed` out. Two cores that four devices share leave nothing to tune, so tuning is switched off here; [lesson 12](12-input-pipelines.ipynb) measures what it brings.)


# %%
def scale(image, label):
    return tf.cast(image, tf.float32) / 255, label  # [28, 28, 1] in [0, 1]


def read(split):
    return mnist.as_dataset(split=split, as_supervised=True)


fixed = tf.data.Options()
fixed.autotune.enabled = False
training = read("train[:3840]").with_options(fixed).cache().shuffle(4000, seed=0)
training = training.map(scale, num_parallel_calls=2)
training = training.batch(global_batch_size, drop_remainder=True).prefetch(2)
validation = read("train[9000:]").map(scale).batch(200, drop_remainder=True)
test = read("test").map(scale).batch(200, drop_remainder=True)
print(int(training.cardinality()), "steps an epoch")
assert [int(d.cardinality()) * 200 for d in (validation, test)] == [1000, 2000]

# %% [markdown]
# ## Model, optimizer and compile in the scope
#
# The scope decides where variables are made. The model has variables, and so do the optimizer and metrics that `compile` makes, so both belong inside. A slip can be silent: `compile("sgd", …)` outside the scope trains, with one step counter that all four replicas advance. (With `"adam"` it stops: [lesson 02](02-strategy-api.ipynb) has the list.) `fit` and `evaluate` find the strategy automatically.

# %%
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
print(model.layers[0].kernel.path, "is a", type(model.layers[0].kernel.value).__name__)

# %% [markdown]
# ## Callbacks
#
# | callback | what it does here |
# |---|---|
# | `TensorBoard` | writes loss, accuracy and learning rate of each epoch to event files |
# | `ModelCheckpoint` | keeps the model of the epoch with the best validation accuracy |
# | `LearningRateScheduler` | sets 1e-3 for three epochs, then 1e-4, then 1e-5 |
# | our own | prints the learning rate that the optimizer actually holds |
#
# They run once, in the Python process, not once per replica: one checkpoint and one log, not four.
#
# **Your turn.** Large batches often begin gently, with a *warm-up*. Write one that `LearningRateScheduler` could call: the rate rises in four equal steps, reaches 1e-3 in the fourth epoch, and stays there. Epochs are counted from 0.


# %%
def warm_up(epoch):
    return ...


# %%
from distlab.turns import lesson03 as turns

warm_up = turns.WARM_UP.take(warm_up)


def decay(epoch):
    """Return the learning rate of `epoch`, counted from 0."""
    return 1e-3 if epoch < 3 else 1e-4 if epoch < 4 else 1e-5  # ours, for small batches


for name, rate in {"warm-up": warm_up, "decay": decay}.items():
    print(f"{name:<8}", [f"{rate(epoch):.2e}" for epoch in range(6)])


class PrintLearningRate(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        rate = float(self.model.optimizer.learning_rate.numpy())
        print(f"epoch {epoch + 1}: learning rate {rate:.0e}")


run_folder = tempfile.TemporaryDirectory()  # removed at the end of the lesson
folder = Path(run_folder.name)
best_file = folder / "best.keras"
callbacks = [
    keras.callbacks.TensorBoard(folder / "logs"),
    keras.callbacks.ModelCheckpoint(best_file, monitor="val_accuracy", save_best_only=True),
    keras.callbacks.LearningRateScheduler(decay),
    PrintLearningRate(),
]

# %%
from utils.measure import Stopwatch

settings = {"epochs": 5, "callbacks": callbacks, "verbose": 0}
with Stopwatch() as watch:  # shuffle=False: the dataset shuffles by itself
    run = model.fit(training, validation_data=validation, shuffle=False, **settings)
history, fit_seconds = run.history, watch.seconds

# %% [markdown]
# ## Four copies, still equal?
#
# Each replica saw different examples in every step. How far apart are the copies of a weight by now?


# %%
def copies_of(variable):
    """Return the copies of a Keras variable, one for each replica: [replica, ...]."""
    return np.stack([c.numpy() for c in strategy.experimental_local_results(variable.value)])


largest = 0.0
for variable in model.trainable_variables:
    copies = copies_of(variable)
    differs = np.abs(copies - copies[0]).max()
    largest = max(largest, float(differs))
    print(f"{variable.path:<20} {len(copies)} copies of {copies[0].size:>7,}: {differs} apart")
print("steps that Adam counted:", copies_of(model.optimizer.iterations).tolist())
assert largest == 0
assert all(np.ptp(copies_of(v), axis=0).max() == 0 for v in model.optimizer.variables)

# %% [markdown]
# Not one bit differs. The copies began equal, and every replica made the same update with the same summed gradient. The optimizer's own variables are mirrored too, and its step counter reads 5 × 30 on every replica. (BatchNormalization's moving averages do drift, as [lesson 05](05-loss-scaling.ipynb) shows; this model has none.)
#
# ## TensorBoard on the run
#
# To watch a run, start `tensorboard --logdir logs` in a shell, or `%load_ext tensorboard` and `%tensorboard --logdir logs` in a notebook; the page grows while `fit` writes. (The magic leaves a server running after you close the notebook.) Here we read the callback's files with TensorBoard's own reader, and draw what its page shows.


# %%
def read_scalar(name, tag):
    """Return the values of `tag`, one an epoch, from the event files of a run."""
    events = EventAccumulator(str(folder / "logs" / name)).Reload()
    return [float(tf.make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)]


logged = {name: read_scalar(name, "epoch_accuracy") for name in ("train", "validation")}
rates = [float(f"{rate:.0e}") for rate in read_scalar("train", "epoch_learning_rate")]
print("learning rates in the log:", rates)
np.testing.assert_allclose(logged["validation"], history["val_accuracy"], rtol=1e-6)

# %% tags=["nbval-ignore-output"]
curves = {name: (range(1, 6), values) for name, values in logged.items()}
title = "As TensorBoard shows it: rate 1e-3 for three epochs, then 1e-4, then 1e-5"
marks = {"1e-4": 3.5, "1e-5": 4.5}
axes = {"x_label": "epoch", "y_label": "accuracy"}
figures.show(figures.lines(curves, title=title, marks=marks, **axes))
first, _, third, _, last = logged["validation"]
assert third - 0.5 > last - third and last > 0.8
assert logged["train"][0] < first

# %% [markdown]
# Most of the accuracy arrives in the first three epochs, at the highest rate. After that the rate is ten and then a hundred times smaller. `train` starts below `validation` because it is a mean over the epoch, taken while the model was still learning.
#
# ## The best checkpoint, not the last
#
# `ModelCheckpoint` kept the epoch with the best *validation* accuracy. Evaluated again, it must give that number. The *test* set chose nothing, so its number is the honest one. Don't expect it to match. Blocks of 1,000 images differ by several points: in one run of three epochs, this model got between 84 and 89 % right on six blocks of the training file that it hadn't seen.

# %% tags=["nbval-ignore-output"]
with strategy.scope():
    best = keras.models.load_model(best_file)
again = best.evaluate(validation, verbose=0, return_dict=True)
tested = best.evaluate(test, verbose=0, return_dict=True)
print(f"best epoch {1 + int(np.argmax(history['val_accuracy']))}:", end=" ")
print(f"validation {again['accuracy']:.4f}, test {tested['accuracy']:.4f}")
assert abs(again["accuracy"] - max(history["val_accuracy"])) < 1e-6

# %% [markdown]
# ## Export, then load with and without a scope
#
# A `.keras` file holds what Keras needs to rebuild the model. A SavedModel holds a function, `serve`, and its variables; it needs neither Keras nor your classes. Neither file holds a strategy: the code that loads it decides, with a scope or without.

# %%
best.save(folder / "model.keras")
best.export(folder / "saved_model", verbose=False)


def load_both():
    """Return the .keras model, and the exported function with its variables."""
    return keras.models.load_model(folder / "model.keras"), tf.saved_model.load(
        folder / "saved_model"
    )


plain_keras, plain_saved = load_both()
with strategy.scope():
    mirrored_keras, mirrored_saved = load_both()

images = pictures / np.float32(255)  # [10, 28, 28, 1]
want = best(images).numpy()  # [10, 10] logits
loaded = {
    "keras, no scope": (plain_keras, plain_keras.weights[0].value),
    "keras, in the scope": (mirrored_keras, mirrored_keras.weights[0].value),
    "SavedModel, no scope": (plain_saved.serve, plain_saved.variables[0]),
    "SavedModel, in the scope": (mirrored_saved.serve, mirrored_saved.variables[0]),
}
for name, (predict, variable) in loaded.items():
    copies = len(strategy.experimental_local_results(variable))
    np.testing.assert_allclose(predict(images).numpy(), want, rtol=1e-5, atol=1e-5)
    print(f"{name:<25} copies of a variable: {copies}, same predictions")

# %% [markdown]
# The model had four copies of each variable when it was saved, and loaded outside any scope it has one: a file holds each value once. Train on four devices, serve on one, and convert nothing. What you load inside the scope has four copies again.
#
# ## The mistake: a last batch that doesn't divide
#
# Now leave out `drop_remainder`. 168 examples make one batch of 128 and a last one of 40, which divides by four. Let the strategy split it, once from TFDS's files and once from arrays in memory.


# %%
def show_pieces(dataset, split_by=strategy):
    """Print how many examples of each batch every replica gets; return the last batch's."""
    for images, _ in split_by.experimental_distribute_dataset(dataset):
        sizes = [int(part.shape[0]) for part in split_by.experimental_local_results(images)]
    print("last batch:", sizes)
    return sizes


def in_memory(examples, batch):
    return tf.data.Dataset.from_tensor_slices((np.zeros((examples, 28, 28, 1)),) * 2).batch(batch)


from_files = read("train[:168]").map(scale).batch(global_batch_size)
assert show_pieces(from_files) == [32, 8, 0, 0]
assert show_pieces(in_memory(168, global_batch_size)) == [10, 10, 10, 10]

# %% [markdown]
# For data that comes from files, the default sharding policy `AUTO` becomes `FILE`. Replica 0 is then filled up to its usual 32 first, and replica 1 gets what is left. Two replicas get *no* example at all.
#
# **Your turn.** With 200 examples in files, the last batch has 72. How many does each of the four replicas get?

# %%
pieces = ...  # a list of four numbers

# %%
pieces = turns.FROM_FILES.take(pieces)
print("yours:     ", pieces)
assert sum(show_pieces(read("train[:200]").map(scale).batch(global_batch_size))) == 72

# %% [markdown]
# What a convolution of nothing does depends on the processor. If TensorFlow computes with oneDNN (by default it does on newer Intel and AMD processors, such as those with AVX-512 VNNI), `fit` fails. On others it continues, and two replicas sit the step out without a word.


# %% tags=["nbval-ignore-output"]
try:
    model.fit(from_files, shuffle=False, verbose=0)
    print("fit: no error on this processor")
except tf.errors.InvalidArgumentError as error:
    print("InvalidArgumentError:", re.search("input depth must.*", str(error)).group())

# %% [markdown]
# The message, if there is one, talks about depths. The cause is a batch without examples. Three fixes, by what you can afford:
#
# | fix | what it costs |
# |---|---|
# | `batch(…, drop_remainder=True)` | up to one batch of examples an epoch; different ones each time, thanks to `shuffle` |
# | sharding policy `DATA` | nothing on one machine, if the last batch divides by the replicas. If it doesn't, `DATA` can leave a replica empty as well: 6 examples over four are split 2, 2, 2 and 0, and with oneDNN `fit` fails in the same way. Across workers, each reads all the data and discards the others' part |
# | padding with examples of weight 0 | a little wasted computation, and one more factor: `fit` divides by *all* examples, padding included. With 6 real examples and 2 for padding on four replicas, `fit` applied 0.75 of the gradient. A larger weight for the real ones makes it exact (your turn, below), unless a layer looks across the batch as BatchNormalization does. `utils.training.train` pads and sets such weights |

# %%
options = tf.data.Options()
options.autotune.enabled = False
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
by_data = from_files.with_options(options)
assert show_pieces(by_data) == [10, 10, 10, 10]
model.fit(by_data, shuffle=False, verbose=0)
print("fit: no error")

# %% [markdown]
# **Your turn.** Five real examples and three of padding make one batch of 8, on four replicas. `fit` multiplies each loss by its weight, adds them up, and divides by 8. The padding has the weight 0. Which weight do the real ones need, if the update is to be the gradient of the mean over the five?

# %%
weight = ...


# %%
from utils.models import build_mlp

weight = turns.PADDED.take(weight)


def list_updates(strategy, *choices):
    """Fit one batch at learning rate 1, with each choice of weights; return the updates."""
    with strategy.scope():
        plain = build_mlp(seed=0, dtype="float64")
        plain.compile(keras.optimizers.SGD(1.0), loss)
    before, updates = plain.get_weights(), []
    for weights in choices:  # one for each example
        plain.set_weights(before)
        count = len(weights)
        batch = (pictures[:count] / 255, np.array(digits[:count]), np.array(weights))
        plain.fit(tf.data.Dataset.from_tensor_slices(batch).batch(8), shuffle=False, verbose=0)
        after = plain.get_weights()
        updates.append(np.concatenate([np.ravel(a - b) for a, b in zip(before, after)]))
    return updates


[five] = list_updates(tf.distribute.get_strategy(), 5 * [1.0])
padded = list_updates(strategy, *(5 * [w] + 3 * [0.0] for w in (1, weight)))
ratios = {w: update @ five / (five @ five) for w, update in zip((1, weight), padded)}
print({f"weight {w:.3g}": f"{ratio:.3f} of the gradient" for w, ratio in ratios.items()})
assert weight == 1 or np.isclose(ratios[1] * weight, ratios[weight])

# %% [markdown]
# With the weight 1 `fit` applies 5/8 of the gradient, as it divides by the padding too.
#
# The same mistake in a second form: you keep your usual batch of 32 and take three replicas. They can't split it evenly, and plain `fit` fails at once. (A second group of replicas in one process needs `ReductionToOneDevice`.)

# %%
three = tf.distribute.MirroredStrategy(devices[:3], cross_device_ops=reduction)
batches = read("train[:96]").map(scale).batch(32)
assert show_pieces(batches, three) == [11, 11, 10]
with three.scope():
    on_three = build_mlp()
    on_three.compile("sgd", loss)
try:
    on_three.fit(batches, shuffle=False, verbose=0)
except tf.errors.InvalidArgumentError as error:
    print("InvalidArgumentError:", re.search(r"Inputs to .*AddN.*\[10\S*\]", str(error)).group())

# %% [markdown]
# Before its first step, Keras averages a batch over the replicas to learn its shape, and pieces of 11 and 10 can't be added. The fix is the habit from above: choose the *per-replica* batch size, and multiply.
#
# ## The same through utils
#
# `train(loop="fit")` is this program with the padding and its weights built in. We give it 100 examples in batches of 32, so the last batch has 4. Three replicas can split neither evenly. The reference is plain Keras without any strategy, in float64 with SGD, on the same examples in the same order.

# %%
from utils.data import load
from utils.data.batches import epoch_order
from utils.training import train

mnist_arrays = load("mnist").train
order = epoch_order(100, seed=0, epoch=0)
by_hand = build_mlp(seed=0, dtype="float64")
by_hand.compile(
    keras.optimizers.SGD(0.05),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64"),
)
x, y = mnist_arrays.images[order, ..., None] / 255.0, mnist_arrays.labels[order]
by_hand.fit(x, y, batch_size=32, shuffle=False, verbose=0)

job = {"dataset": "mnist", "loop": "fit", "model": "mlp", "max_examples": 100, "epochs": 1}
job |= {"global_batch_size": 32, "optimizer": "sgd", "dtype": "float64"}
for replicas in (3, 4):
    report = train(strategy="mirrored", replicas=replicas, **job)
    for ours, theirs in zip(report.weights, by_hand.get_weights()):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    print(f"{replicas} replicas: the weights of one device, to 1e-12")

# %% [markdown]
# ## What it costs
#
# Mirroring costs memory: each device holds all weights, and Adam's two moments of each.

# %%
from utils.measure import array_bytes, format_bytes

weights = array_bytes(model.trainable_variables)
print("weights:                      ", format_bytes(weights))
print("with Adam, on one device:     ", format_bytes(3 * weights))
print("with Adam, on all four:       ", format_bytes(4 * 3 * weights))
print("gradients of one replica:     ", format_bytes(weights), "a step, whatever the batch")
assert weights == 4 * model.count_params()
run_folder.cleanup()  # nothing of this lesson stays on the disk
assert not folder.exists()

# %% [markdown]
# Besides computing, every step has to be launched, its batch split and its gradients moved. If you add replicas but keep the global batch, each replica gets less to do: 16 examples over four replicas is only 4 each. To see it, time the steps *inside* a `fit`; its start-up, a matter of seconds here, would drown them. The two sizes take turns, and each bar is the median step.


# %% tags=["nbval-ignore-output"]
class StepClock(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.ends = []

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(time.perf_counter())


clock, step_seconds = StepClock(), {16: [], 256: []}
for _ in range(2):
    for batch, seconds in step_seconds.items():
        some = read(f"train[:{12 * batch}]").map(scale).with_options(options).batch(batch)
        model.fit(some, callbacks=[clock], shuffle=False, verbose=0)
        seconds += np.diff(clock.ends).tolist()[1:]  # without the first steps
rates = {batch: batch / np.median(seconds) for batch, seconds in step_seconds.items()}
names = {f"batches of {b}, {b // 4} each": rate for b, rate in rates.items()}
figures.show(figures.bars(names, unit="images/s", title="Inside fit, on four replicas here"))
print(f"batches of 256: {rates[256] / rates[16]:.1f} times the images/s of batches of 16")
print(f"the 5 epochs with callbacks took {fit_seconds:.1f} s, start-up and saving included")
assert [len(seconds) for seconds in step_seconds.values()] == [20, 20]

# %% [markdown]
# Every batch pays the price of a step once, so with larger batches it weighs less. That is why you scale the global batch with the replicas, where learning allows it: what a larger batch does to learning is the subject of lesson 17.
#
# ## Recap
#
# - The global batch is the per-replica batch times the replicas: 32 × 4 = 128.
# - With model and `compile` in the scope, `fit` used all four replicas, and callbacks still ran once.
# - After 150 steps the four copies were equal to the bit.
# - The best checkpoint gave its accuracy again, and loaded as one copy or as four.
# - A last batch of 40 was split `[32, 8, 0, 0]` from files; there are three fixes.
#
# ## Cheat sheet
#
# ```python
# strategy = tf.distribute.MirroredStrategy()  # all GPUs of this machine
# batch = 64 * strategy.num_replicas_in_sync  # per replica, times replicas
# training = training.cache().shuffle(10_000).batch(batch, drop_remainder=True).prefetch(2)
# with strategy.scope():
#     model = build_model()
#     model.compile("adam", loss, metrics=["accuracy"])
# best = keras.callbacks.ModelCheckpoint("best.keras", monitor="val_accuracy", save_best_only=True)
# rate = keras.callbacks.LearningRateScheduler(decay)
# model.fit(training, validation_data=validation, epochs=12, callbacks=[best, rate])
# keras.models.load_model("best.keras").export("saved_model")  # no scope: one device
# ```
#
# You bring `build_model`, `loss`, `decay` and the two data sets. A whole program, on one page: [mirrored_fit.py](../examples/mirrored_fit.py).
#
# ## On a real GPU
#
# `distlab train --strategy mirrored --loop fit --device gpu --global-batch-size 256` trains on every GPU of the machine.
# Read its images/s, then start it with `--replicas 1 --global-batch-size 64` on a machine with four.
# The ratio of the two is your speed-up with the same batch on each GPU.
#
# ## Further reading
#
# - TensorFlow's tutorial, [Distributed training with Keras](https://www.tensorflow.org/tutorials/distribute/keras), and the guide, [Save and load a model using a distribution strategy](https://www.tensorflow.org/tutorials/distribute/save_and_load)
# - Keras's guide, [Multi-GPU distributed training with TensorFlow](https://keras.io/guides/distributed_training_with_tensorflow/)
# - API: [tf.distribute.MirroredStrategy](https://www.tensorflow.org/api_docs/python/tf/distribute/MirroredStrategy), [AutoShardPolicy](https://www.tensorflow.org/api_docs/python/tf/data/experimental/AutoShardPolicy), [keras.callbacks.ModelCheckpoint](https://keras.io/api/callbacks/model_checkpoint/)
# - The data: [LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition](http://yann.lecun.com/exdb/publis/pdf/lecun-98.pdf), 1998
#
# ## The lab
#
# You practice this in [lab 03, Keras under a strategy](../labs/lab03-keras-under-a-strategy.ipynb).
