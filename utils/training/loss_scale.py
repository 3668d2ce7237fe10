"""float16 on several replicas: a loss scale that all of them share, and steps that all skip.

float16 ends at 65,504 and has nothing between 0 and 6e-8. So the loss is multiplied by a scale
before the backward pass, and the gradients are divided by it afterwards. A step whose gradients
aren't finite is skipped and the scale halved, and after enough finite steps in a row it is doubled
(Micikevicius and others 2017, arXiv:1710.03740).

Keras 3.15's `LossScaleOptimizer` looks at the gradients of the first replica alone, before
they are summed: if another replica overflows, every weight is nan from then on. Its sum is
inside a branch: when one of several workers overflows, it skips the sum, and the others wait
in it for good. tf_keras sums first, and so
does the optimizer here: an inf or a nan of any replica is in the sum that every replica gets,
so all decide alike and nothing more is sent.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

MIN_SCALE, MAX_SCALE = 1.0, 2.0**127
Gradients = Sequence[Any]


@keras.saving.register_keras_serializable("dist_utils")
class SharedLossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """Keras's `LossScaleOptimizer`, which decides by the sum of all replicas' gradients.

    Takes the same arguments, with `inner_optimizer` first. Two things differ besides: the scale
    stays from 1 to 2**127, and `global_clipnorm` of the inner optimizer sees the sum, as on one
    device (Keras 3 clips each replica's part). As in Keras 3, `iterations` leaves skipped steps
    out.

        optimizer = SharedLossScaleOptimizer(keras.optimizers.Adam(0.001))
    """

    def __init__(self, inner_optimizer: keras.optimizers.Optimizer, **options: Any) -> None:
        super().__init__(inner_optimizer, **options)
        inner_optimizer._all_reduce_sum_gradients = list  # its input is summed already

    def _tf_apply(self, grads: Gradients, trainable_variables: Gradients | None = None) -> None:
        """Sum, then step or skip; called in the context of each replica."""
        variables = trainable_variables or self._trainable_variables
        summed = [gradient for gradient, _ in self._all_reduce_sum_gradients(zip(grads, variables))]
        if tf.__internal__.distribute.strategy_supports_no_merge_call():
            self._common_apply(summed, variables)
        else:  # a branch that updates variables must stand outside the replicas' context
            context = tf.distribute.get_replica_context()
            context.merge_call(self._step_or_skip, args=(summed, variables))

    def _step_or_skip(self, strategy: Any, grads: Gradients, variables: Gradients) -> None:
        in_each = strategy.extended.call_for_each_replica
        finite = in_each(self.check_finite, args=(grads,))

        def step() -> None:
            in_each(self._apply_unscaled, args=(grads, variables))
            self._grow_scale()

        all_agree = strategy.experimental_local_results(finite)[0]  # of the sum: the same on each
        keras.ops.cond(all_agree, step, self._stateful_handle_non_finite_grads)

    def _apply_unscaled(self, grads: Gradients, variables: Gradients) -> None:
        scale = self.dynamic_scale
        unscaled = [None if g is None else keras.ops.divide(g, scale) for g in grads]
        self.inner_optimizer.apply(unscaled, variables)

    def _grow_scale(self) -> None:
        """Count a step; write the scale only if it grows: another worker may halve it meanwhile."""

        def double() -> None:
            self.dynamic_scale.assign(keras.ops.minimum(self.dynamic_scale * 2.0, MAX_SCALE))
            self.step_counter.assign(0)

        def count() -> None:
            self.step_counter.assign(self.step_counter + 1)

        due = keras.ops.equal(self.step_counter, self.dynamic_growth_steps - 1)
        keras.ops.cond(due, double, count)

    def _stateful_handle_non_finite_grads(self) -> None:
        self.step_counter.assign(0)
        self.dynamic_scale.assign(keras.ops.maximum(self.dynamic_scale * 0.5, MIN_SCALE))


def share_loss_scale(
    optimizer: keras.optimizers.Optimizer, model: keras.Model
) -> keras.optimizers.Optimizer:
    """Return what trains `model` safely: `optimizer` itself, unless float16 needs a loss scale.

    A model computes in float16 where any of its layers does. Keras's own
    `LossScaleOptimizer` is replaced by one with the same settings. Neither may be built.
    """
    if isinstance(optimizer, SharedLossScaleOptimizer):
        return optimizer
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return SharedLossScaleOptimizer.from_config(optimizer.get_config())
    if any(layer.compute_dtype == "float16" for layer in model._flatten_layers()):
        return SharedLossScaleOptimizer(optimizer)
    return optimizer


def read_loss_scale(optimizer: keras.optimizers.Optimizer) -> float | None:
    """Return the scale that the next step will use, None if there is none."""
    scale = getattr(optimizer, "dynamic_scale", None)
    return None if scale is None else float(keras.ops.convert_to_numpy(scale))
