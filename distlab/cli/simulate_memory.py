"""`distlab simulate memory`: bytes on each device, by what they are for."""

import argparse
import json

from distlab import figures
from distlab.cli.parser import Commands, add_command
from distlab.cli.simulate_options import (
    add_picture,
    format_table,
    read_bytes,
    read_count,
    write_picture,
)
from distlab.figures import Picture
from utils.checks import check_count
from utils.measure import count, format_bytes
from utils.simulate.memory import STAGES, DeviceMemory, ParameterBytes, find_device_memory

NAMES = ("parameters", "gradients", "optimizer", "activations")


def add_parser(models: Commands) -> None:
    each = ParameterBytes()
    parser = add_command(
        models, "memory", run,
        "bytes on each device under ZeRO, tensor and pipeline parallelism, recomputation",
        "Bytes on each device. Without other sizes a parameter takes 2 bytes, its "
        "gradient 2 and Adam's state 12 (mixed precision). N data-parallel copies, each cut into "
        "T x S devices.",
    )  # fmt: skip
    add = parser.add_argument
    add("--parameters", required=True, type=read_count, metavar="P", help="of the model, 7.5e9")
    add("--data-parallel", required=True, type=int, metavar="N")
    add("--zero-stage", required=True, type=int, choices=tuple(STAGES),
        help="; ".join(f"{stage}: {words}" for stage, words in STAGES.items()))  # fmt: skip
    add("--tensor-parallel", type=int, default=1, metavar="T", help="(1)")
    add("--pipeline-parallel", type=int, default=1, metavar="S", help="(1)")
    add("--activation-bytes", type=read_bytes, default=0, metavar="A", help="on each device (0)")
    add("--recompute", action="store_true",
        help="keep 2 / sqrt(layers) of the activations, for one more forward pass")  # fmt: skip
    add("--layers", type=int, default=24, metavar="L",
        help="of --recompute: equal layers on each device (%(default)d)")  # fmt: skip
    for name in ("weights", "gradients", "optimizer"):
        add(f"--{name}-bytes", type=float, default=getattr(each, name), metavar="B",
            help="per parameter (%(default)g)")  # fmt: skip
    parser.add_json()
    add_picture(parser, "the bytes of every ZeRO stage")


def run(arguments: argparse.Namespace) -> int:
    check_count("data parallel", arguments.data_parallel)
    held = find(arguments, arguments.zero_stage)
    result = {"bytes_per_device": list_bytes(held)}
    if arguments.picture:
        write_picture(arguments.picture, lambda: draw(arguments))
    print(json.dumps(result) if arguments.json else tabulate(arguments, held))
    return 0


def find(arguments: argparse.Namespace, stage: int) -> DeviceMemory:
    """Return what one device holds at a ZeRO stage."""
    each = ParameterBytes(
        arguments.weights_bytes, arguments.gradients_bytes, arguments.optimizer_bytes
    )
    return find_device_memory(
        arguments.parameters, arguments.data_parallel, stage, each,
        tensor_parallel=arguments.tensor_parallel, pipeline_parallel=arguments.pipeline_parallel,
        activation_bytes=arguments.activation_bytes,
        recomputed_layers=arguments.layers if arguments.recompute else None,
    )  # fmt: skip


def list_bytes(held: DeviceMemory) -> dict[str, float]:
    """Return the bytes by the names that the JSON has."""
    parts = dict(zip(NAMES, (held.weights, held.gradients, held.optimizer, held.activations)))
    return {**parts, "total": held.total}


def tabulate(arguments: argparse.Namespace, held: DeviceMemory) -> str:
    devices = arguments.data_parallel * arguments.tensor_parallel * arguments.pipeline_parallel
    head = (
        f"{arguments.parameters:,} parameters on {count(devices, 'device')}, ZeRO "
        f"stage {arguments.zero_stage}: on each"
    )
    return format_table(head, [(k, format_bytes(v)) for k, v in list_bytes(held).items()])


def draw(arguments: argparse.Namespace) -> Picture:
    """Return the bytes of all stages, side by side."""
    stages = {f"ZeRO stage {stage}": list_bytes(find(arguments, stage)) for stage in STAGES}
    return figures.grouped_bars(
        {name: {k: v / 1e9 for k, v in parts.items()} for name, parts in stages.items()},
        unit="GB", title="On each device",
    )  # fmt: skip
