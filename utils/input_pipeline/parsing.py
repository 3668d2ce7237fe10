"""From records to training images, a whole batch at once.

`examples` has the form for one example. The forms for batches draw their own random numbers
for each image. `batch_form` ties the two forms together, for `tune` to find.
"""

from collections.abc import Callable
from typing import Any

from . import examples
from .examples import MAX_SHIFT, Example, decode_image, list_features


def batch_form(of_batch: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say that `of_batch` does to a batch what the decorated function does to one element.

    @batch_form(parse_batch)
    def parse(record): ...

    It sets `parse.batch_form`. A project that doesn't import this package, say since it has its own
    `utils`, writes `parse.batch_form = parse_batch` instead.
    """

    def tie(of_one: Callable[..., Any]) -> Callable[..., Any]:
        of_one.batch_form = of_batch
        return of_one

    return tie


def parse_batch(records: Any) -> Example:
    """Return the images uint8 [batch, 28, 28, 1], labels and ids of `records`, string [batch].

    All protocol buffers are parsed by one call; PNGs can only be decoded one by one.
    """
    import tensorflow as tf

    features = tf.io.parse_example(records, list_features())
    images = tf.map_fn(decode_image, features["image"], fn_output_signature=tf.uint8)
    return tf.ensure_shape(images, [None, 28, 28, 1]), features["label"], features["id"]


def augment_batch(images: Any, labels: Any, ids: Any) -> Example:
    """Flip and shift each of `images` on its own; return float32 [batch, 28, 28, 1] in [0, 1].

    Each image's columns are put in their new order by one matrix product, with a
    permutation matrix [28, 28] for each image.
    """
    import tensorflow as tf

    count, width = tf.shape(images)[0], images.shape[2]
    flip = tf.random.uniform([count, 1]) < 0.5
    shift = tf.random.uniform([count, 1], -MAX_SHIFT, MAX_SHIFT + 1, tf.int32)
    columns = (tf.range(width) - shift) % width  # [batch, 28]: where each column comes from
    columns = tf.where(flip, width - 1 - columns, columns)
    moves = tf.one_hot(columns, width, axis=1) / 255  # [batch, from, to]
    moved = tf.matmul(tf.cast(images[..., 0], tf.float32), moves)
    return moved[..., tf.newaxis], labels, ids


parse = batch_form(parse_batch)(examples.parse)
augment = batch_form(augment_batch)(examples.augment)
