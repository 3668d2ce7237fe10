# %% [markdown] keras_backend="jax" shows="One Keras model on one device, data-parallel, tensor-parallel and sharded, all equal; the collectives read from the compiled program"
# # The same ideas on one mesh: Keras on JAX
#
# You ask how to run Keras's `fit` on several machines, or how to shard a model that doesn't fit, and the maintainers answer: Keras 3 on JAX. What you have learned carries over, because the ideas are the same and only their names change. Here you take one model through four layouts without touching its code, and then read in the compiled program what each layout sends.
#
# **Time:** 80 minutes: a core of 60, and 20 for *And then* · **Prerequisites:** [all-reduce](06-all-reduce.ipynb), [model parallelism](15-model-parallelism.ipynb), [which way to cut](23-which-way-to-cut.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Train one Keras model with `DataParallel` and with a `LayoutMap`, and show that the weights equal one device's.
# - Say which part of each variable a device holds, and how many bytes that is.
# - Read the collectives in a compiled program, and compare them with what you would have sent by hand.
# - Find a layout key that matches nothing.

# %%
import os

os.environ["KERAS_BACKEND"] = "jax"  # before anything imports Keras
from distlab.lessons.keras_on_jax import check_backend
from utils.environment import quiet_tensorflow

check_backend()
with quiet_tensorflow():
    import jax
    import keras
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)  # before the first device is asked for
devices = keras.distribution.list_devices()
print(keras.backend.backend(), devices)

# %%
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from distlab import figures
from distlab.exercises.predict import show_guess
from distlab.explorables import guess_number
from distlab.lessons.dtensor_tiles import draw_tiles
from distlab.lessons.keras_on_jax import count_collectives, count_held_bytes, list_collectives
from distlab.turns import lesson24 as turns
from utils.data import load

# %% [markdown]
# ## One program
#
# In `tf.distribute` you choose a strategy and wrap your code in its scope. Here you set a *distribution* once, before the model is made. It says how variables and batches lie on the devices. The rest of the program is the one for a single device.

# %%
data = load("fashion_mnist").train.take(512)
images, labels = data.images.reshape(512, 784) / np.float32(255), data.labels


def train(distribution=None):
    """Return the model after 8 steps of 64 images each."""
    keras.distribution.set_distribution(distribution)
    keras.utils.set_random_seed(0)
    layers = [keras.Input((784,)), keras.layers.Dense(256, activation="relu", name="hidden")]
    model = keras.Sequential([*layers, keras.layers.Dense(10, name="logits")])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    model.fit(images, labels, batch_size=64, shuffle=False, verbose=0)
    return model


def held(model):
    """Return the bytes of weights and momentum on each device."""
    variables = [*model.variables, *model.optimizer.variables]
    return [count_held_bytes(variables, device) for device in jax.devices()]


one = train()
print(held(one))

# %% [markdown]
# The kernel of the first layer is 784 × 256, and its momentum is as large. All of it lies on the first device.
#
# ## Data parallel
#
# **Predict.** With `DataParallel` on four devices, how many bytes of weights and momentum does each hold, compared with one device?

# %%
my_guess = guess_number("Bytes on each device, of one device's", 0, 200, "%")
my_guess

# %%
mesh = keras.distribution.DeviceMesh((4,), ("batch",), devices)
data_parallel = keras.distribution.DataParallel(mesh)
mirrored = train(data_parallel)


def check(model):
    """Fail unless the weights are one device's, to float32's rounding."""
    pairs = zip(model.get_weights(), one.get_weights(), strict=True)
    assert max(np.abs(a - b).max() for a, b in pairs) < 1e-6


check(mirrored)
show_guess(my_guess, 100 * held(mirrored)[0] / held(one)[0], unit="%")
