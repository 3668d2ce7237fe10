"""A Transformer in numbers: its shape, and the activations that it keeps.

The shape is that of a model 128 times as wide as it has layers, with heads of 128, as in
GPT-3 (Brown et al. 2020: 96 layers of width 12,288); both are fractions for sizes between.
Activations follow Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
Transformer Models", equations 1 and 2, for numbers of 2 bytes or 4. NumPy at most.
"""

from dataclasses import dataclass

from ..checks import check_count
from ..errors import InputError

WIDTH_PER_LAYER = HEAD_WIDTH = 128


@dataclass(frozen=True)
class TransformerShape:
    """`layers` of `width`, with width / 128 heads: 12 width^2 parameters a layer."""

    layers: float
    width: float

    @property
    def heads(self) -> float:
        return self.width / HEAD_WIDTH


def find_shape(parameters: float) -> TransformerShape:
    """Return the shape of a Transformer of so many parameters, embeddings left out.

    Raises InputError for a number that is not above 0.
    """
    if not 0 < parameters < float("inf"):
        raise InputError(f"{parameters} parameters: give a number above 0")
    layers = (parameters / (12 * WIDTH_PER_LAYER**2)) ** (1 / 3)
    return TransformerShape(layers, WIDTH_PER_LAYER * layers)


def find_activation_bytes(
    shape: TransformerShape,
    sequence: int,
    micro_batch: int,
    *,
    tensor_parallel: int = 1,
    number_bytes: int = 2,
) -> float:
    """Return the bytes of activations that all layers keep of one micro-batch, on one device.

    `sequence` tokens for each of `micro_batch` examples. Tensor parallelism divides what is
    inside attention and MLP; layer norms and dropout stay whole. Raises InputError for counts
    below 1.
    """
    for what, number in (("sequence", sequence), ("micro-batch", micro_batch),
                         ("tensor parallel", tensor_parallel)):  # fmt: skip
        check_count(what, number)
    whole, cut = 4 * number_bytes + 2, 12 * number_bytes
    scores = (2 * number_bytes + 1) * shape.heads * sequence / shape.width
    each = sequence * micro_batch * shape.width * (whole + (cut + scores) / tensor_parallel)
    return shape.layers * each


def count_in_flight(stage: int, stages: int, micro_batches: int) -> int:
    """Return how many micro-batches pipeline stage `stage` keeps at most under 1F1B."""
    return min(micro_batches, stages - stage)
