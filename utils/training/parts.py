"""What every loop trains with: model, optimizer and metrics, made in the strategy's scope."""

from dataclasses import dataclass

import keras
import tensorflow as tf

from ..models import build_model
from .config import TrainConfig


@dataclass(frozen=True)
class Parts:
    """The objects whose variables live where the strategy puts them."""

    strategy: tf.distribute.Strategy
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    loss_metric: keras.metrics.Metric
    accuracy_metric: keras.metrics.Metric


class ExampleMean(keras.metrics.Metric):
    """A mean over real examples on all replicas: an example of weight 0 (padding) does not count.

    Keras's own metrics write `total.assign(total + value)`. CentralStorageStrategy
    adds up what its replicas assign, so `total` itself is multiplied by the number
    of replicas at every step. Adding in place is right under every strategy.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.total = self.add_weight(initializer="zeros", name="total")
        self.count = self.add_weight(initializer="zeros", name="count")

    def values(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Return what is averaged, one number per example: `[batch]`."""
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight) -> None:
        real = tf.cast(sample_weight > 0, self.total.dtype)  # [per_replica_batch]
        values = tf.cast(self.values(y_true, y_pred), self.total.dtype)
        _add_in_place(self.total, tf.reduce_sum(values * real))
        _add_in_place(self.count, tf.reduce_sum(real))

    def result(self) -> tf.Tensor:
        return tf.math.divide_no_nan(self.total.value, self.count.value)


def _add_in_place(variable: keras.Variable, amount: tf.Tensor) -> None:
    if tf.distribute.in_cross_replica_context():  # `fit` traces shapes there, and adds nothing
        variable.assign(variable + amount)
    else:
        variable.value.assign_add(amount)


class ExampleLoss(ExampleMean):
    """Mean cross-entropy of the logits."""

    def values(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(_as_indices(labels), logits)


class ExampleAccuracy(ExampleMean):
    """Share of examples whose largest logit is the label's."""

    def values(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.equal(tf.argmax(logits, axis=-1), _as_indices(labels))


def _as_indices(labels: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.reshape(labels, [-1]), tf.int64)  # `fit` hands them on as [batch, 1] floats


def make_optimizer(name: str, learning_rate: float) -> keras.optimizers.Optimizer:
    """Return plain SGD, SGD with momentum 0.9, or Adam."""
    if name == "adam":
        return keras.optimizers.Adam(learning_rate)
    return keras.optimizers.SGD(learning_rate, momentum=0.9 if name == "momentum" else 0.0)


def make_loss(dtype: str, reduction: str) -> keras.losses.Loss:
    """Return cross-entropy on logits, computed in the precision of the variables."""
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=reduction, dtype=batch_dtype(dtype)
    )


def batch_dtype(dtype: str) -> str:
    """Return the type of images, weights and losses under the dtype policy `dtype`."""
    return "float64" if dtype == "float64" else "float32"


def make_parts(strategy: tf.distribute.Strategy, config: TrainConfig) -> Parts:
    """Build everything inside `strategy.scope()`.

    The optimizer's variables are built here too: left to the first step, they
    would be made inside a traced function, which fails with several replicas.
    """
    with strategy.scope():
        model = build_model(config.model, seed=config.seed, dtype=config.dtype)
        optimizer = make_optimizer(config.optimizer, config.learning_rate)
        optimizer.build(model.trainable_variables)
        return Parts(
            strategy,
            model,
            optimizer,
            ExampleLoss("cross_entropy"),
            ExampleAccuracy("accuracy"),
        )
