"""Lesson 24: is Keras on JAX here, what is on each device, and what the compiled step sends."""

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log10, prod
from typing import Any

from distlab.errors import CourseError
from distlab.figures.canvas import Sheet, draw_sheet
from distlab.figures.picture import Picture
from distlab.keras_backend import require_jax
from distlab.lessons.dtensor_tiles import GAP_PX, NAME_PX, TOP_PX, Tiles, draw_grid, write_name

LATE = "Keras already runs on {}, so KERAS_BACKEND came too late. Restart the kernel and run all."
BYTES = {"pred": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8}
_SHAPE = re.compile(rf"\b({'|'.join(BYTES)})\[([\d,]*)\]")
_COLLECTIVE = re.compile(
    r"= (?P<result>\((?:[^=]|/\*index=)*?\)|\S+) "  # a tuple counts its parts: /*index=5*/
    r"(?P<name>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)
_LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")  # {{0,1},{2,3}}
_COUNTED = re.compile(r"replica_groups=\[\d+,(\d+)\]")  # [groups, devices in each]<=[4]
_PAIRED = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)+)\}")  # {{0,1},{1,0}}
_NAMED = re.compile(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}")  # mesh['a'=2] {'a'}


def check_backend() -> None:
    """Raise CourseError, in one sentence, if JAX isn't installed or Keras has another backend."""
    require_jax("This lesson")
    keras = sys.modules.get("keras")
    if keras is not None and keras.backend.backend() != "jax":
        raise CourseError(LATE.format(keras.backend.backend()))


@dataclass(frozen=True)
class CompiledCollective:
    """A collective of a compiled program: its result's bytes on a device, and its group's size."""

    name: str
    payload_bytes: int
    devices: int

    @property
    def sent_bytes(self) -> int:
        """The bytes that each device sends if the group works as a ring (lesson 06)."""
        others, share = self.devices - 1, self.payload_bytes / self.devices
        pieces = {"all-reduce": 2 * others, "reduce-scatter": others * self.devices}
        pieces["collective-permute"] = self.devices
        return round(pieces.get(self.name, others) * share)

    def __str__(self) -> str:
        return f"{self.name:<15}{self.payload_bytes:>9,} bytes, {self.devices} devices"


def list_collectives(program: str) -> list[CompiledCollective]:
    """Return the collectives in the text of a compiled XLA program (HLO), in its order."""
    lines = ((line, _COLLECTIVE.search(line)) for line in program.splitlines())
    return [
        CompiledCollective(found["name"], _count_bytes(found["result"]), _count_devices(line))
        for line, found in lines
        if found
    ]


def _count_bytes(shapes: str) -> int:
    found = _SHAPE.findall(shapes)
    return sum(BYTES[kind] * prod(int(n) for n in axes.split(",") if n) for kind, axes in found)


def _count_devices(line: str) -> int:
    """Return how many devices exchange data with each other in one collective."""
    if listed := _LISTED.search(line):
        return len(listed[1].split(","))
    if counted := _COUNTED.search(line):
        return int(counted[1])
    if paired := _PAIRED.search(line):
        return paired[1].count("{")
    if named := _NAMED.search(line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
        axes = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", named[2])
        return prod(int(part or sizes[name]) for name, part in axes)
    raise CourseError(f"The line must name its groups of devices, got {line.strip()[:100]}")


def count_held_bytes(variables: Iterable[Any], device: Any) -> int:
    """Return the bytes of Keras `variables` that a JAX `device` holds."""
    shards = (shard for each in variables for shard in each.value.addressable_shards)
    return sum(shard.data.nbytes for shard in shards if shard.device == device)


def find_shards(variable: Any) -> Tiles:
    """Return which devices hold each shard of a Keras variable of two axes."""
    tiles: Tiles = {}
    for shard in variable.value.addressable_shards:
        starts = [part.start or 0 for part in shard.index]
        row, column = (start // n for start, n in zip(starts, shard.data.shape, strict=True))
        tiles.setdefault((row, column), []).append(shard.device.id)
    return tiles


def draw_shards(variables: Mapping[str, Any], title: str) -> Picture:
    """Draw Keras `variables` {name: of two axes}, each in the shards that its devices hold."""
    sizes = {name: [40 + 45 * log10(n) for n in v.shape] for name, v in variables.items()}
    tiles = {name: find_shards(variable) for name, variable in variables.items()}
    tall = max(size[0] for size in sizes.values())

    def paint(sheet: Sheet) -> None:
        x = 30.0
        for name, (high, wide) in sizes.items():
            draw_grid(sheet, tiles[name], x, TOP_PX + tall / 2, (high, wide))
            rows, columns = variables[name].shape
            write_name(sheet, x + wide / 2, TOP_PX + tall, name, f"{rows} × {columns}")
            x += wide + 2 * GAP_PX

    held = "; ".join(f"{name}: {_describe(own)}" for name, own in tiles.items())
    return draw_sheet(
        paint, title=title, alt=f"{title}. {held}.", height_px=TOP_PX + tall + NAME_PX
    )


def _describe(tiles: Tiles) -> str:
    if len(tiles) == 1:
        return f"all of it on devices {', '.join(map(str, next(iter(tiles.values()))))}"
    return ", ".join(
        f"rows {row}, columns {column} on {' and '.join(map(str, devices))}"
        for (row, column), devices in tiles.items()
    )
