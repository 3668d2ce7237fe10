"""Mixed precision on all GPUs of one machine: bfloat16 or float16 under MirroredStrategy.

    python mixed_precision.py                           # mixed_bfloat16, with Keras 3
    python mixed_precision.py --policy mixed_float16    # with tf_keras, see below
    python mixed_precision.py --policy mixed_float16 --overflow   # break one replica's gradients

bfloat16 has the range of float32, so it needs no loss scaling. Use it on NVIDIA GPUs from the
A100 on and on TPUs. float16 is for older GPUs (T4, V100): its small gradients vanish and large
ones overflow, so the loss is multiplied by a scale, a step whose gradients overflow is skipped,
and the scale is halved.

ON A CPU bfloat16 goes wrong without an error: TensorFlow's kernel for the gradient of a bias
(BiasAddGrad) adds up in bfloat16, and 300 ones make 256. Use float32 there or, on one replica,
XLA (jit_compile=True), which adds up correctly. Without a GPU this program trains on the CPU to
show that it runs. Don't compare its bfloat16 with float32.

THE TRAP: under MirroredStrategy, Keras 3.15's LossScaleOptimizer looks at the gradients of the
first replica alone. If another replica overflows, all of them step, and the sum holds inf: every
weight is nan from then on. tf_keras sums first, looks at the sum, and skips the step on all of
them. Across workers, Keras 3.15's optimizer hangs the first time that one worker overflows and
another doesn't.

TensorFlow 2.21, Keras 3.15, tf_keras 2.21. Data: FASHION_MNIST=/path/to/file.npz. The last
printed line is JSON: loss and accuracy.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

DATA = Path(__file__).parents[1] / "utils/data/bundled/fashion_mnist.npz"
GLOBAL_BATCH_SIZE = 64


def load_images(split: str, limit: int | None = None):
    data = np.load(os.environ.get("FASHION_MNIST", DATA))
    images = data[f"x_{split}"][:limit, ..., np.newaxis].astype("float32") / 255
    return images, data[f"y_{split}"][:limit]


def make_train_batches(limit: int | None = None, overflow: bool = False) -> tf.data.Dataset:
    images, labels = load_images("train", limit)
    if overflow:
        images[0] *= 1e6  # float16 ends at 65504
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=0)
    return dataset.batch(GLOBAL_BATCH_SIZE, drop_remainder=True).prefetch(2)


def build_model(keras):
    return keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            # Logits in float32: a softmax in half precision is too coarse.
            keras.layers.Dense(10, dtype="float32"),
        ]
    )


def make_strategy() -> tf.distribute.MirroredStrategy:
    if tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy()
    cpu = tf.config.list_physical_devices("CPU")[0]  # two logical devices take the same path
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="mixed_bfloat16", help="or mixed_float16, float32")
    parser.add_argument("--overflow", action="store_true", help="one image is far too bright")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--max-examples", type=int, help="train on the first N images")
    parser.add_argument("--save", help="write the trained model to this .keras file")
    options = parser.parse_args()
    if options.policy == "mixed_float16":
        import tf_keras as keras
    else:
        import keras

    strategy = make_strategy()
    keras.utils.set_random_seed(0)
    # Before the model is built: variables stay float32, arithmetic is done in half precision.
    keras.mixed_precision.set_global_policy(options.policy)
    with strategy.scope():  # the model and `compile`
        model = build_model(keras)
        model.compile(  # under mixed_float16 `compile` wraps the optimizer in LossScaleOptimizer
            optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=False,  # XLA under two replicas fails in `fit`
        )
    train_batches = make_train_batches(options.max_examples, options.overflow)
    model.fit(train_batches, epochs=options.epochs, shuffle=False, verbose=2)
    finite = all(np.isfinite(weight).all() for weight in model.get_weights())
    print(f"{options.policy} with {keras.__name__}, all weights finite: {finite}")
    test_batches = tf.data.Dataset.from_tensor_slices(load_images("test")).batch(400)
    loss, accuracy = model.evaluate(test_batches, verbose=0)
    if options.save:
        model.save(options.save)
    print(json.dumps({"loss": loss, "accuracy": accuracy}))


if __name__ == "__main__":
    main()
