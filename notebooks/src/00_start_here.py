# %% [markdown] shows="What runs on your machine; a first training on two replicas; how labs and hints work"
# # Start here
#
# Sooner or later one device is too slow or too small, and training has to run on several. Done right, they work on one model; done wrong, they train something else and don't complain. In the next few minutes you will train one model on two replicas, on this computer, and see how the lessons and labs work.
#
# ![Two devices train copies of one network. Each sees images of its own classes, clothes on the left, shoes and bags on the right, and finds its own gradient. In the all-reduce the two gradients become one, and both copies are updated with it: they stay equal and learn all ten classes. Then the all-reduce is broken: the copies drift apart, and both forget the classes that they don't see.](../distlab/lessons/two_replicas.svg)
#
# **Time:** 55 minutes: a core of 35, and 20 for *And then*, which can wait · **Prerequisites:** a little Keras; nothing about distribution · **Hardware:** any computer with two CPU cores; no GPU, no network
#
# ## Objectives
#
# - Train a Keras model on two replicas and say what each of them did.
# - Split the CPU into logical devices, and tell from a measurement what they are good for.
# - Find out how many devices a strategy really has.
# - Show that a process can't change its devices later, and start a new one that has six.
#
# **To begin:** click the next cell and press `Shift`+`Enter`. That runs it and moves on to the one below. Run the cells in order, from here to the end. Every lesson starts with the same kind of set-up and import cells. *And then*, below, says what the four devices are.

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
import os
import subprocess
import sys
from collections import Counter

import numpy as np

# %% [markdown]
# ## What you train on
#
# Small photographs of clothes, 28 by 28 pixels, in ten classes. They come with the course, so nothing is downloaded.

# %%
from distlab import figures
from utils.data import load

data = load("fashion_mnist")
print(data)
print(len(data.class_names), "classes:", ", ".join(data.class_names))
names = [data.class_names[label] for label in data.train.labels[:14]]
figures.show(figures.images(data.train.images[:14], names, title="Fashion-MNIST", columns=7))

# %% [markdown]
# ## Two replicas, in under a minute
#
# A **replica** is one device's copy of the model. Next you train two of them together, twice through 4,800 of these pictures, on two devices made out of your CPU. It is an ordinary Keras program, with two new parts: the *strategy*, the object that runs the replicas, and its `scope()`.
#
# Before this course shows you a result, it asks what you expect. Run the next cell and move its handle (with the keyboard: `Tab` to it, then the arrow keys). As soon as the result is there, it slides in next to your guess. Nobody else sees it, and everything runs even if you leave the handle alone.
#
# **Predict.** Guessing blindly among ten classes is right once in ten. After the training, what share of 2,000 images that the model has never seen does it classify correctly, in percent?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Images classified correctly", 0, 100, "%")
my_guess

# %%
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())
with strategy.scope():
    flatten, hidden = keras.layers.Flatten(), keras.layers.Dense(128, activation="relu")
    model = keras.Sequential([keras.Input((28, 28, 1)), flatten, hidden, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])

# %% tags=["nbval-ignore-output"]
from distlab.lessons.live_loss import LiveLoss
from utils.measure import Stopwatch

images, labels = data.train.images[:4800, ..., None] / np.float32(255), data.train.labels[:4800]
live = LiveLoss("Two replicas, learning together")
with Stopwatch() as watch:
    model.fit(images, labels, batch_size=64, epochs=2, callbacks=[live], verbose=0)
assert np.mean(live.losses[-5:]) < live.losses[0] / 2

# %% tags=["nbval-ignore-output"]
from distlab.exercises.predict import show_guess

unseen = data.test.images[:2000, ..., None] / np.float32(255)
_, accuracy = model.evaluate(unseen, data.test.labels[:2000], batch_size=200, verbose=0)
show_guess(my_guess, 100 * accuracy, unit="%")
assert accuracy > 0.5  # five times better than picking blindly

# %% [markdown]
# That was distributed training. (`ReductionToOneDevice` suits a CPU split in two; on GPUs write just `MirroredStrategy()`.) In four numbers:

# %%
from utils.measure import array_bytes

replicas, gradient_bytes = strategy.num_replicas_in_sync, array_bytes(model.trainable_variables)
print(f"{replicas} replicas, each with its own copy of every weight")
print(f"{64 // replicas} images a step for each of them")
print(f"{int(model.optimizer.iterations.numpy())} steps")
print(f"{gradient_bytes:,} bytes of gradients from each of them, at every step")

# %% [markdown]
# And this is what the model makes of ten images that it hasn't seen:

# %% tags=["nbval-ignore-output"]
said = np.argmax(model(unseen[:10]), axis=-1)
right = said == data.test.labels[:10]
words = [f"{data.class_names[s]} {'✓' if ok else '✗'}" for s, ok in zip(said, right)]
title = f"Ten unseen images: {right.sum()} of 10 correct (✓)"
figures.show(figures.images(data.test.images[:10], words, title=title, columns=5))

# %% [markdown]
# ## What each replica did
#
# Each step took 64 images, the **global batch**, and gave each replica its part. Each replica computed gradients on its own part. Then the gradients were added up over the replicas, which is called an **all-reduce**, and every copy of the weights made the same update.
#
# Is that a sum or a mean? Both, and it's worth a second look. Keras divides each replica's mean loss by the number of replicas, so each gradient is already a *part* of the mean over all 64 images. The parts are added up, and their sum is that mean. The picture at the top and the program below take each replica's own mean instead, and then the mean of those means. With equal shares it's the same number. [Lesson 05](05-loss-scaling.ipynb) shows what happens if you mix up the two.

# %%
figures.show(figures.mirrored_devices(2, device="CPU"))

# %% [markdown]
# ## Watch it happen
#
# The picture at the top of this page was a recording. Here the same program trains in your kernel while you look at it. (It's a short loop written for this picture, with its own variables on each device and no `MirroredStrategy`, so that you can break the all-reduce.) To make it hard for the replicas, each device sees images of its own classes only. On its own it could never learn the others.
#
# The colored strip is a device's gradient for the 16 filters of its first layer (orange: make this pixel's weight smaller, blue: larger). Below the all-reduce are the filters themselves, as each copy has them.
#
# - Wait until both copies are right about most images, of all ten classes.
# - **Break the all-reduce** and count ten steps. What happens to the two sets of filters, and to the accuracy?
# - Repair it. Do the copies become equal again?
# - Try three and four replicas.
# - Switch *Train in* to **this page**. Now your browser trains the same network on 600 images, without the kernel. Does it forget as well?

# %% tags=["nbval-ignore-output"]
from distlab.explorables.watched_replicas import watch_replicas

watched = watch_replicas(data)
last = watched.train(3)  # three steps now; the others while you watch
assert last.apart == 0  # the copies are equal, to the last bit
watched

# %% [markdown]
# Back to your own training: how is a global batch cut? Run the cell and move its slider: which of the first 20 images does each replica get? TensorFlow divides 20 by the number of replicas, rounds up, and hands out shares of that size until the images run out. Try eight replicas: six get 3 images, one gets 2, and the last is idle. (That's for data in memory. [Lesson 13](13-distributed-input.ipynb) has the rules for files.)


# %%
from distlab.explorables import Slider, explore
from utils.data import split_batch


def show_shares(replicas):
    sizes = split_batch(20, replicas)  # examples of each replica
    owners = [f"replica {r}" for r, size in enumerate(sizes) for _ in range(size)]
    title = f"A global batch of 20 images for {replicas} replicas: {sizes}"
    return figures.images(data.train.images[:20], owners, title=title)


explore(show_shares, replicas=Slider("Replicas", 1, 8, 2))

# %% [markdown]
# **Predict.** The same job with the same seed, once on one device and once on two replicas, in 64-bit arithmetic. Look at the weight that differs most between the two trained models. By how much does it differ: 0.1, 0.001, or less than 0.000001?

# %%
from distlab.explorables import guess_word

my_difference = guess_word("Largest difference", "0.1", "0.001", "less than 0.000001")
my_difference

# %% tags=["nbval-ignore-output"]
from utils.training import train

job = dict(model="mlp", max_examples=640, epochs=1, optimizer="sgd", dtype="float64")
alone = train(strategy="one-device", **job)
together = train(strategy="mirrored", replicas=2, **job)
gaps = [np.abs(a - b).max() for a, b in zip(alone.weights, together.weights)]
show_guess(my_difference, max(gaps))
assert max(gaps) < 1e-9

# %% [markdown]
# Only rounding is left. The two replicas didn't train two models: together they computed what one device computes. (`train` is the course's own training function. Lesson 03 compares it with Keras's `fit`, and lesson 04 with a loop that you write.) That holds for this model; lesson 05 shows what breaks it, batch normalization for one.
#
# ## And then: what a logical device is
#
# That was the core. If you're in a hurry, continue with [lesson 01](01-why-distribute.ipynb), and come back for the rest of this page when a device, a kernel or a key puzzles you.
#
# You have one CPU, and the strategy wanted two devices. TensorFlow can split one CPU into several **logical devices**. Each has its own name and holds its own variables, as a GPU would. The set-up cell at the top of this page made four.

# %%
for name in devices:
    with tf.device(name):
        print(name, "holds", tf.Variable(1.0).device)

# %% [markdown]
# **Predict.** Four matrix products, first all on one logical device, then one on each of four, side by side. How many times faster are four devices?

# %%
my_speed_up = guess_number("Speed of four devices over one", 0, 8, "x", step=0.1)
my_speed_up

# %%
squares = tf.random.stateless_normal([4, 700, 700], seed=(0, 0))


@tf.function
def multiply_on(places):
    results = []
    for square, place in zip(tf.unstack(squares), places):  # one product on each place
        with tf.device(place):
            results.append(tf.reduce_sum(square @ square))
    return tf.add_n(results)


# %% tags=["nbval-ignore-output"]
from utils.measure import time_calls

one, four = [], []
for _ in range(7):  # in turn, so that other work on the machine slows both
    one.append(time_calls(lambda: multiply_on(["CPU:0"] * 4).numpy(), 3).best_seconds)
    four.append(time_calls(lambda: multiply_on(devices).numpy(), 3).best_seconds)
show_guess(my_speed_up, min(one) / min(four), unit="x")
print(f"cores: {os.cpu_count()}, logical devices: {len(devices)}")
assert min(one) / min(four) < 3  # four devices, but not four times the speed

# %% [markdown]
# The split made four devices but no new cores, so four devices aren't four times as fast. Logical devices are for **learning**: where variables live, what is copied and what is added up is as on several GPUs. They are not for **speed**. When a lesson talks about speed, it says what was measured here and what differs on real devices.
#
# ## The mistake: more devices than there are
#
# This process has four devices. Suppose you want six replicas, and simply ask for them.

# %%
six = [f"CPU:{i}" for i in range(6)]
strategy = tf.distribute.MirroredStrategy(six, tf.distribute.ReductionToOneDevice())
with strategy.scope():
    weight = tf.Variable(1.0)
places = Counter(copy.device[-5:] for copy in strategy.experimental_local_results(weight))
print(strategy.num_replicas_in_sync, "replicas, and their copies lie on:", dict(places))

# %% [markdown]
# There is no error. The strategy counts six replicas, but `CPU:4` and `CPU:5` don't exist. TensorFlow put their copies on `CPU:0`, next to the copy that belongs there: it uses an existing device if it can't find the one you named (*soft placement*). Names of GPUs that you don't have are worse: the variables are made, but with the default reduction the first compiled all-reduce hung when we tried it, with no message at all. So count the devices, not the replicas.
#
# Let's split again, into six: first with TensorFlow's function, then with the course's.

# %%
from utils.errors import DistributedError

cpu = tf.config.list_physical_devices("CPU")[0]
try:
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 6)
except RuntimeError as error:
    print("RuntimeError:", error)
try:
    use_logical_devices(6)
except DistributedError as error:
    print("DistributedError:", error)
print(use_logical_devices(4), "are still there")

# %% [markdown]
# TensorFlow fixes its devices before its first operation and keeps them as long as the process lives. Running a set-up cell again is fine, as the last line shows; asking for more devices isn't.
#
# The fix is a new process that splits first. In JupyterLab that is *Kernel → Restart Kernel…*, then a set-up cell with 6 in place of 4. Here a second Python process does it, so you keep your variables:

# %%
program = """
from utils.environment import quiet_tensorflow
with quiet_tensorflow():
    import tensorflow as tf
from utils.devices import use_logical_devices
strategy = tf.distribute.MirroredStrategy(use_logical_devices(6))
with strategy.scope():
    weight = tf.Variable(1.0)
print(sorted(copy.device[-5:] for copy in strategy.experimental_local_results(weight)))
"""
command = [sys.executable, "-c", program]
fresh = subprocess.run(command, capture_output=True, text=True, timeout=120)
print(fresh.stdout, end="")
assert fresh.stdout.count("CPU:") == 6, fresh.stderr

# %% [markdown]
# ## Stop, restart, and the keyboard
#
# | you want to | keys | menu | what stays |
# |---|---|---|---|
# | stop a running cell | `Esc`, then `I` `I` | Kernel → Interrupt Kernel | all variables, the devices |
# | start from scratch | `Esc`, then `0` `0` | Kernel → Restart Kernel… | the page with its outputs, no variables |
# | run everything again | | Run → Restart Kernel and Run All Cells… | the page; outputs and variables are made again |
# | free the memory of a lesson you have left | | Kernel → Shut Down Kernel | the page with its outputs, no variables |
#
# `Shift`+`Enter` runs a cell and goes to the next, `Ctrl`+`Enter` stays; `Esc` leaves a cell's text, `Enter` edits it. `Shift`+`Tab` shows a function's documentation, and `Ctrl`+`Shift`+`H` lists all keys. On a Mac use `Cmd` for `Ctrl`.
#
# ## What runs here
#
# The course's doctor looks at this machine. Only a line that begins with `problem` stops you. With a `warning` the course still runs, with a disadvantage. Whatever is `missing` is used by a few later lessons, which run without it and tell you so. In a terminal, `distlab doctor` gives the full list, with advice (lines that name a folder or a process are left out here, unless they are a `problem`).

# %% tags=["nbval-ignore-output"]
from distlab import doctor

findings = doctor.examine(quick=True)
for found in findings:
    private = "/" in found.value or "pid" in found.value
    if found.status == "problem" or not private:
        print(f"{found.status:8} {found.name:18} {found.value}")
assert doctor.can_run(findings)

# %% [markdown]
# ## What it costs
#
# This is what your first training took, with the start of `fit`, which compiles the step, and the drawing.

# %% tags=["nbval-ignore-output"]
from utils.measure import format_bytes, peak_memory_bytes

print(f"two epochs: {watch.seconds:.1f} s")
print("images:", format_bytes(images.nbytes))
print("weights:", format_bytes(replicas * gradient_bytes), "in two copies")
print("most memory that this kernel has held:", format_bytes(peak_memory_bytes()))
assert gradient_bytes == 4 * model.count_params()  # float32: 4 bytes a parameter
assert watch.seconds < 120

# %% [markdown]
# ## Cheat sheet
#
# ```python
# strategy = tf.distribute.MirroredStrategy()  # all GPUs of this machine
# with strategy.scope():  # everything that has variables
#     model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)])
#     loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
#     model.compile("adam", loss, metrics=["accuracy"])
# model.fit(images, labels, batch_size=64, epochs=2)  # 64: the global batch
# weight = model.trainable_variables[0].value
# copies = strategy.experimental_local_results(weight)
# assert len({copy.device for copy in copies}) == strategy.num_replicas_in_sync
# ```
#
# **Recap**
#
# - Each replica took half of every batch; an all-reduce added up the gradients.
# - Logical devices behave like several devices and share the same cores.
# - Six replicas fitted on four devices without an error: look where the copies are.
# - More devices needed a new process. To stop a cell you don't need one: its variables stay.
#
# ## Further reading
#
# - TensorFlow's guide, [Distributed training with TensorFlow](https://www.tensorflow.org/guide/distributed_training), and its page [Use a GPU](https://www.tensorflow.org/guide/gpu), which has logical devices and soft placement.
# - API: [tf.config.set_logical_device_configuration](https://www.tensorflow.org/api_docs/python/tf/config/set_logical_device_configuration), [tf.distribute.MirroredStrategy](https://www.tensorflow.org/api_docs/python/tf/distribute/MirroredStrategy).
# - The images: Xiao, Rasul and Vollgraf, [Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms](https://arxiv.org/abs/1708.07747), 2017.
# - Keys and menus: [JupyterLab's documentation](https://jupyterlab.readthedocs.io).
#
# ## The lab
#
# A lab is a notebook of exercises with points. You complete a function, run the check cell below it, and read what it says: how your answer differs from the correct one and, on the second try, the likely mistake. Try as often as you like; hints and the worked idea cost no points. Grading uses other numbers, so compute the answer, don't type it in.
#
# The first is [lab 01, batches and words](../labs/lab01-batches-and-words.ipynb). Read [lesson 01](01-why-distribute.ipynb) first: the lab uses its words. The whole program of this lesson, on one page: [mirrored_fit.py](../examples/mirrored_fit.py).
#
# ## The course, lesson by lesson
#
# The column *After* names the lessons that you should have done before.
#
# {{lessons}}
