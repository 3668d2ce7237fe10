"""Makes the model of a hand-written loop, and notes how the loop uses it."""

from typing import Any

import numpy as np


class ModelMaker:
    """What a learner's loop gets to make its model with: one dense layer of the weights `kernel`.

    Counts the calls of the model that run op by op, and notes whether it was traced, and whether
    a gradient was taken through it. `dtype` is a Keras dtype policy.
    """

    def __init__(self, kernel: np.ndarray, dtype: str) -> None:
        self.kernel, self.dtype, self.eager_calls, self.traced = kernel, dtype, 0, False
        self.differentiated = False

    def was_compiled(self, steps: int) -> bool:
        """Return whether the model ran in a tf.function, and op by op in hardly any step."""
        return self.traced and self.eager_calls < steps

    def __call__(self) -> Any:
        import keras
        import tensorflow as tf

        maker = self

        @tf.custom_gradient
        def watch(outputs: Any) -> Any:
            def note(slopes: Any) -> Any:
                maker.differentiated = True
                return slopes

            return tf.identity(outputs), note

        class Watched(keras.layers.Dense):
            def call(self, inputs: Any) -> Any:
                maker.eager_calls += not tf.inside_function()
                maker.traced |= tf.inside_function()
                return watch(super().call(inputs))

        features, units = self.kernel.shape
        inputs = keras.Input((features,), dtype="float64" if self.dtype == "float64" else None)
        model = keras.Sequential([inputs, Watched(units, use_bias=False, dtype=self.dtype)])
        model.set_weights([self.kernel])
        self.traced = False  # as it was when Keras built it
        return model
