# %% [markdown] shows="MNIST input, compile in scope, callbacks, save and reload, and a whole training program"
# # Lab 03 · Keras under a strategy
#
# Getting the data in, the learning rate right and the best weights back takes more lines than the model itself, and each can go wrong once there are several replicas. In this lab you write those pieces, an input pipeline, a model compiled in the scope, callbacks, saving and loading, and then the whole program.
#
# **Time:** 55 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# The check cells run your functions for real, `fit` and files included, with two to four replicas on logical devices. When you hand in, other cases are drawn from another `SEED`. The lines between `BEGIN INPUTS` and `END INPUTS` draw them; leave those as they are. Lesson 03 has the ideas.

# %%
from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import keras
    import tensorflow as tf
import numpy as np

from utils.devices import use_logical_devices
from distlab.labs.lab03 import exercise as lab03

print(use_logical_devices(4))

# %%
SEED = 2026

# %% [markdown]
# ## Exercise 1: MNIST as a data set
#
# **2 points · easy · 8 minutes**
#
# **Contract.** `make_input(images, labels, batch_size)` takes NumPy arrays, uint8 `[n, 28, 28]` and int64 `[n]`, and the size of the global batch. It returns a `tf.data.Dataset` of pairs (images, labels): float32 `[batch, 28, 28, 1]` scaled to [0, 1], and `[batch]`. One pass over it ends, and holds every example once, in any order. Only the last batch may be smaller, so shuffle, if you like, before you batch. And unlike in the lesson's training pipeline, nothing may be dropped here.
#
# **Example.** 70 images in batches of 32 become batches of 32, 32 and 6.
#
# <details><summary>Hint 1</summary>
#
# `tf.data.Dataset.from_tensor_slices((images, labels))` makes one element of each example.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `images[..., np.newaxis]` adds the channel axis. What does `drop_remainder` do, and is it on?
#
# </details>
# <details><summary>Worked idea</summary>
#
# For numbers 0 to 9 divided by 10 in batches of 4: `tf.data.Dataset.range(10).map(lambda x: tf.cast(x, tf.float32) / 10).batch(4)`, three batches.
#
# </details>


# %% nbgrader={"grade_id": "input", "solution": true}
def make_input(images, labels, batch_size):
    ### BEGIN SOLUTION
    scaled = images[..., np.newaxis].astype("float32") / 255  # [n, 28, 28, 1]
    data = tf.data.Dataset.from_tensor_slices((scaled, labels))
    return data.batch(batch_size).prefetch(1)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "input-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
input_cases = [
    (int(rng.integers(2**31)), batch * int(rng.integers(2, 5)) + rest, batch)
    for batch, rest in ((32, 5), (24, 0), (16, 11))
]
### END INPUTS
got_inputs = lab03.INPUT.observe(make_input, input_cases)
lab03.INPUT.check(make_input)
### BEGIN HIDDEN TESTS
from distlab.labs.lab03 import judge as judges

judges.INPUT.judge(input_cases, got_inputs)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: a model on every replica
#
# **1 point · easy · 8 minutes**
#
# **Contract.** `make_model(strategy)` returns a compiled Keras model for images `[28, 28, 1]`: flattened, then one Dense layer of 10 logits, without an activation. It is compiled with plain SGD (no momentum) at learning rate 0.1, sparse categorical cross-entropy and accuracy. Every weight has a copy on each replica, and so has the optimizer's step counter, `model.optimizer.iterations`.
#
# **Example.** With 4 replicas the kernel `[784, 10]` exists four times.
#
# <details><summary>Hint 1</summary>
#
# Which of the two makes variables, making the model or compiling it? An optimizer has some too.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Keras's loss expects probabilities unless you tell it that it gets logits.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Write `with strategy.scope():`, then a `keras.Sequential` of `keras.Input`, `Flatten` and `Dense`, and `model.compile(optimizer, loss, metrics=[...])`, all indented.
#
# </details>


# %% nbgrader={"grade_id": "model", "solution": true}
def make_model(strategy):
    ### BEGIN SOLUTION
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(10)]
        )
        model.compile(
            keras.optimizers.SGD(0.1),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    return model
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "model-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 2])
model_cases = [(int(rng.integers(2, 5)), int(rng.integers(2**31)))]
### END INPUTS
got_models = lab03.MODEL.observe(make_model, model_cases)
lab03.MODEL.check(make_model)
### BEGIN HIDDEN TESTS
from distlab.labs.lab03 import judge as judges

judges.MODEL.judge(model_cases, got_models)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: a learning rate by epoch, and a note of it
#
# **2 points · medium · 10 minutes**
#
# **Contract.** `make_callbacks(boundaries, rates, noted)` takes a sequence of epochs in rising order, a sequence of learning rates with one more entry, and an empty list. It returns a list of Keras callbacks. Epochs count from 0; before epoch `boundaries[0]` the rate is `rates[0]`, from there on `rates[1]`, and so on. At the end of every epoch the callbacks append the rate that was in use to `noted`, as a number.
#
# **Example.** Boundaries (3, 7) and rates (1e-3, 1e-4, 1e-5): epochs 0, 1, 2 have 1e-3, epochs 3 to 6 have 1e-4, later ones 1e-5.
#
# <details><summary>Hint 1</summary>
#
# `keras.callbacks.LearningRateScheduler(function)` calls the function with the epoch.
#
# </details>
# <details><summary>Hint 2</summary>
#
# A callback of your own is a class with `on_epoch_end(self, epoch, logs)`; it finds the optimizer at `self.model.optimizer`.
#
# </details>
# <details><summary>Worked idea</summary>
#
# Say the boundaries are 3 and 7. How many have been reached in epoch 5? One, so the rate is `rates[1]`. In epoch 3? Also one, since the new rate begins there.
#
# </details>


# %% nbgrader={"grade_id": "callbacks", "solution": true}
def make_callbacks(boundaries, rates, noted):
    ### BEGIN SOLUTION
    def choose_rate(epoch):
        return rates[sum(boundary <= epoch for boundary in boundaries)]

    class RateNote(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            noted.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

    return [keras.callbacks.LearningRateScheduler(choose_rate), RateNote()]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "callbacks-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
callback_cases = []
for _count in (1, 2):
    _edges = np.cumsum(rng.integers(1, 4, size=_count)).tolist()
    callback_cases.append((_edges, rng.permutation(rng.uniform(0.1, 0.9, _count + 1)).tolist()))
### END INPUTS
got_rates = lab03.CALLBACKS.observe(make_callbacks, callback_cases)
lab03.CALLBACKS.check(make_callbacks)
### BEGIN HIDDEN TESTS
from distlab.labs.lab03 import judge as judges

judges.CALLBACKS.judge(callback_cases, got_rates)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: saved here, loaded there
#
# **2 points · medium · 8 minutes**
#
# **Contract.** `save_and_reload(model, path, strategy)` takes a compiled Keras model that lives on one device, a `pathlib.Path` that ends in `.keras`, and a strategy. It saves the whole model there, and returns the model loaded from that file, compiled, with its optimizer's state, and with a copy of every weight on each replica.
#
# **Example.** The model has taken 12 steps. With 3 replicas the loaded one has the same outputs and three copies of each weight, and its optimizer goes on counting at 12.
#
# <details><summary>Hint 1</summary>
#
# A file knows nothing of strategies. What decides where variables are made?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `model.save(path)` and `keras.models.load_model(path)`.
#
# </details>
# <details><summary>Worked idea</summary>
#
# To load a model onto one device on purpose, call `load_model` outside every scope, as lesson 03 does with `plain_keras`. What would you change for four?
#
# </details>


# %% nbgrader={"grade_id": "reload", "solution": true}
def save_and_reload(model, path, strategy):
    ### BEGIN SOLUTION
    model.save(path)
    with strategy.scope():
        return keras.models.load_model(path)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "reload-test", "points": 2}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
reload_cases = [(replicas, int(rng.integers(2**31))) for replicas in (2, 3)]
### END INPUTS
got_reloaded = lab03.RELOAD.observe(save_and_reload, reload_cases)
lab03.RELOAD.check(save_and_reload)
### BEGIN HIDDEN TESTS
from distlab.labs.lab03 import judge as judges

judges.RELOAD.judge(reload_cases, got_reloaded)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 5: the whole program
#
# **3 points · hard · 20 minutes**
#
# Now everything together, as you would write it in a file of your own: data, scope, model, schedule, `fit`, the best weights.
#
# **Contract.** `train_digits(strategy, training, validation, batch_size, rates, folder)`
#
# | what it gets | what that is |
# |---|---|
# | `strategy` | with several replicas |
# | `training`, `validation` | two pairs (images, labels) as in exercise 1 |
# | `batch_size` | the size of the global batch |
# | `rates` | a list with one learning rate for each epoch |
# | `folder` | the path of an empty folder as a string, yours to use |
#
# It trains the model of exercise 2 on the training images for as many epochs as there are rates. Weights and biases start at zero, and plain SGD takes epoch e at `rates[e]`. The batches hold the images in the order they came in, scaled to [0, 1] and never shuffled. After every epoch it measures the loss on the validation images. It returns the model, made in the strategy's scope, with the weights of the epoch whose validation loss was lowest. All sizes divide evenly, and you may use your answers to the exercises above.
#
# **Example.** Rates 0.2, 0.1, 8 and 0.2: the third epoch ruins the model, so the weights after the second are returned.
#
# <details><summary>Hint 1</summary>
#
# Write down the six parts first, each as one comment: batches, scope, model, callbacks, fit, restore. Which of them come from the exercises above?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `keras.callbacks.ModelCheckpoint` has the arguments `monitor`, `save_best_only` and `save_weights_only`; a weights file ends in `.weights.h5`. Does your data set shuffle? Does `fit`, when it gets arrays?
#
# </details>
# <details><summary>Worked idea</summary>
#
# Validation losses 0.9, 0.4, 3.0, 2.5: a checkpoint that keeps only the best is written after epochs 1 and 2 and never again. Loading it after `fit` brings epoch 2 back.
#
# </details>


# %% nbgrader={"grade_id": "program", "solution": true}
def train_digits(strategy, training, validation, batch_size, rates, folder):
    ### BEGIN SOLUTION
    def batch(pair):
        pixels = pair[0][..., np.newaxis].astype("float32") / 255  # [n, 28, 28, 1]
        return tf.data.Dataset.from_tensor_slices((pixels, pair[1])).batch(batch_size)

    with strategy.scope():
        logits = keras.layers.Dense(10, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), logits])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(rates[0]), loss)
    best = f"{folder}/best.weights.h5"
    callbacks = [
        keras.callbacks.LearningRateScheduler(lambda epoch: rates[epoch]),
        keras.callbacks.ModelCheckpoint(
            best, monitor="val_loss", save_best_only=True, save_weights_only=True
        ),
    ]
    model.fit(
        batch(training), validation_data=batch(validation), epochs=len(rates),
        callbacks=callbacks, shuffle=False, verbose=0,
    )  # fmt: skip
    model.load_weights(best)
    return model
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "program-test", "points": 3}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 5])
program_cases = [(int(rng.integers(2**31)),)]
### END INPUTS
got_programs = lab03.PROGRAM.observe(train_digits, program_cases)
lab03.PROGRAM.check(train_digits)
### BEGIN HIDDEN TESTS
from distlab.labs.lab03 import judge as judges

judges.PROGRAM.judge(program_cases, got_programs)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you hand in
#
# Restart the kernel and run all cells. Every check cell should report that its worked examples are right.
