# %% [markdown] shows="Split a layer; write a 1F1B schedule; shard the weights and count the bytes"
# # Lab 12 · Pipelines and shards
#
# A split layer that forgets one sum still runs, with the wrong gradient, and nothing complains.
# Here you write both splits yourself, with the gradients of the whole layer. Then you write the 1F1B
# schedule, and a training step whose weights are spread over all devices, with the bytes that it sends.
#
# **Time:** 60 minutes · **Points:** 10 · **Hardware:** any computer; nothing here starts TensorFlow
#
# In exercises 1 and 2 you compute in NumPy what all devices compute, one part after the other:
# forward and backward by hand. The layer is y = x W + b, with x `[batch, inputs]`, W `[inputs,
# outputs]` and b `[outputs]`. If g is the gradient for y, the gradient for W is xᵀ g, the one for b
# is the sum of g over the batch, and the one for x is g Wᵀ. In exercise 3 the check runs your
# schedule in a simulator. Lessons 15 and 16 have the ideas.
#
# {{absent}}

# %%
import numpy as np

from distlab.labs.lab12 import exercise as lab12

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: split by columns
#
# **2 points · medium · 13 minutes**
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
    # Every device sees all of x and a part of the output, so x's gradient is the only sum over devices:
    # an all-reduce. Without it each device continues with its own part of that gradient, and nothing fails.
    edges = np.cumsum([kernel.shape[1] for kernel in kernels])[:-1]
    shares = np.split(upstream, edges, axis=1)  # [device][batch, own columns]
    output = np.concatenate([x @ w + b for w, b in zip(kernels, biases)], axis=1)
    kernel_gradients = [x.T @ share for share in shares]
    bias_gradients = [share.sum(axis=0) for share in shares]
    x_gradient = sum(share @ w.T for share, w in zip(shares, kernels))
    return output, kernel_gradients, bias_gradients, x_gradient
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "columns-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
column_cases = [
    (int(rng.integers(2**31)), int(rng.integers(2, 6)), rng.integers(1, 6, size=parts).tolist())
    for parts in (2, 3, 4)
]
### END INPUTS
got_columns = lab12.COLUMNS.observe(column_layer, column_cases)
lab12.COLUMNS.check(column_layer)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab12 import judge as judges

judges.COLUMNS.judge(column_cases, got_columns)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: split by rows
#
# **2 points · medium · 12 minutes**
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
    # Here the output is the sum over devices, and the gradients need none: each device gets all of
    # upstream. The bias is added once, after the sum; in every part it would count once per device.
    output = sum(x @ w for x, w in zip(parts, kernels)) + bias
    kernel_gradients = [x.T @ upstream for x in parts]
    x_gradients = [upstream @ w.T for w in kernels]
    return output, kernel_gradients, upstream.sum(axis=0), x_gradients
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "rows-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
row_cases = [
    (int(rng.integers(2**31)), rng.integers(1, 6, size=parts).tolist(), int(rng.integers(2, 6)))
    for parts in (2, 3, 4)
]
### END INPUTS
got_rows = lab12.ROWS.observe(row_layer, row_cases)
lab12.ROWS.check(row_layer)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab12 import judge as judges

judges.ROWS.judge(row_cases, got_rows)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: one forward, one backward
#
# **3 points · hard · 15 minutes**
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
# As long as a stage has fewer than P - s micro-batches on their way, it sends off another one. Otherwise
# it waits for the oldest to come back. What happens once there are no more to send?
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
    # Stage s is P - s - 1 stages away from the last one, so it has P - s micro-batches on their way
    # before the first comes back. More of them would cost memory and make the bubble no smaller.
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


# %% nbgrader={"grade": true, "grade_id": "schedule-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
schedule_cases = [(stages, stages + int(rng.integers(2, 12))) for stages in (3, 4, 6)]
schedule_cases += [(5, 3), (3, 1)]
### END INPUTS
got_schedules = lab12.SCHEDULE.observe(make_1f1b, schedule_cases)
lab12.SCHEDULE.check(make_1f1b)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab12 import judge as judges

judges.SCHEDULE.judge(schedule_cases, got_schedules)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: weights in shards
#
# **3 points · hard · 20 minutes**
#
# A model doesn't fit on one device, so each device keeps only its own piece of the weights (as in ZeRO
# and FSDP). In every step they put the weights together, compute, and each updates its piece. Which
# collectives does that take, and how many bytes?
#
# **Contract.** `sharded_step(pieces, inputs, targets, rate)` computes one step of P devices in NumPy.
# Device k has `pieces[k]`, a part of one weight vector (in order, of different lengths), and examples of
# its own: `inputs[k]` `[own examples, all weights]` and `targets[k]` `[own examples]`; devices may have
# different numbers of examples. An example's output is its inputs · weights, and the loss is the mean of
# (output - target)² over the examples of *all* devices. The update is gradient descent. It returns two
# things: a list with each device's new piece, and a list with the bytes that each device sends in one
# step.
#
# Count the bytes of float32 numbers, in two ring collectives in which device k sends to device k + 1
# (the last one to device 0). An *all-gather* of the weights: first every device sends its own piece, and
# then P - 2 times the piece that it has just received. A *reduce-scatter* of the gradients: P - 1 times a
# device sends its sum for a piece, and the next one adds its own numbers to it. It begins so that piece k
# arrives at device k last.
#
# **Example.** Pieces of 4, 3 and 2 weights on 3 devices. In the all-gather device 0 sends its own 4 numbers
# and the 2 of device 2, in the reduce-scatter 3 and 2: 11 numbers, 44 bytes.
#
# <details><summary>Hint 1</summary>
#
# Each device's own examples give a gradient for *all* weights. What does device k need of the others'?
#
# </details>
# <details><summary>Hint 2</summary>
#
# In P - 1 rounds a device sends every piece but one. Which one stays, in the all-gather, and which one in
# the reduce-scatter? They aren't the same.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Two devices, weights (1) and (2). Device 0 has one example, inputs (1, 0), target 0; device 1 has one,
# inputs (0, 1), target 0. The outputs are 1 and 2, the gradients (2, 0) / 2 and (0, 4) / 2, their sum
# (1, 2). At rate 0.5 the pieces become (0.5) and (1). Each device sent one number in each collective: 8
# bytes.
#
# </details>


# %% nbgrader={"grade_id": "sharded", "solution": true}
def sharded_step(pieces, inputs, targets, rate):
    ### BEGIN SOLUTION
    # A reduce-scatter is enough for the gradients, because no device updates another one's piece; an
    # all-reduce would send twice as much, and the whole step half as much again. The sum is divided by
    # all examples: a mean of the devices' means is wrong as soon as one of them has fewer examples.
    weights = np.concatenate(pieces)  # all-gather
    examples = sum(len(target) for target in targets)
    parts = [2 * x.T @ (x @ weights - y) / examples for x, y in zip(inputs, targets)]
    sizes = np.array([len(piece) for piece in pieces])
    new = np.split(weights - rate * sum(parts), np.cumsum(sizes)[:-1])  # reduce-scatter
    next_sizes = np.roll(sizes, -1)  # the next device has its own piece already
    return new, 4 * ((sizes.sum() - next_sizes) + (sizes.sum() - sizes))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "sharded-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
sharded_cases = [
    (
        int(rng.integers(2**31)),
        rng.choice(np.arange(1, 12), size=devices, replace=False).tolist(),
        rng.integers(2, 9, size=devices).tolist(),
        0.1,
    )
    for devices in (2, 3, 5)
]
### END INPUTS
got_sharded = lab12.SHARDED.observe(sharded_step, sharded_cases)
lab12.SHARDED.check(sharded_step)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab12 import judge as judges

judges.SHARDED.judge(sharded_cases, got_sharded)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are
# right.
