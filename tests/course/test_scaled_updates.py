"""What each way to scale a loss does to an update, against updates added up by hand."""

import numpy as np
import pytest

from distlab.lessons.scaled_updates import (
    DIVISORS,
    Shares,
    draw_updates,
    update_ratio,
)
from utils.data import split_batch


@pytest.fixture
def gradients():
    return np.random.default_rng(3).normal(0.5, 1.0, size=(64, 200))


@pytest.mark.parametrize("way", list(DIVISORS))
@pytest.mark.parametrize(
    "batch", [Shares(4, 64, 64), Shares(4, 63, 32), Shares(3, 2, 32), Shares(4, 10, 10)]
)
def test_ratio_and_residual_equal_the_update_added_up_by_hand(gradients, batch, way):
    gradient = gradients[: batch.examples].mean(axis=0)
    update, start = np.zeros(200), 0
    for own in split_batch(batch.examples, batch.replicas):
        if own:
            update += gradients[start : start + own].sum(axis=0) / DIVISORS[way](own, batch)
        start += own
    (expected,), *_ = np.linalg.lstsq(gradient[:, None], update, rcond=None)
    off = np.linalg.norm(update - expected * gradient) / np.linalg.norm(gradient)
    ratio, residual = update_ratio(gradients @ gradients.T, batch, way)
    np.testing.assert_allclose([ratio, residual], [expected, off], rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(
    ("way", "batch", "expected"),
    [
        ("tf.reduce_mean", Shares(4, 64, 64), 4),
        ("Keras's loss object", Shares(4, 64, 64), 1),
        ("Keras's loss object", Shares(4, 2, 32), 0.5),
        ("Keras's loss object / replicas", Shares(4, 64, 64), 0.25),
        ("compute_average_loss(written size)", Shares(4, 2, 32), 1 / 16),
        ("compute_average_loss(real count)", Shares(4, 63, 32), 1),
        ("tf.reduce_sum", Shares(4, 64, 64), 64),
    ],
)
def test_ratios_of_the_lesson(gradients, way, batch, expected):
    assert update_ratio(gradients @ gradients.T, batch, way)[0] == pytest.approx(expected)


def test_updates_are_arrows_and_turned_ones_say_so():
    updates = {"mean": (4.0, 0.0), "sum": (64.0, 0.0), "clipped": (1.0, 1.0)}
    picture = draw_updates(updates, title="Updates")
    assert picture.alt == "Updates. mean: ×4; sum: ×64; clipped: ×1, turned 45°."
    assert picture.svg.count("#d55e00") >= 1 or picture.svg.count("#D55E00") >= 1
    straight = draw_updates({"mean": (4.0, 1e-12)}, title="Updates")
    assert "#d55e00" not in straight.svg.lower()
