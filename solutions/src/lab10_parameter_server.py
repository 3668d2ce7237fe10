# %% [markdown] shows="Train through the loss of a server and a worker; shard a table; measure and bound staleness"
# # Lab 10 · Parameter servers
#
# Nobody waits in asynchronous training. That's its charm and its problem: updates arrive late, and the
# machine that holds your weights can die. You write training that survives the loss of a server and of a
# worker, cut a table over real servers, measure how stale updates are, and work out what a bound costs.
#
# **Time:** 60 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# In exercises 1 and 2 your function runs on the coordinator of a cluster of two workers and three
# parameter servers, all of them real processes, so a check takes some seconds. Lesson 11 has the
# ideas.
#
# {{absent}}

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import tensorflow as tf
import numpy as np

from distlab.labs.lab10 import exercise as lab10
from utils.devices import use_logical_devices

# %%
use_logical_devices(1)  # the CPU, on a machine with GPUs too
SEED = 2026

# %% [markdown]
# ## Exercise 1: lose a server, lose a worker
#
# **3 points · hard · 25 minutes**
#
# If a worker dies, the coordinator gives its closures to another one. If a parameter server dies, its
# variables are gone, and so is the run. Write the training that survives both.
#
# **Contract.** `train(strategy, coordinator, make_batches, folder, steps, every)` runs on the coordinator.
#
# | what it gets | what that is |
# |---|---|
# | `strategy`, `coordinator` | a `ParameterServerStrategy` and its `ClusterCoordinator` |
# | `make_batches()` | makes an endless data set of pairs: features `[16, 8]`, targets `[16]`. Each worker makes its own, and only workers can read it |
# | `folder` | where the checkpoints go, a path as a string |
# | `steps`, `every` | how many updates to do, all runs together; how many updates between two checkpoints |
#
# It fits a linear model, target = features · weights. The weights `[8]` are a variable on the servers that
# begins at 0. One closure is one update, on a batch of the worker that runs it: gradient descent on the mean
# of the 16 squared errors, at learning rate 0.02. After every `every` updates it writes a checkpoint, whose
# files' names have the number of updates done (`ckpt-20`). We count the batches that workers draw. When it is called, it continues from the newest
# checkpoint in `folder`, if there is one. It returns the weights as an array.
#
# Your function is called twice. In the first run we kill parameter server 0 after six checkpoints or more,
# and the run ends with an error that you needn't catch. The second call gets a new cluster, the same folder,
# and a number of `steps` that is two checkpoints away. After the first of them we kill a worker. In the second
# run's batches the last four features are 0, so what the first run learned of their weights is in your
# checkpoint alone. The returned weights must be within 5 % of the true ones. Each of the two runs has 90 seconds.
#
# **Example.** `every` is 20. The first run has written `ckpt-120` when its server dies. The second one is
# called with 160 steps, writes `ckpt-140` and `ckpt-160`, and returns the weights.
#
# <details><summary>Hint 1</summary>
#
# What must survive a server, and what is made anew in each run? May a closure still be under way while you
# save?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `coordinator.create_per_worker_dataset` takes a function that makes a data set, and an iterator of what it
# returns is an argument for a closure. `schedule` returns at once; `join` waits for all that were scheduled.
#
# </details>
# <details><summary>Worked idea</summary>
#
# A shop counts what its clerks sell. The count is on a shelf that may burn down, so the owner writes it into
# a book after every 20 sales, when no clerk is in the middle of one. A new shop begins with the last line of
# the book, and sells until the planned line.
#
# </details>


# %% nbgrader={"grade_id": "train", "solution": true}
def train(strategy, coordinator, make_batches, folder, steps, every):
    ### BEGIN SOLUTION
    # join before each save, so that a checkpoint holds whole updates, and exactly as many as its name
    # says. The step is saved with the weights: with one of the two alone, a restarted run would repeat
    # updates or forget them.
    with strategy.scope():
        weights = tf.Variable(tf.zeros([8]))
        done = tf.Variable(0, dtype=tf.int64)
    state = tf.train.Checkpoint(weights=weights, done=done)
    manager = tf.train.CheckpointManager(state, folder, max_to_keep=2)
    manager.restore_or_initialize()
    batches = iter(coordinator.create_per_worker_dataset(make_batches))

    @tf.function
    def update(iterator):
        features, targets = next(iterator)  # [16, 8], [16]
        with tf.GradientTape() as tape:
            errors = tf.linalg.matvec(features, weights) - targets
            loss = tf.reduce_mean(errors**2)
        weights.assign_sub(0.02 * tape.gradient(loss, weights))

    while int(done) < steps:
        for _ in range(every):
            coordinator.schedule(update, args=(batches,))
        coordinator.join()
        done.assign_add(every)
        manager.save(checkpoint_number=int(done))
    return weights.numpy()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "train-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
train_cases = [(int(rng.integers(2**31)), int(rng.integers(20, 35)))]
### END INPUTS
got_trained = lab10.TRAIN.observe(train, train_cases)
lab10.TRAIN.check(train)
### BEGIN HIDDEN TESTS
from distlab.labs.lab10 import judge as judges

judges.TRAIN.judge(train_cases, got_trained)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: a table over several servers
#
# **1 point · easy · 5 minutes**
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
# `tf.distribute.experimental.partitioners` has three. Any function of a shape and a dtype will do too.
#
# </details>
# <details><summary>Hint 2</summary>
#
# A partitioner returns how many pieces there are along each axis, such as `[3, 1]`. Two of the three that
# come with TensorFlow decide by bytes; the contract decides by the number of servers.
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
    # The number of pieces is given here, so nothing depends on their bytes. MinSizePartitioner would
    # leave a small table whole, and its one server would answer every look-up.
    return tf.distribute.experimental.partitioners.FixedShardsPartitioner(servers)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "partitioner-test", "points": 1}
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
# **2 points · medium · 12 minutes**
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
# What happens to closure k between its read and its apply? Only one of the two kinds of events matters.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Keep a count of all applies so far. You need to know it at two moments of each closure's life.
#
# </details>
# <details><summary>Worked idea</summary>
#
# read 0, read 1, apply 0, apply 1: when 1 reads, the count is 0; just before it applies, it is 1.
# Its staleness is 1, and closure 0's is 0.
#
# </details>


# %% nbgrader={"grade_id": "staleness", "solution": true}
def measure_staleness(events):
    ### BEGIN SOLUTION
    # A single count of applies is enough: what it gained between a closure's read and its apply are the
    # updates that the closure hasn't seen. Reads in between change nothing, so they aren't counted.
    applied, at_read, staleness = 0, {}, {}
    for kind, closure in events:
        if kind == "read":
            at_read[closure] = applied
        else:
            staleness[closure] = applied - at_read[closure]
            applied += 1
    return [staleness[closure] for closure in sorted(staleness)]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "staleness-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
event_cases = [
    (int(rng.integers(2**31)), workers, int(rng.integers(10, 40))) for workers in (2, 3, 5)
]
### END INPUTS
got_staleness = lab10.STALENESS.observe(measure_staleness, event_cases)
lab10.STALENESS.check(measure_staleness)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab10 import judge as judges

judges.STALENESS.judge(event_cases, got_staleness)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: what a bound costs
#
# **4 points · medium · 18 minutes**
#
# Between synchronous and asynchronous lies the *stale synchronous* rule (Ho et al. 2013): a worker may run
# ahead of the slowest one, but only so far. A small bound keeps updates fresh and lets fast workers wait. How
# long?
#
# **Contract.** `run_bounded(seconds, bound)` takes a list with one list for each worker: the seconds that each
# of its steps takes; all have the same number of steps. A worker's clock is the number of steps that it has
# done. All begin at time 0. A worker may begin its next step if its clock is now at most `bound` above the
# smallest clock of all (bound 0 is synchronous training). Otherwise it waits until that is so. It returns a
# dictionary: `"end"`, the time at which all have done all their steps, and `"waited"`, a list with the seconds
# that each worker waited before it could begin a step.
#
# **Example.** Worker 0 needs 1 s a step, worker 1 needs 3 s, and each has four steps. With bound 1, worker 0
# does two steps at once, until 2 s. Then it's two ahead, and waits for worker 1's first step, until 3 s. It ends
# its third step at 4 s and waits until 6 s. In all it waits 3 s, worker 1 never waits, and the run ends at 12 s.
#
# <details><summary>Hint 1</summary>
#
# Draw the example as two rows of boxes. Which box of worker 1 has to be finished before worker 0's third box may
# begin?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Go through the steps in order, and within a step through the workers. A step begins when two things are done:
# the worker's step before it, and a certain step of *every* worker.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Bound 0, steps of 1 and 2 s against steps of 2 and 1 s. Both begin their second step at 2 s, when the slower of
# the first steps is done. The first worker waits 1 s, and the run ends at 4 s.
#
# </details>


# %% nbgrader={"grade_id": "bound", "solution": true}
def run_bounded(seconds, bound):
    ### BEGIN SOLUTION
    # Step k (counted from 0) needs every worker to have done k - bound steps, so the times follow from
    # those of earlier steps, and no events are needed. Comparing with the fastest worker would let nobody
    # wait who should.
    workers, steps = len(seconds), len(seconds[0])
    done_at = np.zeros((workers, steps + 1))  # [worker, steps done]
    waited = [0.0] * workers
    for step in range(steps):
        allowed = done_at[:, max(step - bound, 0)].max()
        for worker in range(workers):
            begin = max(done_at[worker, step], allowed)
            waited[worker] += begin - done_at[worker, step]
            done_at[worker, step + 1] = begin + seconds[worker][step]
    return {"end": done_at[:, -1].max(), "waited": waited}
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "bound-test", "points": 4}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
bound_cases = [
    (
        (rng.uniform(0.2, 2, size=(workers, 12)) * rng.uniform(0.5, 3, size=(workers, 1))).tolist(),
        bound,
    )
    for workers in (2, 3, 5)
    for bound in (0, 1, 3)
]
### END INPUTS
got_bounds = lab10.BOUND.observe(run_bounded, bound_cases)
lab10.BOUND.check(run_bounded)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab10 import judge as judges

judges.BOUND.judge(bound_cases, got_bounds)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are
# right.
