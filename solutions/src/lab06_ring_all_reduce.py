# %% [markdown] shows="Reduce-scatter and all-gather; graded by sums, bytes and messages"
# # Lab 06 · Ring all-reduce
#
# Every library that trains on many devices has this algorithm inside. You write both halves of it, put them together, and predict what it costs.
#
# **Time:** 45 minutes · **Points:** 10 · **Hardware:** any computer; nothing here starts TensorFlow
#
# All ranks live in this process, and every message goes through a network that counts it. The ranks stand in a ring: rank r sits between r - 1 and r + 1, and the last one's neighbor is rank 0. With P ranks, each rank's vector is cut into P chunks. `chunks[r][k]` is chunk k as rank r holds it, a NumPy array.
#
# ```python
# arrived = network.exchange([Send(source, destination, values, chunk), ...])   # one step; a list
# for message in arrived:
#     message.destination, message.chunk, message.values
# ```
#
# In one step, each rank sends at most one message and receives at most one; all of them travel at once. You're graded on the sums, the number of steps, the messages and bytes of each rank, and what the messages held. When you submit, other cases are drawn from another `SEED`. The lines between `BEGIN INPUTS` and `END INPUTS` draw them; leave those as they are. Lesson 06 has the ideas.
#
# {{absent}}

# %%
import numpy as np

from distlab.labs.lab06 import exercise as lab06
from distlab.labs.lab06.exercise import Send

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: reduce-scatter
#
# **4 points · medium · 17 minutes**
#
# **Contract.** `reduce_scatter(chunks, network)` takes P - 1 steps. In each step, every rank sends one of its chunks to the next rank, r + 1, which adds it to its own. Afterwards rank r holds the complete sum of chunk (r + 1) mod P. What it holds of the other chunks doesn't matter. With one rank it sends nothing. It changes `chunks` in place, or returns the changed ones.
#
# What counts is what arrives. In some trials the network adds 1 to every value on its way, so the sums show whether a rank used its messages, or looked into its neighbor's memory. In a cluster that is another machine.
#
# **Example.** Two ranks hold the chunks (1), (2) and (10), (20). Rank 0 sends 1 and rank 1 sends 20. Afterwards rank 0 holds (1), (22) and rank 1 (11), (20).
#
# <details><summary>Hint 1</summary>
#
# One step is one call of `network.exchange` with P messages. Collect all of them first, then add what arrived. Which chunk does each rank send in step 0, and which in step 1? Work backwards from where each sum has to end.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `% ranks` closes the ring, for the neighbor and for the chunk. Each message that arrives knows its destination and its chunk, so adding takes one line.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Three ranks, step 0: rank 0 sends chunk 0, rank 1 chunk 1, rank 2 chunk 2. In step 1 rank 1 sends chunk 0. It has just added rank 0's to it. So chunk 0 arrives at rank 2 with the values of two ranks in it, and is complete once rank 2 adds its own.
#
# </details>


# %% nbgrader={"grade_id": "scatter", "solution": true}
def reduce_scatter(chunks, network):
    ### BEGIN SOLUTION
    # A rank sends on what it has just added to, which is chunk rank - step. Sending rank + step, or
    # always the same chunk, moves as many bytes, but no chunk ever meets all ranks.
    ranks = len(chunks)
    for step in range(ranks - 1):
        sends = []
        for rank in range(ranks):
            k = (rank - step) % ranks
            sends.append(Send(rank, (rank + 1) % ranks, chunks[rank][k], k))
        for message in network.exchange(sends):
            chunks[message.destination][message.chunk] += message.values
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "scatter-test", "points": 4}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
scatter_cases = [
    (int(rng.integers(2**31)), ranks, int(rng.integers(ranks, 40)), float(mark))
    for ranks, mark in ((2, 0), (3, 1), (5, 0), (8, 1), (1, 0))
]
### END INPUTS
got_scattered = lab06.SCATTER.observe(reduce_scatter, scatter_cases)
lab06.SCATTER.check(reduce_scatter)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab06 import judge as judges

judges.SCATTER.judge(scatter_cases, got_scattered)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: all-gather
#
# **2 points · medium · 10 minutes**
#
# **Contract.** `all_gather(chunks, network)` begins where reduce-scatter ended: rank r holds the complete sum of chunk (r + 1) mod P. It takes P - 1 steps. In each step, every rank sends one finished chunk to the next rank, r + 1, which replaces its own with it. Afterwards every rank holds every sum. Like `reduce_scatter`, it changes `chunks` in place or returns the changed ones. Here, too, what counts is what arrives: in some trials the network adds 1 to every value.
#
# **Example.** From (1), (22) and (11), (20): rank 0 sends 22, rank 1 sends 11, and both hold (11), (22).
#
# <details><summary>Hint 1</summary>
#
# It's the same loop as before, with another chunk and another assignment.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The sums are complete. What would happen if you added them once more?
#
# </details>
# <details><summary>Worked idea</summary>
#
# Three ranks: rank 0 has finished chunk 1, rank 1 chunk 2, rank 2 chunk 0. Step 0 sends exactly these. In step 1 rank 0 passes on chunk 0, which has just arrived.
#
# </details>


# %% nbgrader={"grade_id": "gather", "solution": true}
def all_gather(chunks, network):
    ### BEGIN SOLUTION
    # The same walk, one chunk further, because that is where the first half ended. Sums are whole
    # now, so they replace: with += every chunk would be counted several times.
    ranks = len(chunks)
    for step in range(ranks - 1):
        sends = []
        for rank in range(ranks):
            k = (rank + 1 - step) % ranks
            sends.append(Send(rank, (rank + 1) % ranks, chunks[rank][k], k))
        for message in network.exchange(sends):
            chunks[message.destination][message.chunk] = message.values
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "gather-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
gather_cases = [
    (int(rng.integers(2**31)), ranks, int(rng.integers(ranks, 40)), float(mark))
    for ranks, mark in ((2, 0), (3, 1), (5, 0), (8, 1), (1, 0))
]
### END INPUTS
got_gathered = lab06.GATHER.observe(all_gather, gather_cases)
lab06.GATHER.check(all_gather)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab06 import judge as judges

judges.GATHER.judge(gather_cases, got_gathered)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: the whole all-reduce
#
# **3 points · medium · 10 minutes**
#
# **Contract.** `all_reduce(vectors, network)` is exercise 1 followed by exercise 2. It takes one array `[length]` for each rank. It returns a list with one array `[length]` for each rank: the sum, as that rank has it. Each vector is cut into P chunks as `np.array_split` does it. If the length doesn't divide evenly, the first chunks are one element longer. With fewer elements than ranks, the last chunks are empty. Empty chunks are sent all the same, and with one rank nothing is sent.
#
# **Example.** Two ranks, (1, 2, 3) and (10, 20, 30): both get (11, 22, 33). Chunk 0 has two elements, chunk 1 has one. Each rank sends 2 messages, 3 elements of 8 bytes in all.
#
# <details><summary>Hint 1</summary>
#
# You have both halves. What's left is cutting and joining.
#
# </details>
# <details><summary>Hint 2</summary>
#
# NumPy has a function that cuts an array into nearly equal pieces (the contract names it), and one that joins pieces. Which of the two belongs before the two halves, and what does each rank's row of chunks need at the end?
#
# </details>
# <details><summary>Worked idea</summary>
#
# A vector of 7 over 3 ranks has chunks of 3, 2 and 2 elements. In each half a rank sends every chunk but one. Both halves together are about 2 × 2/3 of its 56 bytes.
#
# </details>


# %% nbgrader={"grade_id": "all-reduce", "solution": true}
def all_reduce(vectors, network):
    ### BEGIN SOLUTION
    # array_split copes with every length, so uneven and empty chunks need no case of their own.
    # Cutting length // ranks elements each loses the rest, or leaves it to the last rank.
    chunks = [np.array_split(vector, len(vectors)) for vector in vectors]
    reduce_scatter(chunks, network)
    all_gather(chunks, network)
    return [np.concatenate(row) for row in chunks]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "all-reduce-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
all_reduce_cases = [
    (int(rng.integers(2**31)), ranks, ranks * int(rng.integers(2, 6)) + rest)
    for ranks, rest in ((3, 1), (4, 3), (5, 2))
]
all_reduce_cases += [(int(rng.integers(2**31)), 1, 5), (int(rng.integers(2**31)), 5, 3)]
### END INPUTS
got_reduced = lab06.ALL_REDUCE.observe(all_reduce, all_reduce_cases)
lab06.ALL_REDUCE.check(all_reduce)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab06 import judge as judges

judges.ALL_REDUCE.judge(all_reduce_cases, got_reduced)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: what it costs
#
# **1 point · easy · 7 minutes**
#
# In the alpha-beta model, a message takes one latency plus its bytes divided by the bandwidth. Messages of one step travel at the same time.
#
# **Contract.** `ring_seconds(ranks, payload_bytes, latency_seconds, bandwidth)` takes the number of ranks, the bytes of one rank's vector, the latency of one message in seconds and the bandwidth in bytes per second. It returns the seconds of a ring all-reduce. Count a chunk as exactly 1/P of the vector.
#
# **Example.** 4 ranks, 1 MB, 10 µs, 1 GB/s: 6 steps of 10 µs and 250 kB each, 0.00156 s.
#
# <details><summary>Hint 1</summary>
#
# How many steps are there in the two halves together?
#
# </details>
# <details><summary>Hint 2</summary>
#
# How many bytes does one message of one step carry?
#
# </details>
# <details><summary>Worked idea</summary>
#
# 2 ranks, 8 bytes, latency 1 s, 2 bytes per second: 2 steps, each 1 s and 4 bytes, so 2 × (1 + 2) = 6 seconds.
#
# </details>


# %% nbgrader={"grade_id": "seconds", "solution": true}
def ring_seconds(ranks, payload_bytes, latency_seconds, bandwidth):
    ### BEGIN SOLUTION
    # Each step costs one latency and one chunk, and both halves take ranks - 1 steps. Forgetting
    # that a chunk is 1/P of the vector makes the ring look worse with every rank.
    steps = 2 * (ranks - 1)
    return steps * (latency_seconds + payload_bytes / ranks / bandwidth)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "seconds-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
seconds_cases = [
    (ranks, float(rng.uniform(1e5, 1e6)), float(rng.uniform(1e-5, 1e-4)), 1e9)
    for ranks in (2, 3, 16)
]
### END INPUTS
got_seconds = lab06.SECONDS.observe(ring_seconds, seconds_cases)
lab06.SECONDS.check(ring_seconds)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab06 import judge as judges

judges.SECONDS.judge(seconds_cases, got_seconds)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should report that its worked examples are right.
