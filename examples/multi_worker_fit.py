"""`fit` on several machines: MultiWorkerMirroredStrategy with tf_keras, the Keras that can.

Alone, as a try:  python multi_worker_fit.py
On two machines, the same program on both; only the index in TF_CONFIG differs:

    node-a$ TF_CONFIG='{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},
              "task": {"type": "worker", "index": 0}}' python multi_worker_fit.py
    node-b$ TF_CONFIG='{"cluster": {"worker": ["node-a:12345", "node-b:12345"]},
              "task": {"type": "worker", "index": 1}}' python multi_worker_fit.py

Two workers on one machine: two shells, and localhost:12345 and localhost:12346 as addresses.
Each worker listens on ALL interfaces of its machine, unencrypted and without a password: use a
network that you trust. A worker that waits for its peers ignores Ctrl-C and SIGTERM; kill -9.

Why tf_keras: on more than one worker, Keras 3.15's `fit` stops with "Attempt to convert a value
(PerReplica ...) to a Tensor" (keras issue 20585). With Keras 3, write the loop by hand.
TensorFlow 2.21, tf_keras 2.21. Data: FASHION_MNIST=/path/to/file.npz with x_train, y_train,
x_test, y_test, the same on every machine. Every worker ends with a line of JSON.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras  # not tf.keras, which is Keras 3 (unless TF_USE_LEGACY_KERAS=1)

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
    parser.add_argument(
        "--checkpoint-dir", help="folder that all workers see: continue from there if killed"
    )
    options = parser.parse_args()

    # First of all: "Collective ops must be configured at program startup". Waits for all workers.
    # TF_CONFIG must be set by now; without it the strategy trains alone, and says nothing.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    is_chief = strategy.cluster_resolver.task_id in (None, 0)  # no "chief" in this TF_CONFIG
    keras.utils.set_random_seed(0)
    with strategy.scope():  # the model and `compile`
        model = build_model()
        model.compile(
            optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    # Callbacks go to every worker: BackupAndRestore and ModelCheckpoint know who is the chief.
    callbacks = (
        [keras.callbacks.BackupAndRestore(options.checkpoint_dir)] if options.checkpoint_dir else []
    )
    model.fit(
        make_batches("train", GLOBAL_BATCH_SIZE, options.max_examples),
        epochs=options.epochs,
        callbacks=callbacks,
        verbose=2 if is_chief else 0,
    )
    loss, accuracy = model.evaluate(make_batches("test", 400), verbose=0)  # on every worker
    if options.save:  # Saving can need all workers. All save, and only the chief's file is kept.
        with tempfile.TemporaryDirectory() as aside:
            model.save(options.save if is_chief else Path(aside, "model.keras"))

    @tf.function
    def barrier():  # a worker that exits while another still works takes that one down
        strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", 1.0))

    barrier()
    print(json.dumps({"loss": loss, "accuracy": accuracy}))


if __name__ == "__main__":
    main()
