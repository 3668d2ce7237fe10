"""Train on all GPUs of one machine: MirroredStrategy with Keras 3's `fit`.

    python mirrored_fit.py                 # without a GPU: on two logical CPU devices
    python mirrored_fit.py --epochs 5 --save model.keras

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
    # Drop the last, smaller batch: `fit` weighs its pieces as if they were of equal size.
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
    # Without a GPU MirroredStrategy() has one replica. Two logical devices on the same cores
    # are no faster, but take the same path. Split before TensorFlow's first operation.
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--max-examples", type=int, help="train on the first N images")
    parser.add_argument("--save", help="write the trained model to this .keras file")
    options = parser.parse_args()

    strategy = make_strategy()
    if GLOBAL_BATCH_SIZE % strategy.num_replicas_in_sync:
        # `fit` adds up the replicas' tensors and fails where their shapes differ ("AddN ...").
        raise SystemExit(f"{GLOBAL_BATCH_SIZE} images don't divide over the replicas")
    keras.utils.set_random_seed(0)
    train_batches = make_train_batches(options.max_examples)
    test_batches = tf.data.Dataset.from_tensor_slices(load_images("test")).batch(400)

    with strategy.scope():  # everything that makes variables: the model and `compile`.
        model = build_model()
        # Compiled outside the scope, the optimizer's step counter is a plain variable that
        # every replica increments. More replicas at the same per-replica batch make a larger
        # global batch: raise the learning rate with it.
        model.compile(
            optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    # shuffle=False: the dataset shuffles by itself, and `fit` warns unless told so.
    model.fit(train_batches, epochs=options.epochs, shuffle=False, verbose=2)
    loss, accuracy = model.evaluate(test_batches, verbose=0)
    if options.save:
        model.save(options.save)  # loads anywhere, with or without a strategy
    print(json.dumps({"loss": loss, "accuracy": accuracy}))


if __name__ == "__main__":
    main()
