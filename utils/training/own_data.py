"""Own data: a `tf.data.Dataset`, or a function that makes one, as `TrainConfig` describes.

Every batch gets one shape, so that a step is traced once and Keras's `fit` stays exact: where
examples are missing, the first one stands with weight 0, as in `data.batches`.
"""

import inspect
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ..data.batches import unconverted
from ..errors import InputError
from ..strategies import find_strategy
from .config import TrainConfig
from .input_feed import InputFeed, set_auto_shard
from .state import SPARSE, batch_dtype, find_loss
from .step import Batch
from .worker_group import WorkerGroup

INFINITE = tf.data.INFINITE_CARDINALITY


def make_own_feed(name: str, config: TrainConfig, group: WorkerGroup) -> "DatasetFeed | None":
    """Return the feed of the setting `name`, "train_data" or "test_data"; None if it is None.

    Collective: every worker must call it. Raises InputError for data that can't be used, and
    RunError if the workers' data differ.
    """
    given = getattr(config, name)
    if given is None:
        return None
    feed = _choose_feed(name, given, config, group)
    group.compare(feed.facts)
    return feed


def _choose_feed(name: str, given: Any, config: TrainConfig, group: WorkerGroup) -> "DatasetFeed":
    if isinstance(given, tf.data.Dataset) or not callable(given):
        return DatasetFeed(name, given, config, group)
    if not _takes_context(given):
        return DatasetFeed(name, given(), config, group)
    if find_strategy(config.strategy).is_coordinated:  # one pipeline, with whole global batches
        return DatasetFeed(name, given(tf.distribute.InputContext()), config, group)
    return FunctionFeed(name, given, config, group)


def _takes_context(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(
        p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters
    )


class DatasetFeed(InputFeed):
    """A dataset of global batches, each cut over all replicas of all workers."""

    def __init__(self, name: str, dataset: Any, config: TrainConfig, group: WorkerGroup) -> None:
        self.name, self.config, self.group = name, config, group
        self.strategy, self.dtype = group.strategy, batch_dtype(config.dtype)
        # a shuffled dataset has a new order in every iterator: how many does an epoch make?
        keeps_one = config.loop != "fit"
        self._passes, self._passes_per_epoch = 0, 1 if keeps_one else count_iterators(self)
        self.batch_size = self.find_batch_size()
        self.open(dataset)

    def find_batch_size(self) -> int:
        """Return how many examples a batch of the dataset has."""
        return self.config.global_batch_size

    @property
    def places(self) -> int:
        """Places in a batch of the dataset, padding included."""
        replicas = self.strategy.num_replicas_in_sync
        return -(-self.batch_size // replicas) * replicas

    def open(self, dataset: Any) -> None:
        """Look at the dataset: its first batch, its shapes and its length."""
        self.dataset = _check_dataset(self.name, dataset)
        first = self._peek()
        self.steps_per_epoch = self._find_steps()
        self._check_size(len(tf.nest.flatten(first[1])[0]), self.steps_per_epoch)
        self._check_labels(first[1])
        mean = self.prepare is None
        padded = lambda *batch: pad(self.name, batch, self.places, mean, self.dtype)  # noqa: E731
        self._padded = self.dataset.map(unconverted(padded))  # once: it is traced
        self.spec, self.digest = self._padded.element_spec, _digest(first)
        self._filler = self._make_filler(first)
        self.examples = f"{self.steps_per_epoch} batches"

    @property
    def facts(self) -> dict[str, Any]:
        """Return what the data of all workers must have in common."""
        shapes = str(tf.nest.map_structure(lambda s: (s.dtype.name, s.shape.as_list()), self.spec))
        return {
            f"{self.name}_shapes": shapes,
            f"{self.name}_steps": self.steps_per_epoch,
            f"first_batch_of_{self.name}": self.digest,
        }

    def batches(self, epoch: int, first_step: int = 0) -> Any:
        left = tf.data.experimental.assert_cardinality(self.steps_per_epoch - first_step)
        return set_auto_shard(self._cut(epoch, first_step).apply(left), "data")

    def _cut(self, epoch: int, first_step: int, share: int = 1) -> tf.data.Dataset:
        """Return padded batches from a step of an epoch on, to its end: `share` a step.

        A dataset shuffled with a seed has another order in every pass over it. A run that
        resumes in a later epoch makes up for the earlier epochs' passes: making an iterator counts
        as one, and reads nothing.
        """
        while self._passes < epoch * self._passes_per_epoch:
            iter(self.dataset)
            self._passes += 1
        self._passes += self._passes_per_epoch
        left = self.steps_per_epoch - first_step
        if self.config.steps_per_epoch is not None:
            begun = epoch * self.steps_per_epoch + first_step
            return self._padded.repeat().skip(begun * share).take(left * share)
        return self._padded.skip(first_step * share).take(left * share)

    def _make_filler(self, first: Any) -> tf.data.Dataset:
        """Return endless batches whose examples all have weight 0."""
        features, labels, weights = pad(self.name, first, self.places, False, self.dtype)
        return tf.data.Dataset.from_tensors((features, labels, tf.zeros_like(weights))).repeat()

    def _peek(self) -> Any:
        """Return the first batch; raises InputError if there is none."""
        for batch in self.dataset.take(1):
            return batch
        raise InputError(f"{self.name} is empty. Give at least one batch.")

    def _find_steps(self) -> int:
        """Return the batches of an epoch: as set, as tf.data knows, or counted in one pass."""
        if self.name == "train_data" and self.config.steps_per_epoch is not None:
            return self.config.steps_per_epoch
        steps = int(self.dataset.cardinality())
        if steps == INFINITE:
            cure = "Set steps_per_epoch" if self.name == "train_data" else "Use its take(n)"
            raise InputError(f"{self.name} never ends. {cure}.")
        if steps < 0:
            steps = sum(1 for _ in self.dataset)
        return steps

    def _check_size(self, got: int, steps: int) -> None:
        wanted = self.batch_size
        if got > wanted or (got < wanted and steps > 1 and self.name == "train_data"):
            raise InputError(
                f"{self.name} must give batches of {wanted}, got {got} examples in the "
                f"first. Use .batch({wanted}), or set global_batch_size."
            )

    def _check_labels(self, labels: Any) -> None:
        """Raise InputError for labels that aren't class numbers, if the loss needs these."""
        _, kind = find_loss(self.config.loss, self.dtype)
        if kind != SPARSE or not isinstance(labels, tf.Tensor):
            return
        if labels.dtype.is_floating and np.any(labels != np.round(labels)):
            raise InputError(
                f"{self.name} must have class numbers as labels. For a regression, set loss='mse'."
            )


class FunctionFeed(DatasetFeed):
    """The data of a function of a `tf.distribute.InputContext`, in batches of one replica.

    Nobody knows beforehand how many real examples all replicas have in a step, so they
    count them in the step.
    """

    def __init__(
        self, name: str, make: Callable[..., Any], config: TrainConfig, group: WorkerGroup
    ) -> None:
        replicas = group.strategy.num_replicas_in_sync
        if config.global_batch_size % replicas:
            raise InputError(
                f"{name} is a function of the input context, so global_batch_size must be "
                f"divisible by {replicas} replicas, got {config.global_batch_size}."
            )
        context = tf.distribute.InputContext(group.workers, group.index, replicas)
        self.prepare = self._weigh
        super().__init__(name, make(context), config, group)

    def find_batch_size(self) -> int:
        return self.config.global_batch_size // self.strategy.num_replicas_in_sync

    @property
    def places(self) -> int:
        return self.batch_size

    @property
    def facts(self) -> dict[str, Any]:
        return {name: fact for name, fact in super().facts.items() if "first" not in name}

    def batches(self, epoch: int, first_step: int = 0) -> Any:
        """Return this worker's batches, with empty ones at the end where others have more."""
        share = self.group.replicas_per_worker
        own = self._cut(epoch, first_step, share).concatenate(self._filler)
        own = own.take((self.steps_per_epoch - first_step) * share)
        return self.strategy.distribute_datasets_from_function(lambda context: own)

    def _find_steps(self) -> int:
        if self.name == "train_data" and self.config.steps_per_epoch is not None:
            return self.config.steps_per_epoch
        own = super()._find_steps()
        return max(self.group.gather(-(-own // self.group.replicas_per_worker)))

    def _weigh(self, features: Any, labels: Any, weights: tf.Tensor) -> Batch:
        context = tf.distribute.get_replica_context()
        real = tf.reduce_sum(tf.cast(weights > 0, weights.dtype))
        together = context.all_reduce("SUM", real)
        return features, labels, tf.math.divide_no_nan(weights, together)


def _check_dataset(name: str, dataset: Any) -> tf.data.Dataset:
    """Return `dataset`; raise InputError unless its elements are batches of two or three parts."""
    if not isinstance(dataset, tf.data.Dataset):
        raise InputError(
            f"{name} must be a tf.data.Dataset or a function that returns one, got "
            f"{type(dataset).__name__}."
        )
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) not in (2, 3):
        raise InputError(f"{name} must give (features, labels) or (features, labels, weights).")
    if any(part.shape.rank == 0 for part in tf.nest.flatten(spec)):
        raise InputError(f"{name} gives single examples. Add .batch(global_batch_size).")
    return dataset


def pad(name: str, batch: tuple[Any, ...], places: int, mean: bool, dtype: str) -> Batch:
    """Return (features, labels, weights) with `places` examples, the missing ones of weight 0.

    A weight is the example's own (1 where none is given), over the number of examples that
    weigh anything where `mean`.
    """
    features, labels, *given = batch
    size = tf.shape(tf.nest.flatten(labels)[0])[0]
    message = f"{name}: a batch has more than {places} examples"
    with tf.control_dependencies([tf.debugging.assert_less_equal(size, places, message)]):
        place = tf.range(places)
    real = place < size
    place = tf.where(real, place, 0)

    def fill(values: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.gather(values, place), [places, *values.shape[1:]])

    weights = tf.cast(real, dtype)  # [places]
    if given:
        weights *= tf.cast(tf.reshape(fill(given[0]), [places]), dtype)
    if mean:
        weights = tf.math.divide_no_nan(weights, tf.reduce_sum(tf.cast(weights > 0, dtype)))
    return *tf.nest.map_structure(fill, (features, labels)), weights


def _digest(batch: Any) -> str:
    """Return a checksum of a batch's values."""
    total = 0
    for values in tf.nest.flatten(batch):
        array = values.numpy()
        data = array.tobytes() if array.dtype != object else repr(array.tolist()).encode()
        total = zlib.crc32(data, total)
    return f"{total:08x}"


def count_iterators(feed: DatasetFeed) -> int:
    """Return how many iterators one call of Keras's `fit` makes of the feed's dataset.

    One to train; before it one for the shapes, under a strategy; and one more at the end,
    where the length is known (Keras 3.15.1).
    """
    has_strategy = feed.strategy is not tf.distribute.get_strategy()
    knows_length = not (has_strategy and isinstance(feed, FunctionFeed))
    return 1 + has_strategy + knows_length
