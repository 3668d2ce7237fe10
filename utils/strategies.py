"""One record for each strategy: where it runs, how it is made, and what is measured to work.

To add one, write its maker and its record in `STRATEGIES`; everything that must treat it in
its own way (training, the command line, the table of what works) reads the record.

TensorFlow is imported only when a strategy is made, so that the names and the
table can be read at once. `tests/library/test_strategies.py` runs every row of the table
that the machine can run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

from .errors import InputError

if TYPE_CHECKING:
    import tensorflow as tf

COMMUNICATIONS = ("AUTO", "RING", "NCCL")  # of multi-worker collectives
MAX_REPLICAS = 16  # on logical devices, tracing more takes minutes
LOOPS = ("fit", "custom")
KERAS = ("keras 3", "tf_keras")


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


@dataclass(frozen=True)
class StrategyRecord:
    """What there is to know of one strategy.

    `make(replicas, **options)` returns it; `type_name` is its class in `tf.distribute`.
    `place` is "machine", "cluster" (TF_CONFIG says what this process is in it) or "TPU".
    `usual_replicas` None means all devices that there are. `max_replicas` 1 takes no other
    number, and `single_replica_reason` says why; 0 takes none at all. `in_lockstep`: several
    workers take every step together. `is_coordinated`: one process, the coordinator, sends
    steps to workers, and servers hold the variables. `options` are what `make` takes
    besides. `exceptions` holds what differs from "works" in the table, (loop, keras) -> row.
    """

    name: str
    make: Callable[..., tf.distribute.Strategy]
    type_name: str
    place: str = "machine"
    usual_replicas: int | None = 1
    max_replicas: int = 1
    single_replica_reason: str = "it trains on one device"
    in_lockstep: bool = False
    is_coordinated: bool = False
    options: tuple[str, ...] = ()
    exceptions: tuple[Support, ...] = ()

    @property
    def support(self) -> tuple[Support, ...]:
        """The rows of the table, one for each loop and Keras."""
        rows = {(row.loop, row.keras): row for row in self.exceptions}
        cells = [(loop, keras) for keras in KERAS for loop in LOOPS]
        return tuple(rows.get(cell) or Support(self.name, *cell, works=True) for cell in cells)

    @property
    def can_fit(self) -> bool:
        """Return whether `training` runs Keras 3's `fit` under it, patched where it must be."""
        return not self.is_coordinated


def find_strategy(name: str) -> StrategyRecord:
    """Return the record of strategy `name`; raises InputError for a name that does not exist."""
    if name not in STRATEGIES:
        raise InputError(f"strategy {name!r}: choose from {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def check_strategy(name: str, replicas: int | None = None) -> int | None:
    """Return the number of replicas that strategy `name` gets, after checking both.

    None means the usual number: 2 for the strategies of one machine that have
    several, else 1. For "multi-worker", replicas count per worker, and None stays
    None: all devices of the worker; so it does for "tpu": all cores of the TPU.
    Raises InputError for a name that does not exist, and for a number of replicas
    that the strategy cannot have.
    """
    record = find_strategy(name)
    if replicas is None:
        return record.usual_replicas
    most = record.max_replicas
    if most == 0:
        raise InputError(f"{replicas} replicas: strategy {name!r} {record.single_replica_reason}")
    if not isinstance(replicas, Integral) or not 1 <= replicas <= most:
        allowed = f"1 to {most}" if most > 1 else f"1, since {record.single_replica_reason}"
        raise InputError(f"{replicas} replicas: strategy {name!r} takes {allowed}")
    return int(replicas)


def make_strategy(name: str, replicas: int | None = None, **options: Any) -> tf.distribute.Strategy:
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
    "multi-worker" takes the option `communication`, one of COMMUNICATIONS: what its
    collectives are made of (`tf.distribute.experimental.CommunicationOptions`).
    "parameter-server" takes the option `partitioner`, which cuts variables into pieces
    (`tf.distribute.experimental.partitioners.Partitioner`).

    "tpu" connects to the TPU that `devices.connect_tpu` finds and initializes it.

    Raises InputError as `check_strategy` does, where TF_CONFIG is missing, where no
    TPU is, and when TensorFlow started before the process was split into enough devices.
    """
    replicas, record = check_strategy(name, replicas), find_strategy(name)
    for option in options:
        if option not in record.options:
            raise InputError(f"strategy {name!r} has no option {option!r}")
    if record.place == "cluster" and not os.environ.get("TF_CONFIG"):
        raise InputError(
            f"strategy {name!r} trains in a cluster, and TF_CONFIG, which says what this process "
            "is in it, is not set: use utils.cluster.LocalCluster, or distlab train --workers 2"
        )
    return record.make(replicas, **options)


def _make_default(replicas: int | None) -> tf.distribute.Strategy:
    import tensorflow as tf

    return tf.distribute.get_strategy()


def _make_one_device(replicas: int | None) -> tf.distribute.Strategy:
    import tensorflow as tf

    from .devices import training_devices

    return tf.distribute.OneDeviceStrategy(training_devices(1)[0])


def _make_mirrored(replicas: int | None) -> tf.distribute.Strategy:
    import tensorflow as tf

    from .devices import training_devices

    devices = training_devices(replicas)
    on_cpu = devices[0].startswith("CPU")
    reduce_how = tf.distribute.ReductionToOneDevice() if on_cpu else None
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduce_how)


def _make_central_storage(replicas: int | None) -> tf.distribute.Strategy:
    import tensorflow as tf

    from .devices import training_devices

    devices = training_devices(replicas)
    return tf.distribute.experimental.CentralStorageStrategy(devices, parameter_device="CPU:0")


def _make_tpu(replicas: int | None) -> tf.distribute.Strategy:
    import tensorflow as tf

    from .devices import connect_tpu

    return tf.distribute.TPUStrategy(connect_tpu().resolver)


def _make_parameter_server(replicas: int | None, partitioner: Any = None) -> tf.distribute.Strategy:
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


def _make_multi_worker(replicas: int | None, communication: str = "AUTO") -> tf.distribute.Strategy:
    """Return this task's strategy of `replicas` devices, made where there is none yet."""
    if communication not in COMMUNICATIONS:
        allowed = ", ".join(COMMUNICATIONS)
        raise InputError(f"communication {communication!r}: choose from {allowed}")
    wanted = (os.environ["TF_CONFIG"], *_choose_worker_devices(replicas), communication)
    if wanted not in _multi_worker:
        try:
            _multi_worker[wanted] = _start_multi_worker(*wanted[1:])
        except RuntimeError as error:
            if "at program startup" not in str(error):
                raise
            raise InputError(
                "strategy 'multi-worker' must be made before TensorFlow's first operation: make "
                "data and models in functions, which are called afterwards"
            ) from None
    return _multi_worker[wanted]


_multi_worker: dict[tuple[str, str, int, str], tf.distribute.Strategy] = {}  # of this process


def _start_multi_worker(kind: str, count: int, communication: str) -> tf.distribute.Strategy:
    """Return a new MultiWorkerMirroredStrategy on `count` devices of this worker.

    TensorFlow 2.21 takes all GPUs of a worker, and of one without GPUs the first
    CPU device only (`CollectiveAllReduceExtended._initialize_local_devices`).
    Where that is not what was asked for, that one method is overridden, so that
    logical CPU devices are replicas too.
    """
    import tensorflow as tf
    from tensorflow.python.distribute import collective_all_reduce_strategy as source

    from .devices import leave_device_buffers_untuned

    leave_device_buffers_untuned()
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(implementation=kinds[communication])
    if (kind, count) in {("CPU", 1), ("GPU", len(tf.config.list_physical_devices("GPU")))}:
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    class OnSeveralDevices(source.CollectiveAllReduceExtended):
        def _initialize_local_devices(self, cluster_resolver, worker_device):
            return tuple(f"{worker_device}/device:{kind}:{i}" for i in range(count)), kind

    class MultiWorkerMirrored(source.CollectiveAllReduceStrategy):
        def __init__(self) -> None:
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
            "come before TensorFlow's first operation; start the worker again"
        )
    return "CPU", replicas


STRATEGIES: dict[str, StrategyRecord] = {
    record.name: record
    for record in (
        StrategyRecord("default", _make_default, "Strategy"),
        StrategyRecord("one-device", _make_one_device, "OneDeviceStrategy"),
        StrategyRecord(
            "mirrored",
            _make_mirrored,
            "MirroredStrategy",
            usual_replicas=2,
            max_replicas=MAX_REPLICAS,
        ),
        StrategyRecord(
            "central-storage",
            _make_central_storage,
            "experimental.CentralStorageStrategy",
            usual_replicas=2,
            max_replicas=MAX_REPLICAS,
        ),
        StrategyRecord(
            "multi-worker",
            _make_multi_worker,
            "MultiWorkerMirroredStrategy",
            place="cluster",
            usual_replicas=None,
            max_replicas=MAX_REPLICAS,
            in_lockstep=True,
            options=("communication",),
            exceptions=(
                Support(
                    "multi-worker",
                    "fit",
                    "keras 3",
                    works=False,
                    error="PerReplica",
                    note="use the custom loop, or patch_keras_fit of utils.keras_multi_worker",
                ),
            ),
        ),
        StrategyRecord(
            "parameter-server",
            _make_parameter_server,
            "ParameterServerStrategy",
            place="cluster",
            single_replica_reason="each of its workers trains on one device",
            is_coordinated=True,
            options=("partitioner",),
            exceptions=(
                Support(
                    "parameter-server",
                    "fit",
                    "keras 3",
                    works=False,
                    error="create_per_worker_dataset",
                    note="use the custom loop through ClusterCoordinator",
                ),
                Support(
                    "parameter-server",
                    "custom",
                    "keras 3",
                    works=True,
                    note="optimizer.iterations loses counts",
                ),
                Support(
                    "parameter-server", "fit", "tf_keras", works=True, note="with DatasetCreator"
                ),
            ),
        ),
        StrategyRecord(
            "tpu",
            _make_tpu,
            "TPUStrategy",
            place="TPU",
            usual_replicas=None,
            max_replicas=0,
            single_replica_reason="has one on each core of its TPU; leave them out",
            exceptions=tuple(
                Support("tpu", loop, keras, works=None, note="needs TPU hardware")
                for keras in KERAS
                for loop in LOOPS
            ),
        ),
    )
}


def list_names(place: str) -> tuple[str, ...]:
    """Return the names of the strategies that run at `place`: "machine", "cluster" or "TPU"."""
    return tuple(name for name, record in STRATEGIES.items() if record.place == place)


NAMES = tuple(STRATEGIES)
SINGLE_MACHINE, CLUSTER = list_names("machine"), list_names("cluster")
# measured on TensorFlow 2.21.0, Keras 3.15.1, tf_keras 2.21.0
SUPPORT = tuple(row for record in STRATEGIES.values() for row in record.support)
