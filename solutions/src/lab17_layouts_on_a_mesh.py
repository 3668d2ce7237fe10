# %% [markdown] shows="Say which part of each variable a layout map gives a device; cut a small Transformer so that it fits and sends little; place the all-gathers of sharded state"
# # Lab 17 · Layouts on a mesh
#
# A layout map is a few lines of data, and it decides what fits on a device and what a step sends. A wrong line
# raises no error. It costs memory, or it doubles the traffic, and you find out from the bill. Here you write
# layouts for a Transformer, and the compiler's program tells whether they're good.
#
# **Time:** 70 minutes · **Points:** 11 · **Hardware:** any computer with the course's JAX; the checks compile your layouts in a separate process
#
# [Lesson 24](../notebooks/24-keras-on-jax.ipynb) has the ideas. Your functions get plain data and return plain data: no
# JAX is needed in them. The checks of exercises 2 and 3 compile your layouts, which takes some seconds for each example.
#
# The model is a Transformer of one block, and its variables are always these. (`gamma` and `beta` belong to the two layer
# norms.) `lab17.list_shapes(lab17.SIZES)` has the shapes of an example.
#
# {{absent}}

# %%
import numpy as np

from distlab.labs.lab17 import exercise as lab17

for path, shape in lab17.list_shapes(lab17.SIZES).items():
    print(f"{path:<35}{shape}")

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: what does a layout map mean?
#
# **3 points · medium · 20 minutes**
#
# **Contract.** `read_layouts(layouts, shapes, mesh)` gets three dictionaries.
#
# | argument | what it is |
# |---|---|
# | `layouts` | `{key: axes}`; `axes` has one entry per axis of the variable: the name of an axis of the mesh, or `None` |
# | `shapes` | `{path: shape}` of all variables |
# | `mesh` | the sizes of the mesh's axes, such as `{"batch": 2, "model": 4}` |
#
# It returns two things: `{path: shape of the part that one device holds}` for all variables, and a list of the keys that no variable uses,
# in any order. Keras finds a variable's key in two steps. If the path itself is a key, that's the one. If it isn't, the key is the pattern
# that matches the path *in full*; here there's at most one. A variable without a key is whole on each device.
#
# **Example.** With `{"up/.*": (None, "model"), "up": ("model",)}` and the mesh above, a kernel `up/kernel` of 32 × 64 has parts of 32 × 16, and
# the key `up` isn't used.
#
# <details><summary>Hint 1</summary>
#
# For each path, write down the one key that it uses, or that it uses none. What's left of the keys then?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Python's module `re` has three functions that try a pattern. Only one of them wants it to match from the first letter to the last.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Keys `a/b` and `a/.*`, paths `a/b` and `a/c`: `a/b` uses the key `a/b`, though the pattern matches it too. `a/c` uses `a/.*`. If
# `a/c` weren't there, nobody would use `a/.*`.
#
# </details>


# %% nbgrader={"grade_id": "read", "solution": true}
def read_layouts(layouts, shapes, mesh):
    ### BEGIN SOLUTION
    # The key is looked up once for each path, so what is used is known exactly. Asking of each key whether it
    # matches some path would miss a pattern whose only path has a key of its own.
    import re

    parts, used = {}, set()
    for path, shape in shapes.items():
        key = path if path in layouts else None
        for pattern in layouts:
            if key is None and re.fullmatch(pattern, path):
                key = pattern
        used.add(key)
        axes = layouts.get(key, [None] * len(shape))
        parts[path] = tuple(n // mesh[axis] if axis else n for n, axis in zip(shape, axes))
    return parts, [key for key in layouts if key not in used]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "read-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
read_cases = [(int(rng.integers(10, 2**31)), *mesh) for mesh in [(2, 4), (4, 2), (2, 2), (8, 2)]]
### END INPUTS
got_parts = lab17.READ.observe(read_layouts, read_cases)
lab17.READ.check(read_layouts)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab17 import judge as judges

judges.READ.judge(read_cases, got_parts)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: a cut that fits
#
# **4 points · hard · 25 minutes**
#
# `lab17.try_layouts(layouts, sizes, mesh)` compiles a step of the Transformer and prints what a device holds and sends. Try some ideas in your own cell first:
# `lab17.try_layouts({"up/kernel": (None, "model")}, lab17.SIZES, {"batch": 2, "model": 4})`
# It compiles nothing when your answer is graded: `cut_model` has to do without it.
#
# **Contract.** `cut_model(shapes, mesh, memory)` gets the shapes of all variables (as above), the sizes of the mesh's two axes, and the bytes of weights and
# momentum that fit on a device. It returns layouts, `{key: axes}`. We compile a step of `fit` with them (SGD with momentum, float32). Then:
#
# - A device holds at most `memory` bytes.
# - A device sends at most 2% more than with the tensor-parallel cut: the two kernels of the MLP (with the first one's bias) and the four kernels of attention over `model`. If the heads don't divide by
#   the axis `model`, attention stays whole.
# - Only if that doesn't fit, the embedding and the kernel of the logits are cut as well, in the way that sends least. They divide then.
# - No layer norm is cut, and each key is used.
#
# **Example.** On 2 × 4 devices with 4 heads, a `query` kernel of 32 × 4 × 8 has a part of 32 × 1 × 8 on each device: one head.
#
# <details><summary>Hint 1</summary>
#
# In lesson 24 a device needed the rows that belong to its columns. Which axis of attention plays the part of the hidden values between the two kernels?
#
# </details>
# <details><summary>Hint 2</summary>
#
# For the embedding and the logits, ask which vector the next layer needs in full. How many bytes does a device hold if only the block is cut? Weights and momentum are 8 bytes
# a number.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Take a model of two matrices, 4 × 6 and 6 × 4, with a ReLU between them. By columns, then by rows, a device computes 3 of the 6 values and adds its share of the result: one sum, of 4
# numbers for each example. By rows, then by columns, the 6 values are partial sums and have to be added before the ReLU, and then each device has 2 of the 4 results.
#
# </details>


# %% nbgrader={"grade_id": "cut", "solution": true}
def cut_model(shapes, mesh, memory):
    ### BEGIN SOLUTION
    # Each pair of kernels is cut so that its inner values stay on their device: columns, then rows; heads, then
    # heads. The bias of the first kernel goes with its columns. The second bias is added after the sum.
    model = mesh["model"]
    block = {"up/kernel": (None, "model"), "up/bias": ("model",), "down/kernel": ("model", None)}
    if shapes["attention/query/kernel"][1] % model == 0:
        for name in ("query", "key", "value"):
            block[f"attention/{name}/kernel"] = (None, "model", None)
        block["attention/attention_output/kernel"] = ("model", None, None)
    held = sum(
        8 * np.prod(shape) // (model if path in block else 1) for path, shape in shapes.items()
    )
    if held <= memory:
        return block
    # Rows of the embedding are words: a device looks up its own, and one sum completes them.
    return {**block, "embedding/embeddings": ("model", None), "logits/kernel": (None, "model")}
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "cut-test", "points": 4} seconds=300
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
cut_cases = [
    (int(rng.integers(10, 2**31)), *given, bool(tight))
    for given, tight in zip([(4, 2, 6, 120), (2, 4, 6, 80)], rng.permutation([True, False]))
]
### END INPUTS
got_cuts = lab17.CUT.observe(cut_model, cut_cases)
lab17.CUT.check(cut_model)
### BEGIN HIDDEN TESTS
from distlab.labs.lab17 import judge as judges

judges.CUT.judge(cut_cases, got_cuts)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: place the all-gathers
#
# **4 points · hard · 25 minutes**
#
# With sharded state (FSDP), a variable that is cut over the axis `batch` has to be gathered in each step. Cut everything and you gather everything, even if a third would have been enough to fit.
#
# **Contract.** `place_gathers(shapes, devices, memory)` gets the shapes of all variables, the number of devices in a row (the mesh is `{"batch": devices}`), and the bytes of weights and momentum
# that fit on a device. It returns two things:
#
# - layouts, `{path: axes}`, with one axis of a matrix cut over `batch`. Only what has two axes or more is cut. A device holds at most `memory` bytes, and the all-gathers send as
#   few bytes as any such choice can.
# - costs, `{path: bytes}`: for each variable that is cut, how many bytes a device sends on a ring to gather it, once a step, in float32. They have to be what the compiled program sends.
#
# An axis can be cut if it divides evenly. The embedding is cut by rows or not at all: if its columns are cut, the program moves activations instead.
#
# **Example.** On 4 devices, a kernel of 8 × 6 has 192 bytes. It can be cut by rows only. A device sends 144 bytes to gather it, and holds 288 bytes less of it, weights and momentum together.
#
# <details><summary>Hint 1</summary>
#
# What does a cut variable save on a device, and what does it send? The two have a fixed ratio. Then you look for the least sum that is enough.
#
# </details>
# <details><summary>Hint 2</summary>
#
# How many matrices are there, and so how many choices? On a ring a device passes on all parts but one.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Three matrices would save 50, 40 and 30, and 65 are needed. The largest first: 50 + 40 = 90. The smallest first: 30 + 40 = 70. And 70 is the least that is enough, since 50 + 30 is 80. With
# 75 needed it would be 80, and neither order finds it.
#
# </details>


# %% nbgrader={"grade_id": "gather", "solution": true}
def place_gathers(shapes, devices, memory):
    ### BEGIN SOLUTION
    # A matrix that is cut is held devices - 1 parts less, twice (its momentum), and its gather sends that many
    # parts. So the least traffic is the least sum of savings that is enough; going by size misses it.
    import itertools

    axes, costs = {}, {}
    for path, shape in shapes.items():
        dividing = [k for k, n in enumerate(shape) if n % devices == 0]
        if path.startswith("embedding"):
            dividing = [k for k in dividing if k == 0]
        if len(shape) > 1 and dividing:
            axes[path] = tuple("batch" if k == dividing[0] else None for k in range(len(shape)))
            costs[path] = int(np.prod(shape)) * 4 * (devices - 1) // devices
    whole = 8 * sum(int(np.prod(shape)) for shape in shapes.values())
    choices = [some for n in range(len(costs) + 1) for some in itertools.combinations(costs, n)]
    fitting = [some for some in choices if whole - 2 * sum(costs[p] for p in some) <= memory]
    best = min(fitting, key=lambda some: sum(costs[p] for p in some))
    return {path: axes[path] for path in best}, {path: costs[path] for path in best}
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "gather-test", "points": 4} seconds=300
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
gather_cases = [(int(rng.integers(10, 2**31)), *given) for given in [(4, 0.5), (4, 0.5)]]
### END INPUTS
got_gathers = lab17.GATHER.observe(place_gathers, gather_cases)
lab17.GATHER.check(place_gathers)
### BEGIN HIDDEN TESTS
from distlab.labs.lab17 import judge as judges

judges.GATHER.judge(gather_cases, got_gathers)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are
# right.
