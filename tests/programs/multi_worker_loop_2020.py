# A custom loop across workers, in the manner of 2020. Compared with
# examples/multi_worker_custom_loop.py, on two workers.
import json
import os
import random

import numpy as np
import tensorflow as tf

strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy(  #! experimental-multi-worker
    communication=tf.distribute.experimental.CollectiveCommunication.RING)  #! communication-argument collective-communication
random.seed(0), np.random.seed(0), tf.random.set_seed(0)
GLOBAL_BATCH_SIZE = 64
is_chief = strategy.cluster_resolver.task_id == 0


def dataset_fn(input_context):
    data = np.load(os.environ["FASHION_MNIST"])
    images = data["x_train"][..., None].astype("float32") / 255
    dataset = tf.data.Dataset.from_tensor_slices((images, data["y_train"]))
    dataset = dataset.shuffle(len(images), seed=0).batch(GLOBAL_BATCH_SIZE, drop_remainder=True)
    part = GLOBAL_BATCH_SIZE // input_context.num_input_pipelines
    first = input_context.input_pipeline_id * part
    return dataset.map(lambda x, y: (x[first : first + part], y[first : first + part]))


dist = strategy.experimental_distribute_datasets_from_function(dataset_fn)  #! datasets-from-function
data = np.load(os.environ["FASHION_MNIST"])
test_images = data["x_test"][..., None].astype("float32") / 255
test_data = tf.data.Dataset.from_tensor_slices((test_images, data["y_test"])).batch(400)

with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ])
    optimizer = tf.keras.optimizers.legacy.SGD(learning_rate=0.05, momentum=0.9)  #! legacy-optimizers
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=tf.keras.losses.Reduction.NONE)  #! reduction-enum
    train_loss = tf.keras.metrics.Mean()


def step_fn(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        losses = loss_object(labels, model(images, training=True))
        loss = tf.reduce_sum(losses) * (1.0 / GLOBAL_BATCH_SIZE)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_loss.update_state(losses)


@tf.function
def train_step(iterator):
    strategy.experimental_run_v2(step_fn, args=(next(iterator),))  #! experimental-run-v2


iterator = iter(dist)
steps = len(data["x_train"]) // GLOBAL_BATCH_SIZE
for epoch in range(2):
    for _ in range(steps):
        train_step(iterator)
    iterator = iter(dist)
    print("epoch", epoch + 1, "loss", float(train_loss.result()))
    train_loss.reset_states()  #! reset-states
predictions = model(test_images, training=False)
loss = float(tf.reduce_mean(loss_object(data["y_test"], predictions)))
print(json.dumps({"loss": loss}))
model.save("mwms_model" if is_chief else "aside")  #! save-folder
