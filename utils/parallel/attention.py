"""Multi-head attention over several devices: each computes some of the heads.

Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053, section 3: heads don't need each other until
the output projection, which sums over them. So the kernels of query, key and value are split by
columns (a head is a group of columns), the output's kernel by rows, and one all-reduce each way is
enough. Vaswani et al. 2017, arXiv:1706.03762, for attention itself.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..measure import array_bytes
from .group import DeviceGroup, split_sizes

if TYPE_CHECKING:
    import keras

Tensors = list[Any]  # one for each device
HEAD_AXES = (1, 0, 1, 0, 1, 0, 0)  # of query, key and value (kernel, bias), and the output kernel


class SplitAttention:
    """The self-attention of a built `keras.layers.MultiHeadAttention`, by heads over `group`.

    Device d holds `sizes[d]` heads; the output's bias is whole on each, and added once.
    Raises InputError for more devices than heads and for a layer without biases.
    """

    def __init__(self, layer: "keras.layers.MultiHeadAttention", group: DeviceGroup) -> None:
        self.group = group
        *split, bias = [variable.value for variable in layer.trainable_variables]
        if len(split) != len(HEAD_AXES):
            raise InputError(f"Layer {layer.name!r} must be a built attention layer with biases.")
        self.sizes = split_sizes(split[-1].shape[0], group.size)
        pieces = [group.scatter(w, self.sizes, axis) for w, axis in zip(split, HEAD_AXES)]
        self.weights = [list(own) for own in zip(*pieces, strict=True)]  # [device][weight]
        self.biases = group.copy(bias)

    def run_forward(self, inputs: Tensors) -> Tensors:
        """Take the whole input on each device, [batch, tokens, width]; return the whole output."""
        self._kept = self.group.apply(_record_heads, inputs, self.weights)
        parts = [part for part, _, _ in self._kept]  # [device][batch, tokens, width]
        sums = self.group.all_reduce(parts, "forward")
        return self.group.apply(lambda y, b: y + b, sums, self.biases)

    def run_backward(self, upstream: Tensors) -> Tensors:
        """Take the gradient for the outputs, whole on each device; return that for the inputs.

        Both are [batch, tokens, width]. Call `run_forward` first.
        """
        import tensorflow as tf

        def differentiate(kept: Any, weights: Tensors, dy: Any) -> Any:
            part, inputs, tape = kept
            return tape.gradient(part, (inputs, weights), output_gradients=dy)

        found = self.group.apply(differentiate, self._kept, self.weights, upstream)
        self.weight_gradients = [own for _, own in found]
        self.bias_gradients = self.group.apply(lambda dy: tf.reduce_sum(dy, axis=(0, 1)), upstream)
        return self.group.all_reduce([dx for dx, _ in found], "backward")

    def gather_gradients(self) -> list[np.ndarray]:
        """Return the gradients of the unsplit layer, in the order of its `trainable_variables`."""
        columns = zip(*self.weight_gradients, strict=True)
        joined = [self.group.join(parts, axis) for parts, axis in zip(columns, HEAD_AXES)]
        return [*joined, self.bias_gradients[0].numpy()]

    def count_parameter_bytes(self) -> list[int]:
        """Return the bytes of the weights on each device."""
        both = zip(self.weights, self.biases, strict=True)
        return [array_bytes([*own, bias]) for own, bias in both]


def _record_heads(inputs: Any, weights: Tensors) -> tuple[Any, Any, Any]:
    """Return these heads' part of the output, the inputs, and the tape that recorded it."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch([inputs, *weights])
        part = attend(inputs, weights)
    return part, inputs, tape


def attend(inputs: Any, weights: Tensors) -> Any:
    """Return what some heads add to the output, [batch, tokens, width], without its bias.

    `weights` are kernel [width, heads, size] and bias [heads, size] of query, key and value,
    and the output's kernel [heads, size, width].
    """
    import tensorflow as tf

    kernels, biases, output = weights[0:6:2], weights[1:6:2], weights[6]
    query, key, value = (
        tf.einsum("btw,whs->bhts", inputs, kernel) + bias[:, tf.newaxis]
        for kernel, bias in zip(kernels, biases, strict=True)
    )  # [batch, heads, tokens, size]
    scale = tf.cast(query.shape[-1], query.dtype) ** -0.5
    scores = tf.nn.softmax(tf.matmul(query * scale, key, transpose_b=True))
    return tf.einsum("bhts,hsw->btw", scores @ value, output)
