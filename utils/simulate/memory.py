"""Bytes on each device for weights, gradients and optimizer state under ZeRO's stages.

Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models", section 3.1 and figure 1. NumPy at most.
"""

from dataclasses import dataclass

from ..checks import check_count
from ..errors import InputError

STAGES = {
    0: "everything on every device",
    1: "optimizer state shared out",
    2: "and gradients",
    3: "and weights",
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
    """Bytes on one device, activations left out."""

    weights: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer


def find_zero_memory(
    parameters: float, ranks: int, stage: int, each: ParameterBytes | None = None
) -> DeviceMemory:
    """Return what one of `ranks` data-parallel devices holds of a model at a ZeRO stage, 0 to 3.

    Stage 1 gives each device 1/ranks of the optimizer state, stage 2 of the
    gradients too, stage 3 of the weights too. Raises InputError, in one line,
    for numbers that cannot be.
    """
    if stage not in STAGES:
        raise InputError(f"ZeRO stage {stage!r}: choose 0, 1, 2 or 3")
    check_count("ranks", ranks)
    each = each or ParameterBytes()
    sizes = (each.weights, each.gradients, each.optimizer)
    if not (0 < parameters < float("inf")) or min(sizes) < 0:
        raise InputError(
            f"{parameters} parameters of {sizes} bytes: choose more than 0, and bytes of 0 or more"
        )
    shared_from = (3, 2, 1)  # the stage from which weights, gradients, optimizer are shared out
    held = [
        parameters * size / (ranks if stage >= first else 1)
        for size, first in zip(sizes, shared_from, strict=True)
    ]
    return DeviceMemory(*held)
