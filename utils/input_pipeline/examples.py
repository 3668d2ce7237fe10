"""From a record to a training image, one example at a time.

An example is (image, label, id). Parsing gives uint8 [28, 28, 1]. Augmenting flips
and shifts it at random and gives float32 in [0, 1]. The shift goes round: columns
that leave on one side come in on the other, so that an augmented image has the
pixels of its original, row by row (`sort_rows`). `parsing` ties both to their forms for
batches.
"""

from typing import Any

import numpy as np

MAX_SHIFT = 2  # columns, to either side
Example = tuple[Any, Any, Any]  # image, label, id


def list_features() -> dict[str, Any]:
    """Return what each record holds, as `tf.io.parse_example` wants it."""
    import tensorflow as tf

    number = tf.io.FixedLenFeature([], tf.int64)
    return {"image": tf.io.FixedLenFeature([], tf.string), "label": number, "id": number}


def parse(record: Any) -> Example:
    """Return the image uint8 [28, 28, 1], label and id of one serialized example."""
    import tensorflow as tf

    features = tf.io.parse_single_example(record, list_features())
    return decode_image(features["image"]), features["label"], features["id"]


def decode_image(png: Any) -> Any:
    """Return the image uint8 [28, 28, 1] of a PNG."""
    import tensorflow as tf

    return tf.ensure_shape(tf.io.decode_png(png, channels=1), [28, 28, 1])


def augment(image: Any, label: Any, number: Any) -> Example:
    """Flip and shift one image at random. Return it as float32 [28, 28, 1] in [0, 1]."""
    import tensorflow as tf

    image = tf.image.random_flip_left_right(image)
    shift = tf.random.uniform([], -MAX_SHIFT, MAX_SHIFT + 1, tf.int32)
    return tf.cast(tf.roll(image, shift, axis=1), tf.float32) / 255, label, number


def sort_rows(images: np.ndarray) -> np.ndarray:
    """Return what `augment` leaves unchanged: each row's pixels, in order of brightness.

    `images` are uint8 in 0 to 255 or float in [0, 1], [..., 28, 28, 1]. Equal for an image
    and each of its augmented versions. Returns uint8 [..., 28, 28].
    """
    pixels = np.asarray(images)
    if pixels.dtype != np.uint8:
        pixels = np.round(pixels * 255).astype(np.uint8)
    return np.sort(pixels[..., 0], axis=-1)
