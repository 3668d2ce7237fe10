"""The state of every loop: model, optimizer, loss and metrics, made in the strategy's scope."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from ..errors import InputError, first_line
from ..models import build_model
from .config import OPTIMIZERS, TrainConfig

SPARSE, ONE_HOT = "sparse_categorical_crossentropy", "categorical_crossentropy"
RESERVED = ("loss", "step", "epoch", "event", "time", "images_per_second")  # of an event's fields
ExampleValues = Callable[[Any, Any], tf.Tensor]  # labels, outputs -> one number per example
Means = tuple[dict[str, float], int]  # "loss" and others by name, over how many examples


@dataclass(frozen=True)
class TrainState:
    """The objects whose variables live where the strategy puts them.

    `example_loss(labels, outputs)` gives one number per example, [per_replica_batch];
    `metrics` are means over examples by name: "loss" first, then others, such as "accuracy".
    """

    strategy: tf.distribute.Strategy
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    example_loss: ExampleValues
    metrics: "dict[str, ExampleMean]"
    jit_compile: bool = False

    def reset_metrics(self) -> None:
        for metric in self.metrics.values():
            metric.reset_state()

    def read_metrics(self) -> Means:
        """Return the means over all replicas since the last reset, and over how many examples."""
        examples = int(tf.convert_to_tensor(self.metrics["loss"].count.value))
        return {name: float(metric.result()) for name, metric in self.metrics.items()}, examples


class ExampleMean(keras.metrics.Metric):
    """A mean over real examples on all replicas: an example of weight 0 (padding) doesn't count.

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
        add_in_place(self.total, tf.reduce_sum(values * real))
        add_in_place(self.count, tf.reduce_sum(real))

    def result(self) -> tf.Tensor:
        return tf.math.divide_no_nan(self.total.value, self.count.value)


def add_in_place(variable: keras.Variable, amount: tf.Tensor) -> None:
    """Add this replica's `amount` to a metric's variable, under every strategy."""
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
    several replicas. Raises InputError where model, loss and data don't fit together.
    """
    labels_spec = tf.TensorSpec([None], tf.int64) if spec is None else spec[1]
    dtype = batch_dtype(config.dtype)
    loss, kind = find_loss(config.loss, dtype)
    example_loss = make_example_values(loss, labels_spec, dtype)
    averaged = {"loss": example_loss}
    for name, values in find_metrics(config.metrics, kind).items():
        own = dtype if name == "accuracy" else "float32"  # as Keras's metrics compute
        averaged[name] = make_example_values(values, labels_spec, own)
    with strategy.scope():
        model = make_model(config, spec)
        if spec is not None:
            check_fit(model, example_loss, kind, spec)
        rate = make_rate(config.learning_rate, config.warm_up_steps)
        optimizer = make_optimizer(config.optimizer, rate, config.clipnorm)
        plain = isinstance(config.model, str) and isinstance(config.optimizer, str)
        if config.dtype == "mixed_float16" or not plain:  # may compute in float16
            from .loss_scale import share_loss_scale

            optimizer = share_loss_scale(optimizer, model)
        optimizer = clip_the_sum(optimizer)
        optimizer.build(model.trainable_variables)
        metrics = {n: ExampleMean(f"example_{n}", values) for n, values in averaged.items()}
    return TrainState(strategy, model, optimizer, example_loss, metrics, config.jit_compile)


def make_model(config: TrainConfig, spec: Any = None) -> keras.Model:
    """Return a new model as `config` says, with its variables made; raises InputError."""
    if isinstance(config.model, str):
        return build_model(config.model, seed=config.seed, dtype=config.dtype)
    if isinstance(config.model, keras.Model):
        return _copy_model(config.model, spec)
    set_own_seed(config)
    model = config.model()
    if not isinstance(model, keras.Model):
        raise InputError(
            "model must be a function that returns a keras.Model, got one that returns "
            f"{type(model).__name__}."
        )
    return _build(model, spec)


def _copy_model(model: keras.Model, spec: Any) -> keras.Model:
    """Return a copy of `model` with its weights, whose variables are made here and now."""
    try:
        copy = _build(type(model).from_config(model.get_config()), spec)
    except (NotImplementedError, TypeError) as error:
        raise InputError(
            f"The model ({type(model).__name__}) can't be copied into the strategy's scope: "
            f"{first_line(error, 100)}. Give its class, or the function that builds it."
        ) from None
    if model.built:
        copy.set_weights(model.get_weights())
    return copy


def _build(model: keras.Model, spec: Any) -> keras.Model:
    if not model.built and spec is not None:
        one = tf.nest.map_structure(lambda s: tf.zeros([1, *s.shape[1:]], s.dtype), spec[0])
        _explain(spec, lambda: model(one))
    return model


def set_own_seed(config: TrainConfig) -> None:
    """Seed the generators of Python, NumPy and TensorFlow before a caller's function is called."""
    keras.utils.set_random_seed(config.seed)


def make_rate(learning_rate: float | None, warm_up_steps: int) -> Any:
    """Return the rate, or a schedule that rises to it from a tenth and stays there."""
    if not warm_up_steps:
        return learning_rate
    schedule = keras.optimizers.schedules.PolynomialDecay  # of power 1: a straight line
    return schedule(learning_rate / 10, warm_up_steps, learning_rate)


def make_optimizer(
    choice: Any, learning_rate: Any = None, clipnorm: float | None = None
) -> keras.optimizers.Optimizer:
    """Return a new optimizer: SGD, SGD with momentum 0.9, Adam, or what was given.

    A given optimizer is copied: its variables must be made in the scope, and start fresh with every
    run. Raises InputError if it isn't an optimizer.
    """
    if choice in ("sgd", "momentum"):
        made = keras.optimizers.SGD(learning_rate, momentum=0.9 if choice == "momentum" else 0.0)
    elif isinstance(choice, str):
        rate = {} if learning_rate is None else {"learning_rate": learning_rate}
        made = type(keras.optimizers.get(choice))(**rate)
    elif isinstance(choice, keras.optimizers.Optimizer):
        made = type(choice).from_config(choice.get_config())
    else:
        made = choice()
    if not isinstance(made, keras.optimizers.Optimizer):
        raise InputError(
            f"optimizer must be a name ({', '.join(OPTIMIZERS)}, …), a Keras optimizer or a "
            f"function that makes one, got {type(made).__name__}."
        )
    if clipnorm is not None:
        clips = getattr(made, "inner_optimizer", made)
        clips.clipnorm, clips.global_clipnorm, clips.clipvalue = clipnorm, None, None
    return made


def clip_the_sum(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Return `optimizer`; if it clips, it does so after the replicas' gradients are added up.

    Keras 3.15 clips each replica's own gradient, so that the update depends on the number
    of replicas. A `LossScaleOptimizer` stays unchanged: `training.loss_scale`'s adds up first.
    """
    if not (optimizer.clipnorm or optimizer.global_clipnorm or optimizer.clipvalue):
        return optimizer
    add_up, clip = optimizer._all_reduce_sum_gradients, optimizer._clip_gradients

    def clip_summed(gradients: list[Any]) -> list[Any]:
        return clip([gradient for gradient, _ in add_up(zip(gradients, gradients))])

    optimizer._clip_gradients = clip_summed
    optimizer._all_reduce_sum_gradients = list  # its input is summed already
    return optimizer


def batch_dtype(dtype: str) -> str:
    """Return the type of images, weights and losses under the dtype policy `dtype`."""
    return "float64" if dtype == "float64" else "float32"


def find_loss(choice: Any, dtype: str) -> tuple[ExampleValues, str]:
    """Return a function of (labels, outputs) that doesn't reduce, and Keras's name for it.

    The name is "" for a function that isn't Keras's. Raises InputError if it isn't a loss.
    """
    if choice is None:
        loss = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none", dtype=batch_dtype(dtype)
        )  # in the precision of the variables
        return loss, SPARSE
    try:
        loss = keras.losses.get(choice) if isinstance(choice, str) else choice
        if callable(loss) and not isinstance(loss, keras.losses.Loss) and not _count_needed(loss):
            loss = loss()
    except (ValueError, TypeError) as error:
        raise InputError(f"loss {choice!r} isn't known: {str(error).splitlines()[0]}") from None
    if isinstance(loss, keras.losses.Loss):
        return loss.call, _snake(type(loss).__name__)  # its values before reduction
    if not callable(loss):
        raise InputError(f"loss must be a name, a keras.losses.Loss or a function, got {choice!r}.")
    is_keras = str(getattr(loss, "__module__", None)).startswith("keras.")
    return loss, loss.__name__ if is_keras else ""


def find_metrics(choices: Iterable[Any], kind: str) -> dict[str, ExampleValues]:
    """Return functions of (labels, outputs) to average, by name: the accuracy, then `choices`.

    `kind` is Keras's name of the loss. Raises InputError for what isn't a mean over examples.
    """
    accuracy = {SPARSE: is_largest, ONE_HOT: is_same_largest}.get(kind)
    found = {} if accuracy is None else {"accuracy": accuracy}
    for choice in choices:
        if choice in ("accuracy", "acc") and accuracy is not None:
            continue
        name, values = _find_metric(choice)
        if name in (*RESERVED, *found):
            raise InputError(f"metrics has two named {name!r}. Give each another name.")
        found[name] = values
    return found


def _find_metric(choice: Any) -> tuple[str, ExampleValues]:
    try:
        metric = keras.metrics.get(choice) if isinstance(choice, str) else choice
        if isinstance(metric, type):
            metric = metric()
    except (ValueError, TypeError) as error:
        raise InputError(f"metrics {choice!r} can't be used: {first_line(error)}") from None
    if isinstance(metric, keras.metrics.MeanMetricWrapper):
        return metric.name, functools.partial(metric._fn, **metric._fn_kwargs)
    if isinstance(metric, keras.metrics.Metric) or not callable(metric):
        raise InputError(
            f"metrics must be means over examples, got {type(metric).__name__}. Give a function of "
            "(labels, outputs) that returns one number per example"
        )
    return getattr(metric, "__name__", type(metric).__name__), metric


def _count_needed(function: Callable[..., Any]) -> int:
    """Return how many arguments `function` can't do without."""
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
            raise InputError(
                "A loss or metric must give one number per example, got one for the batch. Leave "
                "the mean over the batch out."
            )
        result = tf.cast(result, dtype)
        inner = list(range(1, result.shape.rank or 1))
        return tf.reduce_mean(result, inner) if inner else result

    return values


def _cast_floats(values: Any, dtype: str) -> Any:
    """Return `values`, with floats cast to `dtype`: a loss takes them together."""
    return tf.nest.map_structure(
        lambda value: tf.cast(value, dtype) if value.dtype.is_floating else value, values
    )


def _list_sizes(spec: tf.TensorSpec, labels: tf.Tensor) -> list[Any]:
    """Return the size of one example's labels, asked of the batch where the data don't say."""
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
            f"The model's outputs must fit the labels under loss {kind}: got outputs "
            f"{_words(outputs)} and labels {_words(labels)}."
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
            f"Model, loss and data don't fit (features {words[0]}, labels {words[1]}): "
            f"{reason[:200]}"
        ) from None


def _words(shape: tf.TensorShape) -> str:
    inner = ", ".join("?" if size is None else str(size) for size in shape[1:])
    return f"[batch, {inner}]" if inner else "[batch]"
