"""MultiWorkerMirroredStrategy, made once in each task, on the requested devices."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .device_iterators import quicken_device_iterators
from .devices import configured_cpu_devices, find_devices, split_cpu
from .errors import InputError

if TYPE_CHECKING:
    import tensorflow as tf

_made: dict[tuple[str, str, int, str], tf.distribute.Strategy] = {}  # in this process


def get_multi_worker(kind: str, count: int, all_reduce: str) -> tf.distribute.Strategy:
    """Return this task's strategy on `count` devices of `kind`; make it if there is none yet."""
    wanted = os.environ["TF_CONFIG"], kind, count, all_reduce
    if wanted not in _made:
        try:
            _made[wanted] = _start(*wanted[1:])
        except RuntimeError as error:
            if "at program startup" not in str(error):
                raise
            raise InputError(
                "Strategy 'multi-worker' must be made before TensorFlow's first operation. "
                "Make data and models in functions that are called afterwards."
            ) from None
    return _made[wanted]


def _start(kind: str, count: int, all_reduce: str) -> tf.distribute.Strategy:
    """Return a new MultiWorkerMirroredStrategy on `count` devices of this worker.

    TensorFlow 2.21 takes all GPUs of a worker, and of one without GPUs the first
    CPU device only (`CollectiveAllReduceExtended._initialize_local_devices`).
    If the request differs, that one method is overridden, so that
    logical CPU devices are replicas too.
    """
    import tensorflow as tf
    from tensorflow.python.distribute import collective_all_reduce_strategy as source

    quicken_device_iterators()
    options = make_communication_options(all_reduce)
    if (kind, count) in {("CPU", 1), ("GPU", len(tf.config.get_visible_devices("GPU")))}:
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    class OnSeveralDevices(source.CollectiveAllReduceExtended):
        def _initialize_local_devices(self, cluster_resolver, worker_device):
            return tuple(f"{worker_device}/device:{kind}:{i}" for i in range(count)), kind

    class MultiWorkerMirrored(source.CollectiveAllReduceStrategy):
        def __init__(self) -> None:
            extended = OnSeveralDevices(self, None, options)
            tf.distribute.Strategy.__init__(self, extended)

    return MultiWorkerMirrored()


def choose_worker_devices(devices: str, replicas: int | None, most: int) -> tuple[str, int]:
    """Return "GPU" or "CPU" and how many devices of it; splits the CPU where it must.

    Starts no TensorFlow: the strategy must come first. Raises InputError for
    fewer devices than `replicas`.
    """
    split = configured_cpu_devices()
    kind, replicas = find_devices(devices, replicas, split or 1, most)
    if kind == "GPU":
        return kind, replicas
    if split == 0 and replicas > 1:
        try:
            split_cpu(replicas)
            split = replicas
        except RuntimeError:
            pass
    if replicas > max(split, 1):
        raise InputError(
            f"This worker has {max(split, 1)} CPU devices and needs {replicas}. The split "
            "must come before TensorFlow's first operation, so start the worker again."
        )
    return "CPU", replicas


def make_communication_options(
    all_reduce: str,
) -> tf.distribute.experimental.CommunicationOptions:
    import tensorflow as tf

    kinds = tf.distribute.experimental.CommunicationImplementation
    return tf.distribute.experimental.CommunicationOptions(implementation=kinds[all_reduce.upper()])
