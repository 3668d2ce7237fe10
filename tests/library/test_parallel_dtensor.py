"""DTensor on data, model and mixed meshes of logical devices."""

import pytest
from parallel_models import DEVICES, assert_equal_step, make_batch

from distlab.lessons.dtensor_mlp import run_dtensor
from utils.models import build_mlp

HIDDEN, EXAMPLES = 12, 24
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
    assert step.parameter_bytes == [8 * (784 * hidden + hidden + hidden * 10 + 10)] * 4
    assert step.image_bytes == [8 * examples * 784] * 4
