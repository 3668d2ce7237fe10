"""Parts of a Keras model: runs of neighboring layers, each with its weights on one device.

Layers are called through Keras's stateless API, with weights that are passed in
(https://keras.io/api/layers/base_layer/, `stateless_call`), so that a part can compute with its own
weights while the model stays unchanged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..measure import array_bytes, time_calls

if TYPE_CHECKING:
    import keras

Tensors = list[Any]


@dataclass(eq=False)
class Forward:
    """The tensors that a part keeps of one forward pass until its backward pass.

    `tape` recorded how `outputs` [batch, ...] came from `inputs` [batch, ...] and
    `values`, the weights. `activation_bytes` counts the inputs and every layer's output.
    """

    inputs: Any
    values: Tensors
    outputs: Any
    tape: Any
    activation_bytes: int


class Part:
    """A run of `layers` whose weights are copied to `device`, where all their work is done.

    `weights` are tf.Variables in the order of the layers' trainable variables, `device` is
    a name such as "CPU:1". API: https://www.tensorflow.org/api_docs/python/tf/device.
    """

    def __init__(self, layers: Sequence["keras.Layer"], device: str) -> None:
        import tensorflow as tf

        self.layers, self.device = list(layers), device
        self._counts = [len(layer.trainable_variables) for layer in self.layers]
        with tf.device(device):
            self.weights = [
                tf.Variable(variable.value, name=variable.path.replace("/", "_"))
                for layer in self.layers
                for variable in layer.trainable_variables
            ]

    @property
    def parameter_bytes(self) -> int:
        """The bytes of the weights."""
        return array_bytes(self.weights)

    def read_weights(self) -> Tensors:
        """Return the weights' present values, one tensor for each of `weights`."""
        import tensorflow as tf

        with tf.device(self.device):
            return [weight.read_value() for weight in self.weights]

    def compute(self, values: Tensors, inputs: Any) -> tuple[Any, int]:
        """Return outputs [batch, ...] for `inputs` with the weights `values`, and activation bytes.

        The bytes are of the inputs and of every layer's output.
        """
        import tensorflow as tf

        outputs, total, first = inputs, array_bytes([inputs]), 0
        with tf.device(self.device):
            for layer, count in zip(self.layers, self._counts, strict=True):
                own = values[first : first + count]
                outputs, _ = layer.stateless_call(own, [], outputs)
                total += array_bytes([outputs])
                first += count
        return outputs, total

    def run_forward(self, values: Tensors, inputs: Any) -> Forward:
        """Compute outputs for `inputs` [batch, ...]; keep what the backward pass needs."""
        import tensorflow as tf

        with tf.device(self.device), tf.GradientTape(persistent=True) as tape:
            tape.watch([inputs, *values])
            outputs, total = self.compute(values, inputs)
        return Forward(inputs, values, outputs, tape, total)

    def find_input_gradient(self, forward: Forward, upstream: Any) -> Any:
        """Return the gradient for the inputs, given that for the outputs (`upstream`).

        Both have the shapes of their tensors, like the gradients of the two methods below.
        """
        return self._differentiate(forward, forward.inputs, upstream)

    def find_weight_gradients(self, forward: Forward, upstream: Any) -> Tensors:
        """Return the gradients for the weights, given that for the outputs."""
        return self._differentiate(forward, forward.values, upstream)

    def find_both(self, forward: Forward, upstream: Any) -> tuple[Any, Tensors]:
        """Return the gradient for the inputs and those for the weights, in one backward pass."""
        return self._differentiate(forward, (forward.inputs, forward.values), upstream)

    def _differentiate(self, forward: Forward, sources: Any, upstream: Any) -> Any:
        """Run the backward pass on this part's device: without a scope it runs on the first one."""
        import tensorflow as tf

        with tf.device(self.device):
            return forward.tape.gradient(
                forward.outputs, sources, upstream, unconnected_gradients="zero"
            )


def read_chain(model: "keras.Model") -> list["keras.Layer"]:
    """Return the layers of a model that is a chain, each one's output the next one's input.

    Raises InputError for a model that isn't a `keras.Sequential`, for one that is
    not built, and for layers that keep state between calls: batch statistics and
    dropout's random numbers would differ from one micro-batch to the next.
    """
    import keras

    if not isinstance(model, keras.Sequential):
        kind = type(model).__name__
        raise InputError(
            f"model must be a keras.Sequential, a chain of layers that can be cut, got {kind}."
        )
    if not model.built:
        raise InputError("The model must be built. Begin it with keras.Input(shape).")
    for layer in model.layers:
        if layer.non_trainable_variables:
            raise InputError(
                f"Layer {layer.name!r} ({type(layer).__name__}) keeps state that each "
                "micro-batch would change. Leave it out."
            )
    return list(model.layers)


def find_loss(labels: Any, logits: Any, divide_by: int, device: str) -> tuple[Any, Any]:
    """Return the loss of these examples, a scalar, and its gradient [batch, classes].

    `labels` is [batch], `logits` [batch, classes]. The loss is the sum of the examples'
    cross-entropies over `divide_by`, the number of examples in the whole batch: losses
    and gradients of micro-batches and of replicas then simply add up (Huang et al. 2019,
    GPipe, arXiv:1811.06965, section 2.2).
    """
    import tensorflow as tf

    with tf.device(device):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)  # [batch]
            loss = tf.reduce_sum(losses) / tf.cast(divide_by, logits.dtype)
        return loss, tape.gradient(loss, logits)


def run_unsplit(model: "keras.Model", images: np.ndarray, labels: np.ndarray) -> "StepResult":
    """Return loss and gradients of the whole model on one device: what every split must equal.

    `images` is [batch, ...] as the model takes them, `labels` [batch]; the loss is their
    mean cross-entropy. `model` returns logits [batch, classes].
    """
    import tensorflow as tf

    images = as_inputs(model, images)
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(as_labels(labels), logits)
        loss = tf.reduce_mean(losses)
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    return StepResult(float(loss), [tf.convert_to_tensor(g).numpy() for g in gradients])


@dataclass(frozen=True, eq=False)
class StepResult:
    """The loss of one batch and its gradients, in the order of `model.trainable_variables`."""

    loss: float
    gradients: list[np.ndarray]

    def find_difference(self, other: "StepResult") -> float:
        """Return the largest absolute difference between the losses and any two gradients.

        Raises ValueError for steps of models with another number of variables.
        """
        pairs = zip(self.gradients, other.gradients, strict=True)
        gaps = [float(np.max(np.abs(a - b), initial=0.0)) for a, b in pairs]
        return max([abs(self.loss - other.loss), *gaps])


def as_inputs(model: "keras.Model", images: np.ndarray) -> np.ndarray:
    """Return images [batch, ...] as the model's first layer gets them.

    `keras.Input` rounds them to its own dtype, float32 unless told otherwise, even
    where the layers compute in float64.
    """
    return np.asarray(images, model.inputs[0].dtype).astype(model.layers[0].compute_dtype)


def as_labels(labels: np.ndarray) -> np.ndarray:
    """Return labels [batch] as TensorFlow's cross-entropy takes them."""
    return np.asarray(labels, np.int32)


@dataclass(frozen=True)
class LayerCost:
    """The measured cost of one layer for one micro-batch: seconds and bytes."""

    name: str
    forward_seconds: float
    backward_seconds: float
    parameter_bytes: int
    activation_bytes: int

    @property
    def seconds(self) -> float:
        """Forward and backward together."""
        return self.forward_seconds + self.backward_seconds


def measure_layers(model: "keras.Model", images: np.ndarray, repeats: int = 5) -> list[LayerCost]:
    """Time each layer's forward and backward pass on the CPU, on `images` [micro_batch, ...].

    The times, in seconds, are the best of `repeats`, after one call that isn't counted.
    Raises InputError for what `read_chain` refuses.
    """
    import tensorflow as tf

    inputs = tf.constant(as_inputs(model, images))
    costs = []
    for layer in read_chain(model):
        part = Part([layer], "CPU:0")
        values = part.read_weights()
        forward = part.run_forward(values, inputs)
        upstream = tf.ones_like(forward.outputs)
        own = array_bytes([forward.outputs])
        ahead = _time_best(lambda p=part, v=values, x=inputs: p.compute(v, x)[0], repeats)
        back = _time_best(lambda p=part, f=forward, u=upstream: p.find_both(f, u)[0], repeats)
        costs.append(LayerCost(layer.name, ahead, back, part.parameter_bytes, own))
        inputs = forward.outputs
    return costs


def _time_best(call: Callable[[], Any], repeats: int) -> float:
    return time_calls(lambda: call().numpy(), repeats).best_seconds
