# %% [markdown] shows="MNIST input, compile in scope, callbacks, save and reload, and a whole training program"
# # Lab 03 · Keras under a strategy
#
# Getting the data in, the learning rate right and the best weights back takes more lines than the model itself, and each can go wrong once there are several replicas. In this lab you write those pieces, an input pipeline, a model compiled in the scope, callbacks, saving and loading, and then the whole program.
#
# **Time:** 60 minutes · **Points:** 10 · **Hardware:** two CPU cores
#
# The check cells run your functions for real, `fit` and files included, with two to four replicas on logical devices. When you submit, other cases are drawn from another `SEED`. The lines between `BEGIN INPUTS` and `END INPUTS` draw them; leave those as they are. Lesson 03 has the ideas.
#
# {{absent}}

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
# **1 point · medium · 10 minutes**
#
# **Contract.** `make_input(images, labels, batch_size, seed)` takes NumPy arrays, uint8 `[n, 28, 28]` and int64 `[n]`, the size of the global batch and a number. It returns a `tf.data.Dataset` of pairs (images, labels) in batches: images are float32 `[batch, 28, 28, 1]`, scaled to [0, 1], labels are integers `[batch]`. One pass over it holds every example once, and ends; a smaller last batch is kept. The examples are shuffled, all with all, and every pass has another order. Two data sets that are made with the same `seed` have the same orders, so a run can be repeated. Another seed gives other orders.
#
# **Example.** 70 images in batches of 32 become batches of 32, 32 and 6.
#
# <details><summary>Hint 1</summary>
#
# `tf.data.Dataset.from_tensor_slices((images, labels))` makes one element of each example. Which steps are for single examples, and which for batches? How many examples does a shuffle have to hold, so that the last one can come first?
#
# </details>
# <details><summary>Hint 2</summary>
#
# The pixels are integers: what type does NumPy make of an integer divided by 255? A batch can have an axis more than the array: `np.newaxis`. What does `drop_remainder` do, and is it on?
#
# </details>
# <details><summary>Worked idea</summary>
#
# Take the numbers 0 to 9 in batches of 4. With a shuffle buffer of 3, the first number is 0, 1 or 2, never 9. With 10 it can be any. If the batches were made first, whole batches would be shuffled, and 0 would always come with 1, 2 and 3.
#
# </details>


# %% nbgrader={"grade_id": "input", "solution": true}
def make_input(images, labels, batch_size, seed):
    ### BEGIN SOLUTION
    # The buffer holds all examples, so each order is as likely as any other; the seed repeats them all.
    # A cache() behind the shuffle would keep the first order for every epoch.
    scaled = images[..., np.newaxis].astype("float32") / 255  # [n, 28, 28, 1]
    data = tf.data.Dataset.from_tensor_slices((scaled, labels))
    return data.shuffle(len(labels), seed=seed).batch(batch_size).prefetch(1)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "input-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 1])
input_cases = [
    (int(rng.integers(2**31)), batch * int(rng.integers(2, 5)) + rest, batch)
    for batch, rest in ((32, 5), (24, 0), (16, 11))
]
### END INPUTS
got_inputs = lab03.INPUT.observe(make_input, input_cases)
lab03.INPUT.check(make_input)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab03 import judge as judges

judges.INPUT.judge(input_cases, got_inputs)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 2: a model on every replica
#
# **1 point · easy · 8 minutes**
#
# **Contract.** `make_model(strategy)` returns a compiled Keras model for images `[28, 28, 1]`: flattened, then one Dense layer of 10 logits, with biases and without an activation. It is compiled with plain SGD (no momentum) at learning rate 0.1, sparse categorical cross-entropy and accuracy. Every weight has a copy on each replica, and so has the optimizer's step counter, `model.optimizer.iterations`.
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
# An optimizer counts its steps in a variable. Made outside the scope, there is one for all replicas, and with two of them it counts every step twice: a schedule that should end after 100 steps ends after 50.
#
# </details>


# %% nbgrader={"grade_id": "model", "solution": true}
def make_model(strategy):
    ### BEGIN SOLUTION
    # Layers and optimizer both have variables, so both are made in the scope; fit can stand outside.
    # compile() outside raises no error for plain SGD, but its counter runs too fast.
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
lab03.MODEL.check(make_model)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab03 import judge as judges

judges.MODEL.judge(model_cases, got_models)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 3: a learning rate by epoch, and a note of it
#
# **1 point · medium · 10 minutes**
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
# Your own callback is a class with `on_epoch_end(self, epoch, logs)`; it finds the optimizer at `self.model.optimizer`.
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
    # The scheduler sets the rate before an epoch, so the note is taken at the end, as a plain number.
    # Appending the optimizer's variable itself would show its last value for every epoch.
    def choose_rate(epoch):
        return rates[sum(boundary <= epoch for boundary in boundaries)]

    class RateNote(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            noted.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

    return [keras.callbacks.LearningRateScheduler(choose_rate), RateNote()]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "callbacks-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 3])
callback_cases = []
for _count in (1, 2):
    _edges = np.cumsum(rng.integers(1, 4, size=_count)).tolist()
    _rates = np.sort(rng.uniform(0.1, 0.9, _count + 1))  # rolled, three of them aren't in order
    callback_cases.append((_edges, np.roll(_rates, rng.integers(1, 3)).tolist()))
### END INPUTS
got_rates = lab03.CALLBACKS.observe(make_callbacks, callback_cases)
lab03.CALLBACKS.check(make_callbacks)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab03 import judge as judges

judges.CALLBACKS.judge(callback_cases, got_rates)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 4: saved here, loaded there
#
# **1 point · easy · 8 minutes**
#
# **Contract.** `save_and_reload(model, path, strategy)` takes a compiled Keras model that lives on one device, a `pathlib.Path` that ends in `.keras`, and a strategy. It saves the whole model there, and returns the model loaded from that file, compiled, with its optimizer's state, and with a copy of every weight on each replica.
#
# **Example.** The model has taken 12 steps. With 3 replicas the loaded one has the same outputs and three copies of each weight, and its optimizer continues counting at 12.
#
# <details><summary>Hint 1</summary>
#
# A file knows nothing of strategies. What decides where variables are made?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Saving keeps architecture, weights, optimizer and its state in one file. A clone with copied weights keeps only two of these four.
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
    # The file knows nothing of replicas; the scope around the loading makes the copies.
    # A clone with copied weights has them too, but its optimizer begins at step 0.
    model.save(path)
    with strategy.scope():
        return keras.models.load_model(path)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "reload-test", "points": 1}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 4])
reload_cases = [(replicas, int(rng.integers(2**31))) for replicas in (2, 3)]
### END INPUTS
got_reloaded = lab03.RELOAD.observe(save_and_reload, reload_cases)
lab03.RELOAD.check(save_and_reload)  # stops after 60 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab03 import judge as judges

judges.RELOAD.judge(reload_cases, got_reloaded)
### END HIDDEN TESTS

# %% [markdown]
# ## Exercise 5: the whole program
#
# **6 points · hard · 24 minutes**
#
# Now everything together, as you would write it in your own file: data, scope, model, schedule, `fit`, the best weights.
#
# **Contract.** `train_digits(strategy, loss, training, validation, batch_size, rates, folder)`
#
# | what it gets | what that is |
# |---|---|
# | `strategy` | with several replicas |
# | `loss` | what to compile with: a function of labels and logits that returns a number for each example. In the check it weighs the examples on replica 1 more, so the weights show that each replica had its part |
# | `training`, `validation` | two pairs (images, labels) as in exercise 1 |
# | `batch_size` | the size of the global batch |
# | `rates` | a list with one learning rate for each epoch |
# | `folder` | the path of an empty folder as a string, yours to use |
#
# It trains the layers of exercise 2 on the training images for as many epochs as there are rates, with plain SGD. Weights and biases start at zero, and epoch e has the rate `rates[e]`. The batches hold the images, scaled, in the order they come in, never shuffled. After each epoch the loss on the validation images counts: the function returns the weights after the epoch where that was lowest, as two arrays, the kernel `[784, 10]` and the biases `[10]`. A quarter of the training labels are wrong, as in life, so training loss and accuracy point to other epochs. All sizes divide evenly, and you may use your answers to the exercises above.
#
# **Example.** Rates 0.2, 0.1, 8 and 0.2: the third epoch ruins the model, so the weights after the second are returned.
#
# <details><summary>Hint 1</summary>
#
# Write down the six parts first, each as one comment: batches, scope, model, callbacks, fit, restore. Which exercise can you call unchanged, and what would the data set of exercise 1 and the model of exercise 2 do wrong here?
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
def train_digits(strategy, loss, training, validation, batch_size, rates, folder):
    ### BEGIN SOLUTION
    # The checkpoint keeps the best epoch on disk while training continues, whatever comes later.
    # EarlyStopping with little patience saves time, and misses an epoch that is better again.
    def batch(pair):
        pixels = pair[0][..., np.newaxis].astype("float32") / 255  # [n, 28, 28, 1]
        return tf.data.Dataset.from_tensor_slices((pixels, pair[1])).batch(batch_size)

    with strategy.scope():
        logits = keras.layers.Dense(10, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), logits])
        model.compile(keras.optimizers.SGD(rates[0]), loss)
    best = f"{folder}/best.weights.h5"
    keep = keras.callbacks.ModelCheckpoint(
        best, monitor="val_loss", save_best_only=True, save_weights_only=True
    )
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: rates[epoch])
    options = {"epochs": len(rates), "callbacks": [schedule, keep], "shuffle": False}
    model.fit(batch(training), validation_data=batch(validation), verbose=0, **options)
    model.load_weights(best)
    return model.get_weights()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "program-test", "points": 6}
### BEGIN INPUTS
rng = np.random.default_rng([SEED, 5])
program_cases = [(int(rng.integers(2**31)),)]
### END INPUTS
got_programs = lab03.PROGRAM.observe(train_digits, program_cases)
lab03.PROGRAM.check(train_digits)  # stops after 120 s
### BEGIN HIDDEN TESTS
from distlab.labs.lab03 import judge as judges

judges.PROGRAM.judge(program_cases, got_programs)
### END HIDDEN TESTS

# %% [markdown]
# ## Before you submit
#
# Restart the kernel and run all cells. Every check cell should report that its worked examples are right.
