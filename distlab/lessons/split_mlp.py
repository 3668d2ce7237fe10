"""A whole network with both dense layers split over devices: Megatron's block, and its parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distlab.errors import CourseError
from utils.measure import array_bytes
from utils.parallel.group import Collective, DeviceGroup
from utils.parallel.parts import StepResult, as_inputs, as_labels, find_loss, read_chain
from utils.parallel.tensor import SPLITS, ColumnDense, RowDense

if TYPE_CHECKING:
    import keras


@dataclass(frozen=True, eq=False)
class SplitStep(StepResult):
    """A step of a split network: its result, its collectives, what each device held.

    `parameter_bytes` and `activation_bytes` [device]: the weights of the two layers,
    and the inputs, hidden values and logits of this batch.
    """

    calls: list[Collective]
    parameter_bytes: list[int]
    activation_bytes: list[int]


def run_split_mlp(
    model: "keras.Model",
    devices: Sequence[str],
    images: np.ndarray,
    labels: np.ndarray,
    split: str = "both",
) -> SplitStep:
    """Run one step of an MLP (Flatten, Dense with ReLU, Dense) split over `devices`.

    `split`: "columns" and "rows" split both layers in that way; "both" splits the
    first by columns and the second by rows, so that the hidden values are never
    put together, and one all-reduce each way is all (Megatron-LM, section 3).
    Raises CourseError for another split or model, and for more devices than the
    layer can be cut for.
    """
    import tensorflow as tf

    group = DeviceGroup(devices)
    first, second = _make_layers(model, group, split)
    xs = group.copy(as_inputs(model, images).reshape(len(images), -1))  # [device][batch, pixels]
    sums = first.run_forward(xs)
    hidden = group.apply(tf.nn.relu, sums)
    logits = second.run_forward(hidden)
    loss, upstream = _find_losses(group, as_labels(labels), logits)
    first.run_backward(group.apply(_relu_gradient, second.run_backward(upstream), sums))
    gradients = [*first.gather_gradients(), *second.gather_gradients()]
    held = np.add(first.count_parameter_bytes(), second.count_parameter_bytes()).tolist()
    kept = [array_bytes(own) for own in zip(xs, hidden, logits, strict=True)]
    return SplitStep(loss, gradients, group.calls, held, kept)


def _relu_gradient(upstream: Any, sums: Any) -> Any:
    """Return the gradient for what went into the ReLU, [batch, hidden]."""
    import tensorflow as tf

    return upstream * tf.cast(sums > 0, upstream.dtype)


def _find_losses(group: DeviceGroup, labels: np.ndarray, logits: list) -> tuple[float, list]:
    """Return the loss, the same on every device, and its gradient [batch, classes] on each."""
    pairs = zip(logits, group.devices, strict=True)
    found = [find_loss(labels, own, len(labels), device) for own, device in pairs]
    return float(found[0][0]), [gradient for _, gradient in found]


def _make_layers(
    model: "keras.Model", group: DeviceGroup, split: str
) -> tuple[ColumnDense | RowDense, ColumnDense | RowDense]:
    if split not in SPLITS:
        raise CourseError(f"split must be one of {', '.join(SPLITS)}, got {split!r}.")
    kinds = [type(layer).__name__ for layer in read_chain(model)]
    if kinds != ["Flatten", "Dense", "Dense"] or model.layers[1].activation.__name__ != "relu":
        raise CourseError(
            f"The layers must be Flatten, Dense with ReLU and Dense, got {', '.join(kinds)}."
        )
    one, two = ([v.value for v in layer.trainable_variables] for layer in model.layers[1:])
    if split == "columns":
        return ColumnDense(*one, group), ColumnDense(*two, group)
    if split == "rows":
        return RowDense(*one, group), RowDense(*two, group)
    return ColumnDense(*one, group, gather=False), RowDense(*two, group, split_input=True)
