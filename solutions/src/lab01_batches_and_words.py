# %% [markdown] shows="Batch arithmetic with remainders; which parallelism fits; speed-up and efficiency"
# # Lab 01 · Batches and words
#
# Before you pay for eight devices, work out how many steps they take, how many examples each one
# sees and whether the model fits; afterwards, what you really gained. You write four small
# functions that answer this.
#
# **Time:** 30 minutes · **Points:** 10 · **Hardware:** any computer; nothing here starts TensorFlow
#
# | word | what it means in this course |
# |---|---|
# | worker | one process, usually one machine |
# | replica | one device's copy of the model; a worker has one for each of its devices |
# | global batch | the examples of one step, over all replicas of all workers |
# | per-replica batch | the part of it that one replica sees |
# | data parallelism | every replica holds the whole model and takes a part of the batch |
# | model parallelism | every device holds a part of the model |
# | sharded data parallelism | every replica takes a part of the batch, and stores a part of the weights, gradients and moments (ZeRO, FSDP) |
#
# Each exercise has a cell for your code and a check cell below it, which tries your function on
# worked numbers and tells you what went wrong. When you hand in, other numbers are tried, drawn
# from another `SEED` (that is what `INPUTS` in the check cells is for; leave it as it is). A
# function that computes its answer passes, one that remembers it does not.

# %%
import numpy as np

from distlab.labs.lab01 import exercise as lab01

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: an epoch in steps
#
# **2 points · easy · 5 minutes**
#
# An epoch goes once through the data. The last step may find fewer examples than a full batch, and
# trains on those.
#
# **Contract.** `plan_epoch(examples, global_batch_size)` takes two counts of examples, both 1 or
# more. It returns two counts: `(steps, last_batch_size)`, the steps of one epoch and the examples
# in the last of them.
#
# **Example.** `plan_epoch(66, 32)` is `(3, 2)`: steps of 32, 32 and 2.
#
# <details><summary>Hint 1</summary>
#
# `divmod(66, 32)` gives both the whole batches and what is left over.
#
# </details>
# <details><summary>Hint 2</summary>
#
# What should happen when nothing is left over? Try `plan_epoch(64, 32)` on paper.
#
# </details>
# <details><summary>Worked idea</summary>
#
# 10 examples in batches of 4: two whole batches and 2 left over, so 3 steps, the last with 2. 8
# examples in batches of 4: two whole batches and nothing left over, so 2 steps, and the last one
# is a full batch of 4.
#
# </details>


# %% nbgrader={"grade_id": "epoch", "solution": true}
def plan_epoch(examples, global_batch_size):
    ### BEGIN SOLUTION
    whole, left_over = divmod(examples, global_batch_size)
    return whole + (left_over > 0), left_over or global_batch_size
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "epoch-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
epoch_cases = []
for _left_over in (0, 1, 5, 0):
    _batch = int(rng.integers(8, 65))
    epoch_cases.append((_batch * int(rng.integers(3, 40)) + _left_over, _batch))
### END INPUTS
got_epochs = lab01.EPOCH.observe(plan_epoch, epoch_cases)
lab01.EPOCH.check(plan_epoch)
### BEGIN HIDDEN TESTS
from distlab.labs.lab01 import judge as judges

judges.EPOCH.judge(epoch_cases, got_epochs)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: each replica's share
#
# **3 points · medium · 8 minutes**
#
# Split a global batch as evenly as possible over *all* replicas: no two shares differ by more than
# one example, and the larger shares come first. (TensorFlow states this rule in the docstring of
# `batch_sizes_for_worker` in its `distribute.py`, under data, experimental. Where the batch does not
# divide, it does not always keep to it, as lessons 03 and 13 show. This exercise leaves that out.)
#
# **Contract.** `replica_batch_sizes(batch_size, workers, replicas_per_worker)` takes the examples
# of one global batch (0 or more), the number of workers and the replicas on each. It returns a
# list, tuple or array (no generator) of `workers * replicas_per_worker` counts of examples, worker
# after worker.
#
# **Example.** `replica_batch_sizes(34, 2, 2)` is `[9, 9, 8, 8]`: worker 0 trains on 18 examples
# and worker 1 on 16.
#
# <details><summary>Hint 1</summary>
#
# How many replicas are there in all? 1,024 examples over 4 workers with 4 devices each are 64 for
# each of 16.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The sizes must add up to the batch. If you round down, how many examples are still left, and
# which replicas get them?
#
# </details>
# <details><summary>Worked idea</summary>
#
# 11 examples over 3 workers of 1 replica: 11 // 3 is 3, and 2 are left over. Everyone gets 3, the
# first 2 replicas one more: 4, 4, 3. With fewer examples than replicas the same rule leaves some
# replicas with none.
#
# </details>


# %% nbgrader={"grade_id": "batches", "solution": true}
def replica_batch_sizes(batch_size, workers, replicas_per_worker):
    ### BEGIN SOLUTION
    replicas = workers * replicas_per_worker
    share, left_over = divmod(batch_size, replicas)
    return [share + (index < left_over) for index in range(replicas)]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "batches-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
batch_cases = [(2, 1, 4)]
for _left_over in (0, 2, 3):
    _workers, _replicas_per_worker = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    _share = int(rng.integers(5, 65))
    _batch_size = _share * _workers * _replicas_per_worker + _left_over
    batch_cases.append((_batch_size, _workers, _replicas_per_worker))
### END INPUTS
got_batches = lab01.BATCHES.observe(replica_batch_sizes, batch_cases)
lab01.BATCHES.check(replica_batch_sizes)
### BEGIN HIDDEN TESTS
from distlab.labs.lab01 import judge as judges

judges.BATCHES.judge(batch_cases, got_batches)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: what to split
#
# **2 points · medium · 7 minutes**
#
# Two questions decide. Does one copy of the model fit on one device? And is training with one copy
# fast enough?
#
# In float32 with Adam each parameter takes 16 bytes: the weight, its gradient and two moments, of
# 4 bytes each. The activations of one step come on top. 1 GiB is `2**30` bytes.
#
# **Contract.** `choose_parallelism(parameters, activation_gib, device_gib, copy_hours,
# allowed_hours)` takes a count, two sizes in GiB, and two times in hours. `copy_hours` is how long
# training takes with a single copy of the model, on one device or, if it does not fit there, on
# just as many as hold it. `allowed_hours` is how long it may take. The function returns a word:
#
# | one copy | is done in time | takes too long |
# |---|---|---|
# | fits on one device | `"one device"` | `"data"` |
# | does not fit | `"model"` or `"sharded data"` | `"both"` or `"sharded data"` |
#
# Memory that is just enough fits; a time that is just allowed is in time. `"data"` means whole
# copies, as in `MirroredStrategy`. `"sharded data"` means ZeRO or FSDP: several devices store one
# copy between them and split the batch as well, which makes room and saves time. Where the table
# has two words, return either.
#
# **Example.** `choose_parallelism(2_000_000_000, 4, 24, 6, 8)` is `"model"` or `"sharded data"`:
# 29.8 GiB of state and 4 GiB of activations do not fit into 24 GiB.
#
# <details><summary>Hint 1</summary>
#
# Write the two questions as two booleans, `fits` and `in_time`, before you think about words.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Another mirrored replica is another whole copy of the model. Does it make room on any device?
#
# </details>
# <details><summary>Worked idea</summary>
#
# 100 million parameters are 1.6 billion bytes, 1.49 GiB. With 4 GiB of activations that is 5.49
# GiB, which fits into 16. One copy would take 30 hours, and 8 are allowed. So it fits and takes too
# long: several copies split the data.
#
# </details>


# %% nbgrader={"grade_id": "parallelism", "solution": true}
def choose_parallelism(parameters, activation_gib, device_gib, copy_hours, allowed_hours):
    ### BEGIN SOLUTION
    fits = 16 * parameters / 2**30 + activation_gib <= device_gib
    in_time = copy_hours <= allowed_hours
    if fits:
        return "one device" if in_time else "data"
    return "model" if in_time else "both"
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "parallelism-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
model_cases = []
_kinds = ((0.3, 0.2), (0.3, 0.2), (1.5, 0.2), (0.7, 0.5), (8.0, 0.2), (1.5, 0.2), (0.75, 0.25))
_kinds += ((0.3, 0.2), (0.83, 0.125), (0.9, 0.125), (1.8, 0.2))
for _state, _activations in _kinds:  # parts of the device's memory
    _device_gib = int(rng.integers(2, 10)) * 8
    _parameters = int(_state * _device_gib * 2**30 / 16)
    _allowed_hours = int(rng.integers(4, 48))
    _hours = int(rng.integers(1, 30)) / 10
    _late = {1: _hours, 5: _hours, 7: 0}.get(len(model_cases), -_hours)
    model_cases.append(
        (
            _parameters,
            _activations * _device_gib,
            _device_gib,
            _allowed_hours + _late,
            _allowed_hours,
        )
    )
model_cases = [model_cases[i] for i in rng.permutation(len(model_cases))]
### END INPUTS
got_words = lab01.PARALLELISM.observe(choose_parallelism, model_cases)
lab01.PARALLELISM.check(choose_parallelism)
### BEGIN HIDDEN TESTS
from distlab.labs.lab01 import judge as judges

judges.PARALLELISM.judge(model_cases, got_words)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: what more devices gave
#
# **3 points · medium · 10 minutes**
#
# You timed a job with different numbers of replicas, and every replica kept the same batch. So a
# step of 4 replicas handles four times as many images as a step of one, and the number to compare
# is images per second.
#
# **Contract.** `measure_scaling(replicas, step_seconds)` takes two lists of the same length: how
# many replicas, and the seconds of one step with that many. One of the runs has 1 replica; it can
# be anywhere in the list. The function returns two lists, tuples or arrays of that length,
# `(speed_ups, efficiencies)`: images per second divided by those of one replica, and the speed-up
# divided by the number of replicas, a fraction of 1. Answers within 1 % are accepted.
#
# **Example.** `measure_scaling([1, 2, 4], [0.100, 0.125, 0.160])` is `([1, 1.6, 2.5], [1, 0.8,
# 0.625])`.
#
# <details><summary>Hint 1</summary>
#
# Call the batch of one replica `b`. How many images does a step of `n` replicas handle, and in
# how many seconds?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `step_seconds[replicas.index(1)]` is the time of one replica, wherever it is in the list.
#
# </details>
# <details><summary>Worked idea</summary>
#
# One replica takes 0.1 s for `b` images, four take 0.2 s for `4b`: `10b` against `20b` images per
# second. The speed-up is 2 and the efficiency 2 / 4 = 0.5. The batch cancels out.
#
# </details>


# %% nbgrader={"grade_id": "scaling", "solution": true}
def measure_scaling(replicas, step_seconds):
    ### BEGIN SOLUTION
    one_seconds = step_seconds[replicas.index(1)]
    speed_ups = [n * one_seconds / t for n, t in zip(replicas, step_seconds)]
    return speed_ups, [s / n for s, n in zip(speed_ups, replicas)]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "scaling-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
timing_cases = []
for _counts in ((1, 2, 4, 8), (8, 4, 1)):
    _one_seconds = float(rng.uniform(0.05, 0.4))
    _losses = rng.uniform(0.05, 0.15, size=len(_counts))
    _seconds = [_one_seconds * (1 + float(x) * (n - 1)) for n, x in zip(_counts, _losses)]
    timing_cases.append((list(_counts), _seconds))
### END INPUTS
got_scaling = lab01.SCALING.observe(measure_scaling, timing_cases)
lab01.SCALING.check(measure_scaling)
### BEGIN HIDDEN TESTS
from distlab.labs.lab01 import judge as judges

judges.SCALING.judge(timing_cases, got_scaling)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel and run all cells: every check cell should print that its worked examples are
# right.
