# %% [markdown] shows="Predict traffic, step time, bottleneck, checkpoints and bill; compare with published runs"
# # Lab 14 · Plan a run
#
# Somebody hands you a model, a cluster's data sheet and a budget, and asks: will it work? You answer
# step by step: bytes, seconds, the limit, checkpoints, the bill. At the end you compare your own
# prediction with published measurements.
#
# **Time:** 50 minutes · **Points:** 12 · **Hardware:** one CPU core
#
# Everything here is arithmetic in plain Python or NumPy. [Lesson 20](../notebooks/20-planning.ipynb)
# has the ideas. P is the number of devices. Sizes are in bytes and times in seconds, unless a
# contract says otherwise.

# %%
import math

import numpy as np

from distlab.labs.lab14 import exercise as lab14

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: bytes
#
# **2 points · easy · 7 minutes**
#
# Each device holds a float32 gradient for every parameter. A ring all-reduce sums them. It cuts the
# gradients into P equal pieces and goes round twice; each time, every device sends P - 1 messages
# of one piece.
#
# **Contract.** `count_traffic(parameters, devices)` returns two numbers: the bytes of one device's
# gradients, and the bytes that one device sends in the all-reduce.
#
# **Example.** 25.6 million parameters on 8 devices: 102,400,000 and 179,200,000.
#
# <details><summary>Hint 1</summary>
#
# float32 takes four bytes.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Count the messages of one device first, then the bytes of one message.
#
# </details>
# <details><summary>Worked idea</summary>
#
# 3 devices and 12 bytes make pieces of 4 bytes. A device sends 2 messages each time round, 4 in all:
# 16 bytes.
#
# </details>


# %% nbgrader={"grade_id": "traffic", "solution": true}
def count_traffic(parameters, devices):
    ### BEGIN SOLUTION
    gradient_bytes = 4 * parameters
    return gradient_bytes, 2 * (devices - 1) * gradient_bytes / devices
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "traffic-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
traffic_cases = [(1000 * int(rng.integers(1, 10**6)), int(rng.integers(2, 999))) for _ in range(4)]
### END INPUTS
got_traffic = lab14.TRAFFIC.observe(count_traffic, traffic_cases)
lab14.TRAFFIC.check(count_traffic)
### BEGIN HIDDEN TESTS
from distlab.labs.lab14 import judge as judges

judges.TRAFFIC.judge(traffic_cases, got_traffic)
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
    (*rng.uniform(0.05, 0.3, 2).tolist(), float(rng.integers(100, 900)) * 1e6,
     int(rng.integers(4, 65)), 5e-5, bandwidth, int(rng.integers(3, 20)))
    for bandwidth in (1e9, 5e9, 2e10)
]  # fmt: skip
### END INPUTS
got_steps = lab14.STEP.observe(predict_step, step_cases)
lab14.STEP.check(predict_step)
### BEGIN HIDDEN TESTS
from distlab.labs.lab14 import judge as judges

judges.STEP.judge(step_cases, got_steps)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: efficiency and the limit
#
# **2 points · medium · 8 minutes**
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


# %% nbgrader={"grade": true, "grade_id": "limit-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
_scales = [(1, 0.2, 1.1, 1.6), (1, 1.5, 1.2, 2.4), (1, 0.2, 2.9, 0.1), (1, 0.2, 1.1, 4.0)]
limit_cases = [
    (u * a, u * b, c, u * d) for (a, b, c, d), u in zip(_scales, rng.uniform(0.1, 0.9, 4).tolist())
]
### END INPUTS
got_limits = lab14.LIMIT.observe(judge_step, limit_cases)
lab14.LIMIT.check(judge_step)
### BEGIN HIDDEN TESTS
from distlab.labs.lab14 import judge as judges

judges.LIMIT.judge(limit_cases, got_limits)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: checkpoints and the bill
#
# **3 points · hard · 12 minutes**
#
# If any node fails, the run stops, and goes on from the last checkpoint. Let M be the mean time
# between failures of *all* nodes together, D the seconds of a save and R those of a restart. If you
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
    mtbf = 3600 * mtbf_hours / nodes
    tried = np.geomspace(1, mtbf, 20_000)
    costs = (
        mtbf / tried * math.exp(restart_seconds / mtbf) * np.expm1((tried + save_seconds) / mtbf)
    )
    best = int(costs.argmin())
    taken = hours * costs[best]
    return {
        "interval": tried[best], "share": 1 / costs[best], "hours": taken,
        "cost": taken * nodes * price,
    }  # fmt: skip
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "saves-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
saves_cases = [
    (int(rng.integers(500, 2000)), float(rng.integers(5000, 12_000)), float(rng.integers(200, 400)),
     float(rng.integers(600, 1200)), float(rng.integers(10, 500)), float(rng.uniform(1, 9)))
    for _ in range(3)
]  # fmt: skip
### END INPUTS
got_saves = lab14.SAVES.observe(plan_saves, saves_cases)
lab14.SAVES.check(plan_saves)
### BEGIN HIDDEN TESTS
from distlab.labs.lab14 import judge as judges

judges.SAVES.judge(saves_cases, got_saves)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 5: compare with measurements
#
# **2 points · medium · 8 minutes**
#
# In May 2017 the TensorFlow team published images a second of five networks on 1 to 16 GPUs, on
# three systems. Their tables hold the best of several runs; repeated runs differ by a few percent.
# Predict the speed-ups from the rate of one GPU. Assume that the all-reduce starts after the backward
# pass (no overlap), and that all systems have the same link: a message takes 0.1 ms plus its bytes
# divided by 11.3 GB/s. These two numbers were fitted on ResNet-50 alone.
#
# **Contract.** `predict_speed_up(images_per_second, batch, parameters, devices)` takes the rate of
# one GPU, its batch, the parameters (float32 gradients) and the number of GPUs. It returns the rate
# of all GPUs together divided by the rate of one. You get the points if every prediction is within
# 15 % of the measurement. Three more runs are invented, and nobody measured them: there, come within
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
# All GPUs do the same step, then one ring all-reduce. Exercises 1 and 2 have its bytes and time.
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
    step = batch / images_per_second
    ring = 2 * (devices - 1) * (1e-4 + 4 * parameters / devices / 11.3e9)
    return devices * step / (step + ring)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "measured-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 5])
_runs = [
    (2987.0, 512, 61_000_000, 8), (219.0, 64, 25_600_000, 8), (91.8, 64, 60_200_000, 8),
    (154.0, 64, 138_400_000, 8), (142.0, 64, 23_900_000, 8), (684.0, 512, 61_000_000, 8),
    (36.3, 32, 138_400_000, 8), (52.4, 64, 25_600_000, 16), (19.4, 32, 60_200_000, 16),
]  # fmt: skip
measured_cases = [_runs[0], *(_runs[k] for k in 1 + rng.permutation(8)[:4])]
for _devices in (4, 16, 32):  # invented: a step takes 0.3 to 2 times as long as the all-reduce
    _batch, _parameters = int(rng.integers(16, 257)), 1000 * int(rng.integers(50_000, 200_000))
    _step = float(rng.uniform(0.3, 2)) * 8 * _parameters / 11.3e9
    measured_cases.append((_batch / _step, _batch, _parameters, _devices))
### END INPUTS
got_speed_ups = lab14.MEASURED.observe(predict_speed_up, measured_cases)
lab14.MEASURED.check(predict_speed_up)
### BEGIN HIDDEN TESTS
from distlab.labs.lab14 import judge as judges

judges.MEASURED.judge(measured_cases, got_speed_ups)
### END HIDDEN TESTS

# %% [markdown]
# ## On your own machine
#
# This part isn't marked. `distlab plan --measure cnn --devices 1,2,4` calibrates on your laptop with
# two processes, predicts a step of 2 and 4 local workers, runs them, and prints predictions and
# measurements. Where they differ, what does the plan leave out?
