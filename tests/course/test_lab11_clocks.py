"""Lab 11 measures for real: what its clocks read, how many epochs, and what it makes of times."""

import numpy as np
import pytest
import tensorflow as tf
from lab_runner import GivenTimes

from distlab.labs.lab11 import exercise as lab11


def test_an_epoch_is_read_to_its_end_and_takes_time_by_both_clocks():
    kept, by_clock, by_processor = lab11._time_epoch(tf.data.Dataset.range(100).batch(32))
    assert [len(batch) for batch in kept] == [32, 32, 32, 4]
    assert by_clock > 0 and by_processor >= 0


@pytest.mark.parametrize(("epoch", "ratio"), [(0.25, 4.0), (0.8, 1.25), (2.0, 0.5)])
def test_the_ratio_is_that_of_the_epochs(epoch, ratio, monkeypatch):
    monkeypatch.setattr(lab11, "_describe", lambda kept, shown: kept)
    naive, fast = tf.data.Dataset.range(3), tf.data.Dataset.range(3)
    epochs = []
    with GivenTimes(epoch):
        account = lab11._Account(naive)
        assert lab11._measure_ratio(naive, fast, epochs, np.zeros(0)) == pytest.approx(ratio)
        account.naive = account.fast = len(epochs)
        assert account.measure() == pytest.approx(ratio)
    assert len(epochs) == lab11.ROUNDS + 1
