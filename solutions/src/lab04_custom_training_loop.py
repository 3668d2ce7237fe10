# %% [markdown] shows="The step, the epoch, the metric, the checkpoint, and the whole loop; equal to one device"
# # Lab 04 · The custom training loop
#
# A hand-written loop goes wrong quietly: a mean of means, an accuracy that forgets the small batch, a checkpoint without the momentum. In this lab you write the four parts for several replicas, the step, the epoch, the metric, and the checkpoint that a run resumes from, and then the whole program.
#
# **Time:** 70 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# The check cells run your functions on two or four replicas and compare the result with one device, computed in NumPy. When you submit, other cases are drawn from another `SEED`. The lines between `BEGIN INPUTS` and `END INPUTS` draw them; leave those as they are. Lesson 04 has the ideas.
#
# {{absent}}

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import keras
    import tensorflow as tf
import numpy as np

from utils.devices import use_logical_devices
from distlab.labs.lab04 import exercise as lab04

print(use_logical_devices(4))

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: the step
#
# **1 point · medium · 12 minutes**
#
# **Contract.** `train_step(model, optimizer, images, labels, global_batch_size)` runs on every replica, through `strategy.run`. It takes a Keras model that gives logits `[share, 10]`, a built optimizer, this replica's images `[share, 784]` and labels `[share]`, and the number of examples in the whole batch. It applies the gradients once and returns this replica's loss, a scalar tensor. Added up, the replicas' losses are the mean cross-entropy of the batch. Shares may differ in size.
#
# **Example.** After one step on 4 replicas of 8 examples, the weights are the same as on one device that took the mean loss of all 32.
#
# <details><summary>Hint 1</summary>
#
# `tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)` returns one number for each example.
#
# </details>
# <details><summary>Hint 2</summary>
#
# A `tf.GradientTape` watches the model's variables. `optimizer.apply_gradients` takes pairs of gradient and variable, and adds up the gradients of all replicas first.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Take one weight `w` and the loss `w * x`, on two replicas with x = 2 and x = 4: a batch of 2. The scaled losses are `2 w / 2` and `4 w / 2`. Their gradients are 1 and 2, which add up to 3, the mean of 2 and 4.
#
# </details>


# %% nbgrader={"grade_id": "step", "solution": true}
def train_step(model, optimizer, images, labels, global_batch_size):
    ### BEGIN SOLUTION
    # Divided by the whole batch, the replicas' losses and gradients add up to those of one device.
    # reduce_mean would divide by the share: four times too far, and more for a smaller share.
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)  # [share]
        loss = tf.reduce_sum(losses) / global_batch_size
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "step-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
step_cases = [(int(rng.integers(2**31)), examples) for examples in (40, 27)]
### END INPUTS
got_steps = lab04.STEP.observe(train_step, step_cases)
lab04.STEP.check(train_step)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab04 import judge as judges

judges.STEP.judge(step_cases, got_steps)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: the epoch
#
# **1 point · medium · 10 minutes**
#
# **Contract.** `run_epoch(strategy, dataset, step)` takes a distributed data set, and a function for one replica: `step(share)` returns two scalar tensors, the sum of its losses (float64) and the number of its examples (int64). `run_epoch` runs it once on every batch and every replica, and returns one number: the mean loss over all examples of the epoch.
#
# **Example.** Losses 1, 2, 3, 4 in one batch and 10 in the next: 20 / 5 = 4.
#
# <details><summary>Hint 1</summary>
#
# Which two running sums must the loop carry from batch to batch?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `strategy.run(step, args=(share,))` returns two per-replica values; `strategy.reduce` with SUM turns each into one number.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Batches (2, 4) and (9,) have the sums 6 and 9 and the counts 2 and 1, so the mean is 15 / 3 = 5. The mean of the batch means, 3 and 9, would be 6.
#
# </details>


# %% nbgrader={"grade_id": "epoch", "solution": true}
def run_epoch(strategy, dataset, step):
    ### BEGIN SOLUTION
    # Two sums are carried through the epoch, and divided once, so every example counts the same.
    # A mean of the batches' means gives the two examples of a last batch the weight of a full one.
    total, examples = 0.0, 0
    for share in dataset:
        sums, counts = strategy.run(step, args=(share,))
        total += strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)
        examples += strategy.reduce(tf.distribute.ReduceOp.SUM, counts, axis=None)
    return float(total) / int(examples)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "epoch-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
epoch_cases = [
    (rng.uniform(0, 4, size=batch * int(rng.integers(2, 5)) + rest).tolist(), batch)
    for batch, rest in ((8, 3), (6, 1))
]
### END INPUTS
got_epochs = lab04.EPOCH.observe(run_epoch, epoch_cases)
lab04.EPOCH.check(run_epoch)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab04 import judge as judges

judges.EPOCH.judge(epoch_cases, got_epochs)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: the metric
#
# **1 point · medium · 10 minutes**
#
# **Contract.** `evaluate(strategy, model, dataset)` takes a Keras model that gives logits `[share, 10]`, and a distributed data set of pairs (images, labels). It returns the accuracy over all images, a number between 0 and 1. The last batch may be smaller.
#
# **Example.** A batch of 16 images with 8 right, then one of 4 with 4 right: 12 / 20 = 0.6.
#
# <details><summary>Hint 1</summary>
#
# An accuracy is a quotient of two counts. Add up the counts, divide at the end.
#
# </details>
# <details><summary>Hint 2</summary>
#
# On one replica: `tf.argmax(logits, axis=1)`, compared with the labels, gives a boolean for each image.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Two replicas have 3 of 4 and 1 of 2 right. Together that is 4 of 6, two thirds. The mean of 0.75 and 0.5 would be 0.625.
#
# </details>


# %% nbgrader={"grade_id": "accuracy", "solution": true}
def evaluate(strategy, model, dataset):
    ### BEGIN SOLUTION
    # An accuracy is a mean of zeros and ones, so exercise 2 has the loop for it already.
    # Averaging the replicas' accuracies is the mean of means again.
    def count(share):
        images, labels = share
        answers = tf.argmax(model(images, training=False), axis=1)  # [share]
        right = tf.cast(answers == tf.cast(labels, answers.dtype), tf.float64)
        return tf.reduce_sum(right), tf.size(right, out_type=tf.int64)

    return run_epoch(strategy, dataset, count)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "accuracy-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
accuracy_cases = [
    (int(rng.integers(2**31)), batch * int(rng.integers(2, 4)) + rest, batch)
    for batch, rest in ((16, 7), (20, 3))
]
### END INPUTS
got_accuracies = lab04.ACCURACY.observe(evaluate, accuracy_cases)
lab04.ACCURACY.check(evaluate)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab04 import judge as judges

judges.ACCURACY.judge(accuracy_cases, got_accuracies)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: the checkpoint
#
# **2 points · hard · 13 minutes**
#
# A run on two replicas is cut off. It is resumed with a fresh model and no strategy, and must end with the weights that it would have had without the interruption. The optimizer is SGD with momentum.
#
# **Contract.** `save_state(folder, model, optimizer, epochs)` is called after every epoch, which has several steps. It gets the path of a folder, empty the first time, a Keras model, its built optimizer and the number of epochs done. `load_state(folder, model, optimizer)` gets the folder, which may have been moved to another path since, a fresh model and a fresh, built optimizer of the same kind. It puts the latest state saved in that folder into both, and returns the number of epochs done, 0 if nothing was saved.
#
# **Example.** Saved after epochs 1, 2 and 3; loaded, it returns 3, and epochs 4 and 5 give the weights of an uninterrupted run.
#
# <details><summary>Hint 1</summary>
#
# What does SGD with momentum remember from step to step, besides the weights?
#
# </details>
# <details><summary>Hint 2</summary>
#
# A `tf.train.Checkpoint` takes objects under names of your choice: models, optimizers, variables. A plain number isn't one of these. A `tf.train.CheckpointManager` keeps the latest few, and `tf.train.latest_checkpoint(folder)` finds the last one, or None.
#
# </details>
# <details><summary>Worked idea</summary>
#
# A run has counted to 7 and saves a checkpoint that has its counter, a variable, under the name `count`. The next run makes a counter that is 0, and a checkpoint that has *this* variable under the same name. Restoring puts 7 into it. A second variable that never was in the checkpoint stays at 0, and nothing complains.
#
# </details>


# %% nbgrader={"grade_id": "resume", "solution": true}
def save_state(folder, model, optimizer, epochs):
    ### BEGIN SOLUTION
    # Three things make the next step what it would have been: weights, momentum, and where we are.
    # Without the optimizer everything loads, and training is off from the first step on.
    state = tf.train.Checkpoint(model=model, optimizer=optimizer, epochs=tf.Variable(epochs))
    tf.train.CheckpointManager(state, folder, max_to_keep=2).save(checkpoint_number=epochs)
    ### END SOLUTION


def load_state(folder, model, optimizer):
    ### BEGIN SOLUTION
    # restore(None) does nothing, so an empty folder leaves 0 epochs and needs no case of its own.
    # Restoring before the optimizer is built would leave its momentum out without a word.
    epochs = tf.Variable(0)
    state = tf.train.Checkpoint(model=model, optimizer=optimizer, epochs=epochs)
    state.restore(tf.train.latest_checkpoint(folder))
    return int(epochs)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "resume-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
resume_cases = [
    (int(rng.integers(2**31)), saved, saved + int(rng.integers(1, 4))) for saved in (2, 4)
]
### END INPUTS
got_resumed = lab04.RESUME.observe((save_state, load_state), resume_cases)
lab04.RESUME.check((save_state, load_state))  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab04 import judge as judges

judges.RESUME.judge(resume_cases, got_resumed)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 5: the whole loop
#
# **5 points · hard · 25 minutes**
#
# Now the program, as you would write it in your own file: scope, data, compiled step, loop, metric, checkpoint.
#
# **Contract.** `train(strategy, make_model, images, labels, batch_size, epochs, folder)`
#
# | what it gets | what that is |
# |---|---|
# | `strategy` | with several replicas |
# | `make_model` | a function without arguments that makes a Keras model, which returns logits. If you call it in the strategy's scope, each replica gets its own copy of the weights. In the check, the model multiplies the features by a factor on replica 1, so the weights show which replica trained on which examples |
# | `images`, `labels` | arrays `[n, features]` in float64, and `[n]` |
# | `batch_size` | the size of the global batch |
# | `epochs` | the number of epochs to be done in all |
# | `folder` | the path of a folder as a string, empty at first. Between two calls the folder may be moved; then the path is another one |
#
# It trains with SGD at learning rate 0.5 and momentum 0.875. The batches come in their order, never shuffled, the smaller last one included. Each step takes the gradient of the mean loss of the examples that its batch really holds. After every epoch it saves what it takes to resume: a run can be cut off at any time, in the middle of an epoch, by an error that you don't catch. Called again with the same folder, it continues after the last saved epoch. It returns two things: the kernel after the last epoch, an array `[features, classes]`, and a list with one number for each epoch that *this call* trained, the mean loss over all its examples, each measured in the step that trained on it. Compile the step with `tf.function`; op by op it takes several times as long.
#
# **Example.** 21 examples in batches of 8 are steps of 8, 8 and 5. A call with 1 epoch returns one loss. The next, with 4 epochs and the same folder, is cut off in epoch 3. The third restores, trains epochs 3 and 4, and returns two losses. The weights are the same as in a run that was never interrupted.
#
# <details><summary>Hint 1</summary>
#
# You have all parts: exercises 1 to 4. What is new is their order. Which of them make variables, and have to stand in the scope? What has to be there before a checkpoint can be restored?
#
# </details>
# <details><summary>Hint 2</summary>
#
# A step needs the number of examples that its batch holds over all replicas: `strategy.reduce` of each replica's `tf.size`, or the batches counted before they are distributed. `optimizer.build(model.trainable_variables)` before the first step saves you from an error about a placeholder.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Batches of 8, 8 and 5 with mean losses 1, 1 and 2: the epoch's mean is (8 + 8 + 10) / 21, not 4 / 3. A replica with 2 of the last 5 examples divides their sum by 5.
#
# </details>


# %% nbgrader={"grade_id": "program", "solution": true}
def train(strategy, make_model, images, labels, batch_size, epochs, folder):
    ### BEGIN SOLUTION
    # What is made in the scope is restored before the loop, and saved at the end of each epoch in it.
    # Saving once behind the loop gives the same numbers, until a run is cut off.
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch_size)
    data = strategy.experimental_distribute_dataset(data)
    with strategy.scope():
        model = make_model()
        optimizer = keras.optimizers.SGD(0.5, momentum=0.875)
        optimizer.build(model.trainable_variables)
    done = load_state(folder, model, optimizer)

    @tf.function
    def step(images, labels):
        sizes = strategy.run(lambda y: tf.size(y, out_type=tf.int64), args=(labels,))
        held = strategy.reduce("SUM", sizes, axis=None)
        arguments = (model, optimizer, images, labels, tf.cast(held, tf.float64))
        losses = strategy.run(train_step, args=arguments)
        return strategy.reduce("SUM", losses, axis=None), held

    means = []
    for epoch in range(done, epochs):
        steps = [step(*share) for share in data]
        total = sum(float(loss) * int(held) for loss, held in steps)
        means.append(total / sum(int(held) for _, held in steps))
        save_state(folder, model, optimizer, epoch + 1)
    return model.get_weights()[0], means
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "program-test", "points": 5}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 5])
program_cases = [(int(rng.integers(2**31)),)]
### END INPUTS
got_programs = lab04.PROGRAM.observe(train, program_cases)
lab04.PROGRAM.check(train)  # stops after 120 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab04 import judge as judges

judges.PROGRAM.judge(program_cases, got_programs)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should report that its worked examples are right.
