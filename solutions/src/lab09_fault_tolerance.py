# %% [markdown] shows="Make a killed run finish with the same weights; choose the interval"
# # Lab 09 · Fault tolerance
#
# Your job will be killed one day; whether that costs minutes or a week is decided before. You make
# a killed run finish with the weights it would have had, find the newest checkpoint that is whole,
# and choose how often to save.
#
# **Time:** 50 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# In exercise 1 a real worker process gets a real SIGKILL. The whole group is started again, and
# your function is called again. That check takes some seconds. Lesson 10 has the ideas. Calling
# `utils.simulate` in an answer isn't allowed, and the check notices it.

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import tensorflow as tf
from pathlib import Path

import numpy as np

from distlab.labs.lab09 import exercise as lab09

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: finish in spite of a kill
#
# **4 points · hard · 20 minutes**
#
# **Contract.** `train(state, run, total_steps, every)` runs on each of two workers, and again
# after a restart.
#
# | what it gets | what that is |
# |---|---|
# | `state` | a fresh `tf.train.Checkpoint` with `state.weights` and `state.step`, an integer variable at 0 |
# | `run.take_step()` | trains on the batch of step number `state.step`, and adds 1 to `state.step` |
# | `run.shared_folder` | the folder of the checkpoints that count, a path as a string |
# | `run.write_folder` | where *this* worker writes: the shared folder on worker 0, another one on worker 1 (a string too) |
#
# It takes steps until `total_steps` are done, all attempts together. It saves whenever a multiple
# of `every` steps is done, on all workers. At its start it restores the latest checkpoint, if there
# is one. What it returns does not matter.
#
# **Example.** 7 steps in all, saved every 3, worker 1 killed in step 5: the first attempt takes
# steps 0 to 5; the second restores the checkpoint of 3 steps and takes steps 3 to 6.
#
# <details><summary>Hint 1</summary>
#
# A restarted function begins at its first line. What must it do there?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `tf.train.CheckpointManager(state, run.write_folder, max_to_keep=2)` saves;
# `tf.train.latest_checkpoint(run.shared_folder)` is a path or None; `state.restore(path)` reads.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Counting to 10 through crashes: restore the count; `while count < 10:` count one more; if it is
# now a multiple of 3, save. After a crash at 8 it goes on from 6. A `for` over ten steps would
# count to 16.
#
# </details>


# %% nbgrader={"grade_id": "killed", "solution": true}
def train(state, run, total_steps, every):
    ### BEGIN SOLUTION
    latest = tf.train.latest_checkpoint(run.shared_folder)
    if latest is not None:
        state.restore(latest)
    manager = tf.train.CheckpointManager(state, run.write_folder, max_to_keep=2)
    while int(state.step) < total_steps:
        run.take_step()
        if int(state.step) % every == 0:
            manager.save(checkpoint_number=int(state.step))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "killed-test", "points": 4}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
_every = int(rng.integers(2, 4))
_die_at = 2 * _every + int(rng.integers(0, _every - 1)) + 1
killed_cases = [(int(rng.integers(2**31)), _die_at + int(rng.integers(1, 4)), _every, _die_at)]
### END INPUTS
got_runs = lab09.KILLED.observe(train, killed_cases)
lab09.KILLED.check(train)
### BEGIN HIDDEN TESTS
from distlab.labs.lab09 import judge as judges

judges.KILLED.judge(killed_cases, got_runs)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: cut off in the middle
#
# **3 points · medium · 12 minutes**
#
# A machine went down while a checkpoint was being written. The files are there, but not whole, and
# a program that insists on the newest one fails at every restart.
#
# **Contract.** `newest_whole(folder)` takes the path of a folder, a string. In it are checkpoints
# `ckpt-STEP`, each an `.index` file and a `.data-00000-of-00001` file. It returns the path without
# these endings, `folder/ckpt-STEP`, of the highest step whose values can all be read. There is at
# least one.
#
# **Example.** Of `ckpt-2`, `ckpt-4` and `ckpt-6` the last one's data file is only half there:
# `folder/ckpt-4`.
#
# <details><summary>Hint 1</summary>
#
# Which files of a damaged checkpoint may still look fine? Do not judge by names and sizes: read.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `tf.train.load_checkpoint(path)` opens one; `get_variable_to_shape_map()` lists its names and
# `get_tensor(name)` reads a value. What they raise for damaged files varies: `except Exception`.
#
# </details>
# <details><summary>Worked idea</summary>
#
# To sort files `part-9`, `part-10`: `sorted(names, key=lambda name: int(name.split("-")[1]))`.
# As text, 10 would come before 9.
#
# </details>


# %% nbgrader={"grade_id": "newest", "solution": true}
def newest_whole(folder):
    ### BEGIN SOLUTION
    steps = {int(path.name.split(".")[0].split("-")[1]) for path in Path(folder).glob("ckpt-*")}
    for step in sorted(steps, reverse=True):
        prefix = f"{folder}/ckpt-{step}"
        try:
            reader = tf.train.load_checkpoint(prefix)
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
        except Exception:  # TensorFlow raises errors of many kinds for files that end too soon
            continue
        return prefix
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "newest-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
newest_cases = []
for _cut in ("data", "index", "", "data"):
    _first = int(rng.integers(1, 7)) if _cut != "" else 7
    _steps = [_first, _first + 1, _first + 2, _first + 3 + int(rng.integers(0, 3))]
    newest_cases.append((int(rng.integers(2**31)), _steps, _cut))
newest_cases.append((int(rng.integers(2**31)), [97, 98, 99, 100, 101], "data"))
### END INPUTS
got_newest = lab09.NEWEST.observe(newest_whole, newest_cases)
lab09.NEWEST.check(newest_whole)
### BEGIN HIDDEN TESTS
from distlab.labs.lab09 import judge as judges

judges.NEWEST.judge(newest_cases, got_newest)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: how often to save
#
# **1 point · easy · 6 minutes**
#
# Save too often, and the run mostly writes. Save too rarely, and each failure costs a lot of work.
# Young (1974) found the best time between two checkpoints, if failures are rare.
#
# **Contract.** `best_interval(checkpoint_seconds, mtbf_seconds)` takes the seconds that one
# checkpoint costs and the mean time between failures in seconds. It returns Young's interval in
# seconds, √(2 · checkpoint · mean time between failures).
#
# **Example.** 10 s and 7,200 s (2 hours): 379.5 s.
#
# <details><summary>Hint 1</summary>
#
# Seconds times seconds are seconds squared.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Where does the 2 come from? A failure destroys half an interval on average.
#
# </details>
# <details><summary>Worked idea</summary>
#
# 2 s and 100 s: √(2 × 2 × 100) = √400 = 20 s.
#
# </details>


# %% nbgrader={"grade_id": "interval", "solution": true}
def best_interval(checkpoint_seconds, mtbf_seconds):
    ### BEGIN SOLUTION
    return (2 * checkpoint_seconds * mtbf_seconds) ** 0.5
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "interval-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
interval_cases = [(float(rng.uniform(1, 90)), float(rng.uniform(2e3, 3e5))) for _ in range(4)]
### END INPUTS
got_intervals = lab09.INTERVAL.observe(best_interval, interval_cases)
lab09.INTERVAL.check(best_interval)
### BEGIN HIDDEN TESTS
from distlab.labs.lab09 import judge as judges

judges.INTERVAL.judge(interval_cases, got_intervals)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: what an interval costs
#
# **2 points · medium · 8 minutes**
#
# To first order, you lose two things: the time of writing, once in every interval, and the work
# since the last checkpoint, half an interval on average, once in every mean time between failures.
#
# **Contract.** `lost_share(interval, checkpoint_seconds, mtbf_seconds)` takes three times in
# seconds and returns the share of the time that is lost, a number (0.1 is a tenth).
#
# **Example.** Every 300 s a checkpoint of 10 s, a failure every 7,200 s: 0.0333 + 0.0208 = 0.0542.
#
# <details><summary>Hint 1</summary>
#
# There are two terms: one falls as the interval grows, the other rises.
#
# </details>
# <details><summary>Hint 2</summary>
#
# At the interval of exercise 3 the two terms are equal.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Interval 20 s, checkpoint 2 s, failures every 100 s: 2 / 20 + 10 / 100 = 0.2.
#
# </details>


# %% nbgrader={"grade_id": "loss", "solution": true}
def lost_share(interval, checkpoint_seconds, mtbf_seconds):
    ### BEGIN SOLUTION
    return checkpoint_seconds / interval + interval / 2 / mtbf_seconds
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "loss-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
loss_cases = [
    (float(rng.uniform(60, 4000)), float(rng.uniform(1, 40)), float(rng.uniform(5e3, 1e5)))
    for _ in range(4)
]
### END INPUTS
got_losses = lab09.LOSS.observe(lost_share, loss_cases)
lab09.LOSS.check(lost_share)
### BEGIN HIDDEN TESTS
from distlab.labs.lab09 import judge as judges

judges.LOSS.judge(loss_cases, got_losses)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are
# right.
