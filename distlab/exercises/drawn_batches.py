"""Batches that the workers of parameter servers draw one by one, each from a `feeding.Feed`.

Such a worker runs graphs and none of a notebook's Python. The warm process that forks it has
imported this module, so a graph can call `_draw` in it, by its token.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.script_ops import _py_funcs  # tf.numpy_function starts a thread

from distlab.exercises.feeding import ask


def _draw(root: bytes, step: int) -> list[np.ndarray]:
    """In the process that runs the graph: return features and targets of its next batch."""
    share = ask(Path(root.decode()), int(step))
    return [share["features"], share["targets"]]


TOKEN = _py_funcs.insert(_draw)


def make_drawn_batches(root: str, batch: int, features: int) -> tf.data.Dataset:
    """Return an endless data set of float32 features [batch, features] and targets [batch]."""

    def draw(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        drawn = tf.raw_ops.PyFunc(input=[root, step], token=TOKEN, Tout=[tf.float32] * 2)
        return tf.ensure_shape(drawn[0], [batch, features]), tf.ensure_shape(drawn[1], [batch])

    return tf.data.Dataset.counter().map(draw)
