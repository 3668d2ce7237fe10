"""Blocks of lab 13 whose tensors a meter counts as long as something holds them."""

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.exercises.refusing import refuse

WIDTH, HIDDEN, BLOCKS, EXAMPLES = 4, 64, 4, 48


def draw_blocks(seed: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Return two kernels of each block, each block's c [4, 64], inputs and targets [48, 4]."""
    rng = np.random.default_rng(seed)
    shapes = [(WIDTH, HIDDEN), (HIDDEN, WIDTH)] * BLOCKS
    kernels = [rng.normal(0.0, shape[0] ** -0.5, size=shape) for shape in shapes]
    return kernels, rng.normal(size=(BLOCKS, HIDDEN)), *rng.normal(size=(2, EXAMPLES, WIDTH))


class Meter:
    """Counts the bytes of the tensors that blocks have made and that something still holds."""

    def __init__(self) -> None:
        self.held = self.peak = 0

    def watch(self, tensor: Any) -> Any:
        size = int(np.prod(tensor.shape)) * tensor.dtype.size
        self.held += size
        self.peak = max(self.peak, self.held)
        weakref.finalize(tensor, self._release, size)
        return tensor

    def _release(self, size: int) -> None:
        self.held -= size


class Block:
    """x + tanh(x A + c) B, whose tensors a meter watches; `variables` are A and B.

    Nobody else has c [64]: gradients come from calls of the block, or are wrong.
    """

    def __init__(self, kernels: Sequence[np.ndarray], shift: np.ndarray, meter: Meter) -> None:
        import tensorflow as tf

        self.variables = [tf.Variable(kernel) for kernel in kernels]
        self._shift, self._meter, self._examples, self._most = shift, meter, 0, 0

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise refuse(
            "A block can't be copied, since the meter counts this block's calls. Use it unchanged."
        )

    def __call__(self, x: Any) -> Any:
        """Return the block's output for x, [examples, 4] in float64."""
        import tensorflow as tf

        x = tf.convert_to_tensor(x)
        if not hasattr(x, "numpy"):
            raise refuse(
                "You called a block inside a tf.function, where the meter sees no tensors. Write "
                "this function without tf.function."
            )
        self._examples += len(x)
        self._most = max(self._most, len(x))
        first, second = self.variables
        hidden = self._meter.watch(tf.tanh(tf.matmul(x, first) + self._shift))  # [n, 64]
        return self._meter.watch(x + tf.matmul(hidden, second))
