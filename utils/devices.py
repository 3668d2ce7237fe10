"""N logical CPU devices, the real GPUs or a TPU's cores: what a strategy's replicas run on.

A laptop has one CPU device. TensorFlow can split it into several *logical*
devices, each with its own copy of the variables and its own queue of work, so
that every strategy does what it does on real accelerators. Logical devices
share the cores: they teach, they do not speed up.
"""

import functools
import os
import re
import socket
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from .errors import InputError, first_line

MOST_LOGICAL_DEVICES = 64
USUAL_LOGICAL_DEVICES = 4  # a process is split at least so far, to leave room for a later call
TPU_VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")  # as TensorFlow's client reads them
ANSWER_SECONDS = 5.0


def use_logical_devices(count: int = 4) -> list[str]:
    """Split this process's CPU into logical devices; return the names of the first `count`.

    The split is into `count` devices, or four if that is more, and it is safe to
    call again for as many as there are. It can be made only once per process,
    and only before TensorFlow's first operation
    (`tf.config.set_logical_device_configuration`); a call that comes too late
    raises InputError, which says to restart the kernel.
    """
    if not 1 <= count <= MOST_LOGICAL_DEVICES:
        raise InputError(f"{count} logical devices: choose 1 to {MOST_LOGICAL_DEVICES}")
    leave_device_buffers_untuned()
    if configured_cpu_devices() == 0:
        try:
            split_cpu(max(count, USUAL_LOGICAL_DEVICES))
        except RuntimeError:
            pass  # TensorFlow has started already: what there is, is counted below
    names = [f"CPU:{i}" for i in range(len(tf.config.list_logical_devices("CPU")))]
    if len(names) < count:
        raise InputError(
            f"{count} logical devices were asked for and this process has {len(names)}: the split "
            "must come before TensorFlow's first operation. Restart the kernel, then split first"
        )
    return names[:count]


def split_cpu(count: int) -> None:
    """Split this process's CPU into exactly `count` logical devices, without starting TensorFlow.

    A worker of MultiWorkerMirroredStrategy needs it so: to count the devices, as
    `use_logical_devices` does, starts TensorFlow, and the strategy must be made before
    that. Raises RuntimeError if TensorFlow has started.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    pieces = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, pieces)
    leave_device_buffers_untuned()


def leave_device_buffers_untuned() -> None:
    """Let iterators over several devices end at once; a second call changes nothing.

    `Strategy.experimental_distribute_dataset` keeps one batch ahead on each device. TensorFlow
    2.21 gives each of these buffers a tuning thread, whatever the data set's own options say.
    It has nothing to tune, and who drops the iterator may wait until it wakes: as long as
    the iterator lived, up to a minute.
    """
    from tensorflow.python.data.ops import multi_device_iterator_ops as module

    theirs = getattr(module, "_create_device_dataset", None)
    if theirs is None or hasattr(theirs, "__wrapped__"):
        return
    options = tf.data.Options()
    options.autotune.enabled = False

    @functools.wraps(theirs)
    def create_device_dataset(*args: Any, **keywords: Any) -> tf.data.Dataset:
        return theirs(*args, **keywords).with_options(options)

    module._create_device_dataset = create_device_dataset


def configured_cpu_devices() -> int:
    """Return into how many logical devices the CPU was split, 0 if it was not.

    Does not start TensorFlow.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    return len(tf.config.get_logical_device_configuration(cpu) or [])


def training_devices(count: int) -> list[str]:
    """Return `count` devices to train on: the GPUs if there are as many, else logical CPUs.

    Names are short ("GPU:0", "CPU:1"), as `tf.distribute.MirroredStrategy` takes them.
    """
    gpus = tf.config.list_logical_devices("GPU") if tf.config.list_physical_devices("GPU") else []
    if len(gpus) >= count:
        return [f"GPU:{i}" for i in range(count)]
    return use_logical_devices(count)


@dataclass(frozen=True)
class Tpu:
    """A TPU that was found, connected to and initialized."""

    resolver: tf.distribute.cluster_resolver.TPUClusterResolver
    topology: tf.tpu.experimental.Topology


def tpu_address() -> str | None:
    """Return where the TPU is: an address, a name, "local" for one of this machine, or None.

    An environment variable of `TPU_VARIABLES` goes first, as in TensorFlow's own client.
    Asks no network and starts no operation.
    """
    named = next((os.environ[name] for name in TPU_VARIABLES if os.environ.get(name)), None)
    return named or ("local" if tf.config.list_physical_devices("TPU") else None)


@functools.cache
def connect_tpu() -> Tpu:
    """Find the TPU, connect to it and initialize it: once per process, since it wipes its memory.

    The three calls of TensorFlow's guide "Use TPUs". Raises InputError, in one
    line, where no TPU is, and where the one that is named does not answer.
    """
    address = tpu_address()
    if address is None:
        raise InputError(
            "strategy 'tpu': no TPU is here (TensorFlow lists none, and TPU_NAME is not set); "
            "the same program runs as it is where one is"
        )
    try:
        _check_answers(address)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
        tf.config.experimental_connect_to_cluster(resolver)
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    except (OSError, ValueError, RuntimeError, ImportError, tf.errors.OpError) as error:
        first = first_line(error, 160)
        raise InputError(f"strategy 'tpu': no TPU answers at {address!r}: {first}") from None
    return Tpu(resolver, topology)


def _check_answers(address: str) -> None:
    """Raise OSError if the first host:port of `address` takes no connection.

    `experimental_connect_to_cluster` waits for minutes for a host that is not there.
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
