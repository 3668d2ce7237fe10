"""Lesson 00: replicas that see different classes, and learn all ten because they share gradients.

    replicas = Replicas(data, count=2)
    frame = replicas.step()                  # one global batch, one all-reduce
    frame = replicas.step(broken=True)       # each copy keeps its own gradient

Each replica is a copy of a small network on its own logical device, and gets images of its own
classes only. It learns about the others' from the all-reduce.
"""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from utils.data.images import ImageData

IMAGES, FILTERS, SIDE = 16, 16, 5
LEARNING_RATE, MOMENTUM, TEST_IMAGES = 0.03, 0.9, 500
# Fashion-MNIST's classes in the order in which they are split: clothes first, then shoes and bags
CLASSES = (0, 2, 6, 4, 3, 1, 8, 5, 7, 9)


@dataclass(frozen=True)
class ReplicaFrame:
    """The record of one step. The first axis is the replica, except in `total` and `loss`.

    `images` [replica, IMAGES, 28, 28] uint8; `gradients` [replica, FILTERS, SIDE, SIDE] of the
    filters, `total` [FILTERS, SIDE, SIDE] their mean over the replicas; `filters` after the
    update; `accuracy` [replica] on images of all classes, after it.
    """

    step: int
    images: np.ndarray
    gradients: np.ndarray
    total: np.ndarray
    filters: np.ndarray
    loss: float
    accuracy: np.ndarray
    broken: bool

    @property
    def apart(self) -> float:
        """The largest difference between the filters of two copies."""
        return float(np.abs(self.filters - self.filters[0]).max())


def split_classes(count: int) -> list[tuple[int, ...]]:
    """Return the classes of each of `count` replicas; together they are all ten."""
    return [tuple(int(c) for c in part) for part in np.array_split(CLASSES, count)]


class Replicas:
    """`count` copies of one network, one on each logical device, which begin equal."""

    def __init__(self, data: ImageData, count: int = 2) -> None:
        self.count, self._steps = count, 0
        self._rng = np.random.default_rng(0)
        self._train, test = data.train, data.test
        groups = split_classes(count)
        self._places = [np.flatnonzero(np.isin(self._train.labels, group)) for group in groups]
        self._test = test.images[:TEST_IMAGES, ..., None] / np.float32(255)
        self._test_labels = test.labels[:TEST_IMAGES]
        start = _make_weights()
        self.copies = []
        for replica in range(count):
            with tf.device(f"CPU:{replica}"):
                variables = [tf.Variable(value) for value in start]
                speeds = [tf.Variable(tf.zeros_like(value)) for value in start]
            self.copies.append((variables, speeds))
        self._update = tf.function(self._update_all)

    def step(self, broken: bool = False) -> ReplicaFrame:
        """Train on one global batch, IMAGES for each replica; return what happened."""
        chosen = np.stack([self._rng.choice(places, IMAGES) for places in self._places])
        pixels, labels = self._train.images[chosen], self._train.labels[chosen]
        inputs = tf.constant(pixels[..., None] / np.float32(255))
        losses, gradients, total = self._update(inputs, tf.constant(labels), tf.constant(broken))
        self._steps += 1
        filters = np.stack([variables[0].numpy() for variables, _ in self.copies])
        return ReplicaFrame(
            step=self._steps,
            images=pixels,
            gradients=_by_filter(gradients.numpy()),
            total=_by_filter(total.numpy()[None])[0],
            filters=_by_filter(filters),
            loss=float(np.mean(losses)),
            accuracy=self._examine().numpy(),
            broken=broken,
        )

    def _update_all(self, images: tf.Tensor, labels: tf.Tensor, broken: tf.Tensor) -> tuple:
        """Compute on each replica, all-reduce, update each copy.

        `images` [replica, IMAGES, 28, 28, 1], `labels` [replica, IMAGES].
        """
        losses, gradients = [], []
        for replica, (variables, _) in enumerate(self.copies):
            with tf.device(f"CPU:{replica}"), tf.GradientTape() as tape:
                logits = predict(variables, images[replica])
                each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels[replica], logits)
                loss = tf.reduce_mean(each)
            losses.append(loss)
            gradients.append(tape.gradient(loss, variables))
        means = [tf.add_n(same) / self.count for same in zip(*gradients)]  # the all-reduce
        for own, (variables, speeds) in zip(gradients, self.copies):
            for gradient, mean, variable, speed in zip(own, means, variables, speeds):
                speed.assign(MOMENTUM * speed + tf.where(broken, gradient, mean))
                variable.assign_sub(LEARNING_RATE * speed)
        return tf.stack(losses), tf.stack([own[0] for own in gradients]), means[0]

    @tf.function
    def _examine(self) -> tf.Tensor:
        """Return each copy's accuracy on images of all classes, [replica]."""
        right = [
            tf.argmax(predict(variables, self._test), axis=-1) == self._test_labels
            for variables, _ in self.copies
        ]
        return tf.reduce_mean(tf.cast(right, tf.float32), axis=1)


def predict(variables: list[tf.Variable], images: tf.Tensor) -> tf.Tensor:
    """Return logits [image, 10] of images [image, 28, 28, 1]: one convolution, one dense layer."""
    filters, bias, weights, offset = variables
    found = tf.nn.relu(tf.nn.conv2d(images, filters, 2, "SAME") + bias)  # [image, 14, 14, FILTERS]
    pooled = tf.nn.max_pool2d(found, 2, 2, "SAME")  # [image, 7, 7, FILTERS]
    return tf.reshape(pooled, [-1, 49 * FILTERS]) @ weights + offset


def _make_weights() -> list[tf.Tensor]:
    def normal(shape: list[int], scale: float, number: int) -> tf.Tensor:
        return scale * tf.random.stateless_normal(shape, seed=(0, number))

    filters = normal([SIDE, SIDE, 1, FILTERS], 0.12, 0)
    weights = normal([49 * FILTERS, 10], 0.04, 1)
    return [filters, tf.zeros([FILTERS]), weights, tf.zeros([10])]


def _by_filter(values: np.ndarray) -> np.ndarray:
    """Turn [replica, SIDE, SIDE, 1, FILTERS] into [replica, FILTERS, SIDE, SIDE]."""
    return values[:, :, :, 0].transpose(0, 3, 1, 2)
