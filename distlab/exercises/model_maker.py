"""Makes the model of a hand-written loop, whose weights show how the loop uses it."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

CUT_SIGNAL = signal.SIGUSR1  # asks the main thread to cut a run off


class ModelCutOff(BaseException):
    """Ends a run in its middle, as a kill does: no `except Exception` keeps it alive."""


@contextlib.contextmanager
def cutting_off() -> Iterator[None]:
    """Let a model cut off the run in this block: ModelCutOff is raised in it, between two steps.

    An error inside the step's graph would do it too, but TensorFlow may then wait for ever for
    the other replica.
    """

    def cut(number: int, frame: object) -> None:
        raise ModelCutOff

    before = signal.signal(CUT_SIGNAL, cut)
    try:
        yield
    finally:
        signal.signal(CUT_SIGNAL, before)


class ModelMaker:
    """Makes the model of a learner's loop: one dense layer of the weights `kernel`.

    `dtype` is a Keras dtype policy. Features are `louder` times as much larger on replica 1, and so
    on, so that weights show who trained on what. After `cut_after` gradients the next one cuts the
    run off (`cutting_off`).
    """

    def __init__(
        self, kernel: np.ndarray, dtype: str, louder: float = 0.0, cut_after: int | None = None
    ) -> None:
        self.kernel, self.dtype, self.louder, self.left = kernel, dtype, louder, cut_after

    def _pass_on(self, slopes: Any) -> Any:
        """Return a gradient as it came, or cut the run off."""
        import tensorflow as tf

        if self.left is None:
            return slopes
        with tf.control_dependencies([tf.numpy_function(self._count_down, [], tf.int64)]):
            return tf.identity(slopes)

    def _count_down(self) -> np.int64:
        self.left -= 1
        if self.left == -1:
            signal.pthread_kill(threading.main_thread().ident, CUT_SIGNAL)
        return np.int64(self.left)

    def __call__(self) -> Any:
        import keras
        import tensorflow as tf

        maker = self

        @tf.custom_gradient
        def watch(outputs: Any) -> Any:
            return tf.identity(outputs), maker._pass_on

        class Watched(keras.layers.Dense):
            def call(self, inputs: Any) -> Any:
                context = tf.distribute.get_replica_context()
                replica = context.replica_id_in_sync_group if context else 0
                louder = 1 + maker.louder * tf.cast(replica, inputs.dtype)
                return watch(super().call(inputs * louder if maker.louder else inputs))

        features, units = self.kernel.shape
        inputs = keras.Input((features,), dtype="float64" if self.dtype == "float64" else None)
        model = keras.Sequential([inputs, Watched(units, use_bias=False, dtype=self.dtype)])
        model.set_weights([self.kernel])
        return model
