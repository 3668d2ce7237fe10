# %% [markdown] shows="The whole run in your own program: planned, on two workers, killed, finished by one, graded by its masks"
# # Lab 15 · Capstone
#
# This is the last lab, and the largest. You write one program that trains a model to find garments
# in pictures. Its data are spread over the workers' disks. When one of two workers dies for good,
# the other one finishes the job alone, with the same weights. At the end you submit what the
# program has learned.
#
# **Time:** 130 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# [Lesson 22](../notebooks/22-capstone.ipynb) shows a program of this kind, but there every worker
# can read all the data. Exercises 1 and 2 are short: a plan, and the measure that grades the model.
# Exercise 3 is the program. Exercise 4 is what comes out of it. The
# program may not import `utils` or `distlab` at all, and the check stops one that does.
#
# {{absent}}

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import keras
    import tensorflow as tf
import numpy as np

from distlab import figures
from distlab.labs.lab15 import exercise as lab15
from distlab.lessons.mask_pictures import draw_predictions
from utils.devices import use_logical_devices

# %%
use_logical_devices(1)  # the CPU, on a machine with GPUs too
SEED = 2026
capstone_py = "capstone.py"  # the program of exercise 3, next to this notebook

# %% [markdown]
# ## Exercise 1: before you run anything
#
# **1 point · easy · 10 minutes**
#
# How much faster are eight GPUs? You can find out before you rent them. NVIDIA published how fast its
# original-size U-Net trains, 31,030,658 parameters, on one GPU and on eight. Each GPU keeps its own
# batch. Assume that a step is the step of one GPU, and after it a ring all-reduce of float32
# gradients over links that carry 15 GB/s in each direction. (That figure was fitted to one row of
# the table, the fastest GPU with a batch of 1.)
#
# **Contract.** `predict_step(images_per_second, batch, gpus)` takes the images/s of one GPU,
# its batch and the number of GPUs. It returns two numbers: the seconds of a step of all GPUs, and
# the images/s of all of them together. You get the point if both are within 20 % of what
# NVIDIA measured, in every case. Two more cases are invented: there, come within 20 % of what these
# assumptions give.
#
# **Example.** One A100 does 62.5 images/s, one in each step. Eight were measured at 0.0309 s
# a step and 259 images/s.
#
# <details><summary>Hint 1</summary>
#
# One GPU needs `batch / images_per_second` seconds for a step.
#
# </details>
# <details><summary>Hint 2</summary>
#
# In a ring of P devices, each sends 2 (P - 1) messages of 1/P of the gradients, four bytes for each
# parameter.
#
# </details>
# <details><summary>Worked idea</summary>
#
# With 4 GPUs, 15 million parameters and steps of 0.1 s: 2 × 3 messages of 15 MB are 90 MB, and those
# take 0.006 s. A step of all takes 0.106 s.
#
# </details>


# %% nbgrader={"grade_id": "plan", "solution": true}
def predict_step(images_per_second, batch, gpus):
    ### BEGIN SOLUTION
    # A ring moves almost twice the gradients, whatever the number of GPUs, because each message is
    # 1/P of them. Messages of the whole gradients would make eight GPUs slower than one.
    message_bytes = 4 * 31_030_658 / gpus
    step = batch / images_per_second + 2 * (gpus - 1) * message_bytes / 15e9
    return step, gpus * batch / step
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "plan-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
_published = [(40.36, 1, 8), (59.58, 8, 8), (17.91, 8, 8), (46.26, 8, 8)]
plan_cases = [(62.5, 1, 8), *(_published[k] for k in rng.permutation(4)[:3])]
for _gpus in (4, 32):  # invented: a step takes 0.3 to 2 times as long as the all-reduce
    _batch, _step = int(rng.integers(1, 9)), float(rng.uniform(0.005, 0.03))
    plan_cases.append((_batch / _step, _batch, _gpus))
### END INPUTS
got_steps = lab15.PLAN.observe(predict_step, plan_cases)
lab15.PLAN.check(predict_step)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab15 import judge as judges

judges.PLAN.judge(plan_cases, got_steps)
### END HIDDEN TESTS

# %% [markdown]
# The published table has three more rows, and there this plan is 22 to 28 % off. In two of them it
# is too slow: the all-reduce starts before the backward pass has ended, and the plan doesn't know
# that. In one it is too fast. What else might eight very fast GPUs be waiting for?

# %% [markdown]
# ## Exercise 2: what counts as good
#
# **2 points · medium · 15 minutes**
#
# More than four fifths of a scene are background. A model that calls everything background has most of
# its pixels right and is useless. So we take intersection over union, IoU: pixels where the mask
# *and* the prediction say a class, divided by pixels where the mask *or* the prediction says it.
#
# **Contract.** `measure_iou(masks, predicted)` takes two sequences of the same shape, [scenes,
# height, width], of whole numbers: 0 is background, 1 to 10 are the classes of garments. Count over all
# scenes together. It returns two numbers: the IoU of the foreground, where any garment is as good
# as any other, and the mean IoU of the garments. A class that is in neither of the two is left out of
# the mean.
#
# **Example.** One scene of four pixels, mask 0 4 4 4, prediction 0 4 0 4: both numbers are 2/3.
#
# <details><summary>Hint 1</summary>
#
# `masks == k` is an array of truths. `&` and `|` work on such arrays, and `.sum()` counts.
#
# </details>
# <details><summary>Hint 2</summary>
#
# For the foreground there are only two classes: `masks > 0` or not.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Mask 1 1 2 0, prediction 1 2 2 2. Class 1: one pixel in both, two in either: 1/2. Class 2: one in
# both, three in either: 1/3. The mean is 5/12. Foreground: three in both, four in either: 3/4.
#
# </details>


# %% nbgrader={"grade_id": "iou", "solution": true}
def measure_iou(masks, predicted):
    ### BEGIN SOLUTION
    # union1d finds the classes that either of the two has, so a class that the model invents counts as
    # 0 and an absent one not at all. A mean over scenes would weigh small garments like large ones.
    masks, predicted = np.asarray(masks), np.asarray(predicted)

    def divide(one, other):
        return (one & other).sum() / (one | other).sum()

    classes = np.union1d(masks, predicted)
    found = [divide(masks == k, predicted == k) for k in classes if k > 0]
    return divide(masks > 0, predicted > 0), np.mean(found)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "iou-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
iou_cases = []
for _scenes in (1, 3, 6):
    _classes = [0, 0, 0, 10, *rng.choice(np.arange(1, 10), 4, replace=False)]
    _right = rng.choice(_classes, (_scenes, 9, 9))
    _right[0] *= rng.random((9, 9)) < 0.4
    _mistaken = rng.random(_right.shape) < 0.3
    iou_cases.append((_right, np.where(_mistaken, rng.integers(0, 8, _right.shape), _right)))
_predicted = iou_cases[-1][1]
iou_cases[-1] = (_right, np.where(_predicted == _classes[-1], 0, _predicted))  # a class unseen
### END INPUTS
got_scores = lab15.IOU.observe(measure_iou, iou_cases)
lab15.IOU.check(measure_iou)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab15 import judge as judges

judges.IOU.judge(iou_cases, got_scores)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: the program
#
# **5 points · hard · 80 minutes**
#
# Now write it: one cell, one file. Its first line saves it next to this notebook whenever you run
# the cell. The data are scenes of 64 x 64 pixels, in four shards. In production, a worker has
# only its own shards on its disk, and so it is here.
#
# **Contract.** `python capstone.py --data DATA --output DIR --epochs E --seed S [--steps N]`
#
# | part | what it has to do |
# |---|---|
# | start | makes a `MultiWorkerMirroredStrategy`, which reads TF_CONFIG; without TF_CONFIG it works alone |
# | `DATA` | holds `shard-0.npz` to `shard-3.npz`, equally many scenes in each: `images` and `masks`, both uint8 [n, 64, 64]. **Worker w of W finds only shards w, w + W, …**; a worker that is alone finds all four. Scale the images to 0 to 1 |
# | batches | a global batch has 32 scenes: 8 of each shard, whichever worker has it. Each worker trains on the scenes of its own shards. Seed and step decide which scenes a batch holds |
# | model | any that takes float32 [n, 64, 64, 1] and gives logits [n, 64, 64, 11]; no softmax, no BatchNormalization and no dropout, so that one worker and two agree |
# | steps | E epochs (an epoch is n // 8 steps), or N steps if that is fewer, all attempts together |
# | `DIR/checkpoints` | a checkpoint after every 10 steps, with the number of steps in its files' names (`ckpt-10`). A program that is started again continues from the newest, *also on another number of workers*, and takes no step twice |
# | `DIR/saved_model` | at the end, written by worker 0: a SavedModel of the model alone, without an optimizer's numbers, with the signature `serving_default`, as `model.export` makes it |
# | `DIR/report.json` | at the end: `steps` in all; `loss`, the mean over the pixels of the last step's global batch; `weights_checksum`, the sum of the absolute values of all weights that are in the SavedModel |
# | time | each run ends within 100 seconds on your machine |
#
# Your program is tried on other scenes, with 14 steps an epoch, for twenty steps: on one worker,
# with two seeds (1 point); on two (2 points); and on two, one of them killed with SIGKILL after step 10,
# whereupon *one* worker, which now has all the shards, is started to finish the run (2 points). With
# the same seed they have to end with the same weights, to 1 part in 10,000. Everything is seen from
# outside: the files, the bytes that the kernel carries between the workers, and our own kill.
#
# **Example.** `--epochs 9 --steps 20` stops after 20 steps. It has written `ckpt-10` and `ckpt-20`,
# and `report.json` may hold `{"steps": 20, "loss": 0.93, "weights_checksum": 3104.7}`.
#
# Don't write it all at once. Run the cell and the first check after each of these:
#
# 1. Options, strategy, model; export it untrained, and write the report. *The check says that nothing was learned.*
# 2. The batches and the training step. *Still no checkpoints.*
# 3. Checkpoints: restore before the loop, save in it. *The first point.*
# 4. Two workers, then one that takes over. *If the check says "other weights", print which scenes each worker takes, and compare.*
#
# <details><summary>Hint 1</summary>
#
# A batch that depends on seed, epoch, shard and place alone is easy to resume: each shard has its own
# order in each epoch, drawn from a generator with exactly those numbers as its seed. Then it doesn't
# matter who draws it, or when.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Autosharding would read all shards on every worker. `strategy.distribute_datasets_from_function`
# calls your function with a context instead, which knows `input_pipeline_id` and
# `num_input_pipelines`. Divide the loss by 32 on every replica. Every worker saves, the chief into
# `DIR/checkpoints`, the others into their own folder. And nobody leaves before the chief is
# done.
#
# </details>
# <details><summary>Worked idea</summary>
#
# A program that adds up the lines of four log files has the same skeleton. Worker w of W opens files
# w, w + W, …; in each step every file gives one line, so that the sum of a step is the same however
# many workers there are; the number of steps done is saved with the sum. If a worker is lost, another
# one opens its files and skips the lines before that step.
#
# </details>

# %% nbgrader={"grade_id": "program", "solution": true} tags=["nbval-ignore-output"]
# %%writefile capstone.py
"""Find garments: python capstone.py --data DATA --output DIR --epochs E --seed S [--steps N]"""

import argparse
import json
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

GLOBAL_BATCH, SHARDS, SAVE_EVERY, CLASSES = 32, 4, 10, 11


def read_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int)
    return parser.parse_args()


### BEGIN SOLUTION
# Each shard's order depends on seed, epoch and shard only, so any worker can take over any shard in
# the middle of an epoch. One shuffle over a worker's own scenes would give other batches as soon
# as the number of workers changes.
def read_shards(folder, worker, workers):
    found = {}
    for number in range(worker, SHARDS, workers):
        with np.load(folder / f"shard-{number}.npz") as shard:
            found[number] = shard["images"], shard["masks"]
    return found


def make_part(shards, seed, first, last, replica_batch):
    """Return the scenes of `shards` in global batches `first` to `last`, for each replica."""
    share = GLOBAL_BATCH // SHARDS  # of each shard in each batch
    in_epoch = min(len(images) for images, _ in shards.values()) // share

    def draw():
        for step in range(first, last):
            epoch, place = divmod(step, in_epoch)
            parts = []
            for number, (images, masks) in shards.items():
                order = np.random.default_rng([seed, epoch, number]).permutation(len(images))
                chosen = order[place * share : (place + 1) * share]
                parts.append((images[chosen, ..., None].astype("float32") / 255, masks[chosen]))
            images, masks = (np.concatenate(part) for part in zip(*parts))
            for start in range(0, len(images), replica_batch):
                yield images[start : start + replica_batch], masks[start : start + replica_batch]

    shape = (replica_batch, 64, 64)
    spec = tf.TensorSpec((*shape, 1), tf.float32), tf.TensorSpec(shape, tf.uint8)
    return tf.data.Dataset.from_generator(draw, output_signature=spec).prefetch(2)


def build_unet(widths=(16, 32, 64, 128)):
    def convolve(x, width):
        for _ in range(2):
            x = keras.layers.Conv2D(
                width, 3, padding="same", activation="elu", kernel_initializer="he_normal"
            )(x)
        return x

    inputs = keras.Input((64, 64, 1))
    x = keras.layers.Rescaling(4.0, -0.5)(inputs)
    x = keras.layers.Conv2D(widths[0], 2, strides=2)(x)  # half the size: a quarter of the work
    skips = []
    for width in widths[:-1]:
        skips.append(convolve(x, width))
        x = keras.layers.MaxPooling2D()(skips[-1])
    x = convolve(x, widths[-1])
    for width, skip in zip(reversed(widths[:-1]), reversed(skips)):
        x = keras.layers.Concatenate()([keras.layers.UpSampling2D()(x), skip])
        x = convolve(x, width)
    x = keras.layers.Conv2DTranspose(widths[0], 2, strides=2, activation="elu")(x)
    # The last layer sees the scene too, sharpened: noise is negative, garments are near 1.
    sharp = keras.layers.Activation("tanh")(keras.layers.Rescaling(32.0, -3.0)(inputs))
    most = keras.initializers.Constant([4.0] + 10 * [0.0])  # most pixels are background
    logits = keras.layers.Conv2D(CLASSES, 1, bias_initializer=most)  # [n, 64, 64, 11]
    return keras.Model(inputs, logits(keras.layers.Concatenate()([sharp, x])))


def main():
    options = read_options()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # reads TF_CONFIG; before any operation
    chief = strategy.cluster_resolver.task_id in (None, 0)
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        model = build_unet()
        optimizer = keras.optimizers.Adam(1.5e-3)
        optimizer.build(model.trainable_variables)
    step, last_loss = tf.Variable(0, dtype=tf.int64), tf.Variable(0.0)
    state = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step, last_loss=last_loss)
    folder = options.output / "checkpoints"
    if latest := tf.train.latest_checkpoint(folder):
        state.restore(latest)
    aside = folder if chief else tempfile.mkdtemp()  # all save, the chief's files count
    manager = tf.train.CheckpointManager(state, aside, max_to_keep=2)
    losses_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def train_replica(images, masks):
        with tf.GradientTape() as tape:
            losses = losses_of(masks, model(images, training=True))  # [n, 64, 64]
            per_scene = tf.reduce_mean(losses, axis=(1, 2))
            loss = tf.nn.compute_average_loss(per_scene, global_batch_size=GLOBAL_BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def train_step(images, masks):
        return strategy.reduce("SUM", strategy.run(train_replica, args=(images, masks)), axis=None)

    resolver = strategy.cluster_resolver
    workers = len(resolver.cluster_spec().as_dict().get("worker", [])) or 1
    shards = read_shards(options.data, resolver.task_id or 0, workers)
    smallest = min(len(images) for images, _ in shards.values())
    total = options.epochs * (smallest * SHARDS // GLOBAL_BATCH)
    total = min(total, options.steps) if options.steps else total

    def read_part(context):
        replica_batch = context.get_per_replica_batch_size(GLOBAL_BATCH)
        return make_part(shards, options.seed, int(step), total, replica_batch)

    for batch in strategy.distribute_datasets_from_function(read_part):
        last_loss.assign(train_step(*batch))
        step.assign_add(1)
        if int(step) % SAVE_EVERY == 0:
            manager.save(checkpoint_number=int(step))
    if chief:
        weights = model.get_weights()
        plain = build_unet()
        plain.set_weights(weights)
        plain.export(options.output / "saved_model", verbose=False)
        checksum = float(sum(np.abs(w, dtype="float64").sum() for w in weights))
        report = {"steps": int(step), "loss": float(last_loss), "weights_checksum": checksum}
        (options.output / "report.json").write_text(json.dumps(report))
    strategy.reduce("SUM", tf.constant(1.0), axis=None)  # wait: who leaves early stops the others


### END SOLUTION


if __name__ == "__main__":
    main()

# %% nbgrader={"grade": true, "grade_id": "program-test", "points": 1}
### BEGIN INPUTS
alone_cases = [("alone", SEED % 10_000 + 3)]  # one seed for all three, which share runs
### END INPUTS
got_alone = lab15.PROGRAM.observe(capstone_py, alone_cases)
lab15.PROGRAM.check(capstone_py, 0)
### BEGIN HIDDEN TESTS
from distlab.labs.lab15 import judge as judges

judges.PROGRAM.judge(alone_cases, got_alone)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "program-together-test", "points": 2}
### BEGIN INPUTS
together_cases = [("together", SEED % 10_000 + 3)]  # one seed for all three, which share runs
### END INPUTS
got_together = lab15.PROGRAM.observe(capstone_py, together_cases)
lab15.PROGRAM.check(capstone_py, 1)
### BEGIN HIDDEN TESTS
from distlab.labs.lab15 import judge as judges

judges.PROGRAM.judge(together_cases, got_together)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "program-killed-test", "points": 2}
### BEGIN INPUTS
killed_cases = [("killed", SEED % 10_000 + 3)]  # one seed for all three, which share runs
### END INPUTS
got_killed = lab15.PROGRAM.observe(capstone_py, killed_cases)
lab15.PROGRAM.check(capstone_py, 2)
### BEGIN HIDDEN TESTS
from distlab.labs.lab15 import judge as judges

judges.PROGRAM.judge(killed_cases, got_killed)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: what it has learned
#
# **2 points · medium · 25 minutes** (most of them the machine's)
#
# Train for real. First write 6,000 scenes (49 MB) next to this notebook: run
# `lab15.write_shards("scenes")` in a new cell, once. Then open a terminal in this folder (File, New,
# Terminal) and start your program:
#
#     python capstone.py --data scenes --output capstone-run --epochs 12 --seed 1
#
# If it is interrupted, start it again with the same words. If you want to see it survive a kill:
# `distlab run --workers 2 --max-restarts 1 capstone.py --data scenes --output capstone-run --epochs 12
# --seed 1`, and kill one of the workers.
#
# **Contract.** `trained_model()` returns the name of the file to submit: `lab15.pack_model(
# "capstone-run")` packs `capstone-run/saved_model` into `capstone.savedmodel`, next to this
# notebook, and returns its name. The file may have at most 4 MiB. `distlab submit lab15` puts it
# into the zip next to the notebook. If you upload files by hand, upload both. It is graded on scenes
# that nobody has seen: a foreground IoU of at least 0.93 (1 point), and a mean IoU of the garments of
# at least 0.40 (1 point). The graph is run without Python, and may not read or write files.
#
# **Example.** A plain U-Net (8, 16, 32 and 64 channels, two convolutions each, pooled three times, Adam
# at 2e-3) reached 0.95 and 0.07 after two epochs, 0.97 and 0.23 after five, and 0.97 and 0.42 after ten.
# That took four and a half minutes of processor time with Keras's `fit`. Outlines come first, classes much
# later. The U-Net of lesson 22 has about 0.96 and 0.54 after eight epochs.
#
# <details><summary>Hint 1</summary>
#
# Is the loss of `report.json` still falling from epoch to epoch? Then train for longer: `--epochs 20`
# continues from the checkpoints of 12.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Outlines are easy, classes are hard: to tell a coat from a pullover, the model has to see all of it.
# Pooling three times makes one number of the lowest level see most of a garment. And lesson 22 has
# details in its U-Net and its learning rate that make a model learn the classes several times as fast.
#
# </details>
# <details><summary>Worked idea</summary>
#
# If your own model's run is in `my-run`: `return lab15.pack_model("my-run")`.
#
# </details>


# %% nbgrader={"grade_id": "model", "solution": true}
def trained_model():
    ### BEGIN SOLUTION
    # The file next to this solution was packed from the run of lesson 22, eight epochs. It holds the
    # exported model only: with the optimizer's numbers it would be three times as large.
    return lab15.pack_model("capstone-run")
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "model-test", "points": 1}
### BEGIN INPUTS
outline_cases = [("outlines", SEED + 4, 150)]
### END INPUTS
got_outlines = lab15.MODEL.observe(trained_model, outline_cases)
lab15.MODEL.check(trained_model, 0)
### BEGIN HIDDEN TESTS
from distlab.labs.lab15 import judge as judges

judges.MODEL.judge(outline_cases, got_outlines)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "model-classes-test", "points": 1}
### BEGIN INPUTS
class_cases = [("classes", SEED + 4, 150)]
### END INPUTS
got_classes = lab15.MODEL.observe(trained_model, class_cases)
lab15.MODEL.check(trained_model, 1)
### BEGIN HIDDEN TESTS
from distlab.labs.lab15 import judge as judges

judges.MODEL.judge(class_cases, got_classes)
### END HIDDEN TESTS

# %% [markdown]
# ## Look at it
#
# Numbers say how good a model is. Pictures say what it is bad at. The upper row shows scenes that
# your model hasn't seen, then come their masks, then what your model says. Which classes does it confuse,
# and would you have known better?

# %% tags=["nbval-ignore-output"]
try:
    found = lab15.predict_masks(trained_model(), seed=12, count=6)
except (NotImplementedError, AssertionError) as error:
    print(error)
else:
    figures.show(draw_predictions(*found, "Six scenes, what they show, what the model says"))
    assert found[2].shape == (6, 64, 64)

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should print that it is right so far. Then
# `distlab submit lab15`, and look at what it prints: `capstone.savedmodel` has to be in the zip.
#
# Last of all, take out your plan. At your own run's rate, what would this job have taken on
# eight machines? You can find out: the program is ready for them.
