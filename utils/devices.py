"""N logical CPU devices or the real GPUs: what a strategy's replicas run on.

A laptop has one CPU device. TensorFlow can split it into several *logical*
devices, each with its own copy of the variables and its own queue of work, so
that every strategy does what it does on real accelerators. Logical devices
share the cores: they teach, they do not speed up.
"""

import tensorflow as tf

from utils.errors import CourseError

MOST_LOGICAL_DEVICES = 64
USUAL_LOGICAL_DEVICES = 4  # a process is split at least so far, to leave room for a later call


def use_logical_devices(count: int = 4) -> list[str]:
    """Split this process's CPU into logical devices; return the names of the first `count`.

    The split is into `count` devices, or four if that is more, and it is safe to
    call again for as many as there are. It can be made only once per process,
    and only before TensorFlow's first operation
    (`tf.config.set_logical_device_configuration`); a call that comes too late
    raises CourseError, which says to restart the kernel.
    """
    if not 1 <= count <= MOST_LOGICAL_DEVICES:
        raise CourseError(f"{count} logical devices: choose 1 to {MOST_LOGICAL_DEVICES}")
    cpu = tf.config.list_physical_devices("CPU")[0]
    if (tf.config.get_logical_device_configuration(cpu) or []) == []:
        pieces = [tf.config.LogicalDeviceConfiguration()] * max(count, USUAL_LOGICAL_DEVICES)
        try:
            tf.config.set_logical_device_configuration(cpu, pieces)
        except RuntimeError:
            pass  # TensorFlow has started already: what there is, is counted below
    names = [f"CPU:{i}" for i in range(len(tf.config.list_logical_devices("CPU")))]
    if len(names) < count:
        raise CourseError(
            f"{count} logical devices were asked for and this process has {len(names)}: the split "
            "must come before TensorFlow's first operation. Restart the kernel, then split first"
        )
    return names[:count]


def training_devices(count: int) -> list[str]:
    """Return `count` devices to train on: the GPUs if there are as many, else logical CPUs.

    Names are short ("GPU:0", "CPU:1"), as `tf.distribute.MirroredStrategy` takes them.
    """
    gpus = tf.config.list_logical_devices("GPU") if tf.config.list_physical_devices("GPU") else []
    if len(gpus) >= count:
        return [f"GPU:{i}" for i in range(count)]
    return use_logical_devices(count)
