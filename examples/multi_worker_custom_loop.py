"""A custom training loop on several machines: MultiWorkerMirroredStrategy with Keras 3.

Alone, as a try:  python multi_worker_custom_loop.py
On two machines, the same program on both; only the index in TF_CONFIG differs:

    node-a$ TF_CONFIG='{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},
              "task": {"type": "worker", "index": 0}}' python multi_worker_custom_loop.py
    node-b$ TF_CONFIG='{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},
              "task": {"type": "worker", "index": 1}}' python multi_worker_custom_loop.py

Two workers on one machine: two shells, and localhost:12345 and localhost:12346 as addresses.
Each worker listens on ALL interfaces of its machine, unencrypted and without a password: use a
network that you trust. A worker that waits for its peers ignores Ctrl-C and SIGTERM; kill -9.

TensorFlow 2.21, Keras 3.15. Data: FASHION_MNIST=/path/to/file.npz with x_train, y_train, x_test,
y_test, the same on every machine. Every worker ends with a line of JSON: loss and accuracy.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

DATA = Path(__file__).parents[1] / "utils/data/bundled/fashion_mnist.npz"
GLOBAL_BATCH_SIZE = 64  # of all replicas of all workers together


def make_batches(split: str, batch_size: int, limit: int | None = None) -> tf.data.Dataset:
    """Return GLOBAL batches of images [batch, 28, 28, 1] and labels [batch]."""
    data = np.load(os.environ.get("FASHION_MNIST", DATA))
    images = data[f"x_{split}"][:limit, ..., np.newaxis].astype("float32") / 255
    dataset = tf.data.Dataset.from_tensor_slices((images, data[f"y_{split}"][:limit]))
    if split == "train":
        # The same seed on every worker: they cut their parts of one order. Without a seed each
        # has its own order, so some examples come twice and as many never, without an error.
        dataset = dataset.shuffle(len(images), seed=0)
    dataset = dataset.batch(batch_size, drop_remainder=split == "train")
    options = tf.data.Options()  # DATA: every worker trains on its part of each global batch.
    # The default, AUTO, deals out whole files where the pipeline reads files; with OFF every
    # worker trains on everything.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options)


def build_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10),  # logits
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--max-examples", type=int, help="train on the first N images")
    parser.add_argument("--save", help="the chief writes the trained model to this .keras file")
    options = parser.parse_args()

    # First of all: "Collective ops must be configured at program startup". Waits for all workers.
    # TF_CONFIG must be set by now; without it the strategy trains alone, and says nothing.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    is_chief = strategy.cluster_resolver.task_id in (None, 0)  # no "chief" in this TF_CONFIG
    keras.utils.set_random_seed(0)
    train_batches = make_batches("train", GLOBAL_BATCH_SIZE, options.max_examples)
    train_batches = strategy.experimental_distribute_dataset(train_batches)
    test_batches = strategy.experimental_distribute_dataset(make_batches("test", 400))
    with strategy.scope():  # everything that makes variables
        model = build_model()
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        optimizer.build(model.trainable_variables)  # here, not inside the first train_step
        mean_loss = keras.metrics.Mean()
        accuracy = keras.metrics.SparseCategoricalAccuracy()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def train_replica(images, labels):
        with tf.GradientTape() as tape:
            losses = loss_of(labels, model(images, training=True))
            # Divided by the global batch: the optimizer adds up the gradients of all workers.
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH_SIZE)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        mean_loss.update_state(losses)

    def test_replica(images, labels):
        logits = model(images, training=False)
        mean_loss.update_state(loss_of(labels, logits))
        accuracy.update_state(labels, logits)

    @tf.function
    def run(replica_step, batch):
        strategy.run(replica_step, args=batch)

    @tf.function
    def barrier():  # a worker that exits while another still works takes that one down
        strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", 1.0))

    for epoch in range(options.epochs):
        for batch in train_batches:
            run(train_replica, batch)
        loss = float(mean_loss.result())  # adds up all workers: every worker must ask
        if is_chief:
            print(f"epoch {epoch + 1}: loss {loss:.4f}", flush=True)
        mean_loss.reset_state()
    for batch in test_batches:
        run(test_replica, batch)
    report = {"loss": float(mean_loss.result()), "accuracy": float(accuracy.result())}
    if options.save:  # Saving can need all workers. All save, and only the chief's file is kept.
        with tempfile.TemporaryDirectory() as aside:
            model.save(options.save if is_chief else Path(aside, "model.keras"))
    barrier()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
