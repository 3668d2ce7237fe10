"""The small Transformer: trains as by hand under every strategy, is cut by heads and by layers."""

import functools

import numpy as np
import pytest
from parallel_models import DEVICES, assert_equal_step, make_batch
from test_training import assert_same_weights, train_by_hand
from untested import leave_out_test_data

from utils import models
from utils.cluster import LocalCluster
from utils.models import build_encoder_decoder, build_transformer
from utils.parallel.attention import SplitAttention
from utils.parallel.group import DeviceGroup
from utils.parallel.pipeline import cut_model, run_pipeline
from utils.parallel.stage import Rules
from utils.schedules import make_schedule
from utils.training import train

TINY = {
    "model": "transformer",
    "dtype": "float64",
    "optimizer": "sgd",
    "max_examples": 35,
    "global_batch_size": 16,
    "epochs": 2,
}
SMALLER = functools.partial(build_transformer, blocks=1, width=16, heads=2)


@pytest.fixture(scope="module")
def smaller():
    """`train` takes one block, a quarter of the weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(models.MODELS, "transformer", SMALLER)
        yield


@pytest.fixture(scope="module")
def by_hand(tf, smaller):
    return train_by_hand(limit=35, batch=16, epochs=2, model="transformer")


@pytest.mark.usefixtures("untested")
def test_it_trains_as_by_hand(by_hand):
    weights, losses = by_hand
    report = train(strategy="mirrored", replicas=2, loop="fit", **TINY)
    assert_same_weights(report, weights)
    np.testing.assert_allclose(report.loss, losses, atol=1e-5)


@pytest.mark.usefixtures("untested")
def test_it_resumes_and_exports(by_hand, tmp_path):
    """The first epoch on one device, the second on two."""
    import keras

    train(**{**TINY, "epochs": 1}, checkpoint_dir=tmp_path / "kept")
    two = {**TINY, "strategy": "central-storage", "replicas": 2}
    report = train(**two, checkpoint_dir=tmp_path / "kept", export=tmp_path / "out")
    assert report.resumed_from is not None
    assert_same_weights(report, by_hand[0])
    np.testing.assert_allclose(report.loss, by_hand[1], atol=1e-5)
    model = keras.models.load_model(tmp_path / "out" / "model.keras")
    for got, wanted in zip(model.trainable_variables, report.weights, strict=True):
        np.testing.assert_array_equal(got.numpy(), wanted)


def train_here(job):
    """In a task: train with the smaller model."""
    models.MODELS["transformer"] = SMALLER
    leave_out_test_data()
    return train(**job)


@pytest.mark.parametrize(
    "strategy, workers, servers", [("multi-worker", 2, 0), ("parameter-server", 1, 1)]
)
def test_it_trains_in_a_cluster(by_hand, launcher, strategy, workers, servers):
    """A server has one worker: two don't wait for each other, and no order of updates is fixed.

    The custom loop: `fit` is above, and across workers in test_multi_worker.
    """
    there = {**TINY, "strategy": strategy, "loop": "custom"}
    job = LocalCluster(workers, servers, launcher=launcher).start(train_here, there)
    try:
        result = job.wait(300)
    finally:
        job.stop()
    for report in [result] if servers else result:
        assert_same_weights(report, by_hand[0])


def test_seeds_make_it_and_kernels_differ(tf):
    one, same, other = (build_transformer(seed).get_weights() for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    kernels = [w for w in one if w.shape == (32, 4, 8)]
    assert len(kernels) == 6
    assert all(np.abs(a - b).max() > 0.01 for i, a in enumerate(kernels) for b in kernels[:i])
    assert any(np.abs(a - b).max() > 0.01 for a, b in zip(one, other, strict=True))


def test_the_encoder_and_the_decoder_make_one_model(tf):
    """Its encoder is the classifier's; the decoder sees the tokens alone, and learns from them."""
    model, alone = build_encoder_decoder(dtype="float64"), build_transformer(dtype="float64")
    images, labels = make_batch(6)
    encoder, decoder = model.layers
    tokens = encoder(images)
    assert tokens.shape == (6, 49, 32) and decoder(tokens).shape == (6, 10)
    assert_allclose = np.testing.assert_allclose
    assert_allclose(decoder(tokens), model(images), rtol=0, atol=1e-12)
    ours, theirs = encoder.get_weights(), alone.get_weights()[: len(encoder.get_weights())]
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(images) ** 2)
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    assert all(np.abs(gradient).max() > 0 for gradient in map(np.asarray, gradients[:-1]))
    pipeline = cut_model(model, [1.0, 1.0], 2, DEVICES[:2])
    step = run_pipeline(pipeline, make_schedule("1f1b", 2, 3), images, labels)
    assert_equal_step(step, model, images, labels)
    sizes = [8 * layer.count_params() for layer in (encoder, decoder)]
    assert pipeline.count_parameter_bytes() == sizes


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_attention_split_by_heads_is_the_layer(tf, parts):
    """Keras rounds 1 / sqrt(head size) to float32; that of 16 is exact."""
    model = build_transformer(dtype="float64", width=64)
    layer = model.get_layer("block_1").get_layer("attention")
    rng = np.random.default_rng(parts)
    for variable in layer.trainable_variables:  # biases begin at zero
        variable.assign(rng.normal(size=variable.shape) / 4)
    x, dy = rng.normal(size=(2, 3, 49, 64))
    with tf.GradientTape() as tape:
        inputs = tf.constant(x)
        tape.watch(inputs)
        outputs = layer(inputs, inputs)
    sources = [inputs, *(v.value for v in layer.trainable_variables)]
    dx, *wanted = tape.gradient(outputs, sources, output_gradients=tf.constant(dy))

    split = SplitAttention(layer, DeviceGroup(DEVICES[:parts]))
    got = split.run_forward(split.group.copy(x))
    back = split.run_backward(split.group.copy(dy))
    for device, own, own_dx in zip(DEVICES[:parts], got, back, strict=True):
        assert own.device.endswith(device) and own_dx.device.endswith(device)
        np.testing.assert_allclose(own, outputs, rtol=0, atol=1e-9)
        np.testing.assert_allclose(own_dx, dx, rtol=0, atol=1e-9)
    for ours, theirs in zip(split.gather_gradients(), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
    assert [(call.phase, call.kind) for call in split.group.calls] == [
        ("forward", "all-reduce"),
        ("backward", "all-reduce"),
    ]
    assert sum(split.count_parameter_bytes()) == 8 * (4 * 64 * 64 + 3 * 64 + parts * 64)


@pytest.mark.parametrize("name, recompute", [("gpipe", True), ("1f1b", False)])
def test_pipelined_by_layers_it_gives_the_unsplit_gradients(tf, name, recompute):
    model = build_transformer(dtype="float64")
    images, labels = make_batch(6)
    schedule = make_schedule(name, 2, 3)
    pipeline = cut_model(model, [1.0] * len(model.layers), 2, DEVICES[:2])
    step = run_pipeline(pipeline, schedule, images, labels, Rules(recompute=recompute))
    assert_equal_step(step, model, images, labels)
