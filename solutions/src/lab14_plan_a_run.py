# %% [markdown] shows="Find the largest useful batch; predict step time, bottleneck, checkpoints and bill; compare with published runs"
# # Lab 14 · Plan a run
#
# Your team has a model, a cluster's data sheet and a budget, and asks you: will it work? You answer
# step by step: the batch, the step, the limit, checkpoints, the bill. At the end you compare your own
# prediction with published measurements.
#
# **Time:** 60 minutes · **Points:** 12 · **Hardware:** one CPU core
#
# Everything here is arithmetic in plain Python or NumPy. [Lesson 20](../notebooks/20-planning.ipynb)
# has the ideas, and lesson 17 has the ideas for exercise 1. P is the number of devices. Sizes are in bytes and times in seconds, unless a
# contract says otherwise.
#
# {{absent}}

# %%
import math

import numpy as np

from distlab.labs.lab14 import exercise as lab14

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: how large a batch is worth it?
#
# **3 points · hard · 15 minutes**
#
# More devices mean a larger batch, and a larger batch means fewer steps, but not forever: once the
# gradient is hardly noisy any more, more examples in a step are wasted. Where that begins is the
# *gradient noise scale* (McCandlish et al. 2018). You can measure it during any data-parallel run,
# from two numbers that the replicas have anyway.
#
# Let G be the true gradient of a step, and S the noise of a single example's gradient. A mean over B
# examples has, on average, the squared norm |G|² + S / B. The noise scale is S / |G|², both averaged
# over the steps before you divide. With batches of B a run needs `min_steps` × (1 + noise scale / B)
# steps.
#
# **Contract.** `plan_batch(gradients, batch, min_steps, examples)` takes an array `[steps, replicas,
# parameters]`: the gradient of every replica in some steps, each a mean over its own `batch` examples.
# `min_steps` is the number of steps that even the largest batch needs, and `examples` is how many
# examples the run may go through in all. It returns a dictionary of three numbers, which needn't be
# whole: `"noise scale"`; `"batch"`, the largest global batch with which the run stays within
# `examples`; and `"steps"`, how many steps it takes with that batch.
#
# **Example.** If the noise scale is 600, `min_steps` is 1,000 and you have 2 million examples: a batch of
# 1,400 takes 1,429 steps, and 1,429 × 1,400 are the 2 million.
#
# <details><summary>Hint 1</summary>
#
# One replica's gradient is a mean over `batch` examples. What is the mean of all replicas' gradients a
# mean over?
#
# </details>
# <details><summary>Hint 2</summary>
#
# That makes two equations, "squared norm = |G|² + S / B" with two different B, for the two unknowns
# |G|² and S. Put in the averages that you measure, over all steps (and, for the smaller B, over all
# replicas).
#
# </details>
# <details><summary>Worked idea</summary>
#
# Two replicas with batches of 10: their squared norms are 7 on average, the squared norm of their mean
# is 5. So |G|² + S/10 = 7 and |G|² + S/20 = 5. The difference is S/20 = 2, so S = 40 and |G|² = 3: the
# noise scale is 13.3.
#
# </details>


# %% nbgrader={"grade_id": "batch", "solution": true}
def plan_batch(gradients, batch, min_steps, examples):
    ### BEGIN SOLUTION
    # Both norms contain noise, the larger batch only less of it, so neither is |G|² and two equations
    # are needed. Steps × batch is min_steps × (batch + noise scale), which gives the batch at once.
    gradients = np.asarray(gradients)
    replicas = gradients.shape[1]
    small = (gradients**2).sum(axis=2).mean()
    large = (gradients.mean(axis=1) ** 2).sum(axis=1).mean()
    noise = (small - large) / (1 / batch - 1 / (replicas * batch))
    scale = noise / (small - noise / batch)
    largest = examples / min_steps - scale
    return {"noise scale": scale, "batch": largest, "steps": min_steps * (1 + scale / largest)}
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "batch-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
batch_cases = [
    (int(rng.integers(2**31)), replicas, int(2 ** rng.integers(4, 8)), int(rng.integers(500, 3000)))
    for replicas in (2, 4, 8, 16)
]
batch_cases = [(*case, case[-1] * int(rng.integers(2000, 9000))) for case in batch_cases]
### END INPUTS
got_batches = lab14.BATCH.observe(plan_batch, batch_cases)
lab14.BATCH.check(plan_batch)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab14 import judge as judges

judges.BATCH.judge(batch_cases, got_batches)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: the step
#
# **3 points · medium · 15 minutes**
#
# Gradients become ready evenly over the backward pass. They go into equal buckets; bucket k of n is
# full when k/n of the backward pass is over. A full bucket is all-reduced by a ring, as soon as the
# link is free: it carries one bucket at a time, in order. A ring over P devices is 2 (P - 1)
# messages, one after the other. Each carries 1/P of the bucket, and takes `latency` plus its bytes
# divided by `bandwidth`. The step ends when the last bucket has been all-reduced.
#
# **Contract.** `predict_step(forward, backward, gradient_bytes, devices, latency, bandwidth,
# buckets)` returns the seconds of a step.
#
# **Example.** 0.1 s forward and 0.2 s backward, 400 MB of gradients on 8 devices, 10 µs and 10 GB/s:
# 0.37014 s with one bucket, 0.30889 s with 8.
#
# <details><summary>Hint 1</summary>
#
# Write a loop over the buckets, with a variable for when the link is free again.
#
# </details>
# <details><summary>Hint 2</summary>
#
# A bucket starts at the later of two times.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Two buckets, ready at 2 s and 3 s, each 4 s on the link: the first arrives at 6 s, the second
# waits until then and arrives at 10 s.
#
# </details>


# %% nbgrader={"grade_id": "step", "solution": true}
def predict_step(forward, backward, gradient_bytes, devices, latency, bandwidth, buckets):
    ### BEGIN SOLUTION
    # A bucket waits for two things, its gradients and the link, so it starts at the later of the two
    # times. Adding up the bucket times after the backward pass would hide nothing at all.
    piece = gradient_bytes / buckets / devices
    ring = 2 * (devices - 1) * (latency + piece / bandwidth)
    free = 0.0
    for number in range(1, buckets + 1):
        ready = forward + backward * number / buckets
        free = max(free, ready) + ring
    return free
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "step-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
step_cases = [
    (
        *rng.uniform(0.05, 0.3, 2).tolist(),
        float(rng.integers(400, 900)) * 1e6,
        int(rng.integers(4, 65)),
        5e-5,
        bandwidth,
        int(rng.integers(3, 20)),
    )
    for bandwidth in (1e9, 5e9, 2e10)
]
### END INPUTS
got_steps = lab14.STEP.observe(predict_step, step_cases)
lab14.STEP.check(predict_step)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab14 import judge as judges

judges.STEP.judge(step_cases, got_steps)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: efficiency and the limit
#
# **1 point · medium · 8 minutes**
#
# A step on one device takes `compute` seconds. On many, the slowest device takes `slowest` times as
# long. Then comes `exposed`, the seconds of communication that aren't hidden behind the backward
# pass. Meanwhile the input pipeline prepares the next batch, in `input_seconds`; the next step can't
# start without it.
#
# **Contract.** `judge_step(compute, exposed, slowest, input_seconds)` returns a dictionary.
# `"efficiency"` is `compute`, the step of one device that never waits, divided by the time of a step
# on many. `"limit"` is the largest of four parts of the step on many: `"computation"` (`compute`),
# `"network"` (`exposed`), `"stragglers"` (what the slowest device adds) or `"input"` (the wait for
# the input).
#
# **Example.** With 0.1 s, 0.02 s, 1.05 and 0.4 s the step takes 0.4 s, and 0.275 s of that is waiting
# for input. The efficiency is 0.25, the limit "input".
#
# <details><summary>Hint 1</summary>
#
# If two things run at the same time, the longer one decides.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The four parts add up to the step.
#
# </details>
# <details><summary>Worked idea</summary>
#
# With 2 s, 1 s, 1.5 and no input, the step takes 4 s. One second of it is the slowest device's doing.
# The efficiency is 0.5, the limit "computation".
#
# </details>


# %% nbgrader={"grade_id": "limit", "solution": true}
def judge_step(compute, exposed, slowest, input_seconds):
    ### BEGIN SOLUTION
    # The next batch is prepared during the step, so only what is left of it afterwards is a wait.
    # Adding input_seconds to the step would blame the input for time that costs nothing.
    working = compute * slowest + exposed
    step = max(working, input_seconds)
    parts = {
        "computation": compute,
        "network": exposed,
        "stragglers": compute * (slowest - 1),
        "input": step - working,
    }
    return {"efficiency": compute / step, "limit": max(parts, key=parts.get)}
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "limit-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
limit_cases = []
for _limit in rng.permutation(
    ["computation", "network", "stragglers", "input", "input", "network"]
):
    _compute, _exposed = float(rng.uniform(0.1, 0.9)), float(rng.uniform(0.1, 0.6))
    _slowest, _input = float(rng.uniform(1.05, 1.4)), float(rng.uniform(0.5, 1.1))
    if _limit == "network":
        _exposed = float(rng.uniform(1.3, 2.5))
    if _limit == "stragglers":
        _slowest = float(rng.uniform(2.3, 3.5))
    if _limit == "input":
        _input = float(rng.uniform(2.4, 4))
    _step = _slowest + _exposed  # of one second of computation
    limit_cases.append((_compute, _compute * _exposed, _slowest, _compute * _step * _input))
limit_cases.append((0.1, 0.12, float(rng.uniform(1.5, 1.9)), 0.1))  # a short step, no wait
_compute = float(rng.uniform(0.3, 0.4))  # input longer than computation, and hardly a wait
limit_cases.append((_compute, 0.8 * _compute, 1.5, 2.6 * _compute))
### END INPUTS
got_limits = lab14.LIMIT.observe(judge_step, limit_cases)
lab14.LIMIT.check(judge_step)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab14 import judge as judges

judges.LIMIT.judge(limit_cases, got_limits)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: checkpoints and the bill
#
# **3 points · hard · 12 minutes**
#
# If any node fails, the run stops, and resumes from the last checkpoint. Let M be the mean time
# between failures of *all* nodes together, D the seconds of a save and R the seconds of a restart. If you
# save after every T seconds of training, each second of training takes this many seconds in all
# (Daly 2006, exact if failures come at random at a constant rate):
#
# $$C(T) = \frac{M}{T}\, e^{R/M} \left(e^{(T+D)/M} - 1\right)$$
#
# **Contract.** `plan_saves(nodes, mtbf_hours, save_seconds, restart_seconds, hours, price)` takes
# the mean time between failures of *one* node, the hours that the run would take without saves and
# failures, and the price of a node for an hour. It returns a dictionary: `"interval"`, the T
# with the least C, in seconds (within 0.5 %); `"share"`, the part of the time that is spent on
# training, 1/C; `"hours"`, how long the run will take; and `"cost"`, the price of all nodes for that
# time.
#
# **Example.** 64 nodes, each failing every 500 hours, 120 s to save, 60 s to restart, 24 hours, and 3
# for a node-hour: save every 2,519 s. Then 90.9 % of the time is training, and the run takes 26.4
# hours and costs 5,072.
#
# <details><summary>Hint 1</summary>
#
# If each of 64 nodes fails every 500 hours, then some node fails every 7.8 hours.
#
# </details>
# <details><summary>Hint 2</summary>
#
# You don't need a formula for the best T. Try many between 1 s and M, and take the best:
# `np.geomspace` and `argmin`.
#
# </details>
# <details><summary>Worked idea</summary>
#
# As T grows, C(T) falls at first, since you save less often. Then it rises, since each failure loses
# more. Twenty thousand values of T in geometric steps find the bottom to well under 0.5 %.
#
# </details>


# %% nbgrader={"grade_id": "saves", "solution": true}
def plan_saves(nodes, mtbf_hours, save_seconds, restart_seconds, hours, price):
    ### BEGIN SOLUTION
    # The cost has one minimum, which a fine grid finds well within 0.5 %. Young's sqrt(2 D M) is only
    # the first term of an expansion: with a thousand nodes M is short, and it is several percent off.
    mtbf = 3600 * mtbf_hours / nodes
    tried = np.geomspace(1, mtbf, 20_000)
    costs = (
        mtbf / tried * math.exp(restart_seconds / mtbf) * np.expm1((tried + save_seconds) / mtbf)
    )
    best = int(costs.argmin())
    taken = hours * costs[best]
    return {
        "interval": tried[best],
        "share": 1 / costs[best],
        "hours": taken,
        "cost": taken * nodes * price,
    }
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "saves-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
saves_cases = [
    (
        int(rng.integers(500, 2000)),
        float(rng.integers(5000, 12_000)),
        float(rng.integers(200, 400)),
        float(rng.integers(600, 1200)),
        float(rng.integers(10, 500)),
        float(rng.uniform(1, 9)),
    )
    for _ in range(3)
]
### END INPUTS
got_saves = lab14.SAVES.observe(plan_saves, saves_cases)
lab14.SAVES.check(plan_saves)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab14 import judge as judges

judges.SAVES.judge(saves_cases, got_saves)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 5: compare with measurements
#
# **2 points · medium · 8 minutes**
#
# In May 2017 the TensorFlow team published the images/s of five networks on 1 to 16 GPUs, on
# three systems. Their tables hold the best of several runs. Repeated runs differ by a few percent.
# Predict the speed-ups from the rate of one GPU. Assume that the all-reduce starts after the backward
# pass (no overlap), and that all systems have the same link: a message takes 0.1 ms plus its bytes
# divided by 11.3 GB/s. These two numbers were fitted on ResNet-50 alone.
#
# **Contract.** `predict_speed_up(images_per_second, batch, parameters, devices)` takes the rate of
# one GPU, its batch, the parameters (float32 gradients) and the number of GPUs. It returns the rate
# of all GPUs together divided by the rate of one. You get the points if every prediction is within
# 15 % of the measurement. Four more runs are invented, and nobody measured them: there, come within
# 15 % of what these assumptions give.
#
# **Example.** AlexNet, 61 million parameters, does 2,987 images/s on one P100 with batches of 512. On
# 8 of them, a speed-up of 5.97 was measured.
#
# <details><summary>Hint 1</summary>
#
# How long is a step on one GPU? It handles a whole batch.
#
# </details>
# <details><summary>Hint 2</summary>
#
# All GPUs do the same step, then one ring all-reduce. Exercise 2 has its messages.
#
# </details>
# <details><summary>Worked idea</summary>
#
# A step takes 1 s, an all-reduce on 4 devices 0.25 s. Then four batches are done every 1.25 s: a
# speed-up of 3.2.
#
# </details>


# %% nbgrader={"grade_id": "measured", "solution": true}
def predict_speed_up(images_per_second, batch, parameters, devices):
    ### BEGIN SOLUTION
    # Every GPU keeps its own batch, so a step does `devices` batches and costs one all-reduce more.
    # The latency hardly counts for large models, and is most of it for small ones on many GPUs.
    step = batch / images_per_second
    ring = 2 * (devices - 1) * (1e-4 + 4 * parameters / devices / 11.3e9)
    return devices * step / (step + ring)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "measured-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 5])
_runs = [
    (2987.0, 512, 61_000_000, 8),
    (219.0, 64, 25_600_000, 8),
    (91.8, 64, 60_200_000, 8),
    (154.0, 64, 138_400_000, 8),
    (142.0, 64, 23_900_000, 8),
    (684.0, 512, 61_000_000, 8),
    (36.3, 32, 138_400_000, 8),
    (52.4, 64, 25_600_000, 16),
    (19.4, 32, 60_200_000, 16),
]
measured_cases = [_runs[0], *(_runs[k] for k in 1 + rng.permutation(8)[:4])]
for _devices in (2, 16, 32):  # invented: a step takes 0.3 to 2 times as long as the all-reduce
    _batch, _parameters = int(rng.integers(16, 257)), 1000 * int(rng.integers(50_000, 200_000))
    _step = float(rng.uniform(0.3, 0.6 if _devices == 2 else 2)) * 8 * _parameters / 11.3e9
    measured_cases.append((_batch / _step, _batch, _parameters, _devices))
_parameters = 1000 * int(rng.integers(2_000, 6_000))  # a small model on many GPUs
measured_cases.append((float(rng.uniform(2000, 8000)), 64, _parameters, 64))
### END INPUTS
got_speed_ups = lab14.MEASURED.observe(predict_speed_up, measured_cases)
lab14.MEASURED.check(predict_speed_up)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab14 import judge as judges

judges.MEASURED.judge(measured_cases, got_speed_ups)
### END HIDDEN TESTS

# %% [markdown]
# ## On your own machine
#
# This part isn't marked. `distlab plan --builtin-model cnn --devices 1,2,4` calibrates on your laptop with
# two processes, predicts a step of 2 and 4 local workers, runs them, and prints predictions and
# measurements. If they differ, what does the plan leave out?
