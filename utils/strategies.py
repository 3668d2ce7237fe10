"""One record for each strategy: where it runs, how to make it, and what was measured to work.

To add one, write its maker and its record in `STRATEGIES`; everything that must treat it in
its own way (training, the command line, the table of what works) reads the record.

TensorFlow is imported only when a strategy is made, so that the names and the
table can be read at once. `tests/library/test_strategies.py` runs every row of the table
that the machine can run.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from numbers import Integral
from typing import TYPE_CHECKING, Any

from .checks import check_choice
from .devices import (
    DEVICES,
    choose_all_reduce,
    connect_tpu,
    find_devices,
    limit_gpus,
    name_devices,
    name_gpu_kinds,
    why_no_nccl,
)
from .errors import InputError
from .multi_worker import choose_worker_devices, get_multi_worker, make_communication_options

if TYPE_CHECKING:
    import tensorflow as tf

MAX_REPLICAS = 16  # on logical devices, tracing more takes minutes
KEYS_APART = 1000  # group keys of TensorFlow's collectives that a strategy leaves for others
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
    """The facts about one strategy.

    `make(kind, count, all_reduce, **options)` returns it on `count` devices of a kind, "GPU" or
    "CPU"; `type_name` is its class in `tf.distribute`. `place` is "machine", "cluster" (TF_CONFIG
    says what this process is in it) or "TPU". `usual_replicas` is its number on logical CPUs; on
    GPUs, a strategy whose `max_replicas` allows it takes all. `max_replicas` 1 takes no other
    number, and `single_replica_reason` says why; 0 takes none at all. `all_reduces` are the ways to
    add up gradients that it offers; the last works on every device. `in_lockstep`: several workers
    take every step together. `is_coordinated`: one process, the coordinator, sends steps to
    workers, and servers hold the variables. `takes_xla`: a replica's variables are on its own
    device, where XLA can read them. `options` are what `make` takes besides. `exceptions` holds
    what differs from "works" in the table, (loop, keras) -> `works`, `error` and `note`.
    """

    name: str
    make: Callable[..., tf.distribute.Strategy]
    type_name: str
    place: str = "machine"
    usual_replicas: int = 1
    max_replicas: int = 1
    all_reduces: tuple[str, ...] = ()
    single_replica_reason: str = "it trains on one device"
    in_lockstep: bool = False
    is_coordinated: bool = False
    takes_xla: bool = True
    options: tuple[str, ...] = ()
    exceptions: Mapping[tuple[str, str], tuple[bool | None, str, str]] = field(default_factory=dict)

    @property
    def can_fit(self) -> bool:
        """Return whether `training` runs Keras 3's `fit` under it, patched where it must be."""
        return not self.is_coordinated


def find_strategy(name: str) -> StrategyRecord:
    """Return the record of strategy `name`; raises InputError for a name that doesn't exist."""
    return STRATEGIES[check_choice("strategy", name, STRATEGIES)]


def check_strategy(name: str, replicas: int | None = None) -> int | None:
    """Return `replicas` after checking it for strategy `name`; None stays: the usual number.

    That is all GPUs that the process may use for a strategy that has several replicas, else two
    logical CPUs. For "multi-worker", replicas count per worker. Raises InputError for a name that
    doesn't exist, and for a number of replicas that the strategy can't have.
    """
    record = find_strategy(name)
    if replicas is None:
        return None
    most = record.max_replicas
    if most == 0:
        raise InputError(
            f"Strategy {name!r} can't have {replicas} replicas: {record.single_replica_reason}."
        )
    if not isinstance(replicas, Integral) or not 1 <= replicas <= most:
        allowed = (
            f"1 to {most} replicas" if most > 1 else f"1 replica ({record.single_replica_reason})"
        )
        raise InputError(f"Strategy {name!r} takes {allowed}, got {replicas}.")
    return int(replicas)


def make_strategy(
    name: str,
    replicas: int | None = None,
    *,
    devices: str = "auto",
    all_reduce: str = "auto",
    **options: Any,
) -> tf.distribute.Strategy:
    """Return the strategy `name` with `replicas` replicas (per worker, in a cluster).

    Replicas run on GPUs if this process may use any, on all of them for `replicas` None. Without
    GPUs, or with `devices="cpu"`, they run on logical CPU devices. `placement.describe_strategy`
    says what it got. `all_reduce` is how they add up gradients, one of `devices.ALL_REDUCES`:
    NCCL on GPUs unless you name another. On CPU devices MirroredStrategy reduces to one device.

    Make the strategies of a cluster in a process that TF_CONFIG makes one of its tasks, before
    TensorFlow's first operation. "multi-worker" has `replicas` devices of this worker, and every
    worker must have the same number. Repeated calls in one task return the same object: a second
    strategy would restart the collectives that other workers are using. "parameter-server" takes
    the option `partitioner`, which cuts variables into pieces
    (`tf.distribute.experimental.partitioners.Partitioner`). "tpu" connects to the TPU that
    `devices.connect_tpu` finds and initializes it.

    Raises InputError as `check_strategy` does; for more replicas than GPUs; for an all-reduce that
    the strategy or the devices don't have; if TF_CONFIG is missing or no TPU is there; and if
    TensorFlow started before the process was split into enough devices.

        strategy = make_strategy("mirrored", replicas=2, devices="cpu")
    """
    replicas, record = check_strategy(name, replicas), find_strategy(name)
    check_choice("devices", devices, DEVICES if record.place != "TPU" else ("auto",))
    for option in options:
        if option not in record.options:
            raise InputError(f"Strategy {name!r} has no option {option!r}. Leave it out.")
    choose_all_reduce(all_reduce, record.all_reduces, name, "GPU")  # can it ever?
    if record.place == "cluster" and not os.environ.get("TF_CONFIG"):
        raise InputError(
            f"Strategy {name!r} trains in a cluster, and TF_CONFIG isn't set, so this "
            "process doesn't know its place in it. Use utils.cluster.LocalCluster, or "
            "distlab train --workers 2."
        )
    kind, count = "CPU", 0
    if record.place == "machine":
        kind, count = find_devices(devices, replicas, record.usual_replicas, record.max_replicas)
    elif record.in_lockstep:
        kind, count = choose_worker_devices(devices, replicas, record.max_replicas)
    has_nccl = kind == "GPU" and "nccl" in record.all_reduces
    reason = why_no_nccl(name_gpu_kinds()) if has_nccl else ""
    chosen = choose_all_reduce(all_reduce, record.all_reduces, name, kind, reason)
    return record.make(kind, count, chosen, **options)


def _make_default(kind: str, count: int, all_reduce: str | None) -> tf.distribute.Strategy:
    import tensorflow as tf

    if kind == "CPU" and not limit_gpus(0):
        raise InputError(
            "device must be chosen before TensorFlow starts, and it has started with GPUs "
            "in this process. Restart the kernel for device 'cpu', or use strategy "
            "'one-device'."
        )
    return tf.distribute.get_strategy()


def _make_one_device(kind: str, count: int, all_reduce: str | None) -> tf.distribute.Strategy:
    import tensorflow as tf

    return tf.distribute.OneDeviceStrategy(name_devices(kind, count)[0])


def _make_mirrored(kind: str, count: int, all_reduce: str) -> tf.distribute.Strategy:
    import tensorflow as tf

    devices = name_devices(kind, count)
    reduce_how = _make_cross_device_ops(all_reduce, devices)
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduce_how)


def _make_cross_device_ops(all_reduce: str, devices: list[str]) -> tf.distribute.CrossDeviceOps:
    """Return what adds up the gradients of `devices`.

    For "nccl" and "ring" it is what MirroredStrategy makes for itself, with its own group keys:
    with TensorFlow's, a second strategy with another number of replicas fails in one process.
    """
    import tensorflow as tf
    from tensorflow.python.distribute import cross_device_ops, cross_device_utils

    if all_reduce == "one-device":
        return tf.distribute.ReductionToOneDevice()
    if all_reduce == "hierarchical" and len(devices) % 2:
        raise InputError(
            "All-reduce 'hierarchical' needs an even number of replicas, got "
            f"{len(devices)}. TensorFlow leaves the last one's gradient out of the sum."
        )
    if all_reduce == "hierarchical":
        return tf.distribute.HierarchicalCopyAllReduce()
    keys = cross_device_utils.CollectiveKeys(group_key_start=next(_group_keys))
    return cross_device_ops.CollectiveAllReduce(
        devices, len(devices), make_communication_options(all_reduce), keys
    )


_group_keys = itertools.count(100 * KEYS_APART, KEYS_APART)


def _make_central_storage(kind: str, count: int, all_reduce: str) -> tf.distribute.Strategy:
    import tensorflow as tf

    devices = name_devices(kind, count)
    return tf.distribute.experimental.CentralStorageStrategy(devices, parameter_device="CPU:0")


def _make_tpu(kind: str, count: int, all_reduce: None) -> tf.distribute.Strategy:
    import tensorflow as tf

    return tf.distribute.TPUStrategy(connect_tpu())


def _make_parameter_server(
    kind: str, count: int, all_reduce: None, partitioner: Any = None
) -> tf.distribute.Strategy:
    """Return the coordinator's strategy. Its workers hold the GPUs, and it takes none itself."""
    import tensorflow as tf

    limit_gpus(0)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


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
            all_reduces=("nccl", "ring", "hierarchical", "one-device"),
        ),
        StrategyRecord(
            "central-storage",
            _make_central_storage,
            "experimental.CentralStorageStrategy",
            usual_replicas=2,
            max_replicas=MAX_REPLICAS,
            all_reduces=("one-device",),
            takes_xla=False,
        ),
        StrategyRecord(
            "multi-worker",
            get_multi_worker,
            "MultiWorkerMirroredStrategy",
            place="cluster",
            max_replicas=MAX_REPLICAS,
            all_reduces=("nccl", "ring"),
            in_lockstep=True,
            exceptions={
                ("fit", "keras 3"): (
                    *(False, "PerReplica"),
                    "use the custom loop, or patch_keras_fit of utils.keras_multi_worker",
                ),
            },
        ),
        StrategyRecord(
            "parameter-server",
            _make_parameter_server,
            "ParameterServerStrategy",
            place="cluster",
            single_replica_reason="each of its workers trains on one device",
            is_coordinated=True,
            takes_xla=False,
            options=("partitioner",),
            exceptions={
                ("fit", "keras 3"): (
                    *(False, "create_per_worker_dataset"),
                    "use the custom loop through ClusterCoordinator",
                ),
                ("custom", "keras 3"): (True, "", "optimizer.iterations loses counts"),
                ("fit", "tf_keras"): (True, "", "with DatasetCreator"),
            },
        ),
        StrategyRecord(
            "tpu",
            _make_tpu,
            "TPUStrategy",
            place="TPU",
            max_replicas=0,
            single_replica_reason="it has one on each TPU core. Leave replicas out",
            exceptions=dict.fromkeys(product(LOOPS, KERAS), (None, "", "needs TPU hardware")),
        ),
    )
}


def list_names(place: str) -> tuple[str, ...]:
    """Return the names of the strategies that run at `place`: "machine", "cluster" or "TPU"."""
    return tuple(name for name, record in STRATEGIES.items() if record.place == place)


NAMES = tuple(STRATEGIES)
SINGLE_MACHINE, CLUSTER = list_names("machine"), list_names("cluster")
# measured on TensorFlow 2.21.0, Keras 3.15.1, tf_keras 2.21.0
SUPPORT = tuple(
    Support(record.name, loop, keras, *record.exceptions.get((loop, keras), (True,)))
    for record in STRATEGIES.values()
    for keras in KERAS
    for loop in LOOPS
)
