"""Asynchronous training on parameter servers: ParameterServerStrategy with Keras 3.

On one machine:  python parameter_server.py     # starts two workers and a server itself
On two machines, one program in every role; TF_CONFIG says which (C is the same on both):

    C='{"chief": ["node-a:2222"], "ps": ["node-a:2223"], "worker": ["node-a:2224", "node-b:2222"]}'
    node-b$ TF_CONFIG='{"cluster": '$C', "task": {"type": "worker", "index": 1}}' \
            python parameter_server.py
    node-a$ TF_CONFIG='{"cluster": '$C', "task": {"type": "worker", "index": 0}}' \
            python parameter_server.py &
    node-a$ TF_CONFIG='{"cluster": '$C', "task": {"type": "ps", "index": 0}}' \
            python parameter_server.py &
    node-a$ TF_CONFIG='{"cluster": '$C', "task": {"type": "chief", "index": 0}}' \
            python parameter_server.py

Each task listens on ALL interfaces of its machine, unencrypted and without a password, and runs
what it is sent: use a network that you trust. TensorFlow 2.21, Keras 3.15. The data, read by the
chief alone: FASHION_MNIST=/path/to/file.npz. The chief ends with JSON: loss and accuracy.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

DATA = Path(__file__).parents[1] / "utils/data/bundled/fashion_mnist.npz"
BATCH_SIZE = 64  # of one step on one worker: workers do not wait for each other


def load_images(split: str, limit: int | None = None):
    data = np.load(os.environ.get("FASHION_MNIST", DATA))
    return data[f"x_{split}"][:limit, ..., np.newaxis], data[f"y_{split}"][:limit]


def make_train_batches(limit: int | None = None) -> tf.data.Dataset:
    """Return endless batches: each worker reads its own copy, at its own pace.

    This runs on the chief, and its arrays travel to the workers inside the graph. Large data
    belongs in files that the workers read: TFRecordDataset(paths).
    """
    images, labels = load_images("train", limit)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(len(images), seed=0).repeat().batch(BATCH_SIZE)
    return dataset.map(lambda images, labels: (tf.cast(images, "float32") / 255, labels))


def build_model() -> keras.Model:
    layers = [keras.Input((28, 28, 1)), keras.layers.Conv2D(32, 3, activation="relu")]
    layers += [keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dense(10)]
    return keras.Sequential(layers)


def start_others_here(count: int) -> None:
    """Start workers and a parameter server on this machine, and make this process the chief."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(2 + count)]
    chief, ps, *workers = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    [each.close() for each in sockets]  # the ports were free a moment ago
    cluster = {"chief": [chief], "ps": [ps], "worker": workers}
    for job, index in [("ps", 0), *(("worker", i) for i in range(count)), ("chief", 0)]:
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        if job != "chief":
            subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "TF_CONFIG": config})
    os.environ["TF_CONFIG"] = config


def serve(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """Be a worker or a parameter server until the chief has come and gone."""
    cluster = resolver.cluster_spec()
    server = tf.distribute.Server(cluster, resolver.task_type, resolver.task_id)  # keep a name
    # server.join() would never return; instead look whether the chief still listens.
    host, port = cluster.task_address("chief", 0).rsplit(":", 1)
    patience = 600  # seconds for the chief to come, and a few after it was seen
    while patience > 0:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            patience = 3
        except OSError:
            patience -= 1
        time.sleep(1)
    del server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="of all workers together")
    parser.add_argument("--workers", type=int, default=2, help="without TF_CONFIG: how many")
    parser.add_argument("--max-examples", type=int, help="train on the first N images")
    parser.add_argument("--save", help="the chief writes the trained model to this .keras file")
    options = parser.parse_args()
    if "TF_CONFIG" not in os.environ:
        start_others_here(options.workers)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        return serve(resolver)

    keras.utils.set_random_seed(0)
    # No variable_partitioner: the step below fails on a Keras kernel that is cut into pieces.
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():  # variables live on the parameter servers
        model = build_model()
        # Keras 3 reads, adds to and assigns `optimizer.iterations`: workers lose each other's
        # counts. Adam's bias correction and learning-rate schedules read it; SGD does not.
        optimizer = keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def train_replica(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))  # the mean of this batch
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def train_step(iterator):
        return strategy.run(train_replica, args=next(iterator))

    dataset = coordinator.create_per_worker_dataset(
        lambda: make_train_batches(options.max_examples)
    )
    iterator = iter(dataset)
    # `schedule` returns at once; any free worker takes the step, at least once (again on another
    # worker if the first one dies). `join` waits for all, and raises what a step raised.
    losses = [coordinator.schedule(train_step, args=(iterator,)) for _ in range(options.steps)]
    coordinator.join()
    print(f"{options.steps} steps: loss {losses[0].fetch():.4f} to {losses[-1].fetch():.4f}")

    plain = build_model()  # a copy outside the scope, on this machine: to evaluate, save, serve
    plain.set_weights(model.get_weights())
    plain.compile(loss=loss_of, metrics=["accuracy"])
    images, labels = load_images("test")
    loss, accuracy = plain.evaluate(images.astype("float32") / 255, labels, verbose=0)
    if options.save:
        plain.save(options.save)
    print(json.dumps({"loss": loss, "accuracy": accuracy}))


if __name__ == "__main__":
    main()
