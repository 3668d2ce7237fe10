"""The training program against loops written here, by hand, on one device."""

import functools
import json

import numpy as np
import pytest

from utils.data import load
from utils.data.batches import BatchPlan, batch_table, epoch_order
from utils.events import EventWriter, read_events
from utils.training import TrainConfig, train
from utils.training.report import weights_checksum

EPOCHS = 2  # the second has another order, and goes on with the first one's optimizer
EXACT = {
    "dtype": "float64",
    "optimizer": "sgd",
    "epochs": EPOCHS,
    "max_examples": 202,
    "model": "mlp",
}
# strategy, replicas, loop: 4 replicas are in `test_fewer_examples_than_replicas`, `fit` on 3 and
# one device in test_own_data, `fit` under central storage in test_scenes
RUNS = (
    ("default", 1, "custom"),
    ("default", 1, "fit"),
    ("mirrored", 1, "fit"),
    ("mirrored", 2, "custom"),
    ("central-storage", 1, "custom"),
    ("central-storage", 3, "custom"),
)


def plan_steps(limit, batch, epochs):
    """Return the examples of each step, in the order that every run has."""
    orders = [epoch_order(limit, 0, epoch) for epoch in range(epochs)]
    return [order[i : i + batch] for order in orders for i in range(0, limit, batch)]


def train_plainly(net, batches, epochs, optimizer="sgd"):
    """Return weights and epoch means of training on (inputs, labels): no strategy, no padding."""
    import keras
    import tensorflow as tf

    make = {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam}[optimizer]
    update = make({"sgd": 0.05, "adam": 0.001}[optimizer])
    update.build(net.trainable_variables)

    @tf.function(reduce_retracing=True)
    def step(inputs, labels):
        with tf.GradientTape() as tape:
            logits = net(inputs, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)  # over pixels too, if each has a label
        gradients = tape.gradient(loss, net.trainable_variables)
        update.apply_gradients(zip(gradients, net.trainable_variables))
        return loss

    steps = [(len(labels), float(step(inputs, labels))) for inputs, labels in batches]
    sizes, means = np.reshape(steps, (epochs, -1, 2)).transpose(2, 0, 1)
    return [v.numpy() for v in net.trainable_variables], np.average(means, 1, sizes)


def train_on_examples(steps, epochs, optimizer="sgd", dtype="float64", model="mlp"):
    """Train plainly on the examples of each step."""
    from utils.models import build_model

    data = load("fashion_mnist").train

    def read(places):
        images = (data.images[places] / 255).astype(dtype)[..., None]
        return images, data.labels[places]

    net = build_model(model, seed=0, dtype=dtype)
    return train_plainly(net, map(read, steps), epochs, optimizer)


@functools.cache
def train_by_hand(limit, batch, epochs, **kind):
    return train_on_examples(plan_steps(limit, batch, epochs), epochs, **kind)


@pytest.fixture(scope="module")
def by_hand(tf):
    return train_by_hand(limit=202, batch=64, epochs=EPOCHS)


def assert_same_weights(report, weights, tolerance=1e-9):
    assert len(report.weights) == len(weights)
    for got, wanted in zip(report.weights, weights):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)


@pytest.mark.usefixtures("untested")
@pytest.mark.parametrize("strategy, replicas, loop", RUNS)
def test_weights_equal_one_device_with_uneven_last_batch(by_hand, strategy, replicas, loop):
    """202 examples in batches of 64: the last has 10, and 3 replicas divide neither."""
    weights, losses = by_hand
    report = train(strategy=strategy, replicas=replicas, loop=loop, global_batch_size=64, **EXACT)
    assert_same_weights(report, weights)
    np.testing.assert_allclose(report.loss, losses, atol=1e-5)
    assert report.replicas == replicas and report.epochs == EPOCHS == len(report.accuracy)


@pytest.mark.usefixtures("untested")
def test_convolutions_too(tf):
    """The last batch has 1. The custom loop and central storage are in test_scenes."""
    weights, losses = train_by_hand(limit=129, batch=64, epochs=EPOCHS, model="cnn")
    settings = {**EXACT, "max_examples": 129, "model": "cnn", "global_batch_size": 64}
    report = train(strategy="mirrored", replicas=2, loop="fit", **settings)
    assert_same_weights(report, weights)
    np.testing.assert_allclose(report.loss, losses, atol=1e-5)


@pytest.mark.usefixtures("untested")
@pytest.mark.parametrize(
    "limit, batch, replicas, loop",
    [(7, 2, 4, "custom"), (1, 64, 3, "fit")],
)
def test_fewer_examples_than_replicas(tf, limit, batch, replicas, loop):
    weights, losses = train_by_hand(limit=limit, batch=batch, epochs=EPOCHS)
    settings = {**EXACT, "max_examples": limit, "global_batch_size": batch}
    report = train(strategy="mirrored", replicas=replicas, loop=loop, **settings)
    assert_same_weights(report, weights)
    np.testing.assert_allclose(report.loss, losses, atol=1e-5)


@pytest.mark.usefixtures("untested")
@pytest.mark.parametrize(
    "strategy, replicas, loop",
    [("mirrored", 2, "fit"), ("central-storage", 3, "custom")],
)
def test_adam_losses_in_float32(tf, strategy, replicas, loop):
    settings = {"epochs": EPOCHS, "max_examples": 1000, "global_batch_size": 64, "model": "mlp"}
    _, losses = train_by_hand(
        limit=1000, batch=64, epochs=EPOCHS, optimizer="adam", dtype="float32"
    )
    report = train(strategy=strategy, replicas=replicas, loop=loop, **settings)
    np.testing.assert_allclose(report.loss, losses, atol=2e-3)


@pytest.mark.usefixtures("untested")
def test_regularization_counts_once(tf, monkeypatch):
    """An L2 penalty must weigh the same for one replica and for two."""
    import keras

    from utils import models

    def build(seed=0, dtype="float32"):
        model = models.build_mlp(seed, dtype)
        model.layers[-1].kernel.regularizer = keras.regularizers.L2(0.5)
        assert model.losses
        return model

    monkeypatch.setitem(models.MODELS, "mlp", build)
    # float32, since Keras can't add float64 penalties in `fit`
    settings = {**EXACT, "epochs": 1, "global_batch_size": 64, "dtype": "float32"}
    one = train(strategy="one-device", **settings)
    for loop in ("custom", "fit"):
        two = train(strategy="mirrored", replicas=2, loop=loop, **settings)
        assert_same_weights(two, one.weights, tolerance=1e-5)
    monkeypatch.undo()
    plain, _ = train_by_hand(limit=202, batch=64, epochs=1)
    assert np.abs(plain[-2] - one.weights[-2]).max() > 1e-3


@pytest.mark.usefixtures("untested")
def test_export_loads_anywhere_and_predicts_the_same(tf, tmp_path):
    import keras

    report = train(
        strategy="mirrored", replicas=2, epochs=1, max_examples=200, model="mlp", export=tmp_path
    )
    images = (load("fashion_mnist").test.images[:50, ..., None] / 255).astype("float32")
    model = keras.models.load_model(tmp_path / "model.keras")
    for got, wanted in zip(model.trainable_variables, report.weights):
        np.testing.assert_array_equal(got.numpy(), wanted)
    served = tf.saved_model.load(str(tmp_path / "saved_model"))
    np.testing.assert_allclose(served.serve(images), model(images), atol=1e-5)


def test_both_data_sets_learn(tf):
    for dataset in ("fashion-mnist", "mnist"):
        report = train(dataset=dataset, max_examples=3000, epochs=2, model="mlp")
        assert report.dataset == dataset and report.examples == 3000
        assert report.test_accuracy > 0.7 and "bundled" in report.source


@pytest.mark.usefixtures("untested")
def test_report_checksum_and_json(tf):
    report = train(**{**EXACT, "epochs": 1, "max_examples": 64})
    by_rule = b"".join(w.astype("<f8").tobytes() for w in report.weights)
    import hashlib

    assert report.weights_checksum == hashlib.sha256(by_rule).hexdigest()
    assert weights_checksum(report.weights) == report.weights_checksum
    record = json.loads(report.to_json())
    assert "weights" not in record and record["images_per_second"] is None
    assert "second epoch" in str(report)


def test_events_tell_the_whole_run(tf, tmp_path):
    with EventWriter(tmp_path / "events.jsonl") as writer:
        report = train(**{**EXACT, "checkpoint_dir": tmp_path / "c"}, on_event=writer)
    events = list(read_events(tmp_path / "events.jsonl"))
    assert [e["event"] for e in events if e["event"] != "step"] == (
        ["start"] + ["epoch", "checkpoint"] * EPOCHS + ["end"]
    )
    assert [e["loss"] for e in events if e["event"] == "epoch"] == report.loss
    assert events[-1]["test_accuracy"] == report.test_accuracy


def test_settings_change_a_config():
    from utils.training.config import make_config

    base = TrainConfig(strategy="mirrored", replicas=4, optimizer="sgd", learning_rate=0.5)
    longer = make_config(base, {"epochs": 7})
    assert (longer.replicas, longer.learning_rate) == (4, 0.5)
    assert make_config(base, {"strategy": "default"}).replicas is None
    assert make_config(base, {"optimizer": "adam"}).learning_rate == 0.001


@pytest.mark.parametrize(
    "examples, batch, replicas", [(202, 64, 3), (66, 32, 4), (2, 64, 4), (8, 4, 2)]
)  # noqa: E501
def test_batch_table_holds_every_example_once(examples, batch, replicas):
    plan = BatchPlan(examples, batch, replicas)
    order = epoch_order(examples, seed=3, epoch=1)
    indices, weights = batch_table(plan, order)
    assert indices.shape == (plan.steps_per_epoch, plan.padded_batch_size)
    assert plan.padded_batch_size % replicas == 0
    np.testing.assert_array_equal(indices[weights > 0], order)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert sorted(order) == list(range(examples))
    assert len({tuple(epoch_order(202, seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4
