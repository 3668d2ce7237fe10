"""Count the bytes that a forward pass keeps for the backward pass."""

from collections.abc import Callable
from typing import Any

from utils.measure import array_bytes


def count_kept_bytes(forward: Callable[[Any], Any], inputs: Any) -> int:
    """Return the bytes of all tensors that TensorFlow's gradient of `forward(inputs)` needs.

    `forward` is traced, not run. A differentiated compiled function is cut in two;
    the first half hands every tensor that the second will read out as a further output
    (https://www.tensorflow.org/guide/function). Variables aren't counted.
    """
    import tensorflow as tf

    traced = tf.function(lambda x: forward(x), autograph=False).get_concrete_function(inputs)
    results = len(traced.outputs)
    first_half, _ = traced._delayed_rewrite_functions.forward_backward()
    kept = first_half.graph.outputs[results:]
    known = [t for t in kept if t.dtype.is_floating and t.shape.is_fully_defined()]
    return array_bytes(known)
