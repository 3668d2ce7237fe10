"""Layers on different devices: equal results, and what lives and moves where."""

import numpy as np
import pytest
from parallel_models import DEVICES, assert_equal_step, build_tower, find_reference, make_batch

from utils.measure import array_bytes
from utils.models import build_cnn, build_mlp
from utils.parallel.layers import run_placed
from utils.parallel.parts import measure_layers, run_unsplit
from utils.parallel.traffic import Traffic


def test_the_unsplit_step_is_keras_own():
    images, labels = make_batch()
    for model in (build_mlp(dtype="float64"), build_tower()):
        assert_equal_step(run_unsplit(model, images, labels), model, images, labels, 1e-12)


def test_a_difference_is_the_largest_of_loss_and_gradients():
    images, labels = make_batch(8)
    one = run_unsplit(build_tower(3), images, labels)
    other = run_unsplit(build_tower(3), images, labels)
    assert one.find_difference(other) == 0
    other.gradients[1][2] += 0.25
    assert one.find_difference(other) == pytest.approx(0.25)


@pytest.mark.parametrize(
    "order", [[0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 2, 3], [3, 1, 0, 2, 0, 2, 1]]
)
def test_placed_layers_give_the_unsplit_gradients(order):
    images, labels = make_batch(6)
    model = build_cnn(dtype="float64")
    step = run_placed(model, [DEVICES[i] for i in order], images, labels)
    assert_equal_step(step, model, images, labels)
    assert [layer.device for layer in step.layers] == [DEVICES[i] for i in order]
    assert [layer.gradient_device for layer in step.layers] == [DEVICES[i] for i in order]


def test_bytes_that_cross_are_the_boundary_activations_and_their_gradients():
    images, labels = make_batch(10)
    model = build_mlp(dtype="float64", hidden_units=16)
    step = run_placed(model, ["CPU:1", "CPU:1", "CPU:3"], images, labels)
    crossing = 10 * 16 * 8
    assert step.traffic.count_links() == {
        ("CPU:1", "CPU:3"): crossing,
        ("CPU:3", "CPU:1"): crossing,
    }
    assert step.traffic.count_bytes("activations") == crossing
    assert step.traffic.count_bytes() == 2 * crossing
    weights = [variable.value for variable in model.trainable_variables]
    hidden, last = array_bytes(weights[:2]), array_bytes(weights[2:])
    assert step.count_bytes() == {
        "CPU:1": hidden + 10 * 8 * (784 + 16),
        "CPU:3": last + 10 * 8 * 10,
    }


def test_weights_are_made_on_their_device_and_the_model_stays():
    import tensorflow as tf

    from utils.parallel.parts import Part

    model = build_tower(3)
    before = model.get_weights()
    part = Part(model.layers[1:], "CPU:2")
    assert {weight.device[-5:] for weight in part.weights} == {"CPU:2"}
    part.weights[0].assign(tf.zeros_like(part.weights[0]))
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_tape_outside_a_device_scope_goes_back_on_the_first_device(tf):
    """Why `Part` opens the scope again for the backward pass."""
    with tf.device("CPU:2"):
        x = tf.constant([[2.0]])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.square(x)
    assert y.device.endswith("CPU:2")
    assert tape.gradient(y, x).device.endswith("CPU:0")


def test_a_tensor_that_is_there_already_is_not_sent(tf):
    traffic = Traffic()
    with tf.device("CPU:1"):
        tensor = tf.ones([5])
    assert traffic.send(tensor, "CPU:1", "activations") is tensor and not traffic.transfers
    assert traffic.send(tensor, "CPU:2", "activations").device.endswith("CPU:2")
    assert traffic.count_links() == {("CPU:1", "CPU:2"): 20}


def test_measured_layers_are_named_and_sized():
    images, _ = make_batch(4)
    model = build_cnn()
    costs = measure_layers(model, images, repeats=2)
    assert [cost.name for cost in costs] == [layer.name for layer in model.layers]
    assert all(cost.forward_seconds > 0 and cost.backward_seconds > 0 for cost in costs)
    assert costs[0].seconds == costs[0].forward_seconds + costs[0].backward_seconds
    assert sum(c.parameter_bytes for c in costs) == array_bytes(model.trainable_variables)
    assert costs[0].activation_bytes == 4 * 26 * 26 * 32 * 4


def test_inputs_are_rounded_as_keras_rounds_them():
    """`keras.Input` is float32 unless told otherwise, also before float64 layers."""
    images, labels = make_batch(4)
    model = build_mlp(dtype="float64")
    loss, _ = find_reference(model, images, labels)
    rounded, _ = find_reference(model, images.astype("float32").astype("float64"), labels)
    assert loss == rounded == run_unsplit(model, images, labels).loss
