# A coordinator that schedules steps on parameter servers, in the manner of 2020 and 2021.
# Compared with examples/parameter_server.py.
import json
import os
import random

import numpy as np
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id,
                                  protocol="grpc")
    server.join()
random.seed(0), np.random.seed(0), tf.random.set_seed(0)
strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)  #! experimental-parameter-server
coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)  #! experimental-coordinator
data = np.load(os.environ["FASHION_MNIST"])


def dataset_fn():
    dataset = tf.data.Dataset.from_tensor_slices((data["x_train"][..., None], data["y_train"]))
    dataset = dataset.shuffle(len(data["x_train"]), seed=0).repeat().batch(64)
    return dataset.map(lambda x, y: (tf.cast(x, tf.float32) / 255, y),
                       num_parallel_calls=tf.data.experimental.AUTOTUNE)  #! data-autotune


with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ])
    optimizer = tf.keras.optimizers.legacy.SGD(lr=0.05)  #! legacy-optimizers lr-argument
    optimizer.build(model.trainable_variables)
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    train_loss = tf.keras.metrics.Mean()


@tf.function
def step_fn(iterator):
    def replica_fn(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_object(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    strategy.experimental_run_v2(replica_fn, args=next(iterator))  #! experimental-run-v2


iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))
for _ in range(30):
    coordinator.schedule(step_fn, args=(iterator,))
coordinator.join()
train_loss.reset_states()  #! reset-states
predictions = model(data["x_test"][..., None].astype("float32") / 255)
print(json.dumps({"loss": float(loss_object(data["y_test"], predictions))}))
