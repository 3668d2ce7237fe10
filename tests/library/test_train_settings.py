"""What `train` takes: its signature, metrics, callbacks, clipping, XLA, and kinds of models."""

import inspect
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
from test_checkpoints import Cut, cut_at
from test_loss_scale import START, Own

from utils.cluster import LocalCluster
from utils.errors import DistributedError
from utils.training import TrainConfig, train
from utils.training.config import TrainSettings

SMALL = {"model": "mlp", "max_examples": 202, "epochs": 2, "optimizer": "sgd", "dtype": "float64"}
SHORT = {**SMALL, "epochs": 1}


def is_wrong(labels, logits):
    import tensorflow as tf

    return tf.argmax(logits, -1) != tf.cast(labels, tf.int64)


def assert_same_weights(report, other):
    for got, wanted in zip(report.weights, other.weights, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


def test_the_signature_lists_every_setting_with_type_and_default():
    taken = inspect.signature(train).parameters
    for field in fields(TrainConfig):
        assert taken[field.name].default == field.default
        assert taken[field.name].annotation == field.type
    others = {"config", "on_event", "should_stop", "read_log"}
    assert set(taken) - {field.name for field in fields(TrainConfig)} == others
    page = (Path(__file__).parents[2] / "docs" / "library.md").read_text()
    assert [name for name in taken if name != "config" and f"`{name}`" not in page] == []
    assert set(get_type_hints(TrainSettings)) == {field.name for field in fields(TrainConfig)}


def test_a_notebook_completes_the_settings():
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    shell, typed = InteractiveShell.instance(), 'train(strategy="mirrored", check'
    shell.user_ns["train"] = train
    with provisionalcompleter():
        found = {each.text for each in shell.Completer.completions(typed, len(typed))}
    assert {"checkpoint_dir=", "checkpoint_every="} <= found


@pytest.mark.parametrize(
    ("strategy", "replicas", "loop"), [("mirrored", 3, "custom"), ("central-storage", 2, "fit")]
)
def test_metrics_are_means_over_real_examples_and_callbacks_end_the_run(
    tf, strategy, replicas, loop
):
    """202 examples in batches of 64: padding counts in no metric, whoever has it."""
    metrics, seen = [is_wrong, "accuracy"], []
    metrics.append(tf.keras.metrics.SparseTopKCategoricalAccuracy(1, "top"))

    class Watch(tf.keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            seen.append("begin")

        def on_epoch_begin(self, epoch, logs=None):
            seen.append(f"epoch {epoch}")

        def on_epoch_end(self, epoch, logs=None):
            seen.append((logs["loss"], float(self.model.optimizer.learning_rate.numpy())))
            self.model.optimizer.learning_rate = 0.25
            self.model.stop_training = epoch == 1

        def on_train_end(self, logs=None):
            seen.append("end")

    settings = {**SMALL, "strategy": strategy, "replicas": replicas, "loop": loop, "epochs": 9}
    report = train(metrics=metrics, callbacks=[Watch()], **settings)
    first, second = report.loss
    assert seen[::2] == ["begin", (first, pytest.approx(0.05)), (second, 0.25)]
    assert seen[1::2] == ["epoch 0", "epoch 1", "end"] and report.epochs == 2
    assert list(report.metrics) == list(report.test_metrics) == ["is_wrong", "top"]
    np.testing.assert_allclose(np.add(report.metrics["is_wrong"], report.accuracy), 1, atol=1e-6)
    np.testing.assert_allclose(report.metrics["top"], report.accuracy, atol=1e-6)
    assert report.test_metrics["top"] == pytest.approx(report.test_accuracy)
    assert "is_wrong 0." in str(report) and '"metrics": {"is_wrong": [' in report.to_json()


@pytest.mark.usefixtures("untested")
def test_metrics_of_a_run_that_was_cut_are_those_of_the_whole_run(tf, tmp_path):
    settings = {**SMALL, "strategy": "mirrored", "replicas": 2, "metrics": [is_wrong]}
    whole = train(**settings)
    saved = {"checkpoint_dir": tmp_path, "checkpoint_every": 2}
    with pytest.raises(Cut):
        train(**settings, **saved, on_event=cut_at(3))
    resumed = train(**settings, **saved)
    assert resumed.resumed_from.endswith("train-2")
    np.testing.assert_allclose(resumed.metrics["is_wrong"], whole.metrics["is_wrong"], atol=1e-6)
    with pytest.raises(DistributedError, match=r"made with metrics=\['is_wrong'\]"):
        train(**{**settings, "epochs": 3, "metrics": ["top_k_categorical_accuracy"]}, **saved)


@pytest.fixture(scope="module")
def unclipped(tf):
    return train(**SHORT)


@pytest.mark.usefixtures("untested")
@pytest.mark.parametrize(
    ("clip", "ways"),
    [
        ({"clipnorm": 0.1}, [("mirrored", 3, "custom"), ("central-storage", 2, "fit")]),
        ({"global_clipnorm": 0.2}, [("central-storage", 3, "custom")]),
        ({"clipvalue": 0.01}, [("mirrored", 2, "custom")]),
    ],
)
def test_clipping_is_of_the_sum_as_on_one_device(tf, unclipped, clip, ways):
    """By itself, Keras 3.15 clips each replica's part."""

    def train_clipped(**settings):
        if "clipnorm" in clip:
            return train(**{**SHORT, **clip}, **settings)
        return train(**{**SHORT, "optimizer": tf.keras.optimizers.SGD(0.05, **clip)}, **settings)

    one = train_clipped(strategy="one-device")
    for strategy, replicas, loop in ways:
        assert_same_weights(train_clipped(strategy=strategy, replicas=replicas, loop=loop), one)
    with pytest.raises(AssertionError):
        assert_same_weights(unclipped, one)


def test_clipping_reaches_the_optimizer_inside_a_loss_scale(tf):
    """Seven steps at a rate below 0.1 move no weight by more than 1e-7; without, all by more."""
    own = {"strategy": "mirrored", "replicas": 2}
    clipped, plain = (train(**Own(None).settings(**own, clipnorm=norm)) for norm in (1e-8, None))
    assert clipped.loss_scale and np.abs(clipped.weights[0] - START).max() <= 1e-7
    assert np.abs(plain.weights[0] - START).min() > 1e-5


@pytest.mark.usefixtures("untested")
def test_a_model_may_be_an_instance_or_a_class_compiled_or_not(tf):
    from utils.models import build_mlp

    made = build_mlp(dtype="float64")
    settings = {**SHORT, "strategy": "mirrored", "replicas": 2}
    named = train(**settings)
    assert_same_weights(train(**{**settings, "model": made}), named)
    np.testing.assert_array_equal(
        made.get_weights()[0], build_mlp(dtype="float64").get_weights()[0]
    )

    class Own(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.net = build_mlp(dtype="float64")

        def call(self, images):
            return self.net(images)

    assert_same_weights(train(**{**settings, "model": Own, "jit_compile": True}), named)


def train_there(settings):
    from utils.training import train

    return train(**settings)


def stop_early():
    import keras

    return [keras.callbacks.EarlyStopping("is_wrong", patience=1, min_delta=1, mode="min")]


STOPPED = {**SMALL, "epochs": 5, "metrics": [is_wrong], "callbacks": stop_early, "clipnorm": 0.1}


@pytest.fixture(scope="module")
def stopped(tf):
    return train(**STOPPED)


@pytest.mark.parametrize(("workers", "servers"), [(2, 0), (1, 1)])
def test_clusters_have_the_metrics_and_callbacks_of_one_device(stopped, launcher, workers, servers):
    """No epoch gains a whole point, so all stop after the second."""
    there = {**STOPPED, "strategy": "parameter-server" if servers else "multi-worker"}
    with LocalCluster(workers, servers, launcher=launcher) as cluster:
        told = cluster.run(train_there, there, timeout=200, echo=False)
    for report in [told] if servers else told:
        assert_same_weights(report, stopped)
        assert report.epochs == stopped.epochs == 2
        assert report.metrics["is_wrong"] == pytest.approx(stopped.metrics["is_wrong"])


@pytest.mark.usefixtures("untested")
def test_a_warm_up_takes_the_rates_that_were_computed_by_hand(tf):
    """Two steps of SGD, at a tenth of the rate and at its middle between a tenth and all of it."""
    settings = {
        "model": "mlp",
        "optimizer": "sgd",
        "learning_rate": 0.2,
        "max_examples": 64,
        "global_batch_size": 32,
        "epochs": 1,
    }
    warmed = train(**settings, warm_up_steps=2)
    rates = [0.02, 0.11]

    class ByHand(tf.keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return tf.gather(rates, tf.cast(step, tf.int32))

    own = {"optimizer": lambda: tf.keras.optimizers.SGD(ByHand()), "learning_rate": None}
    expected = train(**{**settings, **own})
    for ours, theirs in zip(warmed.weights, expected.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert not np.allclose(warmed.weights[0], train(**settings).weights[0], atol=1e-4)
