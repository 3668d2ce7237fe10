# %% [markdown] shows="A variable on every replica, moments from unequal shares, predictions in order, a meter"
# # Lab 02 · What a strategy does
#
# A variable made in the wrong place, a mean of means or predictions in another order give wrong
# numbers and often no error. Here you do it right: make variables on every replica, bring numbers
# from unequal shares together, and predict many rows on all replicas without mixing them up.
#
# **Time:** 50 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# Every function that you write takes a `strategy` as its first argument: a MirroredStrategy with
# two, three or four replicas on logical devices. Use what it offers; don't make your own.
# Lesson 02 has the ideas.
#
# {{absent}}

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
# **1 point · easy · 6 minutes**
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
# A seed that only replica 0 may change would be made in the same place, with the aggregation that
# keeps the first replica's value. Which aggregation makes 3 of the additions 1, 2 and 6?
#
# </details>


# %% nbgrader={"grade_id": "variable", "solution": true}
def make_variable(strategy, start):
    ### BEGIN SOLUTION
    # The scope makes the copies, and the aggregation says what becomes of different additions.
    # Made outside, there is one variable for all, and nothing warns.
    with strategy.scope():
        return tf.Variable(start, dtype=tf.float64, aggregation=tf.VariableAggregation.MEAN)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "variable-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
variable_cases = [
    (float(rng.uniform(-50, 50)), rng.uniform(1, 30, size=replicas).tolist()) for replicas in (2, 4)
]
### END INPUTS
got_copies = lab02.VARIABLE.observe(make_variable, variable_cases)
lab02.VARIABLE.check(make_variable)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab02 import judge as judges

judges.VARIABLE.judge(variable_cases, got_copies)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: mean and spread of unequal shares
#
# **3 points · medium · 14 minutes**
#
# **Contract.** `global_moments(strategy, values)` takes a strategy and per-replica values: each
# replica holds a tensor `[share]` of float64, and the shares have different lengths, 1 or more. It
# returns two numbers over *all* numbers of all replicas: their mean, and their standard deviation
# (the square root of the mean squared distance from the mean). Python numbers, scalar tensors or an
# array of two will do.
#
# **Example.** Replica 0 holds 1, 2 and 3, replica 1 holds 10: the mean is 16 / 4 = 4, and the
# deviation is the root of (9 + 4 + 1 + 36) / 4, which is 3.54.
#
# <details><summary>Hint 1</summary>
#
# `strategy.run(function, args=(values,))` calls the function on every replica, with that replica's
# own tensor. What can a replica compute from its share alone, that is of use to all?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `strategy.reduce` makes one number of a number from each replica. Distances count from the mean of
# all, which the replicas don't know at first: either tell them in a second run, or find a formula
# that doesn't need it.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Shares (2, 4) and (6,): the sums are 6 and 6, the counts 2 and 1, and 12 / 3 = 4. The mean of the
# means would be (3 + 6) / 2 = 4.5: the single number would count double. The squared distances from
# 4 are 4, 0 and 4. From the replicas' own means they are 1, 1 and 0, and miss how far apart those are.
#
# </details>


# %% nbgrader={"grade_id": "moments", "solution": true}
def global_moments(strategy, values):
    ### BEGIN SOLUTION
    # Sums, squares and counts of a share add up, whatever its length; means and deviations don't.
    # Averaging the replicas' deviations leaves out the distance between their means.
    def sum_up(share):
        count = tf.cast(tf.size(share), share.dtype)
        return tf.stack([tf.reduce_sum(share), tf.reduce_sum(share**2), count])

    parts = strategy.run(sum_up, args=(values,))
    total, squares, count = strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None).numpy()
    mean = total / count
    return mean, np.sqrt(squares / count - mean**2)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "moments-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
moments_cases = [
    ([rng.uniform(0, 100, size=share).tolist() for share in shares],)
    for shares in ((5, 1), (2, 7, 3), (1, 2, 3, 9))
]
### END INPUTS
got_moments = lab02.MOMENTS.observe(global_moments, moments_cases)
lab02.MOMENTS.check(global_moments)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab02 import judge as judges

judges.MOMENTS.judge(moments_cases, got_moments)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: predict on all replicas, in order
#
# **4 points · hard · 18 minutes**
#
# You have many rows and a model on every replica. Each replica predicts a part of the rows. What
# comes back has to be in the order of the rows, or predictions end up at the wrong row.
#
# **Contract.** `predict_in_order(strategy, predict, rows)` takes a strategy, a function for one
# replica, and a NumPy array `[n, 2]` of float64 with at least as many rows as replicas. Rows are
# dealt out like cards: with R replicas, replica k gets the rows k, k + R, k + 2 R and so on.
# `predict(share)` takes a tensor `[share, 2]` and returns one of the same shape. It returns an array
# or tensor `[n, 2]`: the prediction for each row, in the order of `rows`.
#
# **Example.** Say `predict` makes (a + 2 b, k) of a row (a, b), where k is the replica that it runs on
# (each trial has another number in place of the 2). The rows (1, 2), (3, 4), (5, 6), (7, 8), (9, 0) on
# two replicas become (5, 0), (11, 1), (17, 0), (23, 1), (9, 0).
#
# <details><summary>Hint 1</summary>
#
# `strategy.experimental_distribute_values_from_function(function)` calls the function once for each
# replica, with a context that knows the replica's number, and makes per-replica values of the
# results. `strategy.experimental_local_results(value)` is a tuple with each replica's own.
#
# </details>
# <details><summary>Hint 2</summary>
#
# A slice with a step picks every R-th row. It can stand on either side of an assignment.
#
# </details>
# <details><summary>Worked idea</summary>
#
# With 2 replicas and 5 rows, replica 0 gets the rows 0, 2, 4 and replica 1 the rows 1, 3. If replica
# 0's predictions are A, C, E and replica 1's B, D, the result is A, B, C, D, E. Put one after the other
# they would be A, C, E, B, D: four of five predictions for the wrong row.
#
# </details>


# %% nbgrader={"grade_id": "predict", "solution": true}
def predict_in_order(strategy, predict, rows):
    ### BEGIN SOLUTION
    # The slice that deals the rows out also puts the predictions back, so the two can't disagree.
    # gather() would put replica 1's predictions behind all of replica 0's.
    replicas = strategy.num_replicas_in_sync

    def take_own(context):
        return tf.constant(rows[context.replica_id_in_sync_group :: replicas])

    shares = strategy.experimental_distribute_values_from_function(take_own)
    found = strategy.run(predict, args=(shares,))
    merged = np.empty_like(rows)
    for replica, part in enumerate(strategy.experimental_local_results(found)):
        merged[replica::replicas] = part
    return merged
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "predict-test", "points": 4}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
predict_cases = [
    (
        replicas,
        rng.integers(0, 50, size=(int(n), 2)).astype(float).tolist(),
        float(rng.uniform(3, 9)),
    )
    for replicas, n in ((2, rng.integers(4, 9) * 2 + 1), (3, rng.integers(3, 6) * 3 + 2), (4, 10))
]
### END INPUTS
got_predictions = lab02.PREDICT.observe(predict_in_order, predict_cases)
lab02.PREDICT.check(predict_in_order)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab02 import judge as judges

judges.PREDICT.judge(predict_cases, got_predictions)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: a meter that every replica feeds
#
# **2 points · medium · 12 minutes**
#
# A metric is fed on every replica, batch after batch, and read once in a while. You write a small one.
#
# **Contract.** `make_meter(strategy)` returns two functions. `add(values)` is called on every replica,
# inside `strategy.run`, once for each batch, with this replica's own tensor `[share]` of float64.
# It returns nothing. `read()` is called outside, and returns two numbers over everything that
# all replicas have added so far: how many numbers, and their mean. Before anything is added both are 0.
#
# **Example.** Replica 0 adds 1, 2, 3 and replica 1 adds 10: `read()` returns 4 and 4. They add 5 and
# 7, 9: it returns 7 and 37 / 7.
#
# <details><summary>Hint 1</summary>
#
# What has to be remembered between two calls of `add`, so that a mean can be made of it at any time?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Exercise 1 has a variable whose copies come together at every assignment, as a mean. Here they should
# add up. It's enough if they do so on reading: `tf.VariableSynchronization` has a value for that. What
# happens if `add` uses an all-reduce as well?
#
# </details>
# <details><summary>Worked idea</summary>
#
# After the first batch, the replicas' sums are 6 and 10 and their counts 3 and 1. After the second, the
# sums are 11 and 26 and the counts 4 and 3. They are added up only on reading: 37 and 7.
#
# </details>


# %% nbgrader={"grade_id": "meter", "solution": true}
def make_meter(strategy):
    ### BEGIN SOLUTION
    # A sum and a count can be added to batch after batch; the division waits until someone reads.
    # Keeping a mean of the batches' means would forget how many numbers each had.
    def make_total():
        return tf.Variable(
            0.0,
            dtype=tf.float64,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    with strategy.scope():
        total, count = make_total(), make_total()

    def add(values):
        total.assign_add(tf.reduce_sum(values))
        count.assign_add(tf.cast(tf.size(values), tf.float64))

    def read():
        numbers = count.numpy()
        return numbers, total.numpy() / max(numbers, 1)

    return add, read
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "meter-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
meter_cases = [
    tuple([rng.uniform(0, 9, size=n).tolist() for n in shares] for shares in calls)
    for calls in (((2, 1), (1, 3), (4, 4)), ((1, 2, 5), (3, 1, 1)), ((2, 2, 2, 1), (1, 1, 1, 3)))
]
### END INPUTS
got_meters = lab02.METER.observe(make_meter, meter_cases)
lab02.METER.check(make_meter)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab02 import judge as judges

judges.METER.judge(meter_cases, got_meters)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells: every check cell should print that its worked examples are
# right.
