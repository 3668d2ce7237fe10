# %% [markdown] shows="Losses and a clipping rule to fix, each measured on four real replicas; bugs to name from what was measured"
# # Lab 05 · Loss scaling
#
# Three losses and a clipping rule that people really write: none of them raises an error, and on four replicas all of them are wrong. Fix each one, so that four replicas take exactly the step of one device. Then turn it around: from two measured numbers, name the bug.
#
# **Time:** 60 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# In exercises 1 to 4 you write what one replica computes. The check cell runs it under MirroredStrategy on four replicas, takes one step of plain gradient descent at learning rate 1, and compares the update with one device's (in exercise 3, with the clipped gradient). It reports the ratio: ×1 is right, ×4 is four times too large. *Turned* means that the direction is off as well, which no learning rate fixes. The *residual* says how far, as a fraction of the right update's norm. The check uses its own batches. When you submit, other cases are drawn from another `SEED`. The lines between `BEGIN INPUTS` and `END INPUTS` draw them; leave those as they are.
#
# In every exercise TensorFlow **adds up** the replicas' gradients. Lesson 05 has the ideas.
#
# {{absent}}

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import tensorflow as tf
import numpy as np

from utils.devices import use_logical_devices
from distlab.labs.lab05 import exercise as lab05

print(use_logical_devices(4))

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: ten errors for each example
#
# **1 point · medium · 8 minutes**
#
# A model that paints a picture has an error for every pixel, and the loss of an example is the mean of its errors. On one device the line for that is `tf.reduce_mean(errors)`. On four replicas of 16 examples each, the steps of this line are four times too long. `tf.nn.compute_average_loss(errors, global_batch_size=64)` doesn't fix it: then they are ten times too long. Write one that is right.
#
# **Contract.** `replica_loss(errors, global_batch_size)` takes this replica's errors, a tensor `[share, 10]` of float64 with ten for each example, and the number of examples in the whole batch, an int. It returns a scalar tensor. Added up, the replicas' gradients of it are the gradient of the mean over all examples. Shares may differ in size.
#
# **Example.** On a replica that holds two examples of a batch of 8, one with ten errors of 1 and one with ten errors of 3, it returns 0.5.
#
# <details><summary>Hint 1</summary>
#
# Write down the mean of the whole batch as four sums. What does each replica contribute?
#
# </details>
# <details><summary>Hint 2</summary>
#
# There are two kinds of mean here. Which of the two can a replica take on its own, and for which does it need to know about the others?
#
# </details>
# <details><summary>Worked idea</summary>
#
# Three examples with two errors each: (1, 3), (2, 2) and (6, 4). Their losses are 2, 2 and 5, and the mean is 9 / 3 = 3. If one replica holds the first two examples and another the third, they contribute 4 / 3 and 5 / 3. With their own means they would have 2 and 5, which add up to 7.
#
# </details>


# %% nbgrader={"grade_id": "plain", "solution": true}
def replica_loss(errors, global_batch_size):
    ### BEGIN SOLUTION
    # The ten errors lie on this replica, so their mean is its own business; the examples don't, so
    # they are divided by the whole batch. A mean over both at once divides by the share, too.
    losses = tf.reduce_mean(errors, axis=1)  # [share]
    return tf.reduce_sum(losses) / global_batch_size
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "plain-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
plain_cases = [(int(rng.integers(2**31)), examples) for examples in (64, 46)]
### END INPUTS
got_plain = lab05.PLAIN.observe(replica_loss, plain_cases)
lab05.PLAIN.check(replica_loss)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab05 import judge as judges

judges.PLAIN.judge(plain_cases, got_plain)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: a weighted mean
#
# **2 points · hard · 12 minutes**
#
# Examples can have weights, for instance because one class is rare. A weighted mean is the sum of weight × loss, divided by the sum of the weights. People write `tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)`, and each replica then divides by the weights it happens to hold. Fix it.
#
# **Contract.** `weighted_loss(losses, weights, global_batch_size)` takes two tensors `[share]` of float64 and the number of examples in the whole batch. It returns a scalar tensor. Added up, the replicas' gradients are the gradient of the weighted mean of the whole batch: the divisor is the sum of the weights on *all* replicas, which no replica knows alone. (Dividing by the number of examples, as `tf.nn.compute_average_loss` does, is a sound estimate too, the other one in lesson 05. Here it counts as wrong.)
#
# **Example.** One replica holds the losses 1 and 2 with the weights 3 and 0.5; the weights of all four replicas add up to 8. It returns 4 / 8 = 0.5.
#
# <details><summary>Hint 1</summary>
#
# Every replica is inside `strategy.run` here, and all of them get to the same line. What can a replica ask the others for?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `tf.distribute.get_replica_context()` has an `all_reduce`. Which of the two sums has to go through it? TensorFlow adds up the gradients anyway.
#
# </details>
# <details><summary>Worked idea</summary>
#
# One replica holds the loss 2 with weight 10, the other the loss 4 with weight 1. The weighted mean is (20 + 4) / 11. Both must divide by 11: the first contributes 20 / 11, the second 4 / 11. Divided by their own weights they give 2 and 4, and the heavy example counts no more than the light one.
#
# </details>


# %% nbgrader={"grade_id": "weighted", "solution": true}
def weighted_loss(losses, weights, global_batch_size):
    ### BEGIN SOLUTION
    # The weights of the others are known to nobody here, so they are added up over the replicas.
    # All-reducing the losses as well counts them four times: TensorFlow adds up the gradients anyway.
    everyone = tf.distribute.get_replica_context()
    total = everyone.all_reduce("sum", tf.reduce_sum(weights))
    return tf.reduce_sum(losses * weights) / total
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "weighted-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
weighted_cases = [(int(rng.integers(2**31)), examples) for examples in (64, 50)]
### END INPUTS
got_weighted = lab05.WEIGHTED.observe(weighted_loss, weighted_cases)
lab05.WEIGHTED.check(weighted_loss)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab05 import judge as judges

judges.WEIGHTED.judge(weighted_cases, got_weighted)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: clip what was added up
#
# **3 points · hard · 15 minutes**
#
# Long gradients are clipped: if their norm, over all variables together, is larger than `max_norm`, all are scaled down so that it is exactly `max_norm`. On one device `tf.clip_by_global_norm` does that. Keras 3 calls it on every replica, before the gradients are added up, and then each replica clips a part of the gradient as if it were the whole. Write what a replica has to return instead.
#
# **Contract.** `clip_gradients(gradients, max_norm)` runs on every replica. It takes this replica's gradients, a list with one float64 tensor for each variable, and a number. The gradients are scaled already: added up over the replicas they are the gradient of the whole batch. It returns a list of tensors of the same shapes. Added up over the replicas, they must be the gradient of the whole batch, clipped to `max_norm`.
#
# **Example.** One variable, two replicas with the gradients (3, 0) and (0, 4), `max_norm` 1. Their sum is (3, 4), of norm 5, so that the update has to be (0.6, 0.8).
#
# <details><summary>Hint 1</summary>
#
# What one replica holds doesn't tell how long the sum is. Which numbers does a replica need from the others, and how did exercise 2 get one?
#
# </details>
# <details><summary>Hint 2</summary>
#
# All replicas have to come to the same factor, at most 1. Multiply what by it, so that the sum comes out right? And what is the factor of a gradient that is short enough?
#
# </details>
# <details><summary>Worked idea</summary>
#
# In the example, the first replica can return (0.6, 0) and the second (0, 0.8). Both can return (0.3, 0.4) as well. If each clips its own, they return (1, 0) and (0, 1): the update (1, 1) is too long and turned. If both return (0.6, 0.8), it's twice too long.
#
# </details>


# %% nbgrader={"grade_id": "clipped", "solution": true}
def clip_gradients(gradients, max_norm):
    ### BEGIN SOLUTION
    # The norm is that of the sum, so the sum is needed first; one factor then fits all replicas' parts.
    # Returning the clipped sum itself adds it up once more, four times too long.
    everyone = tf.distribute.get_replica_context()
    whole = everyone.all_reduce("sum", gradients)
    factor = tf.minimum(1.0, max_norm / tf.linalg.global_norm(whole))
    return [factor * gradient for gradient in gradients]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "clipped-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
clipped_cases = [(int(rng.integers(2**31)), float(rng.uniform(2, 12))) for _ in range(2)]
clipped_cases.append((int(rng.integers(2**31)), 1e3))
### END INPUTS
got_clipped = lab05.CLIPPED.observe(clip_gradients, clipped_cases)
lab05.CLIPPED.check(clip_gradients)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab05 import judge as judges

judges.CLIPPED.judge(clipped_cases, got_clipped)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: the last, uneven batch
#
# **1 point · medium · 8 minutes**
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
    # A sum of nothing is 0, so an empty share needs no case of its own.
    # A mean of nothing is nan. Its gradient is empty and does no harm here, but the loss that you
    # report is nan.
    return tf.reduce_sum(losses) / batch_examples
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "uneven-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
uneven_cases = [(int(rng.integers(2**31)), examples, 64) for examples in (3, 21, 64)]
### END INPUTS
got_uneven = lab05.UNEVEN.observe(uneven_loss, uneven_cases)
lab05.UNEVEN.check(uneven_loss)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab05 import judge as judges

judges.UNEVEN.judge(uneven_cases, got_uneven)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 5: name the bug
#
# **3 points · hard · 17 minutes**
#
# A training loop on four replicas behaves oddly. A colleague measured one step as the checks above do, and knows the setting, but not the code. At most one thing is wrong with the loss:
#
# | word | what the loss does |
# |---|---|
# | `right` | nothing is wrong |
# | `own-mean` | each replica takes the mean over its own examples |
# | `not-divided` | each replica adds up its losses, and nothing divides the sum |
# | `divided-twice` | the whole loss, penalty included, is right, and then divided by the number of replicas once more |
# | `full-batch` | a smaller batch is divided by the size of a full one |
# | `own-weights` | each replica divides by the sum of the sample weights that it holds itself |
# | `penalty-on-each` | each replica adds the whole penalty |
#
# **Contract.** `name_bug(ratio, residual, shares, full_batch, weighted, penalized)` takes the measured ratio and residual, both rounded to four decimals, the list with the number of examples on each replica, the size of a full batch, whether the examples have sample weights, and whether there is a penalty. It returns one of the seven words. With sample weights a right loss is the weighted mean, and `own-mean`, `not-divided` and `full-batch` don't occur; nor do they with a penalty. There are never both. A full batch is never exactly as many times this one as there are replicas.
#
# **Example.** Ratio 0.5, residual 0, shares `[8, 8, 8, 8]`, full batch 64, no weights, no penalty: `full-batch`, since 32 / 64 is 0.5.
#
# <details><summary>Hint 1</summary>
#
# If every example's gradient is multiplied by the same number, the update keeps its direction. For which of the bugs does that hold always, and for which only with equal shares?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Make a table: one row for each bug, with the ratio that it gives in terms of replicas, examples and full batch, and whether the update turns. Start with the updates that don't turn.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Two replicas with shares `[3, 3]` of a full batch of 20, no weights, no penalty. A ratio of 6 with residual 0 is the number of examples: nobody divided. With shares `[4, 2]`, each replica's own mean would multiply four gradients by 1/4 and two by 1/2 where 1/6 is right: on average 2 times too much, but not for each of them, so the update turns a little.
#
# </details>


# %% nbgrader={"grade_id": "diagnosis", "solution": true}
def name_bug(ratio, residual, shares, full_batch, weighted, penalized):
    ### BEGIN SOLUTION
    # The residual is looked at first, because it leaves one cause for each setting; the ratio then
    # tells the rest apart. Going by the ratio alone takes a turned update for a scaled one.
    examples, replicas = sum(shares), len(shares)
    if residual > 0.001:
        return "own-weights" if weighted else "penalty-on-each" if penalized else "own-mean"
    expected = {
        "right": 1,
        "divided-twice": 1 / replicas,
        "full-batch": examples / full_batch,
        "own-mean": replicas,
        "not-divided": examples,
    }
    return next(word for word, value in expected.items() if abs(ratio - value) < 0.001 * value)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "diagnosis-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 5])
_even, _uneven = (12, 12, 12, 12), (7, 7, 7, 4)
_steps = [("right", _uneven, "plain"), ("right", _even, "weighted"), ("right", _even, "penalized")]
_steps += [(_bug, _even, "plain") for _bug in ("own-mean", "not-divided", "full-batch")]
_steps += [(_bug, _uneven, "plain") for _bug in ("own-mean", "not-divided", "full-batch")]
_steps += [("divided-twice", _uneven, _kind) for _kind in ("plain", "weighted", "penalized")]
_steps += [("own-weights", _even, "weighted"), ("own-weights", _uneven, "weighted")]
_steps += [("penalty-on-each", _even, "penalized"), ("penalty-on-each", _uneven, "penalized")]
bug_cases = []
for _k in rng.permutation(len(_steps)).tolist():
    _bug, _shares, _kind = _steps[_k]
    bug_cases.append((_bug, int(rng.integers(2**31)), _shares, _kind))
### END INPUTS
got_bugs = lab05.DIAGNOSIS.observe(name_bug, bug_cases)
lab05.DIAGNOSIS.check(name_bug)  # stops after 20 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab05 import judge as judges

judges.DIAGNOSIS.judge(bug_cases, got_bugs)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell of exercises 1 to 4 should report ×1, and exercise 5's that its worked examples are right.
