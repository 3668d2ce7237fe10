# %% [markdown] shows="Schedule closures, shard a table, measure and bound staleness"
# # Lab 10 · Parameter servers
#
# Nobody waits in asynchronous training, which is its charm and its problem: updates arrive late.
# You schedule closures on real workers, cut a table over real servers, measure how stale updates
# are, and bound it.
#
# **Time:** 45 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# In exercises 1 and 2 your function runs on the coordinator of a cluster of two workers and three
# parameter servers, all of them real processes, so a check takes some seconds. Lesson 11 has the
# ideas.

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import tensorflow as tf
import numpy as np

from distlab.labs.lab10 import exercise as lab10

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: schedule and join
#
# **4 points · medium · 12 minutes**
#
# **Contract.** `run_closures(coordinator, closure, count)` takes a `ClusterCoordinator`, a
# `tf.function` without arguments that returns a scalar, and a number. It runs the closure `count`
# times on the workers: it schedules all of them before it waits for any or fetches a result, waits
# once until all are done, and returns the sum of what they returned, as a number.
#
# **Example.** For 6 closures: `schedule` is called 6 times, then `join` once.
#
# <details><summary>Hint 1</summary>
#
# `coordinator.schedule(closure)` returns at once, with a promise of the result.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `coordinator.join()` waits for all of them. After it, `coordinator.fetch(results)` gives a list of
# values.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Three closures that return 1, 2 and 3: schedule three times and keep the three promises in a list;
# join; fetch the list; its sum is 6. With a join after each, one worker would work while the other
# sits idle.
#
# </details>


# %% nbgrader={"grade_id": "closures", "solution": true}
def run_closures(coordinator, closure, count):
    ### BEGIN SOLUTION
    results = [coordinator.schedule(closure) for _ in range(count)]
    coordinator.join()
    return sum(float(value) for value in coordinator.fetch(results))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "closures-test", "points": 4}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
closure_cases = [(int(rng.integers(2**31)), int(rng.integers(5, 30)))]
### END INPUTS
got_closures = lab10.CLOSURES.observe(run_closures, closure_cases)
lab10.CLOSURES.check(run_closures)
### BEGIN HIDDEN TESTS
from distlab.labs.lab10 import judge as judges

judges.CLOSURES.judge(closure_cases, got_closures)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: a table over several servers
#
# **2 points · easy · 8 minutes**
#
# **Contract.** `make_partitioner(servers)` returns what
# `tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=...)` takes: a partitioner
# that cuts every variable along its first axis into as many pieces as there are servers, as equal
# as possible. Every variable here has more rows than there are servers.
#
# **Example.** 10 rows over 3 servers: 4 rows on server 0, 3 on server 1, 3 on server 2.
#
# <details><summary>Hint 1</summary>
#
# Look into `tf.distribute.experimental.partitioners`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# One of the three cuts into a fixed number of shards.
#
# </details>
# <details><summary>Worked idea</summary>
#
# `MaxSizePartitioner(max_shard_bytes=1 << 20)` would cut a table of 3 MB into three pieces or more,
# and leave one of 100 kB whole, however many servers there are.
#
# </details>


# %% nbgrader={"grade_id": "partitioner", "solution": true}
def make_partitioner(servers):
    ### BEGIN SOLUTION
    return tf.distribute.experimental.partitioners.FixedShardsPartitioner(servers)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "partitioner-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
table_cases = [(3 * int(rng.integers(20, 400)) + int(rng.integers(1, 3)),)]
### END INPUTS
got_pieces = lab10.PARTITIONER.observe(make_partitioner, table_cases)
lab10.PARTITIONER.check(make_partitioner)
### BEGIN HIDDEN TESTS
from distlab.labs.lab10 import judge as judges

judges.PARTITIONER.judge(table_cases, got_pieces)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: how stale is an update?
#
# **3 points · medium · 12 minutes**
#
# A closure reads the parameters, computes, and applies its update. If others apply theirs in
# between, it is stale: it was computed for parameters that are no longer there.
#
# **Contract.** `measure_staleness(events)` takes what happened, in order: pairs `("read", k)` and
# `("apply", k)` of closure k. Every closure reads once and later applies once. It returns a list
# with the staleness of closures 0, 1, 2, …: how many *other* updates were applied after closure k
# had read and before it applied its own.
#
# **Example.** read 0, read 1, apply 1, read 2, apply 2, apply 0: closure 0 has staleness 2,
# closures 1 and 2 have 0.
#
# <details><summary>Hint 1</summary>
#
# Count the applies as you go along. What was the count when closure k read?
#
# </details>
# <details><summary>Hint 2</summary>
#
# The staleness is the count just before its own apply, minus the count at its read.
#
# </details>
# <details><summary>Worked idea</summary>
#
# read 0, read 1, apply 0, apply 1: when 1 reads, the count is 0; just before it applies, it is 1.
# Its staleness is 1, that of closure 0 is 0.
#
# </details>


# %% nbgrader={"grade_id": "staleness", "solution": true}
def measure_staleness(events):
    ### BEGIN SOLUTION
    applied, at_read, staleness = 0, {}, {}
    for kind, closure in events:
        if kind == "read":
            at_read[closure] = applied
        else:
            staleness[closure] = applied - at_read[closure]
            applied += 1
    return [staleness[closure] for closure in sorted(staleness)]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "staleness-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
event_cases = [
    (int(rng.integers(2**31)), workers, int(rng.integers(10, 40))) for workers in (2, 3, 5)
]
### END INPUTS
got_staleness = lab10.STALENESS.observe(measure_staleness, event_cases)
lab10.STALENESS.check(measure_staleness)
### BEGIN HIDDEN TESTS
from distlab.labs.lab10 import judge as judges

judges.STALENESS.judge(event_cases, got_staleness)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: a bound
#
# **1 point · easy · 7 minutes**
#
# Between synchronous and asynchronous lies the *stale synchronous* rule (Ho et al. 2013): a worker
# may run ahead of the slowest one, but only so far. A worker's clock is the number of steps that it
# has done.
#
# **Contract.** `may_start(own_clock, clocks, bound)` takes the clock of the worker that asks, the
# clocks of all workers, its own included, and the bound, 0 or more. It returns True if the worker
# may begin its next step, that is, if it is now at most `bound` steps ahead of the slowest.
#
# **Example.** Clocks 3, 1 and 2, bound 2: the worker at 3 is 2 ahead of the slowest and may start.
# With clocks 4, 1 and 2 the worker at 4 must wait.
#
# <details><summary>Hint 1</summary>
#
# Bound 0 is synchronous training: no worker begins a step before all have done the last one.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Which of all the clocks is the only one that matters?
#
# </details>
# <details><summary>Worked idea</summary>
#
# Bound 1, clocks 2, 2, 3: the workers at 2 may start, since they are level with the slowest. The
# one at 3 is 1 ahead and may start. After that step it is at 4, 2 ahead, and waits.
#
# </details>


# %% nbgrader={"grade_id": "start", "solution": true}
def may_start(own_clock, clocks, bound):
    ### BEGIN SOLUTION
    return own_clock - min(clocks) <= bound
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "start-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
start_cases = []
for _ in range(24):
    _clocks = rng.integers(0, 9, size=4).tolist()
    start_cases.append((_clocks[0], _clocks, int(rng.integers(0, 4))))
start_cases += [(5, [5, 3, 9, 4], 2), (6, [6, 3, 6, 6], 2), (2, [2, 9, 8, 7], 0)]
### END INPUTS
got_starts = lab10.START.observe(may_start, start_cases)
lab10.START.check(may_start)
### BEGIN HIDDEN TESTS
from distlab.labs.lab10 import judge as judges

judges.START.judge(start_cases, got_starts)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are
# right.
