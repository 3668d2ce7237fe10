"""The imports of a fork server before it forks, so that no child has to import them."""

import contextlib
import importlib
from collections.abc import Sequence

from ..environment import quiet_tensorflow

# this library's modules that tasks and submissions import: preloaded by default
TRAINING_MODULES = (".devices", ".data.batches", ".training.loops", ".training.own_data")
PACKAGE = __package__.rpartition(".")[0]  # this library, under whatever name it was copied


def import_tensorflow() -> None:
    """Import TensorFlow, Keras and cloudpickle, also what they import late."""
    with quiet_tensorflow():
        import cloudpickle  # noqa: F401
        import keras
        import tensorflow as tf

        # attributes that load their module on first use
        _ = keras.optimizers.Adam, keras.losses.SparseCategoricalCrossentropy, tf.data.Dataset
        _ = tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.ParameterServerStrategy
        _ = tf.distribute.coordinator.ClusterCoordinator, tf.train.CheckpointManager


def import_modules(names: Sequence[str] = TRAINING_MODULES) -> None:
    """Import modules by name; one that begins with a dot is of this library.

    What isn't there is left to the child that wants it.
    """
    for name in names:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name, PACKAGE)
