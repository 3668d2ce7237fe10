"""TensorFlow's DTensor: one program, and layouts that say how each tensor lies on a mesh.

Keras 3 knows nothing of DTensor, so the network here is a plain one of two layers.
The layouts alone decide between data and model parallelism, as in Mesh-TensorFlow
(Shazeer et al. 2018). https://www.tensorflow.org/guide/dtensor_overview
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distlab.errors import CourseError
from utils.measure import array_bytes
from utils.parallel.parts import StepResult, as_inputs, as_labels

if TYPE_CHECKING:
    import keras

BATCH, MODEL = "batch", "model"
NAMES = ("images", "kernel 1", "bias 1", "kernel 2", "bias 2")


@dataclass(frozen=True, eq=False)
class DTensorStep(StepResult):
    """A step on a mesh: its result, and the bytes of weights and images on each device."""

    parameter_bytes: list[int]
    image_bytes: list[int]


def run_dtensor(
    model: "keras.Model",
    mesh: Mapping[str, int],
    devices: Sequence[str],
    images: np.ndarray,
    labels: np.ndarray,
) -> DTensorStep:
    """Run one step with the weights of `model` (Flatten, Dense with ReLU, Dense) on a mesh.

    `mesh` maps the dimensions "batch" and "model" to numbers of devices, for
    instance {"batch": 2, "model": 2}. Examples are split over "batch", the hidden
    units over "model"; what a mesh hasn't isn't split. Raises CourseError for
    other dimensions, a mesh that `devices` don't fill, and sizes that don't divide.
    """
    import tensorflow as tf
    from tensorflow.experimental import dtensor

    weights = [v.numpy() for v in model.trainable_variables]
    flat = as_inputs(model, images).reshape(len(images), -1)
    grid = _make_grid(mesh, devices, len(flat), weights)
    arrays = zip([as_labels(labels), flat, *weights], _plan(mesh), strict=True)
    answers, *placed = (_place(array, dtensor.Layout(dims, grid)) for array, dims in arrays)
    loss, gradients = tf.function(_find_gradients)(answers, *placed)
    pieces = {name: dtensor.unpack(t) for name, t in zip(NAMES, placed, strict=True)}
    held = [array_bytes(own) for own in zip(*list(pieces.values())[1:], strict=True)]
    kept = [array_bytes([piece]) for piece in pieces[NAMES[0]]]
    wholes = [_gather(gradient) for gradient in gradients]
    return DTensorStep(float(dtensor.unpack(loss)[0]), wholes, held, kept)


def _find_gradients(labels: Any, images: Any, *weights: Any) -> tuple[Any, list[Any]]:
    """The network as for one device: DTensor puts the collectives in."""
    import tensorflow as tf

    kernel_1, bias_1, kernel_2, bias_2 = weights
    with tf.GradientTape() as tape:
        tape.watch(weights)
        hidden = tf.nn.relu(images @ kernel_1 + bias_1)
        logits = hidden @ kernel_2 + bias_2
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_mean(losses)
    return loss, tape.gradient(loss, list(weights))


def _plan(mesh: Mapping[str, int]) -> list[list[str]]:
    """Return the layout of the labels and of each of NAMES: which dimension splits which axis."""
    whole = "unsharded"
    batch, model = (name if name in mesh else whole for name in (BATCH, MODEL))
    return [[batch], [batch, whole], [whole, model], [model], [model, whole], [whole]]


def _place(array: np.ndarray, layout: Any) -> Any:
    """Return `array` as a DTensor: one piece for each device of the layout's mesh."""
    import tensorflow as tf
    from tensorflow.experimental import dtensor

    whole = dtensor.copy_to_mesh(
        tf.constant(array), dtensor.Layout.replicated(layout.mesh, rank=array.ndim)
    )
    return dtensor.relayout(whole, layout)


def _gather(tensor: Any) -> np.ndarray:
    """Return a DTensor as one array."""
    from tensorflow.experimental import dtensor

    layout = dtensor.fetch_layout(tensor)
    whole = dtensor.Layout.replicated(layout.mesh, rank=len(tensor.shape))
    return dtensor.unpack(dtensor.relayout(tensor, whole))[0].numpy()


def _make_grid(
    mesh: Mapping[str, int], devices: Sequence[str], examples: int, weights: list[np.ndarray]
) -> Any:
    """Return DTensor's mesh; raise CourseError for what can't be split over it."""
    from tensorflow.experimental import dtensor

    if not mesh or set(mesh) - {BATCH, MODEL}:
        raise CourseError(
            f"The mesh must have the dimensions {BATCH!r} and {MODEL!r}, got {dict(mesh)}."
        )
    if [w.ndim for w in weights] != [2, 1, 2, 1]:
        raise CourseError("The model must have two dense layers with biases, and no other weights.")
    needed = int(np.prod(list(mesh.values())))
    if min(mesh.values()) < 1 or needed != len(devices):
        raise CourseError(f"The mesh {dict(mesh)} must have {len(devices)} devices, got {needed}.")
    hidden = weights[0].shape[1]
    for name, total, what in ((BATCH, examples, "examples"), (MODEL, hidden, "hidden units")):
        if total % mesh.get(name, 1):
            raise CourseError(
                f"{total} {what} must be divisible by {mesh[name]} devices: DTensor splits evenly."
            )
    return dtensor.create_mesh(list(mesh.items()), devices=list(devices))
