"""One dense layer over several devices: equal results, collectives and bytes counted."""

import numpy as np
import pytest
from parallel_models import DEVICES, assert_equal_step, make_batch

from distlab.lessons.split_mlp import run_split_mlp
from utils.models import build_mlp
from utils.parallel.group import split_sizes
from utils.parallel.tensor import SPLITS, split_dense

PARTS = (1, 2, 3, 4)


def run_layer(split, parts, inputs=7, outputs=10, batch=5):
    """A dense layer forward and backward, split and by NumPy: (layer, got, wanted)."""
    rng = np.random.default_rng(parts)
    x, w = rng.normal(size=(batch, inputs)), rng.normal(size=(inputs, outputs))
    b, dy = rng.normal(size=outputs), rng.normal(size=(batch, outputs))
    layer = split_dense(w, b, DEVICES[:parts], split)
    ys = layer.run_forward(layer.group.copy(x))
    dxs = layer.run_backward(layer.group.copy(dy))
    wanted = {"y": x @ w + b, "dx": dy @ w.T, "dw": x.T @ dy, "db": dy.sum(axis=0)}
    got = {
        "y": ys,
        "dx": dxs,
        "dw": [layer.gather_gradients()[0]],
        "db": [layer.gather_gradients()[1]],
    }
    return layer, got, wanted


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("split", SPLITS[:2])
def test_a_split_layer_is_the_layer(split, parts):
    layer, got, wanted = run_layer(split, parts)
    for name, values in got.items():
        for value in values:
            np.testing.assert_allclose(value, wanted[name], rtol=0, atol=1e-9)
    for device, y, dx in zip(DEVICES[:parts], got["y"], got["dx"], strict=True):
        assert y.device.endswith(device) and dx.device.endswith(device)
    assert [k.device[-5:] for k in layer.kernels] == DEVICES[:parts]


def test_each_split_needs_its_own_collectives():
    columns, *_ = run_layer("columns", 2)
    rows, *_ = run_layer("rows", 2)
    assert [(call.phase, call.kind) for call in columns.group.calls] == [
        ("forward", "all-gather"),
        ("backward", "all-reduce"),
    ]
    assert [(call.phase, call.kind) for call in rows.group.calls] == [
        ("forward", "all-reduce"),
        ("backward", "all-gather"),
    ]


def test_collectives_send_what_a_ring_sends():
    """Five examples, 8 bytes a number; an all-gather of 10 columns over 4, 3, 3."""
    layer, *_ = run_layer("columns", 3)
    gather, reduce = layer.group.calls
    column = 5 * 8
    assert gather.payload_bytes == 10 * column
    # a device sends every piece but the one that its neighbor began with
    assert gather.bytes_per_device == [7 * column, 7 * column, 6 * column]
    assert sum(gather.bytes_per_device) == 2 * gather.payload_bytes
    assert reduce.payload_bytes == 7 * column
    assert sum(reduce.bytes_per_device) == 2 * 2 * reduce.payload_bytes


def test_ten_hidden_nodes_as_five_and_five():
    model = build_mlp(dtype="float64", hidden_units=10)
    images, labels = make_batch()
    step = run_split_mlp(model, DEVICES[:2], images, labels, "both")
    assert_equal_step(step, model, images, labels)
    own = 784 * 5 + 5 + 5 * 10 + 10  # five columns, five rows, and the whole last bias
    assert step.parameter_bytes == [8 * own, 8 * own]
    assert step.activation_bytes == [8 * 24 * (784 + 5 + 10)] * 2


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("split", SPLITS)
def test_a_split_network_gives_the_unsplit_gradients(split, parts):
    model = build_mlp(dtype="float64", hidden_units=10)
    images, labels = make_batch(9)
    step = run_split_mlp(model, DEVICES[:parts], images, labels, split)
    assert_equal_step(step, model, images, labels)
    per_pass = [
        sum(call.phase == phase for call in step.calls) for phase in ("forward", "backward")
    ]
    assert per_pass == ([1, 1] if split == "both" else [2, 2])


def test_column_then_row_needs_one_all_reduce_each_way():
    images, labels = make_batch(6)
    step = run_split_mlp(build_mlp(dtype="float64"), DEVICES[:2], images, labels, "both")
    assert [(call.phase, call.kind) for call in step.calls] == [
        ("forward", "all-reduce"),
        ("backward", "all-reduce"),
    ]
    assert [call.payload_bytes for call in step.calls] == [6 * 10 * 8, 6 * 784 * 8]


def test_sizes_differ_by_one_at_most():
    assert split_sizes(10, 2) == [5, 5] and split_sizes(10, 3) == [4, 3, 3]
    assert split_sizes(3, 3) == [1, 1, 1] and split_sizes(7, 1) == [7]
    for total in range(1, 12):
        for parts in range(1, total + 1):
            sizes = split_sizes(total, parts)
            assert sum(sizes) == total and max(sizes) - min(sizes) <= 1
