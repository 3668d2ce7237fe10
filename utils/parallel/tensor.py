"""One dense layer over several devices: split by columns, by rows, or one after the other.

Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053, section 3: with y = x W + b,

- by columns, W = [W0 W1 ...]: each device computes some columns of y. Forward, an
  all-gather puts y together; backward, an all-reduce sums the gradient for x.
- by rows, W = [W0; W1; ...]: each device takes some columns of x and computes a part
  of every sum. Forward, an all-reduce sums y; backward, nothing is summed.

Both passes are written out; no tape takes part.
"""

from collections.abc import Sequence
from typing import Any

from ..errors import InputError
from ..measure import array_bytes
from .group import DeviceGroup, split_sizes

Tensors = list[Any]  # one for each device


class ColumnDense:
    """A dense layer split by columns over `group`: kernel [inputs, outputs], bias [outputs].

    With `gather` every device gets the whole output; without, each keeps its own
    columns, for a layer split by rows to take. Raises InputError for more
    devices than columns.
    """

    def __init__(self, kernel: Any, bias: Any, group: DeviceGroup, gather: bool = True) -> None:
        self.group, self.gather = group, gather
        self.sizes = split_sizes(kernel.shape[1], group.size)
        self.kernels = group.scatter(kernel, self.sizes, axis=1)
        self.biases = group.scatter(bias, self.sizes, axis=0)

    def run_forward(self, inputs: Tensors) -> Tensors:
        """Take the whole input [batch, inputs] on each device; return the output on each.

        The output is [batch, outputs] with `gather`, else [batch, own columns].
        """
        self.inputs = inputs
        outputs = self.group.apply(
            lambda x, w, b: x @ w + b, inputs, self.kernels, self.biases
        )  # [device][batch, own columns]
        if self.gather:
            outputs = self.group.all_gather(outputs, "forward")
        return outputs

    def run_backward(self, upstream: Tensors) -> Tensors:
        """Take the gradient for the outputs, in their shape; return that for the inputs.

        The latter is [batch, inputs], whole on each device. Call `run_forward` first.
        """
        if self.gather:
            upstream = self.group.take_own(upstream, self.sizes)
        self.kernel_gradients = self.group.apply(_multiply_transposed_left, self.inputs, upstream)
        self.bias_gradients = self.group.apply(_sum_examples, upstream)
        parts = self.group.apply(_multiply_transposed_right, upstream, self.kernels)
        return self.group.all_reduce(parts, "backward")  # [device][batch, inputs]

    def gather_gradients(self) -> tuple[Any, Any]:
        """Return the gradients of the unsplit kernel and bias, as arrays."""
        return (
            self.group.join(self.kernel_gradients, axis=1),
            self.group.join(self.bias_gradients, axis=0),
        )

    def count_parameter_bytes(self) -> list[int]:
        """Return the bytes of kernel and bias on each device."""
        return [array_bytes(pair) for pair in zip(self.kernels, self.biases, strict=True)]


class RowDense:
    """A dense layer split by rows over `group`: kernel [inputs, outputs], bias [outputs].

    With `split_input` each device has its own columns of the input already, from a
    layer split by columns. Without it, every device has the whole input and takes its
    columns. The bias is whole on each device, and is added once. Raises
    InputError for more devices than rows.
    """

    def __init__(
        self, kernel: Any, bias: Any, group: DeviceGroup, split_input: bool = False
    ) -> None:
        self.group, self.split_input = group, split_input
        self.sizes = split_sizes(kernel.shape[0], group.size)
        self.kernels = group.scatter(kernel, self.sizes, axis=0)
        self.biases = group.copy(bias)

    def run_forward(self, inputs: Tensors) -> Tensors:
        """Return the whole output [batch, outputs] on each device.

        `inputs` are [batch, own rows] with `split_input`, else [batch, inputs].
        """
        if not self.split_input:
            inputs = self.group.take_own(inputs, self.sizes)
        self.inputs = inputs  # [device][batch, own rows]
        parts = self.group.apply(lambda x, w: x @ w, inputs, self.kernels)
        sums = self.group.all_reduce(parts, "forward")
        return self.group.apply(lambda y, b: y + b, sums, self.biases)

    def run_backward(self, upstream: Tensors) -> Tensors:
        """Take the gradient for the outputs [batch, outputs]; return that for the inputs.

        The latter is in the shape of the inputs. Call `run_forward` first.
        """
        self.kernel_gradients = self.group.apply(_multiply_transposed_left, self.inputs, upstream)
        self.bias_gradients = self.group.apply(_sum_examples, upstream)
        parts = self.group.apply(_multiply_transposed_right, upstream, self.kernels)
        return parts if self.split_input else self.group.all_gather(parts, "backward")

    def gather_gradients(self) -> tuple[Any, Any]:
        """Return the gradients of the unsplit kernel and bias, as arrays.

        The bias's gradient is the same on each device: it is taken from the first.
        """
        return self.group.join(self.kernel_gradients, axis=0), self.bias_gradients[0].numpy()

    def count_parameter_bytes(self) -> list[int]:
        """Return the bytes of kernel and bias on each device."""
        return [array_bytes(pair) for pair in zip(self.kernels, self.biases, strict=True)]


def _multiply_transposed_left(x: Any, dy: Any) -> Any:
    """Return x^T dy: the gradient for a kernel, [inputs, outputs]."""
    import tensorflow as tf

    return tf.matmul(x, dy, transpose_a=True)


def _multiply_transposed_right(dy: Any, w: Any) -> Any:
    """Return dy W^T: the gradient for a layer's inputs, [batch, inputs]."""
    import tensorflow as tf

    return tf.matmul(dy, w, transpose_b=True)


def _sum_examples(dy: Any) -> Any:
    """Return the gradient for a bias, [outputs]."""
    import tensorflow as tf

    return tf.reduce_sum(dy, axis=0)


SPLITS = ("columns", "rows", "both")


def split_dense(kernel: Any, bias: Any, devices: Sequence[str], split: str) -> Any:
    """Return one dense layer, split by `split`, "columns" or "rows", over `devices`.

    `kernel` is [inputs, outputs], `bias` [outputs]. The layer takes and returns full tensors,
    one on each device; `layer.group.calls` counts its collectives. Raises InputError for
    another split and for more devices than columns or rows.

        layer = split_dense(np.ones((4, 6)), np.zeros(6), ["CPU:0", "CPU:1"], "columns")
        outputs = layer.run_forward(layer.group.copy(np.ones((2, 4))))
    """
    if split not in SPLITS[:2]:
        raise InputError(f"split must be 'columns' or 'rows' for one layer, got {split!r}.")
    layer = ColumnDense if split == "columns" else RowDense
    return layer(kernel, bias, DeviceGroup(devices))
