# %% [markdown] shows="Claim shards so that no kill loses or doubles a row; stop bad trials early; merge outputs and find the damaged one"
# # Lab 18 · Many small jobs
#
# Most days, several machines don't train one model. They predict a large data set, or try forty learning
# rates. No worker waits for another, so there's no cluster to set up and no all-reduce to understand. What
# goes wrong is duller, and more expensive: a worker dies, its shard is missing, and nobody notices for a
# week. You write the three parts that keep such jobs honest.
#
# **Time:** 55 minutes · **Points:** 10 · **Hardware:** any computer with Linux or macOS; nothing here starts TensorFlow
#
# The programs [batch_prediction.py](../examples/batch_prediction.py) and
# [hyperparameter_search.py](../examples/hyperparameter_search.py) do the same with a real model.
#
# {{absent}}

# %%
import numpy as np

from distlab.labs.lab18 import exercise as lab18

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: predict shards, whichever worker dies
#
# **3 points · hard · 25 minutes**
#
# **Contract.** `work(shards, output, predict)` is called in several processes at the same time, with the same
# arguments.
#
# | argument | what it is |
# |---|---|
# | `shards` | a list of paths, as strings. Each is a `.npy` file with rows `[rows, 4]` |
# | `output` | a folder, as a string. All workers see it; at first it's empty |
# | `predict(rows)` | takes 1 to 16 rows, `[rows, 4]`, and returns their predictions, `[rows]`. It's slow |
#
# For each shard, a file with the same name appears in `output`: the predictions of all its rows, `[rows]`,
# in their order. `work` returns `None` once all shards are done, whichever worker did them. Between them,
# the workers predict each row once. You may put other files into `output`.
#
# We run it in three ways. In the first, two workers start together. In the second, one of two is killed
# (SIGKILL) inside `predict`, and the other one has to finish everything. In the third, a worker dies in the middle
# of writing its first output, as with a power cut; then another one is started. After a death, only the shard
# that was lost may be predicted again. Each worker has 8 seconds.
#
# **Example.** Worker 0 holds `s2.npy` when it's killed. Worker 1 has done all the others by then. It notices
# that worker 0 is gone, predicts `s2.npy` from its first row on, and returns.
#
# <details><summary>Hint 1</summary>
#
# How does worker 1 learn that worker 0 is dead, and doesn't just take long? Is there something that the operating
# system takes away from a process that dies?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)` raises `BlockingIOError` if another process has the lock, and
# the lock goes when its owner dies. `os.rename` puts a finished file under its final name in one step. What may
# have happened between your look at the folder and the moment you got the lock?
#
# </details>
# <details><summary>Worked idea</summary>
#
# A kitchen with a list of orders on the wall. A cook pins a name tag on an order, cooks it, and puts the plate on
# the counter only when it's complete. When a cook leaves, the tag goes along. A cook who has nothing to do looks at
# the wall again, until all plates are on the counter.
#
# </details>


# %% nbgrader={"grade_id": "work", "solution": true}
def work(shards, output, predict):
    ### BEGIN SOLUTION
    # A lock rather than a file that says "mine": the file would outlive a killed worker, and its shard would
    # wait forever. Only the rename makes an output count, so a half-written one never does. The first round
    # takes what nobody has; the second waits for each lock, as its owner finishes or dies.
    import fcntl
    import os

    for mode in (fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_EX):
        for shard in shards:
            final = os.path.join(output, os.path.basename(shard))
            with open(final + ".lock", "w") as lock:
                try:
                    fcntl.flock(lock, mode)
                except BlockingIOError:
                    continue
                if os.path.exists(final):
                    continue  # done before we had the lock
                rows = np.load(shard)
                parts = [predict(rows[k : k + 16]) for k in range(0, len(rows), 16)]
                with open(final + ".part", "wb") as file:
                    np.save(file, np.concatenate(parts))
                os.rename(final + ".part", final)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "work-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
work_cases = [(how, int(rng.integers(10, 2**31))) for how in ("together", "killed", "cut")]
### END INPUTS
got_outputs = lab18.WORK.observe(work, work_cases)
lab18.WORK.check(work)
### BEGIN HIDDEN TESTS
from distlab.labs.lab18 import judge as judges

judges.WORK.judge(work_cases, got_outputs)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: stop bad trials early
#
# **4 points · medium · 15 minutes**
#
# Most trials of a search are hopeless after an epoch. Successive halving stops the worse half of them, lets
# the rest train twice as long, halves again, and so on.
#
# **Contract.** `halve(losses, first)` takes a table: `losses[trial][k]` is the loss of a trial after `k + 1`
# epochs. All rows are equally long, `first` · 2 · 2 · … epochs. All trials run for `first` epochs. Then the
# better half continues until `first` · 2 epochs. The better half of that half continues until `first` · 4, and so on, to the end
# of the table. Half of an odd number is rounded down, but at least one trial continues. A lower loss is better; nan is worse than any
# number, and of two equal ones the lower trial number is better. Return two things: a list with the number of
# epochs that each trial ran, and the number of the best trial, by its last loss, of those that ran to the end.
#
# **Example.** Four trials, `first` is 1, losses after each epoch: `[0.9, 0.5]`, `[0.7, 0.6]`, `[0.8, 0.4]`, `[1.0, 0.1]`.
# After one epoch, trials 1 and 2 continue. They end with 0.6 and 0.4, so the result is `[1, 2, 2, 1], 2`. Trial 3 would have been the best
# one. That's the price.
#
# <details><summary>Hint 1</summary>
#
# At each rung you need two things: who is left, and after how many epochs you compare.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `sorted` with a key that is a pair, such as (is it nan?, the loss), puts nan last and keeps the order of equal
# ones. With nan, `<`, `>` and `==` are always False, so sorting the losses alone leads nowhere.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Three trials, `first` is 2, the table has four epochs. After two epochs the losses are 0.8, 0.5 and nan. One of three
# continues, since 3 // 2 is 1: trial 1. It runs to epoch 4 and wins without a rival: `[2, 4, 2], 1`. Had all three been
# nan, trial 0 would have continued.
#
# </details>


# %% nbgrader={"grade_id": "halve", "solution": true}
def halve(losses, first):
    ### BEGIN SOLUTION
    # Only the loss after the rung's last epoch counts, and only among those still running: a stopped trial
    # has no later loss in a real search, even if this table knows one. A plain sort leaves nan anywhere,
    # since nan is neither smaller nor larger than any number, so nan gets the last places here.
    def rank(trial):
        loss = losses[trial][epochs - 1]
        return loss != loss, loss  # nan is the one number that differs from itself

    left, epochs, ran = list(range(len(losses))), first, [0] * len(losses)
    while True:
        for trial in left:
            ran[trial] = epochs
        left = sorted(left, key=rank)
        if epochs == len(losses[0]):
            return ran, left[0]
        left = sorted(left[: max(1, len(left) // 2)])
        epochs *= 2
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "halve-test", "points": 4}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
halve_cases = [
    (int(rng.integers(10, 2**31)), trials, first, rungs)
    for trials, first, rungs in [
        (8, 1, 4),
        (7, 2, 3),
        (13, 1, 3),
        (16, 3, 4),
        (5, 1, 4),
        (11, 2, 2),
        (12, 1, 2),
    ]
]
### END INPUTS
got_halved = lab18.HALVE.observe(halve, halve_cases)
lab18.HALVE.check(halve)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab18 import judge as judges

judges.HALVE.judge(halve_cases, got_halved)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: a merge that notices damage
#
# **3 points · medium · 15 minutes**
#
# **Contract.** `merge(folder)` puts outputs together. `folder` is a path, a string. The file `manifest.json` in `folder` has two entries:
# `"rows"`, the number of all rows, and `"parts"`, a list in no particular order. Each part has its `"file"` (a name in the
# folder), the `"first_row"` and the number of `"rows"` that it holds, and the `"sha256"` of the file's bytes, as a hexadecimal string. The
# files are `.npy` files with floats, `[rows]`. A part is damaged if its file is missing or has other bytes than when it
# was written. Return two things: an array with the value of each row at its place, nan for rows of damaged
# parts; and a list of the names of the damaged files, in any order.
#
# **Example.** Two parts: `b.npy` with 2 rows from row 0 on and `a.npy` with 1 row from row 2 on. `b.npy` was cut. The
# result is `[nan, nan, 7.5], ["b.npy"]`.
#
# <details><summary>Hint 1</summary>
#
# Which of a file's properties change if a single bit of it does?
#
# </details>
# <details><summary>Hint 2</summary>
#
# What does a row hold that no intact part has written? As for the digest, Python's `hashlib` takes bytes. If you read a
# file's bytes once, you can check them and load the array from the very same ones: `np.load` takes an `io.BytesIO`, too.
#
# </details>
# <details><summary>Worked idea</summary>
#
# A bookbinder gets chapters with their first page number. A chapter whose seal is broken is left out, and its pages
# stay blank. The next chapter still begins on its own page.
#
# </details>


# %% nbgrader={"grade_id": "merge", "solution": true}
def merge(folder):
    ### BEGIN SOLUTION
    # The bytes are read once, and the digest is taken of just what is parsed. A check of the size, or of the
    # rows, would let through a part with a single wrong bit.
    import hashlib
    import io
    import json
    import pathlib

    manifest = json.loads(pathlib.Path(folder, "manifest.json").read_text())
    values, damaged = np.full(manifest["rows"], np.nan), []
    for part in manifest["parts"]:
        path = pathlib.Path(folder, part["file"])
        data = path.read_bytes() if path.exists() else b""
        if hashlib.sha256(data).hexdigest() != part["sha256"]:
            damaged.append(part["file"])
            continue
        first = part["first_row"]
        values[first : first + part["rows"]] = np.load(io.BytesIO(data))
    return values, damaged
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "merge-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
merge_cases = [(int(rng.integers(10, 2**31)), int(rng.integers(11, 16))) for _ in range(3)]
### END INPUTS
got_merged = lab18.MERGE.observe(merge, merge_cases)
lab18.MERGE.check(merge)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab18 import judge as judges

judges.MERGE.judge(merge_cases, got_merged)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are
# right.
