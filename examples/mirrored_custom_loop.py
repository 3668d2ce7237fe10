"""A custom training loop on all GPUs of one machine: MirroredStrategy with Keras 3.

    python mirrored_custom_loop.py         # without a GPU: on two logical CPU devices
    python mirrored_custom_loop.py --epochs 5 --save model.keras

TensorFlow 2.21, Keras 3.15. Data: an .npz file with x_train, y_train, x_test, y_test
(Fashion-MNIST); name your own with FASHION_MNIST=/path/to/file.npz. The last line that is
printed is JSON: loss and accuracy on the test images.
"""

import argparse
import json
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

DATA = Path(__file__).parents[1] / "utils/data/bundled/fashion_mnist.npz"
GLOBAL_BATCH_SIZE = 64


def load_images(split: str, limit: int | None = None):
    """Return images, float32 [n, 28, 28, 1] from 0 to 1, and labels, [n]."""
    data = np.load(os.environ.get("FASHION_MNIST", DATA))
    images = data[f"x_{split}"][:limit, ..., np.newaxis].astype("float32") / 255
    return images, data[f"y_{split}"][:limit]


def make_train_batches(limit: int | None = None) -> tf.data.Dataset:
    images, labels = load_images("train", limit)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(len(images), seed=0)  # another order in every epoch
    # The batch size is the GLOBAL one: the strategy cuts each batch into one piece per replica.
    return dataset.batch(GLOBAL_BATCH_SIZE, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


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


def make_strategy() -> tf.distribute.MirroredStrategy:
    if tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy()  # all GPUs; CUDA_VISIBLE_DEVICES chooses some
    cpu = tf.config.list_physical_devices("CPU")[0]  # split it before the first operation
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--max-examples", type=int, help="train on the first N images")
    parser.add_argument("--save", help="write the trained model to this .keras file")
    options = parser.parse_args()

    strategy = make_strategy()
    keras.utils.set_random_seed(0)
    test_batches = tf.data.Dataset.from_tensor_slices(load_images("test")).batch(400)
    train_batches = strategy.experimental_distribute_dataset(
        make_train_batches(options.max_examples)
    )
    test_batches = strategy.experimental_distribute_dataset(test_batches)

    with strategy.scope():  # everything that makes variables
        model = build_model()
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        # Make the optimizer's variables here. Left to the first step inside the tf.function,
        # Adam on two replicas fails with "You must feed a value for placeholder".
        optimizer.build(model.trainable_variables)
        mean_loss = keras.metrics.Mean()
        accuracy = keras.metrics.SparseCategoricalAccuracy()
    # One loss per example: Keras must not average, it does not know the global batch.
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def train_replica(images, labels):  # one replica's piece: [32, 28, 28, 1] and [32]
        with tf.GradientTape() as tape:
            losses = loss_of(labels, model(images, training=True))
            # The sum divided by the GLOBAL batch size, since the optimizer adds up the
            # replicas' gradients. A plain tf.reduce_mean would make every update twice as
            # large on two replicas. With weight decay by regularizers, also add
            # tf.nn.scale_regularization_loss(tf.add_n(model.losses)).
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH_SIZE)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        mean_loss.update_state(losses)

    def test_replica(images, labels):
        logits = model(images, training=False)
        mean_loss.update_state(loss_of(labels, logits))
        accuracy.update_state(labels, logits)

    @tf.function
    def train_step(images, labels):
        strategy.run(train_replica, args=(images, labels))

    @tf.function
    def test_step(images, labels):
        strategy.run(test_replica, args=(images, labels))

    for epoch in range(options.epochs):
        for images, labels in train_batches:
            train_step(images, labels)
        print(f"epoch {epoch + 1}: loss {float(mean_loss.result()):.4f}", flush=True)
        mean_loss.reset_state()  # `reset_states` of older tutorials is gone
    for images, labels in test_batches:
        test_step(images, labels)
    if options.save:
        model.save(options.save)
    print(json.dumps({"loss": float(mean_loss.result()), "accuracy": float(accuracy.result())}))


if __name__ == "__main__":
    main()
