"""A Transformer in numbers: its shape, FLOPs, memory traffic, and the activations that it keeps.

A missing shape is the shape of a model 128 times as wide as it has layers, with heads of
128, as in GPT-3 (Brown et al. 2020: 96 layers of width 12,288). Activations follow Korthikanti
et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", equations 1, 2 and
4. FLOPs follow Kaplan et al. 2020, "Scaling Laws for Neural Language Models" (6 per parameter
and token), and Chowdhery et al. 2022, "PaLM", appendix B (attention's 12 * layers * hidden *
sequence per token). NumPy at most.
"""

import math
from dataclasses import dataclass

from ..checks import check_count, check_number
from ..errors import InputError

WIDTH_PER_LAYER = HEAD_WIDTH = 128
# Bytes that the operations of a layer read and write, per token and unit of width, in 16 bits.
# Each operation reads what goes in and writes what comes out. Norms run in 32 bits with a cast
# before and after, as mixed precision does (PyTorch autocast, Keras): 2 * 20 forward, 2 * 24
# backward. Residual sums: 12, 12. GELU over 4 units: 16, 24. The matrix products' operands: 32,
# 64. Attention in one kernel: 8, 20.
FORWARD_BYTES, BACKWARD_BYTES = 108, 168
LOGIT_BYTES, LOGIT_TRAFFIC = 4, 10  # logits and gradient in 16 bits: kept; read and written
LAYER_OPERATIONS = 14  # kernels of a layer's forward pass: those counted above, casts included
MIN_FIT, MAX_FIT = 0.5, 2.0  # stated parameters over the shape's


@dataclass(frozen=True)
class TransformerShape:
    """`layers` of width `hidden`, with hidden / 128 heads: 12 hidden^2 parameters a layer."""

    layers: float
    hidden: float
    sequence: int = 2048

    @property
    def heads(self) -> float:
        return self.hidden / HEAD_WIDTH


def find_shape(parameters: float, sequence: int = 2048) -> TransformerShape:
    """Return the shape of a Transformer with `parameters` parameters, without embeddings.

    Raises InputError for a number that isn't above 0.
    """
    check_number("parameters", parameters, above=0)
    layers = (parameters / (12 * WIDTH_PER_LAYER**2)) ** (1 / 3)
    return TransformerShape(layers, WIDTH_PER_LAYER * layers, sequence)


@dataclass(frozen=True)
class Transformer:
    """A decoder by its shape, trained on sequences of `sequence` tokens.

    With `experts` above 1, each layer's MLP exists that often and a token goes through
    `active_experts` of them; `parameters` counts all. `guessed` names what wasn't stated.
    Raises InputError for numbers that can't be, or that don't fit each other.
    """

    parameters: float
    layers: int
    hidden: int
    sequence: int = 2048
    vocabulary: int = 50_000
    experts: int = 1
    active_experts: int = 1
    guessed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_number("parameters", self.parameters, above=0)
        for name in ("layers", "hidden", "sequence", "vocabulary", "experts"):
            check_count(name, getattr(self, name))
        check_count("active_experts", self.active_experts, 1, self.experts)
        of_shape = self.expert_parameters + self.layers * 4 * self.hidden**2
        of_shape += self.vocabulary * self.hidden
        fits = MIN_FIT <= self.parameters / of_shape <= MAX_FIT
        if not fits or self.expert_parameters >= self.parameters:
            raise InputError(
                f"layers={self.layers} of hidden={self.hidden} make about {of_shape:.2g} "
                f"parameters, got parameters={self.parameters:.2g}. Leave one of them out."
            )

    @property
    def heads(self) -> int:
        return max(1, self.hidden // HEAD_WIDTH)

    @property
    def expert_parameters(self) -> float:
        """Parameters of all MLPs: 8 hidden^2 for each layer and expert."""
        return 8.0 * self.layers * self.hidden**2 * self.experts

    @property
    def active_parameters(self) -> float:
        """Parameters that one token meets."""
        return self.parameters - self.expert_parameters * (1 - self.active_experts / self.experts)

    @property
    def recomputed_flops(self) -> float:
        """FLOPs per token of one more forward pass through the layers, attention left out."""
        mlp = self.expert_parameters * self.active_experts / self.experts
        return 2 * (mlp + 4 * self.layers * self.hidden**2)

    @property
    def flops_per_token(self) -> float:
        """6 N: a multiplication and an addition for each parameter, forward and twice backward."""
        return 6 * self.active_parameters

    @property
    def attention_flops_per_token(self) -> float:
        """12 * layers * hidden * sequence, the causal half not left out (the convention of MFU)."""
        return 12.0 * self.layers * self.hidden * self.sequence


def make_transformer(
    parameters: float,
    layers: int | None = None,
    hidden: int | None = None,
    sequence: int | None = None,
    vocabulary: int | None = None,
    **experts: int,
) -> Transformer:
    """Return the model with `parameters` parameters, which also give a missing shape.

    `guessed` has the derived values. Raises InputError as Transformer does.
    """
    check_number("parameters", parameters, above=0)
    stated = {"layers": layers, "hidden": hidden, "sequence": sequence, "vocabulary": vocabulary}
    sequence = 2048 if sequence is None else sequence
    vocabulary = 50_000 if vocabulary is None else vocabulary
    per_layer = 4 + 8 * experts.get("experts", 1)
    if layers is None and hidden is None:
        layers = max(1, round(find_shape(parameters * 12 / per_layer).layers))
    if hidden is None:  # per_layer * layers * h^2 + vocabulary * h = parameters
        a = per_layer * check_count("layers", layers)
        width = ((vocabulary**2 + 4 * a * parameters) ** 0.5 - vocabulary) / (2 * a)
        step = HEAD_WIDTH * (4 if width > 16 * HEAD_WIDTH else 1)  # so that heads can be split
        whole = round if per_layer == 12 else math.floor  # the experts alone must leave a rest
        hidden = max(1, whole(width / step)) * step
    if layers is None:
        rest = parameters - vocabulary * check_count("hidden", hidden)
        layers = max(1, round(rest / (per_layer * hidden**2)))
    guessed = tuple(name for name, value in stated.items() if value is None)
    return Transformer(parameters, layers, hidden, sequence, vocabulary, guessed=guessed, **experts)


def find_kept_bytes(
    model: Transformer | TransformerShape,
    tokens: float,
    *,
    tensor: int = 1,
    scores: bool = False,
    sequence_parallel: bool = True,
    number_bytes: int = 2,
) -> float:
    """Return the bytes of activations that one layer keeps of `tokens` tokens on a device.

    Korthikanti et al., equations 2 and 4, without dropout: 16 numbers per token and unit of width.
    `tensor` devices split 12 of them, and with sequence parallelism also the 4 at the layer norms.
    FlashAttention (Dao et al. 2022, arXiv:2205.14135) keeps no scores; `scores` adds them: 2
    numbers * heads * sequence, split over `tensor`.
    """
    split = 12 * model.hidden + 2 * model.heads * model.sequence * scores
    norms = 4 * model.hidden / (tensor if sequence_parallel else 1)
    return tokens * number_bytes * (split / tensor + norms)


def count_in_flight(stage: int, stages: int, micro_batches: int) -> int:
    """Return how many micro-batches pipeline stage `stage` keeps at most under 1F1B."""
    return min(micro_batches, stages - stage)
