# %% [markdown] shows="Batch arithmetic with remainders; which parallelism fits; speed-up and efficiency"
# # Lab 01 · Batches and words
#
# Before you pay for eight devices, work out how many steps they take, how many examples each one
# sees and whether the model fits; afterwards, what you really gained and what it costs. You write
# four functions that answer this.
#
# **Time:** 35 minutes · **Points:** 10 · **Hardware:** any computer; nothing here starts TensorFlow
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
# worked numbers and tells you what went wrong. When you submit, other numbers are tried, drawn
# from another `SEED` (that is what `INPUTS` in the check cells is for; leave it unchanged). A
# function that computes its answer passes, one that remembers it doesn't.
#
# {{absent}}

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
    # divmod keeps the whole batches and the rest apart, so that a rest of 0 can be told from one.
    # math.ceil gets the steps right too, but n % batch alone says that a full last step has 0.
    whole, left_over = divmod(examples, global_batch_size)
    return whole + (left_over > 0), left_over or global_batch_size
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "epoch-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
epoch_cases = []
for _left_over in (0, 1, 5, -1):
    _batch = int(rng.integers(8, 65))
    epoch_cases.append((_batch * int(rng.integers(3, 40)) + _left_over, _batch))
### END INPUTS
got_epochs = lab01.EPOCH.observe(plan_epoch, epoch_cases)
lab01.EPOCH.check(plan_epoch)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab01 import judge as judges

judges.EPOCH.judge(epoch_cases, got_epochs)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: each replica's share
#
# **3 points · medium · 8 minutes**
#
# TensorFlow doesn't split a batch evenly. Every replica's share is the batch divided by *all*
# replicas, rounded up, as long as the examples last. The last replica with any takes what is left,
# and those after it get none. (This is the rule for data in memory, in `fit` and in
# `experimental_distribute_dataset`. Data in files follow another one; lesson 13 has both.)
#
# **Contract.** `replica_batch_sizes(batch_size, workers, replicas_per_worker)` takes the examples
# of one global batch (0 or more), the number of workers and the replicas on each. It returns a
# list, tuple or array (no generator) of `workers * replicas_per_worker` counts of examples, worker
# after worker.
#
# **Example.** `replica_batch_sizes(34, 2, 2)` is `[9, 9, 9, 7]`: worker 0 trains on 18 examples
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
# How many examples are left for replica k, once all replicas before it have taken theirs? Can that
# be less than a full share, or less than nothing?
#
# </details>
# <details><summary>Worked idea</summary>
#
# 11 examples over 4 workers of 1 replica: 11 / 4 is 2.75, so a share is 3. Three replicas take 3
# each, and 2 are left for the last: 3, 3, 3, 2. With 5 examples a share is 2, and the replicas get
# 2, 2, 1 and none.
#
# </details>


# %% nbgrader={"grade_id": "batches", "solution": true}
def replica_batch_sizes(batch_size, workers, replicas_per_worker):
    ### BEGIN SOLUTION
    # Each share is cut from what is left, so the sizes add up to the batch however it divides.
    # Handing one more to the first replicas also adds up, but isn't what TensorFlow does.
    replicas = workers * replicas_per_worker
    share = -(-batch_size // replicas)  # rounded up
    starts = [share * index for index in range(replicas)]
    return [max(0, min(share, batch_size - start)) for start in starts]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "batches-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
batch_cases = [(2, 1, 4), (6, 1, 4)]
for _left_over in (0, 1, 2):
    _workers, _replicas_per_worker = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    _share = int(rng.integers(5, 65))
    _batch_size = _share * _workers * _replicas_per_worker + _left_over
    batch_cases.append((_batch_size, _workers, _replicas_per_worker))
### END INPUTS
got_batches = lab01.BATCHES.observe(replica_batch_sizes, batch_cases)
lab01.BATCHES.check(replica_batch_sizes)  # stops after 20 s
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
# training takes with a single copy of the model, on one device or, if it doesn't fit there, on
# just as many as hold it. `allowed_hours` is how long it may take. The function returns a word:
#
# | one copy | is done in time | takes too long |
# |---|---|---|
# | fits on one device | `"one device"` | `"data"` |
# | doesn't fit | `"model"` or `"sharded data"` | `"both"` or `"sharded data"` |
#
# Memory that is just enough fits; a time that is just allowed is in time. `"data"` means whole
# copies, as in `MirroredStrategy`. `"sharded data"` means ZeRO or FSDP: several devices store one
# copy between them and split the batch as well, which makes room and saves time. Where the table
# has two words, return either.
#
# **Example.** `choose_parallelism(2_000_000_000, 4, 24, 6, 8)` is `"model"` or `"sharded data"`:
# 29.8 GiB of state and 4 GiB of activations don't fit into 24 GiB.
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
    # Memory and time are separate questions, so two booleans hold all four cases of the table.
    # Asking about time first ends with whole copies of a model that no device can hold.
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
lab01.PARALLELISM.check(choose_parallelism)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab01 import judge as judges

judges.PARALLELISM.judge(model_cases, got_words)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: what you gain, and what you pay
#
# **3 points · hard · 15 minutes**
#
# You measured a step with 1, 2, 4 and 8 replicas. Every replica handles `images_per_replica` images
# in a step, so more replicas mean fewer steps. The provider charges for every hour of every replica
# (a run of 2 hours on 4 replicas costs 8 replica-hours), and the model has to be ready in time.
#
# **Contract.** `choose_replicas(replicas, step_seconds, images, images_per_replica, allowed_hours)`
# takes two lists of the same length: how many replicas, and the seconds of one step with that many.
# One of the runs has 1 replica; it can be anywhere in the list. `images` is how many images training
# has to get through in all, epochs included. The function returns a dictionary with three entries:
#
# | key | what it holds |
# |---|---|
# | `"speed_ups"` | for each run, its images per second divided by one replica's |
# | `"efficiencies"` | for each run, the speed-up divided by the number of replicas, a fraction of 1 |
# | `"choice"` | the number of replicas that gets through `images` within `allowed_hours` for the fewest replica-hours; `None` if no run is in time |
#
# The last step of training may find fewer images, and takes as long as a full one. Speed-ups and
# efficiencies within 1 % are accepted.
#
# **Example.** `choose_replicas([1, 2, 4], [0.100, 0.125, 0.160], 10_000_000, 64, 3)` has the
# speed-ups 1, 1.6, 2.5, the efficiencies 1, 0.8, 0.625 and the choice 2. One replica would take 4.3
# hours; two take 2.7, which is 5.4 replica-hours; four take 1.7, which is 6.9.
#
# <details><summary>Hint 1</summary>
#
# For each run, write down in this order: the images of one step, the steps of the whole training, its
# hours, its replica-hours. Which of these four is compared with what?
#
# </details>
# <details><summary>Hint 2</summary>
#
# First leave out what is too late, then look for the smallest of the rest. A run that costs least can
# be too late, and the fastest one is rarely the cheapest. What is there to choose if nothing is left?
#
# </details>
# <details><summary>Worked idea</summary>
#
# One replica takes 0.1 s for 50 images, four take 0.2 s for 200: 500 against 1,000 images per second.
# The speed-up is 2 and the efficiency 2 / 4 = 0.5. For 36,000 images one replica takes 720 steps, 72
# s, and pays for 72 replica-seconds. Four take 180 steps, 36 s, and pay for 144. If 60 s are allowed,
# only four are in time.
#
# </details>


# %% nbgrader={"grade_id": "scaling", "solution": true}
def choose_replicas(replicas, step_seconds, images, images_per_replica, allowed_hours):
    ### BEGIN SOLUTION
    # The replica-hours decide only among the runs in time, so these are picked first. Taking the
    # fastest run instead pays for efficiency that is lost, often twice the money.
    one_seconds = step_seconds[replicas.index(1)]
    speed_ups = [n * one_seconds / t for n, t in zip(replicas, step_seconds)]
    in_time = {}  # replica-hours of each number of replicas
    for n, seconds in zip(replicas, step_seconds):
        steps = -(-images // (n * images_per_replica))
        hours = steps * seconds / 3600
        if hours <= allowed_hours:
            in_time[n] = n * hours
    return {
        "speed_ups": speed_ups,
        "efficiencies": [s / n for s, n in zip(speed_ups, replicas)],
        "choice": min(in_time, key=in_time.get, default=None),
    }
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "scaling-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
scaling_cases = []
for _counts, _in_time, _slow in (
    ((1, 2, 4, 8), 3, 0),
    ((8, 4, 1), 3, 0),
    ((2, 4, 8, 1), 3, 2),
    ((2, 1), 0, 0),
    *((rng.permutation([1, 2, 4, 8]).tolist(), int(k), 0) for k in 1 + rng.permutation(4)[:3]),
):
    _one_seconds, _loss = float(rng.uniform(0.05, 0.4)), float(rng.uniform(0.05, 0.15))
    _seconds = [_one_seconds * (1 + _loss * (n - 1)) * (1.5 if n == _slow else 1) for n in _counts]
    _each, _images = int(rng.integers(16, 65)), int(rng.integers(10**6, 10**7))
    _hours = sorted(_images / n / _each * s / 3600 for n, s in zip(_counts, _seconds))
    _limit = 1.01 * _hours[_in_time - 1] if _in_time else 0.9 * _hours[0]
    scaling_cases.append((list(_counts), _seconds, _images, _each, _limit))
_seconds = [1.0, 1.02, float(rng.uniform(0.88, 0.92))]
scaling_cases.append(([1, 2, 4], _seconds, 64 * int(rng.integers(1, 4)) + 1, 16, 1.0))
### END INPUTS
got_scaling = lab01.SCALING.observe(choose_replicas, scaling_cases)
lab01.SCALING.check(choose_replicas)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab01 import judge as judges

judges.SCALING.judge(scaling_cases, got_scaling)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells: every check cell should print that its worked examples are
# right.
