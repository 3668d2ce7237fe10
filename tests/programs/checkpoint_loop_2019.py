# A loop with checkpoints, in the manner of 2019 and 2020. Compared with
# examples/checkpoint_and_resume.py.
import json
import os
import random

import numpy as np
import tensorflow as tf

random.seed(0), np.random.seed(0), tf.random.set_seed(0)
strategy = tf.distribute.OneDeviceStrategy("CPU:0")
data = np.load(os.environ["FASHION_MNIST"])
images = data["x_train"][..., None].astype(np.float) / 255  #! numpy-aliases
images = images.astype("float32")
test_images = data["x_test"][..., None].astype("float32") / 255
best = np.Inf  #! numpy-2-names

with strategy.scope():
    inputs = tf.keras.Input((28, 28, 1))
    x = tf.keras.layers.Conv2D(32, 3, activation="relu")(inputs)
    x = tf.keras.layers.Flatten()(tf.keras.layers.MaxPooling2D()(x))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(10)(x))
    optimizer = tf.keras.optimizers.SGD(lr=0.05, momentum=0.9)  #! lr-argument
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    train_loss = tf.keras.metrics.Mean()
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
manager = tf.train.CheckpointManager(checkpoint, "checkpoints", max_to_keep=2)
checkpoint.restore(manager.latest_checkpoint)


@tf.function(experimental_relax_shapes=True)  #! relax-shapes
def train_step(x, y):
    def step(x, y):
        with tf.GradientTape() as tape:
            losses = loss_object(y, model(x, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=64)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        train_loss.update_state(losses)

    strategy.experimental_run_v2(step, args=(x, y))  #! experimental-run-v2


for epoch in range(2):
    dataset = tf.data.Dataset.from_tensor_slices((images, data["y_train"]))
    dataset = dataset.shuffle(len(images), seed=epoch, reshuffle_each_iteration=False)
    for x, y in strategy.experimental_distribute_dataset(dataset.batch(64, drop_remainder=True)):
        train_step(x, y)
    best = min(best, float(train_loss.result()))
    train_loss.reset_states()  #! reset-states
    manager.save()
losses = loss_object(data["y_test"], model(test_images))
print(json.dumps({"loss": float(tf.reduce_mean(losses))}))
