# %% [markdown] shows="Find an overflow, skip together on two replicas, fit a memory budget; graded on real gradients and bytes"
# # Lab 13 · Precision and memory
#
# A float16 run usually dies in one of two ways: some number becomes `nan`, or the memory is full. Either way, the place where it stops is rarely the place where it went wrong. Here you find where a `nan` really began, write a training loop that survives an overflow on either replica, and compute gradients within a budget of bytes that a meter watches.
#
# **Time:** 70 minutes · **Points:** 13 · **Hardware:** two CPU cores
#
# [Lesson 18](../notebooks/18-precision-and-memory.ipynb) has the ideas. Everything is computed for real: in float16, on two replicas, with tensors whose bytes are counted. Write the loss scaling yourself: the course's and Keras's loss-scaling optimizers aren't allowed, and the check notices them.
#
# {{absent}}

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import keras
    import tensorflow as tf
import numpy as np

from utils.devices import use_logical_devices
from distlab.labs.lab13 import exercise as lab13

print(use_logical_devices(4))

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: where the nan begins
#
# **3 points · medium · 15 minutes**
#
# When a float16 run prints `nan`, the first thing to know is where it began. If an output overflowed in the *forward* pass, no loss scale will help. If a gradient overflowed in the *backward* pass, a smaller scale will. And it spreads: one layer overflows, and every layer after it is infinite or `nan` too.
#
# **Contract.** `find_overflow(kernels, features, labels, scale)` takes a list of float16 NumPy arrays `[inputs, outputs]`, features `[batch, inputs]` in float16, labels `[batch]` and the loss scale, a float. Each layer multiplies by its kernel, and a ReLU follows every layer but the last. The last layer's outputs are logits. The loss is their mean cross-entropy, taken in float32, times the scale. All the rest is float16. The function returns a pair of a word and a layer, counted from 0:
#
# - `("forward", k)`: layer k is the first whose output isn't finite, before the ReLU.
# - `("backward", k)`: all outputs are finite, and layer k's *kernel* is the first whose gradient isn't finite, in the order of the backward pass. (Not the gradient for its output: that one can be fine while the kernel's overflows.)
# - `("none", None)`: everything is finite.
#
# **Example.** Four layers, all outputs are finite, and the gradients of kernels 0, 1 and 2 hold `inf` or `nan`: `("backward", 2)`.
#
# <details><summary>Hint 1</summary>
#
# Keep every layer's output. Which end does the backward pass start from?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Make tensors of the kernels with `tf.constant`: `tape.watch` takes no arrays. Then a `tf.GradientTape` that watches them gives all their gradients in float16, and `tf.math.is_finite` looks at them. Multiply the loss by the scale *inside* the tape.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Layer 1's output should hold 80,000. In float16 that's `inf`, so the outputs of layers 2 and 3 aren't finite either, the loss is `nan`, and so is every gradient. The answer is `("forward", 1)`, whatever the gradients look like.
#
# </details>


# %% nbgrader={"grade_id": "overflow", "solution": true}
def find_overflow(kernels, features, labels, scale):
    ### BEGIN SOLUTION
    # The outputs are kept before their ReLU, which would turn -inf into a harmless 0, and the
    # scale is inside the tape, because it has to travel through every layer. Looking at the loss
    # or at the last layer alone says that something failed, and not where.
    kernels, outputs, x = [tf.constant(kernel) for kernel in kernels], [], tf.constant(features)
    with tf.GradientTape() as tape:
        tape.watch(kernels)
        for kernel in kernels:
            outputs.append(tf.matmul(x, kernel))
            x = tf.nn.relu(outputs[-1])
        logits = tf.cast(outputs[-1], tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_mean(losses) * scale
    gradients = tape.gradient(loss, kernels)
    for layer, output in enumerate(outputs):
        if not np.isfinite(output).all():
            return "forward", layer
    for layer in reversed(range(len(kernels))):
        if not np.isfinite(gradients[layer]).all():
            return "backward", layer
    return "none", None
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "overflow-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
_places = [
    ("forward", 0, ""),
    ("forward", 1, "after-relu"),
    ("forward", 2, "after-relu"),
    ("forward", 3, ""),
    ("backward", 0, "after-tape"),
    ("backward", 1, "output-gradients"),
    ("backward", 2, "relu-last"),
    ("backward", 3, "isinf"),
    ("none", 0, "float16-loss"),
    ("none", 0, "no-relu"),
]
overflow_cases = [(int(rng.integers(2**31)), *_places[k]) for k in rng.permutation(10)]
### END INPUTS
got_places = lab13.OVERFLOW.observe(find_overflow, overflow_cases)
lab13.OVERFLOW.check(find_overflow)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab13 import judge as judges

judges.OVERFLOW.judge(overflow_cases, got_places)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: a scale for real gradients
#
# **2 points · medium · 10 minutes**
#
# You get the gradients of one replica's 64 images, divided by a global batch that thousands of replicas share. In float16, many of them become zero. How many are lost, and how many are still lost with the largest safe scale? In some cases one gradient is an outlier, as after a bad batch. Then there is little room for a scale.
#
# **Contract.** `choose_scale(gradients, headroom)` takes a list of float32 arrays, and how many times larger a later gradient may be without overflowing. It returns a dictionary. `"scale"` is the largest power of two for which the largest gradient of all arrays (by absolute value), times the scale, times `headroom`, is at most 65,504, the largest float16. Of the gradients that aren't zero in float32, `"lost without"` is the share that float16 turns into zero, and `"lost with"` the share that it turns into zero after multiplying by that scale.
#
# **Example.** Gradients 0, 1e-8, 2e-6 and 3 with headroom 4: 3 × 4 × 4096 fits, twice that doesn't. So the scale is 4,096. Three of the gradients aren't zero. Without the scale one of them is lost, so `"lost without"` is 1/3; with it none is, so `"lost with"` is 0.
#
# <details><summary>Hint 1</summary>
#
# Apart from the headroom, the scale depends on one number only: the largest gradient of all.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Don't compare with a limit to see what's lost: cast to float16 and look. Images have pixels that are always black, so many gradients are zero to begin with; those lose nothing.
#
# </details>
# <details><summary>Worked idea</summary>
#
# 65,504 / (3 × 4) = 5,458.7, between 4,096 = 2¹² and 8,192 = 2¹³: take the lower. 1e-8 is below 2⁻²⁵ ≈ 3e-8, so float16 rounds it to zero. But float16 can hold 4,096 × 1e-8 = 4e-5.
#
# </details>


# %% nbgrader={"grade_id": "scale", "solution": true}
def choose_scale(gradients, headroom):
    ### BEGIN SOLUTION
    # One number, the largest gradient, limits the scale, so a single outlier costs all the small
    # ones. Casting tells what is lost; comparing with finfo's tiny would miss the subnormals.
    values = np.concatenate([np.ravel(gradient) for gradient in gradients])
    scale = 2.0 ** np.floor(np.log2(65504 / (np.abs(values).max() * headroom)))
    values = values[values != 0]

    def find_lost(times):
        return np.mean((values * times).astype(np.float16) == 0)

    return {"scale": scale, "lost without": find_lost(1), "lost with": find_lost(scale)}
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "scale-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
scale_cases = [
    (int(rng.integers(2**31)), int(2 ** rng.integers(9, 17)), headroom, outlier)
    for headroom, outlier in (
        (4.0, 0.0),
        (6.0, -float(rng.uniform(20, 200))),
        (16.0, 65520 / 2.0 ** rng.integers(8, 12)),
    )
]
### END INPUTS
got_scales = lab13.SCALE.observe(choose_scale, scale_cases)
lab13.SCALE.check(choose_scale)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab13 import judge as judges

judges.SCALE.judge(scale_cases, got_scales)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: skip together
#
# **3 points · hard · 20 minutes**
#
# Now the whole program: scope, data, compiled step, and a dynamic loss scale. In some steps an example is so bright, on one replica or the other, that its gradient is infinite, whatever the scale; in others only at a large scale. Whenever it is, *both* replicas have to skip the step. Two of the six features are so small that they learn nothing unless the loss is scaled.
#
# **Contract.** `train(strategy, make_model, features, targets, scale, growth_steps)`
#
# | what it gets | what that is |
# |---|---|
# | `strategy` | with two replicas |
# | `make_model` | a function without arguments that makes the model; where you call it decides whether every replica gets a copy of the weights |
# | `features`, `targets` | arrays `[n, 6]` and `[n, 2]` in float32 |
# | `scale` | the first loss scale |
# | `growth_steps` | the number of good steps after which it grows |
#
# The model computes in float16 and keeps its weights in float32.
#
# It goes once over the data in global batches of 8, in order. A step's loss is the mean of |output - target| over all 16 numbers of the global batch. The update is plain gradient descent at learning rate 2⁻⁵. If any number in any replica's gradient isn't finite, no weight changes on any replica and the scale is halved. After `growth_steps` finite steps in a row the scale is doubled. The count begins at 0 again after each skip and after each doubling. Compile the step with `tf.function`. `train` returns two things: an array `[2, 6, 2]` with each replica's copy of the weights after the last step, and a list with the scale *after* each step. `strategy.experimental_local_results(model.weights[0].value)` gives the copies.
#
# **Example.** Scale 1,024 and growth after 3. Steps 1, 2 are finite, 3 overflows on the second replica, 4, 5, 6 are finite: 1024, 1024, 512, 512, 512, 1024.
#
# <details><summary>Hint 1</summary>
#
# The gradients of the two replicas are added up anyway. What does the sum look like if one of them is infinite?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Inside `strategy.run`, `tf.distribute.get_replica_context().all_reduce("sum", …)` gives every replica the same number, so they all decide alike. A Keras optimizer's `apply_gradients` also adds up the replicas' gradients, and so it can't be called in a branch there (`if`, `tf.cond`). Either replace the gradients by zeros with `tf.where`, or return the flag from one compiled function and apply the gradients in a second one.
#
# </details>
# <details><summary>Worked idea</summary>
#
# The scale is 512; replica 0's scaled gradient is 3, replica 1's is infinite. The sum is infinite on both, so neither takes the step, and the scale becomes 256. In the next step they have 1 and 2: the gradient is (1 + 2) / 256, and the count of good steps is 1.
#
# </details>


# %% nbgrader={"grade_id": "program", "solution": true}
def train(strategy, make_model, features, targets, scale, growth_steps):
    ### BEGIN SOLUTION
    # Every replica gets the number of bad replicas from an all-reduce, so they all skip together.
    # tf.where does it without a branch, in which apply_gradients could not add up the gradients.
    data = tf.data.Dataset.from_tensor_slices((features, targets)).batch(8)
    with strategy.scope():
        model = make_model()
        optimizer = keras.optimizers.SGD(2.0**-5)
        optimizer.build(model.trainable_variables)

    def replica_step(x, y, scale):
        with tf.GradientTape() as tape:
            outputs = tf.cast(model(x, training=True), tf.float32)
            loss = tf.reduce_sum(tf.abs(outputs - y)) / 16 * scale
        gradients = tape.gradient(loss, model.trainable_variables)
        checks = [tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients]
        bad = 1.0 - tf.cast(tf.reduce_all(checks), tf.float32)
        finite = tf.distribute.get_replica_context().all_reduce("sum", bad) == 0
        gradients = [tf.where(finite, gradient / scale, 0.0) for gradient in gradients]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return finite

    @tf.function
    def step(x, y, scale):
        finite = strategy.run(replica_step, args=(x, y, scale))
        return strategy.experimental_local_results(finite)[0]

    scales, good = [], 0
    for x, y in strategy.experimental_distribute_dataset(data):
        finite = bool(step(x, y, tf.constant(scale, tf.float32)))
        good = good + 1 if finite else 0
        if not finite:
            scale = scale / 2
        elif good == growth_steps:
            scale, good = scale * 2, 0
        scales.append(scale)
    copies = strategy.experimental_local_results(model.weights[0].value)
    return np.stack([copy.numpy() for copy in copies]), scales
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "program-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
program_cases = [(int(rng.integers(2**31)), 2.0 ** int(rng.integers(11, 14)), 3)]
### END INPUTS
got_programs = lab13.PROGRAM.observe(train, program_cases)
lab13.PROGRAM.check(train)
### BEGIN HIDDEN TESTS
from distlab.labs.lab13 import judge as judges

judges.PROGRAM.judge(program_cases, got_programs)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: a plan that fits
#
# **2 points · medium · 10 minutes**
#
# A model of several blocks doesn't fit. You can cut the batch into micro-batches, and you can run some blocks again in the backward pass instead of keeping their activations. Both cost time. Of all the plans that fit, which is the fastest?
#
# **Contract.** `choose_plan(parameters, blocks, batch, budget, launch)` takes the number of float32 parameters, a list of blocks, the examples in a batch, the bytes of memory, and the extra milliseconds that each micro-batch costs. A block is three numbers, all for one example: the bytes it keeps for the backward pass, the bytes of its input, and the milliseconds of its forward pass.
#
# - **Bytes.** Weight, gradient and Adam's two numbers: 16 a parameter. With two or more micro-batches a running sum of gradients as well: 4 a parameter. And one micro-batch's activations: for each block what it keeps, or just its input if it's recomputed. While the backward pass runs, recomputed blocks come back one at a time, so add what the largest of them keeps. (That counts everything at once, to be on the safe side.)
# - **Milliseconds.** `launch` for each micro-batch. And for each example, three forward passes' time in every block (one forward, and a backward that takes twice as long), or four in a recomputed block.
#
# It returns the fastest plan that holds at most `budget` bytes, as a dictionary with `"micro_batches"`, a number that divides the batch, and `"recomputed"`, a list of the blocks that run again, counted from 0. If nothing fits, it returns None.
#
# **Example.** 100 parameters, two blocks `(40, 4, 0.2)` and `(30, 5, 0.1)`, 6 examples, 2,020 bytes, 3 ms. All at once takes 1,600 + 6 × 70 = 2,020 bytes. It fits: one micro-batch, nothing recomputed.
#
# <details><summary>Hint 1</summary>
#
# With so few blocks you can try everything. For each number of micro-batches, how many ways are there to choose the blocks?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Each block is either kept or run again, so four blocks have 2⁴ choices. `itertools.product` can list
# them, and so can counting in binary.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Take the same model with 1,900 bytes. Recompute block 0, and 6 × (4 + 30 + 40) = 444 bytes of activations are counted: more than the 420 before, since the block comes back whole. Recompute both, and it's 6 × (4 + 5 + 40) = 294. With the 1,600 that makes 1,894: it fits, and costs 6 × 0.3 = 1.8 ms more. Two micro-batches hold 3 × 70 bytes, and 400 for the running sum: 2,210 in all, too many.
#
# </details>


# %% nbgrader={"grade_id": "plan", "solution": true}
def choose_plan(parameters, blocks, batch, budget, launch):
    ### BEGIN SOLUTION
    # Four blocks and a few divisors make little more than a hundred plans: try all of them. A
    # greedy choice (first accumulate, then recompute) misses that one cheap block may do.
    import itertools

    best_ms, best = np.inf, None
    for pieces in (n for n in range(1, batch + 1) if batch % n == 0):
        for again in itertools.product([False, True], repeat=len(blocks)):
            held = sum(b[1] if run else b[0] for b, run in zip(blocks, again))
            held += max((b[0] for b, run in zip(blocks, again) if run), default=0)
            fixed = parameters * (16 if pieces == 1 else 20)
            ms = pieces * launch + batch * sum(b[2] * (3 + run) for b, run in zip(blocks, again))
            if fixed + held * (batch // pieces) <= budget and ms < best_ms:
                chosen = [k for k, run in enumerate(again) if run]
                best_ms, best = ms, {"micro_batches": pieces, "recomputed": chosen}
    return best
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "plan-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
_measured = [
    (272, [(50, 15, 0.17), (82, 8, 0.11), (83, 16, 0.05), (24, 13, 0.14)], 5991, 3.0),
    (141, [(61, 17, 0.15), (91, 9, 0.33), (38, 10, 0.14), (38, 16, 0.32)], 3541, 11.0),
    (252, [(54, 10, 0.13), (59, 10, 0.39), (75, 14, 0.02), (44, 17, 0.12)], 6484, 10.0),
    (195, [(64, 14, 0.13), (34, 13, 0.16), (94, 4, 0.28), (78, 7, 0.05)], 6005, 5.0),
    (375, [(36, 11, 0.14), (79, 16, 0.17), (52, 4, 0.08), (57, 4, 0.15)], 9720, 11.0),
    (312, [(38, 9, 0.26), (42, 10, 0.06), (43, 14, 0.07), (54, 13, 0.3)], 8112, 11.0),
    (272, [(50, 15, 0.17), (82, 8, 0.11), (83, 16, 0.05), (24, 13, 0.14)], 5983, 3.0),
    (195, [(64, 14, 0.13), (34, 13, 0.16), (94, 4, 0.28), (78, 7, 0.05)], 4100, 5.0),
    (195, [(64, 14, 0.13), (34, 13, 0.16), (94, 4, 0.28), (78, 7, 0.05)], 3400, 5.0),
]
for _fraction in (0.02, 0.05, 0.1, 0.2, 0.3, 0.8):
    _drawn = [
        (int(rng.integers(20, 100)), int(rng.integers(4, 18)), float(rng.uniform(0.02, 0.4)))
        for _ in range(4)
    ]
    _parameters = int(rng.integers(100, 400))
    _budget = int(20 * _parameters + _fraction * 24 * sum(kept for kept, _, _ in _drawn))
    _measured.append((_parameters, _drawn, _budget, float(rng.uniform(2, 12))))
plan_cases = []
for _parameters, _drawn, _budget, _launch in _measured:
    _unit, _order = int(rng.integers(100, 999)), rng.permutation(4)
    _scaled = [(_unit * _drawn[k][0], _unit * _drawn[k][1], _drawn[k][2]) for k in _order]
    plan_cases.append((_unit * _parameters, _scaled, 24, _unit * _budget, _launch))
### END INPUTS
got_plans = lab13.PLAN.observe(choose_plan, plan_cases)
lab13.PLAN.check(choose_plan)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab13 import judge as judges

judges.PLAN.judge(plan_cases, got_plans)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 5: gradients within the budget
#
# **3 points · hard · 15 minutes**
#
# Now carry out such a plan. The check passes you real blocks, x + tanh(x A + c) B, with a meter in each. A block's c is a constant that only the block knows. The meter counts every tensor that a block makes, until nothing refers to that tensor any more. You pass if the gradients are the whole batch's, the bytes held at any moment stay within the plan's budget, and each block runs exactly as often as the plan says, on one micro-batch at a time.
#
# **Contract.** `find_gradients(blocks, inputs, targets, micro_batches, recomputed)` takes a list of blocks, inputs and targets `[batch, 4]` in float64, the number of micro-batches (it divides the batch), and the list of blocks that run again. `blocks[k](x)` gives a block's output for x `[examples, 4]`, and `blocks[k].variables` are its two variables. One block's output is the next one's input. An example's loss is the sum of (output - target)² over its four numbers, the batch's loss the mean over all its examples. It returns a list with the gradient for each variable, block by block. No block may be called inside a `tf.function`, where the meter sees nothing.
#
# **Example.** Four blocks, 48 examples, 4 micro-batches, `[1, 2]`: blocks 0 and 3 see 48 examples, blocks 1 and 2 see 96, never more than 12 at a time. Without a plan a step holds 102 KiB here; the budget is 17.
#
# <details><summary>Hint 1</summary>
#
# One tape for each micro-batch. When its gradients are taken, nothing of it needs to stay except the running sum.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `tf.recompute_grad(block)` is a function that computes what `block` does, keeps nothing of its inside, and runs `block` once more when the gradient is taken. Wrap each block separately.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Inside a block, tanh(x A + c) for 48 examples takes 48 × 64 × 8 bytes = 24 KiB, so four blocks keep 96 KiB. With micro-batches of 12 it's 6 KiB in each block. And if blocks 1 and 2 are recomputed, only two blocks keep theirs from the forward pass to the backward pass.
#
# </details>


# %% nbgrader={"grade_id": "gradients", "solution": true}
def find_gradients(blocks, inputs, targets, micro_batches, recomputed):
    ### BEGIN SOLUTION
    # One tape for each micro-batch lets its activations go before the next one begins. Each block
    # is wrapped alone: one recomputation over two blocks would bring both back together.
    steps = [tf.recompute_grad(b) if k in recomputed else b for k, b in enumerate(blocks)]
    variables = [variable for block in blocks for variable in block.variables]
    total = [tf.zeros_like(variable) for variable in variables]
    for x, wanted in zip(tf.split(inputs, micro_batches), tf.split(targets, micro_batches)):
        with tf.GradientTape() as tape:
            for step in steps:
                x = step(x)
            loss = tf.reduce_sum((x - wanted) ** 2) / len(inputs)
        part = tape.gradient(loss, variables)
        total = [so_far + gradient for so_far, gradient in zip(total, part)]
    return total
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "gradients-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 5])
_KIB = 1024
gradients_cases = [
    (int(rng.integers(2**31)), *plan)
    for plan in ((4, (1, 2), 17 * _KIB), (2, (0, 1, 2), 19 * _KIB), (3, (0, 3), 30 * _KIB))
]
### END INPUTS
got_gradients = lab13.GRADIENTS.observe(find_gradients, gradients_cases)
lab13.GRADIENTS.check(find_gradients)
### BEGIN HIDDEN TESTS
from distlab.labs.lab13 import judge as judges

judges.GRADIENTS.judge(gradients_cases, got_gradients)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are right.
