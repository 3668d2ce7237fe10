# It runs, and is wrong in five places.
import json
import os

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": ["a:1", "b:1"]},  #! late-tf-config
                                      "task": {"type": "worker", "index": 0}})
BATCH_SIZE_PER_REPLICA = 32
images, labels = np.ones((256, 8), "float32"), np.ones((256, 1), "float32")
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(256)  #! shuffle-without-seed
dataset = strategy.experimental_distribute_dataset(dataset.batch(BATCH_SIZE_PER_REPLICA))
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.01)
model.compile(optimizer, "mse")  #! compile-outside-scope


def compute_loss(y, predictions):
    losses = tf.keras.losses.MSE(y, predictions)
    return tf.reduce_sum(losses) / BATCH_SIZE_PER_REPLICA  #! loss-replica-batch


def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = compute_loss(y, model(x))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))


@tf.function
def distributed_train_step(batch):
    strategy.run(train_step, args=batch)


for batch in dataset:
    distributed_train_step(batch)
model.save("model.keras")  #! every-worker-saves
