"""A Transformer in numbers: its shape, its activations, and what crosses the wires in a step.

The shape is that of a model 128 times as wide as it has layers, with heads of 128, as in
GPT-3 (Brown et al. 2020: 96 layers of width 12,288); both are fractions for sizes between.
Activations follow Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
Transformer Models", equations 1 and 2, for numbers of 2 bytes or 4. NumPy at most.
"""

from dataclasses import dataclass

from ..checks import check_count, check_number
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


@dataclass(frozen=True)
class WireBytes:
    """Bytes that one device sends in a step, to each kind of neighbour."""

    data: float
    tensor: float
    pipeline: float


def find_wire_bytes(
    shape: TransformerShape,
    parameters: float,
    *,
    sequence: int,
    micro_batch: int,
    micro_batches: int = 1,
    data_parallel: int = 1,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    zero_stage: int = 0,
    recompute: bool = False,
    number_bytes: int = 2,
) -> WireBytes:
    """Return what a device in the middle of the pipeline sends in one step of `micro_batches`.

    Between replicas: a ring all-reduce of the device's own gradients, or 1.5 times that at
    ZeRO's stage 3, which gathers the weights twice (Rajbhandari et al. 2020, section 7).
    Inside a layer: four all-reduces of the layer's output for each micro-batch (Shoeybi et al.
    2019), six with recomputation. Between stages: one output forward, one gradient back.
    """
    check_number("parameters", parameters, least=0)
    own = parameters / (tensor_parallel * pipeline_parallel) * number_bytes
    output = sequence * micro_batch * shape.width * number_bytes
    calls = (6 if recompute else 4) * shape.layers / pipeline_parallel * micro_batches
    ring = lambda ranks: 2 * (ranks - 1) / ranks  # noqa: E731
    return WireBytes(
        data=ring(data_parallel) * own * (1.5 if zero_stage == 3 else 1.0),
        tensor=ring(tensor_parallel) * output * calls,
        pipeline=2 * output * micro_batches if pipeline_parallel > 1 else 0.0,
    )
