"""DTensor on data, model and mixed meshes of logical devices."""

import pytest
from parallel_models import DEVICES, assert_equal_step, build_tower, make_batch

from distlab.lessons.dtensor_mlp import run_dtensor
from utils.errors import DistributedError
from utils.models import build_mlp

HIDDEN, EXAMPLES = 12, 24
WEIGHTS = 784 * HIDDEN + HIDDEN + HIDDEN * 10
PIECES = {  # mesh -> hidden units and examples on each device
    (("batch", 4),): (HIDDEN, EXAMPLES // 4),
    (("model", 4),): (HIDDEN // 4, EXAMPLES),
    (("batch", 2), ("model", 2)): (HIDDEN // 2, EXAMPLES // 2),
}


@pytest.mark.parametrize("mesh", PIECES)
def test_every_mesh_gives_the_unsplit_gradients_from_smaller_pieces(mesh):
    model = build_mlp(dtype="float64", hidden_units=HIDDEN)
    images, labels = make_batch(EXAMPLES)
    step = run_dtensor(model, dict(mesh), DEVICES, images, labels)
    assert_equal_step(step, model, images, labels)
    hidden, examples = PIECES[mesh]
    assert step.shapes["kernel 1"] == [(784, hidden)] * 4
    assert step.shapes["images"] == [(examples, 784)] * 4
    assert step.parameter_bytes == [8 * (784 * hidden + hidden + hidden * 10 + 10)] * 4
    assert step.image_bytes == [8 * examples * 784] * 4


def test_a_mesh_that_cannot_be_is_refused_in_one_line():
    images, labels = make_batch(EXAMPLES)
    model = build_mlp(dtype="float64", hidden_units=HIDDEN)
    tower = build_tower(4)
    cases = [
        ("must have the dimensions", model, {"stage": 4}, DEVICES, EXAMPLES),
        ("must have the dimensions", model, {}, DEVICES, EXAMPLES),
        ("needs 6 devices, got 4", model, {"batch": 2, "model": 3}, DEVICES, EXAMPLES),
        ("23 examples must be divisible by 2", model, {"batch": 2, "model": 2}, DEVICES, 23),
        ("two dense layers", tower, {"model": 4}, DEVICES, EXAMPLES),
        (
            "12 hidden units must be divisible by 5",
            model,
            {"model": 5},
            [*DEVICES, "CPU:4"],
            EXAMPLES,
        ),
    ]
    for says, whose, mesh, devices, examples in cases:
        with pytest.raises(DistributedError, match=says) as refused:
            run_dtensor(whose, mesh, devices, images[:examples], labels[:examples])
        assert "\n" not in str(refused.value)
