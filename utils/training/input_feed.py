"""What the replicas of a run are fed: the bundled images here, own data in `own_data`.

Several workers share one order of examples in one of three ways.
`tf.data.experimental.AutoShardPolicy` says how workers that each run the same input
pipeline share what comes out of it:

- DATA: each takes its part of every global batch, and leaves the others'. All parts
  together are the batches of the one-process run.
- FILE: each reads files of its own. Their order decides what stands in a batch, and
  workers whose files are longer go on alone at the end of the epoch.
- OFF: each reads everything, so that every example is read once by every worker.

Under FILE and OFF nobody knows beforehand how many examples all workers together read
in a step, so the replicas count them in the step, and the plan is found by going
through the data once.
"""

import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ..data.batches import BatchPlan, epoch_order, make_batches, without_autotune
from ..data.images import Split
from .config import TrainConfig
from .state import batch_dtype
from .step import Batch, Prepare

MIN_FILES = 8
TEST_BATCH_SIZE = 500


class InputFeed:
    """Global batches of (features, labels, weights), the same number in every epoch.

    `examples` is how much data there is, as a checkpoint remembers it; `spec` are the
    `tf.TensorSpec`s of a batch, None where the model is sure to know them.
    """

    steps_per_epoch: int
    examples: int | str
    spec: Any = None

    @property
    def prepare(self) -> Prepare | None:
        """What the step of a replica does to its batch before it trains, None for nothing."""
        return None

    def batches(self, epoch: int, first_step: int = 0) -> Any:
        """Return an epoch's batches from `first_step` on: a dataset, or a distributed one."""
        raise NotImplementedError

    def make_test_metric(self) -> Any:
        """Return a metric for the test alone, whose `score()` gives numbers by name, or None."""
        return None

    def close(self) -> None:
        """Remove what was written for this run."""


def set_auto_shard(dataset: tf.data.Dataset, policy: str) -> tf.data.Dataset:
    """Return `dataset` with AutoShardPolicy "data", "file" or "off"."""
    options = tf.data.Options()
    chosen = tf.data.experimental.AutoShardPolicy[policy.upper()]
    options.experimental_distribute.auto_shard_policy = chosen
    return dataset.with_options(options)


class ReadLog:
    """Which examples this worker's replicas were handed in every step of training.

    Give one to `train(..., read_log=log)`; afterwards `log.steps[k]` are the places in
    the training split of the examples of step k, padding left out. What is recorded
    is what reached the training step: an example is known by its pixels. (Of two equal
    pictures the first is named.)
    """

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._reads: dict[int, list[list[int]]] = defaultdict(list)  # replica -> step -> places

    @property
    def steps(self) -> list[list[int]]:
        """The places read in each step, those of this worker's replicas one after the other."""
        replicas = [self._reads[number] for number in sorted(self._reads)]
        return [sum(parts, []) for parts in zip(*replicas)]

    def attach(self, split: Split) -> None:
        """Learn the pictures of `split`, uint8 [n, 28, 28]."""
        for place, image in enumerate(split.images):
            self._places.setdefault(image.tobytes(), place)

    def watch(self, images: tf.Tensor, weights: tf.Tensor) -> None:
        """Record one replica's batch; call it inside the replica's step."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        pixels = tf.cast(tf.round(images * 255), tf.uint8)
        tf.numpy_function(self._note, [replica, pixels, weights], Tout=[])

    def _note(self, replica: np.ndarray, pixels: np.ndarray, weights: np.ndarray) -> None:
        real = (image.tobytes() for image, weight in zip(pixels, weights) if weight > 0)
        self._reads[int(replica)].append([self._places[key] for key in real])


class ImageFeed(InputFeed):
    """The batches of a plan, each cut over all replicas (AutoShardPolicy.DATA)."""

    def __init__(
        self, split: Split, plan: BatchPlan, config: TrainConfig, log: ReadLog | None = None
    ) -> None:
        self.split, self.plan, self.config, self.log = split, plan, config, log
        self.dtype, self.examples = batch_dtype(config.dtype), plan.examples
        if log is not None:
            log.attach(split)

    @property
    def steps_per_epoch(self) -> int:
        return self.plan.steps_per_epoch

    @property
    def prepare(self) -> Prepare | None:
        return self._prepare if self.log is not None else None

    def find_order(self, epoch: int) -> np.ndarray:
        """Return the order in which `epoch` visits the examples, int64 [examples]."""
        return epoch_order(self.plan.examples, self.config.seed, epoch)

    def batches(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        order = self.find_order(epoch)
        batches = make_batches(self.split, self.plan, order, self.dtype, first_step)
        return set_auto_shard(batches, "data")

    def _prepare(self, images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Batch:
        if self.log is not None:
            self.log.watch(images, weights)
        return images, labels, weights


class TestFeed(ImageFeed):
    """The test images, in the order in which they stand."""

    def __init__(self, split: Split, config: TrainConfig, replicas: int) -> None:
        super().__init__(split, BatchPlan(len(split), TEST_BATCH_SIZE, replicas), config)

    def find_order(self, epoch: int) -> np.ndarray:
        return np.arange(self.plan.examples)


@dataclass(frozen=True)
class CountedPlan(BatchPlan):
    """A plan found by counting: how many examples all workers together read in each step."""

    counts: tuple[int, ...] = ()

    @property
    def steps_per_epoch(self) -> int:
        return len(self.counts)

    def examples_before(self, step: int) -> int:
        return sum(self.counts[:step])


class CountingFeed(ImageFeed):
    """Workers that read files of their own (FILE), or everything each (OFF).

    Every example weighs one over the examples that all replicas read in that step.
    With FILE, the examples lie in `files` files, in the order of the first epoch, and
    are read in that order in every epoch.
    """

    def __init__(self, split, plan, config, strategy, files: int, log=None) -> None:
        super().__init__(split, plan, config, log)
        self.open(files)
        counts = count_examples(strategy, self.batches(0))
        sizes = (config.global_batch_size, plan.replicas)
        self.plan = CountedPlan(sum(counts), *sizes, counts=tuple(counts))
        self.examples = self.plan.examples

    @property
    def prepare(self) -> Prepare:
        return self._prepare

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
        return places.map(lambda i: (tf.gather(images, i), tf.gather(labels, i)))

    def batches(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        examples, policy = self.read(epoch), self.config.auto_shard
        # `fit` takes the length of the pipeline as it is written for the number of steps, and
        # workers that do not share it (OFF) need more: after a filter the length is unknown
        batches = examples.map(self._finish).filter(lambda *batch: True).prefetch(2)
        return set_auto_shard(without_autotune(batches), policy)

    def close(self) -> None:
        if self._folder:
            self._folder.cleanup()

    def _finish(self, images: tf.Tensor, labels: tf.Tensor) -> Batch:
        images = tf.cast(images, self.dtype)[..., tf.newaxis] / 255  # [batch, 28, 28, 1]
        return images, labels, tf.ones(tf.shape(labels)[:1], self.dtype)

    def _prepare(self, images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Batch:
        super()._prepare(images, labels, weights)
        context = tf.distribute.get_replica_context()
        together = context.all_reduce("SUM", tf.reduce_sum(weights))
        return images, labels, tf.math.divide_no_nan(weights, together)


def make_image_feed(
    split: Split, config: TrainConfig, strategy: tf.distribute.Strategy, workers: int,
    log: ReadLog | None = None,
) -> ImageFeed:  # fmt: skip
    """Return what a run on bundled images is fed."""
    plan = BatchPlan(len(split), config.global_batch_size, strategy.num_replicas_in_sync)
    if config.auto_shard == "data":
        return ImageFeed(split, plan, config, log)
    return CountingFeed(split, plan, config, strategy, max(MIN_FILES, workers), log)


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
    """Write the examples in `order` into so many TFRecord files and return their paths.

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
    return files.flat_map(tf.data.TFRecordDataset).map(parse)
