"""Scenes as TFRecord shards: written one at a time, read back as batches in an order of an epoch.

A record is a `tf.train.Example` with `image` and `mask`, each a PNG of 64 by 64 pixels, and
`id`, the scene's number. Neither side ever holds all scenes: a reader keeps a block of
records and the batches under way.
"""

from pathlib import Path
from typing import Any

import numpy as np

from ..checks import check_count
from ..data.scenes import SCENE_SIZE, SceneSplit
from .parsing import batch_form
from .store import Shards, encode_png, write_examples

BLOCK = 1_024  # records shuffled at a time
CALLS = 2  # batches parsed at once


def write_scenes(split: SceneSplit, folder: str | Path, shards: int = 8) -> Shards:
    """Draw the scenes of `split` into `shards` files in `folder`; fewer where there are fewer.

    Raises InputError for fewer than one shard and a folder that holds such files already,
    RunError for one that can't be written.
    """
    check_count("shards", shards)

    def make_example(number: int) -> dict[str, bytes | int]:
        image, mask = split.draw(number)
        return {"image": encode_png(image), "mask": encode_png(mask), "id": number}

    return write_examples(make_example, np.arange(len(split)), folder, min(shards, len(split)))


def read_scenes(shards: Shards, batch_size: int, shuffle: tuple[int, int] | None = None) -> Any:
    """Return batches (images uint8 [batch, 64, 64, 1], masks int32 [batch, 64, 64], ids).

    The order depends on `shuffle` alone, (seed, epoch), through the order of the shards and of
    the records in each block of 1,024; None reads the shards one after the other, as they stand.
    `Dataset.shuffle` would also depend on `tf.random.set_seed`, which processes may differ in.
    """
    import tensorflow as tf

    files = np.array(shards.files)
    if shuffle is None:
        records = tf.data.TFRecordDataset(list(files))
    else:
        rng = np.random.default_rng(shuffle)
        names = tf.data.Dataset.from_tensor_slices(list(rng.permutation(files)))
        records = names.interleave(
            tf.data.TFRecordDataset,
            cycle_length=len(files),
            num_parallel_calls=CALLS,
            deterministic=True,
        )
        seed = rng.integers(2**31, size=2)
        blocks = records.batch(BLOCK)
        records = blocks.map(lambda b: tf.random.experimental.stateless_shuffle(b, seed)).unbatch()
    return records.batch(batch_size).map(parse_scene_batch, CALLS).prefetch(2)


def _features() -> dict[str, Any]:
    import tensorflow as tf

    png = tf.io.FixedLenFeature([], tf.string)
    return {"image": png, "mask": png, "id": tf.io.FixedLenFeature([], tf.int64)}


def parse_scene_batch(records: Any) -> tuple[Any, Any, Any]:
    """Return the images uint8 [batch, 64, 64, 1], masks int32 [batch, 64, 64], ids of `records`."""
    import tensorflow as tf

    found = tf.io.parse_example(records, _features())
    images = tf.map_fn(_decode, found["image"], fn_output_signature=tf.uint8)
    masks = tf.map_fn(_decode, found["mask"], fn_output_signature=tf.uint8)
    shape = [None, SCENE_SIZE, SCENE_SIZE]
    masks = tf.ensure_shape(masks[..., 0], shape)
    return tf.ensure_shape(images, [*shape, 1]), tf.cast(masks, tf.int32), found["id"]


@batch_form(parse_scene_batch)
def parse_scene(record: Any) -> tuple[Any, Any, Any]:
    """Return the image uint8 [64, 64, 1], mask int32 [64, 64] and id of one serialized example."""
    import tensorflow as tf

    found = tf.io.parse_single_example(record, _features())
    return _decode(found["image"]), tf.cast(_decode(found["mask"])[..., 0], tf.int32), found["id"]


def _decode(png: Any) -> Any:
    import tensorflow as tf

    return tf.ensure_shape(tf.io.decode_png(png, channels=1), [SCENE_SIZE, SCENE_SIZE, 1])
