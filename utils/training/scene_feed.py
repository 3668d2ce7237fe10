"""Scenes for the replicas: TFRecord shards, read in an order of seed and epoch alone.

The shards are drawn into a folder of this process's own, which goes with the run. Every
worker reads all of them and trains on its part of each global batch (AutoShardPolicy.DATA), so
that all parts together are the batches of the one-process run; with "file" and "off" workers
count what they read together, as `counting_feed.CountingFeed` does.
"""

import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from ..data.batches import BatchPlan, without_autotune
from ..data.masks import score_masks
from ..data.scenes import MASK_CLASSES, SCENE_SIZE, SceneSplit
from ..input_pipeline.scenes import read_scenes, write_scenes
from ..input_pipeline.store import Shards
from .config import TrainConfig
from .counting_feed import MIN_FILES, CountingFeed
from .input_feed import ImageFeed, set_auto_shard
from .own_data import pad
from .state import add_in_place
from .step import Batch

TEST_BATCH_SIZE = 50


class SceneFiles:
    """The shards of a split, written when they are first read."""

    def __init__(self, split: SceneSplit, files: int = MIN_FILES) -> None:
        self.split, self.files = split, files
        self._folder: tempfile.TemporaryDirectory | None = None
        self._shards: Shards | None = None

    def read(self, batch_size: int, shuffle: tuple[int, int] | None = None) -> tf.data.Dataset:
        """Return batches of (images uint8 [batch, 64, 64, 1], masks int32 [batch, 64, 64])."""
        if self._shards is None:
            self._folder = tempfile.TemporaryDirectory()
            self._shards = write_scenes(self.split, Path(self._folder.name), self.files)
        return read_scenes(self._shards, batch_size, shuffle).map(lambda *batch: batch[:2])

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def make_spec(places: int | None, dtype: str) -> Batch:
    """Return the `tf.TensorSpec`s of a batch (images, masks, weights)."""
    shape = [places, SCENE_SIZE, SCENE_SIZE]
    return (
        tf.TensorSpec([*shape, 1], dtype),
        tf.TensorSpec(shape, tf.int32),
        tf.TensorSpec([places], dtype),
    )


class SceneFeed(ImageFeed):
    """The global batches of a plan, each cut over all replicas; the last one is padded."""

    def __init__(self, split: SceneSplit, plan: BatchPlan, config: TrainConfig) -> None:
        super().__init__(split, plan, config)
        self.files = SceneFiles(split)
        self.spec = make_spec(plan.padded_batch_size, self.dtype)

    def find_shuffle(self, epoch: int) -> tuple[int, int] | None:
        """Return what the order of `epoch` depends on."""
        return self.config.seed, epoch

    def batches(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        examples = self.files.read(self.plan.global_batch_size, self.find_shuffle(epoch))
        left = tf.data.experimental.assert_cardinality(self.plan.steps_per_epoch - first_step)
        batches = examples.skip(first_step).map(self._finish).prefetch(2).apply(left)
        return set_auto_shard(without_autotune(batches), "data")

    def _finish(self, images: tf.Tensor, masks: tf.Tensor) -> Batch:
        places = self.plan.padded_batch_size
        images, masks, weights = pad("fashion-scenes", (images, masks), places, True, self.dtype)
        return tf.cast(images, self.dtype) / 255, masks, weights

    def close(self) -> None:
        self.files.close()


class SceneTestFeed(SceneFeed):
    """The test scenes, in their own order."""

    def __init__(self, split: SceneSplit, config: TrainConfig, replicas: int) -> None:
        super().__init__(split, BatchPlan(len(split), TEST_BATCH_SIZE, replicas), config)

    def find_shuffle(self, epoch: int) -> None:
        return None

    def make_test_metric(self) -> "MaskCounts":
        return MaskCounts()


class MaskCounts(keras.metrics.Metric):
    """Count how often the pixels of each class were predicted as each, over real examples.

    Labels are class numbers [batch, height, width], outputs logits for each of them.
    """

    def __init__(self) -> None:
        super().__init__(name="mask_counts")
        shape = (MASK_CLASSES, MASK_CLASSES)
        self.counts = self.add_weight(shape=shape, initializer="zeros", name="counts")

    def update_state(self, y_true, y_pred, sample_weight) -> None:
        predicted = tf.argmax(y_pred, axis=-1, output_type=tf.int32)  # [batch, height, width]
        pairs = tf.cast(y_true, tf.int32) * MASK_CLASSES + predicted
        real = tf.cast(sample_weight > 0, tf.float32)[:, tf.newaxis, tf.newaxis]
        sums = tf.math.bincount(
            tf.reshape(pairs, [-1]),
            weights=tf.reshape(real * tf.ones_like(pairs, tf.float32), [-1]),
            minlength=MASK_CLASSES**2,
            maxlength=MASK_CLASSES**2,
        )
        counts = tf.reshape(sums, [MASK_CLASSES, MASK_CLASSES])
        add_in_place(self.counts, tf.cast(counts, self.counts.dtype))

    def score(self) -> dict[str, float]:
        """Return intersections over union, over all replicas since the last reset."""
        found = score_masks(np.asarray(tf.convert_to_tensor(self.counts.value)))
        return {"foreground_iou": found.foreground, "garments_iou": found.garments}


class CountingSceneFeed(CountingFeed):
    """Workers that read their own shards (FILE), or everything each (OFF)."""

    def open(self, files: int) -> None:
        self.files = SceneFiles(self.split, files)
        self.spec = make_spec(None, self.dtype)

    def read(self, epoch: int) -> tf.data.Dataset:
        reads_everything = self.config.auto_shard == "off"
        shuffle = (self.config.seed, epoch) if reads_everything else None
        return self.files.read(self.config.global_batch_size, shuffle)

    def _finish(self, images: tf.Tensor, masks: tf.Tensor) -> Batch:
        weights = tf.ones(tf.shape(masks)[:1], self.dtype)
        return tf.cast(images, self.dtype) / 255, masks, weights

    def close(self) -> None:
        self.files.close()
