"""Name -> `tf.distribute.Strategy`, and the table of what works with which Keras.

TensorFlow is imported only when a strategy is made, so that the names and the
table can be read at once. `tests/test_strategies.py` runs every row of the table
that the machine can run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:
    import tensorflow as tf

SINGLE_MACHINE = ("default", "one-device", "mirrored", "central-storage")
CLUSTER = ("multi-worker", "parameter-server")
TPU = ("tpu",)  # runs where a TPU is, and says so where none is
COMING: dict[str, str] = {}  # name -> the lesson that will bring it
NAMES = SINGLE_MACHINE + CLUSTER + TPU + tuple(COMING)
MANY_REPLICAS = ("mirrored", "central-storage", "multi-worker")
MOST_REPLICAS = 16  # on logical devices, tracing more takes minutes


def check_strategy(name: str, replicas: int | None = None) -> int | None:
    """Return the number of replicas that strategy `name` gets, after checking both.

    None means the usual number: 2 for the strategies of one machine that have
    several, else 1. For "multi-worker", replicas count per worker, and None stays
    None: all devices of the worker; so it does for "tpu": all cores of the TPU.
    Raises InputError for a name that does not exist or cannot run yet, and for a
    number of replicas that the strategy cannot have.
    """
    if name in COMING:
        allowed = ", ".join(SINGLE_MACHINE + CLUSTER + TPU)
        raise InputError(f"strategy {name!r} comes with {COMING[name]}; this version has {allowed}")
    if name not in NAMES:
        raise InputError(f"strategy {name!r}: choose from {', '.join(NAMES)}")
    if replicas is None:
        usual = {"mirrored": 2, "central-storage": 2, "multi-worker": None, "tpu": None}
        return usual.get(name, 1)
    if name in TPU:
        raise InputError(
            f"{replicas} replicas: strategy 'tpu' has one on each core of its TPU; leave them out"
        )
    most = MOST_REPLICAS if name in MANY_REPLICAS else 1
    if not isinstance(replicas, Integral) or not 1 <= replicas <= most:
        allowed = f"1 to {most}" if most > 1 else f"1, since {_why_one(name)}"
        raise InputError(f"{replicas} replicas: strategy {name!r} takes {allowed}")
    return int(replicas)


def _why_one(name: str) -> str:
    if name == "parameter-server":
        return "each of its workers trains on one device"
    return "it trains on one device"


def make_strategy(name: str, replicas: int | None = None) -> tf.distribute.Strategy:
    """Return the strategy `name` with `replicas` replicas (per worker, in a cluster).

    Replicas are GPUs where there are enough, else logical CPU devices. On CPU
    devices MirroredStrategy reduces with `ReductionToOneDevice`: with its default
    collectives, a second strategy with another number of replicas fails in the
    same process.

    The strategies of a cluster are made in a process that TF_CONFIG makes one of
    its tasks, before TensorFlow's first operation. "multi-worker" has `replicas`
    devices of this worker, all of them for None; every worker must have as many. Asked
    for again in the same task, it is the same object: a second one would start this
    task's collectives anew, in the middle of what the other workers do.

    "tpu" connects to the TPU that `devices.connect_tpu` finds and initialises it.

    Raises InputError as `check_strategy` does, where TF_CONFIG is missing, where no
    TPU is, and when TensorFlow started before the process was split into enough devices.
    """
    replicas = check_strategy(name, replicas)
    if name in CLUSTER and not os.environ.get("TF_CONFIG"):
        raise InputError(
            f"strategy {name!r} trains in a cluster, and TF_CONFIG, which says what this process "
            "is in it, is not set: use utils.cluster.LocalCluster, or distlab train --workers 2"
        )
    import tensorflow as tf

    from .devices import connect_tpu, training_devices

    if name == "multi-worker":
        return _make_multi_worker(replicas)
    if name == "parameter-server":
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        return tf.distribute.ParameterServerStrategy(resolver)
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "tpu":
        return tf.distribute.TPUStrategy(connect_tpu().resolver)
    devices = training_devices(replicas)
    if name == "one-device":
        return tf.distribute.OneDeviceStrategy(devices[0])
    if name == "mirrored":
        on_cpu = devices[0].startswith("CPU")
        reduce_how = tf.distribute.ReductionToOneDevice() if on_cpu else None
        return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduce_how)
    host = "CPU:0"
    return tf.distribute.experimental.CentralStorageStrategy(devices, parameter_device=host)


def _make_multi_worker(replicas: int | None) -> tf.distribute.Strategy:
    """Return this task's strategy of `replicas` devices, made where there is none yet."""
    devices = _choose_worker_devices(replicas)
    wanted = (os.environ["TF_CONFIG"], *devices)
    if wanted not in _multi_worker:
        _multi_worker[wanted] = _start_multi_worker(*devices)
    return _multi_worker[wanted]


_multi_worker: dict[tuple[str, str, int], tf.distribute.Strategy] = {}  # of this process


def _start_multi_worker(kind: str, count: int) -> tf.distribute.Strategy:
    """Return a new MultiWorkerMirroredStrategy on `count` devices of this worker.

    TensorFlow 2.21 takes all GPUs of a worker, and of one without GPUs the first
    CPU device only (`CollectiveAllReduceExtended._initialize_local_devices`).
    Where that is not what was asked for, that one method is overridden, so that
    logical CPU devices are replicas too.
    """
    import tensorflow as tf
    from tensorflow.python.distribute import collective_all_reduce_strategy as source

    if (kind, count) in {("CPU", 1), ("GPU", len(tf.config.list_physical_devices("GPU")))}:
        return tf.distribute.MultiWorkerMirroredStrategy()

    class OnSeveralDevices(source.CollectiveAllReduceExtended):
        def _initialize_local_devices(self, cluster_resolver, worker_device):
            return tuple(f"{worker_device}/device:{kind}:{i}" for i in range(count)), kind

    class MultiWorkerMirrored(source.CollectiveAllReduceStrategy):
        def __init__(self) -> None:
            options = tf.distribute.experimental.CommunicationOptions()
            extended = OnSeveralDevices(self, None, options)
            tf.distribute.Strategy.__init__(self, extended)

    return MultiWorkerMirrored()


def _choose_worker_devices(replicas: int | None) -> tuple[str, int]:
    """Return "GPU" or "CPU" and how many devices of it; splits the CPU where it must.

    Starts no TensorFlow: the strategy must come first. Raises InputError for
    fewer devices than `replicas`.
    """
    import tensorflow as tf

    from .devices import configured_cpu_devices, split_cpu

    gpus = len(tf.config.list_physical_devices("GPU"))
    if gpus and (replicas is None or replicas <= gpus):
        return "GPU", replicas or gpus
    split = configured_cpu_devices()
    if replicas is None:
        return "CPU", split or 1
    if split == 0 and replicas > 1:
        try:
            split_cpu(replicas)
            split = replicas
        except RuntimeError:
            pass
    if replicas > max(split, 1):
        raise InputError(
            f"{replicas} replicas: this worker has {max(split, 1)} CPU devices, and the split must "
            "come before TensorFlow's first operation; start the worker afresh"
        )
    return "CPU", replicas


@dataclass(frozen=True)
class Support:
    """One row of the table: does this strategy, with this loop and this Keras, train?

    `works` is True or False as measured, None where it depends on hardware that
    the measuring machine lacked. `error` is a part of the message that a failing
    row ends with, `note` what to do.
    """

    strategy: str
    loop: str  # "fit" | "custom"
    keras: str  # "keras 3" | "tf_keras"
    works: bool | None
    error: str = ""
    note: str = ""


def _rows() -> tuple[Support, ...]:
    both_loops = [(loop, kind) for kind in ("keras 3", "tf_keras") for loop in ("fit", "custom")]
    rows = [Support(name, *cell, works=True) for name in SINGLE_MACHINE for cell in both_loops]
    rows += [
        Support("multi-worker", *cell, works=True) for cell in both_loops if cell[1] == "tf_keras"
    ]
    rows += [
        Support("multi-worker", "custom", "keras 3", works=True),
        Support(
            "multi-worker",
            "fit",
            "keras 3",
            works=False,
            error="PerReplica",
            note="use the custom loop, or mend_keras_fit of utils.keras_multi_worker (lesson 09)",
        ),
        Support(
            "parameter-server",
            "fit",
            "keras 3",
            works=False,
            error="create_per_worker_dataset",
            note="use the custom loop through ClusterCoordinator (lesson 11)",
        ),
        Support(
            "parameter-server",
            "custom",
            "keras 3",
            works=True,
            note="optimizer.iterations loses counts (lesson 11)",
        ),
        Support("parameter-server", "fit", "tf_keras", works=True, note="with DatasetCreator"),
        Support("parameter-server", "custom", "tf_keras", works=True),
    ]
    wants_tpu = "needs TPU hardware; the same program runs there unchanged (lesson 14)"
    rows += [Support("tpu", *cell, works=None, note=wants_tpu) for cell in both_loops]
    return tuple(rows)


SUPPORT: tuple[Support, ...] = (
    _rows()
)  # measured on TensorFlow 2.21.0, Keras 3.15.1, tf_keras 2.21.0


def format_support() -> str:
    """Return the table as text: a line per strategy, a column per loop and Keras."""
    columns = [
        ("fit", "keras 3"),
        ("custom", "keras 3"),
        ("fit", "tf_keras"),
        ("custom", "tf_keras"),
    ]
    words = {True: "works", False: "fails", None: "needs a TPU"}
    lines = [f"{'strategy':<18}" + "".join(f"{kind + ' ' + loop:<18}" for loop, kind in columns)]
    for name in NAMES:
        cells = {(s.loop, s.keras): words[s.works] for s in SUPPORT if s.strategy == name}
        lines.append(f"{name:<18}" + "".join(f"{cells[column]:<18}" for column in columns))
    return "\n".join(line.rstrip() for line in lines)
