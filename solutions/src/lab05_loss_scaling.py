# %% [markdown] shows="Five losses to fix, each measured on four real replicas"
# # Lab 05 · Loss scaling
#
# Five losses that people really write: none of them raises an error, and on four replicas all of them are wrong. Fix each one, so that four replicas take exactly the step of one device.
#
# **Time:** 40 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# You write what one replica computes. The check cell runs it under MirroredStrategy on four replicas, takes one step of plain gradient descent at learning rate 1, and compares the update with the gradient of the mean loss on one device. It reports the ratio: ×1 is right, ×4 is four times too large. *Turned* means that the direction is off as well, which no learning rate fixes. The check uses batches of its own. When you hand in, other cases are drawn from another `SEED`. The lines between `BEGIN INPUTS` and `END INPUTS` draw them; leave those as they are.
#
# In every exercise TensorFlow **adds up** the replicas' gradients. Lesson 05 has the ideas.

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import tensorflow as tf
import numpy as np

from utils.devices import use_logical_devices
from distlab.exercises import lab05

print(use_logical_devices(4))

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: one replica's loss
#
# **2 points · easy · 6 minutes**
#
# A loop for one device has `loss = tf.reduce_mean(losses)`. On four replicas of 16 examples its steps are four times too long. Fix it.
#
# **Contract.** `replica_loss(losses, global_batch_size)` takes this replica's per-example losses, a tensor `[share]` of float64, and the number of examples in the whole batch, an int. It returns a scalar tensor. Added up, the replicas' gradients of it are the gradient of the mean loss. Shares may differ in size.
#
# **Example.** On a replica that holds the losses 1, 2 and 3 of a batch of 12 it returns 0.5.
#
# <details><summary>Hint 1</summary>
#
# Write down the mean of all 64 losses as four sums. What does each replica contribute?
#
# </details>
# <details><summary>Hint 2</summary>
#
# A replica's number need not be a mean of anything. It is its part of one mean.
#
# </details>
# <details><summary>Worked idea</summary>
#
# The mean of 1, 2, 3 and 6 is 12 / 4 = 3. Two replicas hold (1, 2) and (3, 6). If each divides its sum by 4, they have 0.75 and 2.25, which add up to 3. If each takes its own mean, they have 1.5 and 4.5, which add up to 6: twice too much.
#
# </details>


# %% nbgrader={"grade_id": "plain", "solution": true}
def replica_loss(losses, global_batch_size):
    ### BEGIN SOLUTION
    return tf.reduce_sum(losses) / global_batch_size
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "plain-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
plain_cases = [(int(rng.integers(2**31)), examples) for examples in (64, 48)]
### END INPUTS
got_plain = lab05.PLAIN.observe(replica_loss, plain_cases)
lab05.PLAIN.check(replica_loss)
### BEGIN HIDDEN TESTS
from distlab.grading.judges import lab05 as judges

judges.PLAIN.judge(plain_cases, got_plain)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: sample weights
#
# **2 points · medium · 8 minutes**
#
# Examples can have weights, for instance because one class is rare. People write `tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)`, and each replica then divides by the weights it happens to hold. Fix it.
#
# **Contract.** `weighted_loss(losses, weights, global_batch_size)` takes two tensors `[share]` of float64 and the number of examples in the whole batch. It returns a scalar tensor. Together the replicas minimise the sum of weight × loss over the whole batch, divided by the number of its *examples*, as `tf.nn.compute_average_loss` does. (Dividing by the sum of *all* weights is a sound mean too, the other one in lesson 05. It needs that sum from all replicas, and here it counts as wrong.)
#
# **Example.** Losses 1 and 2 with weights 3 and 0.5, in a batch of 8: 4 / 8 = 0.5.
#
# <details><summary>Hint 1</summary>
#
# Of the numbers that you could divide by, which is the same on all replicas?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Weight each loss before you add up: a mean of products is not a product of means.
#
# </details>
# <details><summary>Worked idea</summary>
#
# One replica holds the loss 2 with weight 10, the other the loss 4 with weight 1. Together that is (20 + 4) / 2 = 12. Divided by their own weights they give 2 and 4: the heavy example counts no more than the light one.
#
# </details>


# %% nbgrader={"grade_id": "weighted", "solution": true}
def weighted_loss(losses, weights, global_batch_size):
    ### BEGIN SOLUTION
    return tf.reduce_sum(losses * weights) / global_batch_size
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "weighted-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
weighted_cases = [(int(rng.integers(2**31)), examples) for examples in (64, 50)]
### END INPUTS
got_weighted = lab05.WEIGHTED.observe(weighted_loss, weighted_cases)
lab05.WEIGHTED.check(weighted_loss)
### BEGIN HIDDEN TESTS
from distlab.grading.judges import lab05 as judges

judges.WEIGHTED.judge(weighted_cases, got_weighted)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: a penalty on the weights
#
# **2 points · medium · 8 minutes**
#
# `loss = tf.nn.compute_average_loss(losses, global_batch_size=64) + penalty` is right for the data. But the penalty depends on the weights alone, and every replica has the same weights. Fix it.
#
# **Contract.** `penalised_loss(losses, penalty, global_batch_size, replicas)` takes a tensor `[share]`, a scalar tensor, the number of examples in the whole batch and the number of replicas. It returns a scalar tensor. Added up, the replicas' gradients are the gradient of the mean loss plus *one* penalty.
#
# **Example.** Losses 1 and 3 in a batch of 8, penalty 0.4, 4 replicas: 0.5 + 0.1 = 0.6.
#
# <details><summary>Hint 1</summary>
#
# Four replicas add up four times what each of them adds.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Do the two parts of the loss need the same divisor?
#
# </details>
# <details><summary>Worked idea</summary>
#
# Two replicas, penalty 6. If both add 6, the sum of the gradients holds 12. If each adds 3, it holds 6, as on one device. `tf.nn.scale_regularization_loss` does this.
#
# </details>


# %% nbgrader={"grade_id": "penalised", "solution": true}
def penalised_loss(losses, penalty, global_batch_size, replicas):
    ### BEGIN SOLUTION
    return tf.reduce_sum(losses) / global_batch_size + penalty / replicas
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "penalised-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
penalised_cases = [
    (int(rng.integers(2**31)), examples, examples, float(rng.uniform(0.05, 0.2)))
    for examples in (64, 48)
]
### END INPUTS
got_penalised = lab05.PENALISED.observe(penalised_loss, penalised_cases)
lab05.PENALISED.check(penalised_loss)
### BEGIN HIDDEN TESTS
from distlab.grading.judges import lab05 as judges

judges.PENALISED.judge(penalised_cases, got_penalised)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: the last, uneven batch
#
# **2 points · hard · 10 minutes**
#
# 66 examples in batches of 32 leave 2 for the last step. Four replicas hold 1, 1, 0 and 0 of them. `tf.nn.compute_average_loss(losses)` divides by own count × replicas, which is 0 on the empty ones. Fix it.
#
# **Contract.** `uneven_loss(losses, batch_examples, global_batch_size)` takes a tensor `[share]`, which may be empty, the number of examples that this batch really holds over all replicas, and the size of a full batch. It returns a scalar tensor, 0 for an empty share. Added up, the replicas' gradients are the gradient of the mean loss of the examples *in this batch*.
#
# **Example.** A replica holds one example with the loss 3, in a last batch of 2 where a full one has 32: it returns 1.5. With no losses at all it returns 0.
#
# <details><summary>Hint 1</summary>
#
# What is the sum of no numbers, and what is their mean?
#
# </details>
# <details><summary>Hint 2</summary>
#
# One device that got this batch would divide by 2, not by 32.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Two of four replicas hold the losses 3 and 5. Divided by 2, these are 1.5 and 2.5; the two empty replicas add 0. The sum is 4, the mean of 3 and 5. Divided by 32 they would add up to 0.25, a sixteenth of it.
#
# </details>


# %% nbgrader={"grade_id": "uneven", "solution": true}
def uneven_loss(losses, batch_examples, global_batch_size):
    ### BEGIN SOLUTION
    return tf.reduce_sum(losses) / batch_examples
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "uneven-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
uneven_cases = [(int(rng.integers(2**31)), examples, 64) for examples in (3, 21, 64)]
### END INPUTS
got_uneven = lab05.UNEVEN.observe(uneven_loss, uneven_cases)
lab05.UNEVEN.check(uneven_loss)
### BEGIN HIDDEN TESTS
from distlab.grading.judges import lab05 as judges

judges.UNEVEN.judge(uneven_cases, got_uneven)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 5: a loss for every pixel
#
# **2 points · medium · 8 minutes**
#
# A model that rebuilds small images has one loss for every pixel. `tf.reduce_sum(losses) / global_batch_size` adds up 49 of them for each image of 7 × 7. Fix it.
#
# **Contract.** `pixel_loss(losses, global_batch_size)` takes a tensor `[share, height, width]` and the number of images in the whole batch. It returns a scalar tensor. The loss of one image is the mean over its pixels; added up, the replicas' gradients are those of the mean over all images.
#
# **Example.** One image of 7 × 7 pixels that all have the loss 2, in a batch of 8: 2 / 8 = 0.25.
#
# <details><summary>Hint 1</summary>
#
# Two means, one after the other. Which of them lies within a replica?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `tf.reduce_mean(losses, axis=[1, 2])` has one number for each image, `[share]`. Exercise 1 shows what comes next.
#
# </details>
# <details><summary>Worked idea</summary>
#
# A replica holds two images of 2 × 2 pixels, in a batch of 4. Their pixels have the losses (1, 1, 1, 5) and (0, 0, 0, 4). So the images' losses are 2 and 1, and the replica contributes 3 / 4.
#
# </details>


# %% nbgrader={"grade_id": "pixels", "solution": true}
def pixel_loss(losses, global_batch_size):
    ### BEGIN SOLUTION
    return tf.reduce_sum(tf.reduce_mean(losses, axis=[1, 2])) / global_batch_size
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "pixels-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 5])
pixel_cases = [(int(rng.integers(2**31)), examples) for examples in (64, 48)]
### END INPUTS
got_pixels = lab05.PIXELWISE.observe(pixel_loss, pixel_cases)
lab05.PIXELWISE.check(pixel_loss)
### BEGIN HIDDEN TESTS
from distlab.grading.judges import lab05 as judges

judges.PIXELWISE.judge(pixel_cases, got_pixels)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel and run all cells. Every check cell should report ×1.
