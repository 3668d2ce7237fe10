"""Lesson 24: is Keras on JAX here, what is on each device, and what the compiled step sends."""

import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from distlab.errors import CourseError

INSTALL = "This lesson needs JAX: pip install -c constraints.txt jax"
LATE = "Keras already runs on {}, so KERAS_BACKEND came too late. Restart the kernel, and run all."
BYTES = {"pred": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8}
_SHAPE = re.compile(r"\b(pred|bf16|f16|f32|s32|u32|f64|s64)\[([\d,]*)\]")
_COLLECTIVE = re.compile(
    r"= (?P<result>\([^=]*?\)|\S+) "
    r"(?P<name>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)


def check_backend() -> None:
    """Raise CourseError, in one sentence, if JAX is not installed or Keras has another backend."""
    if importlib.util.find_spec("jax") is None:
        raise CourseError(INSTALL)
    keras = sys.modules.get("keras")
    if keras is not None and keras.backend.backend() != "jax":
        raise CourseError(LATE.format(keras.backend.backend()))


@dataclass(frozen=True)
class Collective:
    """One collective of a compiled program: its name, and the bytes of its result on a device."""

    name: str
    payload_bytes: int


def list_collectives(program: str) -> list[Collective]:
    """Return the collectives in the text of a compiled XLA program (HLO), in its order."""
    return [Collective(found["name"], _count_bytes(found["result"]))
            for found in _COLLECTIVE.finditer(program)]  # fmt: skip


def _count_bytes(shapes: str) -> int:
    sizes = ((kind, [int(n) for n in dims.split(",") if n]) for kind, dims in _SHAPE.findall(shapes))
    return sum(BYTES[kind] * prod(dims) for kind, dims in sizes)


def count_collectives(collectives: Iterable[Collective]) -> dict[str, tuple[int, int]]:
    """Return {name: (how many, their bytes together)}."""
    times, size = Counter(), Counter()
    for one in collectives:
        times[one.name] += 1
        size[one.name] += one.payload_bytes
    return {name: (times[name], size[name]) for name in sorted(times)}


def count_held_bytes(variables: Iterable[Any], device: Any) -> int:
    """Return the bytes of Keras `variables` that a JAX `device` holds."""
    shards = (shard for each in variables for shard in each.value.addressable_shards)
    return sum(shard.data.nbytes for shard in shards if shard.device == device)
