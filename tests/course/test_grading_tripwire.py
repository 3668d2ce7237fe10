"""What an exercise is run with is compared before and after, also where no line shows a change."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlab.grading.tripwire import Tripwire
from distlab.labs.lab05 import step as lab05

NUMBERS = tf.data.Dataset.range(2)
REPLACED = {  # as an answer could with `def patch(thing): thing.NAME = …` and `patch(THING)`
    "a module's function": (tf.data.experimental, "from_variant"),
    "a strategy's class": (tf.distribute, "MirroredStrategy"),
    "a private class of data sets": (type(NUMBERS.map(abs)), "__init__"),
    "every data set's iterator": (tf.data.Dataset, "__iter__"),
    "the steps of an iterator": (type(iter(NUMBERS)), "__next__"),
    "a tensor's numbers": (type(tf.constant(1)), "numpy"),
    "a variable's numbers": (type(tf.Variable(1)), "numpy"),
    "a Keras variable's numbers": (type(keras.Variable(1.0)), "numpy"),
    "a model's weights": (keras.Model, "get_weights"),
    "NumPy's random numbers": (np.random, "default_rng"),
    "the course's own": (lab05, "measure_updates"),
}  # fmt: skip


@pytest.fixture(scope="module")
def tripwire():
    return Tripwire()


@pytest.mark.parametrize("name", REPLACED)
def test_what_was_replaced_is_named(tripwire, monkeypatch, name):
    owner, attribute = REPLACED[name]
    place = next(c for c in getattr(owner, "__mro__", [owner]) if attribute in vars(c))
    monkeypatch.setattr(place, attribute, lambda *a: None)
    assert any(attribute in found for found in tripwire.find_changed())


def test_ordinary_training_changes_nothing(tripwire):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    data = tf.data.Dataset.from_tensors((tf.ones((4, 3)), tf.ones((4, 1)))).cache().prefetch(1)
    model.fit(data, shuffle=False, verbose=0)

    @tf.function(reduce_retracing=True)
    def step(features, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(features) - targets) ** 2)
        model.optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        )
        return loss

    for features, targets in data:
        step(features, targets)
    assert tripwire.find_changed() == []
