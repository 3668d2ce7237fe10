"""Choose the devices of a strategy's replicas: all GPUs, logical CPU devices, or a TPU's cores.

The one place where devices are chosen (`choose_devices`); `placement` names what a strategy has. A
run takes all GPUs that this process may use. Without any, a laptop's one CPU is split into several
*logical* devices, each with its own copy of the variables and its own queue of work, so every
strategy does what it does on real accelerators. Logical devices share the cores: they teach, they
don't speed up.

TensorFlow is imported late: `choose_devices` and `choose_all_reduce` are plain functions.
"""

from __future__ import annotations

import functools
import os
import re
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .checks import check_choice
from .device_iterators import quicken_device_iterators
from .errors import InputError, first_line
from .gpus import (
    VISIBLE,
    ask_why_unseen,
    check_gpus_are_free,
    list_gpus,
    read_driver,
    sharing_variables,
)
from .measure import count as say_count

if TYPE_CHECKING:
    import tensorflow as tf

DEVICES = ("auto", "gpu", "cpu")
ALL_REDUCES = ("auto", "nccl", "ring", "hierarchical", "one-device")
MOST_LOGICAL_DEVICES = 64
USUAL_LOGICAL_DEVICES = 4  # a process is split at least so far, to leave room for a later call
TPU_VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")  # as TensorFlow's client reads them
ANSWER_SECONDS = 5.0


def choose_devices(
    devices: str, replicas: int | None, gpus: int, usual: int = 1, most: int = 1, why: str = ""
) -> tuple[str, int]:
    """Return "GPU" or "CPU", and how many of them a strategy's replicas take in this process.

    `devices` is one of DEVICES, `gpus` how many this process may use. None for `replicas` takes
    all GPUs, or `usual` logical CPUs if there are none; a strategy with `most` 1 takes one.
    `why` says why there are no GPUs. Raises InputError for more replicas than GPUs, and for
    "gpu" without one: CPUs next to unused GPUs come only on request.
    """
    check_choice("devices", devices, DEVICES)
    if devices == "gpu" and not gpus:
        raise InputError(
            f"device 'gpu' needs a GPU: {why or 'this process has none'}. Use --device cpu, "
            "or leave --device out."
        )
    if devices == "cpu" or not gpus:
        return "CPU", replicas or usual
    if replicas is not None and replicas > gpus:
        raise InputError(
            f"replicas must be at most {gpus}, got {replicas}: this process has "
            f"{say_count(gpus, 'GPU')}. Use --replicas {gpus}, or logical CPUs with --device cpu"
        )
    return "GPU", replicas or (gpus if most > 1 else 1)


def choose_all_reduce(
    asked: str, offered: Sequence[str], strategy: str, kind: str, no_nccl: str = ""
) -> str | None:
    """Return how `strategy` adds up gradients on devices of `kind`; None if it has nothing to add.

    `offered` are the ALL_REDUCES that it supports; the last one works everywhere. `no_nccl` says
    why NCCL can't be used on these GPUs. Raises InputError for what it can't do.
    """
    check_choice("all reduce", asked, ALL_REDUCES)
    reason = no_nccl if kind == "GPU" else "it needs GPUs"
    if asked == "auto":
        return "nccl" if "nccl" in offered and not reason else offered[-1] if offered else None
    if asked not in offered:
        can = f"choose from auto, {', '.join(offered)}"
        can = can if offered else "it adds nothing up, so leave --all-reduce out"
        raise InputError(f"all_reduce can't be {asked!r} for strategy {strategy!r}: {can}")
    if asked == "nccl" and reason:
        raise InputError(
            f"all_reduce can't be 'nccl': {reason}. Use --all-reduce {offered[-1]}, or auto."
        )
    return asked


def count_gpus() -> int:
    """Return how many GPUs TensorFlow may use in this process; doesn't start TensorFlow.

    Sets the variables that let processes share GPUs, if they still have an effect. Raises
    InputError if CUDA_VISIBLE_DEVICES names a GPU that isn't here, or another program has filled
    the memory of one.
    """
    import tensorflow as tf

    started = has_started()
    named = [] if started else list_gpus()
    if named:
        os.environ.update(sharing_variables())
    found = len(tf.config.get_visible_devices("GPU"))
    if found and named:
        check_gpus_are_free(named)
    return found


def has_started() -> bool:
    """Return whether TensorFlow has run an operation, after which devices can't be configured."""
    from tensorflow.python.eager import context

    return bool(context.context()._initialized)


def explain_no_gpu() -> str:
    """Return why TensorFlow has no GPU in this process, in TensorFlow's own words if it has any."""
    driver = read_driver()
    if not driver:
        return "no NVIDIA driver lists a GPU on this machine"
    if VISIBLE in os.environ and not list_gpus():
        return (
            f"{VISIBLE}={os.environ[VISIBLE]!r} hides all {len(driver)} of this machine. Unset it"
        )
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        return "this process has hidden its GPUs before. Start a new one (restart the kernel)"
    return f"TensorFlow can't use the {driver[0].kind} of this machine: {ask_why_unseen()}"


def why_no_nccl(kinds: Sequence[str]) -> str:
    """Return why NCCL can't add up tensors of GPUs of these kinds, "" if it can."""
    import tensorflow as tf
    from tensorflow.python.framework import kernels

    if any(" MIG " in kind for kind in kinds):
        return "NCCL doesn't work on MIG slices"
    gpus = tf.config.get_visible_devices("GPU")
    if any(len(tf.config.get_logical_device_configuration(gpu) or []) > 1 for gpu in gpus):
        return "NCCL needs whole GPUs, and these are logical ones"
    if not kernels.get_registered_kernels_for_op("NcclAllReduce").kernel:
        return "this TensorFlow was built without NCCL"
    return ""


def name_gpu_kinds() -> list[str]:
    """Return the kind of each GPU that TensorFlow may use, such as "NVIDIA H200"."""
    import tensorflow as tf

    details = tf.config.experimental.get_device_details
    gpus = tf.config.get_visible_devices("GPU")
    return [details(gpu).get("device_name", "unknown GPU") for gpu in gpus]


def name_devices(kind: str, count: int) -> list[str]:
    """Return the names of devices that `find_devices` found, "GPU:0" or "CPU:1"; splits the CPU."""
    return [f"GPU:{i}" for i in range(count)] if kind == "GPU" else split_logical_devices(count)


def find_devices(
    devices: str, replicas: int | None, usual: int = 1, most: int = 1
) -> tuple[str, int]:
    """Return the kind and number of devices that a strategy takes here, as `choose_devices` says.

    Starts no TensorFlow. If they are CPUs, it is kept off GPUs in this process, unless it has
    started.
    """
    gpus = count_gpus()
    why = explain_no_gpu() if devices == "gpu" and not gpus else ""
    kind, count = choose_devices(devices, replicas, gpus, usual, most, why)
    if kind == "CPU" and gpus:
        limit_gpus(0)
    return kind, count


def limit_gpus(most: int) -> bool:
    """Let TensorFlow see at most `most` GPUs; return False if it has started with more."""
    import tensorflow as tf

    visible = tf.config.get_visible_devices("GPU")
    try:
        tf.config.set_visible_devices(visible[:most], "GPU")
    except RuntimeError:
        return len(visible) <= most
    return True


def use_logical_devices(count: int = 4) -> list[str]:
    """Split this process's CPU into logical devices; return the names of the first `count`.

    The split is into `count` devices, or four if that is more, and it is safe to call again for as
    many as there are. It can be made only once per process, and only before TensorFlow's first
    operation (`tf.config.set_logical_device_configuration`). Raises InputError, which says to
    restart the kernel, if the call comes too late.

    On a machine with GPUs they are hidden from this process and from those that it starts, and a
    printed sentence says so. A notebook then shows the same everywhere, and no float32 number comes
    from TF32, the short format that GPUs multiply in.

        print(use_logical_devices(2))  # ['CPU:0', 'CPU:1']
    """
    if gpus := list_gpus():
        os.environ[VISIBLE] = ""
        limit_gpus(0)
        print(
            "Logical CPU devices are used here, as on every machine. This process and those that "
            f"it starts don't see the {say_count(len(gpus), 'GPU')}."
        )
    return split_logical_devices(count)


def split_logical_devices(count: int) -> list[str]:
    """Do what `use_logical_devices` does, and leave GPUs alone."""
    import tensorflow as tf

    if not 1 <= count <= MOST_LOGICAL_DEVICES:
        raise InputError(
            f"The number of logical devices must be from 1 to {MOST_LOGICAL_DEVICES}, got {count}."
        )
    quicken_device_iterators()
    if configured_cpu_devices() == 0:
        try:
            split_cpu(max(count, USUAL_LOGICAL_DEVICES))
        except RuntimeError:
            pass  # TensorFlow has started already: what there is, is counted below
    names = [f"CPU:{i}" for i in range(len(tf.config.list_logical_devices("CPU")))]
    if len(names) < count:
        raise InputError(
            f"{count} logical devices are needed, and this process has {len(names)}. The split "
            "must come before TensorFlow's first operation: restart the kernel, then split first."
        )
    return names[:count]


def split_cpu(count: int) -> None:
    """Split this process's CPU into exactly `count` logical devices, without starting TensorFlow.

    A worker of MultiWorkerMirroredStrategy needs it so: to count the devices, as
    `use_logical_devices` does, starts TensorFlow, and the strategy must be made before
    that. Raises RuntimeError if TensorFlow has started.
    """
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    pieces = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, pieces)
    quicken_device_iterators()


def configured_cpu_devices() -> int:
    """Return into how many logical devices the CPU was split, 0 if it wasn't.

    Doesn't start TensorFlow.
    """
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    return len(tf.config.get_logical_device_configuration(cpu) or [])


def tpu_address() -> str | None:
    """Return where the TPU is: an address, a name, "local" for one of this machine, or None.

    An environment variable of `TPU_VARIABLES` goes first, as in TensorFlow's own client.
    Asks no network and starts no operation.
    """
    import tensorflow as tf

    named = next((os.environ[name] for name in TPU_VARIABLES if os.environ.get(name)), None)
    return named or ("local" if tf.config.list_physical_devices("TPU") else None)


@functools.cache
def connect_tpu() -> tf.distribute.cluster_resolver.TPUClusterResolver:
    """Find the TPU, connect to it and initialize it: once per process, since it wipes its memory.

    The three calls of TensorFlow's guide "Use TPUs". Raises InputError, in one
    line, if there is no TPU or the named one doesn't answer.
    """
    import tensorflow as tf

    address = tpu_address()
    if address is None:
        raise InputError(
            "Strategy 'tpu' needs a TPU. TensorFlow lists none here, and TPU_NAME isn't "
            "set. The same program runs unchanged on a TPU machine."
        )
    try:
        _check_answers(address)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (OSError, ValueError, RuntimeError, ImportError, tf.errors.OpError) as error:
        first = first_line(error, 160)
        raise InputError(f"Strategy 'tpu' found no TPU at {address!r}: {first}") from None
    return resolver


def _check_answers(address: str) -> None:
    """Raise OSError if the first host:port of `address` takes no connection.

    `experimental_connect_to_cluster` waits for minutes for a host that isn't there.
    """
    found = re.match(r"(?:grpc://)?([^:/,]+):(\d+)", address)
    if found:
        socket.create_connection((found[1], int(found[2])), ANSWER_SECONDS).close()


def describe_topology(topology: tf.tpu.experimental.Topology) -> dict[str, Any]:
    """Return a topology's numbers: its mesh of chips, hosts, cores of each host and in all.

    `mesh` is (x, y, z, cores per chip); `coordinates` holds the place of each core
    in it, [host][core] -> (x, y, z, core).
    """
    places = topology.device_coordinates  # [host, core, 4]
    return {
        "mesh": tuple(int(n) for n in topology.mesh_shape),
        "hosts": int(topology.num_tasks),
        "cores_per_host": int(topology.num_tpus_per_task),
        "cores": int(topology.num_tasks * topology.num_tpus_per_task),
        "coordinates": [[tuple(int(n) for n in core) for core in host] for host in places],
    }
