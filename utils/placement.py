"""Describe the devices of a strategy's replicas, for people and programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .devices import configured_cpu_devices, name_gpu_kinds, why_no_nccl
from .gpus import list_unseen_gpus
from .measure import count

if TYPE_CHECKING:
    import tensorflow as tf

MAX_NAMES = 8  # of devices that a sentence shows


@dataclass(frozen=True)
class Devices:
    """The devices of a strategy's replicas: `names` like "GPU:0", and the kind of each.

    `all_reduce` is how replicas add up their gradients, None for one replica. `unused_gpus` counts
    the GPUs of this process that no replica runs on. `note` says what else a reader should know.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    all_reduce: str | None = None
    unused_gpus: int = 0
    note: str = ""

    def __str__(self) -> str:
        words = f"{count(len(self.names), 'replica')}: "
        if len(set(self.kinds)) == 1:
            words += f"{', '.join(_abridge(self.names))} ({self.kinds[0]})"
        else:
            words += ", ".join(_abridge([f"{n} ({k})" for n, k in zip(self.names, self.kinds)]))
        words += f", all-reduce {self.all_reduce}" if self.all_reduce else ""
        if self.unused_gpus:
            words += f"; {count(self.unused_gpus, 'GPU')} unused"
        return f"{words}; {self.note}" if self.note else words


def _abridge(names: Sequence[str]) -> list[str]:
    return [*names] if len(names) <= MAX_NAMES else [*names[: MAX_NAMES - 1], "…", names[-1]]


def describe_strategy(strategy: tf.distribute.Strategy) -> Devices:
    """Return the devices on which the replicas of `strategy` run, read from the strategy.

    Names are like "GPU:0", and `all_reduce` is how replicas add up their gradients.

        print(describe_strategy(make_strategy("mirrored", 2, devices="cpu")).names)
    """
    import tensorflow as tf

    names = _name_devices(strategy)
    own = [name for name in names if name.startswith("GPU")]
    here = len(tf.config.list_physical_devices("GPU"))
    all_reduce = _name_all_reduce(strategy) if strategy.num_replicas_in_sync > 1 else None
    note = ""
    if len(own) > 1 and all_reduce in ("ring", "one-device"):
        note = why_no_nccl(name_gpu_kinds())
    if not here and (unseen := list_unseen_gpus()):
        note = f"TensorFlow doesn't see this machine's {unseen[0]}: distlab doctor says why"
    kinds = tuple(map(_name_kind, names))
    return Devices(names, kinds, all_reduce, max(0, here - len(own)), note)


def _name_devices(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    import tensorflow as tf

    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        gpus = [d.name for d in tf.config.list_logical_devices("GPU") if "/job:worker" in d.name]
        workers = range(strategy._num_workers)
        return tuple(map(_shorten_name, gpus)) or tuple(f"worker {i} CPU:0" for i in workers)
    try:
        return tuple(_shorten_name(name) for name in strategy.extended.worker_devices)
    except RuntimeError:  # TensorFlow's default strategy, which leaves it to the placer
        return ("GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0",)


def _shorten_name(name: str) -> str:
    """Return "GPU:0" for "/job:localhost/…/device:GPU:0"; a remote worker's with its number."""
    worker = re.search(r"/job:worker.*/task:(\d+)/.*GPU", name)
    kind, index = re.search(r"([A-Z]+):(\d+)$", name).groups()
    return f"worker {worker[1]} {kind}:{index}" if worker else f"{kind}:{index}"


def _name_kind(name: str) -> str:
    kind, index = re.search(r"([A-Z]+):(\d+)$", name).groups()
    if kind == "GPU" and not name.startswith("worker"):
        kinds = name_gpu_kinds()
        return kinds[int(index)] if int(index) < len(kinds) else "logical GPU"
    return "logical CPU" if kind == "CPU" and configured_cpu_devices() > 1 else kind


def _name_all_reduce(strategy: tf.distribute.Strategy) -> str | None:
    ops = getattr(strategy.extended, "_cross_device_ops", None)
    found = {"ReductionToOneDevice": "one-device", "HierarchicalCopyAllReduce": "hierarchical"}
    if ops is None or type(ops).__name__ in found:
        return ops and found[type(ops).__name__]
    options = getattr(ops, "_options", None)
    return options.implementation.value.lower() if options else "nccl"
