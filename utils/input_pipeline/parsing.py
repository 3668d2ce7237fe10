"""From records to training images, one at a time and a whole batch at once.

An example is (image, label, id). Parsing gives uint8 [28, 28, 1]; augmenting flips
and shifts it at random and gives float32 in [0, 1]. The shift goes round: columns
that leave on one side come in on the other, so that an augmented image has the
pixels of its original, row by row (`fingerprint`). The forms for batches draw
their own random numbers for each image.

`batch_form` ties the two forms together, for `tune` to find.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

MAX_SHIFT = 2  # columns, to either side
Example = tuple[Any, Any, Any]  # image, label, id


def batch_form(of_batch: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say that `of_batch` does to a batch what the decorated function does to one element.

    @batch_form(parse_batch)
    def parse(record): ...

    It sets `parse.batch_form`. A project that does not import this package, say since it
    has a `utils` of its own, writes `parse.batch_form = parse_batch` instead.
    """

    def tie(of_one: Callable[..., Any]) -> Callable[..., Any]:
        of_one.batch_form = of_batch
        return of_one

    return tie


def _features() -> dict[str, Any]:
    import tensorflow as tf

    number = tf.io.FixedLenFeature([], tf.int64)
    return {"image": tf.io.FixedLenFeature([], tf.string), "label": number, "id": number}


def parse_batch(records: Any) -> Example:
    """Return the images uint8 [batch, 28, 28, 1], labels and ids of `records`, string [batch].

    All protocol buffers are parsed by one call; PNGs can only be decoded one by one.
    """
    import tensorflow as tf

    features = tf.io.parse_example(records, _features())
    images = tf.map_fn(_decode, features["image"], fn_output_signature=tf.uint8)
    return tf.ensure_shape(images, [None, 28, 28, 1]), features["label"], features["id"]


@batch_form(parse_batch)
def parse(record: Any) -> Example:
    """Return the image uint8 [28, 28, 1], label and id of one serialized example."""
    import tensorflow as tf

    features = tf.io.parse_single_example(record, _features())
    return _decode(features["image"]), features["label"], features["id"]


def _decode(png: Any) -> Any:
    import tensorflow as tf

    return tf.ensure_shape(tf.io.decode_png(png, channels=1), [28, 28, 1])


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


@batch_form(augment_batch)
def augment(image: Any, label: Any, number: Any) -> Example:
    """Flip and shift one image at random; return it as float32 [28, 28, 1] in [0, 1]."""
    import tensorflow as tf

    image = tf.image.random_flip_left_right(image)
    shift = tf.random.uniform([], -MAX_SHIFT, MAX_SHIFT + 1, tf.int32)
    return tf.cast(tf.roll(image, shift, axis=1), tf.float32) / 255, label, number


def fingerprint(image: np.ndarray) -> bytes:
    """Return what `augment` leaves as it is: each row's pixels, in order of brightness.

    `image` is uint8 in 0 to 255 or float in [0, 1], [28, 28, 1]. Equal for an image
    and each of its augmented versions.
    """
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8:
        pixels = np.round(pixels * 255).astype(np.uint8)
    return np.sort(pixels[..., 0], axis=1).tobytes()
