# A custom loop under MirroredStrategy, as tutorials of 2019 wrote it. Compared with
# examples/mirrored_custom_loop.py. A comment "#!" names what `distlab modernize` says of its line.
import json
import os
import random

import numpy as np
import tensorflow as tf

random.seed(0), np.random.seed(0), tf.random.set_seed(0)
cpu = tf.config.experimental.list_physical_devices("CPU")[0]  #! list-devices
two = [tf.config.experimental.VirtualDeviceConfiguration()] * 2  #! virtual-devices
tf.config.experimental.set_virtual_device_configuration(cpu, two)  #! virtual-devices
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
GLOBAL_BATCH_SIZE = 32 * strategy.num_replicas_in_sync

data = np.load(os.environ["FASHION_MNIST"])
train_images = data["x_train"][..., None].astype("float32") / 255
test_images = data["x_test"][..., None].astype("float32") / 255
train_dataset = tf.data.Dataset.from_tensor_slices((train_images, data["y_train"]))
train_dataset = train_dataset.shuffle(len(train_images), seed=0)
train_dataset = train_dataset.batch(GLOBAL_BATCH_SIZE, drop_remainder=True)
train_dataset = train_dataset.prefetch(tf.data.experimental.AUTOTUNE)  #! data-autotune
test_dataset = tf.data.Dataset.from_tensor_slices((test_images, data["y_test"])).batch(400)
train_dist = strategy.experimental_distribute_dataset(train_dataset)
test_dist = strategy.experimental_distribute_dataset(test_dataset)

with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),  #! input-shape
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ])
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True,
        reduction=tf.keras.losses.Reduction.NONE)  #! reduction-enum
    optimizer = tf.keras.optimizers.SGD(lr=0.05, momentum=0.9)  #! lr-argument unbuilt-optimizer
    test_loss = tf.keras.metrics.Mean(name="test_loss")
    test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")


def train_step(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        per_example = loss_object(labels, model(images, training=True))
        loss = tf.nn.compute_average_loss(per_example, global_batch_size=GLOBAL_BATCH_SIZE)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


def test_step(inputs):
    images, labels = inputs
    predictions = model(images, training=False)
    test_loss.update_state(loss_object(labels, predictions))
    test_accuracy.update_state(labels, predictions)


@tf.function
def distributed_train_step(inputs):
    per_replica = strategy.experimental_run_v2(train_step, args=(inputs,))  #! experimental-run-v2
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)


@tf.function
def distributed_test_step(inputs):
    return strategy.experimental_run_v2(test_step, args=(inputs,))  #! experimental-run-v2


for epoch in range(2):
    total = 0.0
    for batch in train_dist:
        total += distributed_train_step(batch)
    test_loss.reset_states()  #! reset-states
    test_accuracy.reset_states()  #! reset-states
    for batch in test_dist:
        distributed_test_step(batch)
    print("epoch", epoch + 1, "loss", float(total))
print(json.dumps({"loss": float(test_loss.result()), "accuracy": float(test_accuracy.result())}))
