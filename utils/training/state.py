"""What every loop trains: model, optimizer, loss and metrics, made in the strategy's scope."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ..data.masks import MaskScore, score_masks
from ..data.scenes import MASK_CLASSES
from ..errors import InputError
from ..models import build_model
from .config import OPTIMIZERS, TrainConfig
from .loss_scale import share_loss_scale

SPARSE, ONE_HOT = "sparse_categorical_crossentropy", "categorical_crossentropy"
ExampleValues = Callable[[Any, Any], tf.Tensor]  # labels, outputs -> one number per example


class Means(NamedTuple):
    """Loss and accuracy (None where the loss is no classification) over so many examples."""

    loss: float
    accuracy: float | None
    examples: int


@dataclass(frozen=True)
class TrainState:
    """The objects whose variables live where the strategy puts them.

    `example_loss(labels, outputs)` gives one number per example, [per_replica_batch].
    """

    strategy: tf.distribute.Strategy
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    example_loss: ExampleValues
    loss_metric: "ExampleMean"
    accuracy_metric: "ExampleMean | None"
    mask_counts: "MaskCounts | None" = None  # in tests only

    @property
    def metrics(self) -> "list[ExampleMean]":
        return [metric for metric in (self.loss_metric, self.accuracy_metric) if metric is not None]

    @property
    def test_metrics(self) -> "list[ExampleMean | MaskCounts]":
        return self.metrics + ([] if self.mask_counts is None else [self.mask_counts])

    def reset_metrics(self) -> None:
        for metric in self.test_metrics:
            metric.reset_state()

    def read_metrics(self) -> Means:
        """Return the means over all replicas since the last reset."""
        accuracy = self.accuracy_metric and float(self.accuracy_metric.result())
        examples = int(tf.convert_to_tensor(self.loss_metric.count.value))
        return Means(float(self.loss_metric.result()), accuracy, examples)


class ExampleMean(keras.metrics.Metric):
    """A mean over real examples on all replicas: an example of weight 0 (padding) does not count.

    `values(labels, outputs)` is what is averaged, one number per example.

    Keras's own metrics write `total.assign(total + value)`. CentralStorageStrategy
    adds up what its replicas assign, so `total` itself is multiplied by the number
    of replicas at every step. Adding in place is right under every strategy.
    """

    def __init__(self, name: str, values: ExampleValues) -> None:
        super().__init__(name=name)
        self.values = values
        self.total = self.add_weight(initializer="zeros", name="total")
        self.count = self.add_weight(initializer="zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight) -> None:
        real = tf.cast(sample_weight > 0, self.total.dtype)  # [per_replica_batch]
        values = tf.cast(self.values(y_true, y_pred), self.total.dtype)
        _add_in_place(self.total, tf.reduce_sum(values * real))
        _add_in_place(self.count, tf.reduce_sum(real))

    def result(self) -> tf.Tensor:
        return tf.math.divide_no_nan(self.total.value, self.count.value)


class MaskCounts(keras.metrics.Metric):
    """How often the pixels of each class were predicted as each, over real examples.

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
        _add_in_place(self.counts, tf.cast(counts, self.counts.dtype))

    def score(self) -> MaskScore:
        """Return intersections over union, over all replicas since the last reset."""
        return score_masks(np.asarray(tf.convert_to_tensor(self.counts.value)))


def _add_in_place(variable: keras.Variable, amount: tf.Tensor) -> None:
    if tf.distribute.in_cross_replica_context():  # `fit` traces shapes there, and adds nothing
        variable.assign(variable + amount)
    else:
        variable.value.assign_add(amount)


def make_state(
    strategy: tf.distribute.Strategy, config: TrainConfig, spec: Any = None
) -> TrainState:
    """Build everything inside `strategy.scope()`.

    `spec` is the (features, labels, weights) `tf.TensorSpec`s of a batch, for a model that
    knows its inputs only when it is called. The optimizer's variables are built here too:
    left to the first step, they would be made inside a traced function, which fails with
    several replicas. Raises InputError where model, loss and data do not fit together.
    """
    labels_spec = tf.TensorSpec([None], tf.int64) if spec is None else spec[1]
    dtype = batch_dtype(config.dtype)
    loss, kind = find_loss(config.loss, dtype)
    example_loss = make_example_values(loss, labels_spec, dtype)
    accuracy = {SPARSE: is_largest, ONE_HOT: is_same_largest}.get(kind)
    with strategy.scope():
        model = make_model(config, spec)
        if spec is not None:
            check_fit(model, example_loss, kind, spec)
        optimizer = make_optimizer(config.optimizer, config.learning_rate)
        optimizer = share_loss_scale(optimizer, model)
        optimizer.build(model.trainable_variables)
        loss_metric, accuracy_metric = ExampleMean("example_loss", example_loss), None
        if accuracy is not None:
            values = make_example_values(accuracy, labels_spec, dtype)
            accuracy_metric = ExampleMean("accuracy", values)
        mask_counts = MaskCounts() if config.has_scenes else None
    return TrainState(
        strategy, model, optimizer, example_loss, loss_metric, accuracy_metric, mask_counts
    )


def make_model(config: TrainConfig, spec: Any = None) -> keras.Model:
    """Return a new model as `config` says, with its variables made; raises InputError."""
    if isinstance(config.model, str):
        return build_model(config.model, seed=config.seed, dtype=config.dtype)
    set_own_seed(config)
    model = config.model()
    if not isinstance(model, keras.Model):
        raise InputError(
            f"model: the function gave a {type(model).__name__}, and must return a keras.Model"
        )
    if not model.built and spec is not None:
        one = tf.nest.map_structure(lambda s: tf.zeros([1, *s.shape[1:]], s.dtype), spec[0])
        _explain(spec, lambda: model(one))
    return model


def set_own_seed(config: TrainConfig) -> None:
    """Seed the generators of Python, NumPy and TensorFlow before a caller's function is called."""
    keras.utils.set_random_seed(config.seed)


def make_optimizer(choice: Any, learning_rate: float | None = None) -> keras.optimizers.Optimizer:
    """Return a new optimizer: SGD, SGD with momentum 0.9, Adam, or what was given.

    An optimizer that is given is copied: its variables must be made in the scope, and
    start anew with every run. Raises InputError for what is no optimizer.
    """
    if choice in ("sgd", "momentum"):
        return keras.optimizers.SGD(learning_rate, momentum=0.9 if choice == "momentum" else 0.0)
    if isinstance(choice, str):
        made = keras.optimizers.get(choice)
        rate = {} if learning_rate is None else {"learning_rate": learning_rate}
        return type(made)(**rate)
    made = choice if isinstance(choice, keras.optimizers.Optimizer) else choice()
    if not isinstance(made, keras.optimizers.Optimizer):
        raise InputError(
            f"optimizer {type(made).__name__}: give a name ({', '.join(OPTIMIZERS)}, …), a Keras "
            "optimizer, or a function that makes one"
        )
    return type(made).from_config(made.get_config()) if made is choice else made


def batch_dtype(dtype: str) -> str:
    """Return the type of images, weights and losses under the dtype policy `dtype`."""
    return "float64" if dtype == "float64" else "float32"


def make_loss(dtype: str, reduction: str) -> keras.losses.Loss:
    """Return cross-entropy on logits, computed in the precision of the variables."""
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=reduction, dtype=batch_dtype(dtype)
    )


def find_loss(choice: Any, dtype: str) -> tuple[ExampleValues, str]:
    """Return a function of (labels, outputs) that does not reduce, and Keras's name for it.

    The name is "" for a function that is not Keras's. Raises InputError for what is no loss.
    """
    if choice is None:
        return make_loss(dtype, reduction="none"), SPARSE
    try:
        loss = keras.losses.get(choice) if isinstance(choice, str) else choice
        if callable(loss) and not isinstance(loss, keras.losses.Loss) and not _count_needed(loss):
            loss = loss()
    except (ValueError, TypeError) as error:
        raise InputError(f"loss {choice!r}: {str(error).splitlines()[0]}") from None
    if isinstance(loss, keras.losses.Loss):
        return loss.call, _snake(type(loss).__name__)  # what it gives before it reduces
    if not callable(loss):
        raise InputError(f"loss {choice!r}: give a name, a keras.losses.Loss or a function")
    is_keras = getattr(loss, "__module__", "").startswith("keras.")
    return loss, loss.__name__ if is_keras else ""


def _count_needed(function: Callable[..., Any]) -> int:
    """Return how many arguments `function` cannot do without."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def make_example_values(function: ExampleValues, labels_spec: Any, dtype: str) -> ExampleValues:
    """Return `function` with one number per example, in `dtype`, and labels as the data have them.

    `fit` passes labels on as floats, [batch, 1] where they were [batch]. A loss that has a
    number for every pixel of an example is averaged over them.
    """

    def values(labels: Any, outputs: Any) -> tf.Tensor:
        if isinstance(labels_spec, tf.TensorSpec):
            shape = [-1, *_list_sizes(labels_spec, labels)]
            labels = tf.cast(tf.reshape(labels, shape), labels_spec.dtype)
        result = function(*_cast_floats((labels, outputs), dtype))  # [per_replica_batch, ...]
        if result.shape.rank == 0:
            raise InputError("loss: gave one number for the batch; it must give one per example")
        result = tf.cast(result, dtype)
        inner = list(range(1, result.shape.rank or 1))
        return tf.reduce_mean(result, inner) if inner else result

    return values


def _cast_floats(values: Any, dtype: str) -> Any:
    """Return `values`, those of a floating type in `dtype`: a loss takes them together."""
    return tf.nest.map_structure(
        lambda value: tf.cast(value, dtype) if value.dtype.is_floating else value, values
    )


def _list_sizes(spec: tf.TensorSpec, labels: tf.Tensor) -> list[Any]:
    """Return the size of one example's labels, asked of the batch where the data do not say."""
    inner = spec.shape[1:].as_list()
    return [tf.shape(labels)[i + 1] if size is None else size for i, size in enumerate(inner)]


def is_largest(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return whether the largest of an example's logits is the label's, [per_replica_batch]."""
    if labels.shape.rank == logits.shape.rank:  # labels of [batch, 1]
        labels = tf.squeeze(labels, -1)
    right = tf.equal(tf.argmax(logits, axis=-1), tf.cast(labels, tf.int64))
    return tf.cast(right, tf.float32)


def is_same_largest(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Return whether outputs and one-hot labels are largest at the same place."""
    right = tf.equal(tf.argmax(outputs, axis=-1), tf.argmax(labels, axis=-1))
    return tf.cast(right, tf.float32)


def check_fit(model: keras.Model, example_loss: ExampleValues, kind: str, spec: Any) -> None:
    """Raise InputError, in one sentence, unless model and loss take the data of `spec`.

    Both are traced, not run. Keras's losses other than sparse ones compare like with like,
    and broadcast without a word where shapes differ.
    """
    features, labels, _ = spec
    compares = kind and kind != SPARSE and isinstance(labels, tf.TensorSpec)

    def probe(features: Any, labels: Any) -> tf.Tensor:
        outputs = model(features, training=False)
        if compares and isinstance(outputs, tf.Tensor):
            _check_alike(labels.shape, outputs.shape, kind)
        return example_loss(labels, outputs)

    traced = tf.function(probe, autograph=False)  # as Keras's `fit` traces; errors stay as raised
    _explain(spec, lambda: traced.get_concrete_function(features, labels))


def _check_alike(labels: tf.TensorShape, outputs: tf.TensorShape, kind: str) -> None:
    wanted, got = ([n for n in shape[1:] if n != 1] for shape in (labels, outputs))
    if None not in wanted + got and wanted != got:
        raise InputError(
            f"model: gives {_words(outputs)} where the labels are {_words(labels)}; "
            f"loss {kind} wants them alike"
        )


def _explain(spec: Any, call: Callable[[], Any]) -> None:
    try:
        call()
    except InputError:
        raise
    except (ValueError, TypeError, LookupError, tf.errors.OpError) as error:
        told = re.sub(r"\x1b\[\d*m", "", str(error)).splitlines()
        lines = [line.strip() for line in told if not line.startswith("Exception encountered")]
        reason = next(filter(None, lines), type(error).__name__)
        words = tf.nest.map_structure(lambda s: _words(s.shape), list(spec[:2]))
        raise InputError(
            f"model, loss and data do not fit: features {words[0]}, labels {words[1]}: "
            f"{reason[:200]}"
        ) from None


def _words(shape: tf.TensorShape) -> str:
    inner = ", ".join("?" if size is None else str(size) for size in shape[1:])
    return f"[batch, {inner}]" if inner else "[batch]"
