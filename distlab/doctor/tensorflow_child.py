"""The program that the doctor starts to try TensorFlow: a JSON line after each stage.

It runs by its path, with nothing of `utils`, so that it tells of TensorFlow
alone. The last line that came out says how far it got before it hung or crashed.
"""

import json
import signal
import sys
import time

LOGICAL_DEVICES = 4
MATRIX = 1024  # rows and columns
IMAGES, SIZE, FILTERS = 64, 28, 32


def main() -> None:
    """Import, split the CPU, find GPUs, compute; `argv[1]` is the most seconds in all."""
    if len(sys.argv) > 1 and hasattr(signal, "alarm"):
        signal.alarm(int(float(sys.argv[1])) + 2)  # ends it even if its parent has gone
    begun = time.perf_counter()
    import tensorflow as tf

    tell("import", version=tf.__version__, seconds=time.perf_counter() - begun)
    import keras

    tell("keras", version=keras.__version__, backend=keras.backend.backend())
    gpus = tf.config.list_physical_devices("GPU")
    tell("gpus", names=[name_gpu(tf, gpu) for gpu in gpus], built_with=tf.test.is_built_with_cuda())
    tell("split", devices=split_cpu(tf))
    device = "GPU:0" if gpus else "CPU:0"
    with tf.device(device):
        check_matmul(tf)
        check_convolution(tf)
    tell("compute", device=device)


def tell(stage: str, **facts: object) -> None:
    print(json.dumps({"stage": stage, **facts}), flush=True)


def name_gpu(tf, gpu) -> str:
    """Return the GPU's name; let it take memory only as it needs it."""
    tf.config.experimental.set_memory_growth(gpu, True)
    return tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)


def split_cpu(tf) -> int:
    """Split the CPU, add one number on each logical device; return the number of devices."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    pieces = [tf.config.LogicalDeviceConfiguration()] * LOGICAL_DEVICES
    tf.config.set_logical_device_configuration(cpu, pieces)
    devices = tf.config.list_logical_devices("CPU")
    for number, device in enumerate(devices):
        with tf.device(device.name):
            total = tf.constant(number) + 1
        if int(total) != number + 1 or not total.device.endswith(f"CPU:{number}"):
            raise RuntimeError(f"1 + {number} on {device.name} gave {total}")
    return len(devices)


def check_matmul(tf) -> None:
    """Multiply two matrices of ones, and look at every number of the product."""
    ones = tf.ones([MATRIX, MATRIX])  # [row, column]
    if not (tf.matmul(ones, ones).numpy() == MATRIX).all():
        raise RuntimeError("A matrix product of ones was wrong.")


def check_convolution(tf) -> None:
    """Run one 3 by 3 convolution of ones, and look at every number of the result."""
    images = tf.ones([IMAGES, SIZE, SIZE, 1])  # [image, row, column, channel]
    kernel = tf.ones([3, 3, 1, FILTERS])
    if not (tf.nn.conv2d(images, kernel, strides=1, padding="VALID").numpy() == 9).all():
        raise RuntimeError("A convolution of ones was wrong.")


if __name__ == "__main__":
    main()
