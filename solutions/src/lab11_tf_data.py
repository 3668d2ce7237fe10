# %% [markdown] shows="Make a slow pipeline fast; graded by the ratio to the naive one"
# # Lab 11 · A pipeline that keeps up
#
# A step that waits for its input wastes the device it runs on. Make a slow input pipeline several
# times as fast, with the same examples, and predict where the time goes.
#
# **Time:** 50 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# The naive pipeline is timed first, by the seconds that it takes of the processor. Then your pipeline
# delivers epochs, and the quicker of its clock and processor time counts. So another program that
# runs at the same time doesn't decide your mark. Lesson 12 has the ideas.
#
# {{absent}}

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import tensorflow as tf
import numpy as np

from distlab.labs.lab11 import exercise as lab11
from distlab.labs.lab11.exercise import augment, parse
from utils.devices import use_logical_devices

# %%
use_logical_devices(1)  # the CPU, on a machine with GPUs too
SEED = 2026

# %% [markdown]
# ## Exercise 1: three times as fast
#
# **8 points · hard · 35 minutes**
#
# This is the pipeline to beat:
#
# ```python
# files = tf.data.Dataset.from_tensor_slices(files)
# records = files.flat_map(tf.data.TFRecordDataset)
# return records.map(parse).map(augment).batch(batch_size)
# ```
#
# `parse` and `augment` are given, for one example at a time:
#
# | function | takes | returns |
# |---|---|---|
# | `parse` | one record | image uint8 `[28, 28, 1]`, label, id |
# | `augment` | image, label, id | the image mirrored left to right with a chance of a half, then rolled 0, 1 or 2 columns to either side (what leaves on one side comes in on the other), float32 in [0, 1]; label, id |
#
# A record is a serialized `tf.train.Example` with three features: `image`, the bytes of a PNG, and `label` and `id`, an int64 each.
#
# **Contract.** `make_fast(files, batch_size)` takes a list of TFRecord files and a batch size.
# It returns a `tf.data.Dataset` of (images, labels, ids) in batches of that size (the last may
# be smaller), from the files to the batch that a step would get. Every epoch delivers every example
# exactly once, in any order, and augments again, each image with its own random numbers: no two
# epochs show the same images. After the first epoch it delivers at least 3 times the images per
# second of the naive one. (We accept 2, since other work on the machine disturbs.) Work done ahead is
# counted too: epochs that you compute before anyone asks for them gain nothing. When a class is
# graded, the pipeline can't start other processes (threads are fine). Functions that work
# on a whole batch at once are yours to write: the check refuses calls of `utils.input_pipeline`, except
# for `parse` and `augment`.
#
# **Example.** The same three lines with `.prefetch(1)` at the end aren't enough.
#
# <details><summary>Hint 1</summary>
#
# PNGs are decoded again in every epoch. What could be kept from the first epoch, and what must not be?
#
# </details>
# <details><summary>Hint 2</summary>
#
# One call for a batch of 64 costs less than 64 calls for one image each. In which order do
# `cache`, `batch` and the two maps stand then, and which of the two has to work on a whole batch?
# A flip and a roll both only put columns in another order: `tf.gather` with `batch_dims=1` does that
# for a whole batch, one order of columns for each image.
#
# </details>
# <details><summary>Worked idea</summary>
#
# For numbers in text files: `lines.map(read).cache().batch(64).map(scale_batch)`. Reading happens in
# the first epoch only; scaling happens in every epoch, 64 numbers at a time.
#
# </details>


# %% nbgrader={"grade_id": "pipeline", "solution": true}
def make_fast(files, batch_size):
    ### BEGIN SOLUTION
    # Parsing is the same in every epoch, so it's cached; augmenting isn't, so it comes after the cache,
    # and for a whole batch at once. With the two in the other order every epoch would show the same images.
    def augment_batch(images, labels, ids):
        count = tf.shape(images)[0]
        shift = tf.random.uniform([count, 1], -2, 3, tf.int32)
        columns = (tf.range(28) - shift) % 28  # [batch, 28]: where each column comes from
        columns = tf.where(tf.random.uniform([count, 1]) < 0.5, 27 - columns, columns)
        sideways = tf.transpose(images[..., 0], [0, 2, 1])  # [batch, column, row]
        moved = tf.transpose(tf.gather(sideways, columns, batch_dims=1), [0, 2, 1])
        return tf.cast(moved[..., tf.newaxis], tf.float32) / 255, labels, ids

    shards = tf.data.Dataset.from_tensor_slices(files)
    records = shards.interleave(tf.data.TFRecordDataset, cycle_length=4)
    batches = records.map(parse).batch(batch_size).cache()
    return batches.map(augment_batch).prefetch(1)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "pipeline-test", "points": 8}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
pipeline_cases = [(int(rng.integers(2**31)), int(rng.integers(48, 97)))]
### END INPUTS
got_pipelines = lab11.PIPELINE.observe(make_fast, pipeline_cases)
lab11.PIPELINE.check(make_fast)
### BEGIN HIDDEN TESTS
from distlab.labs.lab11 import judge as judges

judges.PIPELINE.judge(pipeline_cases, got_pipelines)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: which stage decides?
#
# **1 point · easy · 6 minutes**
#
# A batch goes through several stages, such as reading, parsing and training. Each takes some
# seconds. Either one batch goes through all stages before the next one starts. Or all stages work
# at the same time, each on another batch, as with prefetch.
#
# **Contract.** `predict_rate(stage_seconds, batch_size, overlapped)` takes a list of seconds for
# one batch, one per stage, the number of images in a batch, and whether the stages overlap. It
# returns images per second, in the long run.
#
# **Example.** Stages of 10, 30 and 5 ms, batches of 64: 2,133 images/s with overlap, 1,422 without.
#
# <details><summary>Hint 1</summary>
#
# An assembly line is as fast as its slowest station.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Work out the seconds from the end of one batch to the end of the next.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Stages of 1 s and 3 s, batches of 6 images. With overlap there is a batch every 3 s: 2 images/s.
# Without, there is a batch every 4 s: 1.5 images/s.
#
# </details>


# %% nbgrader={"grade_id": "rate", "solution": true}
def predict_rate(stage_seconds, batch_size, overlapped):
    ### BEGIN SOLUTION
    # If the stages overlap, a batch is done each time the slowest stage has finished one. If they don't,
    # each batch takes as long as all stages together. Their mean would be right in neither case.
    seconds = max(stage_seconds) if overlapped else sum(stage_seconds)
    return batch_size / seconds
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "rate-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
rate_cases = [
    (rng.uniform(0.002, 0.05, size=stages).tolist(), int(rng.integers(16, 257)), overlapped)
    for stages in (2, 5)
    for overlapped in (True, False)
]
### END INPUTS
got_rates = lab11.RATE.observe(predict_rate, rate_cases)
lab11.RATE.check(predict_rate)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab11 import judge as judges

judges.RATE.judge(rate_cases, got_rates)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: what a cache saves
#
# **1 point · easy · 6 minutes**
#
# **Contract.** `count_calls(examples, epochs, cache_after)` takes the number of examples, the number
# of epochs, and where the cache is: after "nothing" (there is no cache), after "parse", or after
# "augment". It returns two numbers, for all epochs together: how many PNGs are decoded, and how
# many images are augmented.
#
# **Example.** 1,000 examples, 5 epochs, cache after "parse": 1,000 and 5,000.
#
# <details><summary>Hint 1</summary>
#
# The stages before a cache run only while the cache is being filled.
#
# </details>
# <details><summary>Hint 2</summary>
#
# "augment" comes after "parse": a cache after it comes after both.
#
# </details>
# <details><summary>Worked idea</summary>
#
# 10 examples, 3 epochs, no cache: 30 and 30. With a cache after "augment": 10 and 10, and every
# epoch shows the same images.
#
# </details>


# %% nbgrader={"grade_id": "calls", "solution": true}
def count_calls(examples, epochs, cache_after):
    ### BEGIN SOLUTION
    # Stages before a cache run once for each example, while the first epoch fills it. What comes
    # after it runs in every epoch, and a cache at the end freezes the augmentation too.
    decodings = examples * (epochs if cache_after == "nothing" else 1)
    augmentations = examples * (1 if cache_after == "augment" else epochs)
    return decodings, augmentations
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "calls-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
call_cases = [
    (int(rng.integers(100, 9999)), int(rng.integers(3, 30)), place)
    for place in ("nothing", "parse", "augment")
]
### END INPUTS
got_calls = lab11.CALLS.observe(count_calls, call_cases)
lab11.CALLS.check(count_calls)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab11 import judge as judges

judges.CALLS.judge(call_cases, got_calls)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are
# right.
