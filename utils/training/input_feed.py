"""Feed the replicas of a run: the bundled images here, own data in `own_data`."""

from collections import defaultdict
from typing import Any

import numpy as np
import tensorflow as tf

from ..data.batches import BatchPlan, epoch_order, make_batches
from ..data.images import Split
from .config import TrainConfig
from .state import batch_dtype
from .step import Batch, Prepare

TEST_BATCH_SIZE = 500


class InputFeed:
    """Global batches of (features, labels, weights), the same number in every epoch.

    `examples` is how much data there is, as a checkpoint remembers it; `spec` are the
    `tf.TensorSpec`s of a batch, None where the model is sure to know them. `prepare` is what the
    step of a replica does to its batch before it trains, None for nothing.
    """

    steps_per_epoch: int
    examples: int | str
    spec: Any = None
    prepare: Prepare | None = None

    def batches(self, epoch: int, first_step: int = 0) -> Any:
        """Return an epoch's batches from `first_step` on: a dataset, or a distributed one.

        It may go on after the epoch's last batch: take `steps_per_epoch - first_step`.
        """
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
    """The examples that this worker's replicas got in every step of training.

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
        """The places read in each step, for this worker's replicas one after the other."""
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
    """The batches of a plan, each cut over all replicas (AutoShardPolicy.DATA).

    They never end: if a dataset can end, TensorFlow asks every replica of every worker before
    each step whether it has a batch, and traces the step for both answers.
    """

    def __init__(
        self, split: Split, plan: BatchPlan, config: TrainConfig, log: ReadLog | None = None
    ) -> None:
        self.split, self.plan, self.config, self.log = split, plan, config, log
        self.dtype, self.examples = batch_dtype(config.dtype), plan.examples
        self.steps_per_epoch = plan.steps_per_epoch
        if log is not None:
            log.attach(split)
            self.prepare = self._log

    def find_order(self, epoch: int) -> np.ndarray:
        """Return `epoch`'s order of the examples, int64 [examples]."""
        return epoch_order(self.plan.examples, self.config.seed, epoch)

    def batches(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        order = self.find_order(epoch)
        batches = make_batches(self.split, self.plan, order, self.dtype, first_step)
        return set_auto_shard(batches.repeat(), "data")

    def _log(self, images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Batch:
        self.log.watch(images, weights)
        return images, labels, weights


class TestFeed(ImageFeed):
    """The test images, in their own order."""

    def __init__(self, split: Split, config: TrainConfig, replicas: int) -> None:
        super().__init__(split, BatchPlan(len(split), TEST_BATCH_SIZE, replicas), config)

    def find_order(self, epoch: int) -> np.ndarray:
        return np.arange(self.plan.examples)
