# %% [markdown] shows="Four losses to fix, each measured on four real replicas; bugs to name from what was measured"
# # Lab 05 · Loss scaling
#
# Four losses that people really write: none of them raises an error, and on four replicas all of them are wrong. Fix each one, so that four replicas take exactly the step of one device. Then turn round: from two measured numbers, name the bug.
#
# **Time:** 50 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# In exercises 1 to 4 you write what one replica computes. The check cell runs it under MirroredStrategy on four replicas, takes one step of plain gradient descent at learning rate 1, and compares the update with the gradient of one device. It reports the ratio: ×1 is right, ×4 is four times too large. *Turned* means that the direction is off as well, which no learning rate fixes; the *residual* says how far, in lengths of the right update. The check uses batches of its own. When you hand in, other cases are drawn from another `SEED`. The lines between `BEGIN INPUTS` and `END INPUTS` draw them; leave those as they are.
#
# In every exercise TensorFlow **adds up** the replicas' gradients. Lesson 05 has the ideas.

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
# ## Exercise 1: one replica's loss
#
# **1 point · easy · 6 minutes**
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


# %% nbgrader={"grade": true, "grade_id": "plain-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
plain_cases = [(int(rng.integers(2**31)), examples) for examples in (64, 46)]
### END INPUTS
got_plain = lab05.PLAIN.observe(replica_loss, plain_cases)
lab05.PLAIN.check(replica_loss)
### BEGIN HIDDEN TESTS
from distlab.labs.lab05 import judge as judges

judges.PLAIN.judge(plain_cases, got_plain)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: a weighted mean
#
# **3 points · hard · 12 minutes**
#
# Examples can have weights, for instance because one class is rare. A weighted mean is the sum of weight × loss, divided by the sum of the weights. People write `tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)`, and each replica then divides by the weights it happens to hold. Fix it.
#
# **Contract.** `weighted_loss(losses, weights, global_batch_size)` takes two tensors `[share]` of float64 and the number of examples in the whole batch. It returns a scalar tensor. Added up, the replicas' gradients are the gradient of the weighted mean of the whole batch: the divisor is the sum of the weights on *all* replicas, which no replica knows by itself. (Dividing by the number of examples, as `tf.nn.compute_average_loss` does, is a sound estimate too, the other one in lesson 05. Here it counts as wrong.)
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
    everyone = tf.distribute.get_replica_context()
    total = everyone.all_reduce("sum", tf.reduce_sum(weights))
    return tf.reduce_sum(losses * weights) / total
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "weighted-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
weighted_cases = [(int(rng.integers(2**31)), examples) for examples in (64, 50)]
### END INPUTS
got_weighted = lab05.WEIGHTED.observe(weighted_loss, weighted_cases)
lab05.WEIGHTED.check(weighted_loss)
### BEGIN HIDDEN TESTS
from distlab.labs.lab05 import judge as judges

judges.WEIGHTED.judge(weighted_cases, got_weighted)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: a penalty on the weights
#
# **1 point · medium · 6 minutes**
#
# `loss = tf.nn.compute_average_loss(losses, global_batch_size=64) + penalty` is right for the data. But the penalty depends on the weights alone, and every replica has the same weights. Fix it.
#
# **Contract.** `penalized_loss(losses, penalty, global_batch_size, replicas)` takes a tensor `[share]`, a scalar tensor, the number of examples in the whole batch and the number of replicas. It returns a scalar tensor. Added up, the replicas' gradients are the gradient of the mean loss plus *one* penalty.
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


# %% nbgrader={"grade_id": "penalized", "solution": true}
def penalized_loss(losses, penalty, global_batch_size, replicas):
    ### BEGIN SOLUTION
    return tf.reduce_sum(losses) / global_batch_size + penalty / replicas
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "penalized-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
penalized_cases = [
    (int(rng.integers(2**31)), examples, examples, float(rng.uniform(0.05, 0.2)))
    for examples in (64, 46)
]
### END INPUTS
got_penalized = lab05.PENALIZED.observe(penalized_loss, penalized_cases)
lab05.PENALIZED.check(penalized_loss)
### BEGIN HIDDEN TESTS
from distlab.labs.lab05 import judge as judges

judges.PENALIZED.judge(penalized_cases, got_penalized)
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
from distlab.labs.lab05 import judge as judges

judges.UNEVEN.judge(uneven_cases, got_uneven)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 5: name the bug
#
# **3 points · hard · 14 minutes**
#
# A training loop on four replicas behaves oddly. Somebody measured one step as the checks above do, and knows the setting, but not the code. At most one thing is wrong with the loss:
#
# | word | what the loss does |
# |---|---|
# | `right` | nothing is wrong |
# | `own-mean` | each replica takes the mean over its own examples |
# | `not-divided` | each replica adds up its losses, and nobody divides |
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
_even, _uneven = (12, 12, 12, 12), (7, 6, 6, 6)
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
lab05.DIAGNOSIS.check(name_bug)
### BEGIN HIDDEN TESTS
from distlab.labs.lab05 import judge as judges

judges.DIAGNOSIS.judge(bug_cases, got_bugs)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel and run all cells. Every check cell of exercises 1 to 4 should report ×1, and that of exercise 5 that its worked examples are right.
