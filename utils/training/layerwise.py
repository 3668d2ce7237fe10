"""LARS and LAMB: each layer's step in proportion to the size of its own weights.

A layer whose gradient is large next to its weights breaks first when the rate grows. Both
optimizers divide that difference away: the length of a layer's step is the rate times the
length of its weights, whatever the length of its gradient.

Vectors (biases, the scale and shift of a normalization) begin at or near zero, and such a
step would leave them there. They take the plain step, without decay, as the authors'
implementations do; `adapt_vectors=True` treats them as matrices are treated.
"""

from typing import Any

import keras
from keras import ops

from ..checks import check_number
from ..errors import InputError


class LayerwiseDecay:
    """The base of LARS and LAMB: a decay inside the layer's ratio, and which variables have one."""

    def __init__(self, *, decay: float, adapt_vectors: bool, **options: Any) -> None:
        check_number("decay", decay, least=0)
        if options.get("weight_decay") is not None:
            raise InputError(
                f"weight_decay={options['weight_decay']} isn't supported: Keras applies it "
                "outside the layer's ratio. Use decay, as in the paper."
            )
        super().__init__(**options)
        self.decay, self.adapt_vectors = decay, adapt_vectors

    def adapts(self, variable: Any) -> bool:
        """Return whether `variable` gets its own rate: a kernel does, a bias on request."""
        return self.adapt_vectors or len(variable.shape) > 1

    def get_config(self) -> dict[str, Any]:
        config = super().get_config() | {"decay": self.decay, "adapt_vectors": self.adapt_vectors}
        config.pop("weight_decay", None)
        return config


@keras.saving.register_keras_serializable("dist_utils")
class Lars(LayerwiseDecay, keras.optimizers.Optimizer):
    """Layer-wise adaptive rate scaling: momentum SGD with a rate for each layer.

        local = trust * |w| / (|g| + decay * |w|)
        v <- momentum * v + rate * local * (g + decay * w)
        w <- w - v

    You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks", 2017,
    arXiv:1708.03888, algorithm 1. Where |w| or |g| is 0, `local` is 1. Raises InputError
    for a trust, decay or momentum that can't be, and for Keras's `weight_decay`.
    """

    def __init__(
        self,
        learning_rate: Any = 0.1,
        momentum: float = 0.9,
        trust: float = 0.001,
        decay: float = 0.0,
        adapt_vectors: bool = False,
        name: str = "lars",
        **options: Any,
    ) -> None:
        check_number("trust", trust, above=0)
        check_number("momentum", momentum, least=0)
        own = {"decay": decay, "adapt_vectors": adapt_vectors}
        super().__init__(learning_rate=learning_rate, name=name, **own, **options)
        self.momentum, self.trust = momentum, trust

    def build(self, variables: list[Any]) -> None:
        if self.built:
            return
        super().build(variables)
        (self._momentums,) = self.add_optimizer_variables(variables, ["momentum"])

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        if self.adapts(variable):
            weight_norm, gradient_norm = norm(variable), norm(gradient)
            size = gradient_norm + self.decay * weight_norm
            rate *= ratio_or_one(self.trust * weight_norm, size, gradient_norm)
            gradient += self.decay * variable
        velocity = self._momentums[self._get_variable_index(variable)]
        self.assign(velocity, self.momentum * velocity + rate * gradient)
        self.assign_sub(variable, velocity)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"momentum": self.momentum, "trust": self.trust}


@keras.saving.register_keras_serializable("dist_utils")
class Lamb(LayerwiseDecay, keras.optimizers.Lamb):
    """Adam with a rate for each layer, and a decay that the layer's ratio counts.

        m <- beta_1 * m + (1 - beta_1) * g;        m' = m / (1 - beta_1 ** t)
        v <- beta_2 * v + (1 - beta_2) * g ** 2;   v' = v / (1 - beta_2 ** t)
        u = m' / (sqrt(v') + epsilon) + decay * w
        w <- w - rate * |w| / |u| * u

    You and others, "Large Batch Optimization for Deep Learning: Training BERT in 76
    minutes", 2019, arXiv:1904.00962, algorithm 2, the scaling function being the
    identity. `keras.optimizers.Lamb` is the same for `decay=0, adapt_vectors=True`; its
    `weight_decay` is another one, taken off before the step and outside the ratio.
    Where |w| or |u| is 0, their ratio is 1. Raises InputError as `Lars` does.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        decay: float = 0.0,
        adapt_vectors: bool = False,
        name: str = "lamb",
        **options: Any,
    ) -> None:
        own = {"decay": decay, "adapt_vectors": adapt_vectors}
        super().__init__(learning_rate=learning_rate, name=name, **own, **options)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        rate = ops.cast(learning_rate, variable.dtype)
        update = self.find_adam_step(ops.cast(gradient, variable.dtype), variable)
        if self.adapts(variable):
            update += self.decay * variable
            weight_norm, update_norm = norm(variable), norm(update)
            rate *= ratio_or_one(weight_norm, update_norm, update_norm)
        self.assign_sub(variable, rate * update)

    def find_adam_step(self, gradient: Any, variable: Any) -> Any:
        """Move both means on by `gradient`; return Adam's step at rate 1, [variable's shape]."""
        index = self._get_variable_index(variable)
        mean, square = self._momentums[index], self._velocities[index]
        self.assign(mean, self.beta_1 * mean + (1 - self.beta_1) * gradient)
        self.assign(square, self.beta_2 * square + (1 - self.beta_2) * ops.square(gradient))
        step = ops.cast(self.iterations + 1, variable.dtype)
        corrected = mean / (1 - ops.power(self.beta_1, step))
        scale = square / (1 - ops.power(self.beta_2, step))
        return corrected / (ops.sqrt(scale) + self.epsilon)


def norm(values: Any) -> Any:
    """Return the Euclidean length of all elements of `values`."""
    return ops.sqrt(ops.sum(ops.square(values)))


def ratio_or_one(top: Any, bottom: Any, length: Any) -> Any:
    """Return top / bottom, and 1 where `top` or `length` is 0."""
    usable = ops.logical_and(top > 0, length > 0)
    one = ops.ones_like(bottom)
    return ops.where(usable, top / ops.where(usable, bottom, one), one)
