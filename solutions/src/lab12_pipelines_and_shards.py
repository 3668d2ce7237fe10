# %% [markdown] shows="Split a layer; write a 1F1B schedule; judged by bubble and memory"
# # Lab 12 · Pipelines and shards
#
# A split layer that forgets one sum still runs, with the wrong gradient, and nothing complains.
# Here you write both splits yourself, with the gradients of the whole layer. Then you write the 1F1B
# schedule, and work out how many micro-batches a pipeline needs.
#
# **Time:** 50 minutes · **Points:** 10 · **Hardware:** any computer; nothing here starts TensorFlow
#
# In exercises 1 and 2 you compute in NumPy what all devices compute, one part after the other:
# forward and backward by hand. The layer is y = x W + b, with x `[batch, inputs]`, W `[inputs,
# outputs]` and b `[outputs]`. If g is the gradient for y, the gradient for W is xᵀ g, the one for b
# is the sum of g over the batch, and the one for x is g Wᵀ. In exercise 3 the judge's own simulator
# runs your schedule. Lessons 15 and 16 have the ideas. Write your own: calling `utils.schedules`,
# `utils.simulate` or `utils.parallel` in an answer isn't allowed, and the check notices it. They are
# there to read afterwards.

# %%
import numpy as np

from distlab.labs.lab12 import exercise as lab12

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: split by columns
#
# **3 points · medium · 13 minutes**
#
# **Contract.** `column_layer(x, kernels, biases, upstream)` takes x `[batch, inputs]`, a list of
# kernels `[inputs, own columns]`, one for each device, a list of biases `[own columns]`, and the
# gradient for the whole output, `[batch, outputs]`. It returns four things: the whole output
# `[batch, outputs]`; a list with each kernel's gradient, in that kernel's shape; a list with each
# bias's gradient, in that bias's shape; the gradient for x, one array `[batch, inputs]`. The parts
# may have different numbers of columns.
#
# **Example.** Ten columns as five and five: device 0 computes columns 0 to 4 of the output.
#
# <details><summary>Hint 1</summary>
#
# Which columns of `upstream` belong to which device?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Every device has used all of x. If something is used twice, what happens to its two gradients?
#
# </details>
# <details><summary>Worked idea</summary>
#
# x = (2), kernels (3) and (5), biases 0, upstream (1, 10): the output is (6, 10); the gradient for x
# is 1 × 3 + 10 × 5 = 53. Device 0 knows the 3, device 1 the 50: an all-reduce adds them.
#
# </details>


# %% nbgrader={"grade_id": "columns", "solution": true}
def column_layer(x, kernels, biases, upstream):
    ### BEGIN SOLUTION
    edges = np.cumsum([kernel.shape[1] for kernel in kernels])[:-1]
    shares = np.split(upstream, edges, axis=1)  # [device][batch, own columns]
    output = np.concatenate([x @ w + b for w, b in zip(kernels, biases)], axis=1)
    kernel_gradients = [x.T @ share for share in shares]
    bias_gradients = [share.sum(axis=0) for share in shares]
    x_gradient = sum(share @ w.T for share, w in zip(shares, kernels))
    return output, kernel_gradients, bias_gradients, x_gradient
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "columns-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
column_cases = [
    (int(rng.integers(2**31)), int(rng.integers(2, 6)), rng.integers(1, 6, size=parts).tolist())
    for parts in (2, 3, 4)
]
### END INPUTS
got_columns = lab12.COLUMNS.observe(column_layer, column_cases)
lab12.COLUMNS.check(column_layer)
### BEGIN HIDDEN TESTS
from distlab.labs.lab12 import judge as judges

judges.COLUMNS.judge(column_cases, got_columns)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: split by rows
#
# **3 points · medium · 12 minutes**
#
# **Contract.** `row_layer(parts, kernels, bias, upstream)` takes a list with each device's columns
# of x, `[batch, own inputs]`, a list of kernels `[own inputs, outputs]`, the whole bias
# `[outputs]`, and the gradient for the output, `[batch, outputs]`. It returns four things: the
# output `[batch, outputs]`; a list with each kernel's gradient, in that kernel's shape; the bias's
# gradient `[outputs]`; a list with the gradient for each part of x, in that part's shape. The parts
# may have different numbers of inputs.
#
# **Example.** Ten inputs as five and five: each device computes a part of *every* sum.
#
# <details><summary>Hint 1</summary>
#
# A product of two matrices is a sum over the inner index. Here that sum is cut in two.
#
# </details>
# <details><summary>Hint 2</summary>
#
# If every part adds the bias, how often is it in the sum of the parts?
#
# </details>
# <details><summary>Worked idea</summary>
#
# x = (2, 4) as (2) and (4), kernels (3) and (5), bias 1: the parts are 6 and 20, the output is 6 +
# 20 + 1 = 27. With upstream 10, the parts of x get 30 and 50.
#
# </details>


# %% nbgrader={"grade_id": "rows", "solution": true}
def row_layer(parts, kernels, bias, upstream):
    ### BEGIN SOLUTION
    output = sum(x @ w for x, w in zip(parts, kernels)) + bias
    kernel_gradients = [x.T @ upstream for x in parts]
    x_gradients = [upstream @ w.T for w in kernels]
    return output, kernel_gradients, upstream.sum(axis=0), x_gradients
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "rows-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
row_cases = [
    (int(rng.integers(2**31)), rng.integers(1, 6, size=parts).tolist(), int(rng.integers(2, 6)))
    for parts in (2, 3, 4)
]
### END INPUTS
got_rows = lab12.ROWS.observe(row_layer, row_cases)
lab12.ROWS.check(row_layer)
### BEGIN HIDDEN TESTS
from distlab.labs.lab12 import judge as judges

judges.ROWS.judge(row_cases, got_rows)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: one forward, one backward
#
# **2 points · hard · 15 minutes**
#
# **Contract.** `make_1f1b(stages, micro_batches)` returns a list with one list for each stage,
# first stage first: what the stage does, in order, as pairs `("F", m)`, the forward of micro-batch
# m, or `("BW", m)`, its backward. With P stages, stage s does P - s forwards (or all of them, if
# there are fewer), then one backward and one forward in turn until the forwards are done, then the
# backwards that are left. Stages and micro-batches count from 0, and micro-batches go in order.
#
# **Example.** The last of 2 stages, 3 micro-batches: F0 BW0 F1 BW1 F2 BW2. The first: F0 F1 BW0 F2
# BW1 BW2.
#
# Two things are graded: the bubble fraction, and the most micro-batches that each stage keeps at a
# time.
#
# <details><summary>Hint 1</summary>
#
# A stage can do the backward of micro-batch m once m has gone to the last stage and come back. How
# many others has it sent off meanwhile?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Write the first forwards; then, for each micro-batch m, a backward, and the next forward if there
# is one.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Stage 1 of 3, 4 micro-batches: 3 - 1 = 2 forwards ahead. F0 F1, then BW0 F2, BW1 F3, BW2, BW3. It
# never keeps more than 2 micro-batches.
#
# </details>


# %% nbgrader={"grade_id": "schedule", "solution": true}
def make_1f1b(stages, micro_batches):
    ### BEGIN SOLUTION
    orders = []
    for stage in range(stages):
        ahead = min(stages - stage, micro_batches)
        order = [("F", m) for m in range(ahead)]
        for m in range(micro_batches):
            order.append(("BW", m))
            if ahead + m < micro_batches:
                order.append(("F", ahead + m))
        orders.append(order)
    return orders
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "schedule-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
schedule_cases = [(stages, stages + int(rng.integers(2, 12))) for stages in (3, 4, 6)]
schedule_cases += [(5, 3), (3, 1)]
### END INPUTS
got_schedules = lab12.SCHEDULE.observe(make_1f1b, schedule_cases)
lab12.SCHEDULE.check(make_1f1b)
### BEGIN HIDDEN TESTS
from distlab.labs.lab12 import judge as judges

judges.SCHEDULE.judge(schedule_cases, got_schedules)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: how many micro-batches
#
# **2 points · easy · 8 minutes**
#
# If messages take no time and all stages are equal, each stage of a pipeline with P stages works for
# the time of M micro-batches, and sits idle for the time of P - 1. The bubble fraction is the idle
# part of the whole time.
#
# **Contract.** `fewest_micro_batches(stages, most_bubble)` takes P, 2 or more, and a fraction
# between 0 and 1. It returns a whole number: the smallest M whose bubble fraction is at most that.
#
# **Example.** 4 stages and 0.1: 27, since 3 / (27 + 3) = 0.1.
#
# <details><summary>Hint 1</summary>
#
# The whole time is M + P - 1.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Try M = 1, 2, 3 and so on, until the fraction is small enough. If you would rather solve for M and
# round up, check whether one fewer would do: in floating point a quotient can come out a hair above
# the whole number that it should be.
#
# </details>
# <details><summary>Worked idea</summary>
#
# 2 stages, at most 0.25: M = 3 gives 1 / 4. M = 2 would give 1 / 3.
#
# </details>


# %% nbgrader={"grade_id": "count", "solution": true}
def fewest_micro_batches(stages, most_bubble):
    ### BEGIN SOLUTION
    micro_batches = 1
    while (stages - 1) / (micro_batches + stages - 1) > most_bubble:
        micro_batches += 1
    return micro_batches
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "count-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
count_cases = [(int(rng.integers(3, 17)), float(rng.uniform(0.03, 0.4))) for _ in range(4)]
count_cases += [(5, 0.25), (4, 0.2)]
### END INPUTS
got_counts = lab12.COUNT.observe(fewest_micro_batches, count_cases)
lab12.COUNT.check(fewest_micro_batches)
### BEGIN HIDDEN TESTS
from distlab.labs.lab12 import judge as judges

judges.COUNT.judge(count_cases, got_counts)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are
# right.
