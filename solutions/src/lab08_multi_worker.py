# %% [markdown] shows="Shard the data, write the worker, save on the chief; real processes"
# # Lab 08 · Training on several workers
#
# The first program that people start on two machines often trains twice on the same data, and then
# both copies write into the same checkpoint. Yours won't: you give each worker its own examples,
# write the function that every worker runs, and save so that exactly one checkpoint is left.
#
# **Time:** 50 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# Your functions run in real worker processes, each with its own TF_CONFIG, started by
# `utils.cluster.LocalCluster`, so a check takes some seconds. An error in a worker is reported here
# with the worker's name. Lesson 09 has the ideas.
#
# A function that runs in another process takes with it what it uses. Import what it needs inside
# it, or use the `np` and `tf` of this notebook.

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import tensorflow as tf
import shutil
from pathlib import Path

import numpy as np

from distlab.labs.lab08 import exercise as lab08

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: a shard for each worker
#
# **3 points · medium · 12 minutes**
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
# `dataset.shard(parts, index)` keeps every `parts`-th element.
# `context.get_per_replica_batch_size(n)` divides.
#
# </details>
# <details><summary>Worked idea</summary>
#
# For 3 workers and ids 0 to 8: worker 2 keeps `dataset.shard(3, 2)`, which is 2, 5, 8. With a global
# batch of 3 it reads them one at a time.
#
# </details>


# %% nbgrader={"grade_id": "shards", "solution": true}
def make_worker_dataset(ids, global_batch_size, context):
    ### BEGIN SOLUTION
    data = tf.data.Dataset.from_tensor_slices(ids)
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.batch(context.get_per_replica_batch_size(global_batch_size))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "shards-test", "points": 3}
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
# **4 points · hard · 20 minutes**
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
# **Example.** 2 workers, 2 steps, batch 16: each works on 8 examples a step, and both return the
# weights that one process would have.
#
# <details><summary>Hint 1</summary>
#
# `strategy.cluster_resolver.task_id` is i; `strategy.num_replicas_in_sync` is W here.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Compute the gradient of the sum of your losses, divided by the *global* batch, inside a function
# that `strategy.run` calls. There,
# `tf.distribute.get_replica_context().all_reduce("sum", gradient)` adds up all workers' gradients.
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


# %% nbgrader={"grade": true, "grade_id": "training-test", "points": 4}
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
# ## Exercise 3: one checkpoint, not three
#
# **3 points · medium · 15 minutes**
#
# Every worker must take part in saving: some variables are read with an all-reduce, and if one
# worker does not save, the others wait for it. But only the chief, worker 0, may write into the
# shared folder. In the check the workers write one after the other, each a different value.
#
# **Contract.** `choose_folder(shared, index)` takes the path of the shared folder, a string, and the
# worker's index. It returns the path of the folder that this worker writes its checkpoint into: the
# shared one for worker 0, and for each other worker a folder of its own next to it (in the same
# parent folder), which need not exist yet. `clean_up(shared, folder, index)` is called when all have
# written; `folder` is what `choose_folder` returned. It removes what this worker wrote outside the
# shared folder.
#
# **Example.** For 3 workers and `/runs/shared`: `/runs/shared`, `/runs/worker-1`,
# `/runs/worker-2`; afterwards only the first is there.
#
# <details><summary>Hint 1</summary>
#
# `Path(shared).parent / name` is a folder next to the shared one.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `shutil.rmtree(folder)` removes a folder with all that is in it. Which folder must it never get?
#
# </details>
# <details><summary>Worked idea</summary>
#
# For log files you would do the same: worker 0 logs to `/runs/log`, worker k to `/runs/log-k`. The
# index in the names keeps them apart.
#
# </details>


# %% nbgrader={"grade_id": "saving", "solution": true}
def choose_folder(shared, index):
    ### BEGIN SOLUTION
    return shared if index == 0 else str(Path(shared).parent / f"worker-{index}")
    ### END SOLUTION


def clean_up(shared, folder, index):
    ### BEGIN SOLUTION
    if index != 0:
        shutil.rmtree(folder)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "saving-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
saving_cases = [(3, float(rng.integers(2, 1000)))]
### END INPUTS
got_saved = lab08.SAVING.observe((choose_folder, clean_up), saving_cases)
lab08.SAVING.check((choose_folder, clean_up))
### BEGIN HIDDEN TESTS
from distlab.labs.lab08 import judge as judges

judges.SAVING.judge(saving_cases, got_saved)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel and run all cells. Every check cell should print that its worked examples are
# right.
