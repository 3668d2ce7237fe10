"""Bytes on each device: weights, gradients, optimizer state and activations.

ZeRO's stages follow Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training
Trillion Parameter Models", section 3.1 and figure 1; tensor and pipeline parallelism
divide the parameters before that, so that a device holds 1/(T S) of them. Recomputation
follows Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost": of n equal
layers it keeps the inputs of sqrt(n) segments and, while it goes back through one
segment, that segment's sqrt(n) layers: 2/sqrt(n) of all activations, for one more
forward pass. NumPy at most.
"""

import math
from dataclasses import dataclass, replace

from ..checks import check_count, check_number
from ..errors import InputError

STAGES = {
    0: "a full copy on every device",
    1: "shard the optimizer state",
    2: "gradients too",
    3: "weights too",
}


@dataclass(frozen=True)
class ParameterBytes:
    """Bytes that one parameter takes. The defaults are Adam's in mixed precision.

    2 for the 16-bit weight, 2 for its gradient, 12 for a 32-bit copy of the weight
    and two moving averages (the paper's K).
    """

    weights: float = 2
    gradients: float = 2
    optimizer: float = 12


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes on one device; `activations` are 0 where none were given."""

    weights: float
    gradients: float
    optimizer: float
    activations: float = 0.0

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations


def find_zero_memory(
    parameters: float, ranks: int, stage: int, each: ParameterBytes | None = None
) -> DeviceMemory:
    """Return the bytes that one of `ranks` data-parallel devices holds at a ZeRO `stage`, 0 to 3.

    `parameters` is the model's count, `each` the bytes per parameter [mixed precision with Adam].
    Stage 1 gives each device 1/ranks of the optimizer state, stage 2 of the gradients too, stage 3
    of the weights too. Raises InputError for numbers out of range. Follows Rajbhandari and others
    2019, arXiv:1910.02054.

        >>> find_zero_memory(7e9, ranks=64, stage=3).total / 1e9
        1.75
    """
    if stage not in STAGES:
        raise InputError(f"zero_stage must be 0, 1, 2 or 3, got {stage!r}.")
    check_count("ranks", ranks)
    each = each or ParameterBytes()
    sizes = (each.weights, each.gradients, each.optimizer)
    if not (0 < parameters < float("inf")) or min(sizes) < 0:
        raise InputError(
            f"parameters must be above 0 and their bytes at least 0, got {parameters} "
            f"parameters of {sizes} bytes."
        )
    shared_from = (3, 2, 1)  # the stage from which weights, gradients, optimizer are sharded
    held = [
        parameters * size / (ranks if stage >= first else 1)
        for size, first in zip(sizes, shared_from, strict=True)
    ]
    return DeviceMemory(*held)


def find_device_memory(
    parameters: float,
    ranks: int,
    stage: int,
    each: ParameterBytes | None = None,
    *,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    activation_bytes: float = 0.0,
    recomputed_layers: int | None = None,
) -> DeviceMemory:
    """Return what a device holds of a model cut into `tensor_parallel` x `pipeline_parallel`.

    `ranks` are the data-parallel copies of that cut model, over which ZeRO shares.
    `activation_bytes` is for one device; with `recomputed_layers`, that many of its layers
    recompute them. Raises InputError, in one line, for numbers that can't be.
    """
    check_count("tensor parallel", tensor_parallel)
    check_count("pipeline parallel", pipeline_parallel)
    check_number("activation bytes", activation_bytes, least=0)
    held = find_zero_memory(parameters / (tensor_parallel * pipeline_parallel), ranks, stage, each)
    kept = 1.0
    if recomputed_layers is not None:
        kept = min(1.0, 2 / math.sqrt(check_count("layers", recomputed_layers)))
    return replace(held, activations=activation_bytes * kept)
