# %% [markdown] shows="ZeRO's step with momentum and clipping, a masked merge for ring attention, two experts for each token, a layout that fits and is near the quickest"
# # Lab 16 · Which way to cut?
#
# Each cut of a model is a few lines until the details arrive: slices that don't divide evenly, a
# norm that no rank can compute alone, a block that a token doesn't see, a full expert. Here you
# write those details, and then the planner that chooses a layout.
#
# **Time:** 75 minutes · **Points:** 13 · **Hardware:** any computer; nothing here starts TensorFlow
#
# You compute in NumPy what all ranks compute, one after the other. Lesson 23 has the ideas, and each
# exercise goes one step beyond it.
#
# {{absent}}

# %%
import numpy as np

from distlab.labs.lab16 import exercise as lab16

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: ZeRO with momentum and clipping
#
# **3 points · medium · 15 minutes**
#
# **Contract.** `zero_step(weights, velocities, gradients, rate, momentum, limit)` takes one step of
# ZeRO stage 1. `weights` `[n]` are the same on all ranks. `gradients[k]` `[n]` is rank k's mean
# gradient over its own examples, and all ranks have equally many. Rank k keeps `velocities[k]`, the
# k-th of the slices that `np.array_split` makes of n numbers: some are longer, some may be empty.
#
# The mean gradient g is clipped by its global norm: if the norm is above `limit`, g is multiplied by
# limit / norm. Then velocity = momentum · velocity + g, and weights = weights - rate · velocity.
#
# Return three things: the new weights `[n]`, a list with each rank's new velocity, and a list with
# the number that each rank puts into the small all-reduce that finds the norm. That is the sum of
# the squares of its slice of g, before clipping.
#
# **Example.** n = 10 on 4 ranks: the slices have 3, 3, 2 and 2 numbers.
#
# <details><summary>Hint 1</summary>
#
# After the reduce-scatter, rank k has its slice of g and nothing else. What can it say about the
# norm of all of g?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Squares add up, norms don't. All ranks then multiply their slice by the same factor, and that factor
# is never above 1.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Two ranks, n = 2, gradients (2, 8) and (4, 0): g = (3, 4), the squares are 9 and 16, the norm is 5.
# With limit 1 the factor is 0.2, so the slices become 0.6 and 0.8. With limit 10 they stay 3 and 4.
#
# </details>


# %% nbgrader={"grade_id": "zero", "solution": true}
def zero_step(weights, velocities, gradients, rate, momentum, limit):
    ### BEGIN SOLUTION
    # One number per rank is enough for the norm, so no rank ever needs the others' slices. Clipping
    # by a slice's own norm would turn the update: each slice gets another factor.
    ranks = len(gradients)
    slices = np.array_split(np.mean(gradients, axis=0), ranks)  # reduce-scatter
    squares = [float(np.sum(own**2)) for own in slices]
    factor = min(1.0, limit / np.sqrt(sum(squares)))  # a small all-reduce
    moved = [momentum * v + factor * own for v, own in zip(velocities, slices)]
    pieces = [w - rate * v for w, v in zip(np.array_split(weights, ranks), moved)]
    return np.concatenate(pieces), moved, squares  # all-gather
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "zero-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
_limits = (float(rng.uniform(0.5, 1.5)), 80.0, float(rng.uniform(0.2, 0.6)), 60.0)
zero_cases = [
    (int(rng.integers(2**31)), ranks, int(rng.integers(*sizes)), 0.1, 0.9, limit)
    for ranks, sizes, limit in zip((3, 4, 5, 6), ((7, 9), (9, 12), (12, 15), (3, 6)), _limits)
]
### END INPUTS
got_steps = lab16.ZERO.observe(zero_step, zero_cases)
lab16.ZERO.check(zero_step)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab16 import judge as judges

judges.ZERO.judge(zero_cases, got_steps)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: merge what came round the ring
#
# **3 points · medium · 15 minutes**
#
# Fused attention kernels return two things for a block of keys: the output, already divided by the
# block's own sum of weights, and the logarithm of that sum, the *log-sum-exp* (lse). Ring attention
# merges such pairs. Under a causal mask a token sees only some of the blocks.
#
# **Contract.** `merge(outputs, lses)` takes outputs `[blocks, tokens, width]` and lses `[blocks,
# tokens]`, in the order of their arrival. If a token sees nothing of a block, its lse there is -inf
# and its row of `outputs` is nan (0 / 0). Return two things: the output of each token over all blocks
# `[tokens, width]`, and its lse over all blocks `[tokens]`. A token that sees no block at all (it's
# padding) gets zeros and -inf. An lse can be as large as 3,000 or as small as -3,000.
#
# **Example.** Two blocks with lse 0 and log 3: the second has three times the weight, so outputs 1
# and 5 become 4, and the lse is log 4.
#
# <details><summary>Hint 1</summary>
#
# Block b's weight for a token is e to the power of its lse. Which number can you subtract from all
# lses of a token without changing the ratios?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Two values are dangerous: nan, which survives a multiplication by 0, and -inf minus -inf, which is
# nan. Replace each before you compute with it.
#
# </details>
# <details><summary>Worked idea</summary>
#
# lses 1,000 and -inf, outputs 7 and nan: the largest is 1,000, the weights are e⁰ = 1 and 0, the
# output is 7 and the lse 1,000 + log 1.
#
# </details>


# %% nbgrader={"grade_id": "merge", "solution": true}
def merge(outputs, lses):
    ### BEGIN SOLUTION
    # Subtracting the largest lse keeps every exponent at 0 or below. Where nothing is seen it would be
    # -inf, so a 0 stands in for it there, and the sum of weights is 0 instead of nan.
    seen = np.isfinite(lses)  # [block, token]
    largest = np.max(lses, axis=0)
    base = np.where(np.isfinite(largest), largest, 0.0)
    weights = np.exp(lses - base)[..., np.newaxis]
    together = np.sum(weights, axis=0)  # [token, 1]
    summed = np.sum(weights * np.where(seen[..., np.newaxis], outputs, 0.0), axis=0)
    output = summed / np.where(together > 0, together, 1.0)
    with np.errstate(divide="ignore"):  # the log of 0 is -inf, as it should be
        return output, base + np.log(together[:, 0])
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "merge-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
merge_cases = [
    (int(rng.integers(2**31)), blocks, tokens, size)
    for blocks, tokens, size in ((3, 8, 1.0), (4, 9, 2.0), (5, 12, 1000.0))
]
### END INPUTS
got_merged = lab16.MERGE.observe(merge, merge_cases)
lab16.MERGE.check(merge)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab16 import judge as judges

judges.MERGE.judge(merge_cases, got_merged)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: two experts for each token
#
# **4 points · hard · 25 minutes**
#
# **Contract.** `dispatch(tokens, gates, experts, capacity)` runs a layer of experts. There are as
# many ranks as experts, and expert e is on rank e. Rank r has `tokens[r]` `[own tokens, width]` and
# `gates[r]` `[own tokens, experts]`, numbers above 0. `experts[e]` `[width, width]` is a kernel: the
# expert turns a row x into x @ kernel.
#
# - Each token wants the two experts with its largest gates. If gates are equal, the expert with the lower
#   number comes first.
# - An expert takes at most `capacity` rows, from all ranks together. First all *first* choices take
#   their places, in order of rank and then of token; then all second choices, in the same order. A row
#   that finds no room is dropped, and isn't sent.
# - A token's output is the sum over its two experts of gate / (sum of its two gates) times what the
#   expert made of it. A dropped row adds nothing, and the weights stay what they are.
#
# Return three things: a list with each rank's outputs, in the order of its tokens and in their shape;
# a list of the dropped rows, as (rank, token, expert); and how many rows rank r sends to expert e in
# the all-to-all, `[ranks, experts]`, those that stay on their rank included.
#
# **Example.** Gates (0.2, 0.5, 0.3): experts 1 and 2, with weights 0.625 and 0.375.
#
# <details><summary>Hint 1</summary>
#
# Begin with a list of wishes, sorted as they are served: (rank, token, expert, weight).
#
# </details>
# <details><summary>Hint 2</summary>
#
# Go through the wishes and count how many rows each expert has. A wish goes either into the outputs
# and into `sent`, or into the list of dropped rows.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Two ranks with one token each, capacity 1, both tokens with gates (0.6, 0.2). First choices: rank 0's
# token takes expert 0, rank 1's finds it full. Second choices: rank 0's token takes expert 1, rank 1's
# is dropped again. Rank 0 sends (1, 1), rank 1 (0, 0). Dropped: (1, 0, 0) and (1, 0, 1).
#
# </details>


# %% nbgrader={"grade_id": "dispatch", "solution": true}
def dispatch(tokens, gates, experts, capacity):
    ### BEGIN SOLUTION
    # First choices go first, so a token loses its second expert before another loses its first. Serving
    # token by token would let early tokens take both places.
    order = [np.argsort(-own, axis=1, kind="stable")[:, :2] for own in gates]  # equal: lower first
    outputs = [np.zeros_like(own) for own in tokens]
    sent = np.zeros((len(tokens), len(experts)), int)
    dropped = []
    for choice in range(2):
        for rank, own in enumerate(tokens):
            for k, row in enumerate(own):
                pair = order[rank][k]
                expert = pair[choice]
                if sent[:, expert].sum() >= capacity:
                    dropped.append((rank, k, int(expert)))
                    continue
                sent[rank, expert] += 1
                share = gates[rank][k, expert] / gates[rank][k, pair].sum()
                outputs[rank][k] += share * (row @ experts[expert])
    return outputs, dropped, sent
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "dispatch-test", "points": 4}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
dispatch_cases = [
    (int(rng.integers(2**31)), rng.integers(5, 9, size=ranks).tolist(), capacity)
    for ranks, capacity in ((3, 3), (4, 9), (4, 11), (5, 10))
]
### END INPUTS
got_outputs = lab16.DISPATCH.observe(dispatch, dispatch_cases)
lab16.DISPATCH.check(dispatch)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab16 import judge as judges

judges.DISPATCH.judge(dispatch_cases, got_outputs)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: a layout that fits
#
# **3 points · hard · 20 minutes**
#
# **Contract.** `choose_layout(model, machine)` returns three whole numbers, (data, tensor, pipeline):
# a layout that fits into memory. Its step may take at most 10 % longer than the step of the quickest
# layout that fits. Both arguments are dictionaries. `model` has `parameters`, `layers`, `hidden`, `sequence` (tokens) and `batch`
# (sequences in a step). `machine` has `devices`, `per_node`, `memory` (bytes of a device), `flops`
# (per second, as reached), `inside` and `between` (bytes per second within a node and between nodes).
#
# A layout is allowed if data · tensor · pipeline = devices, tensor divides per_node, pipeline divides
# layers, and data divides batch. Micro-batches have one sequence, so a copy of the model runs
# m = batch / data of them in a step. ZeRO stage 1 is on. With N parameters, L layers, s tokens and
# width h, and t, p, d for the three axes:
#
# - memory of a device = N / (t p) · (4 + 12 / d) + 32 · s · h · L / (p t) · min(p, m)
# - work = 6 · N · s · batch / (devices · flops)
# - tensor traffic = m · L / p · 4 · 2 (t - 1) / t · 2 · s · h / inside
# - data traffic = 2 (d - 1) / d · 2 · N / (t p) / link, and link is `between`, or `inside` if all
#   devices are in one node
# - step = (work + tensor traffic) · (1 + (p - 1) / m) + data traffic
#
# **Example.** 4 devices in one node and a batch of 8: (1, 4, 1), (2, 2, 1) and (4, 1, 1) are some of
# the allowed layouts.
#
# <details><summary>Hint 1</summary>
#
# There are only a few dozen allowed layouts. Nothing clever is needed to go through all of them.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Memory first: leave out what doesn't fit, then take the smallest step among the rest.
#
# </details>
# <details><summary>Worked idea</summary>
#
# 8 devices in one node, 4 layers, a batch of 4. With tensor 2 and pipeline 2, data is what is left of the
# devices, 2. With tensor 8 and pipeline 2 nothing is left. With tensor 1 and pipeline 1 data is 8, which
# doesn't divide 4. Eight layouts are allowed. If the quickest of those that fit takes 2 s, any that takes
# at most 2.2 s is right.
#
# </details>


# %% nbgrader={"grade_id": "layout", "solution": true}
def choose_layout(model, machine):
    ### BEGIN SOLUTION
    # Every layout is tried, because the terms pull in different directions: more tensor or pipeline saves
    # memory, and costs traffic or bubble. A rule of thumb is wrong on some machine.
    N, L, batch = model["parameters"], model["layers"], model["batch"]
    width = model["sequence"] * model["hidden"]
    devices = machine["devices"]
    work = 6 * N * model["sequence"] * batch / (devices * machine["flops"])
    link = machine["inside" if devices <= machine["per_node"] else "between"]
    found = []
    for t in range(1, machine["per_node"] + 1):
        for p in range(1, L + 1):
            d = devices // (t * p)
            if devices % (t * p) or machine["per_node"] % t or L % p or d == 0 or batch % d:
                continue
            m = batch // d
            need = N / (t * p) * (4 + 12 / d) + 32 * width * L / (p * t) * min(p, m)
            if need > machine["memory"]:
                continue
            tensor = m * L / p * 4 * 2 * (t - 1) / t * 2 * width / machine["inside"]
            data = 2 * (d - 1) / d * 2 * N / (t * p) / link
            found.append(((work + tensor) * (1 + (p - 1) / m) + data, (d, t, p)))
    return min(found)[1]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "layout-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
_models = (
    (20e9, 44, 6144, 8192, 256),
    (13e9, 40, 5120, 4096, 512),
    (70e9, 80, 8192, 2048, 512),
    (13e9, 40, 5120, 16384, 64),
    (3e9, 32, 2560, 8192, 256),
    (13e9, 32, 2560, 4096, 16),
    (3e9, 24, 6144, 2048, 8),
    (7e9, 24, 6144, 8192, 8),
)
_machines = (
    (256, 40e9, 4e14, 2e10, 5e10),
    (128, 24e9, 4e14, 2e10, 2e9),
    (128, 24e9, 4e14, 1e11, 1e10),
    (128, 24e9, 1e14, 2e10, 1e10),
    (256, 24e9, 1.5e14, 2e10, 5e10),
    (64, 80e9, 1e14, 3e11, 1e10),
    (64, 40e9, 1e14, 2e10, 5e10),
    (8, 80e9, 4e14, 3e11, 5e10),
)
for _ in range(3):  # any model, on any machine
    _size, _batch = float(rng.uniform(5e9, 60e9)), 2 ** int(rng.integers(6, 10))
    _models += (
        (_size, 16 * int(rng.integers(2, 5)), 6144, 2 ** int(rng.integers(11, 14)), _batch),
    )
    _rates = (10 ** rng.uniform(14, 14.6), 10 ** rng.uniform(10, 11), 10 ** rng.uniform(9, 10.7))
    _machines += ((2 ** int(rng.integers(6, 9)), float(rng.choice([40e9, 80e9])), *_rates),)
layout_cases = []
_of_model = "parameters", "layers", "hidden", "sequence", "batch"
_of_machine = "devices", "per_node", "memory", "flops", "inside", "between"
for (_n, *_shape), (_devices, _memory, *_rates) in zip(_models, _machines):
    _n, _memory = _n * float(rng.uniform(0.98, 1.02)), _memory * float(rng.uniform(0.99, 1.01))
    _rates = (np.array(_rates) * rng.uniform(0.95, 1.05, size=3)).tolist()
    _model = dict(zip(_of_model, (_n, *_shape)))
    _machine = dict(zip(_of_machine, (_devices, 8, _memory, *_rates)))
    layout_cases.append((_model, _machine))
### END INPUTS
got_layouts = lab16.LAYOUT.observe(choose_layout, layout_cases)
lab16.LAYOUT.check(choose_layout)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab16 import judge as judges

judges.LAYOUT.judge(layout_cases, got_layouts)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are
# right.
