"""The memory machine: what fits on a device, and what crosses the wires, moved by hand."""

from typing import Any

from distlab.explorables.explorable import Explorable
from distlab.figures import stacked_bars
from distlab.figures.picture import Picture
from utils.simulate.memory import DeviceMemory, ParameterBytes, find_device_memory
from utils.simulate.transformer import count_in_flight, find_kept_bytes, find_shape

FIRST = "7.5 billion on 64 devices"
PARTS = ("weights", "gradients", "optimizer", "activations")
# Powers of two for what ends in Log. Sizes: Rajbhandari et al. 2020 (figure 1), Brown et al.
# 2020 (table 2.1); how many devices, and of which kind, is our choice.
_PLAIN = {
    "sequenceLog": 11,
    "batch": 1,
    "micros": 1,
    "dataLog": 0,
    "tensorLog": 0,
    "pipelineLog": 0,
    "zero": 0,
    "recompute": False,
    "scores": False,
    "sequenceParallel": False,
    "precision": "mixed",
    "capacity": 80,
}
PRESETS: dict[str, dict[str, Any]] = {
    "10 million, one device": {**_PLAIN, "parameters": 1e7, "sequenceLog": 8, "capacity": 8},
    FIRST: {
        **_PLAIN,
        "parameters": 7.5e9,
        "dataLog": 6,
        "sequenceLog": 10,
    },
    "the same with ZeRO 3": {
        **_PLAIN,
        "parameters": 7.5e9,
        "dataLog": 6,
        "sequenceLog": 10,
        "zero": 3,
    },
    "175 billion on 1,024 devices": {
        **_PLAIN,
        "parameters": 1.75e11,
        "dataLog": 4,
        "tensorLog": 3,
        "pipelineLog": 3,
        "micros": 32,
        "zero": 1,
        "recompute": True,
    },
}


def memory_machine() -> Explorable:
    """Show devices as glasses that fill with what training a Transformer keeps on them.

    It opens with FIRST; the other PRESETS are buttons. The glasses come from
    `find_device_memory`, with activations by `find_kept_bytes`.
    """
    data = {
        "label": "The memory machine",
        "presets": [{"name": name, "options": chosen} for name, chosen in PRESETS.items()],
    }
    return Explorable("memory", data, PRESETS[FIRST], _draw_still())


def find_held(options: dict[str, Any], stage: int = 0) -> DeviceMemory:
    """Return what a device of pipeline stage `stage` holds, for the options of the piece."""
    mixed = options["precision"] == "mixed"
    each, number = (ParameterBytes(), 2) if mixed else (ParameterBytes(4, 4, 8), 4)
    tensor, stages = 2 ** options["tensorLog"], 2 ** options["pipelineLog"]
    sequence = 2 ** options["sequenceLog"]
    shape = find_shape(options["parameters"], sequence)
    activations = shape.layers * find_kept_bytes(
        shape,
        sequence * options["batch"],
        tensor=tensor,
        scores=options["scores"],
        sequence_parallel=options["sequenceParallel"],
        number_bytes=number,
    )
    kept = count_in_flight(stage, stages, options["micros"]) / stages
    layers = max(1, int(shape.layers / stages + 0.5))
    return find_device_memory(
        options["parameters"],
        2 ** options["dataLog"],
        options["zero"],
        each,
        tensor_parallel=tensor,
        pipeline_parallel=stages,
        activation_bytes=activations * kept,
        recomputed_layers=layers if options["recompute"] else None,
    )


def _draw_still() -> Picture:
    """Draw what a device holds at each of ZeRO's stages, with the other options of FIRST."""
    options = PRESETS[FIRST]
    held = {
        f"ZeRO {zero}" if zero else "nothing sharded": find_held({**options, "zero": zero})
        for zero in range(4)
    }
    bars = {name: {part: getattr(h, part) / 1e9 for part in PARTS} for name, h in held.items()}
    line = (f"a device: {options['capacity']} GB", float(options["capacity"]))
    return stacked_bars(bars, unit="GB", title=f"On each device: {FIRST}", reference=line)
