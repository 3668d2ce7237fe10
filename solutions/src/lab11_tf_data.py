# %% [markdown] shows="Make a slow pipeline fast; judged by the ratio to the naive one"
# # Lab 11 · A pipeline that keeps up
#
# Make a slow input pipeline several times as fast, with the same examples, and say beforehand
# where the time goes.
#
# **Time:** 45 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# Your pipeline and the naive one are measured in turns in the same process, five epochs each
# after a first one, by the clock and by processor time. The better of the two median ratios counts,
# so another program that runs beside them does not decide. Lesson 12 has the ideas.

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import tensorflow as tf
import numpy as np

from distlab.exercises import lab11
from distlab.exercises.lab11 import augment, augment_batch, parse, parse_batch

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: three times as fast
#
# **6 points · medium · 25 minutes**
#
# This is the pipeline to beat:
#
# ```python
# files = tf.data.Dataset.from_tensor_slices(files)
# records = files.flat_map(tf.data.TFRecordDataset)
# return records.map(parse).map(augment).batch(batch_size)
# ```
#
# | function | takes | returns |
# |---|---|---|
# | `parse` | one record | image uint8 `[28, 28, 1]`, label, id |
# | `parse_batch` | records `[batch]` | images `[batch, 28, 28, 1]`, labels, ids |
# | `augment` | image, label, id | the image flipped and shifted at random, float32 in [0, 1], label, id |
# | `augment_batch` | images, labels, ids | the same for a whole batch |
#
# **Contract.** `make_fast(files, batch_size)` takes a list of TFRecord files and the size of a
# batch. It returns a `tf.data.Dataset` of (images, labels, ids) in batches of that size (the last may
# be smaller). Every epoch holds every example exactly once, in any order, and augments anew: no two
# epochs show the same images. After the first epoch it delivers at least 3 times the images per
# second of the naive one. (The example solution reaches 8 or more; 2.7 is accepted, for noise.)
#
# **Example.** The same three lines with `.prefetch(1)` at the end are not enough.
#
# <details><summary>Hint 1</summary>
#
# PNGs are decoded again in every epoch. What can be remembered, and what must not be?
#
# </details>
# <details><summary>Hint 2</summary>
#
# A function that is called once for a batch of 64 has less to do than one that is called 64 times.
# In which order do `cache`, `batch` and the two maps stand then?
#
# </details>
# <details><summary>Worked idea</summary>
#
# For numbers in text files: `lines.map(read).cache().batch(64).map(scale_batch)`. Reading happens in
# the first epoch only; scaling in every epoch, for 64 numbers at a time.
#
# </details>


# %% nbgrader={"grade_id": "pipeline", "solution": true}
def make_fast(files, batch_size):
    ### BEGIN SOLUTION
    files = tf.data.Dataset.from_tensor_slices(files)
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=4)
    batches = records.batch(batch_size).map(parse_batch).cache()
    return batches.map(augment_batch).prefetch(1)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "pipeline-test", "points": 6}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
pipeline_cases = [(int(rng.integers(2**31)), int(rng.integers(48, 97)))]
### END INPUTS
got_pipelines = lab11.PIPELINE.observe(make_fast, pipeline_cases)
lab11.PIPELINE.check(make_fast)
### BEGIN HIDDEN TESTS
from distlab.grading.judges import lab11 as judges

judges.PIPELINE.judge(pipeline_cases, got_pipelines)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: which stage decides?
#
# **2 points · easy · 8 minutes**
#
# A batch goes through some stages, reading, parsing, training and so on, which take some seconds
# each. Either one batch goes through all of them before the next one begins; or all stages work
# at the same time, each on another batch, as with prefetch.
#
# **Contract.** `predict_rate(stage_seconds, batch_size, overlapped)` takes a list of seconds for
# one batch, the images of a batch, and whether the stages overlap. It returns images per second, in
# the long run.
#
# **Example.** Stages of 10, 30 and 5 ms, batches of 64: 2,133 images/s with overlap, 1,422 without.
#
# <details><summary>Hint 1</summary>
#
# A chain of workers on a belt is as fast as its slowest one.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Work out the seconds from one batch's end to the next one's end.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Stages of 1 s and 3 s, batches of 6 images: with overlap a batch every 3 s, 2 images/s; without,
# a batch every 4 s, 1.5 images/s.
#
# </details>


# %% nbgrader={"grade_id": "rate", "solution": true}
def predict_rate(stage_seconds, batch_size, overlapped):
    ### BEGIN SOLUTION
    seconds = max(stage_seconds) if overlapped else sum(stage_seconds)
    return batch_size / seconds
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "rate-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
rate_cases = [
    (rng.uniform(0.002, 0.05, size=stages).tolist(), int(rng.integers(16, 257)), overlapped)
    for stages in (2, 5)
    for overlapped in (True, False)
]
### END INPUTS
got_rates = [predict_rate(*case) for case in rate_cases]
lab11.RATE.check(predict_rate)
### BEGIN HIDDEN TESTS
from distlab.grading.judges import lab11 as judges

judges.RATE.judge(rate_cases, got_rates)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: what a cache saves
#
# **2 points · easy · 7 minutes**
#
# **Contract.** `count_calls(examples, epochs, cache_after)` takes the number of examples, the number
# of epochs, and where the cache stands: after "nothing" (there is none), after "parse", or after
# "augment". It returns two numbers: how many PNGs are decoded, and how many images are augmented, in
# all epochs together.
#
# **Example.** 1,000 examples, 5 epochs, cache after "parse": 1,000 and 5,000.
#
# <details><summary>Hint 1</summary>
#
# What stands before a cache runs while the cache is filled.
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
    decodings = examples * (epochs if cache_after == "nothing" else 1)
    augmentations = examples * (1 if cache_after == "augment" else epochs)
    return decodings, augmentations
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "calls-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
call_cases = [
    (int(rng.integers(100, 9999)), int(rng.integers(2, 30)), place)
    for place in ("nothing", "parse", "augment")
]
### END INPUTS
got_calls = [count_calls(*case) for case in call_cases]
lab11.CALLS.check(count_calls)
### BEGIN HIDDEN TESTS
from distlab.grading.judges import lab11 as judges

judges.CALLS.judge(call_cases, got_calls)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel and run all cells: every check cell should print that its worked examples are
# right.
