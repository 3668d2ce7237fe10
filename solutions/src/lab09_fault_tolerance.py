# %% [markdown] shows="Make a killed run finish with the same weights; find the newest intact checkpoint; choose the interval by replaying failures"
# # Lab 09 · Fault tolerance
#
# Your job will be killed one day. Whether that costs minutes or a week is decided before it happens.
# You make a killed run finish with the weights it would have had, find the newest checkpoint that is
# intact, and choose how often to save.
#
# **Time:** 55 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# In exercise 1 a real worker process gets a real SIGKILL. Then the whole group is started again, and
# your function is called again. That check takes some seconds. The grading also counts the bytes
# that the workers send: results alone aren't enough. Lesson 10 has the ideas. Answers may not call
# `utils.simulate`: the check notices it.
#
# {{absent}}

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import tensorflow as tf
from pathlib import Path

import numpy as np

from distlab.labs.lab09 import exercise as lab09
from utils.devices import use_logical_devices

# %%
use_logical_devices(1)  # the CPU, on a machine with GPUs too
SEED = 2026

# %% [markdown]
# ## Exercise 1: finish in spite of a kill
#
# **3 points · hard · 20 minutes**
#
# **Contract.** `train(state, run, total_steps, every)` runs on each of two workers, and again
# after a restart. By then worker 1 is on another machine, and the files that it had written itself
# are lost.
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
# is one. What it returns doesn't matter.
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
# A `tf.train.CheckpointManager` saves, `tf.train.latest_checkpoint` finds a path or None, and
# `state.restore` reads. Which of the two folders does each of them get?
#
# </details>
# <details><summary>Worked idea</summary>
#
# Counting to 10 through crashes: restore the count; as long as it is below 10, count one more, and
# save it if it's now a multiple of 3. After a crash at 8 the count resumes from 6. A `for` over ten
# steps would count to 16.
#
# </details>


# %% nbgrader={"grade_id": "killed", "solution": true}
def train(state, run, total_steps, every):
    ### BEGIN SOLUTION
    # Both workers restore what worker 0 has saved, because a lost machine takes its own files along.
    # The loop asks state.step instead of counting: a for over total_steps would begin at 0 again.
    latest = tf.train.latest_checkpoint(run.shared_folder)
    if latest is not None:
        state.restore(latest)
    manager = tf.train.CheckpointManager(state, run.write_folder, max_to_keep=2)
    while int(state.step) < total_steps:
        run.take_step()
        if int(state.step) % every == 0:
            manager.save(checkpoint_number=int(state.step))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "killed-test", "points": 3}
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
# A machine went down while a checkpoint was being written, or a disk has lost a block. The files are
# there, but not intact, and a program that insists on the newest one fails at every restart.
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
# Which files of a damaged checkpoint may still look fine? Names, times and sizes tell you little. Read
# the values.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `tf.train.load_checkpoint(path)` opens one; `get_variable_to_shape_map()` lists its names and
# `get_tensor(name)` reads a value, and compares its checksum. What they raise for damaged files varies:
# what do you catch?
#
# </details>
# <details><summary>Worked idea</summary>
#
# Of `part-8`, `part-9` and `part-10`, the last one is cut off: try 10, then 9, then 8, and stop at the
# first that can be read. Sort by the numbers: as text, `part-10` comes before `part-9`.
#
# </details>


# %% nbgrader={"grade_id": "newest", "solution": true}
def newest_whole(folder):
    ### BEGIN SOLUTION
    # Every value is read, since only its checksum tells whether it's intact. latest_checkpoint would
    # believe a file that names the newest one, and an index can be fine while its data are cut off.
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
for _cut in rng.permutation(["data", "data", "index", "block", "", ""]).tolist():
    _first = int(rng.integers(1, 8))
    _steps = [_first, _first + 1, _first + 2, _first + 3 + int(rng.integers(0, 3))]
    newest_cases.append((int(rng.integers(2**31)), _steps, _cut))
_cut = "data" if rng.random() < 0.5 else ""
newest_cases.append((int(rng.integers(2**31)), [97, 98, 99, 100, 101], _cut))
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
# **4 points · hard · 23 minutes**
#
# Save too often, and the run mostly writes. Save too rarely, and each failure costs a lot of work.
# How often is best for *your* machines? Take the times at which they failed in the past, replay your
# run against them, and see.
#
# **Contract.** `choose_every(candidates, histories, total_steps, step_seconds, save_seconds,
# restart_seconds)`. A history is a rising list of times, in seconds on the clock, at which the run
# fails. Replay a run for each candidate and each history:
#
# - It begins at time 0 with step 1. A step takes `step_seconds`. Whenever a multiple of `every` steps is
#   done, it saves, which takes `save_seconds`. It is finished when its last step is done (nothing is
#   saved after that).
# - A failure stops what is under way. A checkpoint counts only if its save had ended. A restart takes
#   `restart_seconds`, and then the run resumes from its last checkpoint, or from step 1 if it has none.
# - A failure during a restart makes the restart begin anew. Failures after the end cost nothing.
#
# It returns a dictionary: `"seconds"`, a list with the mean seconds of a run over all histories for each
# candidate, and `"every"`, the candidate with the fewest. (No failure comes at the very moment at which
# something ends.)
#
# **Example.** 40 steps of 10 s, saves of 12 s after every 5, restarts of 45 s. Without a failure: 400 s
# and 7 saves, 484 s. With one at 57.5 s, in the first save: back to step 1 at 102.5 s, 586.5 s in all.
#
# <details><summary>Hint 1</summary>
#
# Keep four things: the clock, the steps done, the steps saved, and the failures still to come.
#
# </details>
# <details><summary>Hint 2</summary>
#
# At any moment one thing is under way, a step or a save. When will it end? If the next failure comes
# first, nothing of it has happened.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Steps of 10 s, every 2, saves of 3 s, restarts of 5 s, a failure at 30 s, 4 steps: steps until 20 s,
# saved at 23 s, the third step would end at 33 s. Restarted at 35 s with 2 steps done: steps until 55 s,
# and that is the end.
#
# </details>


# %% nbgrader={"grade_id": "interval", "solution": true}
def choose_every(candidates, histories, total_steps, step_seconds, save_seconds, restart_seconds):
    ### BEGIN SOLUTION
    # One loop asks at each moment what is under way and whether a failure comes before its end, so
    # that steps, saves and restarts all follow one rule. Adding up "half an interval for each failure"
    # is right only on average, and wrong for failures in a save or a restart.
    def replay(every, failures):
        clock, done, saved, waiting = 0.0, 0, 0, list(failures)
        while done < total_steps:
            saving = done > saved and done % every == 0
            end = clock + (save_seconds if saving else step_seconds)
            if not waiting or end < waiting[0]:
                clock = end
                saved, done = (done, done) if saving else (saved, done + 1)
                continue
            clock, done = waiting.pop(0) + restart_seconds, saved
            while waiting and waiting[0] < clock:
                clock = waiting.pop(0) + restart_seconds
        return clock

    seconds = [np.mean([replay(every, history) for history in histories]) for every in candidates]
    return {"every": candidates[int(np.argmin(seconds))], "seconds": seconds}
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "interval-test", "points": 4}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
interval_cases = []
for _mtbf in (150, 400, 1500):
    _step, _save, _restart = (
        float(rng.integers(*_range)) for _range in ((5, 15), (9, 40), (30, 90))
    )
    _histories = [np.cumsum(rng.exponential(_mtbf, size=12)).tolist() for _ in range(4)]
    _cut = 2 * _step + _save / 2 + 0.25  # when nothing ends
    _histories.append([_cut, _cut + _restart / 3])
    interval_cases.append(([1, 2, 6, 15, 60], _histories, 60, _step, _save, _restart))
### END INPUTS
got_intervals = lab09.INTERVAL.observe(choose_every, interval_cases)
lab09.INTERVAL.check(choose_every)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab09 import judge as judges

judges.INTERVAL.judge(interval_cases, got_intervals)
### END HIDDEN TESTS

# %% [markdown]
# Young (1974) found the best time between two checkpoints for failures that are rare and come at
# random: √(2 · save · mean time between failures). Put in your numbers. How far is it from your replay's
# best candidate, and what does the formula leave out?

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are
# right.
