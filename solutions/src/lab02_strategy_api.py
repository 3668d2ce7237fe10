# %% [markdown] shows="Place a variable, run and reduce, gather, values from a function"
# # Lab 02 · What a strategy does
#
# A variable made in the wrong place, or a mean of means, gives wrong numbers and often no error.
# Here you do it right: make a variable on every replica, run a function there and bring back one
# number, collect rows, and give each replica its own examples.
#
# **Time:** 35 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# Every function that you write takes a `strategy` as its first argument: a MirroredStrategy with
# two, three or four replicas on logical devices. Use what it offers; do not make one of your own.
# Lesson 02 has the ideas.

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import tensorflow as tf
import numpy as np

from utils.devices import use_logical_devices
from distlab.labs.lab02 import exercise as lab02

print(use_logical_devices(4))

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: a variable on every replica
#
# **2 points · easy · 7 minutes**
#
# **Contract.** `make_variable(strategy, start)` takes a strategy and a number. It returns a
# `tf.Variable`, a scalar of float64 that begins at `start`, with one copy for each replica. When
# every replica calls `assign_add` with its own number, every copy grows by the *mean* of those
# numbers.
#
# **Example.** Three replicas, start 10. Replicas 0, 1 and 2 add 1, 2 and 6: the three copies then
# hold 13, 13 and 13.
#
# <details><summary>Hint 1</summary>
#
# Where do you have to make a variable, so that the strategy sees it?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `tf.Variable` has an argument `aggregation`, a `tf.VariableAggregation`.
#
# </details>
# <details><summary>Worked idea</summary>
#
# This makes a variable that keeps only what replica 0 writes, for example a seed: `with
# strategy.scope(): tf.Variable(7, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)`.
#
# </details>


# %% nbgrader={"grade_id": "variable", "solution": true}
def make_variable(strategy, start):
    ### BEGIN SOLUTION
    with strategy.scope():
        return tf.Variable(start, dtype=tf.float64, aggregation=tf.VariableAggregation.MEAN)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "variable-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
variable_cases = [
    (float(rng.uniform(-50, 50)), rng.uniform(1, 30, size=replicas).tolist()) for replicas in (2, 4)
]
### END INPUTS
got_copies = lab02.VARIABLE.observe(make_variable, variable_cases)
lab02.VARIABLE.check(make_variable)
### BEGIN HIDDEN TESTS
from distlab.labs.lab02 import judge as judges

judges.VARIABLE.judge(variable_cases, got_copies)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: one mean from unequal shares
#
# **3 points · medium · 10 minutes**
#
# **Contract.** `global_mean(strategy, values)` takes a strategy and per-replica values: each
# replica holds a tensor `[share]` of float64, and the shares have different lengths, 1 or more.
# It returns one number, the mean over *all* numbers of all replicas, as a Python number or a
# scalar tensor.
#
# **Example.** Replica 0 holds 1, 2 and 3, replica 1 holds 10: the mean is 16 / 4 = 4.
#
# <details><summary>Hint 1</summary>
#
# `strategy.run(function, args=(values,))` calls the function on every replica, with that
# replica's own tensor.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `strategy.reduce(tf.distribute.ReduceOp.SUM, result, axis=None)` adds up one value from each
# replica, and these must have the same shape. Which two sums do you need?
#
# </details>
# <details><summary>Worked idea</summary>
#
# Shares (2, 4) and (6,): the sums are 6 and 6, the counts 2 and 1. 12 / 3 = 4. The mean of the
# means would be (3 + 6) / 2 = 4.5: the single number would count double.
#
# </details>


# %% nbgrader={"grade_id": "mean", "solution": true}
def global_mean(strategy, values):
    ### BEGIN SOLUTION
    def sum_and_count(share):
        return tf.reduce_sum(share), tf.size(share, out_type=tf.int64)

    sums, counts = strategy.run(sum_and_count, args=(values,))
    total = strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)
    count = strategy.reduce(tf.distribute.ReduceOp.SUM, counts, axis=None)
    return total / tf.cast(count, total.dtype)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "mean-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
mean_cases = [
    ([rng.uniform(0, 100, size=share).tolist() for share in shares],)
    for shares in ((5, 1), (2, 7, 3), (1, 2, 3, 9))
]
### END INPUTS
got_means = lab02.MEAN.observe(global_mean, mean_cases)
lab02.MEAN.check(global_mean)
### BEGIN HIDDEN TESTS
from distlab.labs.lab02 import judge as judges

judges.MEAN.judge(mean_cases, got_means)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: all rows in one place
#
# **2 points · easy · 6 minutes**
#
# **Contract.** `collect(strategy, rows)` takes a strategy and per-replica values: each replica
# holds a tensor `[share, 2]` of float64, for instance predictions. It returns one tensor or array
# `[all rows, 2]`: the rows of replica 0, then those of replica 1, and so on.
#
# **Example.** Replica 0 holds the rows (1, 2), (3, 4), replica 1 (5, 6), (7, 8): four rows, in
# this order.
#
# <details><summary>Hint 1</summary>
#
# `reduce` makes one value out of many. Which call puts values one after the other?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Examples lie along axis 0.
#
# </details>
# <details><summary>Worked idea</summary>
#
# `strategy.experimental_local_results(value)` is a tuple with one tensor for each replica of this
# process, in the order of the replicas. With that and `tf.concat` you can do by hand what the
# strategy has a method for.
#
# </details>


# %% nbgrader={"grade_id": "collect", "solution": true}
def collect(strategy, rows):
    ### BEGIN SOLUTION
    return strategy.gather(rows, axis=0)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "collect-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
collect_cases = [
    (rng.uniform(0, 100, size=(replicas, share, 2)).tolist(),)
    for replicas, share in ((2, 3), (4, 2))
]
### END INPUTS
got_rows = lab02.COLLECT.observe(collect, collect_cases)
lab02.COLLECT.check(collect)
### BEGIN HIDDEN TESTS
from distlab.labs.lab02 import judge as judges

judges.COLLECT.judge(collect_cases, got_rows)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: to each its own
#
# **3 points · medium · 10 minutes**
#
# **Contract.** `deal_out(strategy, examples)` takes a strategy and a number of examples, at least
# as many as replicas. It returns per-replica values: the ids 0, 1, … `examples - 1`, dealt out like
# cards, as integer tensors. With R replicas, replica k holds k, k + R, k + 2 R and so on.
#
# **Example.** 8 examples over 3 replicas: (0, 3, 6), (1, 4, 7) and (2, 5).
#
# <details><summary>Hint 1</summary>
#
# `strategy.experimental_distribute_values_from_function(function)` calls the function once for
# each replica.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The function gets a context with `replica_id_in_sync_group` and `num_replicas_in_sync`. `tf.range`
# takes a start, an end and a step.
#
# </details>
# <details><summary>Worked idea</summary>
#
# With 2 replicas and 5 examples, replica 0 holds 0, 2, 4 and replica 1 holds 1, 3: two ranges
# with the same step and different starts.
#
# </details>


# %% nbgrader={"grade_id": "deal", "solution": true}
def deal_out(strategy, examples):
    ### BEGIN SOLUTION
    def take_own(context):
        return tf.range(context.replica_id_in_sync_group, examples, context.num_replicas_in_sync)

    return strategy.experimental_distribute_values_from_function(take_own)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "deal-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
deal_cases = [(replicas, int(rng.integers(9, 40))) for replicas in (2, 3, 4)]
### END INPUTS
got_ids = lab02.DEAL.observe(deal_out, deal_cases)
lab02.DEAL.check(deal_out)
### BEGIN HIDDEN TESTS
from distlab.labs.lab02 import judge as judges

judges.DEAL.judge(deal_cases, got_ids)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel and run all cells: every check cell should print that its worked examples are
# right.
