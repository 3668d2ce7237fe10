"""Layers on different devices, one after the other: the simplest way to hold a large model.

Only one device works at a time; `parallel.pipeline` fixes that. Dean et al. 2012, "Large
Scale Distributed Deep Networks", section 3, trained so; placing by hand is TensorFlow's
`tf.device` (https://www.tensorflow.org/guide/gpu#manual_device_placement).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..measure import array_bytes
from .parts import Forward, Part, StepResult, as_inputs, as_labels, find_loss, read_chain
from .traffic import Traffic, short_device

if TYPE_CHECKING:
    import keras


@dataclass(frozen=True)
class PlacedLayer:
    """The device that a layer ran on, and the bytes that it holds there.

    `device` is read from its output and `gradient_device` from its gradients, not
    from the plan.
    """

    name: str
    device: str
    gradient_device: str
    parameter_bytes: int
    activation_bytes: int


@dataclass(frozen=True, eq=False)
class PlacedStep(StepResult):
    """A step of layers on devices: its result, where each layer ran, what crossed."""

    layers: list[PlacedLayer]
    traffic: Traffic

    def count_bytes(self) -> dict[str, int]:
        """Return the bytes of parameters and activations that each device held."""
        held: dict[str, int] = {}
        for layer in self.layers:
            both = layer.parameter_bytes + layer.activation_bytes
            held[layer.device] = held.get(layer.device, 0) + both
        return held


def run_placed(
    model: "keras.Model", devices: Sequence[str], images: np.ndarray, labels: np.ndarray
) -> PlacedStep:
    """Run one step with layer i of a `keras.Sequential` on `devices[i]`, forward and backward.

    `images` is [batch, ...], `labels` [batch]; the loss is their mean cross-entropy, and
    gradients are in the order of `model.trainable_variables`. Activations are sent on where
    the device changes, and gradients back. Raises InputError unless there is one device for
    each layer, and for what `read_chain` refuses.
    """
    import tensorflow as tf

    layers = read_chain(model)
    if len(devices) != len(layers):
        raise InputError(
            f"devices must have one entry per layer, got {len(devices)} for {len(layers)} layers."
        )
    parts = [Part([layer], device) for layer, device in zip(layers, devices, strict=True)]
    traffic = Traffic()
    with tf.device(parts[0].device):
        inputs = tf.constant(as_inputs(model, images))  # [batch, ...]
    kept = _run_forward(parts, inputs, traffic)
    outputs = kept[-1].outputs
    loss, upstream = find_loss(as_labels(labels), outputs, len(labels), parts[-1].device)
    gradients, placed = _run_backward(parts, kept, upstream, traffic)
    return PlacedStep(float(loss), gradients, placed, traffic)


def _run_forward(parts: list[Part], outputs: Any, traffic: Traffic) -> list[Forward]:
    kept = []
    for part in parts:
        inputs = traffic.send(outputs, part.device, "activations")
        kept.append(part.run_forward(part.read_weights(), inputs))
        outputs = kept[-1].outputs
    return kept


def _run_backward(
    parts: list[Part], kept: list[Forward], upstream: Any, traffic: Traffic
) -> tuple[list[np.ndarray], list[PlacedLayer]]:
    gradients, placed = [], []
    for part, forward in zip(reversed(parts), reversed(kept), strict=True):
        upstream = traffic.send(upstream, part.device, "gradients")
        upstream, own = part.find_both(forward, upstream)
        gradients = [gradient.numpy() for gradient in own] + gradients
        where = short_device(forward.outputs.device), short_device(upstream.device)
        sizes = part.parameter_bytes, array_bytes([forward.outputs])
        placed.insert(0, PlacedLayer(part.layers[0].name, *where, *sizes))
    return gradients, placed
