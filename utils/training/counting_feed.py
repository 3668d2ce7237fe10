"""Workers that share the bundled images by files, or that read everything each.

Several workers share one order of examples in one of three ways.
`tf.data.experimental.AutoShardPolicy` says how workers that each run the same input
pipeline share what comes out of it:

- DATA: each takes its part of every global batch, and leaves the others'. All parts
  together are the batches of the one-process run.
- FILE: each reads its own files. Their order decides what is in a batch, and workers with longer
  files continue alone at the end of the epoch.
- OFF: each reads everything, so that every example is read once by every worker.

Under FILE and OFF nobody knows beforehand how many examples all workers together read
in a step, so the replicas count them in the step, and the plan is found by going
through the data once.
"""

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from ..data.batches import BatchPlan, epoch_order, unconverted, without_autotune
from ..data.images import Split
from .config import TrainConfig
from .input_feed import ImageFeed, ReadLog, set_auto_shard
from .step import Batch
from .worker_group import WorkerGroup

MIN_FILES = 8


class CountingFeed(ImageFeed):
    """Workers that read their own files (FILE), or everything each (OFF).

    Every example weighs one over the examples that all replicas read in that step.
    With FILE, the examples lie in `files` files, in the order of the first epoch, and
    are read in that order in every epoch.
    """

    def __init__(
        self,
        split: Split,
        plan: BatchPlan,
        config: TrainConfig,
        group: WorkerGroup,
        log: ReadLog | None = None,
    ) -> None:
        super().__init__(split, plan, config, log)
        self.open(max(MIN_FILES, group.workers))
        counts = count_examples(group.strategy, self.batches(0))
        self.examples, self.steps_per_epoch = sum(counts), len(counts)
        self.prepare = self._weigh

    def open(self, files: int) -> None:
        """Write the examples into files, where workers share those."""
        self._folder = tempfile.TemporaryDirectory() if self.config.auto_shard == "file" else None
        if self._folder:
            order = epoch_order(len(self.split), self.config.seed, 0)
            self._paths = write_record_files(self.split, order, Path(self._folder.name), files)

    def read(self, epoch: int) -> tf.data.Dataset:
        """Return batches of (images, labels) as the data set has them, in an epoch's order."""
        size = self.config.global_batch_size
        if self._folder:
            return read_record_files(self._paths).batch(size)
        order = epoch_order(len(self.split), self.config.seed, epoch)
        images, labels = tf.constant(self.split.images), tf.constant(self.split.labels)
        places = tf.data.Dataset.from_tensor_slices(order).batch(size)
        return places.map(unconverted(lambda i: (tf.gather(images, i), tf.gather(labels, i))))

    def batches(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        examples, policy = self.read(epoch), self.config.auto_shard
        # `fit` takes the length of the pipeline as written for the number of steps, and
        # workers that don't share it (OFF) need more: after a filter the length is unknown
        batches = examples.map(unconverted(self._finish)).filter(unconverted(lambda *batch: True))
        return set_auto_shard(without_autotune(batches.prefetch(2)), policy)

    def close(self) -> None:
        if self._folder:
            self._folder.cleanup()

    def _finish(self, images: tf.Tensor, labels: tf.Tensor) -> Batch:
        images = tf.cast(images, self.dtype)[..., tf.newaxis] / 255  # [batch, 28, 28, 1]
        return images, labels, tf.ones(tf.shape(labels)[:1], self.dtype)

    def _weigh(self, images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Batch:
        if self.log is not None:
            self.log.watch(images, weights)
        context = tf.distribute.get_replica_context()
        together = context.all_reduce("SUM", tf.reduce_sum(weights))
        return images, labels, tf.math.divide_no_nan(weights, together)


def count_examples(strategy: tf.distribute.Strategy, batches: tf.data.Dataset) -> list[int]:
    """Return how many examples all replicas read in each step of a pass over `batches`."""

    def count(images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(weights)

    @tf.function(reduce_retracing=True)
    def count_step(*batch: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(count, args=batch), axis=None)

    distributed = strategy.experimental_distribute_dataset(batches)
    return [int(count_step(*batch)) for batch in distributed]


def write_record_files(split: Split, order: np.ndarray, folder: Path, files: int) -> list[str]:
    """Write the examples in `order` into TFRecord files and return their paths.

    A record is the label's byte and the 784 pixels, as in the binary CIFAR-10 files.
    """
    paths = [str(folder / f"part-{number:02}.tfrecord") for number in range(files)]
    for path, places in zip(paths, np.array_split(order, files)):
        with tf.io.TFRecordWriter(path) as writer:
            for place in places:
                label = int(split.labels[place]).to_bytes(1, "big")
                writer.write(label + split.images[place].tobytes())
    return paths


def read_record_files(paths: list[str]) -> tf.data.Dataset:
    """Return the examples of record files, one after the other: image uint8 [28, 28], label."""

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        values = tf.ensure_shape(tf.io.decode_raw(record, tf.uint8), [785])
        return tf.reshape(values[1:], [28, 28]), tf.cast(values[0], tf.int64)

    files = tf.data.Dataset.from_tensor_slices(paths)
    return files.flat_map(tf.data.TFRecordDataset).map(unconverted(parse))
