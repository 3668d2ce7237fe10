"""Train on a TPU: TPUStrategy with Keras 3, a custom loop, bfloat16.

    python tpu.py                   # on a TPU virtual machine; TPU_NAME=... names a remote TPU
    python tpu.py --cpu             # the same step compiled by XLA for the CPU: does it compile?

TensorFlow 2.21, Keras 3.15. On a TPU machine install `tensorflow-tpu` in place of `tensorflow`.
Data: an .npz file with x_train, y_train, x_test, y_test (Fashion-MNIST); name your own with
FASHION_MNIST=/path/to/file.npz. The last printed line is JSON: loss and accuracy.
"""

import argparse
import json
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

DATA = Path(__file__).parents[1] / "utils/data/bundled/fashion_mnist.npz"
GLOBAL_BATCH_SIZE = 64  # a real TPU wants 128 or more per core, and a larger model
STEPS_PER_CALL = 20


def make_batches(split: str, batch_size: int, limit: int | None = None) -> tf.data.Dataset:
    data = np.load(os.environ.get("FASHION_MNIST", DATA))
    images = data[f"x_{split}"][:limit, ..., np.newaxis].astype("float32") / 255
    dataset = tf.data.Dataset.from_tensor_slices((images, data[f"y_{split}"][:limit]))
    if split == "train":  # A seed: if a TPU has several hosts, they cut their parts of one order.
        dataset = dataset.shuffle(len(images), seed=0).repeat()
    # XLA compiles for fixed shapes: without drop_remainder the batch dimension is unknown. A test
    # set whose size is no multiple of the batch loses its end: choose a batch size that divides.
    return dataset.batch(batch_size, drop_remainder=True).prefetch(2)


def build_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10, dtype="float32"),  # logits in float32, also under bfloat16
        ]
    )


def connect() -> tf.distribute.Strategy | None:
    """Return a strategy over all cores of the TPU, or None where there is none."""
    try:
        name = os.environ.get("TPU_NAME", "local")  # "local": this is a TPU virtual machine
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)  # wipes the TPU's memory: once, first
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError):
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", action="store_true", help="compile the step by XLA for the CPU")
    parser.add_argument("--steps", type=int, default=300, help="in calls of 20")
    parser.add_argument("--max-examples", type=int, help="train on the first N images")
    parser.add_argument("--policy", default="mixed_bfloat16", help="or float32")
    parser.add_argument("--save", help="write the trained model to this .keras file")
    options = parser.parse_args()
    strategy = tf.distribute.get_strategy() if options.cpu else connect()
    if strategy is None:
        raise SystemExit("There is no TPU here; --cpu compiles the same step with XLA.")

    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(options.policy)  # bfloat16 needs no loss scaling
    with strategy.scope():
        model = build_model()
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        optimizer.build(model.trainable_variables)  # here, not inside the first step
        mean_loss = keras.metrics.Mean()
        accuracy = keras.metrics.SparseCategoricalAccuracy()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    # On a TPU strategy.run compiles with XLA anyway; jit_compile does the same on a CPU.
    @tf.function(jit_compile=options.cpu)
    def train_replica(images, labels):
        with tf.GradientTape() as tape:
            losses = loss_of(labels, model(images, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH_SIZE)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        mean_loss.update_state(losses)

    @tf.function(jit_compile=options.cpu)
    def test_replica(images, labels):
        logits = model(images, training=False)
        mean_loss.update_state(loss_of(labels, logits))
        accuracy.update_state(labels, logits)

    # Many steps in one call: if the host steps in after each short step, the TPU sits idle.
    # tf.range makes one loop in the graph; Python's range would unroll 20 copies of the step.
    @tf.function
    def run_steps(iterator, replica_step, steps):
        for _ in tf.range(steps):
            strategy.run(replica_step, args=next(iterator))

    batches = make_batches("train", GLOBAL_BATCH_SIZE, options.max_examples)
    iterator = iter(strategy.experimental_distribute_dataset(batches))
    for done in range(0, options.steps, STEPS_PER_CALL):
        steps = min(STEPS_PER_CALL, options.steps - done)
        run_steps(iterator, train_replica, tf.constant(steps))  # a tensor: no new trace per value
    print(f"{options.steps} steps: mean loss {float(mean_loss.result()):.4f}", flush=True)
    mean_loss.reset_state()

    batches = make_batches("test", 400)
    iterator = iter(strategy.experimental_distribute_dataset(batches))
    run_steps(iterator, test_replica, tf.constant(int(batches.cardinality())))
    if options.save:
        model.save(options.save)
    print(json.dumps({"loss": float(mean_loss.result()), "accuracy": float(accuracy.result())}))


if __name__ == "__main__":
    main()
