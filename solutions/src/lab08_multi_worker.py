# %% [markdown] shows="Shard the data, write the worker, save on the chief; real processes"
# # Lab 08 · Training on several workers
#
# The first program that people start on two machines often trains twice on the same data, and then
# both copies write into the same checkpoint. Yours won't: you give each worker its own examples,
# write the function that every worker runs, and save so that exactly one checkpoint is left.
#
# **Time:** 55 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# Your functions run in real worker processes, each with its own TF_CONFIG, started by
# `utils.cluster.LocalCluster`, so a check takes some seconds. An error in a worker is reported here
# with the worker's name. Lesson 09 has the ideas.
#
# A function that runs in another process takes with it what it uses. It can use everything that the
# first cell imports. Import anything else inside it.
#
# {{absent}}

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import tensorflow as tf
import shutil
from pathlib import Path

import numpy as np

from distlab.labs.lab08 import exercise as lab08
from utils.devices import use_logical_devices

# %%
use_logical_devices(1)  # the CPU, on a machine with GPUs too
SEED = 2026

# %% [markdown]
# ## Exercise 1: a shard for each worker
#
# **2 points · medium · 12 minutes**
#
# **Contract.** `make_worker_dataset(ids, global_batch_size, context)` runs on every worker. It takes
# an array of example ids, the size of the global batch (a multiple of the number of workers) and a
# `tf.distribute.InputContext`. It returns a `tf.data.Dataset` of this worker's batches of ids. With
# W workers, worker i reads ids i, i + W, i + 2 W, … in this order, in batches of global batch / W.
# Every id is read once by one worker: if the last batch is smaller, it is kept.
#
# **Example.** 15 ids, 2 workers, global batch 4: worker 0 reads (0, 2), (4, 6), (8, 10), (12, 14), and
# worker 1 reads (1, 3), (5, 7), (9, 11), (13).
#
# <details><summary>Hint 1</summary>
#
# `context.num_input_pipelines` is the number of workers here, `context.input_pipeline_id` the index
# of this one.
#
# </details>
# <details><summary>Hint 2</summary>
#
# A data set has a method that keeps every n-th element. Does it matter whether you call it before or
# after you make batches?
#
# </details>
# <details><summary>Worked idea</summary>
#
# For 3 workers and ids 0 to 8, worker 2 keeps 2, 5 and 8. With a global batch of 3 it reads them one
# at a time. Had the ids been batched first, it would keep the whole batch (6, 7, 8).
#
# </details>


# %% nbgrader={"grade_id": "shards", "solution": true}
def make_worker_dataset(ids, global_batch_size, context):
    ### BEGIN SOLUTION
    # Sharded first, ids are dealt out one by one, and every worker has its part of each step.
    # Batched first, each worker would read every other whole batch, of the wrong size.
    data = tf.data.Dataset.from_tensor_slices(ids)
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.batch(context.get_per_replica_batch_size(global_batch_size))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "shards-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
_share = int(rng.integers(3, 7))  # more than in the example, so that no seed draws that
shard_cases = [(2, 2 * _share * int(rng.integers(2, 5)) - 1, 2 * _share)]
### END INPUTS
got_shards = lab08.SHARDS.observe(make_worker_dataset, shard_cases)
lab08.SHARDS.check(make_worker_dataset)
### BEGIN HIDDEN TESTS
from distlab.labs.lab08 import judge as judges

judges.SHARDS.judge(shard_cases, got_shards)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: the function that every worker runs
#
# **5 points · hard · 22 minutes**
#
# The model is one matrix: logits = images · weights, from `[784, 10]` weights in float64.
#
# **Contract.** `train_worker(seed, steps, batch)` runs on every worker. It makes a
# MultiWorkerMirroredStrategy before anything else, starts from `softmax.draw_weights(seed)` and
# takes `steps` steps of gradient descent with learning rate `lab08.RATE`. The global batch of step
# s is `lab08.read_step(seed, s, batch)`: images `[batch, 784]` and labels `[batch]`. Worker i of W
# takes every W-th example of it, starting at i. Only these lie on worker i: the other images are
# nan there, as if they were on the other machines' disks. It returns the weights as an array: the same on all
# workers, and the same as one process would get from the whole batches.
#
# **Example.** 2 workers, 2 steps, batch 16: each works on 8 examples per step, and both return the
# weights that one process would have.
#
# <details><summary>Hint 1</summary>
#
# `strategy.cluster_resolver.task_id` is i; `strategy.num_replicas_in_sync` is W here.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Inside a function that `strategy.run` calls, `tf.distribute.get_replica_context()` has a method that
# adds up the workers' tensors. What has to be done to each worker's gradient, so that the sum is the
# gradient of the mean over the whole batch?
#
# </details>
# <details><summary>Worked idea</summary>
#
# One weight w = 0, gradients 1 and 3 of two examples, one on each of two workers. Scaled by the
# batch of 2 they are 0.5 and 1.5. Their sum, 2, is the mean of 1 and 3. Both workers subtract
# rate × 2, and so keep the same weight.
#
# </details>


# %% nbgrader={"grade_id": "training", "solution": true}
def train_worker(seed, steps, batch):
    from distlab.exercises import softmax

    ### BEGIN SOLUTION
    # Each worker divides its own sum by the whole batch, so that adding up is all that is left.
    # Means over each worker's own rows, added up, make the step too long: times the number of workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    own = slice(strategy.cluster_resolver.task_id, None, strategy.num_replicas_in_sync)
    weights = tf.constant(softmax.draw_weights(seed))

    @tf.function
    def step(images, labels, weights):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, images @ weights)
            loss = tf.reduce_sum(losses) / batch
        gradient = tape.gradient(loss, weights)
        return tf.distribute.get_replica_context().all_reduce("sum", gradient)

    for number in range(steps):
        images, labels = lab08.read_step(seed, number, batch)
        shares = tf.constant(images[own]), tf.constant(labels[own])
        weights -= lab08.RATE * strategy.run(step, args=(*shares, weights))
    return weights.numpy()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "training-test", "points": 5}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
training_cases = [(2, int(rng.integers(2**31)), 3, 2 * int(rng.integers(8, 20)))]
### END INPUTS
got_trained = lab08.TRAINING.observe(train_worker, training_cases)
lab08.TRAINING.check(train_worker)
### BEGIN HIDDEN TESTS
from distlab.labs.lab08 import judge as judges

judges.TRAINING.judge(training_cases, got_trained)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: one checkpoint, and everyone takes part
#
# **3 points · hard · 18 minutes**
#
# Every worker counts the examples that it has seen. Sending a message for each step would be a
# waste, so the counter adds up only when someone reads it, and saving reads it. If only worker 0
# saves, nobody waits for the others: its all-reduce meets their next one, whatever that is, and both
# get a wrong sum, without an error. So all workers have to save. But only the chief, worker 0, may
# write into the shared folder.
#
# **Contract.** `make_counter(strategy)` returns a `tf.Variable`, a scalar of float32 that begins at
# 0. Inside `strategy.run` each worker adds its own counts to it, without a message. One worker may
# add more often than another. Read outside, it is the sum of all workers' counts.
# `save_run(strategy, checkpoint, shared)` is called on every worker. It gets a `tf.train.Checkpoint`
# of the counter, and the path of the shared folder, a string. Afterwards worker 0 has written the
# checkpoint into the shared folder, under the name `ckpt`, and no other worker has written anything
# there. What others wrote elsewhere (in a folder next to the shared one, in the same parent) is gone.
#
# **Example.** Worker 0 has counted 10 and 20, worker 1 has counted 5, 3 and 4. The shared folder
# holds one checkpoint, with 42 in it, and the all-reduces that come next give the right sums.
#
# <details><summary>Hint 1</summary>
#
# `strategy.cluster_resolver.task_id` is the index of this worker. Which lines are for all workers,
# which only for some?
#
# </details>
# <details><summary>Hint 2</summary>
#
# A variable in a strategy's scope has a `synchronization`, which says when its copies come together
# (`tf.VariableSynchronization`), and an `aggregation`, which says how. `checkpoint.write(prefix)`
# makes the folder that it needs. `shutil.rmtree(folder)` removes one with all that is in it. Which
# folder must it never get?
#
# </details>
# <details><summary>Worked idea</summary>
#
# For log files you would do the same: worker 0 logs to `/runs/log`, worker k to `/runs/log-k`. The
# index in the names keeps them apart, and worker k can remove its own as soon as it's written.
#
# </details>


# %% nbgrader={"grade_id": "saving", "solution": true}
def make_counter(strategy):
    ### BEGIN SOLUTION
    # ON_READ lets each worker add to its own copy without a message; SUM says what reading makes of
    # the copies. The default, ON_WRITE, sends a message with every addition.
    with strategy.scope():
        return tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    ### END SOLUTION


def save_run(strategy, checkpoint, shared):
    ### BEGIN SOLUTION
    # All workers write, since writing reads the counter together; only the place differs.
    # An `if index == 0` around the write looks cheaper, but gives two wrong sums.
    index = strategy.cluster_resolver.task_id
    folder = shared if index == 0 else str(Path(shared).parent / f"worker-{index}")
    checkpoint.write(f"{folder}/ckpt")
    if index != 0:
        shutil.rmtree(folder)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "saving-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
saving_cases = [tuple(rng.integers(8, 100, size=k).astype(float).tolist() for k in (2, 3))]
### END INPUTS
got_saved = lab08.SAVING.observe((make_counter, save_run), saving_cases)
lab08.SAVING.check((make_counter, save_run))
### BEGIN HIDDEN TESTS
from distlab.labs.lab08 import judge as judges

judges.SAVING.judge(saving_cases, got_saved)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are
# right.
